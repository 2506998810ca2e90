"""The import: JSON lines of our own export, of bare discoveries, or of a URLFrontier.

The body is read as it comes and stored batch by batch, so that its length does not matter. An import that was broken
off is simply sent again: what is there already is known, and stays as it is. A URL comes with its past, as far as the
line tells of it; what was being fetched is pending again.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from starlette.requests import Request

from outrider.model.api_key import Role
from outrider.model.batch import priority_of
from outrider.model.errors import LimitExceeded
from outrider.model.machines import TaskState
from outrider.model.task import Added, AddResult, DiscoveryType, Restored
from outrider.service.http.endpoint import JSON_LINES, Call, Endpoint, check_media
from outrider.service.http.translation import now_ms
from outrider.service.http.wire import DISCOVERIES, KINDS, DiscoveryName, ImportAnswer, KindName, StateName
from outrider.service.http.working import CRAWL
from outrider.store.checks import END_OF_TIME_MS

AT_ONCE: Final = 1_000
MAX_LINE_BYTES: Final = 128 * 1024
REFUSALS_TOLD: Final = 20
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Info(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A URL as URLFrontier's JSON has it."""

    url: str
    key: str | None = None
    metadata: dict[str, Any] | None = None


class Wrapped(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A discovered or known item of URLFrontier. JSON of protobuf writes long numbers as texts."""

    info: Info
    refetchable_from_date: int | str = 0
    """Seconds since 1970, or 0 where it is done for good."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line, whichever kind of file it is from."""

    url: str | None = None
    key: str | None = None
    kind: KindName = "page"
    state: StateName = "pending"
    status: int | None = None
    depth: int = 0
    priority: int = 0
    attempts: int = 0
    failures: int = 0
    deferrals: int = 0
    reason: str | None = None
    discovered_by: DiscoveryName = "import"
    discovered_at: str | None = None
    due_at: str | None = None
    due_in_ms: int = 0
    metadata: dict[str, Any] | None = None
    discovered: Wrapped | None = None
    known: Wrapped | None = None
    creation_date: int | str | None = msgspec.field(default=None, name="creationDate")
    """Beside an item of URLFrontier, in seconds."""


class Refused(Exception):
    """A line that says nothing that can be stored, and why."""


async def import_urls(call: Call) -> ImportAnswer:
    """Store the URLs of a file of JSON lines."""
    check_media(call.request, JSON_LINES)
    await call.backend.stores.urls.get_crawl(call.crawl)
    totals = dict.fromkeys(Added, 0)
    refusals: list[str] = []
    async for batch in _batches(call.request):
        found, numbers = [], []
        for number, line in batch:
            try:
                found.append(read_line(line, now_ms()))
                numbers.append(number)
            except Refused as refusal:
                totals[Added.REJECTED] += 1
                _tell(refusals, number, str(refusal))
        results = await call.backend.restore(call.crawl, found)
        for number, result in zip(numbers, results, strict=True):
            totals[result.outcome] += 1
            if result.outcome is Added.REJECTED:
                _tell(refusals, number, _reason(result))
    return ImportAnswer(
        new=totals[Added.NEW], known=totals[Added.KNOWN], rejected=totals[Added.REJECTED], refusals=refusals
    )


def _reason(result: AddResult) -> str:
    return result.detail or str(result.reason)


def _tell(refusals: list[str], number: int, reason: str) -> None:
    if len(refusals) < REFUSALS_TOLD:
        refusals.append(f"line {number}: {reason}")


async def _batches(request: Request) -> AsyncIterator[list[tuple[int, bytes]]]:
    """Split a body into numbered lines, many at once."""
    number, rest = 0, b""
    batch: list[tuple[int, bytes]] = []
    async for chunk in request.stream():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            number += 1
            if line.strip():
                batch.append((number, line))
            if len(batch) == AT_ONCE:
                yield batch
                batch = []
        if len(rest) > MAX_LINE_BYTES:
            raise LimitExceeded(f"line {number + 1} has more than {MAX_LINE_BYTES} bytes")
    if rest.strip():
        batch.append((number + 1, rest))
    if batch:
        yield batch


def read_line(text: bytes, now: int) -> Restored:
    """Read a line, or raise `Refused`."""
    try:
        line = msgspec.json.decode(text, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(str(error)) from None
    wrapped = line.discovered or line.known
    if wrapped is not None:
        return _of_urlfrontier(wrapped, line.creation_date, now, is_known=line.known is not None)
    if line.url is None:
        raise Refused("it has no url")
    return Restored(
        url=line.url,
        key=line.key,
        kind=KINDS[line.kind],
        state=TaskState(line.state.upper()),
        http_status=line.status,
        depth=line.depth,
        priority=line.priority,
        attempt_count=line.attempts,
        failures=line.failures,
        deferrals=line.deferrals,
        reason=line.reason,
        discovery_type=DISCOVERIES[line.discovered_by],
        discovered_at=None if line.discovered_at is None else _moment(line.discovered_at),
        due_at=None if line.due_at is None else _moment(line.due_at),
        due_in_ms=line.due_in_ms,
        metadata=line.metadata,
    )


def _of_urlfrontier(wrapped: Wrapped, created: int | str | None, now: int, *, is_known: bool) -> Restored:
    """Read an item as its own service would take it: what it knows has a date, and dates are priorities."""
    info, due_at = wrapped.info, _seconds(wrapped.refetchable_from_date, "refetchableFromDate") if is_known else now
    return Restored(
        url=info.url,
        key=info.key or None,
        metadata=_lists(info.metadata),
        state=TaskState.PENDING if due_at else TaskState.COMPLETED,
        due_at=due_at or now,
        priority=priority_of(due_at or now),
        discovered_at=_seconds(created, "creationDate") or None,
        discovery_type=DiscoveryType.IMPORT,
    )


def _lists(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """Unwrap lists of texts, each of which is a message of its own in JSON of protobuf."""
    return {
        name: value.get("values", []) if isinstance(value, dict) and value.keys() <= {"values"} else value
        for name, value in (metadata or {}).items()
    } or None


def _seconds(number: int | str | None, name: str) -> int:
    """Read seconds as milliseconds; what lies beyond every calendar is its end."""
    try:
        return max(0, min(int(number or 0) * 1000, END_OF_TIME_MS - 1))
    except ValueError:
        raise Refused(f"{name} is not a number") from None


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(f"{text[:100]!r} is not a moment") from None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)


ENDPOINTS: Final = (
    Endpoint(
        method="POST",
        path=f"{CRAWL}/import",
        summary="Store the URLs of JSON lines: of an export, of discoveries, or of a URLFrontier.",
        handler=import_urls,
        role=Role.CRAWL,
        takes_media=JSON_LINES,
        gives=ImportAnswer,
    ),
)
