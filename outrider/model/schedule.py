"""A schedule: a request for a crawl that is submitted again and again."""

from datetime import datetime

import msgspec

from outrider.model.errors import OutriderError
from outrider.model.job import JobRequest

SHORTEST_EVERY_MS = 1_000
LONGEST_EVERY_MS = 366 * 24 * 3_600_000


class UnknownSchedule(OutriderError):
    """There is no schedule with this id."""

    def __init__(self, schedule_id: str) -> None:
        super().__init__(f"there is no schedule {schedule_id!r}")


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be submitted, and when next; each crawl has at most one."""

    id: str
    crawl: str
    request: JobRequest
    every_ms: int
    due_at: datetime
    last_job_id: str | None
    """The job that was submitted last; None before the first."""
    created_at: datetime
