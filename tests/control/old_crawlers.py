"""What other crawlers leave behind: a crawl log with provenance, the folder of a Scrapy job."""

import json
import marshal
import pickle
import sqlite3
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import asyncpg

LENGTH = struct.Struct(">L")

CRAWL_LOG = "CREATE TABLE crawl_log (id integer PRIMARY KEY, domain text, page_url text, status {status}, "
CRAWL_LOG += "images_found integer, crawled_at {moment})"
PROVENANCE = "CREATE TABLE provenance (id integer PRIMARY KEY, image_id text, source_domain text)"

Page = tuple[str | None, Any, int | None, str | None]
Image = tuple[str | None, str | None]

PAGES: Sequence[Page] = (
    ("www.Good.example", 200, 3, "2026-01-02 03:04:05+00:00"),
    ("good.example", 200, 1, "2026-01-04 00:00:00+00:00"),
    ("good.example:443", 404, None, "2026-01-01 00:00:00+00:00"),
    ("bad.example", 503, 0, "2026-01-01 00:00:00+00:00"),
    ("bad.example.", 200, 0, None),
    ("bad.example", 500, 0, None),
    ("münchen.example", None, 0, None),
)
IMAGES: Sequence[Image] = (
    ("one", "good.example"),
    ("one", "WWW.good.example"),
    ("two", "good.example"),
    ("three", "pictures.example"),
)


def sqlite_log(path: Path, pages: Sequence[Page] = PAGES, images: Sequence[Image] = IMAGES) -> str:
    """Make an SQLite file with both tables; give its DSN."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(CRAWL_LOG.format(status="integer", moment="text"))
        connection.execute(PROVENANCE)
        add_pages(connection, pages)
        connection.executemany("INSERT INTO provenance (image_id, source_domain) VALUES (?, ?)", images)
    connection.close()
    return f"sqlite:///{path}"


def add_pages(connection: sqlite3.Connection, pages: Sequence[Page]) -> None:
    """Log some more pages."""
    statement = "INSERT INTO crawl_log (domain, status, images_found, crawled_at) VALUES (?, ?, ?, ?)"
    connection.executemany(statement, pages)


async def postgres_log(dsn: str, pages: Sequence[Page] = PAGES, images: Sequence[Image] = IMAGES) -> str:
    """Make both tables in an empty database; give its DSN."""
    server = await asyncpg.connect(dsn)
    await server.execute(CRAWL_LOG.format(status="integer", moment="timestamptz"))
    await server.execute(PROVENANCE)
    await server.executemany(
        "INSERT INTO crawl_log VALUES ($1, $2, NULL, $3, $4, $5::text::timestamptz)",
        [(number, *page) for number, page in enumerate(pages)],
    )
    await server.executemany(
        "INSERT INTO provenance VALUES ($1, $2, $3)", [(number, *image) for number, image in enumerate(images)]
    )
    await server.close()
    return dsn


def request(url: str, **more: Any) -> dict[str, Any]:
    """Write a request as Scrapy keeps it."""
    return {
        "url": url, "callback": "parse", "errback": None, "headers": {b"Accept": [b"*/*"]}, "method": "GET",
        "body": b"", "cookies": {}, "meta": {"depth": 2}, "encoding": "utf-8", "priority": 0, "dont_filter": False,
        "flags": [], "cb_kwargs": {}, **more,
    }  # fmt: skip


def pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=4)


def stack(path: Path, records: Sequence[bytes]) -> None:
    """Write what queuelib's stack on disk is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(LENGTH.pack(len(records)) + b"".join(each + LENGTH.pack(len(each)) for each in records))


def queue(folder: Path, records: Sequence[bytes], given_out: int = 0, chunk: int = 3) -> None:
    """Write what queuelib's queue on disk is, several files, the first records of which were given out."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [LENGTH.pack(len(each)) + each for each in records]
    for start in range(0, len(records), chunk):
        (folder / f"q{start // chunk:05d}").write_bytes(b"".join(written[start : start + chunk]))
    file, place = divmod(given_out, chunk)
    for gone in range(file):
        (folder / f"q{gone:05d}").unlink()
    offset = sum(map(len, written[file * chunk : given_out]))
    info = {"chunksize": chunk, "size": len(records) - given_out, "tail": [file, place, offset], "head": [9, 9]}
    (folder / "info.json").write_text(json.dumps(info))


def scrapy_job(folder: Path, urls: Sequence[str], dump: Callable[[Any], bytes] = pickled) -> str:
    """Make the folder of a job that has these URLs to fetch, the last of them first."""
    stack(folder / "requests.queue" / "0", [dump(request(url)) for url in urls])
    (folder / "requests.seen").write_text("0123456789abcdef\n" * len(urls))
    return str(folder)


def marshalled(value: Any) -> bytes:
    return marshal.dumps(value)
