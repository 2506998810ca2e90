"""Retry: what a report makes of its task."""

import msgspec

from outrider.model.lease import Outcome, Report, Verdict
from outrider.model.machines import TaskState
from outrider.model.settings import Settings


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What a task has been through so far."""

    failures: int = 0
    deferrals: int = 0
    expiries: int = 0


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a task."""

    state: TaskState
    due_at: int
    tally: Tally
    reason: str | None = None

    @property
    def verdict(self) -> Verdict:
        """The word for the worker."""
        match self.state:
            case TaskState.COMPLETED:
                return Verdict.COMPLETED
            case TaskState.FAILED:
                return Verdict.FAILED
            case _:
                return Verdict.RETRY_AT


def after_report(report: Report, tally: Tally, now: int, settings: Settings) -> Decision:
    """Decide by the outcome: done completes, failed is charged, deferred is not, refused ends it."""
    match report.outcome:
        case Outcome.DONE:
            return Decision(state=TaskState.COMPLETED, due_at=now, tally=tally)
        case Outcome.REFUSED:
            return Decision(state=TaskState.FAILED, due_at=now, tally=tally, reason=report.reason or Outcome.REFUSED)
        case Outcome.FAILED:
            return _charged(report, tally, now, settings)
        case Outcome.DEFERRED:
            wait = report.retry_after_ms or 0
            return put_off(tally, now, wait, settings, report.reason or Outcome.DEFERRED)


def _charged(report: Report, tally: Tally, now: int, settings: Settings) -> Decision:
    failures = tally.failures + 1
    charged = msgspec.structs.replace(tally, failures=failures)
    reason = report.reason or Outcome.FAILED
    if failures >= settings.max_retries:
        return Decision(state=TaskState.FAILED, due_at=now, tally=charged, reason=reason)
    wait = min(settings.retry_base_ms << min(failures - 1, 30), settings.retry_cap_ms)
    wait = max(wait, report.retry_after_ms or 0)
    return Decision(state=TaskState.PENDING, due_at=now + wait, tally=charged, reason=reason)


def put_off(tally: Tally, now: int, wait_ms: int, settings: Settings, reason: str) -> Decision:
    """Give a task back uncharged; one that was given back too often has failed."""
    deferrals = tally.deferrals + 1
    counted = msgspec.structs.replace(tally, deferrals=deferrals)
    if deferrals > settings.max_deferrals:
        return Decision(state=TaskState.FAILED, due_at=now, tally=counted, reason=reason)
    return Decision(state=TaskState.PENDING, due_at=now + wait_ms, tally=counted, reason=reason)


def after_expiry(tally: Tally, now: int, settings: Settings) -> Decision:
    """Return a task whose worker fell silent; one that silences worker after worker is poison."""
    expiries = tally.expiries + 1
    counted = msgspec.structs.replace(tally, expiries=expiries)
    if expiries >= settings.max_lease_expiries:
        return Decision(state=TaskState.FAILED, due_at=now, tally=counted, reason="poison")
    return Decision(state=TaskState.PENDING, due_at=now, tally=counted, reason="lease_expired")
