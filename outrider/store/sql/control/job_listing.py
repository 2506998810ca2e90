"""Reading jobs: one, many, what became of them, and how much there is to do."""

import re
from collections.abc import Sequence
from typing import Final

from outrider.model.errors import InvalidInput, shown
from outrider.model.job import Job, JobFilter, JobPage, JobSort, JobTransition, PendingWork, UnknownJob
from outrider.model.machines import DesiredState, JobStatus
from outrider.store.checks import END_OF_TIME_MS
from outrider.store.sql.control.rows import millis_of, record
from outrider.store.sql.script import Call, Row, Script

LAST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"

Place = tuple[int, str]
"""Where a job stands in an order: its rank, and its id among those of the same rank."""

UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
CURSOR: Final = re.compile(rf"(?P<sort>[a-z]+)\.(?P<rank>-?[0-9]{{1,15}})\.(?P<id>{UUID})")

STARTS: Final[dict[JobSort, Place]] = {
    JobSort.NEWEST: (0, LAST_ID),
    JobSort.OLDEST: (0, FIRST_ID),
    JobSort.PRIORITY: (-(2**31), FIRST_ID),
    JobSort.UPDATED: (END_OF_TIME_MS - 1, LAST_ID),
}
"""Places before the first job of each order."""


def job_of(row: Row) -> Job:
    """Read a row of `crawl_jobs`."""
    return record(Job, row, json=("payload", "progress", "labels"))


def find(job_id: str) -> Script[Job | None]:
    """Read one job."""
    rows = yield Call("job", (job_id,))
    return job_of(rows[0]) if rows else None


def existing(job_id: str) -> Script[Job]:
    """Read a job that must be there."""
    job = yield from find(job_id)
    if job is None:
        raise UnknownJob(job_id)
    return job


def listed(which: JobFilter, sort: JobSort, after: Place, limit: int) -> Script[JobPage]:
    """List the jobs after a place."""
    status = None if which.status is None else which.status.value
    name, value = (None, None) if which.label is None else which.label
    rows = yield Call(
        f"list_jobs_{sort}",
        (*after, status, which.crawl, which.user_id, which.source_id, name, value, limit + 1),
    )
    jobs = [job_of(row) for row in rows[:limit]]
    return JobPage(jobs=jobs, next_cursor=_cursor(sort, jobs[-1]) if len(rows) > limit else None)


def _cursor(sort: JobSort, job: Job) -> str:
    rank = {JobSort.PRIORITY: -job.priority, JobSort.UPDATED: millis_of(job.updated_at)}.get(sort, 0)
    return f"{sort}.{rank}.{job.id}"


def place_of(cursor: str | None, sort: JobSort) -> Place:
    """Read where a page starts.

    >>> place_of("priority.-5.0190163d-8694-739b-aea5-966c26f8ad91", JobSort.PRIORITY)
    (-5, '0190163d-8694-739b-aea5-966c26f8ad91')
    """
    if cursor is None:
        return STARTS[sort]
    found = CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if found is None or found["sort"] != sort or not -(2**31) <= int(found["rank"]) < END_OF_TIME_MS:
        raise InvalidInput(f"this is no cursor of jobs sorted by {sort}: {shown(cursor)}")
    return int(found["rank"]), found["id"]


def history(job_id: str, after: int, limit: int) -> Script[list[JobTransition]]:
    """Read what became of a job after one of its steps."""
    rows = yield Call("job_history", (job_id, after, limit))
    return [record(JobTransition, row) for row in rows]


def counts() -> Script[dict[JobStatus, int]]:
    """Count jobs by status."""
    found = {JobStatus(row[0]): int(row[1]) for row in (yield Call("job_counts"))}
    return {status: found.get(status, 0) for status in JobStatus}


def pending_work() -> Script[PendingWork]:
    """Sum up what there is to do over all jobs that have not ended."""
    jobs = yield from counts()
    pending, assigned = (yield Call("work_of_jobs"))[0]
    return PendingWork(jobs=jobs, total_pending=int(pending), total_assigned=int(assigned))


def desired_states(jobs: Sequence[tuple[str, int]]) -> Script[dict[str, DesiredState | None]]:
    """Read what is asked of jobs that run under these epochs."""
    rows = yield Call("desired_states", (), sorted(set(jobs)))
    asked = {str(row[0]): DesiredState(row[1]) for row in rows}
    return {job_id: asked.get(job_id) for job_id, _ in jobs}
