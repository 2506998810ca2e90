"""What may come in to the control plane."""

import msgspec

from outrider.model.domain import MAX_REASON_CODE_CHARACTERS, DomainChange
from outrider.model.errors import shown
from outrider.model.job import JobRequest, UnknownJob, UnknownRun
from outrider.model.machines import DomainStatus
from outrider.store.checks import (
    LARGEST,
    check_choice,
    check_moment,
    check_name,
    check_number,
    check_span,
    check_text,
    readable_uuid,
)


def check_job_id(text: object) -> str:
    """Check the id of a job; what cannot be one is an unknown job."""
    readable = readable_uuid(text)
    if readable is None:
        raise UnknownJob(shown(text))
    return readable


def check_run_id(text: object) -> str:
    """Check the id of a run; what cannot be one is an unknown run."""
    readable = readable_uuid(text)
    if readable is None:
        raise UnknownRun(shown(text))
    return readable


def checked_change(change: DomainChange) -> DomainChange:
    """Check a step of a domain's life, but not whether there is such a step."""
    check_number(change.expected_version, "expected_version", 0, LARGEST)
    if change.worker is not None:
        check_name(change.worker, "worker")
    check_text(change.block_reason, "block_reason")
    check_text(change.block_reason_code, "block_reason_code", MAX_REASON_CODE_CHARACTERS)
    if change.next_crawl_after is not None:
        check_moment(change.next_crawl_after, "next_crawl_after")
    return msgspec.structs.replace(
        change,
        source=check_choice(change.source, "source", DomainStatus),
        target=check_choice(change.target, "target", DomainStatus),
        run_id=None if change.run_id is None else check_run_id(change.run_id),
    )


def check_request(request: JobRequest) -> None:
    """Check everything of a request but its payload."""
    for field in ("crawl", "user_id", "idempotency_key"):
        if getattr(request, field) is not None:
            check_name(getattr(request, field), field)
    check_text(request.source_id, "source_id")
    check_number(request.priority, "priority", -LARGEST, LARGEST)
    check_number(request.max_retries, "max_retries", 0, 1_000_000)
    check_span(request.delay_ms, "delay_ms")
