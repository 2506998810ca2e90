"""What may come in: each refusal names the argument, the value and what is allowed."""

from enum import StrEnum
from typing import TypeVar
from uuid import UUID

from outrider.model.errors import InvalidInput, LimitExceeded, shown
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


def check_now(now: object) -> None:
    """Check the time that a caller gives in place of the store's own; what is due a year later must be a moment too."""
    if now is not None:
        check_number(now, "now", 0, END_OF_TIME_MS - 1 - YEAR_MS)


def check_record(record: object, what: str, kind: type) -> None:
    """Check that an argument is the record that it must be."""
    if not isinstance(record, kind):
        raise InvalidInput(f"{what} must be a {kind.__name__}, not {shown(record)}")


def check_batch(items: object, what: str) -> None:
    """Check that a batch is a list or a tuple, and its size."""
    if not isinstance(items, list | tuple):
        raise InvalidInput(f"{what} must be a list, not {shown(items)}")
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
