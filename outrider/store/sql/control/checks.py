"""What may come in: each refusal names the argument, the value and what is allowed."""

from collections.abc import Sized
from enum import StrEnum
from typing import TypeVar
from uuid import UUID

import msgspec

from outrider.model.domain import MAX_REASON_CODE_CHARACTERS, DomainChange
from outrider.model.errors import InvalidInput, LimitExceeded, shown
from outrider.model.job import JobRequest, UnknownJob, UnknownRun
from outrider.model.machines import DomainStatus
from outrider.model.task import MAX_BATCH, MAX_KEY_CHARACTERS
from outrider.policy.admission import storable

Choice = TypeVar("Choice", bound=StrEnum)

END_OF_TIME_MS = 253_402_300_800_000
"""The year 10000, before which every store's moments lie."""
MAX_TEXT_CHARACTERS = 10_000
LARGEST = 2**31 - 1
YEAR_MS = 366 * 24 * 3_600_000


def check_name(name: object, what: str) -> str:
    """Check a name that people or processes go by."""
    if not isinstance(name, str) or not storable(name) or not 0 < len(name) <= MAX_KEY_CHARACTERS:
        raise InvalidInput(f"{what} has 1 to {MAX_KEY_CHARACTERS} characters, not {shown(name)}")
    return name


def check_text(text: object, what: str, longest: int = MAX_TEXT_CHARACTERS) -> None:
    """Check a text that may be left out."""
    if text is None:
        return
    if not isinstance(text, str) or not storable(text) or len(text) > longest:
        raise InvalidInput(f"{what} is a text of at most {longest} characters, not {shown(text)}")


def check_number(number: object, what: str, low: int, high: int) -> int:
    """Check a whole number within bounds, both allowed."""
    if type(number) is not int or not low <= number <= high:
        raise InvalidInput(f"{what} must be a whole number from {low} to {high}, not {shown(number)}")
    return number


def check_span(milliseconds: object, what: str, low: int = 0) -> int:
    """Check a span of time of at most a year."""
    return check_number(milliseconds, what, low, YEAR_MS)


def check_moment(milliseconds: object, what: str) -> int:
    """Check a moment in milliseconds."""
    return check_number(milliseconds, what, 0, END_OF_TIME_MS - 1)


def check_choice(value: object, what: str, choices: type[Choice]) -> Choice:
    """Check one of a few words."""
    try:
        return choices(str(value))
    except ValueError:
        raise InvalidInput(f"{what} must be one of {', '.join(choices)}, not {shown(value)}") from None


def check_batch(items: Sized, what: str) -> None:
    """Check the size of a batch."""
    if len(items) > MAX_BATCH:
        raise LimitExceeded(f"{len(items)} {what} in one batch, allowed are {MAX_BATCH}")


def readable_uuid(text: object) -> str | None:
    """Give an id the form in which it is kept; None where it can be no id at all."""
    if not isinstance(text, str):
        return None
    try:
        return str(UUID(text))
    except ValueError:
        return None


def check_uuid(text: object, what: str) -> str:
    """Check an id of ours."""
    readable = readable_uuid(text)
    if readable is None:
        raise InvalidInput(f"{what} must be a UUID, not {shown(text)}")
    return readable


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
