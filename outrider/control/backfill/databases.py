"""Tables of a database: read in short ranges of a unique key, never in one long snapshot."""

import re
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import asyncpg

from outrider.control.backfill.columns import FIELDS, ColumnMap, Part, layout
from outrider.control.backfill.rows import RowBatch
from outrider.model.errors import InvalidInput, StoreUnavailable, shown
from outrider.store.dsn import PostgresDsn, SqliteDsn
from outrider.store.sql.migrate import VERSION_TABLE
from outrider.store.sql.postgres.connection import GONE, connect_once

READ_ONLY: Final = {"application_name": "outrider backfill", "default_transaction_read_only": "on"}

KEY_OF_TABLE: Final = """
    SELECT format_type(a.atttypid, NULL), EXISTS (
               SELECT FROM pg_index i
                WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
      FROM pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attname = $2
"""


def quoted(name: str) -> str:
    """Write the name of a table or column, with a schema in front or not, so that it is nothing but a name.

    >>> quoted('old.crawl_log'), quoted('x"; DROP TABLE y')
    ('"old"."crawl_log"', '"x""; DROP TABLE y"')
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


class DatabaseSource:
    """A crawl log and provenance in one database."""

    def __init__(self, name: str, mapping: ColumnMap) -> None:
        self.name = name
        self.identity = name
        self._mapping = mapping
        self._layouts: dict[Part, dict[str, str]] = {}

    def table(self, part: Part) -> str:
        """Name the table of a part."""
        return self._mapping.tables.get(part, part.value)

    async def parts(self) -> list[Part]:
        """Find the tables; that of pages must be there, that of images may be."""
        if Part.PAGES not in self._mapping.tables and await self._columns(VERSION_TABLE):
            raise InvalidInput(
                f"{self.name} is a store of Outrider, which has counted its own crawl_log: if it is another one than "
                "that to be filled, or has the log in another table, say so with --map crawl_log=TABLE"
            )
        found = []
        for part in Part:
            available = await self._columns(self.table(part))
            if available:
                self._layouts[part] = layout(part, available, self._mapping, f"table {self.table(part)} of {self.name}")
                found.append(part)
            elif part in self._mapping.tables or part is Part.PAGES:
                raise InvalidInput(
                    f"there is no table {self.table(part)} in {self.name}: name it with --map {part}=TABLE"
                )
        return found

    async def batches(self, part: Part, position: str | None, size: int) -> AsyncIterator[RowBatch]:
        """Read rows from a key on."""
        columns = {field: column for field, column in self._layouts[part].items() if field != "id"}
        while rows := await self._range(part, list(columns.values()), position, size):
            position = str(rows[-1][0])
            batch = RowBatch([(f"row {row[0]}", dict(zip(columns, row[1:], strict=True))) for row in rows], position)
            yield batch

    async def _columns(self, table: str) -> list[str]:
        raise NotImplementedError

    async def _range(
        self, part: Part, columns: Sequence[str], position: str | None, size: int
    ) -> Sequence[Sequence[Any]]:
        raise NotImplementedError


class SqliteSource(DatabaseSource):
    """Tables of an SQLite file, read by their row numbers."""

    def __init__(self, dsn: SqliteDsn, mapping: ColumnMap) -> None:
        super().__init__(dsn.shown, mapping)
        if not Path(dsn.path).is_file():
            raise InvalidInput(f"there is no file {dsn.shown}")
        self._connection = sqlite3.connect(f"file:{quote(dsn.path)}?mode=ro", uri=True, check_same_thread=False)
        # What is no UTF-8 is refused with its row, and not with the whole table.
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")

    async def _columns(self, table: str) -> list[str]:
        schema, _, name = table.rpartition(".")
        pragma = f"PRAGMA {quoted(schema) + '.' if schema else ''}table_info({quoted(name)})"
        try:
            return [row[1] for row in self._connection.execute(pragma)]
        except sqlite3.Error as error:
            raise InvalidInput(f"cannot read {self.name}: {error}") from None

    async def _range(
        self, part: Part, columns: Sequence[str], position: str | None, size: int
    ) -> Sequence[Sequence[Any]]:
        chosen = ", ".join(["rowid", *map(quoted, columns)])
        statement = f"SELECT {chosen} FROM {quoted(self.table(part))} WHERE rowid > ? ORDER BY rowid LIMIT ?"
        try:
            return self._connection.execute(statement, (int(position or -(2**63)), size)).fetchall()
        except sqlite3.Error as error:
            raise InvalidInput(f"cannot read table {self.table(part)} of {self.name}: {error}") from None

    async def close(self) -> None:
        """Close the file."""
        self._connection.close()


class PostgresSource(DatabaseSource):
    """Tables of a PostgreSQL database, read by a unique column."""

    def __init__(self, dsn: PostgresDsn, mapping: ColumnMap) -> None:
        super().__init__(dsn.shown, mapping)
        self._dsn = dsn
        self._connection: asyncpg.Connection | None = None
        self._key_types: dict[Part, str] = {}

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect_once(self._dsn, server_settings=READ_ONLY)
        return self._connection

    async def _columns(self, table: str) -> list[str]:
        connection = await self._connected()
        rows = await connection.fetch(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
            quoted(table),
        )
        return [row[0] for row in rows]

    async def _key_type(self, part: Part) -> str:
        """Find the type of a part's key, which must be unique: rows with equal keys could be left out."""
        column = self._layouts[part].get("id")
        connection = await self._connected()
        found = None if column is None else await connection.fetchrow(KEY_OF_TABLE, quoted(self.table(part)), column)
        if found is None or not found[1]:
            tried = shown(column) if column else " or ".join(FIELDS[part]["id"])
            raise InvalidInput(
                f"table {self.table(part)} of {self.name} has no unique index on {tried}, by which to read it: "
                f"name a column that has one with --map {part}.id=COLUMN"
            )
        return str(found[0])

    async def _range(
        self, part: Part, columns: Sequence[str], position: str | None, size: int
    ) -> Sequence[Sequence[Any]]:
        if part not in self._key_types:
            self._key_types[part] = await self._key_type(part)
        # Qualified: ORDER BY would take a bare name for that of an answer's column, and sort by its text.
        key = f"t.{quoted(self._layouts[part]['id'])}"
        chosen = ", ".join([f"{key}::text", *(f"t.{quoted(column)}" for column in columns)])
        after = f"WHERE {key} > $2::text::{self._key_types[part]}" if position is not None else "WHERE $2::text IS NULL"
        statement = f"SELECT {chosen} FROM {quoted(self.table(part))} t {after} ORDER BY {key} LIMIT $1"
        connection = await self._connected()
        try:
            rows: Sequence[Sequence[Any]] = await connection.fetch(statement, size, position)
        except GONE as error:
            raise StoreUnavailable(f"lost {self.name} while it was read: {error or type(error).__name__}") from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            problem = re.sub(r"\s+", " ", str(error))
            raise InvalidInput(f"cannot read table {self.table(part)} of {self.name}: {problem}") from None
        return rows

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(asyncpg.PostgresError, *GONE):
                await self._connection.close()
