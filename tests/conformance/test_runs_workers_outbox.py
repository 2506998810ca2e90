"""Runs, workers, the outbox, and what a script does that an engine runs again."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from outrider.model.artifact import Fetch
from outrider.model.domain import Claim, DomainChange, DomainSeed
from outrider.model.errors import InvalidInput, InvalidTransition, JobConflict, UnknownCrawl
from outrider.model.identifiers import new_uuid7
from outrider.model.job import (
    Job,
    JobEnding,
    JobRequest,
    MixedModes,
    OutboxMessage,
    RunKind,
    RunStatus,
    StoredMessage,
    UnknownJob,
    UnknownRun,
    WorkerIdentity,
    WorkerKind,
    WorkerMode,
)
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.machines import DesiredState, DomainStatus, JobStatus
from outrider.model.task import CrawlLimits, CrawlState, Discovered, Kind
from outrider.store.opening import Stores, open_store
from outrider.store.protocols import ControlStore
from outrider.store.sql.control_store import SqlControlStore
from outrider.store.sql.engine import Engine
from outrider.store.sql.script import Script
from tests.conformance.backends import Place
from tests.conformance.controlling import NOW, at
from tests.processes import run_together

MINUTE = 60_000
Answer = TypeVar("Answer")


# ------------------------------------------------------------------------- runs


async def test_a_run_is_opened_and_closed_once(stores: Stores) -> None:
    control = stores.control
    await stores.urls.create_crawl("c", now=NOW)
    run = await control.open_run("c", RunKind.CRAWL, settings={"max_pages": 5}, now=NOW)
    assert (run.crawl, run.kind, run.status, run.settings) == ("c", RunKind.CRAWL, RunStatus.RUNNING, {"max_pages": 5})
    assert (run.started_at, run.finished_at, run.job_id) == (at(NOW), None, None)
    closed = await control.close_run(run.id, RunStatus.COMPLETED, "drained", now=NOW + 1)
    assert (closed.status, closed.reason, closed.finished_at) == (RunStatus.COMPLETED, "drained", at(NOW + 1))
    assert await control.close_run(run.id, RunStatus.COMPLETED, "again", now=NOW + 2) == closed
    with pytest.raises(InvalidTransition, match="from completed to failed"):
        await control.close_run(run.id, RunStatus.FAILED, now=NOW + 2)
    assert await control.get_run(run.id) == closed
    with pytest.raises(InvalidInput):
        await control.close_run(run.id, RunStatus.RUNNING)


async def test_what_does_not_exist_has_no_runs(stores: Stores) -> None:
    control = stores.control
    with pytest.raises(UnknownCrawl):
        await control.open_run("nothing", RunKind.CRAWL)
    for run_id in (new_uuid7(), "nonsense"):
        assert await control.get_run(run_id) is None
        with pytest.raises(UnknownRun):
            await control.close_run(run_id, RunStatus.STOPPED)
    await stores.urls.create_crawl("c", now=NOW)
    with pytest.raises(UnknownJob):
        await control.open_run("c", RunKind.JOB, job_id=new_uuid7(), epoch=1)
    with pytest.raises(InvalidInput):
        await control.open_run("c", RunKind.JOB, epoch=1)
    assert await control.list_runs() == []


async def test_runs_are_listed_newest_first(stores: Stores) -> None:
    control = stores.control
    for crawl in "ab":
        await stores.urls.create_crawl(crawl, now=NOW)
    runs = [await control.open_run("ab"[n % 2], RunKind.CRAWL, now=NOW) for n in range(5)]
    newest_first = sorted((run.id for run in runs), reverse=True)
    assert [run.id for run in await control.list_runs()] == newest_first
    assert [run.id for run in await control.list_runs("a")] == [run for run in newest_first if run in
                                                               {each.id for each in runs[::2]}]  # fmt: skip
    assert [run.id for run in await control.list_runs(before=newest_first[2], limit=1)] == [newest_first[3]]


async def test_a_jobs_run_survives_its_recovery(stores: Stores) -> None:
    control = stores.control
    await stores.urls.create_crawl("c", now=NOW)
    job = await control.submit_job(JobRequest(payload={}, crawl="c"), now=NOW)
    first = await control.claim_job("w", now=NOW)
    assert first is not None
    run = await control.open_run("c", RunKind.JOB, job_id=job.id, epoch=1, now=NOW)
    assert run.job_id == job.id
    await control.recover_stale_jobs(stale_after_ms=0, now=NOW + 1)
    with pytest.raises(JobConflict, match="no longer run under epoch 1"):
        await control.open_run("c", RunKind.JOB, job_id=job.id, epoch=1, now=NOW + 1)
    second = await control.claim_job("x", now=NOW + 1)
    assert second is not None
    assert second.run_id == run.id
    assert await control.open_run("c", RunKind.JOB, job_id=job.id, epoch=2, now=NOW + 1) == run
    await control.close_run(run.id, RunStatus.STOPPED, now=NOW + 2)
    other = await control.open_run("c", RunKind.JOB, job_id=job.id, epoch=2, now=NOW + 3)
    assert other.id != run.id
    found = await control.get_job(job.id)
    assert found is not None
    assert found.run_id == other.id


async def test_a_new_run_gives_queues_at_their_limit_a_new_budget(stores: Stores) -> None:
    urls, control = stores.urls, stores.control
    limits = CrawlLimits(delay_ms=0, robots=False, max_pages_per_domain=1)
    await urls.create_crawl("c", limits=limits, now=NOW)
    await urls.add("c", [Discovered(url=f"https://a.org/{n}") for n in range(3)], now=NOW)
    for round_number in range(2):
        run = await control.open_run("c", RunKind.CRAWL, now=NOW)
        got = []
        for attempt in range(3):
            request = LeaseRequest(
                worker="w", request_id=f"{round_number}.{attempt}", slots=5, crawl="c", run_id=run.id
            )
            leases = (await urls.lease(request, now=NOW + attempt)).leases
            await urls.report(
                [Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200)) for lease in leases],
                now=NOW + attempt,
            )
            got += leases
        assert len(got) == 1


async def test_a_crawls_state_is_exact(stores: Stores) -> None:
    """Invariant 6, Counts: `total_pending` is what waits and what is in flight."""
    urls, control = stores.urls, stores.control
    with pytest.raises(UnknownCrawl):
        await control.crawl_state("c")
    await urls.create_crawl("c", limits=CrawlLimits(delay_ms=0, robots=False, concurrency=9, max_depth=1), now=NOW)
    empty = await control.crawl_state("c")
    assert (empty.total_pending, empty.total_completed, empty.job_id) == (0, 0, None)
    job = await control.submit_job(JobRequest(payload={}, crawl="c"), now=NOW)
    await urls.add("c", [Discovered(url=f"https://a.org/{n}", depth=n // 3) for n in range(9)], now=NOW)
    await urls.add("c", [Discovered(url="https://b.org/i.png", kind=Kind.IMAGE)], now=NOW)
    leases = (await urls.lease(LeaseRequest(worker="w", request_id="1", slots=4, crawl="c"), now=NOW)).leases
    await urls.report(
        [
            Report(token=leases[0].token, outcome=Outcome.DONE, fetch=Fetch(http_status=200)),
            Report(token=leases[1].token, outcome=Outcome.REFUSED, reason="robots"),
        ],
        now=NOW,
    )
    state = await control.crawl_state("c")
    assert (state.state, state.job_id) == (CrawlState.RUNNING, job.id)
    assert (state.total_discovered, state.total_pending, state.total_assigned) == (3, 5, 2)
    assert (state.total_completed, state.total_failed) == (1, 1)


# ---------------------------------------------------------------------- workers


def worker(name: str, mode: WorkerMode = WorkerMode.PLAIN, kind: WorkerKind = WorkerKind.WORKER) -> WorkerIdentity:
    return WorkerIdentity(worker_id=name, kind=kind, mode=mode, host="host", process_id=17, lock_path="/run/w.lock")


async def test_a_registration_lives_while_it_is_beaten(control: ControlStore) -> None:
    registered = await control.register_worker(worker("w"), ttl_ms=MINUTE, now=NOW)
    assert (registered.worker_id, registered.host, registered.process_id) == ("w", "host", 17)
    assert (registered.started_at, registered.last_beat_at) == (at(NOW), at(NOW))
    assert registered.expires_at == at(NOW + MINUTE)
    assert await control.beat_worker("w", ttl_ms=MINUTE, now=NOW + MINUTE - 1)
    [listed] = await control.list_workers()
    assert (listed.started_at, listed.last_beat_at) == (at(NOW), at(NOW + MINUTE - 1))
    dead = NOW + 2 * MINUTE - 1
    assert await control.expired_workers(now=dead - 1) == []
    assert await control.expired_workers(now=dead) == [listed]
    assert not await control.beat_worker("w", ttl_ms=MINUTE, now=dead), "too late: register again"
    assert not await control.beat_worker("nobody", ttl_ms=MINUTE, now=NOW)
    assert await control.remove_worker("w")
    assert not await control.remove_worker("w")
    assert await control.list_workers() == []


async def test_workers_with_and_without_claims_do_not_mix(control: ControlStore) -> None:
    plain, claims = WorkerMode.PLAIN, WorkerMode.CLAIMS
    await control.register_worker(worker("a"), ttl_ms=MINUTE, now=NOW)
    await control.register_worker(worker("r", kind=WorkerKind.RUNNER), ttl_ms=MINUTE, now=NOW)
    for kind in (WorkerKind.WORKER, WorkerKind.RUNNER):
        with pytest.raises(MixedModes, match=r"mode claims, but 2 live workers run with mode plain .*, a among"):
            await control.register_worker(worker("b", claims, kind), ttl_ms=MINUTE, now=NOW)
    await control.register_worker(worker("s", claims, WorkerKind.SUPERVISOR), ttl_ms=MINUTE, now=NOW)
    assert [each.worker_id for each in await control.list_workers()] == ["a", "r", "s"]
    await control.remove_worker("r")
    await control.register_worker(worker("a", claims), ttl_ms=MINUTE, now=NOW)
    await control.register_worker(worker("b", claims), ttl_ms=2 * MINUTE, now=NOW)
    with pytest.raises(MixedModes):
        await control.register_worker(worker("c", plain), ttl_ms=MINUTE, now=NOW + MINUTE)
    await control.register_worker(worker("c", plain), ttl_ms=MINUTE, now=NOW + 2 * MINUTE)


async def try_to_register(dsn: str, name: str, mode: WorkerMode) -> bool:
    async with await open_store(dsn) as stores:
        try:
            await stores.control.register_worker(worker(name, mode), ttl_ms=MINUTE)
        except MixedModes:
            return False
        return True


def test_processes_that_start_together_agree_on_one_mode(place: Place) -> None:
    modes = [WorkerMode.PLAIN, WorkerMode.CLAIMS] * 3
    registered = run_together(try_to_register, [(place.dsn, f"w{n}", mode) for n, mode in enumerate(modes)])
    winners = {mode for mode, done in zip(modes, registered, strict=True) if done}
    assert len(winners) == 1
    assert registered == [mode in winners for mode in modes]


async def test_a_senseless_registration_is_refused(control: ControlStore) -> None:
    for change in ({"worker_id": ""}, {"host": "a\0"}, {"process_id": -1}, {"kind": "boss"}, {"mode": "both"}):
        fields = {"worker_id": "w", "kind": "worker", "mode": "plain", "host": "h", "process_id": 1, **change}
        with pytest.raises(InvalidInput):
            await control.register_worker(WorkerIdentity(**fields), ttl_ms=MINUTE)  # type: ignore[arg-type]


# ----------------------------------------------------------------------- outbox


def message(key: str, number: int, topic: str = "webhook") -> OutboxMessage:
    return OutboxMessage(topic=topic, ordering_key=key, payload={"number": number})


def told(messages: list[StoredMessage]) -> list[tuple[str, object]]:
    return [(each.ordering_key, each.payload["number"]) for each in messages]


async def test_messages_are_taken_in_order_by_one_and_delivered_once(control: ControlStore) -> None:
    ids = await control.append_messages([message(key, n) for n in range(3) for key in "ab"], now=NOW)
    await control.append_messages([message("a", 9, "metrics")], now=NOW)
    assert await control.append_messages([], now=NOW) == []
    first = await control.take_messages("webhook", 4, now=NOW)
    assert told(first) == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert [each.id for each in first] == ids[:4]
    assert [each.attempts for each in first] == [1] * 4
    assert await control.take_messages("webhook", 9, now=NOW) == [], "the rest waits for those before it"
    assert await control.mark_delivered(ids[:4], now=NOW + 5) == 4
    assert await control.mark_delivered(ids[:4], now=NOW + 6) == 0
    assert told(await control.take_messages("webhook", 9, now=NOW)) == [("a", 2), ("b", 2)]


async def test_a_message_waits_for_an_earlier_one_of_its_key(control: ControlStore) -> None:
    await control.append_messages([message("a", 1), message("b", 1), message("a", 2)], now=NOW)
    taken = await control.take_messages("webhook", 2, now=NOW)
    assert told(taken) == [("a", 1), ("b", 1)]
    assert await control.mark_failed(taken[0].id, "503", retry_in_ms=MINUTE, now=NOW)
    await control.mark_delivered([taken[1].id], now=NOW)
    await control.append_messages([message("b", 2)], now=NOW)
    assert told(await control.take_messages("webhook", 9, hold_ms=0, now=NOW + MINUTE - 1)) == [("b", 2)]
    due = await control.take_messages("webhook", 9, now=NOW + MINUTE)
    assert told(due) == [("a", 1), ("a", 2), ("b", 2)]
    assert (due[0].attempts, due[0].last_error) == (2, "503")


async def test_what_a_dead_taker_held_comes_again(control: ControlStore) -> None:
    await control.append_messages([message("a", 1)], now=NOW)
    [taken] = await control.take_messages("webhook", 1, hold_ms=MINUTE, now=NOW)
    assert await control.take_messages("webhook", 1, now=NOW + MINUTE - 1) == []
    [again] = await control.take_messages("webhook", 1, now=NOW + MINUTE)
    assert (again.id, again.attempts) == (taken.id, 2)


async def test_the_backlog_is_counted_and_what_is_delivered_is_pruned(control: ControlStore) -> None:
    ids = await control.append_messages([message("a", n) for n in range(5)], now=NOW)
    await control.append_messages([message("a", 1, "metrics")], now=NOW + 1)
    await control.mark_delivered(ids[:2], now=NOW + 10)
    await control.mark_failed(ids[2], "503", retry_in_ms=0, now=NOW)
    backlog = [(each.topic, each.number, each.failing, each.oldest) for each in await control.outbox_backlog()]
    assert backlog == [("metrics", 1, 0, at(NOW + 1)), ("webhook", 3, 1, at(NOW))]
    assert not await control.mark_failed(ids[0], "too late", retry_in_ms=0, now=NOW)
    assert await control.prune_outbox(before=NOW + 10) == 0
    assert await control.prune_outbox(before=NOW + 11) == 2
    assert await control.prune_outbox(before=NOW + 11) == 0
    assert len(await control.take_messages("webhook", 9, now=NOW + 20)) == 3


async def test_a_senseless_message_is_refused_with_its_whole_batch(control: ControlStore) -> None:
    for bad in (message("", 1), message("a", 1, ""), OutboxMessage(topic="t", ordering_key="a", payload={"x": "\0"})):
        with pytest.raises(InvalidInput):
            await control.append_messages([message("a", 1), bad], now=NOW)
    with pytest.raises(InvalidInput):
        await control.mark_delivered(["nonsense"])
    assert await control.outbox_backlog() == []


async def append_some(dsn: str, writer: int) -> list[tuple[str, object]]:
    async with await open_store(dsn) as stores:
        for number in range(20):
            await stores.control.append_messages([message(key, 100 * writer + number) for key in "ab"])
    return []


async def deliver(dsn: str, _: int) -> list[tuple[str, object]]:
    delivered: list[tuple[str, object]] = []
    async with await open_store(dsn) as stores:
        while len(delivered) < 160:
            if taken := await stores.control.take_messages("webhook", 7):
                delivered += told(taken)
                await stores.control.mark_delivered([each.id for each in taken])
    return delivered


async def append_or_deliver(dsn: str, number: int) -> list[tuple[str, object]]:
    return await (deliver(dsn, number) if number == 0 else append_some(dsn, number))


def test_messages_of_several_processes_are_each_delivered_once_and_in_order(place: Place) -> None:
    delivered, *_ = run_together(append_or_deliver, [(place.dsn, number) for number in range(5)])
    assert len(set(delivered)) == len(delivered) == 160
    for key in "ab":
        for writer in range(1, 5):
            numbers = [number for each, number in delivered if each == key and int(str(number)) // 100 == writer]
            assert numbers == [100 * writer + n for n in range(20)]


# ------------------------------------------------------------ run a second time


class ForgetfulEngine:
    """Runs every writing script twice, as one does that never heard whether the first was committed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.slots = engine.slots

    async def write(self, script: Callable[[], Script[Answer]]) -> Answer:
        await self._engine.write(script)
        return await self._engine.write(script)

    async def read(self, script: Callable[[], Script[Answer]]) -> Answer:
        return await self._engine.read(script)

    def version(self) -> int | None:
        return self._engine.version()

    async def hear_of_jobs(self, timeout_s: float) -> bool:
        return await self._engine.hear_of_jobs(timeout_s)

    async def close(self) -> None:
        await self._engine.close()


