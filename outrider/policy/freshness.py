"""Freshness: until when an answer says of itself that it will not change."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

MOST_FRESH_MS: Final = 365 * 24 * 3_600_000

_MAX_AGE = re.compile(r"(?:^|[\s,])(?:s-maxage|max-age)\s*=\s*\"?(\d{1,12})", re.IGNORECASE)
_NOT_KEPT = re.compile(r"(?:^|[\s,])(?:no-store|no-cache)(?:$|[\s,=])", re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def fresh_until(cache_control: str | None, expires: str | None, *, now_ms: int) -> int | None:
    """Read `Cache-Control` and, where that says nothing, `Expires`; None where there is no promise.

    A moment that is past is no promise either, and no promise lasts longer than a year.

    >>> fresh_until("public, max-age=60", None, now_ms=5), fresh_until("no-cache", None, now_ms=5)
    (60005, None)
    >>> fresh_until(None, "Thu, 01 Jan 1970 00:00:30 GMT", now_ms=10_000)
    30000
    """
    if cache_control is not None:
        if _NOT_KEPT.search(cache_control):
            return None
        ages = [int(age) for age in _MAX_AGE.findall(cache_control)]
        if ages:
            return _bounded(now_ms + min(ages) * 1000, now_ms)
    return None if expires is None else _bounded(_moment(expires), now_ms)


def _bounded(moment_ms: int | None, now_ms: int) -> int | None:
    if moment_ms is None or moment_ms <= now_ms:
        return None
    return min(moment_ms, now_ms + MOST_FRESH_MS)


def _moment(written: str) -> int | None:
    try:
        moment = parsedate_to_datetime(written.strip())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int((moment - _EPOCH).total_seconds() * 1000)
