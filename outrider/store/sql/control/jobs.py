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

import msgspec

from outrider.model.errors import JobConflict
from outrider.model.job import (
    CRAWL_STATES,
    TERMINAL,
    TIMED_OUT,
    WATCHDOG,
    Job,
    JobEnding,
    JobFilter,
    JobRequest,
    JobTransition,
    UnknownJob,
    status_after_run,
    status_after_silence,
    status_after_wish,
)
from outrider.model.machines import JOB, DesiredState, JobStatus
from outrider.store.sql.control.rows import millis_of, moment_of, record
from outrider.store.sql.script import Call, Row, Script
from outrider.store.sql.urls import crawls

ATTEMPTS = 10
"""How often a submission is tried whose obstacle vanishes before it can be named."""


def _job(row: Row) -> Job:
    return record(Job, row, json=("payload", "progress"))


def find(job_id: str) -> Script[Job | None]:
    """Read one job."""
    rows = yield Call("job", (job_id,))
    return _job(rows[0]) if rows else None


def listed(which: JobFilter, before: str | None, limit: int) -> Script[list[Job]]:
    """List jobs, the newest first, by their ids: a job never moves in this order."""
    status = None if which.status is None else which.status.value
    rows = yield Call("list_jobs", (before, status, which.crawl, which.user_id, limit))
    return [_job(row) for row in rows]


def history(job_id: str) -> Script[list[JobTransition]]:
    """Read what became of a job, from its submission on."""
    rows = yield Call("job_history", (job_id,))
    return [record(JobTransition, row) for row in rows]


def submit(job_id: str, request: JobRequest, payload: str, actor: str, now: int | None) -> Script[Job]:
    """Queue a job; a request that was made before, by its idempotency key, gives that one's job."""
    crawl = job_id if request.crawl is None else request.crawl
    yield Call("lock_crawl_of_jobs", (crawl,))
    moment = yield from crawls.clock(now)
    for _ in range(ATTEMPTS):
        made = yield Call(
            "insert_job",
            (
                job_id, crawl, payload, request.priority, moment, moment + request.delay_ms,
                request.max_retries, request.source_id, request.user_id, request.idempotency_key,
            ),
        )  # fmt: skip
        if made:
            job = _job(made[0])
            yield from _write_history(job_id, None, job, actor, None, moment)
            yield Call("set_crawl_state", (crawl, CRAWL_STATES[DesiredState.RUN].value))
            return job
        earlier = yield Call("earlier_job", (job_id, request.user_id, request.idempotency_key))
        if earlier:
            return _job(earlier[0])
        live = yield Call("live_job", (crawl,))
        if live:
            raise _crawl_taken(crawl, _job(live[0]))
    raise JobConflict(f"crawl {crawl!r} has a job that comes and goes; submit again")


def _crawl_taken(crawl: str, live: Job) -> JobConflict:
    return JobConflict(
        f"crawl {crawl!r} has a live job, {live.id} ({live.status}): wait for it, cancel it or name another crawl"
    )


def claim(worker: str, now: int | None, earlier: list[Job]) -> Script[Job | None]:
    """Take the first job that is due: by priority, then by age."""
    if earlier:
        mine = yield from find(earlier[0].id)
        if mine is not None and _is_run_by(mine, earlier[0].epoch) and mine.worker_id == worker:
            return mine
    moment = yield from crawls.clock(now)
    JOB.check(JobStatus.PENDING, JobStatus.PROCESSING)
    rows = yield Call("claim_job", (worker, moment))
    if not rows:
        return None
    job = _job(rows[0])
    yield from _write_history(job.id, JobStatus.PENDING, job, worker, None, moment)
    earlier[:] = [job]
    return job


def beat(
    job_id: str, epoch: int, percentage: int | None, progress: str | None, now: int | None
) -> Script[DesiredState | None]:
    """Say that a job's runner lives, and hear what the user wants; None where it is the runner's no more."""
    rows = yield Call("beat_job", (job_id, epoch, percentage, progress, now))
    return DesiredState(rows[0][0]) if rows else None


def finish(job_id: str, epoch: int, ending: JobEnding, now: int | None) -> Script[Job]:
    """End an epoch. Only its first end counts: said again, it changes nothing and is answered."""
    job = yield from _locked(job_id)
    moment = yield from crawls.clock(now)
    if not _is_run_by(job, epoch):
        ended = yield Call("endings_of_job", (job_id, epoch, WATCHDOG))
        if ended:
            return job
        raise JobConflict(
            f"job {job_id} is no longer run under epoch {epoch}: it is {job.status} with epoch {job.epoch}"
        )
    status = status_after_run(job, ending.outcome)
    charged = ending.outcome is JobStatus.PENDING
    after = _stopped(job, status, moment + ending.retry_in_ms, moment, charged=charged)
    after = msgspec.structs.replace(after, error_kind=ending.error_kind, error_message=ending.error_message)
    if status is JobStatus.COMPLETED:
        after = msgspec.structs.replace(after, progress_percentage=100)
    actor = job.worker_id or "unknown"
    yield from _move(job, after, actor, ending.error_message, moment)
    return after


