"""What ends with a job or with one of its epochs: leases, the run, and the news of it.

All of it happens in the transaction that ends the job, with the crawl locked against everybody: what others
were adding or reporting is then either there to be seen, or comes too late to change anything.
"""

from typing import Final

import msgspec

from outrider.model.errors import JobUnfinished
from outrider.model.identifiers import new_uuid7
from outrider.model.job import TERMINAL, WEBHOOK_TOPIC, CrawlProgress, Job, OutboxMessage, RunStatus, runner_name
from outrider.model.machines import JobStatus
from outrider.model.settings import Settings
from outrider.model.task import WaitingQueue
from outrider.policy import retry
from outrider.policy.completion import completion_of
from outrider.store.sql.control import outbox
from outrider.store.sql.control.rows import moment_of, record
from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import browse, crawls
from outrider.store.sql.urls.crawls import StoredCrawl
from outrider.store.sql.urls.report import end_without_report, held_lease

MOST_WAITING: Final = 1_000
"""Of more queues than this that wait, the gates are not asked: the earliest time that a queue knows has to do."""

RUN_STATUSES: Final = {
    JobStatus.COMPLETED: RunStatus.COMPLETED,
    JobStatus.FAILED: RunStatus.FAILED,
    JobStatus.CANCELLED: RunStatus.STOPPED,
}


def crawl_alone(job: Job) -> Script[StoredCrawl | None]:
    """Keep everybody else from the crawl of a job; None where the job has not come so far as to have one."""
    rows = yield Call("crawl_alone", (job.crawl,))
    return crawls.decoded(rows[0]) if rows else None


def check_complete(job: Job, stored: StoredCrawl | None, max_wait_ms: int, now: int) -> Script[str | None]:
    """Tell why a crawl is complete; raises `JobUnfinished` where it is not."""
    if stored is None:
        return None
    outlook = yield from browse.outlook_of(stored)
    most, allowed = stored.crawl.limits.max_pages, None
    if most is not None:
        allowed = most - int((yield Call("pages_of_crawl", (stored.crawl_id,)))[0][0])
    if outlook.next_ready_at is not None and outlook.next_ready_at > now:
        opens_at = yield from _opening_at(stored, outlook.next_ready_at)
        outlook = msgspec.structs.replace(outlook, next_ready_at=opens_at)
    found = completion_of(outlook, pages_allowed=allowed, now=now, max_wait_ms=max_wait_ms)
    if found is not None:
        return found.value
    if outlook.counts.assigned:
        raise JobUnfinished(f"job {job.id} is not complete: {outlook.counts.assigned} of its URLs are in flight")
    ready_at = moment_of(max(outlook.next_ready_at or now, now)).isoformat(timespec="milliseconds")
    raise JobUnfinished(
        f"job {job.id} is not complete: some of its {outlook.counts.pending} URLs that wait may be ready at {ready_at}"
    )


def _opening_at(stored: StoredCrawl, earliest: int) -> Script[int]:
    """Tell when something can be ready where all queues wait: their gates may know of a later time than they do."""
    rows = yield Call("waiting_queues", (stored.crawl_id, earliest - 1, MOST_WAITING))
    waiting = [WaitingQueue(**dict(zip(WaitingQueue.__struct_fields__, row, strict=True))) for row in rows]
    if not waiting or len(waiting) == MOST_WAITING:
        return earliest
    return min(queue.waits_until for queue in waiting)


def end_leases_of_runner(job: Job, stored: StoredCrawl | None, now: int, settings: Settings, slot: int) -> Script[None]:
    """End what the runner of this epoch holds, so that it can change nothing more."""
    if stored is None:
        return
    rows = yield Call("lock_leases_of_worker", (runner_name(job.id, job.epoch), [stored.crawl_id]))
    held = [held_lease(row) for row in rows]
    decisions = [retry.after_expiry(each.tally, now, settings) for each in held]
    yield from end_without_report(held, decisions, now, settings, slot)


def end_all_leases(stored: StoredCrawl, now: int, settings: Settings, slot: int) -> Script[None]:
    """End whatever is in flight of a crawl, uncharged: nobody is to go on with it."""
    rows = yield Call("lock_leases_of_crawl", (stored.crawl_id,))
    held = [held_lease(row) for row in rows]
    decisions = [retry.put_off(each.tally, now, 0, settings, "released") for each in held]
    yield from end_without_report(held, decisions, now, settings, slot)


def close(job: Job, now: int) -> Script[None]:
    """End the run of a job that has ended, and have its webhook told."""
    if job.status not in TERMINAL:
        return
    if job.run_id is not None:
        reason = job.reason or job.error_message or job.status.value
        yield Call("close_run", (job.run_id, RUN_STATUSES[job.status].value, reason, now))
    if job.webhook_url is not None:
        rows = yield Call("crawl_state", (job.crawl,))
        counts = record(CrawlProgress, rows[0]) if rows else None
        message = OutboxMessage(topic=WEBHOOK_TOPIC, ordering_key=job.id, payload=_news(job, counts))
        yield from outbox.append({new_uuid7(): message}, now)


def _news(job: Job, counts: CrawlProgress | None) -> dict[str, object]:
    """Say how a job ended, without its webhook's secret."""
    error = None
    if job.error_kind is not None or job.error_message is not None:
        error = {"kind": job.error_kind, "message": job.error_message}
    return {
        "job": job.id,
        "crawl": job.crawl,
        "status": job.status,
        "reason": job.reason,
        "error": error,
        "counts": None
        if counts is None
        else {
            "discovered": counts.total_discovered,
            "pending": counts.total_pending,
            "completed": counts.total_completed,
            "failed": counts.total_failed,
        },
        "created_at": job.created_at,
        "started_at": job.started_at,
        "completed_at": job.completed_at,
    }
