"""The import: JSON lines of our own export, of bare discoveries, or of a URLFrontier.

The body is read as it comes and stored batch by batch, so that its length does not matter. An import that was broken
off is simply sent again: what is there already is known, and stays as it is. What was completed comes as completed;
what had failed, or was being fetched, gets a fresh start.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request

from outrider.model.api_key import Role
from outrider.model.batch import KnownUrl
from outrider.model.errors import LimitExceeded
from outrider.model.task import Added, AddResult, Discovered, DiscoveryType
from outrider.service.http.endpoint import JSON_LINES, Call, Endpoint, check_media
from outrider.service.http.translation import now_ms
from outrider.service.http.wire import DISCOVERIES, KINDS, DiscoveryName, ImportAnswer, KindName, StateName
from outrider.service.http.working import CRAWL

AT_ONCE: Final = 1_000
MAX_LINE_BYTES: Final = 128 * 1024
REFUSALS_TOLD: Final = 20
DONE_SOON_MS: Final = 3_600_000
"""When something that is done would be due, were the import broken off before it says so."""


class Info(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A URL as URLFrontier's JSON has it."""

    url: str
    key: str | None = None
    metadata: dict[str, Any] | None = None


class Wrapped(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A discovered or known item of URLFrontier."""

    info: Info
    refetchable_from_date: int | str = 0
    """Seconds since 1970, or 0 where it is done for good; JSON of protobuf writes such numbers as texts."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line, whichever kind of file it is from."""

    url: str | None = None
    key: str | None = None
    kind: KindName = "page"
    state: StateName = "pending"
    depth: int = 0
    priority: int = 0
    discovered_by: DiscoveryName = "import"
    due_at: str | None = None
    due_in_ms: int = 0
    metadata: dict[str, Any] | None = None
    discovered: Wrapped | None = None
    known: Wrapped | None = None


class Found(NamedTuple):
    """What a line says."""

    item: Discovered
    is_done: bool


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
        results = await _stored(call, found)
        for number, result in zip(numbers, results, strict=True):
            totals[result.outcome] += 1
            if result.outcome is Added.REJECTED:
                _tell(refusals, number, _reason(result))
    return ImportAnswer(
        new=totals[Added.NEW], known=totals[Added.KNOWN], rejected=totals[Added.REJECTED], refusals=refusals
    )


async def _stored(call: Call, found: list[Found]) -> list[AddResult]:
    """Add what is new, and have done what is done; until it is, nobody is to fetch it."""
    results = await call.backend.add(call.crawl, [each.item for each in found])
    done = [
        KnownUrl(url=each.item.url, due_at=None, key=each.item.key, metadata=each.item.metadata)
        for each, result in zip(found, results, strict=True)
        if each.is_done and result.outcome is Added.NEW
    ]
    if done:
        await call.backend.stores.urls.put_known(call.crawl, done)
    return results


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


def read_line(text: bytes, now: int) -> Found:
    """Read a line, or raise `Refused`."""
    try:
        line = msgspec.json.decode(text, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(str(error)) from None
    wrapped = line.discovered or line.known
    if wrapped is not None:
        return _of_urlfrontier(wrapped, now, is_known=line.known is not None)
    if line.url is None:
        raise Refused("it has no url")
    if line.kind == "robots":
        raise Refused("robots.txt is fetched anew wherever it is needed")
    is_done = line.state == "completed"
    due_in_ms = line.due_in_ms if line.due_at is None else max(_moment(line.due_at) - now, 0)
    item = Discovered(
        url=line.url,
        depth=line.depth,
        priority=line.priority,
        key=line.key,
        kind=KINDS[line.kind],
        due_in_ms=DONE_SOON_MS if is_done else due_in_ms,
        discovery_type=DISCOVERIES[line.discovered_by],
        metadata=line.metadata,
    )
    return Found(item, is_done)


def _of_urlfrontier(wrapped: Wrapped, now: int, *, is_known: bool) -> Found:
    try:
        due = int(wrapped.refetchable_from_date) * 1000
    except ValueError:
        raise Refused("refetchableFromDate is not a number") from None
    info, is_done = wrapped.info, is_known and due == 0
    item = Discovered(
        url=info.url,
        key=info.key or None,
        metadata=info.metadata or None,
        due_in_ms=DONE_SOON_MS if is_done else (max(due - now, 0) if is_known else 0),
        discovery_type=DiscoveryType.IMPORT,
    )
    return Found(item, is_done)


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(f"{text[:100]!r} is not a moment") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


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