def _is_run_by(job: Job, epoch: int) -> bool:
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
    )


def set_desired_state(job_id: str, desired: DesiredState, actor: str, now: int | None) -> Script[Job]:
    """Write down what the user asks for; where nobody runs the job, it is done at once."""
    job = yield from _locked(job_id)
    moment = yield from crawls.clock(now)
    if job.status in TERMINAL:
        raise JobConflict(f"job {job_id} is {job.status}: it can no longer be asked to {desired}")
    if job.desired_state is DesiredState.CANCEL and desired is not DesiredState.CANCEL:
        raise JobConflict(f"job {job_id} is being cancelled: it can no longer be asked to {desired}")
    status = status_after_wish(job, desired)
    after = msgspec.structs.replace(job, status=status, desired_state=desired)
    if status is job.status:
        yield Call("set_desired_state", (job_id, desired.value))
    else:
        after = msgspec.structs.replace(
            after,
            available_at=moment_of(moment) if status is JobStatus.PENDING else job.available_at,
            completed_at=moment_of(moment) if status in TERMINAL else None,
        )
        yield from _move(job, after, actor, None, moment)
    yield Call("set_crawl_state", (job.crawl, CRAWL_STATES[desired].value))
    return after


def retry(job_id: str, actor: str, now: int | None, earlier: list[int]) -> Script[Job]:
    """Queue a failed job again with all its retries; the crawl goes on where it was."""
    seen = yield from _existing(job_id)
    yield Call("lock_crawl_of_jobs", (seen.crawl,))
    job = yield from _locked(job_id)
    moment = yield from crawls.clock(now)
    if earlier and job.status is not JobStatus.FAILED:
        return job
    if job.status is not JobStatus.FAILED:
        raise JobConflict(f"job {job_id} is {job.status}: only a failed one can be retried")
    live = yield Call("live_job", (job.crawl,))
    if live:
        raise _crawl_taken(job.crawl, _job(live[0]))
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
    )
    yield from _move(job, after, actor, None, moment)
    yield Call("set_crawl_state", (job.crawl, CRAWL_STATES[DesiredState.RUN].value))
    earlier[:] = [job.epoch]
    return after


def recover(stale_after_ms: int, most: int, now: int | None) -> Script[list[Job]]:
    """Take jobs from runners that fell silent; each by whoever locks it first, and only if it still is."""
    moment = yield from crawls.clock(now)
    rows = yield Call("lock_stale_jobs", (moment - stale_after_ms, most))
    recovered: list[Job] = []
    for job in map(_job, rows):
        status = status_after_silence(job)
        after = _stopped(job, status, moment, moment, charged=True)
        if status is JobStatus.FAILED:
            after = msgspec.structs.replace(after, error_kind="timed_out", error_message=TIMED_OUT)
        yield from _move(job, after, WATCHDOG, _silence(job, after), moment)
        recovered.append(after)
    return recovered


def _silence(job: Job, after: Job) -> str:
    note = f"{job.worker_id} was silent since {_shown(job.last_heartbeat)}"
    if after.status is JobStatus.PENDING:
        return f"{note}; retry {after.retry_count}/{after.max_retries}"
    return f"{note}; retries used up" if after.status is JobStatus.FAILED else f"{note}; {after.status} as asked for"


def _shown(moment: datetime | None) -> str:
    return "its start" if moment is None else moment.isoformat(timespec="milliseconds")


def _existing(job_id: str) -> Script[Job]:
    job = yield from find(job_id)
    if job is None:
        raise UnknownJob(job_id)
    return job


def _locked(job_id: str) -> Script[Job]:
    rows = yield Call("lock_job", (job_id,))
    if not rows:
        raise UnknownJob(job_id)
    return _job(rows[0])


def _move(before: Job, after: Job, actor: str, note: str | None, now: int) -> Script[None]:
    """Change the status of a job that is locked, and write it down."""
    JOB.check(before.status, after.status)
    moved = yield Call(
        "move_job",
        (
            before.id, before.status.value, before.epoch, after.status.value, after.desired_state.value,
            after.worker_id, millis_of(after.available_at), millis_of(after.completed_at), after.retry_count,
            after.error_kind, after.error_message, after.progress_percentage,
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
