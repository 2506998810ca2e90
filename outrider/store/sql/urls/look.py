"""Looking at ready queues: what may be taken from each of them, and when to look again where nothing may."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from outrider.model.gate import Gate
from outrider.model.identifiers import new_uuid7_bytes
from outrider.model.lease import LeaseRequest
from outrider.model.machines import DomainStatus
from outrider.model.settings import Settings
from outrider.model.task import MAX_BATCH, MAX_PRIORITY, NEVER, DiscoveryType, Kind
from outrider.model.url import locate, url_hash
from outrider.policy import politeness
from outrider.policy.fair_share import pages_left
from outrider.policy.politeness import Leased, Traffic
from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import gates
from outrider.store.sql.urls.counting import ASSIGNED, PENDING, CountChanges
from outrider.store.sql.urls.crawls import StoredCrawl
from outrider.store.sql.urls.gates import StoredGate
from outrider.store.sql.urls.lives import Life, lock_free
from outrider.store.sql.urls.waking import LIMITED

MIXED_LOOK = 8
"""How many tasks of a queue of several domains are looked at for one whose gate is open."""
MIXED_DEEPEST = MAX_BATCH
MIXED_AGAIN_MS = 1_000
SHARE_AGAIN_MS = 250
"""When to look again at a queue that has had its share, for others may have run dry."""
HELD_AGAIN_MS = 20
"""When to look again at a queue whose gate somebody held."""


class ReadyQueue(NamedTuple):
    """A queue whose time has come, locked."""

    key: str
    domain: str | None
    delay_ms: int | None
    blocked_until: int
    page_limit: int | None
    claim_version: int | None = None
    """The claim of the worker on its domain, where it leases under claims."""


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
    digest: str | None = None
    similarity: int | None = None


class Granted(NamedTuple):
    """A task on its way into a worker's hands."""

    task: ReadyTask
    domain: str
    delay_ms: int
    gate_was: int
    token: bytes
    claim_version: int | None


def is_scheduled(request: LeaseRequest, settings: Settings) -> bool:
    """Tell whether each domain's own budget binds the run."""
    return (request.scheduled or request.claims) and settings.enable_per_domain_budget


