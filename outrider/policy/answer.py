"""Answers: what a server's answer, or its silence, makes of a task.

Trouble of one page is charged to the page. Trouble that a domain has time after time is the domain's: its
tasks are put off uncharged, and the whole domain is left alone for a while.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from outrider.model.lease import Outcome

DOWN_AFTER: Final = 5
"""A domain that has failed so often in a row is taken to be down."""
PATIENT_TRIES: Final = 6
"""So often a task is tried before its failures are charged to it even where its domain seems to be down: what is left
of a crawl at its end may be nothing but pages that never work."""
MOST_RETRY_AFTER_MS: Final = 7 * 24 * 3_600_000
WAIT_MS: Final = 5_000
MOST_WAIT_MS: Final = 600_000

_PUT_OFF = frozenset({408, 425})
_BACK_OFF = frozenset({429, 503})


class Judgement(NamedTuple):
    """What a report should say."""

    outcome: Outcome
    reason: str | None = None
    backs_off: bool = False
    retry_after_ms: int | None = None


def judge_status(status: int, *, retry_after_ms: int | None, failures_in_row: int, attempt: int) -> Judgement:
    """Judge an answer. `failures_in_row` are those of the domain, this one included."""
    if status in _BACK_OFF:
        return Judgement(Outcome.DEFERRED, f"http {status}", backs_off=True, retry_after_ms=retry_after_ms)
    if status in _PUT_OFF:
        wait_ms = min(WAIT_MS << min(attempt - 1, 30), MOST_WAIT_MS)
        return Judgement(Outcome.DEFERRED, f"http {status}", retry_after_ms=max(wait_ms, retry_after_ms or 0))
    if status >= 500:
        return judge_trouble(
            f"http {status}", failures_in_row=failures_in_row, attempt=attempt, retry_after_ms=retry_after_ms
        )
    return Judgement(Outcome.DONE)


def judge_robots_status(status: int, *, retry_after_ms: int | None) -> Judgement:
    """Judge an answer to robots.txt: a server that is out of order is waited for, since it may forbid everything.

    What is not there (4xx) forbids nothing.
    """
    if status >= 500 or status == 429:
        return Judgement(Outcome.DEFERRED, f"http {status}", backs_off=True, retry_after_ms=retry_after_ms)
    return Judgement(Outcome.DONE)


def judge_trouble(reason: str, *, failures_in_row: int, attempt: int, retry_after_ms: int | None = None) -> Judgement:
    """Judge a failure that may be the page's or the domain's."""
    if failures_in_row >= DOWN_AFTER and attempt <= PATIENT_TRIES:
        return Judgement(Outcome.DEFERRED, reason, backs_off=True, retry_after_ms=retry_after_ms)
    return Judgement(Outcome.FAILED, reason, retry_after_ms=retry_after_ms)


def parse_retry_after(written: str | None, *, now_ms: int) -> int | None:
    """Read a `Retry-After` header, seconds or a date; None where it says nothing readable.

    >>> parse_retry_after("120", now_ms=0), parse_retry_after("Thu, 01 Jan 1970 00:00:30 GMT", now_ms=10_000)
    (120000, 20000)
    """
    if written is None:
        return None
    text = written.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:12]) * 1000, MOST_RETRY_AFTER_MS)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    wait_ms = int((moment - epoch).total_seconds() * 1000) - now_ms
    return min(max(wait_ms, 0), MOST_RETRY_AFTER_MS)
