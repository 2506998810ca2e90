"""The flags of domain tracking: each with what can be seen of it, on and off."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
import pytest_asyncio

from outrider.crawler.execution import Execution
from outrider.crawler.plan import DATABASE, CrawlPlan
from outrider.crawler.progress import CrawlEnding
from outrider.demo.server import DemoServer
from outrider.demo.site import SiteOptions
from outrider.model.domain import Domain, DomainSeed
from outrider.model.job import WorkerMode
from outrider.model.machines import DomainStatus
from outrider.model.settings import Settings
from outrider.model.task import Discovered
from outrider.store.opening import Stores, open_store
from tests.cli.conftest import Outrider, outrider

__all__ = ["outrider"]

PAGES = 12
LONG_AGO = 1


@pytest_asyncio.fixture
async def site() -> AsyncIterator[DemoServer]:
    async with DemoServer(SiteOptions(pages=PAGES, oddities=False)) as server:
        yield server


@pytest_asyncio.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    """The store of the crawls, looked at past them."""
    async with await open_store(f"sqlite:///{tmp_path / DATABASE}", Settings()) as opened:
        yield opened


def domain_of(site: DemoServer) -> str:
    return site.base_url.removeprefix("http://")


async def crawl(folder: Path, settings: Settings, *seeds: str, **plan: object) -> CrawlEnding:
    """Crawl to the end; private addresses are allowed, since not all that is crawled was typed."""
    wanted = CrawlPlan(data=str(folder), delay=0.0, warc=False, allow_private=True, **plan)  # type: ignore[arg-type]
    async with Execution(wanted, settings) as execution:
        return await execution.run(found(seeds), asyncio.Event(), lambda _: None)


def found(seeds: Iterable[str]) -> list[Discovered]:
    return [Discovered(url=seed) for seed in seeds]


async def row(stores: Stores, site: DemoServer) -> Domain:
    domain = await stores.control.get_domain(domain_of(site))
    assert domain is not None
    return domain


async def test_domain_tracking_keeps_the_lives_of_domains(tmp_path: Path, stores: Stores, site: DemoServer) -> None:
    await crawl(tmp_path, Settings(), site.base_url)
    known = await row(stores, site)
    assert (known.status, known.pages_crawled) == (DomainStatus.EXHAUSTED, PAGES)
    assert known.priority_computed_at is not None
    assert await stores.control.domain_history(known.domain)


async def test_without_domain_tracking_only_politeness_and_counts_are_kept(
    tmp_path: Path, stores: Stores, site: DemoServer
) -> None:
    await crawl(tmp_path, Settings(enable_domain_tracking=False), site.base_url)
    known = await row(stores, site)
    assert (known.status, known.pages_crawled) == (DomainStatus.PENDING, PAGES)
    assert known.priority_computed_at is None
    assert await stores.control.domain_history(known.domain) == []
    gate = await stores.urls.get_gate(known.domain)
    assert gate is not None
    assert gate.next_fetch_at > 0


@pytest.mark.parametrize(("is_on", "pages"), [(True, 5), (False, PAGES)])
async def test_the_budget_of_a_domain_binds_what_is_scheduled_from_the_table(
    tmp_path: Path, stores: Stores, site: DemoServer, *, is_on: bool, pages: int
) -> None:
    await stores.control.remember_domains([DomainSeed(domain=domain_of(site))])
    await stores.control.configure_domain(domain_of(site), max_pages_per_run=5)
    settings = Settings(enable_smart_scheduling=True, enable_per_domain_budget=is_on)
    ending = await crawl(tmp_path, settings, site.base_url)
    known = await row(stores, site)
    assert known.pages_crawled == pages
    assert ending is (CrawlEnding.LIMIT if is_on else CrawlEnding.DRAINED)
    assert known.status is (DomainStatus.ACTIVE if is_on else DomainStatus.EXHAUSTED)
    assert (known.frontier_checkpoint_id is None) is not is_on
    await crawl(tmp_path, settings)
    assert (await row(stores, site)).pages_crawled == min(2 * pages, PAGES), "the next run goes on with the next page"


async def test_smart_scheduling_begins_domains_that_only_the_table_has(
    tmp_path: Path, stores: Stores, site: DemoServer
) -> None:
    await stores.control.remember_domains([DomainSeed(domain=domain_of(site), seed_rank=1)])
    await crawl(tmp_path, Settings())
    assert (await row(stores, site)).pages_crawled == 0
    await crawl(tmp_path, Settings(enable_smart_scheduling=True))
    assert (await row(stores, site)).pages_crawled == PAGES


def test_without_smart_scheduling_a_crawl_needs_seeds(outrider: Outrider, tmp_path: Path) -> None:
    refused = outrider("crawl", "--data", tmp_path)
    assert "name at least one seed" in refused.stderr
    done = outrider("crawl", "--data", tmp_path, ENABLE_SMART_SCHEDULING="true")
    assert "name at least one seed" not in done.stderr


@pytest.mark.parametrize("is_on", [True, False])
async def test_the_claim_protocol_has_workers_claim_what_they_crawl(
    tmp_path: Path, stores: Stores, site: DemoServer, *, is_on: bool
) -> None:
    seen: list[tuple[str | None, WorkerMode]] = []

    async def look() -> None:
        while True:
            workers = await stores.control.list_workers()
            if workers and site.requests > 2:
                seen.append(((await row(stores, site)).claimed_by, workers[0].mode))
            await asyncio.sleep(0.001)

    looking = asyncio.create_task(look())
    await crawl(tmp_path, Settings(enable_claim_protocol=is_on), site.base_url)
    looking.cancel()
    assert {mode for _, mode in seen} == {WorkerMode.CLAIMS if is_on else WorkerMode.PLAIN}
    assert any(worker is not None for worker, _ in seen) is is_on
    assert (await row(stores, site)).claimed_by is None


@pytest.mark.parametrize("is_on", [True, False])
async def test_refresh_mode_wakes_exhausted_domains_whose_time_has_come(
    tmp_path: Path, stores: Stores, site: DemoServer, *, is_on: bool
) -> None:
    await crawl(tmp_path, Settings(exhausted_rest_ms=LONG_AGO), site.base_url)
    assert (await row(stores, site)).status is DomainStatus.EXHAUSTED
    await crawl(tmp_path, Settings(enable_refresh_mode=is_on), site.base_url)
    steps = [(step.from_status, step.to_status) for step in await stores.control.domain_history(domain_of(site))]
    assert ((DomainStatus.EXHAUSTED, DomainStatus.PENDING) in steps) is is_on
