"""A model of the URL plane to hold every store against: plain dictionaries, each rule in a few lines.

It keeps every task in one place and looks through all of them for every answer. It knows nothing of
counters, of ready times or of how a store finds anything. What a lease may hand out and must not overlook
is in `reference_lease`, how leases end in `reference_report`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from outrider.model.artifact import Fetch
from outrider.model.gate import DEFAULT_BAND, Gate, GateSettings
from outrider.model.lease import Lease, LeaseRequest, ReportAnswer, Token
from outrider.model.machines import DomainStatus, TaskState
from outrider.model.settings import Settings
from outrider.model.task import (
    MAX_KEY_CHARACTERS,
    MAX_PRIORITY,
    Added,
    AddResult,
    Counts,
    CrawlLimits,
    CrawlState,
    Discovered,
    DiscoveryType,
    Kind,
    QueueSettings,
    Refusal,
    TaskFilter,
)
from outrider.model.url import UrlRefused, locate


@dataclass(kw_only=True)
class ModelTask:
    """One URL in one queue of one crawl."""

    crawl: str
    key: str
    url: str
    domain: str
    kind: Kind
    state: TaskState
    priority: int
    depth: int
    sequence: int
    due_at: int
    discovered_at: int
    discovery_type: DiscoveryType
    attempt_count: int = 0
    failures: int = 0
    deferrals: int = 0
    expiries: int = 0
    http_status: int | None = None
    reason: str | None = None
    metadata: Mapping[str, object] | None = None
    etag: str | None = None
    """What the last report said."""
    passed_over_until: int = 0
    """A store may leave it alone until then, having met it while another lease had its URL."""
    was_passed_over: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """The order within its queue: the smallest is the best."""
        return (-self.priority, self.sequence)


@dataclass(kw_only=True)
class ModelQueue:
    """What is known of a queue beside its tasks."""

    settings: QueueSettings = field(default_factory=QueueSettings)
    domains: set[str] = field(default_factory=set)
    band: int | None = DEFAULT_BAND
    """None where the design does not say: a queue of several domains has the band of one of them."""
    last_served_at: int | None = None

    @property
    def is_mixed(self) -> bool:
        """Tell whether tasks of several domains have been in it."""
        return len(self.domains) > 1

    @property
    def domain(self) -> str | None:
        """Its one domain."""
        return next(iter(self.domains)) if len(self.domains) == 1 else None


@dataclass(kw_only=True)
class ModelCrawl:
    """A crawl with all that is in it."""

    name: str
    limits: CrawlLimits
    state: CrawlState = CrawlState.RUNNING
    queues: dict[str, ModelQueue] = field(default_factory=dict)
    tasks: dict[tuple[str, str], ModelTask] = field(default_factory=dict)
    turn: int = 0
    """The last lease from any crawl that served this one."""

    def queue_tasks(self, key: str) -> list[ModelTask]:
        """List the tasks of one queue."""
        return [task for task in self.tasks.values() if task.key == key]

    def pages(self, key: str | None = None) -> int:
        """Count the pages that are done or in flight, which is what limits are about."""
        return sum(
            task.kind is Kind.PAGE and task.state in (TaskState.COMPLETED, TaskState.ASSIGNED)
            for task in self.tasks.values()
            if key is None or task.key == key
        )


@dataclass(kw_only=True)
class ModelGate:
    """The politeness of one domain."""

    delay_ms: int | None = None
    robots_delay_ms: int | None = None
    concurrency: int | None = None
    next_fetch_at: int = 0
    backoff_until: int = 0
    backoff_level: int = 0
    backoff_began_at: int = 0
    blocked_until: int = 0
    band: int = DEFAULT_BAND
    robots_text: str | None = None
    robots_expires_at: int | None = None
    robots_unreachable: bool = False
    quiet_until: int = 0
    """The delay after the last request that is known to have been sent."""
    status: DomainStatus = DomainStatus.PENDING
    errors_in_row: int = 0
    error_at: int = 0
    rest_until: int | None = None
    block_count: int = 0

    @property
    def opens_at(self) -> int:
        """When its clocks let the next request start."""
        return max(self.next_fetch_at, self.backoff_until, self.blocked_until)

    def as_record(self, domain: str, robots_version: str | None) -> Gate:
        """Give it as a store should."""
        return Gate(
            domain=domain,
            delay_ms=self.delay_ms,
            robots_delay_ms=self.robots_delay_ms,
            concurrency=self.concurrency,
            next_fetch_at=self.next_fetch_at,
            quiet_until=self.quiet_until,
            backoff_until=self.backoff_until,
            backoff_level=self.backoff_level,
            backoff_began_at=self.backoff_began_at,
            blocked_until=self.blocked_until,
            band=self.band,
            robots_version=robots_version,
            robots_expires_at=self.robots_expires_at,
            status=self.status,
            errors_in_row=self.errors_in_row,
            error_at=self.error_at,
        )

    def begin(self, task: ModelTask, now: int) -> None:
        """Have a lease end a rest, and that of anything but a robots.txt make the domain active."""
        if self.status in (DomainStatus.BLOCKED, DomainStatus.UNREACHABLE):
            is_rested = self.rest_until is not None and self.rest_until <= now
            self.status = DomainStatus.PENDING if is_rested else DomainStatus.ACTIVE
            self.errors_in_row = 0 if is_rested else self.errors_in_row
            self.rest_until = None
        if task.kind is not Kind.ROBOTS and self.status is not DomainStatus.ACTIVE:
            self.status, self.rest_until = DomainStatus.ACTIVE, None


@dataclass(kw_only=True)
class ModelLease:
    """A lease that nothing has ended yet; it may have expired."""

    token: Token
    task: ModelTask
    worker: str
    request_id: str
    run_id: str | None
    delay_ms: int
    gate_was: int
    granted_at: int
    last_heartbeat: int
    expires_at: int


@dataclass(kw_only=True)
class ModelArtifact:
    """What must be on record of a report."""

    token: Token
    key: str
    url: str
    domain: str
    kind: Kind
    depth: int
    attempt: int
    run_id: str | None
    outcome: str
    reason: str | None
    fetch: Fetch
    leased_at: int
    reported_at: int


class Model:
    """All crawls, gates, leases and answers."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.crawls: dict[str, ModelCrawl] = {}
        self.gates: dict[str, ModelGate] = {}
        self.leases: dict[Token, ModelLease] = {}
        self.answers: dict[Token, ReportAnswer] = {}
        self.artifacts: dict[str, list[ModelArtifact]] = {}
        self.run_pages: Counter[tuple[str, str]] = Counter()
        self.lease_calls = 0
        self._discovered = 0

    # ------------------------------------------------------------ reading

    def counts(self, crawl: str, key: str | None = None, kind: Kind | None = None) -> Counts:
        """Count tasks by looking at each."""
        states = Counter(
            task.state.lower()
            for task in self.crawls[crawl].tasks.values()
            if (key is None or task.key == key) and (kind is None or task.kind is kind)
        )
        return Counts(**states)

    def matching(self, crawl: str, which: TaskFilter) -> list[ModelTask]:
        """List the tasks that a filter is about."""
        return [
            task
            for task in self.crawls[crawl].tasks.values()
            if which.state in (None, task.state)
            and which.key in (None, task.key)
            and which.kind in (None, task.kind)
            and (which.url_contains or "") in task.url
        ]

    def in_flight(self, domain: str) -> Iterator[ModelLease]:
        """Find what is on its way to a domain, over all crawls; silence does not end a request."""
        return (lease for lease in self.leases.values() if lease.task.domain == domain)

    def is_live(self, token: Token, now: int) -> bool:
        """Tell whether a token may still do something."""
        return token in self.leases and self.leases[token].expires_at > now

    def lease_of(self, task: ModelTask) -> ModelLease | None:
        """Find the lease of a task."""
        return next((lease for lease in self.leases.values() if lease.task is task), None)

    def delay(self, crawl: ModelCrawl, key: str, gate: ModelGate) -> int:
        """Take the most specific delay, but at least what robots.txt asks for."""
        said = (crawl.queues[key].settings.delay_ms, gate.delay_ms, crawl.limits.delay_ms)
        return max(next(delay for delay in said if delay is not None), gate.robots_delay_ms or 0)

    # ------------------------------------------------------------- adding

    def add(self, crawl_name: str, items: Sequence[Discovered], now: int) -> list[AddResult]:
        """Store what is new, refuse what is bad, discard what is known."""
        crawl = self.crawls[crawl_name]
        answers: list[AddResult] = []
        joined: dict[str, set[str]] = {}
        for item in items:
            refusal = _refusal(item)
            if refusal is not None:
                answers.append(AddResult(Added.REJECTED, refusal))
                continue
            place = locate(item.url)
            key = item.key if item.key is not None else place.domain
            joined.setdefault(key, set()).add(place.domain)
            if (key, place.url) in crawl.tasks:
                answers.append(AddResult(Added.KNOWN))
                continue
            deepest = crawl.limits.max_depth
            crawl.tasks[key, place.url] = ModelTask(
                crawl=crawl_name,
                key=key,
                url=place.url,
                domain=place.domain,
                kind=item.kind,
                state=TaskState.PENDING if deepest is None or item.depth <= deepest else TaskState.DISCOVERED,
                priority=item.priority,
                depth=item.depth,
                sequence=self.next_sequence(),
                due_at=now + item.due_in_ms,
                discovered_at=now,
                discovery_type=item.discovery_type,
                metadata=item.metadata,
            )
            answers.append(AddResult(Added.NEW))
        for key, domains in joined.items():
            self._join(crawl.queues.setdefault(key, ModelQueue()), domains)
        return answers

    def next_sequence(self) -> int:
        """Number the discoveries."""
        self._discovered += 1
        return self._discovered

    def _join(self, queue: ModelQueue, domains: set[str]) -> None:
        """Let a queue know the domains of its tasks: it takes the band of its first one."""
        for domain in domains:
            self.gates.setdefault(domain, ModelGate())
        if not queue.domains and queue.settings.priority is None:
            queue.band = self.gates[min(domains)].band if len(domains) == 1 else None
        queue.domains |= domains

    # ------------------------------------------------- leases and reports

    def grant(self, lease: Lease, request: LeaseRequest, now: int) -> None:
        """Write down a lease that was found to be right."""
        crawl = self.crawls[lease.crawl]
        task = crawl.tasks[lease.key, lease.url]
        gate = self.gates[task.domain]
        delay_ms = self.delay(crawl, task.key, gate)
        self.leases[lease.token] = ModelLease(
            token=lease.token,
            task=task,
            worker=request.worker,
            request_id=request.request_id,
            run_id=request.run_id,
            delay_ms=delay_ms,
            gate_was=gate.next_fetch_at,
            granted_at=now,
            last_heartbeat=now,
            expires_at=now + lease.lease_ms,
        )
        if delay_ms:
            gate.next_fetch_at = max(gate.next_fetch_at, now + delay_ms)
        gate.begin(task, now)
        task.state = TaskState.ASSIGNED
        task.attempt_count += 1
        crawl.queues[task.key].last_served_at = now

    def call_for_robots(self, crawl: ModelCrawl, key: str, url: str, domain: str, now: int) -> ModelTask:
        """Make the task for a robots.txt, or give it a fresh start."""
        task = crawl.tasks.get((key, url))
        if task is None:
            task = crawl.tasks[key, url] = ModelTask(
                crawl=crawl.name,
                key=key,
                url=url,
                domain=domain,
                kind=Kind.ROBOTS,
                state=TaskState.PENDING,
                priority=MAX_PRIORITY,
                depth=0,
                sequence=self.next_sequence(),
                due_at=now,
                discovered_at=now,
                discovery_type=DiscoveryType.ROBOTS,
            )
        task.kind, task.priority, task.state, task.due_at = Kind.ROBOTS, MAX_PRIORITY, TaskState.PENDING, now
        task.failures = task.deferrals = task.expiries = 0
        return task

    # --------------------------------------------------------- operators

    def promote(self, crawl: ModelCrawl, now: int) -> int:
        """Let in what an earlier limit kept out."""
        deepest = crawl.limits.max_depth
        chosen = [
            task
            for task in crawl.tasks.values()
            if task.state is TaskState.DISCOVERED and (deepest is None or task.depth <= deepest)
        ]
        for task in chosen:
            task.state, task.due_at = TaskState.PENDING, max(task.due_at, now)
        return len(chosen)

    def retry_failed(self, tasks: Sequence[ModelTask], now: int) -> int:
        """Give those of these tasks that have failed a fresh start."""
        chosen = [task for task in tasks if task.state is TaskState.FAILED]
        for task in chosen:
            task.state, task.due_at = TaskState.PENDING, now
            task.failures = task.deferrals = task.expiries = 0
            gate = self.gates[task.domain]
            if task.kind is Kind.ROBOTS and gate.robots_unreachable:
                gate.robots_expires_at = min(gate.robots_expires_at or 0, now)
        return len(chosen)

    def configure_queue(self, crawl: ModelCrawl, key: str, settings: QueueSettings) -> None:
        """Replace all overrides of a queue."""
        queue = crawl.queues.setdefault(key, ModelQueue())
        queue.settings = settings
        if settings.priority is not None:
            queue.band = band_of(settings.priority)
        elif queue.is_mixed:
            queue.band = None
        else:
            queue.band = DEFAULT_BAND if queue.domain is None else self.gates[queue.domain].band

    def configure_gate(self, domain: str, settings: GateSettings) -> None:
        """Set what is given, for all crawls."""
        gate = self.gates.setdefault(domain, ModelGate())
        gate.delay_ms = gate.delay_ms if settings.delay_ms is None else settings.delay_ms
        gate.concurrency = gate.concurrency if settings.concurrency is None else settings.concurrency
        gate.blocked_until = gate.blocked_until if settings.blocked_until is None else settings.blocked_until
        if settings.band is None:
            return
        gate.band = settings.band
        for crawl in self.crawls.values():
            for queue in crawl.queues.values():
                if queue.domain == domain and queue.settings.priority is None:
                    queue.band = settings.band

    def remove(self, crawl: ModelCrawl, tasks: Sequence[ModelTask]) -> int:
        """Remove tasks, and the leases on them."""
        for task in tasks:
            del crawl.tasks[task.key, task.url]
            lease = self.lease_of(task)
            if lease is not None:
                del self.leases[lease.token]
        return len(tasks)


def band_of(priority: int) -> int:
    """Each doubling is a band: 0 is in the middle, better ones before it, worse ones after."""
    band = DEFAULT_BAND
    rest = abs(priority)
    while rest:
        band, rest = band + (1 if priority < 0 else -1), rest // 2
    return min(max(band, 0), 15)


def _refusal(item: Discovered) -> Refusal | None:
    try:
        locate(item.url)
    except UrlRefused as refused:
        return refused.reason
    for value, refusal in (
        (item.priority, Refusal.BAD_PRIORITY), (item.depth, Refusal.BAD_DEPTH), (item.due_in_ms, Refusal.BAD_DUE),
    ):  # fmt: skip
        if not isinstance(value, int) or value < 0:
            return refusal
    if not isinstance(item.kind, Kind):
        return Refusal.BAD_KIND
    if item.key is not None and (not 1 <= len(item.key) <= MAX_KEY_CHARACTERS or "\0" in item.key):
        return Refusal.BAD_KEY
    if item.metadata is not None and not all(isinstance(key, str) for key in item.metadata):
        return Refusal.BAD_METADATA
    return None
