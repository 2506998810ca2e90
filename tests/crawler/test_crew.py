"""A crew on a frontier of its own process: whose conduct it follows, and how it ends."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from outrider.crawler.conduct import Conduct, conduct_of, fetching_plan
from outrider.crawler.crew import STUCK_S, Crew
from outrider.crawler.plan import CrawlPlan
from outrider.crawler.progress import CrawlEnding
from outrider.demo.server import DemoServer
from outrider.demo.site import SiteOptions
from outrider.frontier.local import LocalFrontier
from outrider.model.machines import TaskState
from outrider.model.task import CrawlLimits, CrawlRules, CrawlState, Discovered, DiscoveryType, Kind, TaskFilter
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore

FAST = CrawlLimits(delay_ms=0, concurrency=8)
PLAN = CrawlPlan(concurrency=8, allow_private=True, warc=False, timeout=5.0)


class Place(NamedTuple):
    """A site with one seed, and a frontier that has it."""

    site: DemoServer
    frontier: LocalFrontier
    urls: UrlStore

    async def paths(self, kind: Kind = Kind.PAGE) -> set[str]:
        """The paths of what was completed."""
        found = await self.urls.list_tasks("c", TaskFilter(state=TaskState.COMPLETED, kind=kind))
        return {"/" + task.url.split("/", 3)[3] for task in found.tasks}


@asynccontextmanager
async def place(
    folder: Path, *, pages: int = 12, limits: CrawlLimits = FAST, conduct: Mapping[str, object] | None = None
) -> AsyncIterator[Place]:
    async with (
        DemoServer(SiteOptions(pages=pages, oddities=False)) as site,
        await open_store(f"sqlite:///{folder / 'store.sqlite'}") as stores,
        LocalFrontier(stores.urls) as frontier,
    ):
        await stores.urls.create_crawl("c", CrawlRules(), limits)
        if conduct is not None:
            await stores.urls.set_conduct("c", conduct)
        await frontier.widen_scope("c", [f"{site.base_url}/"])
        await frontier.add("c", [Discovered(url=f"{site.base_url}/", discovery_type=DiscoveryType.SEED)])
        yield Place(site, frontier, stores.urls)


async def work(at: Place, plan: CrawlPlan = PLAN, **options: bool) -> CrawlEnding | None:
    async with Crew(at.frontier, plan, lease_ms=60_000, name="crew") as crew:
        async with asyncio.timeout(30):
            return await crew.work("c", asyncio.Event(), until_done=True, **options)


async def test_a_crew_works_for_a_frontier_of_its_own_process(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        assert await work(at) is CrawlEnding.DRAINED
        assert await at.paths() == set(at.site.site.page_paths())


async def test_where_a_crawl_has_no_conduct_the_plan_says_which_links_to_follow(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        plan = msgspec.structs.replace(PLAN, exclude=("/",))
        assert await work(at, plan) is CrawlEnding.DRAINED
        assert await at.paths() == {"/"}


async def test_a_conduct_that_follows_no_links_gives_the_seeds_alone(tmp_path: Path) -> None:
    conduct = msgspec.to_builtins(Conduct(follow_links=False, sitemaps=False))
    async with place(tmp_path, conduct=conduct) as at:
        assert await work(at) is CrawlEnding.DRAINED
        assert await at.paths() == {"/"}
        assert await at.paths(Kind.SITEMAP) == set()


async def test_a_conduct_wins_over_the_plan_and_refuses_what_it_has_let_in_before(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        await at.frontier.add("c", [Discovered(url=f"{at.site.base_url}/page/3", depth=1)])
        await at.urls.set_conduct("c", msgspec.to_builtins(Conduct(exclude=("/",), sitemaps=False)))
        assert await work(at) is CrawlEnding.DRAINED
        assert await at.paths() == {"/"}
        task = await at.urls.find_task("c", f"{at.site.base_url}/page/3")
        assert task is not None
        assert (task.state, task.reason) == (TaskState.FAILED, "excluded by --exclude '/'")


async def test_a_conduct_that_changes_is_followed_without_a_new_crew(tmp_path: Path) -> None:
    conduct = msgspec.to_builtins(Conduct(follow_links=False, sitemaps=False))
    async with place(tmp_path, conduct=conduct) as at, Crew(at.frontier, PLAN, lease_ms=60_000, name="crew") as crew:
        assert await crew.work("c", asyncio.Event(), until_done=True) is CrawlEnding.DRAINED
        await at.urls.set_conduct("c", msgspec.to_builtins(Conduct(sitemaps=False)))
        crew._visitors._own["c"] = crew._visitors._own["c"]._replace(fresh_until=0)
        await at.frontier.add("c", [Discovered(url=f"{at.site.base_url}/?again", discovery_type=DiscoveryType.SEED)])
        assert await crew.work("c", asyncio.Event(), until_done=True) is CrawlEnding.DRAINED
        assert len(await at.paths()) >= 12


async def test_a_crew_that_outlasts_pauses_goes_on_when_the_crawl_does(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        await at.urls.set_crawl_state("c", CrawlState.PAUSED)
        assert await work(at) is CrawlEnding.PAUSED
        working = asyncio.create_task(work(at, outlasts_pauses=True))
        await asyncio.sleep(0)
        await at.urls.set_crawl_state("c", CrawlState.RUNNING)
        assert await working is CrawlEnding.DRAINED


async def test_a_crew_that_does_nothing_for_longer_than_a_fetch_may_take_is_stuck(tmp_path: Path) -> None:
    async with place(tmp_path) as at, Crew(at.frontier, PLAN, lease_ms=60_000, name="crew") as crew:
        assert not crew.is_stuck
        await crew.work("c", asyncio.Event(), until_done=True)
        assert crew._worker is not None
        assert not crew.is_stuck
        crew._worker.moved_at -= PLAN.timeout + STUCK_S
        assert crew.is_stuck


def test_a_conduct_says_how_to_fetch_and_leaves_the_rest_to_the_plan() -> None:
    kept = msgspec.to_builtins(Conduct(user_agent="Named/1", timeout=7.0, max_body=2_048))
    plan = fetching_plan(PLAN, conduct_of(PLAN, kept))
    assert (plan.user_agent, plan.timeout, plan.max_body) == ("Named/1", 7.0, 2_048)
    assert (plan.concurrency, plan.allow_private) == (PLAN.concurrency, PLAN.allow_private)
    assert fetching_plan(PLAN, conduct_of(PLAN, None)) == PLAN
