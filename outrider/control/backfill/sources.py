"""Recognising a source: a database, a folder of Scrapy, or a file, by what it begins with."""

from pathlib import Path
from typing import Final

import msgspec

from outrider.control.backfill.columns import ColumnMap
from outrider.control.backfill.databases import PostgresSource, SqliteSource
from outrider.control.backfill.files import CsvFile, JsonLines, beginning
from outrider.control.backfill.rows import RowSource
from outrider.control.backfill.scrapy import QUEUES, ScrapyJob
from outrider.control.backfill.urlfrontier import UrlFrontierDump
from outrider.model.errors import InvalidInput
from outrider.store.dsn import SqliteDsn, parse_dsn

SQLITE_MAGIC: Final = b"SQLite format 3\0"
ARCHIVES: Final = {
    b"PK\x03\x04": "a ZIP archive",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"BZh": "compressed with bzip2",
}


def recognise(text: str, mapping: ColumnMap) -> RowSource | ScrapyJob | UrlFrontierDump:
    """Open what `--from` names, or say why it cannot be read."""
    if "://" in text or text.startswith("sqlite:"):
        dsn = parse_dsn(text)
        return SqliteSource(dsn, mapping) if isinstance(dsn, SqliteDsn) else PostgresSource(dsn, mapping)
    path = Path(text).absolute()
    if path.is_dir():
        return _folder(path, mapping)
    if not path.exists():
        raise InvalidInput(f"there is no {text}: name a file, the folder of a Scrapy job, or a database's DSN")
    start = beginning(path)
    for magic, what in ARCHIVES.items():
        if start.startswith(magic):
            raise InvalidInput(f"cannot read {text}: it is {what}, unpack it first")
    if start.startswith(SQLITE_MAGIC):
        return SqliteSource(SqliteDsn(path=str(path)), mapping)
    first = start.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0].strip()
    if first.startswith(b"{") and not _is_item(first):
        return JsonLines(path, mapping)
    if first.startswith((b"{", b"http://", b"https://")):
        _refuse_map(mapping, text)
        return UrlFrontierDump(path)
    if not first:
        raise InvalidInput(f"{text} is empty")
    return CsvFile(path, mapping)


def _folder(path: Path, mapping: ColumnMap) -> ScrapyJob:
    folder = path.parent if path.name == QUEUES else path
    if not (folder / QUEUES).is_dir():
        raise InvalidInput(f"{path} is no folder of a Scrapy job: it has no {QUEUES}")
    _refuse_map(mapping, str(path))
    return ScrapyJob(folder)


def _refuse_map(mapping: ColumnMap, text: str) -> None:
    if mapping.tables or mapping.columns:
        raise InvalidInput(f"--map is for tables and columns, and {text} has none: it is a list of URLs")


def _is_item(line: bytes) -> bool:
    """Tell an item of URLFrontier from a row."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(found, dict) and any(isinstance(found.get(name), dict) for name in ("known", "discovered"))
