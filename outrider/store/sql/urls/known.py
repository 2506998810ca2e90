"""What batch clients know: a task's state and date, set outright, which ends any lease on it."""

from collections.abc import Sequence
from typing import NamedTuple

from outrider.model.batch import priority_of
from outrider.model.task import AddResult
from outrider.model.url import url_hash
from outrider.policy import politeness
from outrider.policy.admission import KNOWN, NEW, Admission, Candidate
from outrider.store.sql.script import Call, Script, Value
from outrider.store.sql.urls import add, crawls, gates
from outrider.store.sql.urls.counting import ASSIGNED, COMPLETED, PENDING, CountChanges
from outrider.store.sql.urls.crawls import StoredCrawl
from outrider.store.sql.urls.waking import QueueKey, Wakes


class TaskHeld(Exception):
    """Somebody else has a task that was chosen, or its lease: begin again, when they are done."""


class BatchWakes(Wakes):
    """Wakes that open single queues as well."""

    def queue_opens(self, queue: QueueKey) -> None:
        """Say that a queue has room again below a limit of its own."""
        self._open(queue, 0)


class Found(NamedTuple):
    """A task that is to be set, as it is."""

    hash: bytes
    state: int
    kind: int


def put_known(
    admitted_for: StoredCrawl, admission: Admission, dates: Sequence[int | None], now: int | None, slot: int
) -> Script[list[AddResult]]:
    """Set each task, or make it; of two items for one task the last holds. `dates` go with the positions."""
    stored = yield from crawls.for_write(admitted_for.crawl.name)
    if stored.crawl_id != admitted_for.crawl_id:
        raise add.RulesChanged
    moment = yield from crawls.clock(now)
    changes, wakes = CountChanges(), BatchWakes()
    last = {(candidate.key, candidate.url): candidate for candidate in admission.candidates}
    items = sorted(last.values())
    offered = [_offered(item, dates[item.position], moment) for item in items]
    new = yield from add.insert([add.Batch(stored, offered, len(dates))], moment, changes, wakes)
    made = {candidate[2] for candidate in new}
    before = yield from gates.lock({item.domain for item in items})
    found = yield from find(stored.crawl_id, items)
    yield from _end_leases(stored.crawl_id, items, found, before, wakes)
    yield from _wait_for_mixed(stored.crawl_id, items, wakes)
    rows: list[tuple[Value, ...]] = []
    for item in items:
        place, queue = found[item.position], (stored.crawl_id, item.key)
        due_at = dates[item.position]
        state = COMPLETED if due_at is None else PENDING
        if due_at is not None:
            wakes.task_due(queue, due_at)
        if place.state in (ASSIGNED, COMPLETED):
            wakes.queue_opens(queue)
        changes.move((*queue, item.domain, place.kind), place.state, state)
        if item.position not in made or due_at is None or due_at <= moment:
            due = moment if due_at is None else due_at
            rows.append((item.key, place.hash, state, due_at is not None and due > moment, due, priority_of(due)))
    yield Call("set_tasks", (stored.crawl_id,), rows)
    yield from _put_metadata(stored.crawl_id, items, found, made)
    yield from wakes.write()
    yield from changes.write(slot, moment)
    results = [KNOWN if result is None else result for result in admission.results]
    for position in made:
        results[position] = NEW
    return results


def _offered(item: Candidate, due_at: int | None, now: int) -> Candidate:
    """Make what is inserted where the task is not there."""
    due = now if due_at is None else due_at
    return item._replace(due_in_ms=max(0, due - now), priority=priority_of(due), metadata=None)


def find(crawl_id: int, items: Sequence[Candidate]) -> Script[dict[int, Found]]:
    """Find and lock the tasks, each by its URL; where hashes collide they are a few hashes on."""
    found: dict[int, Found] = {}
    wanted = [(item.position, item.key, item.hash, item.url) for item in items]
    for probe in range(1, add.MAX_PROBES):
        for position, *place in (yield Call("tasks_by_url", (crawl_id,), wanted)):
            found[position] = Found(*place)
        wanted = [
            (position, key, url_hash(url, probe), url) for position, key, _, url in wanted if position not in found
        ]
        if not wanted:
            return found
        wanted.sort(key=lambda row: row[1:3])
    raise AssertionError("a task that was just made is not there")


