from typing import Any

import msgspec
import pytest

from outrider.model.gate import Gate
from outrider.model.machines import TaskState
from outrider.model.task import Counts, Crawl, CrawlLimits, CrawlRules, CrawlState, DiscoveryType, Kind, Task
from outrider.policy.explaining import Cause, Explanation, explain_task, explain_unknown

NOW = 1_000_000
GATE = Gate(domain="example.org", robots_version="1", robots_expires_at=NOW + 1)
CRAWL = Crawl(name="DEFAULT", state=CrawlState.RUNNING, rules=CrawlRules(), limits=CrawlLimits(), created_at=0)
TASK = Task(
    crawl="DEFAULT", key="example.org", url="https://example.org/", kind=Kind.PAGE, state=TaskState.PENDING, priority=0,
    depth=3, attempt_count=0, failures=0, deferrals=0, expiries=0, discovered_at=0, due_at=NOW,
    discovery_type=DiscoveryType.LINK, last_heartbeat=None, http_status=None, reason=None,
)  # fmt: skip


def explained(
    *, crawl: Crawl = CRAWL, gate: Gate | None = GATE, pages: Counts | None = None, full: bool = False, **task: Any
) -> Explanation:
    changed = msgspec.structs.replace(TASK, **task)
    return explain_task(changed, crawl, gate=gate, pages=pages or Counts(), domain_is_full=full, now=NOW)


def limited(**limits: Any) -> Crawl:
    return msgspec.structs.replace(CRAWL, limits=CrawlLimits(**limits))


def test_scope_comes_before_traps_and_both_before_mere_ignorance() -> None:
    assert explain_unknown(outside="out of scope", trap="trap_calendar").cause is Cause.OUT_OF_SCOPE
    assert explain_unknown(outside=None, trap="trap_calendar").cause is Cause.TRAP
    assert explain_unknown(outside=None, trap=None) == Explanation(cause=Cause.UNKNOWN)


@pytest.mark.parametrize(
    ("state", "reason", "cause"),
    [
        (TaskState.COMPLETED, None, Cause.DONE),
        (TaskState.ASSIGNED, None, Cause.LEASED),
        (TaskState.FAILED, "robots: line 3: Disallow: /", Cause.ROBOTS),
        (TaskState.FAILED, "http 500", Cause.FAILED),
        (TaskState.FAILED, None, Cause.FAILED),
    ],
)
def test_the_end_of_a_task_speaks_for_itself(state: TaskState, reason: str | None, cause: Cause) -> None:
    assert explained(state=state, reason=reason).cause is cause


def test_depth_is_told_from_a_limit_that_was_raised_since() -> None:
    assert explained(state=TaskState.DISCOVERED, crawl=limited(max_depth=2)).cause is Cause.TOO_DEEP
    assert explained(state=TaskState.DISCOVERED, crawl=limited(max_depth=3)).cause is Cause.LEFT_OVER
    assert explained(state=TaskState.DISCOVERED).cause is Cause.LEFT_OVER


def test_what_no_clock_ends_comes_first() -> None:
    waiting = msgspec.structs.replace(GATE, blocked_until=NOW + 9)
    paused = msgspec.structs.replace(CRAWL, state=CrawlState.PAUSED)
    cancelled = msgspec.structs.replace(CRAWL, state=CrawlState.CANCELLED)
    assert explained(gate=waiting, crawl=paused).cause is Cause.PAUSED
    assert explained(gate=waiting, crawl=cancelled).cause is Cause.CANCELLED
    pages = Counts(completed=4, assigned=1)
    assert explained(gate=waiting, crawl=limited(max_pages=5), pages=pages).cause is Cause.PAGE_LIMIT
    assert explained(gate=waiting, full=True).cause is Cause.DOMAIN_LIMIT
    assert explained(gate=waiting, crawl=limited(max_pages=6), pages=pages).cause is Cause.BLOCKED


@pytest.mark.parametrize(
    ("clock", "cause"),
    [("next_fetch_at", Cause.DELAY), ("backoff_until", Cause.BACK_OFF), ("blocked_until", Cause.BLOCKED)],
)
def test_the_clock_that_runs_longest_is_the_answer(clock: str, cause: Cause) -> None:
    gate = msgspec.structs.replace(GATE, **{clock: NOW + 50})
    found = explained(gate=gate, due_at=NOW + 40)
    assert (found.cause, found.until) == (cause, NOW + 50)


def test_a_retry_is_told_from_what_was_never_due() -> None:
    retry = explained(due_at=NOW + 5, attempt_count=1, reason="http 500")
    assert retry == Explanation(cause=Cause.RETRY, detail="http 500", until=NOW + 5)
    assert explained(due_at=NOW + 5).cause is Cause.NOT_DUE


def test_robots_txt_is_waited_for_where_it_is_obeyed() -> None:
    assert explained(gate=None).cause is Cause.ROBOTS_FIRST
    assert explained(gate=msgspec.structs.replace(GATE, robots_expires_at=NOW)).cause is Cause.ROBOTS_FIRST
    assert explained(gate=None, crawl=limited(robots=False)).cause is Cause.QUEUED
    assert explained().cause is Cause.QUEUED
