"""The crawl's results as JSON lines: one object per page, in the order of the store's ids.

The file itself says how far it goes: whoever appends to it first cuts off what a kill left half written and goes on
after the last whole line. So nothing has to be kept in step with it.
"""

import mmap
import os
import re
import select
import stat
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, Self

import msgspec

from outrider.crawler.file_lock import LockedFile, told
from outrider.model.errors import InvalidInput, StoreNotOurs, shown

STANDARD_OUTPUT = "-"

OLD: Final = ".old"
"""What the name of a file ends with that was set aside."""

_BEGINNING_OF_A_LINE: Final = (
    (b'{"id":', re.compile(rb"\d*")),
    (b',"url":"', re.compile(rb'(?:[^"\\]|\\.)*\\?', re.DOTALL)),
    (b'","status":', re.compile(rb"\d*")),
    (b',"depth":', re.compile(rb".*", re.DOTALL)),
)
"""The first keys and the form of their values."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MOMENT_MS: Final = 253_402_300_799_999
_ENOUGH: Final = 100_000
"""Bytes of a torn first line that are looked at: more than these keys ever take."""


class PageLine(msgspec.Struct, frozen=True, kw_only=True):
    """One page as it stands in the file; the keys come in this order and none is left out."""

    id: int
    """The store's, above 0 and growing."""
    url: str
    status: int
    depth: int
    title: str | None
    links: int
    images: int
    digest: str | None
    fetched_at: str | None
    """As `utc_text` writes it."""
    content_type: str | None
    elapsed_ms: int | None
    redirects: tuple[str, ...]
    """The URLs that led here, the first one first."""
    noindex: bool
    """The page asks not to be shown in search results."""
    warc_file: str | None
    warc_offset: int | None


class _Head(msgspec.Struct, frozen=True):
    """What has to be in a line for it to be one of ours."""

    id: Annotated[int, msgspec.Meta(ge=1)]
    url: str
    status: int


_BEGINNING = _Head(0, "", 0)
_ENCODER: Final = msgspec.json.Encoder()


class PageLines:
    """The open file, which belongs to this process until it is closed.

    Pipes, terminals and standard output (`-`) can be written too; they have no end to go on from, so `last_id` starts
    at 0 there.
    """

    def __init__(self, file: "LockedFile | _Stream", last: _Head, whole: int = 0) -> None:
        self._file = file
        self._whole = whole
        """Where the last whole line ends; what lies beyond stays until there is something to write."""
        self.last_id = last.id
        """The id of the last line in the file, 0 where there is none."""
        self.last_url = last.url

    @classmethod
    def try_open(cls, path: Path | str) -> Self | None:
        """Open the file, or make it; answer None while another process has it.

        Raises `StoreNotOurs`, and leaves the file alone, where its lines are not those of a crawl.
        """
        if str(path) == STANDARD_OUTPUT:
            return cls(_Stream("standard output", sys.stdout.fileno(), owned=False), _BEGINNING)
        path = Path(path)
        with told(path):
            if path.exists() and not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
                return cls(_Stream(str(path), os.open(path, os.O_WRONLY), owned=True), _BEGINNING)
            file = LockedFile.try_open(path, os.O_CREAT)
        if file is None:
            return None
        try:
            whole, last = _last_line(file)
        except BaseException:
            file.close()
            raise
        return cls(file, last, whole)

    def append(self, lines: Sequence[PageLine]) -> int:
        """Write the lines whose ids come after `last_id` and return how many those were.

        The others are in the file already, so that a batch may be given twice. Either all are written or, where this
        raises, none: `StoreFull` when there is no room.
        """
        fresh = [line for line in lines if line.id > self.last_id]
        if not fresh:
            return 0
        if any(later.id <= line.id for line, later in pairwise(fresh)):
            raise InvalidInput(
                f"lines must come in the order of their ids, not as {shown([line.id for line in fresh])}"
            )
        data = encoded(fresh)
        if isinstance(self._file, LockedFile):
            if self._whole < self._file.size:
                self._file.cut(self._whole)
            self._file.append(data)
            self._whole = self._file.size
        else:
            self._file.append(data)
        self.last_id, self.last_url = fresh[-1].id, fresh[-1].url
        return len(fresh)

    def set_aside(self) -> None:
        """Rename the file to one with `.old` at its end, in the place of an older such one, and let go of it."""
        if isinstance(self._file, LockedFile):
            path = self._file.path
            with told(path):
                path.replace(path.with_name(path.name + OLD))
        self.close()

    def close(self) -> None:
        """Make the file outlast a loss of power and let others have it; closing again does nothing."""
        try:
            self._file.sync()
        finally:
            self._file.close()


