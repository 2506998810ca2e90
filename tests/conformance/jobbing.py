"""What the tests of jobs share: submitting, claiming and ending them in few words."""

from typing import Any

from outrider.model.artifact import Fetch
from outrider.model.identifiers import new_uuid7
from outrider.model.job import STALE_AFTER_MS, WEBHOOK_TOPIC, Job, JobEnding, JobRequest, RunKind, StoredMessage
from outrider.model.lease import Lease, LeaseRequest, Outcome, Report
from outrider.model.machines import DesiredState, JobStatus
from outrider.model.task import CrawlLimits, Discovered
from outrider.store.opening import Stores
from outrider.store.protocols import ControlStore, UrlStore
from tests.conformance.controlling import NOW

PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED, PAUSED = JobStatus
RUN, PAUSE, CANCEL = DesiredState
STALE = NOW + STALE_AFTER_MS + 1


async def submit(control: ControlStore, now: int | None = NOW, **request: Any) -> Job:
    """Submit a job."""
    return await control.submit_job(JobRequest(**{"payload": {"url": "https://a.org/"}, **request}), now=now)


async def claimed(control: ControlStore, worker: str = "w", now: int = NOW, **request: Any) -> Job:
    """Submit a job and claim it, or one that waits for longer."""
    await submit(control, **request)
    job = await control.claim_job(worker, now=now)
    assert job is not None
    return job


async def read(control: ControlStore, job: Job) -> Job:
    """Read a job that must be there."""
    found = await control.get_job(job.id)
    assert found is not None
    return found


async def steps(control: ControlStore, job: Job) -> list[tuple[str | None, str, int, str]]:
    """Read the history of a job."""
    history = await control.job_history(job.id)
    return [(each.from_status, each.to_status, each.epoch, each.actor) for each in history]


async def finish(control: ControlStore, job: Job, outcome: JobStatus, now: int | None = NOW, **ending: Any) -> Job:
    """End the live epoch of a job."""
    return await control.finish_job(job.id, job.epoch, JobEnding(outcome=outcome, **ending), now=now)


async def prepared(
    stores: Stores, *urls: str | Discovered, crawl: str = "c", max_retries: int = 3, **limits: Any
) -> Job:
    """Make a crawl with these URLs and a claimed job for it, which has an open run."""
    chosen = CrawlLimits(**{"delay_ms": 0, "concurrency": 100, "robots": False, **limits})
    await stores.urls.create_crawl(crawl, limits=chosen, now=NOW)
    await stores.urls.add(crawl, [Discovered(url=url) if isinstance(url, str) else url for url in urls], now=NOW)
    job = await claimed(
        stores.control,
        crawl=crawl,
        max_retries=max_retries,
        webhook_url="https://hooks.example/",
        webhook_secret="s3cret",
    )
    await stores.control.open_run(crawl, RunKind.JOB, job_id=job.id, epoch=job.epoch, now=NOW)
    return await read(stores.control, job)


async def lease(
    urls: UrlStore, worker: str, slots: int = 100, crawl: str = "c", run_id: str | None = None, now: int | None = NOW
) -> list[Lease]:
    """Lease for a worker."""
    request = LeaseRequest(worker=worker, request_id=new_uuid7(), slots=slots, crawl=crawl, run_id=run_id)
    return (await urls.lease(request, now=now)).leases


def done(lease: Lease, *links: Discovered) -> Report:
    """Report a page that was fetched."""
    return Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200), links=list(links))


async def messages(control: ControlStore, now: int = STALE) -> list[StoredMessage]:
    """Take the messages of webhooks."""
    return await control.take_messages(WEBHOOK_TOPIC, now=now)
