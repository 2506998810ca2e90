"""Schedules: requests that are submitted again and again, each by whoever finds it due first.

The job and the schedule's next time are written in one transaction, so a kill leaves both or neither. A time at which
the crawl still has a live job is skipped: there is one at a time. So are times that passed while nobody looked.
"""

import msgspec

from outrider.model.errors import JobConflict
from outrider.model.identifiers import new_uuid7
from outrider.model.job import Job, JobRequest
from outrider.model.schedule import Schedule, UnknownSchedule
from outrider.store.sql.control import jobs
from outrider.store.sql.control.jobs import Submission
from outrider.store.sql.control.rows import as_json, moment_of
from outrider.store.sql.script import Call, Row, Script
from outrider.store.sql.urls import crawls

ACTOR = "schedule"


def put(schedule_id: str, request: JobRequest, every_ms: int, now: int | None) -> Script[Schedule]:
    """Make a schedule that is due at once; raises `JobConflict` where its crawl has another."""
    moment = yield from crawls.clock(now)
    crawl = schedule_id if request.crawl is None else request.crawl
    # By an idempotency key the second submission would find the first.
    repeated = msgspec.structs.replace(request, crawl=crawl, idempotency_key=None)
    encoded = as_json(msgspec.to_builtins(repeated), "the request of a schedule")
    rows = yield Call("insert_schedule", (schedule_id, crawl, encoded, every_ms, moment))
    if not rows:
        rows = yield Call("schedule_of_crawl", (crawl,))
        if not rows or str(rows[0][0]) != schedule_id:
            raise JobConflict(f"crawl {crawl!r} has a schedule already: remove it first, outrider jobs unschedule")
    return _decoded(rows[0])


def listed() -> Script[list[Schedule]]:
    """List all schedules by crawl."""
    rows = yield Call("list_schedules")
    return [_decoded(row) for row in rows]


def remove(schedule_id: str) -> Script[None]:
    """Remove a schedule; the job that it submitted last goes on."""
    if not (yield Call("delete_schedule", (schedule_id,))):
        raise UnknownSchedule(schedule_id)


def submit_due(most: int, now: int | None) -> Script[list[Job]]:
    """Submit what is due, and tell which jobs came of it."""
    moment = yield from crawls.clock(now)
    submitted = []
    for row in (yield Call("due_schedules", (moment, most))):
        schedule = _decoded(row)
        late_ms = moment - row[4]
        next_at = moment + schedule.every_ms - late_ms % schedule.every_ms
        yield Call("lock_crawl_of_jobs", (schedule.crawl,))
        job = None
        if not (yield Call("live_job", (schedule.crawl,))):
            job = yield from jobs.submit(_submission(schedule.request), moment)
            submitted.append(job)
        yield Call("advance_schedule", (schedule.id, next_at, None if job is None else job.id))
    return submitted


def _submission(request: JobRequest) -> Submission:
    return Submission(
        job_id=new_uuid7(),
        request=request,
        payload=as_json(request.payload, "the payload of a job"),
        labels=as_json(request.labels, "the labels of a job"),
        actor=ACTOR,
        quota=None,
    )


def _decoded(row: Row) -> Schedule:
    schedule_id, crawl, request, every_ms, due_at, last_job_id, created_at = row
    return Schedule(
        id=str(schedule_id),
        crawl=crawl,
        request=msgspec.json.decode(request, type=JobRequest),
        every_ms=every_ms,
        due_at=moment_of(due_at),
        last_job_id=None if last_job_id is None else str(last_job_id),
        created_at=moment_of(created_at),
    )
