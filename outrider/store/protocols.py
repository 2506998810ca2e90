"""What a store must be able to do: the two protocols.

Times that go in are milliseconds, and so are those of the URL plane's records; the control plane's hold
datetimes in UTC. `now` is for tests and simulations: None means the store's own clock. Every method
either does the whole of what it says or raises and does nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from outrider.model.api_key import ApiKey, Role
from outrider.model.artifact import Artifact, ArtifactHorizon
from outrider.model.batch import (
    KnownUrl,
    ListedUrl,
    QueueChange,
    QueueNames,
    Served,
    ServeRequest,
    Statistics,
    UrlFilter,
    UrlRange,
)
from outrider.model.domain import (
    Claim,
    ClaimOverview,
    ClaimTally,
    Domain,
    DomainChange,
    DomainSeed,
    DomainStep,
    PriorityBatch,
)
from outrider.model.gate import Gate, GateSettings
from outrider.model.job import (
    CrawlProgress,
    OutboxMessage,
    Run,
    RunKind,
    RunStatus,
    StoredMessage,
    TopicBacklog,
    Worker,
    WorkerIdentity,
)
from outrider.model.lease import Holder, LeaseGrant, LeaseRequest, Renewal, Report, ReportAnswer, Token
from outrider.model.machines import DomainStatus
from outrider.model.quota import JobQuota
from outrider.model.task import (
    AddResult,
    Counts,
    Crawl,
    CrawlLimits,
    CrawlRules,
    CrawlState,
    Discovered,
    Kind,
    Outlook,
    Queue,
    QueueSettings,
    Restored,
    Task,
    TaskFilter,
    TaskPage,
    WaitingQueue,
)
from outrider.store.backfill_protocol import BackfillStore
from outrider.store.domain_protocol import DomainCare
from outrider.store.job_protocol import JobStore


class UrlStore(Protocol):
    """The URL plane: tasks, queues, gates, leases, counts, artifacts."""

    async def create_crawl(
        self, name: str, rules: CrawlRules = ..., limits: CrawlLimits | None = None, *, now: int | None = None
    ) -> Crawl:
        """Create a crawl, or find it; raises `CrawlConflict` where its rules are others."""
        ...

    async def get_crawl(self, name: str) -> Crawl:
        """Find a crawl; raises `UnknownCrawl`."""
        ...

    async def list_crawls(self) -> list[Crawl]:
        """List all crawls by name."""
        ...

    async def set_crawl_state(self, name: str, state: CrawlState) -> Crawl:
        """Run, pause or cancel a crawl: no lease is granted on one that does not run."""
        ...

    async def set_crawl_limits(self, name: str, limits: CrawlLimits) -> Crawl:
        """Change a crawl's limits; what was left DISCOVERED waits for `promote`."""
        ...

    async def set_conduct(self, name: str, conduct: Mapping[str, object] | None) -> Crawl:
        """Write down how the workers of a crawl are to behave; None leaves that to each of them."""
        ...

    async def add(self, crawl: str, items: Sequence[Discovered], *, now: int | None = None) -> list[AddResult]:
        """Store what is new; one answer for each item, in order."""
        ...

    async def lease(self, request: LeaseRequest, *, now: int | None = None) -> LeaseGrant:
        """Hand out ready tasks, as far as politeness and limits allow."""
        ...

    async def renew(
        self, tokens: Sequence[Token], *, lease_ms: int | None = None, now: int | None = None
    ) -> list[Renewal]:
        """Prolong leases that are live; one answer for each token, in order."""
        ...

    async def report(self, reports: Sequence[Report], *, now: int | None = None) -> list[ReportAnswer]:
        """End leases with what was found; one answer for each report, in order."""
        ...

    async def reap(self, *, worker: str | None = None, most: int = ..., now: int | None = None) -> list[Token]:
        """Return the tasks of leases that have expired; tell which leases these were.

        A worker that is named is known to be dead: all its leases end, whether they have expired or not.
        """
        ...

    async def release(
        self, tokens: Sequence[Token] = (), *, worker: str | None = None, now: int | None = None
    ) -> list[Token]:
        """Give leases back uncharged: those named, or all of a worker; tell which were live."""
        ...

    async def promote(self, crawl: str, *, now: int | None = None) -> int:
        """Make PENDING what an earlier depth limit left DISCOVERED; tell how many."""
        ...

    async def retry_failed(self, crawl: str, which: TaskFilter = ..., *, now: int | None = None) -> int:
        """Give FAILED tasks a fresh start; tell how many."""
        ...

    async def reopen(
        self,
        crawl: str,
        *,
        domain: str | None = None,
        everything: bool = False,
        most: int = ...,
        now: int | None = None,
    ) -> int:
        """Make COMPLETED pages PENDING again that are due for a refresh, of the crawl or of one domain; tell how many.

        `everything` takes all pages of the domain, due or not, but those that were dropped because they are gone.
        """
        ...

    async def enrol(self, crawl: str) -> int:
        """Begin to remember the pages that were completed while refreshing was off; tell how many."""
        ...

    async def is_refreshed(self, crawl: str) -> bool:
        """Tell whether anything is remembered of a crawl's pages."""
        ...

    async def counts(self, crawl: str, key: str | None = None) -> Counts:
        """Sum up a crawl or one of its queues, exactly."""
        ...

    async def counts_by_kind(self, crawl: str) -> dict[Kind, Counts]:
        """Sum up a crawl for each kind of task, exactly."""
        ...

    async def find_task(self, crawl: str, url: str, key: str | None = None) -> Task | None:
        """Find a task by any spelling of its URL."""
        ...

    async def list_tasks(
        self, crawl: str, which: TaskFilter = ..., *, cursor: str | None = None, limit: int = ...
    ) -> TaskPage:
        """List tasks in an order that stays the same whatever happens to them."""
        ...

    async def find_holder(self, crawl: str, url: str, key: str | None = None) -> Holder | None:
        """Tell who holds the lease of a task, if anybody does."""
        ...

    @property
    def leases_wait(self) -> bool:
        """Whether somebody leases who would have to wait for a large batch that is added meanwhile."""
        ...

    def version(self) -> int | None:
        """Tell a number that every change of the store changes; None where that costs as much as to look for one."""
        ...

    async def outlook(self, crawl: str) -> Outlook:
        """Tell what a crawl has before it, all of one moment."""
        ...

    async def waiting_queues(self, crawl: str, *, after: int, limit: int = ...) -> list[WaitingQueue]:
        """List queues with tasks that cannot be fetched before a moment, the longest wait first."""
        ...

    async def widen_scope(self, crawl: str, roots: Sequence[str]) -> None:
        """Remember addresses that widen a crawl's scope, such as what a seed redirects to."""
        ...

    async def scope_roots(self, crawl: str) -> list[str]:
        """List the addresses that widen a crawl's scope."""
        ...

    async def list_queues(self, crawl: str, *, after: str = "", limit: int = ...) -> list[Queue]:
        """List queues by key."""
        ...

    async def artifacts(self, crawl: str, *, after_id: int = 0, limit: int = ...) -> list[Artifact]:
        """List a crawl's artifacts in the order in which they were reported."""
        ...

    async def artifacts_of(self, crawl: str, url: str, *, limit: int = ...) -> list[Artifact]:
        """List the artifacts of one URL, the newest first."""
        ...

    async def artifact_horizon(self) -> ArtifactHorizon:
        """Tell how far the numbers of artifacts have come; see `ArtifactHorizon`."""
        ...

    async def configure_queue(self, crawl: str, key: str, settings: QueueSettings, *, now: int | None = None) -> None:
        """Set a queue's overrides, also before its first URL."""
        ...

    async def configure_gate(self, domain: str, settings: GateSettings, *, now: int | None = None) -> Gate:
        """Set a domain's politeness for all crawls, also before its first URL."""
        ...

    async def get_gate(self, domain: str) -> Gate | None:
        """Read a domain's gate."""
        ...

    async def robots_text(self, domain: str) -> tuple[str, str] | None:
        """Read the version and text of a domain's robots.txt."""
        ...

    async def delete_queue(self, crawl: str, key: str) -> int:
        """Remove a queue with its tasks and settings; tell how many tasks."""
        ...

    async def delete_crawl(self, crawl: str) -> int:
        """Remove a crawl with everything but its artifacts; tell how many tasks."""
        ...

    async def purge(self, crawl: str, *, before: int, key: str | None = None) -> int:
        """Remove tasks discovered before a time, except those in flight; tell how many."""
        ...

    async def serve(self, request: ServeRequest, *, now: int | None = None) -> list[Served]:
        """Hand out a batch by URLFrontier's rules: without tokens, and nothing while the frontier is inactive.

        What is served is left alone until its lease expires; it is then due again, as often as that happens.
        """
        ...

    async def put_known(self, crawl: str, items: Sequence[KnownUrl], *, now: int | None = None) -> list[AddResult]:
        """Set tasks to what a client knows of them, or make them; one answer for each item, in order.

        Any lease on them ends. Of two items for one task, the last holds.
        """
        ...

    async def restore(self, crawl: str, items: Sequence[Restored], *, now: int | None = None) -> list[AddResult]:
        """Store tasks with their past where they are not there; one answer for each item, in order.

        What is there stays as it is, so that an import that was broken off is simply repeated.
        """
        ...

    async def change_queue(self, crawl: str, key: str, change: QueueChange, *, now: int | None = None) -> None:
        """Set some of a queue's overrides and leave the others, also before its first URL."""
        ...

    async def set_active(self, active: bool, *, now: int | None = None) -> None:
        """Have `serve` hand out batches, or nothing."""
        ...

    async def is_active(self) -> bool:
        """Tell whether `serve` hands out batches."""
        ...

    async def statistics(self, crawl: str, key: str | None = None, *, now: int | None = None) -> Statistics:
        """Sum up a crawl or one of its queues for batch clients."""
        ...

    async def queue_names(
        self, crawl: str, *, start: int = 0, size: int = ..., everything: bool = False, now: int | None = None
    ) -> QueueNames:
        """List the keys of queues that have had a URL: those that may give something, or everything."""
        ...

    async def find_url(self, crawl: str, url: str, key: str | None = None) -> ListedUrl | None:
        """Find a URL by any spelling, with its metadata."""
        ...

    async def list_urls(self, crawl: str, which: UrlFilter = ..., *, cursor: str | None = None) -> UrlRange:
        """List the URLs of one range of a crawl; ranges may be empty, and the last one has no cursor."""
        ...

    async def count_urls(self, crawl: str, which: UrlFilter = ...) -> int:
        """Count URLs of a crawl, range by range."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of the store."""
        ...