@pytest.fixture
def forgetful(control: ControlStore) -> ControlStore:
    """The control plane on an engine whose every COMMIT is answered with silence."""
    assert isinstance(control, SqlControlStore)
    return SqlControlStore(ForgetfulEngine(control._engine))


async def test_a_claim_of_domains_that_is_made_again_finds_itself(
    forgetful: ControlStore, control: ControlStore
) -> None:
    """Invariant 8, Claims: nothing is claimed for somebody who was not told."""
    await forgetful.remember_domains([DomainSeed(domain=f"{name}.org") for name in "abc"], now=NOW)
    claims = await forgetful.claim_domains("w", 2, now=NOW)
    assert [(claim.domain, claim.version) for claim in claims] == [("a.org", 1), ("b.org", 1)]
    assert [found.claimed_by for found in await control.list_domains()] == ["w", "w", None]
    assert len(await forgetful.claim_domains("w", 2, now=NOW)) == 1
    assert [each.version for each in await forgetful.renew_claims("w", claims, now=NOW) if each] == [1, 1]


async def test_a_step_of_a_domain_that_is_made_again_is_one_step(forgetful: ControlStore) -> None:
    """Invariant 8, Claims: but what somebody else did is not taken for one's own."""
    await forgetful.remember_domains([DomainSeed(domain="a.org")], now=NOW)
    change = DomainChange(source=DomainStatus.PENDING, target=DomainStatus.ACTIVE, expected_version=0)
    after = await forgetful.transition_domain("a.org", change, now=NOW)
    assert (after.status, after.version) == (DomainStatus.ACTIVE, 1)


