"""What the tests of jobs over HTTP share: a service on either engine, and somebody who runs jobs."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from outrider.model.api_key import Role
from outrider.model.artifact import Fetch
from outrider.model.job import Job, JobEnding
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.machines import JobStatus
from outrider.model.quota import JobQuota
from outrider.model.task import CrawlLimits, Discovered
from outrider.service.keys import create_key
from outrider.store.opening import Stores
from tests.conformance.backends import BACKENDS, Backend
from tests.service.serving import Answer, Port, Served, open_port

SEED = "https://site.example/"
FREE = CrawlLimits(delay_ms=0, concurrency=10_000, robots=False)


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """One of the engines."""
    return BACKENDS[request.param](request)


@pytest.fixture
def dsn(backend: Backend) -> Iterator[str]:
    """An empty store of the engine."""
    made = backend.create()
    yield made
    backend.drop(made)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[Port]:
    """A port that stays while services come and go."""
    async with open_port() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def served(port: Port, dsn: str) -> AsyncIterator[Served]:
    """A service with an empty store, and no keys."""
    async with port.serving(dsn) as running:
        yield running


def stores_of(served: Served) -> Stores:
    """Reach behind the service."""
    return served.service.backend.stores


async def bearer(served: Served, name: str, role: Role = Role.CRAWL, *crawls: str, **quota: int) -> dict[str, str]:
    """Make a key and give the header that shows it."""
    made = await create_key(stores_of(served).control, name, role, crawls, quota=JobQuota(**quota))
    return {"authorization": f"Bearer {made.text}"}


async def submit(served: Served, headers: dict[str, str] | None = None, **body: Any) -> Answer:
    """Submit a job of one seed."""
    return await served.ask("POST", "/v1/jobs", {"seeds": [SEED]} | body, headers=headers or {})


async def submitted(served: Served, headers: dict[str, str] | None = None, **body: Any) -> str:
    """Submit a job and give its id."""
    answer = await submit(served, headers, **body)
    assert answer.status == 202, answer.text
    return str(answer.json["id"])


async def claimed(stores: Stores, worker: str = "runner") -> Job:
    """Take the next job as a supervisor does."""
    job = await stores.control.claim_job(worker)
    assert job is not None
    return job


async def fetched(stores: Stores, job: Job, *urls: str) -> None:
    """Have pages in the crawl of a job, all of them fetched."""
    await stores.urls.create_crawl(job.crawl, limits=FREE)
    await stores.urls.add(job.crawl, [Discovered(url=url) for url in urls])
    grant = await stores.urls.lease(
        LeaseRequest(worker="w", request_id=f"{job.id} {urls[0]}", slots=len(urls), crawl=job.crawl)
    )
    assert len(grant.leases) == len(urls)
    await stores.urls.report(
        [
            Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200, title=lease.url))
            for lease in grant.leases
        ]
    )


async def finished(stores: Stores, job: Job, outcome: JobStatus = JobStatus.COMPLETED, **ending: Any) -> Job:
    """End a job as a supervisor does."""
    return await stores.control.finish_job(job.id, job.epoch, JobEnding(outcome=outcome, **ending))
