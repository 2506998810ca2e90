"""Rows and records: moments, JSON, and reading one as the other."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from outrider.model.errors import InvalidInput, shown
from outrider.model.job import MAX_JSON_BYTES
from outrider.store.sql.script import Row

Record = TypeVar("Record", bound=msgspec.Struct)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def moment_of(milliseconds: int) -> datetime:
    """Give a moment the form that it has in records.

    >>> moment_of(1_767_323_045_678).isoformat()
    '2026-01-02T03:04:05.678000+00:00'
    """
    return EPOCH + milliseconds * MILLISECOND


def millis_of(moment: datetime | None) -> int | None:
    """Give a moment the form that it has in statements."""
    return None if moment is None else (moment - EPOCH) // MILLISECOND


def record(kind: type[Record], row: Row, *, json: tuple[str, ...] = ()) -> Record:
    """Read a row whose columns are the fields of `kind`, in their order."""
    values: dict[str, Any] = dict(zip(kind.__struct_fields__, row, strict=True))
    for field in json:
        if values[field] is not None:
            values[field] = msgspec.json.decode(values[field])
    return msgspec.convert(values, kind)


def as_json(value: object, what: str) -> str:
    """Write a mapping as JSON that every store can keep."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{what} must be a mapping, not {shown(value)}")
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidInput(f"{what} cannot be written as JSON: {error}") from error
    if len(encoded) > MAX_JSON_BYTES:
        raise InvalidInput(f"{what} has {len(encoded)} bytes as JSON, allowed are {MAX_JSON_BYTES}")
    if _NUL.search(encoded):
        raise InvalidInput(f"{what} has a NUL character in a text, which not every store can keep")
    return encoded.decode()
