"""Preparing: from an order to a crawl, by each strategy, and twice as well as once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest

from outrider.control.preparing import conduct_of, limits_of, order_of, plan_of, prepare
from outrider.crawler.conduct import Conduct
from outrider.crawler.crew import Crew
from outrider.crawler.plan import CrawlPlan
from outrider.crawler.progress import CrawlEnding
from outrider.frontier.local import LocalFrontier
from outrider.model.errors import InvalidInput, JobConflict
from outrider.model.job import Job, JobRequest
from outrider.model.machines import TaskState
from outrider.model.order import JobOrder, OrderLimits, Strategy
from outrider.model.task import CrawlLimits, CrawlRules, KeyRule, Kind, TaskFilter
from outrider.store.opening import Stores, open_store
from tests.conformance.backends import Place
from tests.crawler.raw_server import RawServer, page, serving

HTML = "Content-Type: text/html"
PLAN = CrawlPlan(warc=False, allow_private=True)


def link(path: str) -> bytes:
    return page(f'<a href="{path}">x</a>'.encode(), HTML)


class Prepared(NamedTuple):
    """A site, and a store with a job for it."""

    server: RawServer
    stores: Stores

    async def claimed(self, **order: Any) -> Job:
        """Submit a job and claim it."""
        wanted: dict[str, Any] = {"seeds": (self.server.url("/"),), "delay": 0.0, "robots": False}
        payload = msgspec.to_builtins(JobOrder(**wanted | order))
        await self.stores.control.submit_job(JobRequest(payload=payload, crawl="c"))
        job = await self.stores.control.claim_job("supervisor")
        assert job is not None
        return job

    async def crawled(self, **order: Any) -> set[str]:
        """Crawl by an order to the end; give what was completed."""
        job = await self.claimed(**order)
        run = await prepare(self.stores, job, order_of(job))
        plan = plan_of(order_of(job), PLAN)
        async with (
            LocalFrontier(self.stores.urls) as frontier,
            Crew(frontier, plan, lease_ms=60_000, name="crew", run_id=run.id) as crew,
            asyncio.timeout(20),
        ):
            assert await crew.work("c", asyncio.Event(), until_done=True) is CrawlEnding.DRAINED
        return await self.paths(TaskState.COMPLETED)

    async def paths(self, state: TaskState | None = None, kind: Kind | None = Kind.PAGE) -> set[str]:
        tasks = (await self.stores.urls.list_tasks("c", TaskFilter(state=state, kind=kind))).tasks
        return {"/" + task.url.split("/", 3)[3] for task in tasks}


@asynccontextmanager
async def prepared(place: Place) -> AsyncIterator[Prepared]:
    answers: dict[str, Any] = {"/": link("/linked"), "/linked": page(), "/listed": link("/beyond"), "/beyond": page()}
    async with serving(answers) as server, await open_store(place.dsn) as stores:
        listing = f"<urlset><url><loc>{server.url('/listed')}</loc></url></urlset>".encode()
        answers["/sitemap.xml"] = page(listing, "Content-Type: application/xml")
        answers["/robots.txt"] = page(f"Sitemap: {server.url('/sitemap.xml')}".encode())
        yield Prepared(server, stores)


async def test_a_single_crawl_fetches_the_seeds_alone(place: Place) -> None:
    async with prepared(place) as at:
        assert await at.crawled(strategy=Strategy.SINGLE, robots=True) == {"/"}
        assert await at.paths(kind=Kind.SITEMAP) == set()


async def test_a_crawl_by_sitemap_fetches_what_the_sitemap_of_the_site_lists_and_no_more(place: Place) -> None:
    async with prepared(place) as at:
        assert await at.crawled(strategy=Strategy.SITEMAP, sitemaps=False) == {"/listed"}


async def test_a_seed_that_is_a_sitemap_is_read_as_one(place: Place) -> None:
    async with prepared(place) as at:
        seeds = (at.server.url("/sitemap.xml"),)
        assert await at.crawled(strategy=Strategy.SITEMAP, seeds=seeds) == {"/listed"}


async def test_a_recursive_crawl_follows_links_and_sitemaps(place: Place) -> None:
    async with prepared(place) as at:
        assert await at.crawled(robots=True) == {"/", "/linked", "/listed", "/beyond"}


async def test_a_seed_that_cannot_be_used_is_left_out(place: Place) -> None:
    async with prepared(place) as at:
        job = await at.claimed(seeds=("nowhere", at.server.url("/")))
        await prepare(at.stores, job, order_of(job))
        assert await at.paths() == {"/"}


async def test_to_prepare_twice_is_to_prepare_once(place: Place) -> None:
    """What a kill between two steps leaves behind is completed by the next supervisor."""
    async with prepared(place) as at:
        job = await at.claimed(max_depth=2, exclude=("/x",))
        first = await prepare(at.stores, job, order_of(job))
        assert await prepare(at.stores, job, order_of(job)) == first
        crawl = await at.stores.urls.get_crawl("c")
        assert crawl.limits == CrawlLimits(max_depth=2, delay_ms=0, robots=False)
        assert msgspec.convert(crawl.conduct, Conduct) == conduct_of(order_of(job))
        assert await at.stores.urls.scope_roots("c") == [at.server.url("/")]


async def test_a_job_that_goes_on_keeps_the_limits_that_were_amended(place: Place) -> None:
    async with prepared(place) as at:
        job = await at.claimed(max_pages=5)
        await prepare(at.stores, job, order_of(job))
        await at.stores.control.amend_job(job.id, limits=OrderLimits(max_pages=50))
        again = await at.stores.control.get_job(job.id)
        assert again is not None
        await prepare(at.stores, again, order_of(again))
        assert (await at.stores.urls.get_crawl("c")).limits.max_pages == 50


async def test_a_crawl_that_is_there_keeps_its_rules(place: Place) -> None:
    async with prepared(place) as at:
        await at.stores.urls.create_crawl("c", CrawlRules(key_rule=KeyRule.HOST, sort_query=True))
        job = await at.claimed(max_pages=3)
        await prepare(at.stores, job, order_of(job))
        crawl = await at.stores.urls.get_crawl("c")
        assert (crawl.rules.sort_query, crawl.limits.max_pages) == (True, 3)


async def test_nobody_prepares_a_job_that_is_not_his_any_more(place: Place) -> None:
    async with prepared(place) as at:
        job = await at.claimed()
        stale = msgspec.structs.replace(job, epoch=job.epoch - 1)
        with pytest.raises(JobConflict):
            await prepare(at.stores, stale, order_of(stale))
        assert await at.stores.urls.list_crawls() == []


def test_the_plan_of_a_runner_knows_no_seeds_so_that_none_is_allowed_for_being_named() -> None:
    order = JobOrder(seeds=("http://127.0.0.1/",), concurrency=7, timeout=3.0, max_wait=9.0)
    plan = plan_of(order, CrawlPlan(seeds=("http://10.0.0.1/",), proxy="http://proxy:3128"))
    assert (plan.seeds, plan.concurrency, plan.timeout, plan.max_wait) == ((), 7, 3.0, 9.0)
    assert plan.proxy == "http://proxy:3128"
    assert limits_of(order).concurrency == 1


@pytest.mark.parametrize("payload", [{}, {"seeds": "http://a.example/"}, {"seeds": [], "delay": "soon"}])
def test_a_payload_that_is_no_order_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="the order of job j cannot be read"):
        order_of(_job(payload))


def _job(payload: dict[str, object]) -> Job:
    fields = dict.fromkeys(Job.__struct_fields__)
    return Job(**{**fields, "id": "j", "payload": payload})  # type: ignore[arg-type]
