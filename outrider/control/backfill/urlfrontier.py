"""The dump of a URLFrontier: JSON lines, bare URLs, or URLs with the date from which they may be fetched."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import xxhash

from outrider.control.backfill.files import MAX_LINE_BYTES, LinePosition, beginning
from outrider.control.backfill.urls import UrlRecord
from outrider.model.backfill import BackfillKind
from outrider.model.batch import priority_of
from outrider.model.errors import shown
from outrider.model.machines import TaskState
from outrider.model.task import DiscoveryType, Restored
from outrider.store.checks import END_OF_TIME_MS

_WITH_DATE: Final = re.compile(r"(\S+);([0-9]{1,18})", re.ASCII)


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """A URL as URLFrontier's JSON has it."""

    url: str
    key: str | None = None
    metadata: dict[str, Any] | None = None


class Wrapped(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A discovered or known item. JSON of protobuf writes long numbers as texts."""

    info: Info
    refetchable_from_date: int | str = 0
    """Seconds since 1970, or 0 where it is done for good."""


class Item(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of a dump."""

    discovered: Wrapped | None = None
    known: Wrapped | None = None
    creation_date: int | str = 0


class UrlFrontierDump:
    """The URLs of a dump, whatever crawl they were of."""

    kind = BackfillKind.URLFRONTIER

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    @property
    def identity(self) -> str:
        """Its beginning: another file may have taken its place since."""
        return xxhash.xxh3_64_hexdigest(beginning(self._path))

    def remarks(self) -> list[str]:
        """Have nothing to add."""
        return []

    def records(self, position: str | None) -> Iterator[UrlRecord]:
        """Read the lines from a position on."""
        now = time.time_ns() // 1_000_000
        lines = LinePosition(self._path, position)
        for number, line in lines:
            if line is None:
                found: Restored | str = f"the line has {MAX_LINE_BYTES} bytes or more"
            elif not line.strip():
                continue
            else:
                found = read_line(line, now)
            yield UrlRecord(f"line {number}", found, str(lines))


def read_line(line: bytes, now: int) -> Restored | str:
    """Read one line, or say what is wrong with it."""
    text = line.decode("utf-8", "surrogateescape").strip()
    if not text.startswith("{"):
        dated = _WITH_DATE.fullmatch(text)
        return _restored(text, None, now) if dated is None else _restored(dated[1], int(dated[2]), now)
    try:
        item = msgspec.json.decode(line, type=Item)
        created = _whole(item.creation_date)
        if item.known is not None:
            info = item.known.info
            return _restored(info.url, _whole(item.known.refetchable_from_date), now, created=created, info=info)
        if item.discovered is not None:
            return _restored(item.discovered.info.url, None, now, created=created, info=item.discovered.info)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        return f"not an item of URLFrontier: {error}"
    return "neither a known nor a discovered URL"


def _restored(url: str, date: int | None, now: int, *, created: int = 0, info: Info | None = None) -> Restored:
    """Make a task as the service of URLFrontier would: what is known has a date, and dates are priorities."""
    due_at = now if not date else min(date * 1000, END_OF_TIME_MS - 1)
    return Restored(
        url=url,
        key=None if info is None else info.key or None,
        metadata=None if info is None else _lists(info.metadata),
        state=TaskState.COMPLETED if date == 0 else TaskState.PENDING,
        due_at=due_at,
        priority=priority_of(due_at),
        discovered_at=min(created * 1000, END_OF_TIME_MS - 1) or None,
        discovery_type=DiscoveryType.IMPORT,
    )


def _lists(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """Unwrap lists of texts, each of which is a message of its own in JSON of protobuf."""
    return {
        name: value.get("values", []) if isinstance(value, dict) and value.keys() <= {"values"} else value
        for name, value in (metadata or {}).items()
    } or None


def _whole(number: int | str) -> int:
    whole = int(number)
    if whole < 0:
        raise ValueError(f"{shown(number)} is no number of seconds since 1970")
    return whole