async def test_a_job_goes_its_way_once_though_everything_is_said_twice(forgetful: ControlStore, stores: Stores) -> None:
    """Invariant 9, Jobs."""
    await stores.urls.create_crawl("c", now=NOW)
    job = await forgetful.submit_job(JobRequest(payload={}, crawl="c"), now=NOW)
    await forgetful.submit_job(JobRequest(payload={}, crawl="d"), now=NOW + 1)
    claimed = await forgetful.claim_job("w", now=NOW + 1)
    assert claimed is not None
    assert (claimed.id, claimed.epoch) == (job.id, 1)
    run = await forgetful.open_run("c", RunKind.JOB, job_id=job.id, epoch=1, now=NOW)
    assert (await forgetful.close_run(run.id, RunStatus.FAILED, now=NOW)).status is RunStatus.FAILED
    failed = await forgetful.finish_job(job.id, 1, JobEnding(outcome=JobStatus.FAILED), now=NOW)
    assert failed.status is JobStatus.FAILED
    retried = await forgetful.retry_job(job.id, now=NOW)
    assert retried.status is JobStatus.PENDING
    await forgetful.set_desired_state(job.id, DesiredState.PAUSE, now=NOW)
    history = [each.to_status.value for each in await forgetful.job_history(job.id)]
    assert history == ["pending", "processing", "failed", "pending", "paused"]
    assert len((await forgetful.list_jobs()).jobs) == 2
    assert len(await forgetful.list_runs()) == 1


