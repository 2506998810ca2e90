"""Files of rows: CSV with a line of names, and JSON lines; plain or compressed with gzip."""

import csv
import gzip
import io
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec
import xxhash

from outrider.control.backfill.columns import ColumnMap, Part, layout, part_of
from outrider.control.backfill.rows import RowBatch
from outrider.model.errors import InvalidInput, shown

MAX_LINE_BYTES: Final = 1 << 20
BEGINNING_BYTES: Final = 1 << 16
GZIP_MAGIC: Final = b"\x1f\x8b"
DELIMITERS: Final = (",", ";", "\t", "|")


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading, unpacked where it is compressed with gzip."""
    try:
        file = path.open("rb")
        if file.read(2) == GZIP_MAGIC:
            file.close()
            return cast(BinaryIO, gzip.open(path, "rb"))
        file.seek(0)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}") from None
    return file


def beginning(path: Path, most: int = BEGINNING_BYTES) -> bytes:
    """Read what a file begins with."""
    with open_plain(path) as file:
        try:
            return file.read(most)
        except (OSError, EOFError) as error:
            raise InvalidInput(f"cannot read {path}: {error}") from None


class LinePosition:
    """Lines of a file, each with its number; keeps where the next one begins.

    A line that is too long is given as None.
    """

    def __init__(self, path: Path, position: str | None) -> None:
        self._path = path
        self.offset, self.number = (int(each) for each in (position or "0:0").split(":"))

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        with open_plain(self._path) as file:
            try:
                file.seek(self.offset)
                while line := file.readline(MAX_LINE_BYTES):
                    self.offset += len(line)
                    self.number += 1
                    too_long = len(line) == MAX_LINE_BYTES and not line.endswith(b"\n")
                    while too_long and (rest := file.readline(MAX_LINE_BYTES)):
                        self.offset += len(rest)
                        if rest.endswith(b"\n"):
                            break
                    yield self.number, None if too_long else line
            except (OSError, EOFError) as error:
                raise InvalidInput(f"cannot read {self._path} any further: {error}") from None

    def __str__(self) -> str:
        return f"{self.offset}:{self.number}"


class RowFile:
    """A file whose rows are all about one thing."""

    def __init__(self, path: Path, mapping: ColumnMap) -> None:
        self.name = str(path)
        self._path = path
        self._mapping = mapping

    @property
    def identity(self) -> str:
        """Its beginning: another file may have taken its place since."""
        return xxhash.xxh3_128_hexdigest(beginning(self._path))

    async def parts(self) -> list[Part]:
        """Tell by the columns what the rows are about."""
        part = part_of(self._columns(), self._mapping, self.name)
        layout(part, self._columns(), self._mapping, self.name)
        return [part]

    async def close(self) -> None:
        """Nothing stays open between two batches of a file."""

    def _columns(self) -> list[str]:
        raise NotImplementedError

    async def batches(self, part: Part, position: str | None, size: int) -> AsyncIterator[RowBatch]:
        """Read rows from a position on."""
        columns = layout(part, self._columns(), self._mapping, self.name)
        batch: list[tuple[str, Mapping[str, Any] | str]] = []
        reached = position or ""
        for number, row, reached in self._rows(position):
            values = row if isinstance(row, str) else {field: row.get(name) for field, name in columns.items()}
            batch.append((f"line {number}", values))
            if len(batch) == size:
                yield RowBatch(batch, reached)
                batch = []
        if batch:
            yield RowBatch(batch, reached)

    def _rows(self, position: str | None) -> Iterator[tuple[int, dict[str, Any] | str, str]]:
        raise NotImplementedError


class JsonLines(RowFile):
    """One JSON object per line; the first one names the columns."""

    def _columns(self) -> list[str]:
        for _, row, _ in self._rows(None):
            if isinstance(row, dict):
                return list(row)
        raise InvalidInput(f"{self.name} has no JSON object in any line")

    def _rows(self, position: str | None) -> Iterator[tuple[int, dict[str, Any] | str, str]]:
        lines = LinePosition(self._path, position)
        for number, line in lines:
            if line is None:
                yield number, f"the line has {MAX_LINE_BYTES} bytes or more", str(lines)
            elif line.strip():
                yield number, _object_of(line), str(lines)


def _object_of(line: bytes) -> dict[str, Any] | str:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"not JSON: {error}"
    return found if isinstance(found, dict) else f"not a JSON object: {shown(found)}"


class CsvFile(RowFile):
    """Comma-separated values, or separated by semicolons, tabs or bars, below a line of names.

    A quoted value may run over several lines, so that a position is a number of rows: to go on, those before it are
    read once more and left out.
    """

    def _columns(self) -> list[str]:
        with self._text() as text:
            names: list[str] = next(self._reader(text), [])
        return [name.strip() for name in names]

    def _text(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(open_plain(self._path), encoding="utf-8-sig", errors="surrogateescape", newline="")

    def _reader(self, text: io.TextIOWrapper) -> Any:
        header = beginning(self._path).split(b"\n", 1)[0].decode("utf-8-sig", "replace")
        csv.field_size_limit(MAX_LINE_BYTES)
        return csv.reader(text, delimiter=max(DELIMITERS, key=header.count))

    def _rows(self, position: str | None) -> Iterator[tuple[int, dict[str, Any] | str, str]]:
        names, done = self._columns(), int(position or 0)
        with self._text() as text:
            reader = self._reader(text)
            next(reader, None)
            for number, row in enumerate(self._records(reader), start=1):
                if number <= done or row == []:
                    continue
                if isinstance(row, list) and len(row) == len(names):
                    yield reader.line_num, dict(zip(names, row, strict=True)), str(number)
                elif isinstance(row, list):
                    problem = f"the row has {len(row)} values, the line of names {len(names)}"
                    yield reader.line_num, problem, str(number)
                else:
                    yield reader.line_num, row, str(number)

    def _records(self, reader: Any) -> Iterator[list[str] | str]:
        """Give rows, or why one cannot be read."""
        while True:
            try:
                yield next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield f"not CSV: {error}"
            except (OSError, EOFError) as error:
                raise InvalidInput(f"cannot read {self.name} any further: {error}") from None
