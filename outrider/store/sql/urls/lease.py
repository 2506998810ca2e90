"""Leasing: the earliest ready queues of the highest bands, as far as their gates let anybody in.

Each round takes a handful of ready queues, none of which anybody else holds, and looks at each once.
What it finds decides where the queue goes: served and at the end of its band, behind its gate, or
asleep until something is due. So a queue that has nothing to give is not met again soon, and the cost
of a lease does not depend on how many queues there are.
"""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import msgspec

from outrider.model.gate import Gate
from outrider.model.identifiers import new_uuid7_bytes
from outrider.model.lease import Lease, LeaseGrant, LeaseRequest, NoWork, Token
from outrider.model.settings import Settings
from outrider.model.task import MAX_PRIORITY, NEVER, CrawlState, DiscoveryType, Kind
from outrider.model.url import locate, url_hash
from outrider.policy import politeness
from outrider.policy.politeness import Leased, Traffic
from outrider.store.sql.script import Call, Row, Script, Value
from outrider.store.sql.urls import crawls, gates
from outrider.store.sql.urls.counting import ASSIGNED, PENDING, CountChanges
from outrider.store.sql.urls.crawls import StoredCrawl
from outrider.store.sql.urls.gates import StoredGate
from outrider.store.sql.urls.waking import LIMITED

ROUNDS = 10
QUEUES_PER_ROUND = 16
"""At least so many queues are looked at in a round, however few slots are free."""
MIXED_LOOK = 8
"""How many tasks of a queue of several domains are looked at for one whose gate is open."""
MIXED_AGAIN_MS = 1_000
HELD_AGAIN_MS = 20
"""When to look again at a queue whose gate somebody held."""
EXCLUDED_AGAIN_MS = 1_000
"""When to look again at a task whose URL is leased in another crawl."""


class ReadyQueue(NamedTuple):
    """A queue whose time has come, locked."""

    key: str
    domain: str | None
    delay_ms: int | None
    blocked_until: int
    page_limit: int | None


class ReadyTask(NamedTuple):
    """A task at the head of its queue."""

    key: str
    hash: bytes
    url: str
    kind: int
    priority: int
    depth: int
    attempt_count: int
    discovery_type: int
    etag: str | None
    last_modified: str | None
    metadata: str | None


class Granted(NamedTuple):
    """A task on its way into a worker's hands."""

    task: ReadyTask
    domain: str
    delay_ms: int
    gate_was: int
    token: bytes


