"""Bringing a store's schema up, down, and telling where it stands."""

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from outrider.model.errors import StoreError, StoreNotOurs
from outrider.store.dsn import PostgresDsn, SqliteDsn, parse_dsn
from outrider.store.sql.postgres.connection import connect_once
from outrider.store.sql.sqlite.errors import translated_sqlite_errors

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

Result = TypeVar("Result")

HEAD: Final = "0008"
SQLITE_SCHEMA: Final = Path(__file__).parent / "sqlite" / "schema.sql"
"""Written anew by `python -m outrider.store.sql.migrate`."""
VERSION_TABLE: Final = "outrider_version"


def upgrade(dsn: str, revision: str = "head") -> str:
    """Bring the schema up to `revision` in one transaction; a SQLite file is created where there is none."""
    from alembic import command

    _run(dsn, lambda config: command.upgrade(config, revision))
    reached = current(dsn)
    if reached is None:
        raise StoreError(f"the schema of {parse_dsn(dsn).shown} has no revision after an upgrade to {revision}")
    return reached


def create_sqlite(dsn: SqliteDsn) -> None:
    """Make a fresh file as the migrations would, without them: to load Alembic takes as long as 500 pages."""
    Path(dsn.path).parent.mkdir(parents=True, exist_ok=True)
    with translated_sqlite_errors(dsn):
        connection = sqlite3.connect(dsn.path, isolation_level=None, timeout=30)
        try:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is None:
                for statement in _statements(SQLITE_SCHEMA.read_text()):
                    connection.execute(statement)
            connection.execute("COMMIT")
        finally:
            connection.close()


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def sqlite_schema() -> str:
    """Write down what the migrations make of an empty file; `schema.sql` is to say the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fresh.sqlite"
        upgrade(f"sqlite:///{path}")
        connection = sqlite3.connect(path)
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        lines = [line for line in connection.iterdump() if line not in ("BEGIN TRANSACTION;", "COMMIT;")]
        connection.close()
    return "\n".join((f"PRAGMA application_id = {application_id};", *lines, ""))


def downgrade(dsn: str, revision: str) -> str | None:
    """Take the schema down to `revision` in one transaction, dropping what later ones had added."""
    from alembic import command

    _run(dsn, lambda config: command.downgrade(config, revision))
    return current(dsn)


def current(dsn: str) -> str | None:
    """Tell the revision in force, None where there is no schema."""
    from sqlalchemy import Connection, inspect, text

    def read(connection: Connection) -> str | None:
        if not inspect(connection).has_table(VERSION_TABLE):
            return None
        revision = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
        return None if revision is None else str(revision)

    match parse_dsn(dsn):
        case SqliteDsn(path=path) if not Path(path).exists():
            return None
        case SqliteDsn() as sqlite_dsn:
            with _sqlite_connection(sqlite_dsn) as connection:
                return read(connection)
        case PostgresDsn() as postgres_dsn:
            return asyncio.run(_on_postgres(postgres_dsn, read))


def _run(dsn: str, action: Callable[["Config"], None]) -> None:
    from alembic.config import Config
    from alembic.util import CommandError
    from sqlalchemy import Connection

    config = Config()
    config.set_main_option("script_location", "outrider.store.sql:migrations")

    def act(connection: Connection) -> None:
        config.attributes["connection"] = connection
        try:
            action(config)
        except CommandError as error:
            raise StoreError(f"cannot migrate {parse_dsn(dsn).shown}: {error}") from error

    match parse_dsn(dsn):
        case SqliteDsn() as sqlite_dsn:
            Path(sqlite_dsn.path).parent.mkdir(parents=True, exist_ok=True)
            with _sqlite_connection(sqlite_dsn) as connection:
                _check_ours(sqlite_dsn, connection)
                act(connection)
        case PostgresDsn() as postgres_dsn:
            asyncio.run(_on_postgres(postgres_dsn, act))


def _check_ours(dsn: SqliteDsn, connection: "Connection") -> None:
    """Refuse the file of another program: one that has tables, but not the one that tells our revision."""
    from sqlalchemy import inspect

    tables = inspect(connection).get_table_names()
    if tables and VERSION_TABLE not in tables:
        raise StoreNotOurs(f"{dsn.shown} is an SQLite database, but not one of Outrider's; name another file")


@contextmanager
def _sqlite_connection(dsn: SqliteDsn) -> "Iterator[Connection]":
    """Open the file so that a migration is one real transaction.

    The driver's own transaction handling leaves DDL outside of it, and two processes that create the
    same file must queue up: hence no driver transactions and BEGIN IMMEDIATE.
    """
    from sqlalchemy import create_engine, event

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(dsn.path, isolation_level=None, timeout=30, check_same_thread=False)

    engine = create_engine("sqlite://", creator=connect)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with translated_sqlite_errors(dsn), engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


async def _on_postgres(dsn: PostgresDsn, action: "Callable[[Connection], Result]") -> "Result":
    """Run `action` in one transaction of its own connection."""
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: connect_once(dsn), poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(action)
    finally:
        await engine.dispose()


if __name__ == "__main__":
    SQLITE_SCHEMA.write_text(sqlite_schema())
