"""What may come in to the control plane."""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from outrider.model.domain import MAX_REASON_CODE_CHARACTERS, DomainChange
from outrider.model.errors import InvalidInput, shown
from outrider.model.job import JobFilter, JobRequest, UnknownJob, UnknownRun
from outrider.model.machines import DomainStatus, JobStatus
from outrider.model.order import OrderLimits
from outrider.model.quota import JobQuota
from outrider.model.task import MAX_KEY_CHARACTERS
from outrider.store.checks import (
    LARGEST,
    check_choice,
    check_moment,
    check_name,
    check_number,
    check_record,
    check_span,
    check_text,
    readable_uuid,
)

MAX_LABELS = 64
MAX_URL_CHARACTERS = 8_192
MAX_DELAY_S = 86_400


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
    if change.actor is not None:
        check_name(change.actor, "actor")
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
    check_labels(request.labels)
    check_text(request.webhook_url, "webhook_url", MAX_URL_CHARACTERS)
    for field in ("key_id", "webhook_secret"):
        if getattr(request, field) is not None:
            check_name(getattr(request, field), field)
    check_number(request.priority, "priority", -LARGEST, LARGEST)
    check_number(request.max_retries, "max_retries", 0, 1_000_000)
    check_span(request.delay_ms, "delay_ms")


def check_labels(labels: object) -> None:
    """Check the labels of a job: short names with short values."""
    if not isinstance(labels, Mapping):
        raise InvalidInput(f"labels must be a mapping, not {shown(labels)}")
    if len(labels) > MAX_LABELS:
        raise InvalidInput(f"a job has at most {MAX_LABELS} labels, not {len(labels)}")
    for name, value in labels.items():
        check_name(name, "the name of a label")
        if not isinstance(value, str):
            raise InvalidInput(f"label {name} must be a text, not {shown(value)}")
        check_text(value, f"label {name}", MAX_KEY_CHARACTERS)


def check_filter(which: JobFilter) -> None:
    """Check what a listing of jobs is about."""
    if which.status is not None:
        check_choice(which.status, "status", JobStatus)
    for field in ("crawl", "user_id", "source_id"):
        check_text(getattr(which, field), field)
    if which.label is not None:
        if not isinstance(which.label, tuple) or len(which.label) != 2:
            raise InvalidInput(f"label must be a name and a value, not {shown(which.label)}")
        check_labels(dict([which.label]))


def check_quota(quota: JobQuota) -> None:
    """Check the numbers of a quota."""
    check_record(quota, "quota", JobQuota)
    for field in quota.__struct_fields__:
        if getattr(quota, field) is not None:
            check_number(getattr(quota, field), field, 0, LARGEST)


def check_limits(limits: OrderLimits) -> None:
    """Check the limits that a job is to have from now on."""
    for field in ("max_pages", "max_pages_per_domain", "max_depth"):
        value = getattr(limits, field)
        if value is not None and value is not UNSET:
            check_number(value, field, 0, LARGEST)
    if limits.per_domain is not UNSET:
        check_number(limits.per_domain, "per_domain", 1, LARGEST)
    if limits.delay is not UNSET and (
        not isinstance(limits.delay, (int, float)) or not 0 <= limits.delay <= MAX_DELAY_S
    ):
        raise InvalidInput(f"delay must be a number of seconds from 0 to {MAX_DELAY_S}, not {shown(limits.delay)}")