class Round:
    """One look at a handful of queues of one crawl."""

    def __init__(
        self, stored: StoredCrawl, request: LeaseRequest, now: int, lease_ms: int, ordinals: Iterator[int]
    ) -> None:
        self.crawl_id = stored.crawl_id
        self.limits = stored.crawl.limits
        self.request = request
        self.now = now
        self.expires_at = now + lease_ms
        self.locked: dict[str, StoredGate] = {}
        self.gates: dict[str, Gate] = {}
        """The locked gates as they will be after this round."""
        self.traffic: dict[str, Traffic] = {}
        self.granted: list[Granted] = []
        self.opens: dict[str, int] = {}
        """When to look again, for queues that their gates or limits closed."""
        self.drained: list[str] = []
        """Queues that had less to give than their gates would have let through."""
        self.allowance: dict[str, int] = {}
        """How many more pages a queue's limit allows."""
        self.budget: dict[str, int] = {}
        """How many more pages the run may fetch of a domain, where it has a budget."""
        self.excluded: set[str] = set()
        """Domains of tasks that could not be leased, because their URLs are leased elsewhere."""
        self.ordinals = ordinals

    def lock_gates(self, domains: set[str]) -> Script[None]:
        """Lock those of these gates that nobody holds, and count what is in flight behind them."""
        new = domains - self.gates.keys()
        if not new:
            return
        locked = yield from gates.lock_free(new)
        self.locked.update(locked)
        self.gates.update({domain: stored.gate for domain, stored in locked.items()})
        self.traffic.update({domain: Traffic() for domain in locked})
        self.traffic.update((yield from gates.traffic(locked)))
        most, run_id = self.limits.max_pages_per_domain, self.request.run_id
        if most is not None and run_id is not None:
            rows = yield Call("pages_of_run", (run_id,), [(domain,) for domain in sorted(locked)])
            self.budget.update({row[0]: most - row[1] for row in rows})

    def free(self, queue: ReadyQueue, domain: str) -> int:
        """Tell how many requests may start now; where none, note when to look again."""
        gate = self.gates.get(domain)
        if gate is None:
            self.opens[queue.key] = self.now + HELD_AGAIN_MS
            return 0
        pages = min(self.allowance[queue.key], self.budget.get(domain, NEVER))
        if pages <= 0:
            self.opens[queue.key] = LIMITED
            return 0
        traffic = self.traffic[domain]
        if traffic.robots and politeness.needs_robots(gate, self.limits, self.now):
            self.opens[queue.key] = max(traffic.first_expiry, self.now + 1)
            return 0
        delay_ms = politeness.effective_delay(gate, self.limits, queue.delay_ms)
        free = politeness.free_slots(gate, traffic, self.limits, delay_ms, self.now)
        if free <= 0:
            self.opens[queue.key] = max(politeness.look_again_at(gate, traffic, self.limits), self.now + 1)
        return min(free, pages)

    def let_through(self, queue: ReadyQueue, domain: str, task: ReadyTask) -> None:
        """Let one task through its gate."""
        gate, traffic = self.gates[domain], self.traffic[domain]
        delay_ms = politeness.effective_delay(gate, self.limits, queue.delay_ms)
        token = new_uuid7_bytes(next(self.ordinals))
        self.granted.append(Granted(task, domain, delay_ms, gate.next_fetch_at, token))
        self.gates[domain] = politeness.after_lease(gate, delay_ms, self.now)
        self.traffic[domain] = Traffic(
            requests=traffic.requests + 1,
            robots=traffic.robots + (task.kind == Kind.ROBOTS),
            first_expiry=min(traffic.first_expiry or self.expires_at, self.expires_at),
        )
        if task.kind == Kind.PAGE:
            self.allowance[queue.key] -= 1
            if domain in self.budget:
                self.budget[domain] -= 1

    def take_back(self, granted: Granted) -> None:
        """Undo what a task did to its gate that could not be leased after all."""
        leased = Leased(granted_at=self.now, delay_ms=granted.delay_ms, gate_was=granted.gate_was)
        self.gates[granted.domain] = politeness.give_back(self.gates[granted.domain], leased)
        traffic = self.traffic[granted.domain]
        self.traffic[granted.domain] = Traffic(
            requests=traffic.requests - 1,
            robots=traffic.robots - (granted.task.kind == Kind.ROBOTS),
            first_expiry=traffic.first_expiry,
        )
        self.excluded.add(granted.domain)


def lease(request: LeaseRequest, now: int | None, settings: Settings, slot: int) -> Script[LeaseGrant]:
    """Answer a request for work, or give again what the same request was given before."""
    yield Call("lock_request", (request.worker, request.request_id))
    moment = yield from crawls.clock(now)
    held = yield Call("leases_of_request", (request.worker, request.request_id, moment))
    if held:
        return LeaseGrant(leases=[_held_again(row, moment) for row in held], next_ready_at=moment)
    if request.crawl is None:
        chosen = [crawls.decoded(row) for row in (yield Call("ready_crawls", (moment, request.run_id)))]
    else:
        chosen = [(yield from crawls.for_write(request.crawl))]
    lease_ms = request.lease_ms or settings.crash_threshold_ms
    changes = CountChanges()
    leases: list[Lease] = []
    no_work: NoWork | None = NoWork.WAITING
    served: list[tuple[int]] = []
    yield from _lock_limits(chosen, request)
    ordinals = count()
    for stored in chosen:
        slots = request.slots - len(leases)
        found, no_work = yield from _from_crawl(stored, request, slots, now, lease_ms, changes, ordinals)
        leases += found
        if found:
            served.append((stored.crawl_id,))
        if len(leases) >= request.slots:
            break
    if request.crawl is None:
        yield Call("take_turns", (), served)
    yield from changes.write(slot)
    if len(leases) >= request.slots:
        return LeaseGrant(leases=leases, next_ready_at=moment)
    rows = yield (Call("next_ready_at", (chosen[0].crawl_id,)) if request.crawl else Call("next_ready_at_any"))
    next_ready_at = rows[0][0]
    if next_ready_at is not None and next_ready_at >= LIMITED:
        next_ready_at = None
    return LeaseGrant(leases=leases, next_ready_at=next_ready_at, no_work=no_work)


