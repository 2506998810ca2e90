"""Jobs: submitting, claiming, beating, ending and recovering them, each change with its history.

submit                claim           finish
|                     |               |
v       (epoch + 1)   v               v
pending ----------> processing ----> completed, failed, cancelled, paused, pending
^                    |               ^
|                    | silence       | what the user asked for, where that is
+------ retries left-+---------------+ not to go on
"""

from datetime import datetime
from typing import NamedTuple

import msgspec

from outrider.model.errors import JobConflict
from outrider.model.job import (
    CRAWL_STATES,
    TERMINAL,
    TIMED_OUT,
    WATCHDOG,
    Job,
    JobEnding,
    JobRequest,
    UnknownJob,
    status_after_run,
    status_after_silence,
    status_after_wish,
)
from outrider.model.machines import JOB, DesiredState, JobStatus
from outrider.model.quota import JobQuota
from outrider.model.settings import Settings
from outrider.store.sql.control import job_endings, quotas
from outrider.store.sql.control.job_listing import existing, find, job_of
from outrider.store.sql.control.rows import as_json, millis_of, moment_of
from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import crawls

ATTEMPTS = 10
"""How often a submission is tried whose obstacle vanishes before it can be named."""


class Submission(NamedTuple):
    """A request that was found readable."""

    job_id: str
    """Made by the caller: a submission that is run again finds itself."""
    request: JobRequest
    payload: str
    labels: str
    actor: str
    quota: JobQuota | None


class Retry(NamedTuple):
    """How somebody wants a failed job to be queued again."""

    actor: str
    fresh: bool
    quota: JobQuota | None


class Context(NamedTuple):
    """What ending leases takes besides the leases."""

    settings: Settings
    slot: int
    now: int | None


def submit(submission: Submission, now: int | None) -> Script[Job]:
    """Queue a job; a request that was made before, by its idempotency key, gives that one's job."""
    job_id, request, payload, labels, actor, quota = submission
    crawl = job_id if request.crawl is None else request.crawl
    yield from quotas.lock(request.key_id, quota)
    yield Call("lock_crawl_of_jobs", (crawl,))
    moment = yield from crawls.clock(now)
    for _ in range(ATTEMPTS):
        earlier = yield Call("earlier_job", (job_id, request.user_id, request.idempotency_key))
        if earlier:
            return job_of(earlier[0])
        yield from quotas.check_active(request.key_id, quota)
        yield from quotas.check_daily(request.key_id, quota, moment)
        made = yield Call(
            "insert_job",
            (
                job_id, crawl, payload, request.priority, moment, moment + request.delay_ms,
                request.max_retries, request.source_id, request.user_id, request.idempotency_key, labels,
                request.key_id, request.webhook_url, request.webhook_secret,
            ),
        )  # fmt: skip
        if made:
            job = job_of(made[0])
            yield from _write_history(job_id, None, job, actor, None, moment)
            yield Call("set_crawl_state", (crawl, CRAWL_STATES[DesiredState.RUN].value))
            yield Call("tell_of_jobs", (job_id,))
            return job
        live = yield Call("live_job", (crawl,))
        if live:
            raise _crawl_taken(crawl, job_of(live[0]))
    raise JobConflict(f"crawl {crawl!r} has a job that comes and goes; submit again")


def _crawl_taken(crawl: str, live: Job) -> JobConflict:
    return JobConflict(
        f"crawl {crawl!r} has a live job, {live.id} ({live.status}): wait for it, cancel it or name another crawl"
    )


def claim(worker: str, now: int | None, earlier: list[Job]) -> Script[Job | None]:
    """Take the first job that is due: by priority, then by age."""
    if earlier:
        mine = yield from find(earlier[0].id)
        if mine is not None and is_run_by(mine, earlier[0].epoch) and mine.worker_id == worker:
            return mine
    moment = yield from crawls.clock(now)
    JOB.check(JobStatus.PENDING, JobStatus.PROCESSING)
    rows = yield Call("claim_job", (worker, moment))
    if not rows:
        return None
    job = job_of(rows[0])
    yield from _write_history(job.id, JobStatus.PENDING, job, worker, None, moment)
    earlier[:] = [job]
    return job


