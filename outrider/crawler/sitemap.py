"""Sitemaps: XML, plain text or a feed, zipped or not."""

from collections.abc import Iterable
from itertools import chain
from typing import Final

import can_ada
import msgspec

from outrider.crawler.charset import decode
from outrider.crawler.feed import ENTRY_FIELDS, ENTRY_NAMES, entry_of, moment_of
from outrider.crawler.markup import Record, RecordReader, absolute, base_of, unpacked

MAX_SITEMAP_BYTES: Final = 50 * 1024 * 1024
"""Unzipped; also the limit of the protocol."""
MAX_SITEMAP_ENTRIES: Final = 50_000

_RECORDS = frozenset({"url", "sitemap"}) | ENTRY_NAMES
_FIELDS = frozenset({"loc", "lastmod", "priority", "changefreq"}) | ENTRY_FIELDS
_FREQUENCIES = frozenset({"always", "hourly", "daily", "weekly", "monthly", "yearly", "never"})
_MARKUP_STARTS = (b"<", b"\xfe\xff", b"\xff\xfe")


class SitemapEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One page of a sitemap, as the site describes it; what makes no sense is left out."""

    url: str
    lastmod_ms: int | None = None
    priority: float | None = None
    changefreq: str | None = None


class Sitemap(msgspec.Struct, frozen=True, kw_only=True):
    """What a sitemap lists: pages, or other sitemaps."""

    entries: list[SitemapEntry] = []
    sitemaps: list[str] = []
    truncated: bool = False
    """There was more than asked for."""
    fault: str | None = None
    """What is wrong with the document; everything listed stands before it."""


def read_sitemap(body: bytes, *, url: str, most: int = MAX_SITEMAP_ENTRIES) -> Sitemap:
    """Read a sitemap or an index of sitemaps, at most so many entries; never raises.

    What it lists is absolute, http or https, and neither normalised nor checked against any scope. A full
    one of 50,000 entries takes half a second of computing.
    """
    chunks = unpacked(body, MAX_SITEMAP_BYTES)
    first = next(chunks, b"")
    base = base_of(url)
    # An XML declaration must come first, but many sites print a blank line before it.
    first = first.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    if first.startswith(_MARKUP_STARTS):
        return _read_markup(chain((first,), chunks), base, most)
    return _read_lines(b"".join(chain((first,), chunks)), most)


def _read_markup(chunks: Iterable[bytes], base: can_ada.URL | None, most: int) -> Sitemap:
    reader = RecordReader(_RECORDS, _FIELDS)
    entries: list[SitemapEntry] = []
    sitemaps: list[str] = []
    for record in reader.read(chunks):
        entry = _entry_of(record, base)
        if entry is None:
            continue
        if len(entries) + len(sitemaps) >= most:
            return Sitemap(entries=entries, sitemaps=sitemaps, truncated=True)
        if record.name == "sitemap":
            sitemaps.append(entry.url)
        else:
            entries.append(entry)
    return Sitemap(entries=entries, sitemaps=sitemaps, fault=reader.fault)


def _entry_of(record: Record, base: can_ada.URL | None) -> SitemapEntry | None:
    if record.name in ENTRY_NAMES:
        entry = entry_of(record, base)
        return None if entry is None else SitemapEntry(url=entry.url, lastmod_ms=entry.changed_ms)
    said = {field.name: field.text for field in record.fields}
    url = absolute(said.get("loc", ""), base) if said.get("loc") else None
    if url is None:
        return None
    lastmod = said.get("lastmod")
    frequency = said.get("changefreq", "").lower()
    return SitemapEntry(
        url=url,
        lastmod_ms=moment_of(lastmod) if lastmod else None,
        priority=_priority_of(said.get("priority")),
        changefreq=frequency if frequency in _FREQUENCIES else None,
    )


def _priority_of(written: str | None) -> float | None:
    if not written:
        return None
    try:
        priority = float(written)
    except ValueError:
        return None
    return priority if 0.0 <= priority <= 1.0 else None


def _read_lines(body: bytes, most: int) -> Sitemap:
    """Read a sitemap of one URL per line; lines that are none are passed over."""
    text, _ = decode(body)
    entries: list[SitemapEntry] = []
    for line in text.splitlines():
        if (url := absolute(line.strip(), None)) is None:
            continue
        if len(entries) >= most:
            return Sitemap(entries=entries, truncated=True)
        entries.append(SitemapEntry(url=url))
    return Sitemap(entries=entries)
