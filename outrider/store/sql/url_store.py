"""`UrlStore` on SQL: checks what comes in, and has an engine run the scripts."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import TypeVar

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
from outrider.model.errors import InvalidInput
from outrider.model.gate import Gate, GateSettings
from outrider.model.lease import Holder, LeaseGrant, LeaseRequest, Renewal, Report, ReportAnswer, Token
from outrider.model.settings import Settings
from outrider.model.task import (
    MAX_BATCH,
    NEVER,
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
from outrider.model.url import canonical_domain
from outrider.policy.admission import KNOWN, NEW, Admission, Candidate, admit
from outrider.store.checks import check_batch, check_name, check_number, check_record
from outrider.store.sql.control.rows import as_json
from outrider.store.sql.engine import Engine, RowTaken
from outrider.store.sql.script import Script
from outrider.store.sql.under_way import UnderWay
from outrider.store.sql.urls import batch, browse, checks, crawls, gates, listing, overrides, revisits, settings, upkeep
from outrider.store.sql.urls import restore as restoring
from outrider.store.sql.urls.add import Batch, RulesChanged, add
from outrider.store.sql.urls.crawls import StoredCrawl
from outrider.store.sql.urls.known import TaskHeld, put_known, return_expired
from outrider.store.sql.urls.lease import lease
from outrider.store.sql.urls.report import reap, release, renew, report

Answer = TypeVar("Answer")

ADMITTED_AT_ONCE = 250
LATELY_S = 2.0
"""For how long after a lease another one is expected; who waits for work asks more often than that."""
CONTENDED_BATCHES = 100
"""For how many batches it is remembered that another process stored the same URL at the same time: the one that finds
out costs double."""
REAP_BATCH = 1_000
PAGE = 100
ANY_TASK = TaskFilter()
DEFAULT_RULES = CrawlRules()
ANY_URL = UrlFilter()


async def _admitted(items: Sequence[Discovered], rules: CrawlRules) -> Admission:
    """Admit a batch piece by piece, and let others have the loop in between.

    They are in the middle of transactions whose locks somebody may be waiting for: a batch of 2,000 takes 4 ms.
    """
    candidates: list[Candidate] = []
    results: list[AddResult | None] = []
    for start in range(0, len(items), ADMITTED_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        piece = admit(items[start : start + ADMITTED_AT_ONCE], rules, start)
        candidates += piece.candidates
        results += piece.results
    return Admission(candidates, results)


class SqlUrlStore:
    """The URL plane on an SQL engine."""

    def __init__(self, engine: Engine, settings: Settings | None = None) -> None:
        self._engine = engine
        self._settings = settings or Settings()
        self._first_slot = random.randrange(engine.slots)
        self._slots_in_use: set[int] = set()
        self._crawls: dict[str, StoredCrawl] = {}
        """Crawls by name, for admission; `add` checks that they are still the same."""
        self._under_way = UnderWay()
        self._leased_at = -LATELY_S
        """When somebody asked for work last, by the monotonic clock."""
        self._contended = 0
        """How many more batches are expected to meet other processes that store the same URLs."""

    async def create_crawl(
        self,
        name: str,
        rules: CrawlRules = DEFAULT_RULES,
        limits: CrawlLimits | None = None,
        *,
        now: int | None = None,
    ) -> Crawl:
        """Create a crawl, or find it; raises `CrawlConflict` where its rules are others."""
        check_record(rules, "rules", CrawlRules)
        if limits is not None:
            check_record(limits, "limits", CrawlLimits)
        return await self._engine.write(lambda: crawls.create(name, rules, limits, now))

    async def get_crawl(self, name: str) -> Crawl:
        """Find a crawl; raises `UnknownCrawl`."""
        return (await self._engine.read(lambda: crawls.find(name))).crawl

    async def list_crawls(self) -> list[Crawl]:
        """List all crawls by name."""
        return await self._engine.read(crawls.list_all)

    async def set_crawl_state(self, name: str, state: CrawlState) -> Crawl:
        """Run, pause or cancel a crawl."""
        return await self._engine.write(lambda: crawls.set_state(name, state))

    async def set_crawl_limits(self, name: str, limits: CrawlLimits) -> Crawl:
        """Change a crawl's limits."""
        check_record(limits, "limits", CrawlLimits)
        return await self._engine.write(lambda: crawls.set_limits(name, limits))

    async def set_conduct(self, name: str, conduct: Mapping[str, object] | None) -> Crawl:
        """Write down how the workers of a crawl are to behave."""
        encoded = None if conduct is None else as_json(conduct, "the conduct of a crawl")
        return await self._engine.write(lambda: crawls.set_conduct(name, encoded))

    async def add(self, crawl: str, items: Sequence[Discovered], *, now: int | None = None) -> list[AddResult]:
        """Store what is new; one answer for each item, in order."""
        check_batch(items, "URLs")
        while True:
            stored = self._crawls.get(crawls.nameable(crawl))
            if stored is None:
                stored = await self._engine.read(lambda: crawls.find(crawl))
                self._crawls[crawl] = stored
            admission = await _admitted(items, stored.crawl.rules)
            try:
                new = await self._add_candidates(stored, admission.candidates, len(items), now)
            except RulesChanged:
                self._crawls.pop(crawl, None)
                continue
            results = [KNOWN if result is None else result for result in admission.results]
            for candidate in new:
                results[candidate.position] = NEW
            return results

    async def _add_candidates(
        self, stored: StoredCrawl, candidates: Sequence[Candidate], size: int, now: int | None
    ) -> list[Candidate]:
        """Store candidates, except those that another call is storing; tell which were new."""
        new: list[Candidate] = []
        while True:
            with self._under_way.claim(stored.crawl_id, candidates) as claim:
                new += await self._add_batch(Batch(stored, claim.mine, size), now)
            candidates = [candidate for candidate, committed in claim.others if not await committed]
            if not candidates:
                return new

    async def _add_batch(self, batch: Batch, now: int | None) -> list[Candidate]:
        """Store a batch, in the way that is faster unless other processes store the same URLs at the same time."""
        if not self._contended:
            try:
                return await self._counted(partial(add, batch, now))
            except RowTaken:
                self._contended = CONTENDED_BATCHES
        self._contended = max(0, self._contended - 1)
        return await self._counted(partial(add, batch, now, contended=True))

    async def lease(self, request: LeaseRequest, *, now: int | None = None) -> LeaseGrant:
        """Hand out ready tasks, as far as politeness and limits allow."""
        checked = checks.checked_request(request, self._settings)
        self._leased_at = time.monotonic()
        return await self._counted(lambda slot: lease(checked, now, self._settings, slot))

    async def renew(
        self, tokens: Sequence[Token], *, lease_ms: int | None = None, now: int | None = None
    ) -> list[Renewal]:
        """Prolong leases that are live."""
        check_batch(tokens, "tokens")
        length = checks.check_lease_ms(lease_ms, self._settings)
        readable = [checks.is_token(token) for token in tokens]
        live = [token for token, is_token in zip(tokens, readable, strict=True) if is_token]
        given = iter(await self._engine.write(lambda: renew(live, now, length)))
        return [next(given) if is_token else Renewal.LEASE_LOST for is_token in readable]

    async def report(self, reports: Sequence[Report], *, now: int | None = None) -> list[ReportAnswer]:
        """End leases with what was found; one answer for each report, in order."""
        check_batch(reports, "reports")
        answers = [checks.refusal_of(each) for each in reports]
        readable = [each for each, answer in zip(reports, answers, strict=True) if answer is None]
        if readable:
            chances = [random.random() for _ in readable]
            given = iter(await self._counted(lambda slot: report(readable, now, self._settings, slot, chances)))
            return [next(given) if answer is None else answer for answer in answers]
        return [answer for answer in answers if answer is not None]

    async def reap(self, *, worker: str | None = None, most: int = REAP_BATCH, now: int | None = None) -> list[Token]:
        """Return the tasks of leases that have expired, or all of a worker that is known to be dead."""
        check_number(most, "most", 1, MAX_BATCH)
        if worker is not None:
            check_name(worker, "worker")
        if worker is not None:
            return await self._counted(lambda slot: reap(worker, now, most, self._settings, slot))
        # Those of batch mode first, which are not charged, up to a moment after which the others look no further.
        returned, moment = await self._counted(lambda slot: return_expired(now, most, slot))
        tokens = [Token(token.hex()) for token in returned]
        if len(tokens) == most:
            return tokens
        left = most - len(tokens)
        return tokens + await self._counted(lambda slot: reap(None, moment, left, self._settings, slot))

    async def release(
        self, tokens: Sequence[Token] = (), *, worker: str | None = None, now: int | None = None
    ) -> list[Token]:
        """Give leases back uncharged: those named, or all of a worker."""
        check_batch(tokens, "tokens")
        if worker is not None:
            check_name(worker, "worker")
        named = [token for token in tokens if checks.is_token(token)]
        return await self._counted(lambda slot: release(named, worker, now, self._settings, slot))

    async def promote(self, crawl: str, *, now: int | None = None) -> int:
        """Make PENDING what an earlier depth limit left DISCOVERED."""
        return await self._in_chunks(lambda slot: upkeep.promote(crawl, now, slot))

    async def retry_failed(self, crawl: str, which: TaskFilter = ANY_TASK, *, now: int | None = None) -> int:
        """Give FAILED tasks a fresh start."""
        checks.check_filter(which)
        done = 0
        while True:
            number, robots = await self._counted(lambda slot: upkeep.retry_failed(crawl, which, now, slot))
            if robots:
                await self._engine.write(partial(upkeep.try_robots_again, robots, now))
            done += number
            if number < upkeep.CHUNK:
                return done

    async def reopen(
        self,
        crawl: str,
        *,
        domain: str | None = None,
        everything: bool = False,
        most: int = NEVER,
        now: int | None = None,
    ) -> int:
        """Make COMPLETED pages PENDING again that are due for a refresh, the longest overdue first."""
        check_number(most, "most", 1, NEVER)
        name = None if domain is None else canonical_domain(domain)
        if everything:
            if name is None:
                raise InvalidInput("everything is fetched again of one domain: name it")
            while await self._engine.write(partial(revisits.hasten, crawl, name, now)) == revisits.CHUNK:
                pass
        reopened = 0
        while reopened < most:
            left = most - reopened
            looked, number, now = await self._counted(partial(revisits.reopen, crawl, name, left, now, self._settings))
            reopened += number
            if looked < min(left, revisits.CHUNK):
                break
        return reopened

    async def enrol(self, crawl: str) -> int:
        """Begin to remember the pages that were completed while refreshing was off."""
        enrolled, place = 0, ("", b"")
        after: tuple[str, bytes] | None = place
        while after is not None:
            chances = [random.random() for _ in range(revisits.CHUNK)]
            number, after = await self._engine.write(partial(revisits.enrol, crawl, after, chances, self._settings))
            enrolled += number
        return enrolled

    async def is_refreshed(self, crawl: str) -> bool:
        """Tell whether anything is remembered of a crawl's pages."""
        return await self._engine.read(lambda: revisits.is_refreshed(crawl))

    async def _counted(self, script: Callable[[int], Script[Answer]]) -> Answer:
        """Run a script with a slot for its counts that no other script of this process is using.

        One at a time they all have the same, so that a count has few rows; at the same time they have different ones,
        so that none waits for another's.
        """
        every = (number % self._engine.slots for number in count(self._first_slot))
        free = (slot for slot in islice(every, self._engine.slots) if slot not in self._slots_in_use)
        slot = next(free, self._first_slot)
        self._slots_in_use.add(slot)
        try:
            return await self._engine.write(partial(script, slot))
        finally:
            self._slots_in_use.discard(slot)

    async def _in_chunks(self, script: Callable[[int], Script[int]]) -> int:
        """Repeat a script, each time in a transaction of its own, until it finds less than a chunk."""
        done = 0
        while True:
            number = await self._counted(script)
            done += number
            if number < upkeep.CHUNK:
                return done

    async def counts(self, crawl: str, key: str | None = None) -> Counts:
        """Sum up a crawl or one of its queues, exactly."""
        if key is not None:
            checks.check_key(key)
        return await self._engine.read(lambda: browse.counts(crawl, key))

    async def counts_by_kind(self, crawl: str) -> dict[Kind, Counts]:
        """Sum up a crawl for each kind of task, exactly."""
        return await self._engine.read(lambda: browse.counts_by_kind(crawl))

    async def find_task(self, crawl: str, url: str, key: str | None = None) -> Task | None:
        """Find a task by any spelling of its URL."""
        if key is not None:
            checks.check_key(key)
        return await self._engine.read(lambda: browse.find_task(crawl, url, key))

    async def list_tasks(
        self, crawl: str, which: TaskFilter = ANY_TASK, *, cursor: str | None = None, limit: int = PAGE
    ) -> TaskPage:
        """List tasks in an order that stays the same whatever happens to them."""
        checks.check_filter(which)
        return await self._engine.read(lambda: browse.list_tasks(crawl, which, cursor, limit))

    async def find_holder(self, crawl: str, url: str, key: str | None = None) -> Holder | None:
        """Tell who holds the lease of a task, if anybody does."""
        if key is not None:
            checks.check_key(key)
        return await self._engine.read(lambda: browse.find_holder(crawl, url, key))

    @property
    def leases_wait(self) -> bool:
        """Whether somebody leases who would have to wait for a large batch that is added meanwhile."""
        one_writer = self._engine.slots == 1
        return one_writer and time.monotonic() - self._leased_at < LATELY_S

    def version(self) -> int | None:
        """Tell a number that every change of the store changes; None where that costs as much as to look for one."""
        return self._engine.version()

    async def outlook(self, crawl: str) -> Outlook:
        """Tell what a crawl has before it, all of one moment."""
        return await self._engine.read(lambda: browse.outlook(crawl))

    async def waiting_queues(self, crawl: str, *, after: int, limit: int = PAGE) -> list[WaitingQueue]:
        """List queues with tasks that cannot be fetched before a moment, the longest wait first."""
        check_number(after, "after", 0, NEVER)
        return await self._engine.read(lambda: browse.waiting_queues(crawl, after, limit))

    async def widen_scope(self, crawl: str, roots: Sequence[str]) -> None:
        """Remember addresses that widen a crawl's scope."""
        check_batch(roots, "URLs")
        await self._engine.write(lambda: crawls.widen_scope(crawl, roots))

    async def scope_roots(self, crawl: str) -> list[str]:
        """List the addresses that widen a crawl's scope."""
        return await self._engine.read(lambda: browse.scope_roots(crawl))

    async def list_queues(self, crawl: str, *, after: str = "", limit: int = PAGE) -> list[Queue]:
        """List queues by key."""
        checks.check_readable(after, "after")
        return await self._engine.read(lambda: browse.list_queues(crawl, after, limit))

    async def artifacts(self, crawl: str, *, after_id: int = 0, limit: int = PAGE) -> list[Artifact]:
        """List a crawl's artifacts in the order in which they were reported."""
        checks.check_readable(crawl, "crawl")
        check_number(after_id, "after_id", 0, 2**63 - 1)
        return await self._engine.read(lambda: browse.artifacts(crawl, after_id, limit))

    async def artifacts_of(self, crawl: str, url: str, *, limit: int = PAGE) -> list[Artifact]:
        """List the artifacts of one URL, the newest first."""
        return await self._engine.read(lambda: browse.artifacts_of(crawl, url, limit))

    async def artifact_horizon(self) -> ArtifactHorizon:
        """Tell how far the numbers of artifacts have come."""
        return await self._engine.read(browse.artifact_horizon)

    async def configure_queue(self, crawl: str, key: str, settings: QueueSettings, *, now: int | None = None) -> None:
        """Set a queue's overrides, also before its first URL."""
        check_record(settings, "settings", QueueSettings)
        await self._engine.write(lambda: overrides.configure_queue(crawl, key, settings, now))

    async def configure_gate(self, domain: str, settings: GateSettings, *, now: int | None = None) -> Gate:
        """Set a domain's politeness for all crawls, also before its first URL."""
        check_record(settings, "settings", GateSettings)
        canonical = canonical_domain(domain)
        return await self._engine.write(lambda: gates.configure(canonical, settings, now))

    async def get_gate(self, domain: str) -> Gate | None:
        """Read a domain's gate."""
        canonical = canonical_domain(domain)
        return await self._engine.read(lambda: gates.get(canonical))

    async def robots_text(self, domain: str) -> tuple[str, str] | None:
        """Read the version and text of a domain's robots.txt."""
        canonical = canonical_domain(domain)
        return await self._engine.read(lambda: gates.robots_text(canonical))

    async def delete_queue(self, crawl: str, key: str) -> int:
        """Remove a queue with its tasks and settings."""
        checks.check_key(key)
        return await self._opened(await self._counted(lambda slot: upkeep.delete_queue(crawl, key, slot)))

    async def delete_crawl(self, crawl: str) -> int:
        """Remove a crawl with everything but its artifacts."""
        return await self._opened(await self._engine.write(lambda: upkeep.delete_crawl(crawl)))

    async def _opened(self, deleted: upkeep.Deleted) -> int:
        """Open the gates that deleted leases kept closed; tell how many tasks are gone."""
        removed, domains = deleted
        if domains:
            await self._engine.write(lambda: upkeep.open_gates(domains))
        return removed

    async def purge(self, crawl: str, *, before: int, key: str | None = None) -> int:
        """Remove tasks discovered before a time, except those in flight, chunk by chunk."""
        check_number(before, "before", 0, NEVER)
        if key is not None:
            checks.check_key(key)
        removed = 0
        place: tuple[str, bytes] | None = ("", b"")
        while place is not None:
            number, place = await self._counted(partial(upkeep.purge, crawl, before, key, place))
            removed += number
        return removed

    async def serve(self, request: ServeRequest, *, now: int | None = None) -> list[Served]:
        """Hand out a batch by URLFrontier's rules."""
        batch.check_request(request)
        self._leased_at = time.monotonic()
        while True:
            try:
                return await self._counted(lambda slot: batch.serve(request, now, slot))
            except TaskHeld:
                continue

    async def put_known(self, crawl: str, items: Sequence[KnownUrl], *, now: int | None = None) -> list[AddResult]:
        """Set tasks to what a client knows of them, or make them; one answer for each item, in order."""
        check_batch(items, "URLs")
        # What is no item at all is refused as such by admission.
        dates = [item.due_at if isinstance(item, KnownUrl) else None for item in items]
        offered = [
            Discovered(url=item.url, key=item.key, metadata=item.metadata, due_in_ms=item.due_at or 0)
            if isinstance(item, KnownUrl)
            else item
            for item in items
        ]
        while True:
            stored = await self._admitting(crawl)
            script = partial(put_known, stored, admit(offered, stored.crawl.rules), dates, now)
            try:
                return await self._counted(script)
            except RulesChanged:
                self._crawls.pop(crawl, None)
            except TaskHeld:
                continue

    async def restore(self, crawl: str, items: Sequence[Restored], *, now: int | None = None) -> list[AddResult]:
        """Store tasks with their past where they are not there; one answer for each item, in order."""
        check_batch(items, "URLs")
        refusals = [restoring.refusal_of(item) for item in items]
        readable = [item for item, refusal in zip(items, refusals, strict=True) if refusal is None]
        while True:
            stored = await self._admitting(crawl)
            script = partial(restoring.restore, stored, await _admitted(readable, stored.crawl.rules), readable, now)
            try:
                given = iter(await self._counted(script))
            except RulesChanged:
                self._crawls.pop(crawl, None)
                continue
            return [next(given) if refusal is None else refusal for refusal in refusals]

    async def _admitting(self, crawl: str) -> StoredCrawl:
        """Find a crawl to admit a batch to, mostly without asking the database."""
        stored = self._crawls.get(crawls.nameable(crawl))
        if stored is None:
            stored = await self._engine.read(lambda: crawls.find(crawl))
            self._crawls[crawl] = stored
        return stored

    async def change_queue(self, crawl: str, key: str, change: QueueChange, *, now: int | None = None) -> None:
        """Set some of a queue's overrides and leave the others, also before its first URL."""
        check_record(change, "change", QueueChange)
        await self._engine.write(lambda: settings.change_queue(crawl, key, change, now))

    async def set_active(self, active: bool, *, now: int | None = None) -> None:
        """Have `serve` hand out batches, or nothing."""
        await self._engine.write(lambda: settings.set_active(active, now))

    async def is_active(self) -> bool:
        """Tell whether `serve` hands out batches."""
        return await self._engine.read(settings.is_active)

    async def statistics(self, crawl: str, key: str | None = None, *, now: int | None = None) -> Statistics:
        """Sum up a crawl or one of its queues for batch clients."""
        if key is not None:
            checks.check_key(key)
        return await self._engine.read(lambda: listing.statistics(crawl, key, now))

    async def queue_names(
        self, crawl: str, *, start: int = 0, size: int = PAGE, everything: bool = False, now: int | None = None
    ) -> QueueNames:
        """List the keys of queues that have had a URL: those that may give something, or everything."""
        check_number(start, "start", 0, 2**62)
        check_number(size, "size", 0, 2**62)
        return await self._engine.read(lambda: listing.queue_names(crawl, start, size, bool(everything), now))

    async def find_url(self, crawl: str, url: str, key: str | None = None) -> ListedUrl | None:
        """Find a URL by any spelling, with its metadata."""
        if key is not None:
            checks.check_key(key)
        return await self._engine.read(lambda: listing.find_url(crawl, url, key))

    async def list_urls(self, crawl: str, which: UrlFilter = ANY_URL, *, cursor: str | None = None) -> UrlRange:
        """List the URLs of one range of a crawl; ranges may be empty, and the last one has no cursor."""
        listing.check_filter(which)
        return await self._engine.read(lambda: listing.list_urls(crawl, which, cursor))

    async def count_urls(self, crawl: str, which: UrlFilter = ANY_URL) -> int:
        """Count URLs range by range, so that no long snapshot is held."""
        listing.check_filter(which)
        number, cursor = await self._engine.read(lambda: listing.count_urls(crawl, which, None))
        while cursor is not None:
            more, cursor = await self._engine.read(partial(listing.count_urls, crawl, which, cursor))
            number += more
        return number

    async def close(self) -> None:
        """Finish what is under way and let go of the store."""
        await self._engine.close()
