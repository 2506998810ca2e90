"""Opening a store: it must be there, be ours, and have the schema that this program speaks."""

import asyncio
import shlex
import sqlite3
from pathlib import Path

import asyncpg

from outrider.model.errors import SchemaOutdated, SchemaTooNew, StoreError, StoreNotOurs
from outrider.store.dsn import Dsn, PostgresDsn, SqliteDsn
from outrider.store.sql import migrate
from outrider.store.sql.postgres.connection import connect_once
from outrider.store.sql.sqlite.engine import connect
from outrider.store.sql.sqlite.errors import translated_sqlite_errors

MINIMUM_SQLITE = (3, 37, 0)
"""The first with STRICT tables."""

SQLITE_APPLICATION_ID = 0x4F555452
"""'OUTR' in ASCII: how a file says that it is ours."""


async def prepare(dsn: Dsn) -> None:
    """Create a SQLite file where there is none; refuse whatever this program cannot work with."""
    match dsn:
        case SqliteDsn():
            await asyncio.to_thread(_prepare_sqlite, dsn)
        case PostgresDsn():
            await _check_postgres(dsn)


def _prepare_sqlite(dsn: SqliteDsn) -> None:
    if sqlite3.sqlite_version_info < MINIMUM_SQLITE:
        raise StoreError(
            f"this Python has SQLite {sqlite3.sqlite_version}; Outrider needs "
            f"{'.'.join(map(str, MINIMUM_SQLITE))} or later"
        )
    path = Path(dsn.path)
    if path.is_dir():
        raise StoreError(f"{dsn.shown} is a folder; name a file in it")
    if not path.exists() or _is_empty(dsn):
        try:
            migrate.create_sqlite(dsn)
        except OSError as error:
            raise StoreError(f"cannot create {dsn.shown}: {error.strerror}") from error
    with translated_sqlite_errors(dsn):
        connection = connect(dsn)
        try:
            ours = connection.execute("PRAGMA application_id").fetchone()[0] == SQLITE_APPLICATION_ID
            if not ours:
                raise StoreNotOurs(f"{dsn.shown} is an SQLite database, but not one of Outrider's")
            version = connection.execute(f"SELECT version_num FROM {migrate.VERSION_TABLE}").fetchone()
        finally:
            connection.close()
    _check_version(None if version is None else version[0], dsn)


def _is_empty(dsn: SqliteDsn) -> bool:
    """Tell whether nothing was ever committed to a file, whatever its length: its creation may have been cut off."""
    with translated_sqlite_errors(dsn):
        connection = connect(dsn)
        try:
            return connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is None
        finally:
            connection.close()


async def _check_postgres(dsn: PostgresDsn) -> None:
    connection = await connect_once(dsn, statement_cache_size=0)
    try:
        version = await connection.fetchval(f"SELECT version_num FROM {migrate.VERSION_TABLE}")
    except asyncpg.UndefinedTableError:
        version = None
        if await connection.fetchval("SELECT to_regclass('crawls') IS NOT NULL OR to_regclass('tasks') IS NOT NULL"):
            raise StoreNotOurs(f"{dsn.shown} has tables named like Outrider's that Outrider did not create") from None
    finally:
        await connection.close()
    _check_version(version, dsn)


def _check_version(version: str | None, dsn: Dsn) -> None:
    if version == migrate.HEAD:
        return
    command = f"outrider db upgrade --store {_argument(dsn)}"
    if version is None:
        raise SchemaOutdated(f"{dsn.shown} has no tables of Outrider's yet; run: {command}")
    if version < migrate.HEAD:
        raise SchemaOutdated(
            f"{dsn.shown} has the schema of revision {version}, this program needs {migrate.HEAD}; run: {command}"
        )
    raise SchemaTooNew(
        f"{dsn.shown} has the schema of revision {version}, which is newer than this program "
        f"({migrate.HEAD}): upgrade Outrider"
    )


def _argument(dsn: Dsn) -> str:
    return shlex.quote(dsn.url if isinstance(dsn, SqliteDsn) else dsn.shown)
