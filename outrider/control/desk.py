"""The desk: where people submit jobs, follow them and say what they want.

`JobDesk` is what a command line or a page needs, whether the store is here (`LocalDesk`) or behind a service
(`outrider.service.job_client.RemoteDesk`).
"""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from outrider.control.job_events import JobEvent
from outrider.control.job_progress import JobProgress
from outrider.model.job import Job, JobFilter, JobPage, JobSort, JobTransition, PendingWork
from outrider.model.order import JobOrder


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job and what became of it, from its submission on."""

    job: Job
    history: list[JobTransition]


class JobDesk(Protocol):
    """Where jobs are submitted and followed. Every method on one job raises `UnknownJob` where there is none."""

    async def submit(
        self,
        order: JobOrder,
        *,
        crawl: str | None = None,
        priority: int = 0,
        max_retries: int = 3,
        source_id: str | None = None,
        labels: Mapping[str, str] = ...,
        webhook_url: str | None = None,
        webhook_secret: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Queue a job; the same request again, by its idempotency key, gives the same job.

        Raises `InvalidInput` for an order that makes no sense, `JobConflict` where the crawl has a live job and
        `QuotaExceeded`.
        """
        ...

    async def list(
        self,
        which: JobFilter = ...,
        *,
        sort: JobSort = JobSort.NEWEST,
        cursor: str | None = None,
        limit: int = 100,
    ) -> JobPage:
        """List jobs page by page; a page may be short and still have a cursor."""
        ...

    async def show(self, job_id: str) -> JobView:
        """Show a job with its history."""
        ...

    async def progress(self, job_id: str) -> JobProgress:
        """Tell how far a job has come."""
        ...

    def events(self, job_id: str, *, after: int = 0) -> AsyncIterator[JobEvent]:
        """Follow a job from the step after this one until it has ended: every step once, in order."""
        ...

    def results(self, job_id: str, *, after_id: int = 0) -> AsyncIterator[Mapping[str, object]]:
        """Give the pages that a job has so far, after this one: the lines that `outrider export` writes."""
        ...

    async def pause(self, job_id: str) -> Job:
        """Ask a job to pause."""
        ...

    async def resume(self, job_id: str) -> Job:
        """Ask a paused job to go on where it was."""
        ...

    async def cancel(self, job_id: str) -> Job:
        """Ask a job to end."""
        ...

    async def retry(self, job_id: str, *, fresh: bool = False) -> Job:
        """Queue a failed job again: it goes on where it was, or anew."""
        ...

    async def amend(
        self,
        job_id: str,
        *,
        priority: int | None = None,
        max_pages: int | UnsetType | None = UNSET,
        max_pages_per_domain: int | UnsetType | None = UNSET,
        max_depth: int | UnsetType | None = UNSET,
    ) -> Job:
        """Change a live job; what is left out stays, and None takes a limit away."""
        ...

    async def summary(self) -> PendingWork:
        """Sum up the work that all live jobs have before them."""
        ...

    async def close(self) -> None:
        """Let go of what is open."""
        ...
