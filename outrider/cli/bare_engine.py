"""The bare engines that the bench measures stores against: the table `tasks`, and nothing else."""

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from outrider.store.dsn import PostgresDsn, SqliteDsn
from outrider.store.sql.postgres.connection import SERVER_SETTINGS, connect_once
from outrider.store.sql.sqlite.engine import PRAGMAS, connect

COLUMNS = """crawl_id, key, hash, url, kind, state, delayed, priority, depth, sequence, due_at, discovery_type,
    discovered_at"""

Rows = Sequence[tuple[object, ...]]


class BareEngine(Protocol):
    """Inserts rows into a copy of the table `tasks`, one durable transaction for each batch."""

    async def create_table(self) -> None:
        """Make the table with the same indexes, empty."""
        ...

    async def insert(self, rows: Rows) -> float:
        """Insert and commit; tell how many seconds that took."""
        ...

    async def size_on_disk(self) -> int:
        """Tell how many bytes the store under test takes."""
        ...

    async def durability(self) -> str:
        """Tell what survives what."""
        ...

    async def close(self) -> None:
        """Remove the table."""
        ...


class BareSqlite:
    """SQLite with the pragmas that the store uses, in a file beside the store's."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._file = store.with_name(store.name + "-bare")
        self._connection: sqlite3.Connection | None = None

    async def create_table(self) -> None:
        """Make the table with the same indexes, empty."""
        source = connect(SqliteDsn(path=str(self._store)))
        schema = source.execute("SELECT sql FROM sqlite_master WHERE tbl_name = 'tasks' AND sql IS NOT NULL").fetchall()
        source.close()
        self._connection = connect(SqliteDsn(path=str(self._file)))
        for pragma in PRAGMAS:
            self._connection.execute(pragma)
        for (statement,) in schema:
            self._connection.execute(statement)

    async def insert(self, rows: Rows) -> float:
        """Insert and commit; tell how many seconds that took."""
        assert self._connection is not None
        text = f"INSERT INTO tasks ({COLUMNS}) VALUES ({', '.join('?' * len(rows[0]))})"
        start = time.perf_counter()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(text, rows)
        self._connection.execute("COMMIT")
        return time.perf_counter() - start

    async def size_on_disk(self) -> int:
        """Tell how many bytes the store under test takes."""
        connection = connect(SqliteDsn(path=str(self._store)))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return self._store.stat().st_size

    async def durability(self) -> str:
        """Tell what survives what."""
        return "WAL, synchronous=NORMAL"

    async def close(self) -> None:
        """Remove the table."""
        if self._connection is not None:
            self._connection.close()
        await asyncio.to_thread(remove_sqlite, self._file)


class BarePostgres:
    """PostgreSQL over one connection, in the schema in which the store under test lives."""

    def __init__(self, dsn: PostgresDsn, schema: str) -> None:
        self._dsn = dsn
        self._schema = schema
        self._connection: asyncpg.Connection | None = None

    async def prepare(self) -> None:
        """Make an empty schema."""
        await self._once(f'DROP SCHEMA IF EXISTS "{self._schema}" CASCADE; CREATE SCHEMA "{self._schema}"')

    async def drop(self) -> None:
        """Remove the schema with everything in it."""
        await self._once(f'DROP SCHEMA IF EXISTS "{self._schema}" CASCADE')

    async def _ask(self, question: str) -> Any:
        connection = await connect_once(self._dsn)
        try:
            return await connection.fetchval(question)
        finally:
            await connection.close()

    async def _once(self, statement: str) -> Any:
        connection = await connect_once(self._dsn)
        try:
            return await connection.execute(statement)
        finally:
            await connection.close()

    async def create_table(self) -> None:
        """Make the table with the same indexes, empty."""
        self._connection = await connect_once(
            self._dsn, server_settings={**SERVER_SETTINGS, "search_path": self._schema}
        )
        await self._connection.execute("CREATE TABLE bare_tasks (LIKE tasks INCLUDING ALL)")

    async def insert(self, rows: Rows) -> float:
        """Insert and commit; tell how many seconds that took."""
        assert self._connection is not None
        text = f"""
            INSERT INTO bare_tasks ({COLUMNS})
            SELECT * FROM unnest($1::int[], $2::text[], $3::bytea[], $4::text[], $5::smallint[], $6::smallint[],
                                 $7::boolean[], $8::int[], $9::int[], $10::bigint[], $11::bigint[],
                                 $12::smallint[], $13::bigint[])"""
        columns = [list(column) for column in zip(*rows, strict=True)]
        start = time.perf_counter()
        await self._connection.execute(text, *columns)
        return time.perf_counter() - start

    async def size_on_disk(self) -> int:
        """Tell how many bytes the store under test takes."""
        return int(
            await self._ask(
                "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c "
                f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{self._schema}' "
                "AND c.relkind = 'r'"
            )
        )

    async def durability(self) -> str:
        """Tell what survives what."""
        fsync = await self._ask("SELECT current_setting('fsync')")
        synchronous = await self._ask("SELECT current_setting('synchronous_commit')")
        return f"fsync={fsync}, synchronous_commit={synchronous}"

    async def close(self) -> None:
        """Remove the table."""
        if self._connection is not None:
            await self._connection.execute("DROP TABLE bare_tasks")
            await self._connection.close()


def remove_sqlite(file: Path) -> None:
    """Remove a database with what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)


def bare_sqlite(store: Path) -> BareSqlite:
    """Measure against SQLite."""
    return BareSqlite(store)


def bare_postgres(dsn: PostgresDsn, schema: str) -> BarePostgres:
    """Measure against PostgreSQL."""
    return BarePostgres(dsn, schema)
