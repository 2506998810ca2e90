"""Explaining: why a URL was or was not fetched, from what is known of it at one moment."""

from enum import StrEnum

import msgspec

from outrider.model.gate import Gate
from outrider.model.machines import TaskState
from outrider.model.task import Counts, Crawl, CrawlState, Task
from outrider.policy.politeness import needs_robots, waits_for_robots_until


class Cause(StrEnum):
    """Why a URL stands where it does; the words are stable, for programs."""

    REFUSED = "refused"
    """It is not a URL that can be crawled."""
    OUT_OF_SCOPE = "out_of_scope"
    TRAP = "trap"
    UNKNOWN = "unknown"
    """It could be fetched, but the crawl has not met it."""
    TOO_DEEP = "too_deep"
    LEFT_OVER = "left_over"
    """It was past a limit that has been raised since; the next run takes it."""
    CANCELLED = "cancelled"
    PAUSED = "paused"
    PAGE_LIMIT = "page_limit"
    DOMAIN_LIMIT = "domain_limit"
    BLOCKED = "blocked"
    BACK_OFF = "back_off"
    RETRY = "retry"
    """It failed or was put off, and is to be tried again."""
    NOT_DUE = "not_due"
    DELAY = "delay"
    ROBOTS_FIRST = "robots_first"
    """Its site's robots.txt has to be read before anything else."""
    QUEUED = "queued"
    """Nothing stands in its way but what comes before it."""
    LEASED = "leased"
    DONE = "done"
    ROBOTS = "robots"
    ROBOTS_UNREACHABLE = "robots_unreachable"
    FAILED = "failed"


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The cause, what more there is to it, and when it ends."""

    cause: Cause
    detail: str | None = None
    until: int | None = None
    """Milliseconds since 1970, where a clock is what it waits for."""


def explain_unknown(*, outside: str | None, trap: str | None) -> Explanation:
    """Explain a URL that the crawl does not have."""
    if outside is not None:
        return Explanation(cause=Cause.OUT_OF_SCOPE, detail=outside)
    if trap is not None:
        return Explanation(cause=Cause.TRAP, detail=trap)
    return Explanation(cause=Cause.UNKNOWN)


def explain_task(
    task: Task, crawl: Crawl, *, gate: Gate | None, pages: Counts, domain_is_full: bool, now: int
) -> Explanation:
    """Explain a URL that the crawl has; `pages` are those of the whole crawl."""
    match task.state:
        case TaskState.COMPLETED:
            return Explanation(cause=Cause.DONE)
        case TaskState.ASSIGNED:
            return Explanation(cause=Cause.LEASED)
        case TaskState.FAILED:
            return _explain_failed(task)
        case TaskState.DISCOVERED:
            most = crawl.limits.max_depth
            return Explanation(cause=Cause.LEFT_OVER if most is None or task.depth <= most else Cause.TOO_DEEP)
        case TaskState.PENDING:
            stopped = _explain_stopped(crawl, pages, domain_is_full=domain_is_full)
            return stopped or _explain_waiting(task, crawl, gate, now)


def _explain_failed(task: Task) -> Explanation:
    reason = task.reason or ""
    if reason.startswith("robots:"):
        return Explanation(cause=Cause.ROBOTS, detail=reason)
    return Explanation(cause=Cause.FAILED, detail=task.reason)


def _explain_stopped(crawl: Crawl, pages: Counts, *, domain_is_full: bool) -> Explanation | None:
    """Find what no clock will end."""
    if crawl.state is CrawlState.CANCELLED:
        return Explanation(cause=Cause.CANCELLED)
    if crawl.state is CrawlState.PAUSED:
        return Explanation(cause=Cause.PAUSED)
    most = crawl.limits.max_pages
    if most is not None and pages.completed + pages.assigned >= most:
        return Explanation(cause=Cause.PAGE_LIMIT)
    return Explanation(cause=Cause.DOMAIN_LIMIT) if domain_is_full else None


def _explain_waiting(task: Task, crawl: Crawl, gate: Gate | None, now: int) -> Explanation:
    """Name the clock that runs longest; of two that end together, the one that is more to blame."""
    gate = gate or Gate(domain="")
    clocks = [
        (gate.blocked_until, Cause.BLOCKED, None),
        (gate.backoff_until, Cause.BACK_OFF, task.reason),
        (waits_for_robots_until(gate, crawl.limits), Cause.ROBOTS_UNREACHABLE, None),
        (task.due_at, Cause.RETRY if task.attempt_count else Cause.NOT_DUE, task.reason),
        (gate.next_fetch_at, Cause.DELAY, None),
    ]
    until, cause, detail = max(clocks, key=lambda clock: clock[0])
    if until > now:
        return Explanation(cause=cause, detail=detail, until=until)
    if needs_robots(gate, crawl.limits, now):
        return Explanation(cause=Cause.ROBOTS_FIRST)
    return Explanation(cause=Cause.QUEUED)
