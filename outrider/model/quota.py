"""Quotas: how much one API key may have done for it."""

from datetime import datetime
from enum import StrEnum

import msgspec

from outrider.model.errors import OutriderError


class Quota(StrEnum):
    """What is counted."""

    ACTIVE_JOBS = "max_active_jobs"
    PAGES_PER_JOB = "max_pages_per_job"
    JOBS_PER_DAY = "max_jobs_per_day"


class JobQuota(msgspec.Struct, frozen=True, kw_only=True):
    """How much a key may have; None means as much as it likes."""

    max_active_jobs: int | None = None
    """Jobs that have not ended."""
    max_pages_per_job: int | None = None
    max_jobs_per_day: int | None = None
    """Jobs submitted within the last 24 hours."""

    def check_pages(self, max_pages: int | None) -> None:
        """Refuse a job of more pages than the key may have, or of pages without end.

        >>> JobQuota(max_pages_per_job=10).check_pages(10)
        """
        most = self.max_pages_per_job
        if most is not None and (max_pages is None or max_pages > most):
            raise QuotaExceeded(Quota.PAGES_PER_JOB, most)


class QuotaExceeded(OutriderError):
    """A key has used up a quota; `retry_at` is when there is room again, None where time alone makes none."""

    def __init__(self, which: Quota, limit: int, retry_at: datetime | None = None) -> None:
        said = {
            Quota.ACTIVE_JOBS: f"this key may have {limit} jobs that have not ended: wait for one, or cancel one",
            Quota.PAGES_PER_JOB: f"a job of this key may have at most {limit} pages: set max_pages",
            Quota.JOBS_PER_DAY: f"this key may submit {limit} jobs in 24 hours",
        }[which]
        when = "" if retry_at is None else f"; there is room again at {retry_at.isoformat(timespec='seconds')}"
        super().__init__(f"{said} (quota {which}{when})")
        self.which = which
        self.limit = limit
        self.retry_at = retry_at
