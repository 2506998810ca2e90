"""Runs, and how far their crawls have come."""

from outrider.model.errors import InvalidTransition, JobConflict, UnknownCrawl
from outrider.model.job import CrawlProgress, Run, RunKind, RunStatus, UnknownJob, UnknownRun
from outrider.store.sql.control import job_listing
from outrider.store.sql.control.rows import record
from outrider.store.sql.script import Call, Row, Script
from outrider.store.sql.urls import crawls


def _run(row: Row) -> Run:
    return record(Run, row, json=("settings",))


def open_run(
    run_id: str,
    crawl: str,
    kind: RunKind,
    settings: str,
    job: tuple[str, int] | None,
    now: int | None,
) -> Script[Run]:
    """Begin a run, or go on with the open one of a job, and give queues at a limit their new budget."""
    job_id = None
    if job is not None:
        job_id, epoch = job
        rows = yield Call("lock_processing_job", (job_id, epoch))
        if not rows:
            if (yield from job_listing.find(job_id)) is None:
                raise UnknownJob(job_id)
            raise JobConflict(f"job {job_id} is no longer run under epoch {epoch}: it gets no run")
    stored = yield from crawls.for_write(crawl)
    moment = yield from crawls.clock(now)
    if job_id is not None:
        opened = yield Call("open_run_of_job", (job_id,))
        if opened:
            return _run(opened[0])
    yield Call("wake_limited", (stored.crawl_id,))
    made = yield Call("insert_run", (run_id, crawl, job_id, kind.value, settings, moment))
    if job_id is not None:
        yield Call("set_run_of_job", (job_id, run_id))
    if made:
        return _run(made[0])
    return (yield from _existing(run_id))


def close(run_id: str, status: RunStatus, reason: str | None, now: int | None) -> Script[Run]:
    """End a run that is open; to end it again in the same way changes nothing."""
    moment = yield from crawls.clock(now)
    closed = yield Call("close_run", (run_id, status.value, reason, moment))
    if closed:
        return _run(closed[0])
    run = yield from _existing(run_id)
    if run.status is not status:
        raise InvalidTransition("run", run.status, status)
    return run


def _existing(run_id: str) -> Script[Run]:
    found = yield from find(run_id)
    if found is None:
        raise UnknownRun(run_id)
    return found


def find(run_id: str) -> Script[Run | None]:
    """Read one run."""
    rows = yield Call("run", (run_id,))
    return _run(rows[0]) if rows else None


def listed(crawl: str | None, before: str | None, limit: int) -> Script[list[Run]]:
    """List runs, the newest first, by their ids."""
    rows = yield Call("list_runs", (crawl, before, limit))
    return [_run(row) for row in rows]


def crawl_state(crawl: str) -> Script[CrawlProgress]:
    """Read what a crawl has done and has to do, exactly."""
    rows = yield Call("crawl_state", (crawl,))
    if not rows:
        raise UnknownCrawl(crawl)
    return record(CrawlProgress, rows[0])
