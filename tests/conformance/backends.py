"""The backends that the suite runs on."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import asyncpg
import pytest

from outrider.store.sql import migrate
from tests.servers import Databases

CONTENT_TABLES = (
    "schedules", "revisits", "crawl_log", "run_counts", "counts", "leases", "task_metadata", "tasks", "robots", "gates",
    "queues", "crawls", "outbox", "workers", "job_history", "crawl_jobs", "domain_history", "domains", "crawl_runs",
)  # fmt: skip


class Backend(Protocol):
    """Makes stores of one kind, empty and with the current schema."""

    def create(self) -> str:
        """Make an empty store and return its DSN."""
        ...

    async def wipe(self, dsn: str) -> None:
        """Empty a store that is in use, faster than making another."""
        ...

    async def query(self, dsn: str, sql: str) -> list[tuple[object, ...]]:
        """Ask the database itself, past the store."""
        ...

    def drop(self, dsn: str) -> None:
        """Forget a store."""
        ...


class SqliteBackend:
    """A file for each store, copied from one that was migrated once."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        self._folder = factory.mktemp("sqlite-stores")
        self._template = self._folder / "template.sqlite"
        migrate.upgrade(f"sqlite:///{self._template}")
        self._made = 0

    def create(self) -> str:
        self._made += 1
        path = self._folder / f"{self._made}.sqlite"
        shutil.copyfile(self._template, path)
        return f"sqlite:///{path}"

    async def wipe(self, dsn: str) -> None:
        connection = sqlite3.connect(dsn.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        for table in CONTENT_TABLES:
            connection.execute(f"DELETE FROM {table}")
        connection.execute("COMMIT")
        connection.close()

    async def query(self, dsn: str, sql: str) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(dsn.removeprefix("sqlite:///"), isolation_level=None)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def drop(self, dsn: str) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(dsn.removeprefix("sqlite:///") + suffix).unlink(missing_ok=True)


class PostgresBackend:
    """A database for each store on the suite's server, copied from one that was migrated once."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._server: Databases = request.getfixturevalue("postgres_server")
        self._template = self._server.create_database()
        migrate.upgrade(self._template)
        request.addfinalizer(lambda: self._server.drop_database(self._template))

    def create(self) -> str:
        return self._server.copy_database(self._template)

    async def wipe(self, dsn: str) -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(";".join(f"DELETE FROM {table}" for table in CONTENT_TABLES))
        finally:
            await connection.close()

    async def query(self, dsn: str, sql: str) -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(dsn)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    def drop(self, dsn: str) -> None:
        self._server.drop_database(dsn)


BACKENDS: dict[str, Callable[[pytest.FixtureRequest], Backend]] = {
    "sqlite": SqliteBackend,
    "postgres": PostgresBackend,
}


class Place(NamedTuple):
    """An empty store of one backend."""

    backend: Backend
    dsn: str
