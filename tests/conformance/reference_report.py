"""How leases end, by the rules of the model: renewals, reports, reaping, releasing."""

from collections.abc import Sequence

from outrider.model.lease import Outcome, Renewal, Report, ReportAnswer, Token, Verdict
from outrider.model.machines import TaskState
from outrider.model.task import Kind, Refusal
from tests.conformance import reference_lives
from tests.conformance.reference import Model, ModelArtifact, ModelGate, ModelLease, ModelTask

DAY_MS = 24 * 3_600_000
NO_ROBOTS, ALL_FORBIDDEN = "", "User-agent: *\nDisallow: /\n"


def renew(model: Model, tokens: Sequence[Token], lease_ms: int | None, now: int) -> list[Renewal]:
    """Prolong what is live."""
    length = model.settings.crash_threshold_ms if lease_ms is None else lease_ms
    answers = []
    for token in tokens:
        live = model.is_live(token, now)
        if live:
            model.leases[token].last_heartbeat, model.leases[token].expires_at = now, now + length
        answers.append(Renewal.OK if live else Renewal.LEASE_LOST)
    return answers


def report(model: Model, reports: Sequence[Report], now: int) -> list[ReportAnswer]:
    """End live leases, each by the first readable report; all links go in before any outcome."""
    refusals = [_refusal(each) for each in reports]
    taken: dict[Token, Report] = {}
    for each, refusal in zip(reports, refusals, strict=True):
        if refusal is None and model.is_live(each.token, now):
            taken.setdefault(each.token, each)
    for token, each in taken.items():
        model.add(model.leases[token].task.crawl, each.links, now)
    blocked_until = {domain: gate.blocked_until for domain, gate in model.gates.items()}
    ended = [model.leases[token] for token in taken]
    reference_lives.note(model, list(zip(ended, taken.values(), strict=True)), now)
    for token, each in taken.items():
        lease = model.leases.pop(token)
        model.answers[token] = _end(model, lease, each, now, blocked_until[lease.task.domain])
    reference_lives.exhaust(model, [lease.task for lease in ended], now)
    lost = ReportAnswer(verdict=Verdict.LEASE_LOST)
    return [
        model.answers.get(each.token, lost) if refusal is None else refusal
        for each, refusal in zip(reports, refusals, strict=True)
    ]


def _refusal(report: Report) -> ReportAnswer | None:
    if len(report.token) != 32:
        return ReportAnswer(verdict=Verdict.LEASE_LOST, refusal=Refusal.BAD_REPORT)
    without_answer = report.outcome is Outcome.DONE and report.fetch.http_status <= 0
    if without_answer or (report.retry_after_ms or 0) < 0 or (report.sent_after_ms or 0) < 0:
        return ReportAnswer(verdict=Verdict.REJECTED, refusal=Refusal.BAD_REPORT)
    return None


def _end(model: Model, lease: ModelLease, report: Report, now: int, blocked_until: int) -> ReportAnswer:
    task, gate, settings = lease.task, model.gates[lease.task.domain], model.settings
    _move_clocks(model, gate, lease, report, now)
    task.due_at = now
    task.reason = report.reason or str(report.outcome.value)
    task.http_status, task.etag = report.fetch.http_status, report.fetch.etag
    wait = report.retry_after_ms or 0
    match report.outcome:
        case Outcome.DONE:
            task.state, task.reason = TaskState.COMPLETED, None
        case Outcome.REFUSED:
            task.state = TaskState.FAILED
        case Outcome.FAILED:
            task.failures += 1
            task.state = TaskState.FAILED if task.failures >= settings.max_retries else TaskState.PENDING
            if task.state is TaskState.PENDING:
                own = settings.retry_base_ms * 2 ** (task.failures - 1)
                task.due_at = now + max(min(own, settings.retry_cap_ms), wait)
        case Outcome.DEFERRED:
            _put_off(model, task)
            if task.state is TaskState.PENDING:
                task.due_at = max(now + wait, gate.backoff_until, blocked_until)
    _keep_robots(model, task, report, now)
    if task.kind is Kind.PAGE and task.state is TaskState.COMPLETED and lease.run_id:
        model.run_pages[lease.run_id, task.domain] += 1
    _file(model, lease, report, now)
    if task.state is TaskState.PENDING:
        return ReportAnswer(verdict=Verdict.RETRY_AT, retry_at=task.due_at)
    done = task.state is TaskState.COMPLETED
    return ReportAnswer(verdict=Verdict.COMPLETED if done else Verdict.FAILED)


