"""Markup of strangers, made harmless before anything is built from it.

`RecordReader` reads the XML of sitemaps and feeds as a stream, without entities of its own. `thinned` cuts HTML
down to the tags that are read. Both use memory in proportion to what they keep, never to what the markup
could be made to mean.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from xml.parsers import expat

import can_ada

from outrider.model.url import MAX_URL_BYTES

CHUNK_BYTES: Final = 65_536
MAX_FIELD_CHARACTERS: Final = 16_384
MAX_LEVELS: Final = 100
MAX_NAMES: Final = 10_000
MAX_TOKEN_BYTES: Final = 1024 * 1024

_GZIP_MARK: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31


class Field(NamedTuple):
    """A child of a record: its name, its text and its attributes."""

    name: str
    text: str
    attributes: dict[str, str]


class Record(NamedTuple):
    """An element that was asked for by name, with those of its children that were asked for."""

    name: str
    fields: list[Field]


class _Refused(Exception):
    """The document has what nothing that we read needs, and what could be endless."""


class RecordReader:
    """Reads the records of one XML document, whose names count without the prefix of its root.

    A document that is broken, declares entities, or is nested, named or stretched beyond reason, gives what
    stands before the fault; `fault` then says what it was.
    """

    def __init__(self, records: frozenset[str], fields: frozenset[str]) -> None:
        self.root: str | None = None
        """The name of the outermost element, without its prefix, once it was read."""
        self.fault: str | None = None
        self._wanted_records = records
        self._wanted_fields = fields
        self._prefix = ""
        self._depth = 0
        self._record: Record | None = None
        self._record_depth = 0
        self._field: tuple[str, dict[str, str]] | None = None
        self._text: list[str] = []
        self._text_length = 0
        self._complete: list[Record] = []
        self._given = 0
        parser = self._parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._on_start
        parser.EndElementHandler = self._on_end
        parser.EntityDeclHandler = self._on_entity

    def read(self, chunks: Iterable[bytes]) -> Iterator[Record]:
        """Give the records in the order of the document, as soon as each is complete."""
        try:
            for chunk in chunks:
                self._parser.Parse(chunk, False)
                self._given += len(chunk)
                self._check_memory()
                yield from self._take()
            self._parser.Parse(b"", True)
        except (expat.ExpatError, _Refused, ValueError, LookupError) as fault:
            # The last two are for documents in a charset that expat cannot be given.
            self.fault = str(fault)
        yield from self._take()

    def _check_memory(self) -> None:
        """Refuse what expat would have to keep: every name that it has met, and a tag until it ends."""
        if len(self._parser.intern) > MAX_NAMES:
            raise _Refused(f"the document has more than {MAX_NAMES} names")
        if self._given - max(self._parser.CurrentByteIndex, 0) > MAX_TOKEN_BYTES:
            raise _Refused(f"the document has a tag of more than {MAX_TOKEN_BYTES} bytes")

    def _take(self) -> list[Record]:
        complete, self._complete = self._complete, []
        return complete

    def _on_start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_LEVELS:
            raise _Refused(f"the document is nested more than {MAX_LEVELS} levels deep")
        if self._depth == 1:
            prefix, colon, self.root = name.rpartition(":")
            # An RDF document has its own elements in the default namespace.
            self._prefix = "" if self.root == "RDF" else prefix + colon
            return
        if self._record is not None:
            if self._depth == self._record_depth + 1 and (field := self._own(name)) in self._wanted_fields:
                self._field = (field, attributes)
                self._parser.CharacterDataHandler = self._on_text
        elif (record := self._own(name)) in self._wanted_records:
            self._record = Record(record, [])
            self._record_depth = self._depth

    def _on_end(self, name: str) -> None:
        if self._record is not None:
            if self._depth == self._record_depth:
                self._complete.append(self._record)
                self._record = None
            elif self._field is not None and self._depth == self._record_depth + 1:
                field, attributes = self._field
                self._record.fields.append(Field(field, "".join(self._text).strip(), attributes))
                self._field = None
                self._text = []
                self._text_length = 0
                self._parser.CharacterDataHandler = None
        self._depth -= 1

    def _on_text(self, text: str) -> None:
        if self._text_length < MAX_FIELD_CHARACTERS:
            self._text.append(text)
            self._text_length += len(text)

    def _on_entity(self, name: str, *_: object) -> None:
        raise _Refused(f"the document declares the entity {name[:100]!r}")

    def _own(self, name: str) -> str:
        """Strip the root's prefix; a name with another one is not the document's own."""
        if not self._prefix:
            return name
        return name.removeprefix(self._prefix) if name.startswith(self._prefix) else ""


def unpacked(body: bytes, most_bytes: int) -> Iterator[bytes]:
    """Give a body in chunks, unzipped where it is gzip, at most so many bytes.

    Gzip that is broken or cut short gives what could be unzipped.
    """
    if not body.startswith(_GZIP_MARK):
        for start in range(0, min(len(body), most_bytes), CHUNK_BYTES):
            yield body[start : min(start + CHUNK_BYTES, most_bytes)]
        return
    left = most_bytes
    while left > 0 and body.startswith(_GZIP_MARK):  # a file may be several, one after the other
        member = zlib.decompressobj(_GZIP_WINDOW)
        while left > 0 and not member.eof:
            try:
                chunk = member.decompress(body, min(CHUNK_BYTES, left))
            except zlib.error:
                return
            if not chunk and not member.eof:
                return
            body = member.unconsumed_tail
            left -= len(chunk)
            yield chunk
        body = member.unused_data


def base_of(url: str) -> can_ada.URL | None:
    """Parse the URL that others are relative to; None if it is none."""
    try:
        return can_ada.parse(url)
    except (ValueError, TypeError):
        return None


def absolute(written: str, base: can_ada.URL | None) -> str | None:
    """Resolve a URL as it is written somewhere, without its fragment; None unless it is http or https."""
    if len(written) > MAX_URL_BYTES:
        return None
    try:
        url: str = (can_ada.parse(written) if base is None else base + written).href
    except (ValueError, TypeError):  # the latter for lone surrogates
        return None
    if not url.startswith(("http://", "https://")):
        return None
    return url.partition("#")[0] if "#" in url else url


_REST = r"""(?>[^>"'=]++|=\s*+(?>"[^"]*+(?>"|\Z)|'[^']*+(?>'|\Z))?+|["'])*+(?>>|\Z)"""
"""The rest of a tag after its name. Like the whole pattern it never goes back, and so takes linear time."""
_TAG = re.compile(
    rf"""<(?=[a-zA-Z!/])(?>
        (?P<kept>(?i:a|area|base|link|meta|img|source)(?=[\s/>]){_REST})
      | (?P<region>/?(?i:nav|header|footer|main|article|aside))(?=[\s/>]){_REST}
      | (?P<frame>(?i:iframe)(?=[\s/>]){_REST})(?>[^<]++|<(?!/(?i:iframe)))*+
      | (?P<title>(?i:title)(?=[\s/>])[^>]*+>[^<]*+)
      | (?i:(?P<raw>script|style|textarea|xmp|noembed|noframes|template))(?=[\s/>]){_REST}
            (?>[^<]++|<(?!/(?i:(?P=raw))))*+
      | !--(?>-?>|(?>[^-]++|-(?!-!?>))*+(?>--!?>|\Z))
      | [a-zA-Z]{_REST}
    )""",
    re.VERBOSE,
)
_MAX_TAG_CHARACTERS: Final = 12_288
"""A tag longer than this has no URL that could be fetched, but may have attributes enough to stall a parser."""


class Thinned(NamedTuple):
    """HTML with nothing left in it but the tags that are read, and how many of these did not fit."""

    text: str
    dropped: int


def thinned(text: str, *, most_tags: int, most_characters: int) -> Thinned:
    """Cut HTML down to the tags of links, images, declarations and regions, none inside another of its kind.

    The result means the same to whoever reads those tags. Comments, scripts and templates are gone.
    """
    kept: list[str] = []
    left = most_characters
    region = ""
    for match in _TAG.finditer(text):
        group = match.lastgroup
        if group is None or group == "raw":
            continue
        tag = f"<{match[group]}"
        if group == "region":
            tag, region = _region_tag(match[group].lower(), region)
        elif group == "frame":
            tag += "</iframe>"
        elif group == "title":
            tag += "</title>"
        if len(tag) > _MAX_TAG_CHARACTERS:
            tag = "<img>" if tag[:4].lower() == "<img" else ""
        if len(kept) >= most_tags or left < len(tag):
            rest = text.count("<a ", match.start()) + text.count("<A ", match.start())
            return Thinned("".join(kept), rest)
        kept.append(tag)
        left -= len(tag)
    return Thinned("".join(kept), 0)


def _region_tag(name: str, region: str) -> tuple[str, str]:
    """Let only the outermost region through, so that no page is nested deeper than one."""
    if not region and not name.startswith("/"):
        return f"<{name}>", name
    if region and name == f"/{region}":
        return f"</{region}>", ""
    return "", region
