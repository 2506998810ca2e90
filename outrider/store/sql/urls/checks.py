"""What may come in to the URL plane: each refusal names the argument, the value and what is allowed."""

import re

import msgspec

from outrider.model.artifact import Fetch
from outrider.model.errors import InvalidInput, shown
from outrider.model.gate import Robots
from outrider.model.lease import LeaseRequest, Outcome, Report, ReportAnswer, Verdict
from outrider.model.machines import TaskState
from outrider.model.settings import Settings
from outrider.model.task import MAX_BATCH, Kind, Refusal, TaskFilter
from outrider.policy.admission import key_problem, storable
from outrider.policy.blocking import BlockReason
from outrider.store.checks import check_choice, check_name, check_number, check_record, check_uuid

DAY_MS = 86_400_000

_BLOCK_CODES = tuple(BlockReason)
_TOKEN = re.compile(r"[0-9a-fA-F]{32}")


def is_token(token: object) -> bool:
    """Tell whether something can be a token at all; what cannot is no live lease."""
    return isinstance(token, str) and _TOKEN.fullmatch(token) is not None


def check_lease_ms(lease_ms: int | None, settings: Settings) -> int:
    """Check the length of a lease; None means the setting."""
    if lease_ms is None:
        return settings.crash_threshold_ms
    return check_number(lease_ms, "lease_ms", 1, DAY_MS)


def checked_request(request: LeaseRequest, settings: Settings) -> LeaseRequest:
    """Check a worker's wish; its run is named as runs are kept."""
    check_record(request, "request", LeaseRequest)
    check_name(request.worker, "worker")
    check_name(request.request_id, "request_id")
    check_number(request.slots, "slots", 1, MAX_BATCH)
    check_lease_ms(request.lease_ms, settings)
    most = request.max_per_queue
    if most is not None and (type(most) is not int or most < 1):
        raise InvalidInput(f"max_per_queue must be a whole number from 1, not {shown(most)}")
    for field in ("scheduled", "fair", "claims"):
        if type(getattr(request, field)) is not bool:
            raise InvalidInput(f"{field} must be true or false, not {shown(getattr(request, field))}")
    if request.run_id is None:
        return request
    return msgspec.structs.replace(request, run_id=check_uuid(request.run_id, "run_id"))


def check_key(key: object) -> None:
    """Check the key of a queue."""
    problem = key_problem(key)
    if problem is not None:
        raise InvalidInput(problem.detail)


def check_readable(text: object, what: str) -> None:
    """Check a text that a store is to look for."""
    if not isinstance(text, str) or not storable(text):
        raise InvalidInput(f"{what} must be a text without NUL bytes or lone surrogates, not {shown(text)}")


def check_filter(which: TaskFilter) -> None:
    """Check what a listing or a retry is about."""
    check_record(which, "which", TaskFilter)
    for field in ("key", "url_contains"):
        if getattr(which, field) is not None:
            check_readable(getattr(which, field), field)
    if which.state is not None:
        check_choice(which.state, "state", TaskState)
    if which.kind is not None and type(which.kind) is not Kind:
        raise InvalidInput(f"kind must be one of {', '.join(map(repr, Kind))}, not {shown(which.kind)}")


def refusal_of(report: Report) -> ReportAnswer | None:
    """Find what makes a report unreadable; its lease then stays as it was."""
    if not isinstance(report, Report):
        return _refused(Verdict.REJECTED, f"{shown(report)} is not a report")
    if not is_token(report.token):
        return _refused(Verdict.LEASE_LOST, f"{shown(report.token)} is not a token")
    problem = _shape_problem(report) or _numbers_problem(report) or _texts_problem(report)
    return None if problem is None else _refused(Verdict.REJECTED, problem)


def _refused(verdict: Verdict, detail: str) -> ReportAnswer:
    return ReportAnswer(verdict=verdict, refusal=Refusal.BAD_REPORT, detail=detail)


def _shape_problem(report: Report) -> str | None:
    if not isinstance(report.outcome, Outcome):
        return f"outcome {shown(report.outcome)} is not one of {', '.join(Outcome)}"
    if not isinstance(report.fetch, Fetch):
        return f"fetch {shown(report.fetch)} is not a fetch"
    if type(report.fetch.noindex) is not bool:
        return f"noindex {shown(report.fetch.noindex)} is not true or false"
    if report.changed is not None and type(report.changed) is not bool:
        return f"changed {shown(report.changed)} is not true, false or none"
    similarity = report.fetch.similarity
    if similarity is not None and (type(similarity) is not int or not -(2**63) <= similarity < 2**63):
        return f"similarity {shown(similarity)} is not a signed whole number of 64 bits"
    if report.robots is not None and not isinstance(report.robots, Robots):
        return f"robots {shown(report.robots)} is not a robots.txt"
    if report.block_code is not None and report.block_code not in _BLOCK_CODES:
        return f"block_code {shown(report.block_code)} is not one of {', '.join(BlockReason)}"
    if not isinstance(report.links, (list, tuple)):
        return f"links {shown(report.links)} are not a list"
    if len(report.links) > MAX_BATCH:
        return f"{len(report.links)} links in one report, allowed are {MAX_BATCH}"
    return None


def _numbers_problem(report: Report) -> str | None:
    fetch, robots = report.fetch, report.robots or Robots(text="", expires_in_ms=0)
    lowest = 1 if report.outcome is Outcome.DONE else 0
    for name, value, low, most in (
        ("http_status", fetch.http_status, lowest, 999),
        ("images_found", fetch.images_found, 0, 2**31 - 1),
        ("links_found", fetch.links_found, 0, 2**31 - 1),
        ("expires_in_ms", robots.expires_in_ms, 0, 2**42),
    ):
        if type(value) is not int or not low <= value <= most:
            return f"{name} {shown(value)} is not a whole number from {low} to {most}"
    for name, value_or_none, most in (
        ("elapsed_ms", fetch.elapsed_ms, 2**31 - 1),
        ("body_bytes", fetch.body_bytes, 2**62),
        ("fetched_at", fetch.fetched_at, 2**62),
        ("retry_after_ms", report.retry_after_ms, 2**42),
        ("sent_after_ms", report.sent_after_ms, 2**42),
        ("fresh_for_ms", report.fresh_for_ms, 2**42),
        ("crawl_delay_ms", robots.crawl_delay_ms, 2**42),
    ):
        if value_or_none is not None and (type(value_or_none) is not int or not 0 <= value_or_none <= most):
            return f"{name} {shown(value_or_none)} is not a whole number from 0 to {most}"
    return None


def _texts_problem(report: Report) -> str | None:
    texts = {"reason": report.reason, "robots.txt": report.robots.text if report.robots else None}
    for name in ("content_type", "digest", "etag", "last_modified", "content_location", "title"):
        texts[name] = getattr(report.fetch, name)
    if not isinstance(report.fetch.redirects, (list, tuple)):
        return f"redirects {shown(report.fetch.redirects)} are not a list"
    texts.update((f"redirect {place}", url) for place, url in enumerate(report.fetch.redirects, 1))
    for name, text in texts.items():
        if text is not None and not (isinstance(text, str) and storable(text)):
            return f"{name} {shown(text)} is not a text without NUL bytes or lone surrogates"
    if report.robots is not None and report.robots.text is None:
        return "robots.txt has no text"
    return None