def _lock_limits(chosen: list[StoredCrawl], request: LeaseRequest) -> Script[None]:
    """Have the crawls with a page limit to ourselves, and wake what another run left at the end of its budget.

    A queue that has used up a limit is marked, so that it is not met again. Where the limit is a run's
    budget, the mark means nothing to other runs: the first request of each clears them all.
    """
    others = {
        stored.crawl_id
        for stored in chosen
        if stored.crawl.limits.max_pages_per_domain is not None and stored.limited_run != request.run_id
    }
    limited = {stored.crawl_id for stored in chosen if stored.crawl.limits.max_pages is not None}
    yield Call("lock_crawl_limits", (), [(crawl_id,) for crawl_id in sorted(limited | others)])
    for crawl_id in sorted(others):
        yield Call("set_limited_run", (crawl_id, request.run_id))
        yield Call("wake_limited", (crawl_id,))


def _from_crawl(
    stored: StoredCrawl,
    request: LeaseRequest,
    slots: int,
    now: int | None,
    lease_ms: int,
    changes: CountChanges,
    ordinals: Iterator[int],
) -> Script[tuple[list[Lease], NoWork]]:
    """Lease from one crawl until the slots are full or nothing more is ready."""
    if stored.crawl.state is CrawlState.PAUSED:
        return [], NoWork.PAUSED
    if stored.crawl.state is CrawlState.CANCELLED:
        return [], NoWork.CANCELLED
    pages = yield from _pages_allowed(stored)
    moment = yield from crawls.clock(now)
    leases: list[Lease] = []
    looked: list[str] = []
    for _ in range(ROUNDS):
        free = min(slots - len(leases), pages)
        if free <= 0:
            break
        wanted = max(free, QUEUES_PER_ROUND)
        rows = yield Call("ready_queues", (stored.crawl_id, moment, wanted, looked))
        queues = [ReadyQueue(*row) for row in rows]
        round_ = Round(stored, request, moment, lease_ms, ordinals)
        yield from _look(round_, queues, free, changes)
        yield from _grant(round_, changes)
        yield from _move_queues(round_, queues)
        for granted in round_.granted:
            leases.append(_lease(stored.crawl.name, granted, round_.gates[granted.domain], lease_ms))
            pages -= granted.task.kind == Kind.PAGE
        looked += [queue.key for queue in queues]
        if len(queues) < wanted:
            break
    return leases, NoWork.LIMIT if pages <= 0 else NoWork.WAITING


def _pages_allowed(stored: StoredCrawl) -> Script[int]:
    """Tell how many more pages the crawl's limit allows; nobody else can lease from it meanwhile."""
    if stored.crawl.limits.max_pages is None:
        return NEVER
    rows = yield Call("pages_of_crawl", (stored.crawl_id,))
    return stored.crawl.limits.max_pages - int(rows[0][0])


def _look(round_: Round, queues: list[ReadyQueue], slots: int, changes: CountChanges) -> Script[None]:
    """Decide what to take from each queue: first the clocks and limits, then the tasks."""
    unblocked = []
    for queue in queues:
        if queue.blocked_until > round_.now:
            round_.opens[queue.key] = queue.blocked_until
        elif queue.domain == "":
            round_.drained.append(queue.key)
        else:
            unblocked.append(queue)
    yield from round_.lock_gates({queue.domain for queue in unblocked if queue.domain is not None})
    yield from _work_out_allowances(round_, unblocked)
    most = round_.request.max_per_queue or slots
    wanted: dict[str, int] = {}
    for queue in unblocked:
        number = MIXED_LOOK if queue.domain is None else min(round_.free(queue, queue.domain), slots, most)
        if number > 0:
            wanted[queue.key] = number
    yield Call("wake_delayed", (round_.crawl_id, round_.now), [(key,) for key in wanted])
    tasks: dict[str, list[ReadyTask]] = {key: [] for key in wanted}
    for number in set(wanted.values()):
        keys = [(key,) for key, wish in wanted.items() if wish == number]
        for row in (yield Call("ready_tasks", (round_.crawl_id, number), keys)):
            tasks[row[0]].append(ReadyTask(*row))
    for queue in unblocked:
        if queue.key not in wanted:
            continue
        if len(round_.granted) >= slots:
            break
        if queue.domain is None:
            yield from _take_mixed(round_, queue, tasks[queue.key], min(slots - len(round_.granted), most), changes)
        else:
            took_all = yield from _take(round_, queue, queue.domain, tasks[queue.key], slots, changes)
            if took_all and len(tasks[queue.key]) < wanted[queue.key]:
                round_.drained.append(queue.key)