def encoded(lines: Sequence[PageLine]) -> bytes:
    """Write lines as they stand in a file, each with its end."""
    try:
        return _ENCODER.encode_lines(lines)
    except UnicodeEncodeError:  # halves of surrogate pairs, which headers in no known encoding bring along
        return _ENCODER.encode_lines([_encodable(line) for line in lines])


def utc_text(milliseconds: int) -> str:
    """Write a moment as ISO 8601 has it, in UTC; what lies beyond the calendar is its last moment.

    >>> utc_text(1_763_224_245_120), utc_text(1 << 62)
    ('2025-11-15T16:30:45.120Z', '9999-12-31T23:59:59.999Z')
    """
    moment = _EPOCH + timedelta(milliseconds=min(milliseconds, _LAST_MOMENT_MS))
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


class _Stream:
    """Something that can be written and nothing else: no lock, no size, nothing to cut."""

    def __init__(self, name: str, descriptor: int, *, owned: bool) -> None:
        self._name = name
        self._descriptor = descriptor
        self._owned = owned

    def append(self, data: bytes) -> None:
        rest = memoryview(data)
        with told(self._name):
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:  # an event loop may have made it non-blocking
                    select.select([], [self._descriptor], [])

    def sync(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        if self._owned:
            self._owned = False
            os.close(self._descriptor)


def _last_line(file: LockedFile) -> tuple[int, _Head]:
    """Where the last whole line ends, and how it begins.

    Reads the first line and the tail only, whatever the size. Lines are lost from the end alone, and all that follows
    the last whole one is written again from the store: cutting is safe once the file is known to be ours.
    """
    if file.size == 0:
        return 0, _BEGINNING
    with told(file.path), mmap.mmap(file.descriptor, 0, prot=mmap.PROT_READ) as text:
        _check_ours(file.path, text)
        end = text.rfind(b"\n") + 1
        while end:
            start = text.rfind(b"\n", 0, end - 1) + 1
            try:
                return end, msgspec.json.decode(text[start:end], type=_Head)
            except msgspec.ValidationError as error:
                raise _not_ours(file.path, text[start:end]) from error
            except (msgspec.DecodeError, UnicodeDecodeError):
                end = start
    return 0, _BEGINNING


def _check_ours(path: Path, text: mmap.mmap) -> None:
    end = text.find(b"\n")
    if end >= 0:
        try:
            msgspec.json.decode(text[:end], type=_Head)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _not_ours(path, text[:end]) from error
    elif not _begins_a_line(text[:_ENOUGH]):
        raise _not_ours(path, text[:1000])


def _begins_a_line(text: bytes) -> bool:
    """Tell whether a line of ours could go on from this."""
    for key, value in _BEGINNING_OF_A_LINE:
        if key.startswith(text):
            return True
        form = value.match(text, len(key))
        if not text.startswith(key) or form is None:
            return False
        text = text[form.end() :]
    return True


def _not_ours(path: Path, line: bytes) -> StoreNotOurs:
    return StoreNotOurs(
        f"{path} was not written by a crawl: it has a line that is not a JSON object with the id, url and status of "
        f"a page, {shown(line)}; name another file"
    )


def _encodable(line: PageLine) -> PageLine:
    """Put a question mark for what UTF-8 cannot say."""
    texts = {
        name: value.encode(errors="replace").decode()
        for name in line.__struct_fields__
        if isinstance(value := getattr(line, name), str)
    }
    redirects = tuple(url.encode(errors="replace").decode() for url in line.redirects)
    return msgspec.structs.replace(line, redirects=redirects, **texts)
