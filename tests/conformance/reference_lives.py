"""The lives of domains by the rules of the model: what answers and endings make of them."""

from collections.abc import Iterable, Sequence

from outrider.model.lease import Outcome, Report
from outrider.model.machines import DomainStatus, TaskState
from outrider.model.task import NEVER, Kind
from tests.conformance.reference import Model, ModelGate, ModelLease, ModelTask

PENDING, ACTIVE, EXHAUSTED, BLOCKED, UNREACHABLE = DomainStatus
PLAIN_REFUSALS = ("forbidden", "login_required", "robots_denied")
NOBODY_THERE = ("dns_failure", "connection_refused", "connection_reset", "timeout", "tls_error")


def note(model: Model, taken: Sequence[tuple[ModelLease, Report]], now: int) -> None:
    """Count the answers of one batch, then give up the domains whose row of errors is too long."""
    too_many: dict[str, tuple[str, int]] = {}
    for lease, report in taken:
        gate, code = model.gates[lease.task.domain], _code(lease, report)
        started_at = min(lease.granted_at + (report.sent_after_ms or 0), now)
        is_good = code is None and report.outcome is Outcome.DONE and report.sent_after_ms is not None
        if is_good and gate.status is UNREACHABLE and lease.task.kind is Kind.PAGE:
            gate.blocked_until = 0 if gate.blocked_until == gate.rest_until else gate.blocked_until
            gate.status, gate.rest_until = ACTIVE, None
        is_later = started_at >= gate.error_at
        if is_good and is_later and gate.errors_in_row:
            gate.errors_in_row = 0
            too_many.pop(lease.task.domain, None)
        if code is None:
            continue
        if is_later or code in PLAIN_REFUSALS:
            gate.errors_in_row, gate.error_at = gate.errors_in_row + 1, now
        is_patient = gate.status in (PENDING, ACTIVE, EXHAUSTED)
        if is_patient and gate.errors_in_row >= model.settings.max_domain_errors:
            too_many.setdefault(lease.task.domain, (code, gate.errors_in_row))
    for domain, (code, _) in too_many.items():
        _give_up(model, model.gates[domain], code, now)


def _code(lease: ModelLease, report: Report) -> str | None:
    """Tell what an answer says against its domain; a robots.txt that cannot be fetched always does."""
    if report.block_code is not None:
        return report.block_code
    if lease.task.kind is Kind.ROBOTS and report.robots is not None and report.robots.unreachable:
        return "timeout"
    return None


def _give_up(model: Model, gate: ModelGate, code: str, now: int) -> None:
    settings = model.settings
    if code in NOBODY_THERE:
        gate.status, gate.rest_until = UNREACHABLE, now + settings.unreachable_rest_ms
    else:
        rest_ms = settings.forbidden_rest_ms if code == "forbidden" else settings.server_error_rest_ms
        is_final = gate.block_count >= settings.max_block_retries
        gate.status, gate.rest_until = BLOCKED, None if is_final else now + rest_ms
        gate.block_count += 1
    gate.blocked_until = max(gate.blocked_until, NEVER if gate.rest_until is None else gate.rest_until)


def exhaust(model: Model, ended: Iterable[ModelTask], now: int) -> None:
    """Have an active domain be exhausted when the last of its tasks is over, in whatever crawl."""
    for domain in {task.domain for task in ended if task.state is not TaskState.PENDING}:
        gate = model.gates[domain]
        waits = any(
            task.domain == domain and task.state in (TaskState.PENDING, TaskState.ASSIGNED)
            for crawl in model.crawls.values()
            for task in crawl.tasks.values()
        )
        if gate.status is ACTIVE and not waits:
            gate.status, gate.rest_until = EXHAUSTED, now + model.settings.exhausted_rest_ms