def _work_out_allowances(round_: Round, queues: list[ReadyQueue]) -> Script[None]:
    """Work out how many more pages each queue's own limit allows."""
    limited = [(queue.key,) for queue in queues if queue.page_limit is not None]
    done = {row[0]: row[1] for row in (yield Call("pages_of_queues", (round_.crawl_id,), limited))}
    for queue in queues:
        limit = queue.page_limit
        round_.allowance[queue.key] = NEVER if limit is None else limit - done.get(queue.key, 0)


def _take(
    round_: Round, queue: ReadyQueue, domain: str, tasks: list[ReadyTask], slots: int, changes: CountChanges
) -> Script[bool]:
    """Take tasks of one domain as long as its gate has room; tell whether all could be taken."""
    for task in tasks:
        if len(round_.granted) >= slots or round_.free(queue, domain) <= 0:
            return False
        if task.kind == Kind.ROBOTS or not politeness.needs_robots(round_.gates[domain], round_.limits, round_.now):
            round_.let_through(queue, domain, task)
            continue
        robots = yield from _robots_task(round_, queue, domain, task.url, changes)
        if robots is not None:
            round_.let_through(queue, domain, robots)
        return False
    return True


def _take_mixed(
    round_: Round, queue: ReadyQueue, tasks: list[ReadyTask], most: int, changes: CountChanges
) -> Script[None]:
    """Take from a queue of several domains whatever stands before an open gate, near its head."""
    domains = {task.hash: locate(task.url).domain for task in tasks}
    yield from round_.lock_gates(set(domains.values()))
    before = len(round_.granted)
    again_at = NEVER
    for task in tasks:
        taken = len(round_.granted)
        if taken - before >= most:
            break
        yield from _take(round_, queue, domains[task.hash], [task], taken + 1, changes)
        if len(round_.granted) == taken:
            again_at = min(again_at, round_.opens.pop(queue.key, NEVER))
    if not tasks:
        round_.drained.append(queue.key)
    elif len(round_.granted) == before:
        at_limit = round_.allowance[queue.key] <= 0
        round_.opens[queue.key] = LIMITED if at_limit else min(again_at, round_.now + MIXED_AGAIN_MS)


def _robots_task(
    round_: Round, queue: ReadyQueue, domain: str, page_url: str, changes: CountChanges
) -> Script[ReadyTask | None]:
    """Find or make the task for the robots.txt that must come first; None while it has to wait."""
    scheme, _, host = page_url.split("/", 3)[:3]
    url = f"{scheme}//{host}/robots.txt"
    digest = url_hash(url)
    place = (round_.crawl_id, queue.key, digest)
    kind, how = Kind.ROBOTS.value, DiscoveryType.ROBOTS.value
    # Somebody may be adding this URL as a page, or retrying it: a lease does not wait for that.
    free = yield Call("try_robots_url", (digest,))
    rows = (yield Call("lock_robots_task", place)) if free else []
    if not free or (not rows and (yield Call("robots_task_exists", place))):
        round_.opens[queue.key] = round_.now + HELD_AGAIN_MS
        return None
    state, due_at, attempt_count, kind_was = rows[0] if rows else (None, round_.now, 0, kind)
    if state == ASSIGNED or (state == PENDING and due_at > round_.now):
        round_.opens[queue.key] = max(due_at, round_.now + HELD_AGAIN_MS)
        return None
    sequence = (yield Call("take_sequence", (1,)))[0][0]
    yield Call("arm_robots_task", (*place, url, kind, MAX_PRIORITY, sequence, round_.now, how))
    if state is not None:
        # It may have been found before as a page.
        changes.add((round_.crawl_id, queue.key, domain, kind_was), state, -1)
    changes.add((round_.crawl_id, queue.key, domain, kind), PENDING)
    return ReadyTask(queue.key, digest, url, kind, MAX_PRIORITY, 0, attempt_count, how, None, None, None)


