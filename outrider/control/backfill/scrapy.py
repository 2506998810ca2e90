"""The folder of a Scrapy job: the requests that it still has to make.

    JOBDIR/requests.seen                    fingerprints of all requests, from which no URL can be told
    JOBDIR/requests.queue/0                 a stack: each record with its length behind it
    JOBDIR/requests.queue/-5s/q00000        a queue: each record with its length in front of it
    JOBDIR/requests.queue/example.org-…/0   the same, once for each download slot

A stack is read from its end, where the next request is. What a queue has given out already stays in its first file, up
to an offset that `info.json` has; a job that was killed has not written it, and then all of the queue is read.
"""

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import xxhash

from outrider.control.backfill.plain_data import NotPlain, read_plain
from outrider.control.backfill.urls import UrlRecord
from outrider.model.backfill import BackfillKind
from outrider.model.errors import InvalidInput, shown
from outrider.model.task import MAX_PRIORITY, DiscoveryType, Restored

QUEUES: Final = "requests.queue"
SEEN: Final = "requests.seen"
LENGTH: Final = struct.Struct(">L")
MAX_RECORD_BYTES: Final = 16 << 20
USUAL_PRIORITY: Final = 500
"""The priority of a request that Scrapy gave 0: there they may be negative, and here not."""

_QUEUE_FILE = re.compile(r"q[0-9]{5,9}", re.ASCII)


class QueueInfo(msgspec.Struct, frozen=True):
    """What a queue of several files says of itself."""

    tail: tuple[int, int, int] = (0, 0, 0)
    """The file that is read from, how many of its records were, and where the next one begins."""


class ScrapyJob:
    """The requests of a JOBDIR."""

    kind = BackfillKind.SCRAPY

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self._folder = folder
        self._seen = folder / SEEN

    @property
    def identity(self) -> str:
        """Its files: a job that has run since has other ones."""
        found = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in self._files()]
        return xxhash.xxh3_64_hexdigest(repr(found).encode("utf-8", "surrogateescape"))

    def remarks(self) -> list[str]:
        """Tell what the job had seen, of which no URL is left."""
        if not self._seen.is_file():
            return []
        with self._seen.open("rb") as lines:
            number = sum(1 for _ in lines)
        return [f"{SEEN} has {number:,} fingerprints, from which no URL can be told"] if number else []

    def records(self, position: str | None) -> Iterator[UrlRecord]:
        """Read the requests, file by file; a position is the number of records before it."""
        number, done = 0, int(position or 0)
        for path in self._files():
            place = str(path.relative_to(self._folder))
            for data in _queue(path) if _QUEUE_FILE.fullmatch(path.name) else _stack(path):
                number += 1
                if number > done:
                    found = data if isinstance(data, str) else request_of(data)
                    yield UrlRecord(f"{place}, record {number}", found, str(number))

    def _files(self) -> list[Path]:
        """List the files of all queues, in an order that stays the same."""
        root = self._folder / QUEUES
        found = [path for path in root.rglob("*") if path.is_file() and not path.name.endswith(".json")]
        return sorted(found, key=lambda path: path.relative_to(root).parts)


def _queue(path: Path) -> Iterator[bytes | str]:
    """Read the records of one file of a queue, without those that were given out."""
    try:
        about = path.parent / "info.json"
        info = msgspec.json.decode(about.read_bytes(), type=QueueInfo) if about.exists() else QueueInfo()
        first, _, offset = info.tail
        number = int(path.name.removeprefix("q"))
    except (OSError, ValueError, msgspec.DecodeError) as error:
        yield f"cannot read info.json: {error}"
        return
    if number < first:
        return
    with _opened(path) as file:
        file.seek(offset if number == first else 0)
        while head := file.read(LENGTH.size):
            size = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else 0
            data = file.read(size) if size <= MAX_RECORD_BYTES else b""
            if not size or len(data) != size:
                yield "the file ends in the middle of a record"
                return
            yield data


def _stack(path: Path) -> Iterator[bytes | str]:
    """Read the records of a stack from its end, whatever its own count: a killed job has not written it."""
    with _opened(path) as file:
        end = file.seek(0, os.SEEK_END)
        while end > LENGTH.size:
            if end < 3 * LENGTH.size:
                yield "the file begins in the middle of a record"
                return
            file.seek(end - LENGTH.size)
            (size,) = LENGTH.unpack(file.read(LENGTH.size))
            begin = end - LENGTH.size - size
            if begin < LENGTH.size or not 0 < size <= MAX_RECORD_BYTES:
                yield f"{end - LENGTH.size:,} bytes that are no records, as a job leaves them that was killed"
                return
            file.seek(begin)
            yield file.read(size)
            end = begin


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}") from None


def request_of(data: bytes) -> Restored | str:
    """Read one request, or say why it is none that can be crawled."""
    try:
        request = read_plain(data)
    except NotPlain as problem:
        return str(problem)
    if not isinstance(request, dict):
        return f"not a request: {shown(request)}"
    request = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in request.items()}
    url, method, meta = request.get("url"), _text(request.get("method", "GET")), request.get("meta")
    if not isinstance(_text(url), str):
        return f"a request without a URL: {shown(url)}"
    if method != "GET":
        return f"a request with the method {shown(method)}: only GET is crawled"
    return Restored(
        url=str(_text(url)),
        depth=_number(meta.get("depth") if isinstance(meta, dict) else 0, 0),
        priority=_number(USUAL_PRIORITY + _number(request.get("priority"), -MAX_PRIORITY), 0),
        discovery_type=DiscoveryType.IMPORT,
    )


def _text(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _number(value: object, low: int) -> int:
    return max(low, min(value, MAX_PRIORITY)) if type(value) is int else 0
