"""One execution of a crawl: from a plan to its end.

Everything that must outlast a kill is in the store, the archive or the file of pages; an execution only
opens them, works, and closes them. To go on after a kill is to execute the same plan again.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from outrider.crawler.domain_upkeep import DomainUpkeep
from outrider.crawler.equipment import archive_of, fetcher_of
from outrider.crawler.file_lock import told
from outrider.crawler.links import Links
from outrider.crawler.page_tail import PageTail
from outrider.crawler.plan import WORKERS_FOLDER, CrawlPlan, store_dsn, without_credentials
from outrider.crawler.progress import ROBOTS_UNREACHABLE, CrawlEnding, DomainTrouble, Progress, Snapshot
from outrider.crawler.refreshing import RefreshWish, reopen_pages
from outrider.crawler.robots import product_token
from outrider.crawler.scheduling import Scheduling
from outrider.crawler.seeding import Seeding
from outrider.crawler.visit import Visitor
from outrider.crawler.worker import Worker
from outrider.frontier.claiming import Claiming
from outrider.frontier.local import LocalFrontier
from outrider.frontier.presence import Presence
from outrider.model.errors import InvalidInput, InvalidTransition, OutriderError, StoreUnavailable, UnknownCrawl
from outrider.model.job import Run, RunKind, RunStatus
from outrider.model.lease import LeaseGrant, NoWork
from outrider.model.settings import Settings
from outrider.model.task import Counts, CrawlLimits, CrawlRules, Discovered, Kind, Outlook, WaitingQueue
from outrider.policy.scope import Scope, scope_of
from outrider.store.opening import Stores, open_store

logger = logging.getLogger(__name__)

RUNS_LOOKED_AT: Final = 100
SNAPSHOT_S: Final = 0.5
GRACE_S: Final = 5.0
"""How long visits may go on after a stop, where the time-out of a fetch is not shorter."""
MOST_WAITING: Final = 1_000
"""Where more queues wait, the lower bound for all of them has to do."""
TROUBLE_MS: Final = 2_000
"""A domain that waits longer than this beyond its delay is shown as in trouble."""
RUN_STATUS: Final = {
    CrawlEnding.STOPPED: RunStatus.STOPPED,
    CrawlEnding.PAUSED: RunStatus.STOPPED,
    CrawlEnding.CANCELLED: RunStatus.STOPPED,
}


def limits_of(plan: CrawlPlan) -> CrawlLimits:
    """Give a crawl the limits of a plan."""
    return CrawlLimits(
        max_depth=plan.max_depth,
        max_pages=plan.max_pages,
        max_pages_per_domain=plan.max_pages_per_domain,
        delay_ms=round(plan.delay * 1000),
        concurrency=plan.per_domain,
        robots=plan.robots,
    )


def ending_of(grant: LeaseGrant, outlook: Outlook, *, now: int, max_wait_ms: int) -> CrawlEnding | None:
    """Tell whether a crawl of which nothing can be leased is over, and why."""
    if grant.no_work is NoWork.PAUSED:
        return CrawlEnding.PAUSED
    if grant.no_work is NoWork.CANCELLED:
        return CrawlEnding.CANCELLED
    if outlook.counts.assigned:
        return None
    if not outlook.counts.pending:
        return CrawlEnding.DRAINED
    if grant.no_work is NoWork.LIMIT:
        return CrawlEnding.LIMIT
    if outlook.next_ready_at is not None and outlook.next_ready_at <= now + max_wait_ms:
        return None
    return CrawlEnding.LIMIT if outlook.limited else CrawlEnding.WAITING


class Execution:
    """A plan being carried out; a context manager that opens and closes all it needs."""

    def __init__(self, plan: CrawlPlan, settings: Settings, refresh: RefreshWish | None = None) -> None:
        self.plan = plan
        self._refresh = refresh
        self.reopened = 0
        """How many pages a refresh fetches again."""
        self.data = Path(plan.data)
        self._settings = settings
        self._scheduling = Scheduling.of(settings, claims=plan.claims)
        self._open = AsyncExitStack()
        self._stores: Stores
        self._presence: Presence
        self._frontier: LocalFrontier
        self._worker: Worker | None = None
        self._visitor: Visitor | None = None
        self._tail: PageTail | None = None
        self._run: Run | None = None
        self._progress = Progress()
        self._began = time.monotonic()
        self._before = Counts()
        self._ending: CrawlEnding | None = None
        self._typed_seeds: tuple[str, ...] = plan.seeds
        """With those of earlier executions, whose pages may be left."""
        self.was_finished = False
        """There was nothing left to do from the start."""

    async def __aenter__(self) -> Self:
        with told(self.data):
            self.data.mkdir(parents=True, exist_ok=True)
        async with AsyncExitStack() as opening:
            self._stores = await opening.enter_async_context(await open_store(store_dsn(self.plan), self._settings))
            with told(self.data / WORKERS_FOLDER):
                self._presence = Presence(self.data / WORKERS_FOLDER)
            opening.callback(self._leave)
            claiming = Claiming(self._stores.control, self._settings)
            frontier = LocalFrontier(self._stores.urls, self._presence, self._close_run_of, claiming)
            # First the dead are seen to: what they have left must not count as others at work.
            self._frontier = await opening.enter_async_context(frontier)
            await claiming.enlist(self._presence.worker, self._scheduling.mode, lock_path=str(self._presence.path))
            await self._prepare_crawl()
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._run is not None:
                await self._close_run(error)
        finally:
            await self._open.aclose()

    async def _prepare_crawl(self) -> None:
        """Create the crawl or find it, with the limits of this plan; what they let in is promoted."""
        urls, plan = self._stores.urls, self.plan
        if plan.fresh:
            await self._check_alone()
            with suppress(UnknownCrawl):
                await urls.delete_crawl(plan.crawl)
        await urls.create_crawl(plan.crawl, CrawlRules(), limits_of(plan))
        await urls.promote(plan.crawl)
        kept = msgspec.to_builtins(plan)
        # Most of these may hold passwords; the seeds may be a million.
        for field in ("store", "proxy", "seeds"):
            kept.pop(field)
        if plan.seeds_file is not None:
            kept["seeds_file"] = without_credentials(plan.seeds_file)
        kept |= {"worker": self._presence.worker, "seeds": list(plan.seeds[:100])}
        for run in await self._stores.control.list_runs(plan.crawl, limit=100):
            typed = run.settings.get("seeds")
            self._typed_seeds += tuple(map(str, typed)) if isinstance(typed, list) else ()
        kind = RunKind.CRAWL if self._refresh is None else RunKind.REFRESH
        self._run = await self._stores.control.open_run(plan.crawl, kind, settings=kept)
        self._before = await self._pages()

    async def _close_run_of(self, worker: str) -> None:
        """Close the run that a killed process has left open."""
        for run in await self._stores.control.list_runs(limit=RUNS_LOOKED_AT):
            if run.status is RunStatus.RUNNING and run.settings.get("worker") == worker:
                with suppress(InvalidTransition):
                    await self._stores.control.close_run(run.id, RunStatus.FAILED, "killed")

    def _leave(self) -> None:
        # Without an ending it may be that leases could not be given back.
        self._presence.close(owes_nothing=self._ending is not None)

    async def _close_run(self, error: BaseException | None) -> None:
        assert self._run is not None
        if error is not None or self._ending is None:
            reason = "interrupted" if error is None else f"{type(error).__name__}: {error}"[:500]
            with suppress(OutriderError):
                await self._stores.control.close_run(self._run.id, RunStatus.FAILED, reason)
            return
        status = RUN_STATUS.get(self._ending, RunStatus.COMPLETED)
        await self._stores.control.close_run(self._run.id, status, self._ending)
        if self._settings.enable_domain_tracking:
            await self._stores.control.recalculate_run(self._run.id)

    async def _pages(self) -> Counts:
        return (await self._stores.urls.counts_by_kind(self.plan.crawl)).get(Kind.PAGE, Counts())

    async def run(
        self,
        seeds: Iterable[Discovered],
        stop: asyncio.Event,
        on_snapshot: Callable[[Snapshot], None],
    ) -> CrawlEnding:
        """Add the seeds, crawl until nothing is left or `stop` is set, and tell why it ended."""
        plan = self.plan
        scope = await self._seeded(seeds, stop)
        if self._refresh is not None:
            self.reopened = await reopen_pages(self._stores, plan.crawl, self._refresh, self._settings)
        async with AsyncExitStack() as stack:
            if plan.output is not None:
                self._tail = PageTail(self._stores.urls, plan.crawl, plan.output)
                await self._tail.open()
                stack.callback(self._tail.close)
            fetcher = await stack.enter_async_context(fetcher_of(plan, self._typed_seeds))
            links = Links(
                scope,
                CrawlRules(),
                self._progress,
                ignore_nofollow=plan.ignore_nofollow,
                sitemaps=plan.sitemaps,
            )
            self._visitor = Visitor(
                frontier=self._frontier,
                fetcher=fetcher,
                links=links,
                progress=self._progress,
                agent=product_token(plan.user_agent),
                archive=archive_of(plan, stack),
                obeys_robots=plan.robots,
                narrows=True,
                max_depth=plan.max_depth,
                delay_s=plan.delay,
                remembers=self._settings.enable_refresh_mode,
            )
            self._worker = Worker(
                self._frontier,
                self._visitor,
                name=self._presence.worker,
                crawl=plan.crawl,
                slots=plan.concurrency,
                lease_ms=self._settings.crash_threshold_ms,
                run_id=self._run.id if self._run else None,
                scheduled=self._scheduling.from_domains,
                claims=self._scheduling.claims,
            )
            await self._work(stop, on_snapshot)
        # A process that was killed a moment ago held nothing that had to be waited for, but left its run open.
        await self._frontier.tidy()
        on_snapshot(await self.snapshot())
        return await self._settled_ending(stop)

    async def _work(self, stop: asyncio.Event, on_snapshot: Callable[[Snapshot], None]) -> None:
        """Have the worker, the tail and the display go side by side; the first that fails ends all."""
        assert self._worker is not None
        grace_s = min(GRACE_S, self.plan.timeout)
        company = [
            asyncio.create_task(self._show(on_snapshot)),
            asyncio.create_task(DomainUpkeep(self._stores.control, self._settings).run()),
        ]
        if self._tail is not None:
            company.append(asyncio.create_task(self._tail.follow()))
        work = asyncio.create_task(self._worker.run(stop, self._is_over, grace_s=grace_s))
        try:
            await asyncio.wait((work, *company), return_when=asyncio.FIRST_COMPLETED)
            for task in company:
                if task.done():
                    stop.set()
            await work
            for task in company:
                if task.done():
                    task.result()
        finally:
            for task in (work, *company):
                task.cancel()
            await asyncio.gather(work, *company, return_exceptions=True)
        if self._tail is not None:
            await self._tail.finish()

    async def _settled_ending(self, stop: asyncio.Event) -> CrawlEnding:
        if self._ending is None:
            self._ending = CrawlEnding.STOPPED
        pages = await self._pages()
        if self._ending is CrawlEnding.DRAINED:
            self.was_finished = self._progress.fetched == 0 and pages == self._before
        if not pages.completed and (self._ending is CrawlEnding.DRAINED or self._nobody_answered()):
            self._ending = CrawlEnding.NOTHING_FETCHED
        return self._ending

    def _nobody_answered(self) -> bool:
        """Tell whether all that a waiting crawl has met is sites out of reach."""
        return self._ending is CrawlEnding.WAITING and not self._progress.fetched and bool(self._progress.failures)

    async def _is_over(self, grant: LeaseGrant) -> bool:
        now, max_wait_ms = int(time.time() * 1000), round(self.plan.max_wait * 1000)
        outlook = await self._frontier.outlook(self.plan.crawl)
        if outlook.next_ready_at is not None and outlook.next_ready_at > now:
            outlook = msgspec.structs.replace(outlook, next_ready_at=await self._opening_at(outlook.next_ready_at))
        self._ending = ending_of(grant, outlook, now=now, max_wait_ms=max_wait_ms)
        return self._ending is not None

    async def _opening_at(self, earliest: int) -> int:
        """Tell when something can be ready at the earliest, where all queues have to wait: gates may say more of it."""
        waiting = await self._stores.urls.waiting_queues(self.plan.crawl, after=earliest - 1, limit=MOST_WAITING)
        if not waiting or len(waiting) == MOST_WAITING:
            return earliest
        return min(queue.waits_until for queue in waiting)

    async def _check_alone(self) -> None:
        """Refuse to begin anew under the feet of another process, which would go on with what it knows."""
        living = self._presence.living()
        for run in await self._stores.control.list_runs(self.plan.crawl, limit=100) if living else ():
            if run.status is RunStatus.RUNNING and run.settings.get("worker") in living:
                raise InvalidInput(f"--fresh: another process is at work on crawl {self.plan.crawl}; stop it first")

    async def _seeded(self, seeds: Iterable[Discovered], stop: asyncio.Event) -> Scope:
        """Add the seeds, and make the crawl's scope of them and of those of earlier executions."""
        plan = self.plan
        seeding = Seeding(self._stores, plan, self._settings, self._scheduling)
        await seeding.add(seeds, stop)
        if self._scheduling.begins_domains and self._refresh is None:
            await seeding.begin_domains(stop)
        scope = scope_of((), plan.scope, include=plan.include, exclude=plan.exclude)
        return scope.with_seeds(await self._stores.urls.scope_roots(plan.crawl))

    # ---------------------------------------------------------------- snapshots

    async def _show(self, on_snapshot: Callable[[Snapshot], None]) -> None:
        while True:
            with suppress(StoreUnavailable):  # the worker says when it has been away for too long
                on_snapshot(await self.snapshot())
            await asyncio.sleep(SNAPSHOT_S)

    async def snapshot(self) -> Snapshot:
        """Take a picture of the crawl as it is."""
        plan, now = self.plan, time.time() * 1000
        counts = await self._pages()
        in_flight = self._worker.in_flight if self._worker else 0
        troubled_after = int(now + TROUBLE_MS + plan.delay * 1000)
        waiting = await self._stores.urls.waiting_queues(plan.crawl, after=troubled_after, limit=5)
        next_ready_at = await self._next_ready_at() if not in_flight and counts.pending else None
        return Snapshot(
            crawl=plan.crawl,
            elapsed_s=time.monotonic() - self._began,
            counts=counts,
            completed_before=self._before.completed,
            in_flight=in_flight,
            fetched=self._progress.fetched,
            pages_per_s=self._progress.rate(time.monotonic()),
            bytes_received=self._progress.bytes_received,
            failures=dict(self._progress.failures),
            skipped=dict(self._progress.skipped),
            slowest=self._progress.slowest(),
            troubles=[
                DomainTrouble(
                    domain=queue.domain or queue.key,
                    reason=self._reason_of(queue, now),
                    until=queue.waits_until,
                    waiting=queue.pending,
                )
                for queue in waiting
                if queue.pending and self._is_troubled(queue, now)
            ],
            next_ready_in_s=None if next_ready_at is None else max(next_ready_at - now, 0) / 1000,
            max_pages=plan.max_pages,
        )

    async def _next_ready_at(self) -> int | None:
        return (await self._stores.urls.outlook(self.plan.crawl)).next_ready_at

    def _is_troubled(self, queue: WaitingQueue, now: float) -> bool:
        """Tell apart a domain that must be left alone and one whose requests under way are all that it allows."""
        if max(queue.backoff_until, queue.blocked_until, queue.robots_until) > now:
            return True
        return self._visitor is not None and (queue.domain or queue.key) in self._visitor.troubles

    def _reason_of(self, queue: WaitingQueue, now: float) -> str:
        if queue.blocked_until > now:
            return "blocked by an operator"
        unsaid = ROBOTS_UNREACHABLE if queue.robots_until > now else "backing off"
        return self._visitor.troubles.get(queue.domain or queue.key, unsaid) if self._visitor else unsaid