def _put_off(model: Model, task: ModelTask) -> None:
    """Give back uncharged, but not for ever."""
    task.deferrals += 1
    too_often = task.deferrals > model.settings.max_deferrals
    task.state = TaskState.FAILED if too_often else TaskState.PENDING


def _move_clocks(model: Model, gate: ModelGate, lease: ModelLease, report: Report, now: int) -> None:
    """Count from the start of the request; give the slot back where nothing was sent."""
    if report.sent_after_ms is None:
        if lease.delay_ms and gate.next_fetch_at == lease.granted_at + lease.delay_ms:
            gate.next_fetch_at = max(lease.gate_was, gate.quiet_until)
        return
    started_at = min(lease.granted_at + report.sent_after_ms, now)
    _was_sent(gate, lease, started_at)
    # An answer to what was sent before the last back-off began tells of the same trouble.
    is_known_trouble = started_at < gate.backoff_began_at
    if report.backs_off:
        own = min(model.settings.backoff_base_ms * 2**gate.backoff_level, model.settings.backoff_cap_ms)
        asked = report.retry_after_ms or 0
        wait = asked if is_known_trouble else max(own, asked)
        gate.backoff_until = max(gate.backoff_until, now + wait if wait else 0)
        if not is_known_trouble:
            gate.backoff_level, gate.backoff_began_at = gate.backoff_level + 1, now
    elif report.outcome is Outcome.DONE and not is_known_trouble:
        gate.backoff_level = 0


def _was_sent(gate: ModelGate, lease: ModelLease, started_at: int) -> None:
    gate.quiet_until = max(gate.quiet_until, started_at + lease.delay_ms)
    gate.next_fetch_at = max(gate.next_fetch_at, started_at + lease.delay_ms)


def _keep_robots(model: Model, task: ModelTask, report: Report | None, now: int) -> None:
    """Keep the robots.txt that came, or what its absence means: all allowed, or none while unreadable."""
    if task.kind is not Kind.ROBOTS or task.state is TaskState.PENDING:
        return
    gate = model.gates[task.domain]
    if report is not None and report.robots is not None:
        gate.robots_text, gate.robots_delay_ms = report.robots.text, report.robots.crawl_delay_ms
        gate.robots_expires_at = now + report.robots.expires_in_ms
        gate.robots_unreachable = report.robots.unreachable
        return
    is_readable = report is not None and report.outcome in (Outcome.DONE, Outcome.REFUSED)
    gate.robots_text, gate.robots_delay_ms = NO_ROBOTS if is_readable else ALL_FORBIDDEN, None
    gate.robots_expires_at = now + (DAY_MS if is_readable else model.settings.retry_cap_ms)
    gate.robots_unreachable = not is_readable


def _file(model: Model, lease: ModelLease, report: Report, now: int) -> None:
    task = lease.task
    model.artifacts.setdefault(task.crawl, []).append(
        ModelArtifact(
            token=lease.token,
            key=task.key,
            url=task.url,
            domain=task.domain,
            kind=task.kind,
            depth=task.depth,
            attempt=task.attempt_count,
            run_id=lease.run_id,
            outcome=report.outcome.value,
            reason=report.reason or task.reason,
            fetch=report.fetch,
            leased_at=lease.granted_at,
            reported_at=now,
        )
    )


def expired(model: Model, now: int) -> list[ModelLease]:
    """List the leases that a reaper would find, the first to expire first."""
    found = [lease for lease in model.leases.values() if lease.expires_at <= now]
    return sorted(found, key=lambda lease: lease.expires_at)


def reap(model: Model, token: Token, now: int) -> None:
    """Return the task of one expired lease."""
    lease = model.leases.pop(token)
    task = lease.task
    task.expiries += 1
    is_poison = task.expiries >= model.settings.max_lease_expiries
    task.state = TaskState.FAILED if is_poison else TaskState.PENDING
    task.reason = "poison" if is_poison else "lease_expired"
    _end_silently(model, lease, now)


def release(model: Model, tokens: Sequence[Token], worker: str | None, now: int) -> set[Token]:
    """Give back what is live of these, or of a worker."""
    live = {
        token
        for token, lease in model.leases.items()
        if lease.expires_at > now and (token in tokens if worker is None else lease.worker == worker)
    }
    for token in live:
        lease = model.leases.pop(token)
        _put_off(model, lease.task)
        lease.task.reason = "released"
        _end_silently(model, lease, now)
    return live


def _end_silently(model: Model, lease: ModelLease, now: int) -> None:
    """Assume that the request went out at the last moment, and brought nothing."""
    lease.task.due_at = now
    _was_sent(model.gates[lease.task.domain], lease, now)
    _keep_robots(model, lease.task, None, now)
    reference_lives.exhaust(model, [lease.task], now)
