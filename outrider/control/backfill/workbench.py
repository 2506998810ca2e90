"""The workbench: what was read of a source so far, summed up by domain, in a file of its own.

A log has its rows in the order of time, so that a domain's are all over it, and images must be counted once each. The
sums would not always fit into memory, and to add each batch of rows to the store would write every domain again and
again. So they come together here, with the place where reading is to go on, in one transaction per batch.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from outrider.control.backfill.columns import ImageRow, PageRow, Part
from outrider.model.backfill import DomainPast
from outrider.model.errors import StoreError

FIRST_ERROR: Final = 400
TOO_MANY_REQUESTS: Final = 429
FIRST_SERVER_ERROR: Final = 500
LOCK_WAIT_S: Final = 0.1

SUMS: Final = (
    "pages_discovered", "pages_crawled", "images_found", "total_error_count", "rate_limited_count",
    "server_error_count",
)  # fmt: skip

SCHEMA: Final = f"""
    CREATE TABLE IF NOT EXISTS about (source TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS parts (
        part TEXT PRIMARY KEY, position TEXT, rows_read INTEGER NOT NULL, rows_refused INTEGER NOT NULL,
        finished INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS refusals (reason TEXT PRIMARY KEY, number INTEGER NOT NULL, example TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS pasts (
        domain TEXT PRIMARY KEY, {", ".join(f"{each} INTEGER NOT NULL" for each in SUMS)},
        crawl_depth_reached INTEGER NOT NULL, first_seen_at INTEGER, last_crawled_at INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS images (domain TEXT, image_id TEXT, PRIMARY KEY (domain, image_id)) WITHOUT ROWID;
"""

KEEP_PAST: Final = f"""
    INSERT INTO pasts VALUES (?, {", ".join("?" for _ in SUMS)}, ?, ?, ?)
    ON CONFLICT (domain) DO UPDATE
       SET {", ".join(f"{each} = {each} + excluded.{each}" for each in SUMS)},
           crawl_depth_reached = max(crawl_depth_reached, excluded.crawl_depth_reached),
           first_seen_at = coalesce(min(first_seen_at, excluded.first_seen_at), first_seen_at, excluded.first_seen_at),
           last_crawled_at = coalesce(
               max(last_crawled_at, excluded.last_crawled_at), last_crawled_at, excluded.last_crawled_at)
"""

# Images come by their domain too, so that a page of domains is one walk over each of the two tables.
PASTS: Final = f"""
    SELECT n.domain, {", ".join(f"coalesce(p.{each}, 0)" for each in SUMS)}, coalesce(p.crawl_depth_reached, 0),
           p.first_seen_at, p.last_crawled_at, (SELECT count(*) FROM images i WHERE i.domain = n.domain)
      FROM (SELECT domain FROM pasts WHERE domain > ?1
             UNION SELECT domain FROM images WHERE domain > ?1 ORDER BY domain LIMIT ?2) n
      LEFT JOIN pasts p ON p.domain = n.domain ORDER BY n.domain
"""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How far a part of a source was read."""

    position: str | None = None
    rows_read: int = 0
    rows_refused: int = 0
    finished: bool = False


class Refusals(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that were refused for one reason, and the first of them."""

    reason: str
    number: int
    example: str


class Sums:
    """Rows of one batch, summed up by domain."""

    def __init__(self) -> None:
        self.pasts: dict[str, DomainPast] = {}
        self.images: set[ImageRow] = set()
        self.refusals: dict[str, Refusals] = {}
        self.rows_read = 0

    def add_page(self, row: PageRow) -> None:
        """Count a page: crawled below status 400, an error from there on or where nobody answered."""
        status = row.status
        is_error = status is not None and (status >= FIRST_ERROR or status == 0)
        old = self.pasts.get(row.domain) or DomainPast(domain=row.domain)
        self.pasts[row.domain] = DomainPast(
            domain=row.domain,
            pages_discovered=old.pages_discovered + 1,
            pages_crawled=old.pages_crawled + (status is not None and not is_error),
            images_found=old.images_found + row.images_found,
            total_error_count=old.total_error_count + is_error,
            rate_limited_count=old.rate_limited_count + (status == TOO_MANY_REQUESTS),
            server_error_count=old.server_error_count + (status is not None and status >= FIRST_SERVER_ERROR),
            crawl_depth_reached=max(old.crawl_depth_reached, row.depth),
            first_seen_at=_among(min, old.first_seen_at, row.crawled_at),
            last_crawled_at=_among(max, old.last_crawled_at, row.crawled_at),
        )

    def refuse(self, reason: str, example: str) -> None:
        """Count a row that was refused, and keep the first."""
        old = self.refusals.get(reason)
        self.refusals[reason] = Refusals(
            reason=reason, number=1 + (old.number if old else 0), example=old.example if old else example
        )


def _among(choose: Callable[[list[int]], int], first: int | None, second: int | None) -> int | None:
    known = [moment for moment in (first, second) if moment is not None]
    return choose(known) if known else None


class Workbench:
    """The file with the sums of one source; a second process that wants it is refused."""

    def __init__(self, path: Path, source: str, *, anew: bool = False) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=LOCK_WAIT_S, check_same_thread=False)
        with self._told():
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = TRUNCATE")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("COMMIT")
            self._connection.executescript(SCHEMA)
        about = self._connection.execute("SELECT source FROM about").fetchone()
        if anew or about != (source,):
            self._begin(source)

    def _begin(self, source: str) -> None:
        """Forget what was read: it is in the store already, or the source is another than it was."""
        with self._transaction():
            for table in ("about", "parts", "refusals", "pasts", "images"):
                self._connection.execute(f"DELETE FROM {table}")
            self._connection.execute("INSERT INTO about VALUES (?)", (source,))

    def reading(self, part: Part) -> Reading:
        """Tell how far a part was read."""
        row = self._connection.execute(
            "SELECT position, rows_read, rows_refused, finished FROM parts WHERE part = ?", (part.value,)
        ).fetchone()
        if row is None:
            return Reading()
        return Reading(position=row[0], rows_read=row[1], rows_refused=row[2], finished=bool(row[3]))

    def keep(self, part: Part, sums: Sums, position: str | None, *, finished: bool) -> Reading:
        """Add a batch, and where reading is to go on after it."""
        before = self.reading(part)
        refused = sum(each.number for each in sums.refusals.values())
        after = Reading(
            position=position,
            rows_read=before.rows_read + sums.rows_read,
            rows_refused=before.rows_refused + refused,
            finished=finished,
        )
        with self._told(), self._transaction():
            self._connection.executemany(KEEP_PAST, (_row(past) for past in _sorted(sums.pasts)))
            self._connection.executemany("INSERT OR IGNORE INTO images VALUES (?, ?)", sorted(sums.images))
            self._connection.executemany(
                "INSERT INTO refusals VALUES (?, ?, ?) "
                "ON CONFLICT (reason) DO UPDATE SET number = number + excluded.number",
                ((each.reason, each.number, each.example) for each in sums.refusals.values()),
            )
            self._connection.execute(
                "INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?)",
                (part.value, after.position, after.rows_read, after.rows_refused, int(finished)),
            )
        return after

    def pasts(self, limit: int) -> Iterator[list[DomainPast]]:
        """Give all that was summed up, in the order of names and so many at a time."""
        after = ""
        while rows := self._connection.execute(PASTS, (after, limit)).fetchall():
            yield [
                DomainPast(
                    domain=row[0],
                    **dict(zip(SUMS, row[1:7], strict=True)),
                    crawl_depth_reached=row[7],
                    first_seen_at=row[8],
                    last_crawled_at=row[9],
                    images_stored=row[10],
                )
                for row in rows
            ]
            after = rows[-1][0]

    def refusals(self) -> list[Refusals]:
        """List why rows were refused, the commonest reason first."""
        rows = self._connection.execute("SELECT reason, number, example FROM refusals ORDER BY number DESC, reason")
        return [Refusals(reason=row[0], number=row[1], example=row[2]) for row in rows]

    def close(self) -> None:
        """Let go of the file, which the next reading goes on with."""
        self._connection.close()

    def remove(self) -> None:
        """Close and delete the file: all of it is in the store."""
        self.close()
        for path in (self._path, self._path.with_name(f"{self._path.name}-journal")):
            path.unlink(missing_ok=True)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise StoreError(f"another process is at work on this backfill: it holds {self._path}") from error
            raise StoreError(f"cannot use {self._path}: {error}") from error


def _sorted(pasts: Mapping[str, DomainPast]) -> Iterable[DomainPast]:
    return (pasts[domain] for domain in sorted(pasts))


def _row(past: DomainPast) -> tuple[object, ...]:
    sums = tuple(getattr(past, each) for each in SUMS)
    return (past.domain, *sums, past.crawl_depth_reached, past.first_seen_at, past.last_crawled_at)