class ControlStore(JobStore, DomainCare, BackfillStore, Protocol):
    """The control plane: domains, backfills, claims, jobs, runs, workers, API keys, outbox."""

    async def remember_domains(self, seeds: Sequence[DomainSeed], *, now: int | None = None) -> list[AddResult]:
        """Store the domains that are new and fill what others lack; one answer for each seed, in order."""
        ...

    async def get_domain(self, domain: str) -> Domain | None:
        """Read a domain, its counts exact."""
        ...

    async def list_domains(
        self, status: DomainStatus | None = None, *, after: str = "", limit: int = ...
    ) -> list[Domain]:
        """List domains by name."""
        ...

    async def transition_domain(self, domain: str, change: DomainChange, *, now: int | None = None) -> Domain:
        """Make one step of a domain's life, guarded by what the writer believes.

        Raises `InvalidTransition` where there is no such step and `ClaimLost` where the domain is no longer
        what the writer believes.
        """
        ...

    async def configure_domain(self, domain: str, *, max_pages_per_run: int | None) -> Domain:
        """Set a domain's budget, None for none; whoever holds a claim on the domain loses it."""
        ...

    async def domain_history(self, domain: str, *, after: int = 0, limit: int = ...) -> list[DomainStep]:
        """List the steps of a domain's life, the oldest first; raises `UnknownDomain`."""
        ...

    async def wake_domains(self, *, limit: int = ..., now: int | None = None) -> int:
        """Make blocked, unreachable and exhausted domains pending whose time has come; tell how many.

        Leases and claims wake what they meet; this is for the rest. Exhausted ones come up with `ENABLE_REFRESH_MODE`.
        """
        ...

    async def refresh_candidates(self, *, limit: int = ..., now: int | None = None) -> list[str]:
        """Name the domains whose refresh is due: exhausted ones, and those that were woken; the best yield first."""
        ...

    async def recalculate_priorities(
        self, *, after: str = "", limit: int = ..., now: int | None = None
    ) -> PriorityBatch:
        """Work out rates, priority and band of one batch of domains, in the order of their ids."""
        ...

    async def recalculate_run(self, run_id: str, *, now: int | None = None) -> int:
        """Work out rates, priority and band of the domains of which a run has fetched pages; tell how many."""
        ...

    async def claim_domains(
        self, worker: str, number: int, *, claim_ms: int = ..., now: int | None = None
    ) -> list[Claim]:
        """Claim the best domains that are free, the best first."""
        ...

    async def renew_claims(
        self, worker: str, held: Sequence[Claim], *, claim_ms: int = ..., now: int | None = None
    ) -> list[Claim | None]:
        """Prolong claims that are live; None for one that is lost."""
        ...

    async def release_claims(self, worker: str, held: Sequence[Claim], *, now: int | None = None) -> list[bool]:
        """Give claims up; False for one that was lost before."""
        ...

    async def tend_claims(
        self,
        worker: str,
        crawl: str,
        wanted: int,
        *,
        claim_ms: int = ...,
        rest_ms: int = ...,
        now: int | None = None,
    ) -> ClaimTally:
        """Give back what rests, prolong what is a third over, and claim domains of which a crawl has something ready.

        The best of those that are ready come first, and at most `wanted` are taken. Claims that are lost stay lost.
        """
        ...

    async def release_all_claims(self, worker: str | None = None) -> int:
        """End all claims, or all of one worker."""
        ...

    async def claims(self, *, now: int | None = None) -> ClaimOverview:
        """Tell who holds what, what is stuck, and what is free."""
        ...

    async def open_run(
        self,
        crawl: str,
        kind: RunKind,
        *,
        settings: Mapping[str, object] = ...,
        job_id: str | None = None,
        epoch: int | None = None,
        now: int | None = None,
    ) -> Run:
        """Begin a run, which gives queues that stood at a limit their new budget.

        For a job, its epoch must be live, and the run that it has open is given instead of a new one.
        """
        ...

    async def close_run(
        self, run_id: str, status: RunStatus, reason: str | None = None, *, now: int | None = None
    ) -> Run:
        """End an open run; raises `InvalidTransition` where it has ended in another way."""
        ...

    async def get_run(self, run_id: str) -> Run | None:
        """Read a run."""
        ...

    async def list_runs(self, crawl: str | None = None, *, before: str | None = None, limit: int = ...) -> list[Run]:
        """List runs, the newest first."""
        ...

    async def crawl_state(self, crawl: str) -> CrawlProgress:
        """Read what a crawl has done and has to do, exactly."""
        ...

    async def register_worker(self, identity: WorkerIdentity, *, ttl_ms: int, now: int | None = None) -> Worker:
        """Register a process; raises `MixedModes` where others work in the other mode."""
        ...

    async def beat_worker(self, worker_id: str, *, ttl_ms: int, now: int | None = None) -> bool:
        """Prolong a registration; False where it has expired and must be made anew."""
        ...

    async def remove_worker(self, worker_id: str) -> bool:
        """Forget a registration; tell whether there was one."""
        ...

    async def list_workers(self) -> list[Worker]:
        """List all registrations by name, the expired ones too."""
        ...

    async def expired_workers(self, *, now: int | None = None) -> list[Worker]:
        """List the registrations that have expired."""
        ...

    async def create_key(
        self,
        key_id: str,
        digest: str,
        *,
        name: str,
        role: Role,
        crawls: Sequence[str] = (),
        owner: str | None = None,
        quota: JobQuota = ...,
        now: int | None = None,
    ) -> ApiKey:
        """Keep an API key, of its secret the digest only; the same again changes nothing.

        It is its own owner where none is named.
        """
        ...

    async def find_key(self, key_id: str) -> ApiKey | None:
        """Find an API key, revoked or not."""
        ...

    async def list_keys(self) -> list[ApiKey]:
        """List all API keys, the revoked ones too, the oldest first."""
        ...

    async def revoke_key(self, key_id: str, *, now: int | None = None) -> ApiKey:
        """End an API key; raises `UnknownKey`."""
        ...

    async def append_messages(self, messages: Sequence[OutboxMessage], *, now: int | None = None) -> list[str]:
        """Store messages; tell their ids, in the same order."""
        ...

    async def take_messages(
        self, topic: str, limit: int = ..., *, hold_ms: int = ..., now: int | None = None
    ) -> list[StoredMessage]:
        """Take what is due, in order, and keep it from others for `hold_ms`."""
        ...

    async def mark_delivered(self, ids: Sequence[str], *, now: int | None = None) -> int:
        """Note that messages have arrived; tell how many had not before."""
        ...

    async def mark_failed(self, message: str, error: str, *, retry_in_ms: int, now: int | None = None) -> bool:
        """Note that a message did not arrive and when to try again."""
        ...

    async def outbox_backlog(self) -> list[TopicBacklog]:
        """Sum up what waits, topic by topic."""
        ...

    async def prune_outbox(self, *, before: int) -> int:
        """Forget what was delivered before a moment; tell how many."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of the store."""
        ...
