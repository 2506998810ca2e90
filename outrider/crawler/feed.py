"""Feeds: the entries of RSS 2.0, RSS 1.0 and Atom."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import can_ada
import msgspec

from outrider.crawler.markup import Record, RecordReader, absolute, base_of, unpacked

MAX_FEED_BYTES: Final = 50 * 1024 * 1024

ENTRY_NAMES: Final = frozenset({"item", "entry"})
ENTRY_FIELDS: Final = frozenset({"link", "guid", "id", "pubDate", "published", "updated", "date", "dc:date"})
FEED_ROOTS: Final = frozenset({"rss", "RDF", "feed"})
_DATE_FIELDS = ("updated", "pubDate", "published", "dc:date", "date")
_FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/feed+xml"})
_SNIFFED_BYTES = 1_024


class FeedEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry of a feed."""

    url: str
    changed_ms: int | None = None


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """What a feed lists."""

    entries: list[FeedEntry] = []
    truncated: bool = False
    """There were more entries than asked for."""
    fault: str | None = None
    """What is wrong with the document; the entries stand before it."""


def is_feed(content_type: str | None, body: bytes) -> bool:
    """Tell whether a body is a feed, by its type or, since many are served as plain XML, by its first element."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type in _FEED_TYPES:
        return True
    if media_type not in ("", "text/xml", "application/xml", "text/plain"):
        return False
    start = body[:_SNIFFED_BYTES]
    return any(mark in start for mark in (b"<rss", b"<rdf:RDF", b"<feed"))


def read_feed(body: bytes, *, url: str, most: int = 10_000) -> Feed:
    """Read the entries of a feed; never raises.

    Where an entry has several links, the one that Atom calls `alternate` counts; a `guid` that is a
    permanent link stands in for one that is missing.
    """
    reader = RecordReader(ENTRY_NAMES, ENTRY_FIELDS)
    entries: list[FeedEntry] = []
    base = base_of(url)
    for record in reader.read(unpacked(body, MAX_FEED_BYTES)):
        entry = entry_of(record, base)
        if entry is None:
            continue
        if len(entries) >= most:
            return Feed(entries=entries, truncated=True)
        entries.append(entry)
    if reader.fault is None and reader.root not in FEED_ROOTS:
        return Feed(fault=f"the document is a {reader.root}, not a feed")
    return Feed(entries=entries, fault=reader.fault)


def entry_of(record: Record, base: can_ada.URL | None) -> FeedEntry | None:
    """Read one entry; None if it leads nowhere that can be fetched."""
    link = _link_of(record)
    url = absolute(link, base) if link else None
    if url is None:
        return None
    dates = {field.name: field.text for field in record.fields if field.name in _DATE_FIELDS}
    written = next((dates[name] for name in _DATE_FIELDS if dates.get(name)), None)
    return FeedEntry(url=url, changed_ms=None if written is None else moment_of(written))


def _link_of(record: Record) -> str | None:
    fallback = None
    for name, text, attributes in record.fields:
        if name == "link":
            if attributes.get("rel", "alternate") == "alternate" and (link := attributes.get("href") or text):
                return link
        elif name == "id" or (name == "guid" and attributes.get("isPermaLink", "true") == "true"):
            fallback = fallback or text
    return fallback if fallback and fallback.startswith(("http://", "https://")) else None


def moment_of(written: str) -> int | None:
    """Read a date as feeds and sitemaps write it, in milliseconds since 1970; None if it is none.

    >>> moment_of("2026-01"), moment_of("Thu, 01 Jan 1970 00:00:01 GMT"), moment_of("soon")
    (1767225600000, 1000, None)
    """
    try:
        moment = _read_date(written.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        milliseconds = int(moment.timestamp() * 1_000)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
    return milliseconds if milliseconds >= 0 else None


def _read_date(written: str) -> datetime:
    match len(written):
        case 4:
            written += "-01-01"
        case 7:
            written += "-01"
    try:
        return datetime.fromisoformat(written)
    except ValueError:
        return parsedate_to_datetime(written)
