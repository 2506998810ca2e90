"""`ControlStore` on SQL: checks what comes in, and has an engine run the scripts."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from outrider.model.api_key import ApiKey, Role
from outrider.model.domain import (
    CLAIM_MS,
    REST_MS,
    Claim,
    ClaimOverview,
    ClaimTally,
    Domain,
    DomainChange,
    DomainSeed,
    DomainStep,
    PriorityBatch,
)
from outrider.model.errors import InvalidInput
from outrider.model.identifiers import new_uuid7
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
    WorkerKind,
    WorkerMode,
)
from outrider.model.machines import DomainStatus
from outrider.model.quota import JobQuota
from outrider.model.task import MAX_BATCH, AddResult
from outrider.model.url import canonical_domain
from outrider.store.checks import (
    LARGEST,
    check_batch,
    check_choice,
    check_moment,
    check_name,
    check_number,
    check_record,
    check_span,
    check_text,
    check_uuid,
    readable_uuid,
)
from outrider.store.sql.backfill_store import SqlBackfillStore
from outrider.store.sql.control import claims, domains, keys, outbox, priorities, runs, tending, workers
from outrider.store.sql.control.checks import check_job_id, check_quota, check_run_id, checked_change
from outrider.store.sql.control.rows import EPOCH, as_json
from outrider.store.sql.control.tending import RENEWED_AFTER
from outrider.store.sql.domain_store import SqlDomainCare
from outrider.store.sql.job_store import PAGE
from outrider.store.sql.script import Script

MAX_CLAIMS = 1_000
HOLD_MS = 60_000
"""How long taken messages are kept from other takers."""
NO_SETTINGS: Mapping[str, object] = {}
NO_QUOTA = JobQuota()


def check_claims(held: object) -> None:
    """Check a batch of claims."""
    check_batch(held, "claims")
    for claim in cast("Sequence[object]", held):
        check_record(claim, "claim", Claim)


class SqlControlStore(SqlDomainCare, SqlBackfillStore):
    """The control plane on an SQL engine."""

    # domains

    async def remember_domains(self, seeds: Sequence[DomainSeed], *, now: int | None = None) -> list[AddResult]:
        """Store the domains that are new; one answer for each seed, in order."""
        check_batch(seeds, "domains")
        admitted = domains.admit_seeds(seeds)
        return await self._engine.write(lambda: domains.remember(admitted, now))

    async def get_domain(self, domain: str) -> Domain | None:
        """Read a domain, its counts exact."""
        canonical = canonical_domain(domain)
        return await self._engine.read(lambda: domains.find(canonical))

    async def list_domains(
        self, status: DomainStatus | None = None, *, after: str = "", limit: int = PAGE
    ) -> list[Domain]:
        """List domains by name."""
        chosen = None if status is None else check_choice(status, "status", DomainStatus)
        check_text(after, "after")
        check_number(limit, "limit", 1, MAX_BATCH)
        return await self._engine.read(lambda: domains.listed(chosen, after, limit))

    async def transition_domain(self, domain: str, change: DomainChange, *, now: int | None = None) -> Domain:
        """Make one step of a domain's life, guarded by what the writer believes."""
        canonical = canonical_domain(domain)
        check_record(change, "change", DomainChange)
        checked = checked_change(change)
        earlier: list[Domain] = []
        return await self._engine.write(lambda: domains.transition(canonical, checked, now, earlier))

    async def domain_history(self, domain: str, *, after: int = 0, limit: int = PAGE) -> list[DomainStep]:
        """List the steps of a domain's life, the oldest first."""
        canonical = canonical_domain(domain)
        check_number(after, "after", 0, LARGEST)
        check_number(limit, "limit", 1, MAX_BATCH)
        return await self._engine.read(lambda: domains.history(canonical, after, limit))

    async def wake_domains(self, *, limit: int = PAGE, now: int | None = None) -> int:
        """Make domains pending whose rest is over; tell how many."""
        check_number(limit, "limit", 1, MAX_BATCH)
        if not self._settings.enable_domain_tracking:
            return 0
        return await self._engine.write(lambda: claims.wake(limit, now, self._settings))

    async def refresh_candidates(self, *, limit: int = PAGE, now: int | None = None) -> list[str]:
        """Name the domains whose refresh is due."""
        check_number(limit, "limit", 1, MAX_BATCH)
        return await self._engine.read(lambda: domains.refresh_candidates(limit, now))

    async def recalculate_priorities(
        self, *, after: str = "", limit: int = priorities.BATCH, now: int | None = None
    ) -> PriorityBatch:
        """Work out rates, priority and band of one batch of domains, in the order of their ids."""
        start = check_uuid(after, "after") if after else priorities.FIRST_ID
        check_number(limit, "limit", 1, MAX_BATCH)
        done = await self._recalculate(partial(priorities.by_id, start, limit), now)
        return PriorityBatch(number=done.number, after=done.last if done.number == limit else None)

    async def recalculate_run(self, run_id: str, *, now: int | None = None) -> int:
        """Work out rates, priority and band of the domains of which a run has fetched pages; tell how many."""
        readable = check_run_id(run_id)
        number, after = 0, ""
        while True:
            done = await self._recalculate(partial(priorities.of_run, readable, after, priorities.BATCH), now)
            number, after = number + done.number, done.last
            if done.number < priorities.BATCH:
                return number

    async def _recalculate(
        self, batch: Callable[..., Script[priorities.Recalculated]], now: int | None
    ) -> priorities.Recalculated:
        """Recalculate one batch, and have those exhausted that turn out to be so."""
        if not self._settings.enable_domain_tracking:
            return priorities.Recalculated(0, "", [])
        bands = self._settings.enable_smart_scheduling
        done = await self._engine.write(lambda: batch(now, bands=bands))
        if done.idle:
            await self._engine.write(lambda: claims.settle(done.idle, now, self._settings))
        return done

    async def configure_domain(self, domain: str, *, max_pages_per_run: int | None) -> Domain:
        """Set a domain's budget."""
        canonical = canonical_domain(domain)
        if max_pages_per_run is not None:
            check_number(max_pages_per_run, "max_pages_per_run", 0, LARGEST)
        return await self._engine.write(lambda: domains.configure(canonical, max_pages_per_run))

    # claims

    async def claim_domains(
        self, worker: str, number: int, *, claim_ms: int = CLAIM_MS, now: int | None = None
    ) -> list[Claim]:
        """Claim the best domains that are free, the best first."""
        check_name(worker, "worker")
        check_number(number, "number", 1, MAX_CLAIMS)
        check_span(claim_ms, "claim_ms", 1)
        earlier: list[Claim] = []
        return await self._engine.write(lambda: claims.claim(worker, number, claim_ms, now, self._settings, earlier))

    async def renew_claims(
        self, worker: str, held: Sequence[Claim], *, claim_ms: int = CLAIM_MS, now: int | None = None
    ) -> list[Claim | None]:
        """Prolong claims that are live."""
        check_name(worker, "worker")
        check_claims(held)
        check_span(claim_ms, "claim_ms", 1)
        return await self._engine.write(lambda: claims.renew(worker, held, claim_ms, now))

    async def release_claims(self, worker: str, held: Sequence[Claim], *, now: int | None = None) -> list[bool]:
        """Give claims up; False for one that was lost before."""
        check_name(worker, "worker")
        check_claims(held)
        return await self._engine.write(lambda: claims.release(worker, held, now))

    async def tend_claims(
        self,
        worker: str,
        crawl: str,
        wanted: int,
        *,
        claim_ms: int = CLAIM_MS,
        rest_ms: int = REST_MS,
        now: int | None = None,
    ) -> ClaimTally:
        """Give back what rests, prolong what is a third over, and claim what is ready."""
        check_name(worker, "worker")
        check_number(wanted, "wanted", 0, MAX_CLAIMS)
        check_span(claim_ms, "claim_ms", RENEWED_AFTER)
        check_span(rest_ms, "rest_ms", 0)
        return await self._engine.write(lambda: tending.tend(worker, crawl, wanted, claim_ms, rest_ms, now))

    async def release_all_claims(self, worker: str | None = None) -> int:
        """End all claims, or all of one worker."""
        if worker is not None:
            check_name(worker, "worker")
        return await self._in_chunks(lambda: claims.release_all(worker), claims.RELEASE_CHUNK)

    async def claims(self, *, now: int | None = None) -> ClaimOverview:
        """Tell who holds what, what is stuck, and what is free."""
        return await self._engine.read(lambda: claims.overview(now))

    # runs

    async def open_run(
        self,
        crawl: str,
        kind: RunKind,
        *,
        settings: Mapping[str, object] = NO_SETTINGS,
        job_id: str | None = None,
        epoch: int | None = None,
        now: int | None = None,
    ) -> Run:
        """Begin a run; a job's open run is gone on with instead."""
        check_name(crawl, "crawl")
        chosen = check_choice(kind, "kind", RunKind)
        encoded = as_json(settings, "the settings of a run")
        job = None
        if job_id is not None:
            job = (check_job_id(job_id), check_number(epoch, "epoch", 0, LARGEST))
        elif epoch is not None:
            raise InvalidInput("an epoch belongs to a job: name the job as well")
        run_id = new_uuid7()
        return await self._engine.write(lambda: runs.open_run(run_id, crawl, chosen, encoded, job, now))

    async def close_run(
        self, run_id: str, status: RunStatus, reason: str | None = None, *, now: int | None = None
    ) -> Run:
        """End an open run."""
        readable = check_run_id(run_id)
        chosen = check_choice(status, "status", RunStatus)
        if chosen is RunStatus.RUNNING:
            raise InvalidInput("a run is closed as completed, stopped or failed, not as running")
        check_text(reason, "reason")
        return await self._engine.write(lambda: runs.close(readable, chosen, reason, now))

    async def get_run(self, run_id: str) -> Run | None:
        """Read a run."""
        readable = readable_uuid(run_id)
        return None if readable is None else await self._engine.read(lambda: runs.find(readable))

    async def list_runs(self, crawl: str | None = None, *, before: str | None = None, limit: int = PAGE) -> list[Run]:
        """List runs, the newest first."""
        check_text(crawl, "crawl")
        check_number(limit, "limit", 1, MAX_BATCH)
        start = None if before is None else check_uuid(before, "before")
        return await self._engine.read(lambda: runs.listed(crawl, start, limit))

    async def crawl_state(self, crawl: str) -> CrawlProgress:
        """Read what a crawl has done and has to do, exactly."""
        check_name(crawl, "crawl")
        return await self._engine.read(lambda: runs.crawl_state(crawl))

    # workers

    async def register_worker(self, identity: WorkerIdentity, *, ttl_ms: int, now: int | None = None) -> Worker:
        """Register a process; raises `MixedModes` where others work in the other mode."""
        check_record(identity, "identity", WorkerIdentity)
        check_name(identity.worker_id, "worker_id")
        check_choice(identity.kind, "kind", WorkerKind)
        check_choice(identity.mode, "mode", WorkerMode)
        check_name(identity.host, "host")
        check_number(identity.process_id, "process_id", 0, LARGEST)
        check_text(identity.lock_path, "lock_path")
        check_span(ttl_ms, "ttl_ms", 1)
        return await self._engine.write(lambda: workers.register(identity, ttl_ms, now))

    async def beat_worker(self, worker_id: str, *, ttl_ms: int, now: int | None = None) -> bool:
        """Prolong a registration; False where it has expired and must be made anew."""
        check_name(worker_id, "worker_id")
        check_span(ttl_ms, "ttl_ms", 1)
        return await self._engine.write(lambda: workers.beat(worker_id, ttl_ms, now))

    async def remove_worker(self, worker_id: str) -> bool:
        """Forget a registration; tell whether there was one."""
        check_name(worker_id, "worker_id")
        return await self._engine.write(lambda: workers.remove(worker_id))

    async def list_workers(self) -> list[Worker]:
        """List all registrations by name, the expired ones too."""
        return await self._engine.read(workers.listed)

    async def expired_workers(self, *, now: int | None = None) -> list[Worker]:
        """List the registrations that have expired."""
        return await self._engine.read(lambda: workers.expired(now))

    # API keys

    async def create_key(
        self,
        key_id: str,
        digest: str,
        *,
        name: str,
        role: Role,
        crawls: Sequence[str] = (),
        owner: str | None = None,
        quota: JobQuota = NO_QUOTA,
        now: int | None = None,
    ) -> ApiKey:
        """Keep an API key, of its secret the digest only."""
        check_batch(crawls, "crawls")
        check_quota(quota)
        key = ApiKey(
            key_id=check_name(key_id, "key_id"),
            name=check_name(name, "name"),
            role=check_choice(role, "role", Role),
            crawls=tuple(check_name(crawl, "crawl") for crawl in crawls),
            digest=check_name(digest, "digest"),
            created_at=EPOCH,
            owner=check_name(name if owner is None else owner, "owner"),
            max_active_jobs=quota.max_active_jobs,
            max_pages_per_job=quota.max_pages_per_job,
            max_jobs_per_day=quota.max_jobs_per_day,
        )
        return await self._engine.write(lambda: keys.create(key, now))

    async def find_key(self, key_id: str) -> ApiKey | None:
        """Find an API key, revoked or not."""
        check_name(key_id, "key_id")
        return await self._engine.read(lambda: keys.find(key_id))

    async def list_keys(self) -> list[ApiKey]:
        """List all API keys, the revoked ones too, the oldest first."""
        return await self._engine.read(keys.listed)

    async def revoke_key(self, key_id: str, *, now: int | None = None) -> ApiKey:
        """End an API key; raises `UnknownKey`."""
        check_name(key_id, "key_id")
        return await self._engine.write(lambda: keys.revoke(key_id, now))

    # outbox

    async def append_messages(self, messages: Sequence[OutboxMessage], *, now: int | None = None) -> list[str]:
        """Store messages; tell their ids, in the same order."""
        check_batch(messages, "messages")
        for message in messages:
            check_record(message, "message", OutboxMessage)
            check_name(message.topic, "topic")
            check_name(message.ordering_key, "ordering_key")
        by_id = {new_uuid7(): message for message in messages}
        await self._engine.write(lambda: outbox.append(by_id, now))
        return list(by_id)

    async def take_messages(
        self, topic: str, limit: int = PAGE, *, hold_ms: int = HOLD_MS, now: int | None = None
    ) -> list[StoredMessage]:
        """Take what is due, in order, and keep it from others for `hold_ms`."""
        check_name(topic, "topic")
        check_number(limit, "limit", 1, MAX_BATCH)
        check_span(hold_ms, "hold_ms")
        return await self._engine.write(lambda: outbox.take(topic, limit, hold_ms, now))

    async def mark_delivered(self, ids: Sequence[str], *, now: int | None = None) -> int:
        """Note that messages have arrived; tell how many had not before."""
        check_batch(ids, "messages")
        readable = [check_uuid(each, "the id of a message") for each in ids]
        return await self._engine.write(lambda: outbox.mark_delivered(readable, now))

    async def mark_failed(self, message: str, error: str, *, retry_in_ms: int, now: int | None = None) -> bool:
        """Note that a message did not arrive and when to try again."""
        readable = check_uuid(message, "the id of a message")
        check_text(error, "error")
        check_span(retry_in_ms, "retry_in_ms")
        return await self._engine.write(lambda: outbox.mark_failed(readable, error, retry_in_ms, now))

    async def outbox_backlog(self) -> list[TopicBacklog]:
        """Sum up what waits, topic by topic."""
        return await self._engine.read(outbox.backlog)

    async def prune_outbox(self, *, before: int) -> int:
        """Forget what was delivered before a moment; tell how many."""
        check_moment(before, "before")
        return await self._in_chunks(lambda: outbox.prune(before), outbox.PRUNE_CHUNK)

    async def _in_chunks(self, script: Callable[[], Script[int]], chunk: int) -> int:
        """Repeat a script, each time in a transaction of its own, until it finds less than a chunk."""
        done = 0
        while True:
            number = await self._engine.write(script)
            done += number
            if number < chunk:
                return done

    async def close(self) -> None:
        """Finish what is under way and let go of the store."""
        await self._engine.close()
