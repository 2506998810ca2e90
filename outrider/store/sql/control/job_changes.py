"""Changing what a live job is to do: its priority and limits, and forgetting what its crawl knows."""

import msgspec

from outrider.model.errors import JobConflict
from outrider.model.job import CRAWL_STATES, TERMINAL, Job
from outrider.model.order import OrderLimits
from outrider.model.task import NEVER, CrawlState
from outrider.store.sql.control import job_endings
from outrider.store.sql.control.jobs import Context, is_run_by, locked
from outrider.store.sql.control.rows import as_json, moment_of
from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import crawls, upkeep
from outrider.store.sql.urls.crawls import StoredCrawl

Place = tuple[str, bytes]
"""A task's key and hash."""


def amend(job_id: str, priority: int | None, limits: OrderLimits | None, now: int | None, slot: int) -> Script[Job]:
    """Change a live job, and its crawl with it where that is there already."""
    job = yield from locked(job_id)
    if job.status in TERMINAL:
        raise JobConflict(f"job {job_id} is {job.status}: it can no longer be changed")
    changes = {} if limits is None else msgspec.to_builtins(limits)
    stored = (yield from job_endings.crawl_alone(job)) if changes else None
    moment = yield from crawls.clock(now)
    after = msgspec.structs.replace(
        job,
        priority=job.priority if priority is None else priority,
        payload={**job.payload, **changes},
        updated_at=moment_of(moment),
    )
    if stored is not None:
        yield from _set_limits(stored, changes, moment, slot)
    payload = as_json(after.payload, "the payload of a job")
    yield Call("amend_job", (job_id, after.priority, payload, moment))
    yield Call("tell_of_jobs", (job_id,))
    return after


def _set_limits(stored: StoredCrawl, changes: dict[str, object], now: int, slot: int) -> Script[None]:
    """Change a crawl's limits, and make ready whatever they allow now."""
    limits = dict(changes)
    if isinstance(delay := limits.pop("delay", None), (int, float)):
        limits["delay_ms"] = round(delay * 1000)
    if "per_domain" in limits:
        limits["concurrency"] = limits.pop("per_domain")
    after = crawls.with_limits(stored.crawl, **limits)
    yield from crawls.set_limits(stored.crawl.name, after)
    yield from upkeep.promote_all(stored.crawl_id, after.max_depth, now, slot)


def begin_to_forget(job_id: str, epoch: int, context: Context) -> Script[bool]:
    """End all leases of a job's crawl and forget its scope; tell whether there is a crawl at all.

    The crawl is paused, so that nobody finds anew what is to be forgotten.
    """
    job = yield from _run_by(job_id, epoch)
    stored = yield from job_endings.crawl_alone(job)
    if stored is None:
        return False
    moment = yield from crawls.clock(context.now)
    yield from job_endings.end_all_leases(stored, moment, context.settings, context.slot)
    yield Call("delete_crawl_scope", (stored.crawl_id,))
    yield Call("set_crawl_state", (job.crawl, CrawlState.PAUSED.value))
    return True


def forget(job_id: str, epoch: int, after: Place, slot: int) -> Script[tuple[int, Place | None]]:
    """Forget one chunk of a crawl's tasks; tell how many, and where the next chunk starts."""
    job = yield from _run_by(job_id, epoch)
    return (yield from upkeep.purge(job.crawl, NEVER, None, after, slot))


def end_forgetting(job_id: str, epoch: int) -> Script[None]:
    """Have the crawl do again what its user asks for."""
    job = yield from _run_by(job_id, epoch)
    yield Call("set_crawl_state", (job.crawl, CRAWL_STATES[job.desired_state].value))


def _run_by(job_id: str, epoch: int) -> Script[Job]:
    job = yield from locked(job_id)
    if not is_run_by(job, epoch):
        raise JobConflict(f"job {job_id} is no longer run under epoch {epoch}: nothing more is forgotten for it")
    return job
