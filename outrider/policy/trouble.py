"""Trouble: how each answer counts for or against its domain, on the gate that its report holds.

Errors count once per event. An error whose request was sent before the last one was counted is the same event: ten
requests that are under way when a server stops fail together.
"""

from typing import Final

import msgspec

from outrider.model.gate import Gate
from outrider.model.lease import Outcome, Report
from outrider.model.machines import DomainStatus
from outrider.model.settings import Settings
from outrider.model.task import Kind
from outrider.policy.blocking import BlockReason, BlockSettings, errors_after, reason_of_failure, reason_of_status

_PATIENT: Final = frozenset({DomainStatus.PENDING, DomainStatus.ACTIVE, DomainStatus.EXHAUSTED})


def block_settings(settings: Settings) -> BlockSettings:
    """Take what blocking goes by from the settings of the installation, where it has the same names."""
    return BlockSettings(**{name: getattr(settings, name) for name in BlockSettings.__struct_fields__})


def reason_of(report: Report, kind: int) -> BlockReason | None:
    """Tell what a report says against its domain.

    A robots.txt that cannot be fetched does so also where its worker gave no code: nothing can be fetched without it.
    429 is left out, as robots.txt itself is asked for again then.
    """
    if report.block_code is not None:
        return BlockReason(report.block_code)
    if kind != Kind.ROBOTS or report.robots is None or not report.robots.unreachable:
        return None
    status = report.fetch.http_status
    if status:
        reason = reason_of_status(status)
        return None if reason is BlockReason.RATE_LIMITED else reason or BlockReason.SERVER_ERROR
    return reason_of_failure(report.reason or "") or BlockReason.TIMEOUT


def after_answer(gate: Gate, report: Report, reason: BlockReason | None, started_at: int, now: int) -> Gate:
    """Count an answer: an error by its event, and a good answer, sent after the last error, ends the row of them."""
    if reason is None:
        if gate.errors_in_row and is_good(report, reason) and started_at >= gate.error_at:
            return msgspec.structs.replace(gate, errors_in_row=0)
        return gate
    errors = errors_after(gate.errors_in_row, reason, began_back_off=started_at >= gate.error_at)
    if errors == gate.errors_in_row:
        return gate
    return msgspec.structs.replace(gate, errors_in_row=errors, error_at=now)


def is_good(report: Report, reason: BlockReason | None) -> bool:
    """Tell whether a site has given what it was asked for, or at least said that it is not there."""
    return reason is None and report.outcome is Outcome.DONE and report.sent_after_ms is not None


def may_end_patience(gate: Gate, reason: BlockReason, settings: BlockSettings) -> bool:
    """Tell whether it is worth the look at the domain whether it is given up; `blocking.decide` decides."""
    return gate.status in _PATIENT and gate.errors_in_row >= settings.errors_allowed(reason)