def beat(
    job_id: str, epoch: int, percentage: int | None, progress: str | None, now: int | None
) -> Script[DesiredState | None]:
    """Say that a job's runner lives, and hear what the user wants; None where it is the runner's no more."""
    rows = yield Call("beat_job", (job_id, epoch, percentage, progress, now))
    return DesiredState(rows[0][0]) if rows else None


def finish(job_id: str, epoch: int, ending: JobEnding, context: Context) -> Script[Job]:
    """End an epoch. Only its first end counts: said again, it changes nothing and is answered."""
    job = yield from locked(job_id)
    if not is_run_by(job, epoch):
        ended = yield Call("endings_of_job", (job_id, epoch, WATCHDOG))
        if ended:
            return job
        raise JobConflict(
            f"job {job_id} is no longer run under epoch {epoch}: it is {job.status} with epoch {job.epoch}"
        )
    stored = yield from job_endings.crawl_alone(job)
    moment = yield from crawls.clock(context.now)
    status = status_after_run(job, ending.outcome)
    charged = ending.outcome is JobStatus.PENDING
    after = _stopped(job, status, moment + ending.retry_in_ms, moment, charged=charged)
    after = msgspec.structs.replace(after, error_kind=ending.error_kind, error_message=ending.error_message)
    if status is JobStatus.COMPLETED:
        found = yield from job_endings.check_complete(job, stored, ending.max_wait_ms, moment)
        after = msgspec.structs.replace(after, progress_percentage=100, reason=found or ending.reason)
    yield from job_endings.end_leases_of_runner(job, stored, moment, context.settings, context.slot)
    yield from _move(job, after, job.worker_id or "unknown", ending.error_message, moment)
    yield from job_endings.close(after, moment)
    return after


def is_run_by(job: Job, epoch: int) -> bool:
    """Tell whether an epoch is the live one of a job."""
    return job.status is JobStatus.PROCESSING and job.epoch == epoch


def _stopped(job: Job, status: JobStatus, available_at: int, now: int, *, charged: bool) -> Job:
    """Say what a job is that stops being processed with this status."""
    going_on = status is JobStatus.PENDING
    terminal = status in TERMINAL
    return msgspec.structs.replace(
        job,
        status=status,
        worker_id=job.worker_id if terminal else None,
        retry_count=job.retry_count + 1 if going_on and charged else job.retry_count,
        available_at=moment_of(available_at) if going_on else job.available_at,
        completed_at=moment_of(now) if terminal else None,
        updated_at=moment_of(now),
    )


def set_desired_state(job_id: str, desired: DesiredState, actor: str, context: Context) -> Script[Job]:
    """Write down what the user asks for; where nobody runs the job, it is done at once."""
    job = yield from locked(job_id)
    if job.status in TERMINAL:
        raise JobConflict(f"job {job_id} is {job.status}: it can no longer be asked to {desired}")
    if job.desired_state is DesiredState.CANCEL and desired is not DesiredState.CANCEL:
        raise JobConflict(f"job {job_id} is being cancelled: it can no longer be asked to {desired}")
    stored = (yield from job_endings.crawl_alone(job)) if desired is DesiredState.CANCEL else None
    moment = yield from crawls.clock(context.now)
    yield Call("set_crawl_state", (job.crawl, CRAWL_STATES[desired].value))
    if stored is not None:
        yield from job_endings.end_all_leases(stored, moment, context.settings, context.slot)
    status = status_after_wish(job, desired)
    if status is job.status and desired is job.desired_state:
        return job
    after = msgspec.structs.replace(job, status=status, desired_state=desired, updated_at=moment_of(moment))
    if status is job.status:
        yield Call("set_desired_state", (job_id, desired.value, moment))
    else:
        after = msgspec.structs.replace(
            after,
            available_at=moment_of(moment) if status is JobStatus.PENDING else job.available_at,
            completed_at=moment_of(moment) if status in TERMINAL else None,
        )
        yield from _move(job, after, actor, None, moment)
        yield from job_endings.close(after, moment)
    yield Call("tell_of_jobs", (job_id,))
    return after


