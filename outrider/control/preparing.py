"""Preparing a crawl for a job: from its order to a crawl that any worker may join.

Every step may be done twice, and a job that has a run has been through all of them.
"""

from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from outrider.crawler.conduct import Conduct
from outrider.crawler.links import SITEMAP_PRIORITY
from outrider.crawler.plan import CrawlPlan
from outrider.crawler.refreshing import RefreshWish, reopen_pages
from outrider.model.errors import InvalidInput, JobConflict, UnknownCrawl, shown
from outrider.model.job import Job, Run, RunKind
from outrider.model.order import JobOrder, Strategy
from outrider.model.settings import Settings
from outrider.model.task import CrawlLimits, CrawlRules, Discovered, DiscoveryType, Kind
from outrider.model.url import UrlRefused, locate
from outrider.policy.discovery import priority_of
from outrider.policy.scope import ScopeRule
from outrider.store.opening import Stores

SEEDS_AT_ONCE: Final = 2_000
SITEMAP: Final = "/sitemap.xml"
SITEMAP_ENDINGS: Final = (".xml", ".xml.gz", ".txt", ".txt.gz")


def order_of(job: Job) -> JobOrder:
    """Read what a job is to crawl, or raise `InvalidInput`."""
    try:
        return msgspec.convert(job.payload, JobOrder)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the order of job {job.id} cannot be read: {error}") from None


def limits_of(order: JobOrder) -> CrawlLimits:
    """Give a crawl the limits of an order."""
    return CrawlLimits(
        max_depth=order.max_depth,
        max_pages=order.max_pages,
        max_pages_per_domain=order.max_pages_per_domain,
        delay_ms=round(order.delay * 1000),
        concurrency=order.per_domain,
        robots=order.robots,
    )


def conduct_of(order: JobOrder) -> Conduct:
    """Give the workers of a crawl the conduct of an order."""
    return Conduct(
        scope=ScopeRule(order.scope),
        include=order.include,
        exclude=order.exclude,
        follow_links=order.strategy is Strategy.RECURSIVE,
        sitemaps=order.strategy is Strategy.SITEMAP or (order.sitemaps and order.strategy is Strategy.RECURSIVE),
        ignore_nofollow=order.ignore_nofollow,
        user_agent=order.user_agent,
        timeout=order.timeout,
        max_body=order.max_body,
    )


def plan_of(order: JobOrder, own: CrawlPlan) -> CrawlPlan:
    """Give a runner the plan of an order; where it fetches through and what it keeps is the supervisor's own.

    The seeds stay out of it: to name a private address in an order is no leave to fetch from there.
    """
    return msgspec.structs.replace(
        own, seeds=(), concurrency=order.concurrency, timeout=order.timeout, max_wait=order.max_wait
    )


async def prepare(stores: Stores, job: Job, order: JobOrder, settings: Settings | None = None) -> Run:
    """Make the crawl of a job what its order says, and open its run or go on with it.

    A job that has a run goes on with the crawl as it is: its limits may have been amended since. Raises `JobConflict`
    where the job is not its supervisor's any more.
    """
    if job.run_id is None:
        # What follows is not fenced by the epoch: whoever was stopped since the claim must not even begin.
        if (await stores.control.desired_states([(job.id, job.epoch)]))[job.id] is None:
            raise JobConflict(f"job {job.id} is no longer run under epoch {job.epoch}: its crawl is not prepared")
        if job.begins_afresh:
            await stores.control.forget_tasks(job.id, job.epoch)
        if order.seeds or not order.refresh:
            await _settle(stores, job.crawl, order)
            await _add_seeds(stores, job.crawl, order)
        if order.refresh:
            await _refresh(stores, job.crawl, order, settings or Settings())
    kept = {name: value for name, value in job.payload.items() if name != "seeds"}
    return await stores.control.open_run(job.crawl, RunKind.JOB, settings=kept, job_id=job.id, epoch=job.epoch)


async def _refresh(stores: Stores, crawl: str, order: JobOrder, settings: Settings) -> None:
    """Have the pages come up that are due; done twice, the second time finds what the first has left."""
    try:
        await reopen_pages(stores, crawl, RefreshWish(limit=order.max_pages), settings)
    except UnknownCrawl as unknown:
        raise InvalidInput(f"there is nothing to refresh: {unknown}") from None


async def _settle(stores: Stores, crawl: str, order: JobOrder) -> None:
    limits = limits_of(order)
    try:
        await stores.urls.set_crawl_limits(crawl, limits)
    except UnknownCrawl:
        await stores.urls.create_crawl(crawl, CrawlRules(), limits)
    await stores.urls.promote(crawl)
    await stores.urls.set_conduct(crawl, msgspec.to_builtins(conduct_of(order)))


async def _add_seeds(stores: Stores, crawl: str, order: JobOrder) -> None:
    """Add the seeds; a job of which not one can be used has nothing to do, and never will have."""
    usable: list[str] = []
    refused = None
    for seed in order.seeds:
        try:
            usable.append(locate(seed).url)
        except UrlRefused as refusal:
            refused = refused or f"{shown(seed)}: {refusal}"
    if not usable:
        raise InvalidInput("the order has no seeds" if refused is None else f"no usable seed: {refused}")
    for start in range(0, len(usable), SEEDS_AT_ONCE):
        seeds = usable[start : start + SEEDS_AT_ONCE]
        if order.scope != "any":
            await stores.urls.widen_scope(crawl, seeds)
        await stores.urls.add(crawl, list(discoveries(seeds, order.strategy)))


def discoveries(seeds: Sequence[str], strategy: Strategy) -> Iterator[Discovered]:
    """Give the tasks with which a crawl begins.

    Where sitemaps say what to fetch, a seed stands for the sitemap of its site, unless it is one itself.

    >>> [each.url for each in discoveries(["http://a.example/b", "http://a.example/c.xml"], Strategy.SITEMAP)]
    ['http://a.example/sitemap.xml', 'http://a.example/c.xml']
    """
    for seed in seeds:
        if strategy is Strategy.SITEMAP:
            is_sitemap = urlsplit(seed).path.endswith(SITEMAP_ENDINGS)
            yield Discovered(
                url=seed if is_sitemap else _site_of(seed) + SITEMAP,
                kind=Kind.SITEMAP,
                priority=SITEMAP_PRIORITY,
                discovery_type=DiscoveryType.SEED,
            )
        else:
            yield Discovered(url=seed, priority=priority_of(DiscoveryType.SEED), discovery_type=DiscoveryType.SEED)


def _site_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
