"""Workers: registrations that expire with their beat."""

from outrider.model.job import MixedModes, Worker, WorkerIdentity, WorkerKind
from outrider.store.sql.control.rows import record
from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import crawls


def register(identity: WorkerIdentity, ttl_ms: int, now: int | None) -> Script[Worker]:
    """Register a process, or renew its registration, unless others work in the other mode."""
    yield Call("lock_workers")
    moment = yield from crawls.clock(now)
    if identity.kind is not WorkerKind.SUPERVISOR:
        others = yield Call("workers_in_other_mode", (identity.worker_id, identity.mode.value, moment))
        if others:
            worker_id, mode, number = others[0]
            raise MixedModes(
                f"{identity.worker_id} runs with mode {identity.mode}, but {number} live "
                f"{'worker runs' if number == 1 else 'workers run'} with mode {mode} on this store, "
                f"{worker_id} among them: stop them first, or start this one with the same mode"
            )
    rows = yield Call(
        "register_worker",
        (
            identity.worker_id, identity.kind.value, identity.mode.value, identity.host, identity.process_id,
            identity.lock_path, moment, moment + ttl_ms,
        ),
    )  # fmt: skip
    return record(Worker, rows[0])


def beat(worker_id: str, ttl_ms: int, now: int | None) -> Script[bool]:
    """Prolong a registration that has not expired; one that has must be made anew."""
    moment = yield from crawls.clock(now)
    rows = yield Call("beat_worker", (worker_id, moment, moment + ttl_ms))
    return bool(rows)


def remove(worker_id: str) -> Script[bool]:
    """Forget a registration."""
    rows = yield Call("remove_worker", (worker_id,))
    return bool(rows)


def listed() -> Script[list[Worker]]:
    """List all registrations by name, the expired ones too."""
    rows = yield Call("list_workers")
    return [record(Worker, row) for row in rows]


def expired(now: int | None) -> Script[list[Worker]]:
    """List the registrations that have expired, the longest dead first."""
    moment = yield from crawls.clock(now)
    rows = yield Call("expired_workers", (moment,))
    return [record(Worker, row) for row in rows]
