"""Workers of a service: registered in their mode, and with claims where they ask for them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from outrider.crawler.crew import Crew
from outrider.crawler.plan import CrawlPlan
from outrider.crawler.progress import CrawlEnding
from outrider.crawler.scheduling import Scheduling
from outrider.demo.server import DemoServer
from outrider.demo.site import SiteOptions
from outrider.model.job import WorkerMode
from outrider.service.client import connect
from outrider.store.protocols import ControlStore
from tests.service.serving import Served, open_port


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with open_port() as port, port.serving(tmp_path, allow_private=True) as running:
        await running.crawl()
        yield running


def control(served: Served) -> ControlStore:
    return served.service.backend.stores.control


async def test_a_worker_is_registered_in_the_mode_in_which_it_leases(served: Served) -> None:
    await served.add("https://a.example/")
    await served.lease(worker="w", claims=True)
    [worker] = await control(served).list_workers()
    assert (worker.worker_id, worker.mode) == ("w", WorkerMode.CLAIMS)


async def test_under_claims_each_domain_is_leased_to_one_worker(served: Served) -> None:
    await served.add("https://a.example/1", "https://a.example/2")
    assert len((await served.lease(worker="w", slots=1, claims=True))["leases"]) == 1
    assert (await served.lease(worker="v", claims=True))["leases"] == []
    assert len((await served.lease(worker="w", request_id="2", slots=1, claims=True))["leases"]) == 1


async def test_a_mix_of_modes_is_refused_with_the_reason(served: Served) -> None:
    await served.lease(worker="w", claims=True)
    body = {"worker": "v", "request_id": "r", "slots": 1}
    refused = await served.ask("POST", "/v1/crawls/news/lease", body)
    assert refused.status == 409
    assert refused.json["type"].endswith("mixed-modes")
    assert "1 live worker runs with mode claims on this store" in refused.json["detail"]


async def test_claims_without_a_crawl_are_refused(served: Served) -> None:
    refused = await served.ask("POST", "/v1/lease", {"worker": "v", "request_id": "r", "slots": 1, "claims": True})
    assert refused.status == 422
    assert "name the crawl to lease from" in refused.json["detail"]


@pytest.mark.parametrize("claims", [True, False])
async def test_a_crew_crawls_a_site_for_a_service_with_and_without_claims(
    served: Served, tmp_path: Path, *, claims: bool
) -> None:
    plan = CrawlPlan(data=str(tmp_path), warc=False, allow_private=True)
    async with DemoServer(SiteOptions(pages=8, oddities=False)) as site, connect(served.base_url) as frontier:
        await frontier.widen_scope("news", [site.base_url])
        await served.add(site.base_url)
        scheduling = Scheduling(claims=claims)
        async with Crew(frontier, plan, lease_ms=60_000, name="w", scheduling=scheduling) as crew:
            ending = await crew.work("news", asyncio.Event(), until_done=True)
    assert ending is CrawlEnding.DRAINED
    counts = await served.service.backend.stores.urls.counts("news")
    assert counts.completed >= 8