def _grant(round_: Round, changes: CountChanges) -> Script[None]:
    """Write the leases, but not of a URL that is leased in another crawl; then the tasks and gates."""
    request, now = round_.request, round_.now
    rows: list[tuple[Value, ...]] = [
        (
            granted.token, round_.crawl_id, granted.task.key, granted.task.hash, url_hash(granted.task.url),
            granted.domain, granted.task.kind, request.worker, request.request_id, request.run_id,
            granted.task.attempt_count + 1, granted.delay_ms, granted.gate_was, now, now, round_.expires_at,
        )
        for granted in round_.granted
    ]  # fmt: skip
    rows.sort(key=lambda row: row[4])
    tokens = {bytes(row[0]) for row in (yield Call("insert_leases", (), rows))}
    excluded = [granted for granted in round_.granted if granted.token not in tokens]
    for granted in excluded:
        round_.take_back(granted)
    round_.granted = [granted for granted in round_.granted if granted.token in tokens]
    yield Call(
        "postpone_tasks",
        (round_.crawl_id, now + EXCLUDED_AGAIN_MS),
        sorted((granted.task.key, granted.task.hash) for granted in excluded),
    )
    yield Call(
        "assign_tasks",
        (round_.crawl_id,),
        sorted((granted.task.key, granted.task.hash) for granted in round_.granted),
    )
    for granted in round_.granted:
        changes.move((round_.crawl_id, granted.task.key, granted.domain, granted.task.kind), PENDING, ASSIGNED)
    yield from gates.write(round_.locked, round_.gates)


def _move_queues(round_: Round, queues: list[ReadyQueue]) -> Script[None]:
    """Send each queue that was looked at to where it belongs."""
    served = {granted.task.key: granted.domain for granted in round_.granted}
    moves = []
    for queue in queues:
        if queue.key in served:
            gate, traffic = round_.gates[served[queue.key]], round_.traffic[served[queue.key]]
            again_at = round_.now if queue.domain is None else politeness.look_again_at(gate, traffic, round_.limits)
            moves.append((queue.key, max(again_at, round_.now), True))
        elif queue.key in round_.opens and queue.domain not in round_.excluded:
            moves.append((queue.key, round_.opens[queue.key], False))
    yield Call("move_queues", (round_.crawl_id, round_.now), moves)
    yield Call("rest_queues", (round_.crawl_id, round_.now), [(key,) for key in round_.drained])


def _lease(crawl: str, granted: Granted, gate: Gate, lease_ms: int) -> Lease:
    task = granted.task
    return Lease(
        token=Token(granted.token.hex()),
        crawl=crawl,
        key=task.key,
        url=task.url,
        domain=granted.domain,
        kind=Kind(task.kind),
        depth=task.depth,
        priority=task.priority,
        attempt=task.attempt_count + 1,
        discovery_type=DiscoveryType(task.discovery_type),
        lease_ms=lease_ms,
        etag=task.etag,
        last_modified=task.last_modified,
        robots_version=gate.robots_version,
        metadata=None if task.metadata is None else msgspec.json.decode(task.metadata),
    )


def _held_again(row: Row, now: int) -> Lease:
    return Lease(
        token=Token(bytes(row[0]).hex()),
        crawl=row[1],
        key=row[2],
        url=row[3],
        domain=row[4],
        kind=Kind(row[5]),
        depth=row[6],
        priority=row[7],
        attempt=row[8],
        discovery_type=DiscoveryType(row[9]),
        lease_ms=row[10] - now,
        etag=row[11],
        last_modified=row[12],
        robots_version=row[13],
        metadata=None if row[14] is None else msgspec.json.decode(row[14]),
    )