def retry(job_id: str, wish: Retry, now: int | None, earlier: list[int]) -> Script[Job]:
    """Queue a failed job again with all its retries; the crawl goes on where it was, unless it is to be fresh.

    A fresh job has no run until what its crawl knows is forgotten: that is how whoever claims it knows.
    """
    seen = yield from existing(job_id)
    yield from quotas.lock(seen.key_id, wish.quota)
    yield Call("lock_crawl_of_jobs", (seen.crawl,))
    job = yield from locked(job_id)
    moment = yield from crawls.clock(now)
    if earlier and job.status is not JobStatus.FAILED:
        return job
    if job.status is not JobStatus.FAILED:
        raise JobConflict(f"job {job_id} is {job.status}: only a failed one can be retried")
    live = yield Call("live_job", (job.crawl,))
    if live:
        raise _crawl_taken(job.crawl, job_of(live[0]))
    yield from quotas.check_active(job.key_id, wish.quota)
    after = msgspec.structs.replace(
        job,
        status=JobStatus.PENDING,
        desired_state=DesiredState.RUN,
        worker_id=None,
        available_at=moment_of(moment),
        completed_at=None,
        retry_count=0,
        error_kind=None,
        error_message=None,
        updated_at=moment_of(moment),
    )
    yield from _move(job, after, wish.actor, None, moment)
    if wish.fresh:
        after = msgspec.structs.replace(after, payload={**job.payload, "fresh": True}, run_id=None)
        payload = as_json(after.payload, "the payload of a job")
        yield Call("amend_job", (job_id, job.priority, payload, moment))
        yield Call("set_run_of_job", (job_id, None))
    yield Call("set_crawl_state", (job.crawl, CRAWL_STATES[DesiredState.RUN].value))
    yield Call("tell_of_jobs", (job_id,))
    earlier[:] = [job.epoch]
    return after


def recover_one(stale_after_ms: int, context: Context) -> Script[Job | None]:
    """Take one job from a runner that fell silent; each by whoever locks it first, and only if it still is."""
    moment = yield from crawls.clock(context.now)
    rows = yield Call("lock_stale_jobs", (moment - stale_after_ms, 1))
    if not rows:
        return None
    job = job_of(rows[0])
    stored = yield from job_endings.crawl_alone(job)
    status = status_after_silence(job)
    after = _stopped(job, status, moment, moment, charged=True)
    if status is JobStatus.FAILED:
        after = msgspec.structs.replace(after, error_kind="timed_out", error_message=TIMED_OUT)
    yield from job_endings.end_leases_of_runner(job, stored, moment, context.settings, context.slot)
    yield from _move(job, after, WATCHDOG, _silence(job, after), moment)
    yield from job_endings.close(after, moment)
    if status is JobStatus.PENDING:
        yield Call("tell_of_jobs", (job.id,))
    return after


def _silence(job: Job, after: Job) -> str:
    note = f"{job.worker_id} was silent since {_shown(job.last_heartbeat)}"
    if after.status is JobStatus.PENDING:
        return f"{note}; retry {after.retry_count}/{after.max_retries}"
    return f"{note}; retries used up" if after.status is JobStatus.FAILED else f"{note}; {after.status} as asked for"


def _shown(moment: datetime | None) -> str:
    return "its start" if moment is None else moment.isoformat(timespec="milliseconds")


def locked(job_id: str) -> Script[Job]:
    """Read a job and keep others from changing it."""
    rows = yield Call("lock_job", (job_id,))
    if not rows:
        raise UnknownJob(job_id)
    return job_of(rows[0])


def _move(before: Job, after: Job, actor: str, note: str | None, now: int) -> Script[None]:
    """Change the status of a job that is locked, and write it down."""
    JOB.check(before.status, after.status)
    moved = yield Call(
        "move_job",
        (
            before.id, before.status.value, before.epoch, after.status.value, after.desired_state.value,
            after.worker_id, millis_of(after.available_at), millis_of(after.completed_at), after.retry_count,
            after.error_kind, after.error_message, after.progress_percentage, after.reason, now,
        ),
    )  # fmt: skip
    if not moved:
        raise AssertionError("a locked job has changed")
    yield from _write_history(before.id, before.status, after, actor, note, now)


def _write_history(
    job_id: str, source: JobStatus | None, after: Job, actor: str, note: str | None, now: int
) -> Script[None]:
    came_from = None if source is None else source.value
    yield Call("insert_job_history", (job_id, came_from, after.status.value, after.epoch, actor, note, now))