async def test_a_message_that_is_appended_again_is_one_message(forgetful: ControlStore) -> None:
    ids = await forgetful.append_messages([message("a", 1), message("a", 2)], now=NOW)
    [backlog] = await forgetful.outbox_backlog()
    assert backlog.number == 2
    assert await forgetful.mark_delivered(ids, now=NOW) == 0, "delivered by the first of the two"


async def test_calls_at_once_in_one_process_do_not_disturb_each_other(control: ControlStore) -> None:
    """Those who share a transaction with a call that is refused are answered all the same."""
    await control.remember_domains([DomainSeed(domain=f"d{n}.org") for n in range(40)], now=NOW)
    await control.append_messages([message("a", 0)], now=NOW)

    async def refused() -> None:
        with pytest.raises(UnknownRun):
            await control.close_run(new_uuid7(), RunStatus.STOPPED, now=NOW)

    async def jobs(number: int) -> Job:
        return await control.submit_job(JobRequest(payload={}, crawl=f"c{number}"), now=NOW)

    async def claims(number: int) -> list[Claim]:
        return await control.claim_domains(f"w{number}", 2, now=NOW)

    async def messages(number: int) -> list[str]:
        return await control.append_messages([message("a", number)], now=NOW)

    calls: list[Any] = []
    for number in range(20):
        calls += [refused(), jobs(number), claims(number), messages(number)]
    await asyncio.gather(*calls)
    assert len((await control.list_jobs()).jobs) == 20
    assert sorted(found.version for found in await control.list_domains()) == [1] * 40
    assert len(await control.take_messages("webhook", 100, now=NOW)) == 21
