"""A crew: the crawler's worker and visitors, at work for a service.

The crawl itself, at the service, says how polite to be and whether to obey robots.txt; the plan of a crew says how to
fetch and what to keep. A crew may serve any number of crawls, and has a visitor for each.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, NamedTuple, Self, cast

from outrider.crawler import warc
from outrider.crawler.equipment import archive_of, fetcher_of
from outrider.crawler.execution import GRACE_S, ending_of
from outrider.crawler.fetch import Fetcher
from outrider.crawler.links import Links
from outrider.crawler.plan import CrawlPlan
from outrider.crawler.progress import CrawlEnding, Progress
from outrider.crawler.robots import product_token
from outrider.crawler.visit import Visitor
from outrider.crawler.worker import Worker
from outrider.model.identifiers import new_uuid7
from outrider.model.lease import Lease, LeaseGrant, Report
from outrider.model.task import Discovered, Kind
from outrider.model.url import locate
from outrider.policy.scope import Scope, scope_of
from outrider.service.client import RemoteFrontier

logger = logging.getLogger(__name__)

SCOPE_FRESH_S: Final = 5.0
"""How often to ask what has widened a crawl's scope."""


class Crew:
    """Works for a service under one name; a context manager that opens what fetching and keeping need."""

    def __init__(self, frontier: RemoteFrontier, plan: CrawlPlan, *, lease_ms: int, name: str) -> None:
        self._frontier = frontier
        self._plan = plan
        self._lease_ms = lease_ms
        # Never used before: leases of a process that had the same name are not ours.
        self._name = f"{name[:200]}-{new_uuid7()}"
        self.progress = Progress()
        self._open = AsyncExitStack()
        self._visitors: Visitors
        self._ending: CrawlEnding | None = None

    async def __aenter__(self) -> Self:
        plan = self._plan
        async with AsyncExitStack() as opening:
            fetcher = await opening.enter_async_context(fetcher_of(plan, plan.seeds))
            archive = archive_of(plan, opening)
            self._visitors = Visitors(self._frontier, plan, fetcher, archive, self.progress)
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def work(self, crawl: str | None, stop: asyncio.Event, *, until_done: bool) -> CrawlEnding | None:
        """Work for a crawl, or for any, until stopped or, with `until_done`, until the crawl is over."""
        if crawl is not None:
            await self._frontier.show_crawl(crawl)  # a name that is none is told at once
        worker = Worker(
            self._frontier,
            # Of a visitor the worker asks for these two methods only.
            cast("Visitor", self._visitors),
            name=self._name,
            # The worker hands it on to the frontier, where None is any crawl.
            crawl=cast("str", crawl),
            slots=self._plan.concurrency,
            lease_ms=self._lease_ms,
        )

        async def is_over(grant: LeaseGrant) -> bool:
            return until_done and crawl is not None and await self._is_over(crawl, grant)

        await worker.run(stop, is_over, grace_s=min(GRACE_S, self._plan.timeout))
        return self._ending

    async def _is_over(self, crawl: str, grant: LeaseGrant) -> bool:
        outlook = await self._frontier.outlook(crawl)
        max_wait_ms = round(self._plan.max_wait * 1000)
        self._ending = ending_of(grant, outlook, now=int(time.time() * 1000), max_wait_ms=max_wait_ms)
        return self._ending is not None


class _Own(NamedTuple):
    """The visitor of one crawl, and the rules by which it follows links."""

    visitor: Visitor
    links: Links


class Visitors:
    """The visitors of a crew, one for each crawl, made when the crawl is first met."""

    def __init__(
        self,
        frontier: RemoteFrontier,
        plan: CrawlPlan,
        fetcher: Fetcher,
        archive: warc.WarcWriter | None,
        progress: Progress,
    ) -> None:
        self._frontier = frontier
        self._plan = plan
        self._fetcher = fetcher
        self._archive = archive
        self._progress = progress
        self._own: dict[str, _Own] = {}
        self._being_made = asyncio.Lock()
        self._scope_due: dict[str, float] = {}
        """When to ask again what has widened a crawl's scope."""

    async def visit(self, lease: Lease, asked_at: float) -> Report:
        """Visit for the crawl that a lease is of."""
        own = self._own.get(lease.crawl) or await self._made(lease.crawl)
        await self._keep_in_scope(own.links, lease)
        return await own.visitor.visit(lease, asked_at)

    def acknowledged(self, links: Sequence[Discovered]) -> None:
        """Note that the frontier has these links, where there is no doubt whose they are."""
        if len(self._own) == 1:
            next(iter(self._own.values())).visitor.acknowledged(links)

    async def _made(self, crawl: str) -> _Own:
        async with self._being_made:
            if crawl not in self._own:
                self._own[crawl] = await self._make(crawl)
            return self._own[crawl]

    async def _make(self, crawl: str) -> _Own:
        plan, settled = self._plan, await self._frontier.show_crawl(crawl)
        links = Links(
            await self._scope(crawl),
            settled.rules,
            self._progress,
            ignore_nofollow=plan.ignore_nofollow,
            sitemaps=plan.sitemaps,
        )
        visitor = Visitor(
            frontier=self._frontier,
            fetcher=self._fetcher,
            links=links,
            progress=self._progress,
            agent=product_token(plan.user_agent),
            archive=self._archive,
            obeys_robots=settled.limits.robots,
            delay_s=settled.limits.delay_ms / 1000,
        )
        return _Own(visitor, links)

    async def _scope(self, crawl: str) -> Scope:
        """Make the scope of a crawl from what its seeds left at the service."""
        plan = self._plan
        scope = scope_of((), plan.scope, include=plan.include, exclude=plan.exclude)
        began = time.monotonic()
        self._scope_due[crawl] = began + SCOPE_FRESH_S
        scope = scope.with_seeds(await self._frontier.scope_roots(crawl))
        # Of a million seeds this takes seconds, which must not be all that the process does.
        self._scope_due[crawl] = began + max(SCOPE_FRESH_S, 50 * (time.monotonic() - began))
        return scope

    async def _keep_in_scope(self, links: Links, lease: Lease) -> None:
        """Learn of seeds that came after this process began, also from those who did not call them seeds."""
        if time.monotonic() > self._scope_due[lease.crawl]:
            links.scope = await self._scope(lease.crawl)
        if lease.kind is not Kind.PAGE or lease.depth > 0 or links.scope.judge(locate(lease.url)) is None:
            return
        await self._frontier.widen_scope(lease.crawl, [lease.url])
        links.scope = links.scope.extended(lease.url)