class Round:
    """One look at a handful of queues of one crawl."""

    def __init__(
        self,
        stored: StoredCrawl,
        request: LeaseRequest,
        now: int,
        lease_ms: int,
        ordinals: Iterator[int],
        settings: Settings,
        level: int | None,
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
        self.settings = settings
        self.level = level
        """To how many pages each queue may come while a total for all of them lasts."""
        self.share: dict[str, int] = {}
        """How many more pages of a queue are within that level."""
        self.lives: dict[str, Life] = {}
        """The lives of domains that are not active yet, or not any more, locked."""

    def lock_gates(self, domains: set[str]) -> Script[None]:
        """Lock those of these gates that nobody holds, and count what is in flight behind them."""
        new = domains - self.gates.keys()
        if not new:
            return
        locked = yield from gates.lock_free(new)
        yield from self._lock_lives(locked)
        self.locked.update(locked)
        self.gates.update({domain: stored.gate for domain, stored in locked.items()})
        self.traffic.update({domain: Traffic() for domain in locked})
        self.traffic.update((yield from gates.traffic(locked)))
        yield from self._work_out_budgets(locked)

    def _lock_lives(self, locked: dict[str, StoredGate]) -> Script[None]:
        """Lock the lives that a lease would change; a domain that somebody holds is left out, as its gate would be."""
        if not self.settings.enable_domain_tracking:
            return
        changing = {
            domain
            for domain, (gate, _) in locked.items()
            if gate.status is not DomainStatus.ACTIVE and politeness.opens_at(gate) <= self.now
        }
        if not changing:
            return
        lives = yield from lock_free(changing)
        self.lives.update(lives)
        for domain in changing - lives.keys():
            del locked[domain]

    def _work_out_budgets(self, domains: Iterable[str]) -> Script[None]:
        """Work out how many more pages the run may fetch of each domain: the crawl's limit, and the domain's own."""
        run_id, names = self.request.run_id, [(domain,) for domain in sorted(domains)]
        if run_id is None:
            return
        most: dict[str, int] = {}
        if self.limits.max_pages_per_domain is not None:
            most = {domain: self.limits.max_pages_per_domain for (domain,) in names}
        if is_scheduled(self.request, self.settings):
            for domain, own in (yield Call("budgets_of_domains", (), names)):
                most[domain] = min(own, most.get(domain, own))
        rows = yield Call("pages_of_run", (run_id,), [(domain,) for domain in sorted(most)])
        self.budget.update({row[0]: most[row[0]] - row[1] for row in rows})

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
        pages = min(pages, self.share.get(queue.key, NEVER))
        if pages <= 0:
            self.opens[queue.key] = self.now + SHARE_AGAIN_MS
            return 0
        robots_at = politeness.waits_for_robots_until(gate, self.limits)
        if robots_at > self.now:
            self.opens[queue.key] = max(robots_at, politeness.opens_at(gate))
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
        self.granted.append(Granted(task, domain, delay_ms, gate.next_fetch_at, token, queue.claim_version))
        self.gates[domain] = politeness.after_lease(gate, delay_ms, self.now)
        self.traffic[domain] = Traffic(
            requests=traffic.requests + 1,
            robots=traffic.robots + (task.kind == Kind.ROBOTS),
            first_expiry=min(traffic.first_expiry or self.expires_at, self.expires_at),
        )
        if task.kind == Kind.PAGE:
            self.allowance[queue.key] -= 1
            if queue.key in self.share:
                self.share[queue.key] -= 1
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


def look(round_: Round, queues: list[ReadyQueue], slots: int, changes: CountChanges) -> Script[None]:
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
    level = round_.level
    limited = [(queue.key,) for queue in queues if queue.page_limit is not None or level is not None]
    done = {row[0]: row[1] for row in (yield Call("pages_of_queues", (round_.crawl_id,), limited))}
    for queue in queues:
        limit = queue.page_limit
        if level is not None:
            round_.share[queue.key] = pages_left(level, done.get(queue.key, 0))
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
    """Take from a queue of several domains whatever stands before an open gate.

    Where all gates near its head are closed, it looks deeper, so that one blocked domain does not hold up the rest.
    """
    number = MIXED_LOOK
    while True:
        again_at, took = yield from _take_open(round_, queue, tasks, most, changes)
        if took or len(tasks) < number or number >= MIXED_DEEPEST:
            break
        number = min(8 * number, MIXED_DEEPEST)
        rows = yield Call("ready_tasks", (round_.crawl_id, number), [(queue.key,)])
        tasks = [ReadyTask(*row) for row in rows]
    if not tasks:
        round_.drained.append(queue.key)
    elif not took:
        at_limit = round_.allowance[queue.key] <= 0
        round_.opens[queue.key] = LIMITED if at_limit else min(again_at, round_.now + MIXED_AGAIN_MS)


def _take_open(
    round_: Round, queue: ReadyQueue, tasks: list[ReadyTask], most: int, changes: CountChanges
) -> Script[tuple[int, int]]:
    """Take those of some tasks whose gates are open; tell when the next may open, and how many were taken."""
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
    return again_at, len(round_.granted) - before


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
    found = rows[0] if rows else (None, round_.now, 0, kind, 0, how, None, None, None)
    state, due_at, attempt_count, kind_was, depth, found_how, *rest = found
    if state == ASSIGNED or (state == PENDING and due_at > round_.now):
        round_.opens[queue.key] = max(due_at, round_.now + HELD_AGAIN_MS)
        return None
    sequence = (yield Call("take_sequence", (1,)))[0][0]
    yield Call("arm_robots_task", (*place, url, kind, MAX_PRIORITY, sequence, round_.now, how))
    if state is not None:
        # It may have been found before as a page.
        changes.add((round_.crawl_id, queue.key, domain, kind_was), state, -1)
    changes.add((round_.crawl_id, queue.key, domain, kind), PENDING)
    return ReadyTask(queue.key, digest, url, kind, MAX_PRIORITY, depth, attempt_count, found_how, *rest)
