"""A crew: the crawler's worker and visitors, at work for any frontier.

The crawl itself says how polite to be, whether to obey robots.txt and, where it has a conduct, which links to follow;
the plan of a crew says the rest: how to fetch, and what to keep. A crew may serve any number of crawls, and has a
visitor for each.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, NamedTuple, Self

from outrider.crawler import warc
from outrider.crawler.conduct import Conduct, conduct_of, fetching_plan
from outrider.crawler.equipment import archive_of, fetcher_of
from outrider.crawler.execution import GRACE_S, ending_of
from outrider.crawler.fetch import Fetcher
from outrider.crawler.links import Links
from outrider.crawler.plan import CrawlPlan
from outrider.crawler.progress import CrawlEnding, Progress
from outrider.crawler.robots import product_token
from outrider.crawler.scheduling import PLAIN, Scheduling
from outrider.crawler.visit import Visitor
from outrider.crawler.worker import STORE_PATIENCE_S, Worker
from outrider.frontier.protocol import Frontier
from outrider.model.lease import Lease, LeaseGrant, NoWork, Report
from outrider.model.task import Crawl, CrawlLimits, Discovered, Kind
from outrider.model.url import locate
from outrider.policy.scope import Scope, scope_of

STUCK_S: Final = STORE_PATIENCE_S + 60.0
"""How long a worker may do nothing beyond the time-out of a fetch: a store that is away is waited for."""
FRESH_S: Final = 5.0
"""How often to ask what has become of a crawl's conduct, limits and scope."""