def _end_leases(
    crawl_id: int,
    items: Sequence[Candidate],
    found: dict[int, Found],
    before: dict[str, gates.StoredGate],
    wakes: Wakes,
) -> Script[None]:
    """End the leases of these tasks, and have those looked at who wait for their domains.

    Others lock leases before gates, and here the gates are locked: so this does not wait for a lease.
    """
    assigned = [(item.key, found[item.position].hash) for item in items if found[item.position].state == ASSIGNED]
    held = yield Call("leases_of_tasks", (crawl_id,), assigned)
    if len(held) < len(assigned):
        raise TaskHeld
    yield Call("delete_leases", (), sorted((row[0],) for row in held))
    for _, domain in held:
        wakes.gate_opens(domain, politeness.opens_at(before[domain].gate))


def _wait_for_mixed(crawl_id: int, items: Sequence[Candidate], wakes: Wakes) -> Script[None]:
    """Have the queues of several domains locked before the end, together with those that are woken.

    Whoever leases from such a queue looks at its tasks first and locks their gates then: it must not find a gate open
    because a task was set in between.
    """
    queues = sorted({(crawl_id, item.key) for item in items})
    for _, key, domain in (yield Call("queue_domains", (), queues)):
        if domain is None:
            wakes.name((crawl_id, key), None)


def _put_metadata(crawl_id: int, items: Sequence[Candidate], found: dict[int, Found], made: set[int]) -> Script[None]:
    """Replace what is kept of the tasks, also by nothing."""
    kept = [(crawl_id, item.key, found[item.position].hash, item.metadata) for item in items if item.metadata]
    yield Call("put_metadata", (), kept)
    bare = [
        (item.key, found[item.position].hash) for item in items if item.metadata is None and item.position not in made
    ]
    yield Call("delete_metadata", (crawl_id,), bare)


def return_expired(now: int | None, most: int, slot: int) -> Script[tuple[list[bytes], int]]:
    """Return the tasks of batch leases that have expired, as if they had never been served, for ever.

    Nobody is charged: a client that takes its time is not a page that kills workers. Their dates stay what they
    were. Returns the tokens, and the moment at which nothing more had expired.
    """
    moment = yield from crawls.clock(now)
    latest = expiry_mark(moment)
    locked = [row[0] for row in (yield Call("crawls_of_batch_leases", (latest, most)))]
    rows = (yield Call("lock_batch_leases", (latest, most, locked))) if locked else []
    if not rows:
        return [], moment
    changes, wakes = CountChanges(), BatchWakes()
    # Whoever serves one of these URLs in another crawl waits for its lease to be gone, and has the gate locked.
    before = yield from gates.lock({row[4] for row in rows})
    tokens = sorted(bytes(row[0]) for row in rows)
    yield Call("delete_leases", (), [(token,) for token in tokens])
    places: list[tuple[Value, ...]] = []
    for _, crawl_id, key, digest, domain, kind, due_at in rows:
        queue = (crawl_id, key)
        places.append((crawl_id, key, bytes(digest)))
        changes.move((crawl_id, key, domain, kind), ASSIGNED, PENDING)
        wakes.task_due(queue, due_at)
        wakes.gate_opens(domain, politeness.opens_at(before[domain].gate))
        wakes.queue_opens(queue)
    yield Call("return_tasks", (), sorted(places))
    yield from wakes.write()
    yield from changes.write(slot)
    return tokens, moment


def expiry_mark(moment: int) -> str:
    """Write a moment so that texts sort as moments do: the request of a batch lease says when it expires."""
    return f"{moment:020d}"
