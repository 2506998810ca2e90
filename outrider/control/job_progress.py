"""How far a job has come, from exact counts and from what its runner last said."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

import msgspec

from outrider.model.job import Job
from outrider.model.machines import JobStatus
from outrider.model.task import Counts

MOST_DOMAINS: Final = 20
"""Current domains that are told of."""


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job has come: counts of pages are exact, the rest is from its runner's last beat."""

    job_id: str
    crawl: str
    status: JobStatus
    done: int
    failed: int
    pending: int
    """Pages that wait, and those that a limit holds back."""
    in_flight: int
    rate: float
    """Pages per second; 0 unless it runs."""
    percentage: int
    percentage_of: Literal["limit", "frontier"]
    """Of the job's limit on pages where it has one, else of all pages that are known so far, which may still grow."""
    domains: list[str]
    """What it fetches from now."""
    last_error: str | None
    waiting_until: datetime | None
    """Where nothing can be fetched now: when something may be."""
    last_heartbeat: datetime | None


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner says of itself with every beat, as far as it is of use here."""

    rate: float = 0.0
    domains: list[str] = []
    last_error: str | None = None
    waiting_until: datetime | None = None


def progress_of(job: Job, counts: Counts, max_pages: int | None) -> JobProgress:
    """Put together how far a job has come, with the counts of its crawl's pages."""
    beat = beat_of(job.progress)
    runs = job.status is JobStatus.PROCESSING
    return JobProgress(
        job_id=job.id,
        crawl=job.crawl,
        status=job.status,
        done=counts.completed,
        failed=counts.failed,
        pending=counts.pending + counts.discovered,
        in_flight=counts.assigned,
        rate=beat.rate if runs else 0.0,
        percentage=percentage_of(job.status, counts, max_pages),
        percentage_of="frontier" if max_pages is None else "limit",
        domains=beat.domains[:MOST_DOMAINS] if runs else [],
        last_error=beat.last_error or job.error_message,
        waiting_until=beat.waiting_until if runs else None,
        last_heartbeat=job.last_heartbeat,
    )


def beat_of(said: Mapping[str, object] | None) -> Beat:
    """Read what a runner last said; one of another version may say it otherwise, and then nothing is known."""
    try:
        return msgspec.convert(said or {}, Beat)
    except msgspec.ValidationError:
        return Beat()


def percentage_of(status: JobStatus, counts: Counts, max_pages: int | None) -> int:
    """Tell the share of pages that is done, rounded down: 100 is for jobs that are.

    >>> percentage_of(JobStatus.PROCESSING, Counts(completed=999), 1000)
    99
    >>> percentage_of(JobStatus.PROCESSING, Counts(completed=3, failed=1, pending=4), None)
    50
    """
    if status is JobStatus.COMPLETED:
        return 100
    if max_pages is not None:
        reached, whole = counts.completed, max_pages
    else:
        reached, whole = counts.completed + counts.failed, counts.total
    return min(reached * 100 // whole, 99) if whole else 0