class Crew:
    """Works for a frontier under one name; a context manager that opens what fetching and keeping need.

    The name must never have been used before: whoever else had it would hold the same leases. Its leases are scheduled
    from the domains table, or only of domains that it has claimed, where its mode says so.
    """

    def __init__(
        self,
        frontier: Frontier,
        plan: CrawlPlan,
        *,
        lease_ms: int,
        name: str,
        run_id: str | None = None,
        scheduling: Scheduling = PLAIN,
        remembers: bool = False,
    ) -> None:
        self._frontier = frontier
        self._plan = plan
        self._remembers = remembers
        """Pages are to be refreshed, see `Visitor`."""
        self._lease_ms = lease_ms
        self._name = name
        self._run_id = run_id
        self._scheduling = scheduling
        self.progress = Progress()
        self._open = AsyncExitStack()
        self._visitors: Visitors
        self._worker: Worker | None = None
        self._ending: CrawlEnding | None = None
        self.waiting_until: int | None = None
        """Where nothing could be leased the last time: when that may change, in milliseconds since 1970."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            archive = archive_of(self._plan, opening)
            fetchers = await opening.enter_async_context(_Fetchers(self._plan))
            self._visitors = Visitors(
                self._frontier, self._plan, fetchers, archive, self.progress, remembers=self._remembers
            )
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    @property
    def in_flight(self) -> int:
        """How many visits are under way."""
        return 0 if self._worker is None else self._worker.in_flight

    @property
    def is_stuck(self) -> bool:
        """Whether it has done nothing for longer than anything may take: something in us hangs."""
        if self._worker is None:
            return False
        return time.monotonic() - self._worker.moved_at > self._visitors.longest_s + STUCK_S

    @property
    def domains(self) -> list[str]:
        """The domains that are being visited."""
        return self._visitors.domains

    @property
    def last_error(self) -> str | None:
        """What last went wrong with a page."""
        return self._visitors.last_error

    async def work(
        self, crawl: str | None, stop: asyncio.Event, *, until_done: bool, outlasts_pauses: bool = False
    ) -> CrawlEnding | None:
        """Work for a crawl, or for any, until stopped or, with `until_done`, until the crawl is over.

        With `outlasts_pauses`, a crawl that is paused or cancelled is not over for us: somebody else sees to that.
        """
        if crawl is not None:
            await self._frontier.show_crawl(crawl)  # a name that is none is told at once
        self._ending = None
        self._worker = Worker(
            self._frontier,
            self._visitors,
            name=self._name,
            crawl=crawl,
            slots=self._plan.concurrency,
            lease_ms=self._lease_ms,
            run_id=self._run_id,
            scheduled=self._scheduling.from_domains,
            claims=self._scheduling.claims,
        )

        async def is_over(grant: LeaseGrant) -> bool:
            self.waiting_until = grant.next_ready_at
            if not until_done or crawl is None:
                return False
            if outlasts_pauses and grant.no_work in (NoWork.PAUSED, NoWork.CANCELLED):
                return False
            return await self._is_over(crawl, grant)

        await self._worker.run(stop, is_over, grace_s=min(GRACE_S, self._plan.timeout))
        return self._ending

    async def _is_over(self, crawl: str, grant: LeaseGrant) -> bool:
        outlook = await self._frontier.outlook(crawl)
        max_wait_ms = round(self._plan.max_wait * 1000)
        self._ending = ending_of(grant, outlook, now=int(time.time() * 1000), max_wait_ms=max_wait_ms)
        return self._ending is not None


class _Fetchers:
    """The fetchers of a crew: one for each way in which its crawls want to be fetched."""

    def __init__(self, plan: CrawlPlan) -> None:
        self._plan = plan
        self._open = AsyncExitStack()
        self._made: dict[CrawlPlan, Fetcher] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def of(self, conduct: Conduct) -> Fetcher:
        plan = fetching_plan(self._plan, conduct)
        if plan not in self._made:
            self._made[plan] = await self._open.enter_async_context(fetcher_of(plan, plan.seeds))
        return self._made[plan]


class _Own(NamedTuple):
    """The visitor of one crawl, the rules by which it follows links, and what they were made of."""

    visitor: Visitor
    links: Links
    limits: CrawlLimits
    conduct: Conduct
    fresh_until: float
    """When to ask again, on the monotonic clock."""


class Visitors:
    """The visitors of a crew, one for each crawl, made when the crawl is first met."""

    def __init__(
        self,
        frontier: Frontier,
        plan: CrawlPlan,
        fetchers: _Fetchers,
        archive: warc.WarcWriter | None,
        progress: Progress,
        *,
        remembers: bool = False,
    ) -> None:
        self._frontier = frontier
        self._plan = plan
        self._remembers = remembers
        self._fetchers = fetchers
        self._archive = archive
        self._progress = progress
        self._own: dict[str, _Own] = {}
        self._being_made = asyncio.Lock()
        self._under_way: dict[str, str] = {}
        """The domain of each visit, by token."""
        self.longest_s = plan.timeout
        """The longest time that a fetch may take."""
        self.last_error: str | None = None

    @property
    def domains(self) -> list[str]:
        """The domains that are being visited, those visited for longest first."""
        return list(dict.fromkeys(self._under_way.values()))

    async def visit(self, lease: Lease, asked_at: float) -> Report:
        """Visit for the crawl that a lease is of."""
        own = await self._current(lease.crawl)
        await self._let_in(own.links, lease)
        self._under_way[lease.token] = lease.domain
        try:
            report = await own.visitor.visit(lease, asked_at)
        finally:
            del self._under_way[lease.token]
        if report.reason is not None:
            self.last_error = f"{lease.url}: {report.reason}"
        return report

    def acknowledged(self, lease: Lease, links: Sequence[Discovered]) -> None:
        """Note that the frontier has the links of a page."""
        if lease.crawl in self._own:
            self._own[lease.crawl].visitor.acknowledged(lease, links)

    async def _current(self, crawl: str) -> _Own:
        """Give the visitor of a crawl, made anew where its limits or its conduct have changed."""
        own = self._own.get(crawl)
        if own is not None and time.monotonic() < own.fresh_until:
            return own
        async with self._being_made:
            own = self._own.get(crawl)
            if own is None or time.monotonic() >= own.fresh_until:
                self._own[crawl] = await self._renewed(own, crawl)
            return self._own[crawl]

    async def _renewed(self, own: _Own | None, crawl: str) -> _Own:
        began = time.monotonic()
        settled = await self._frontier.show_crawl(crawl)
        conduct = conduct_of(self._plan, settled.conduct)
        self.longest_s = max(self.longest_s, conduct.timeout)
        scope = scope_of((), conduct.scope, include=conduct.include, exclude=conduct.exclude)
        scope = scope.with_seeds(await self._frontier.scope_roots(crawl))
        # Of a million seeds this takes seconds, which must not be all that the process does.
        fresh_until = began + max(FRESH_S, 50 * (time.monotonic() - began))
        if own is not None and (own.limits, own.conduct) == (settled.limits, conduct):
            own.links.scope = scope
            return own._replace(fresh_until=fresh_until)
        visitor, links = await self._make(settled, conduct, scope)
        return _Own(visitor, links, settled.limits, conduct, fresh_until)

    async def _make(self, settled: Crawl, conduct: Conduct, scope: Scope) -> tuple[Visitor, Links]:
        links = Links(
            scope,
            settled.rules,
            self._progress,
            ignore_nofollow=conduct.ignore_nofollow,
            sitemaps=conduct.sitemaps,
            follow_links=conduct.follow_links,
        )
        visitor = Visitor(
            frontier=self._frontier,
            fetcher=await self._fetchers.of(conduct),
            links=links,
            progress=self._progress,
            agent=product_token(conduct.user_agent or self._plan.user_agent),
            archive=self._archive,
            obeys_robots=settled.limits.robots,
            # A plan is one worker's own: what it leaves out is left for others. A conduct binds all.
            narrows=settled.conduct is not None,
            max_depth=settled.limits.max_depth,
            delay_s=settled.limits.delay_ms / 1000,
            remembers=self._remembers,
        )
        return visitor, links

    async def _let_in(self, links: Links, lease: Lease) -> None:
        """Learn of seeds that came after this process began, also from those who did not call them seeds."""
        if lease.kind is not Kind.PAGE or lease.depth > 0 or links.scope.judge(locate(lease.url)) is None:
            return
        await self._frontier.widen_scope(lease.crawl, [lease.url])
        links.scope = links.scope.extended(lease.url)
