"""SQLite's errors in our words."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from outrider.model.errors import (
    OutriderError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreNotOurs,
    StoreReadOnly,
    StoreUnavailable,
)
from outrider.store.dsn import SqliteDsn

_PRIMARY = 0xFF
"""SQLite's extended error codes carry the primary code in their lowest byte."""


def translated(error: sqlite3.Error, dsn: SqliteDsn) -> OutriderError:
    """Say what an error of SQLite means for this file and what to do about it."""
    file = dsn.shown
    code = getattr(error, "sqlite_errorcode", None)
    match None if code is None else code & _PRIMARY:
        case sqlite3.SQLITE_FULL:
            return StoreFull(f"no room left on the disk of {file}: nothing of this request was written")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreReadOnly(f"{file} cannot be written: check the permissions of the file and its folder")
        case sqlite3.SQLITE_CORRUPT:
            return StoreCorrupt(f"{file} is damaged ({error}): restore a copy, or recover it with sqlite3's .recover")
        case sqlite3.SQLITE_NOTADB:
            return StoreNotOurs(f"{file} is not an SQLite database")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreUnavailable(f"{file} was locked by another process for too long; try again")
        case sqlite3.SQLITE_CANTOPEN:
            return StoreError(f"cannot open {file}: check that the folder exists and may be written")
        case sqlite3.SQLITE_IOERR:
            return StoreError(f"reading or writing {file} failed: {error}")
        case _:
            return StoreError(f"{file}: {error}")


@contextmanager
def translated_sqlite_errors(dsn: SqliteDsn) -> Iterator[None]:
    """Raise our errors for SQLite's, also where SQLAlchemy has wrapped them."""
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, dsn) from error
    except Exception as error:
        original = getattr(error, "orig", None)
        if isinstance(original, sqlite3.Error):
            raise translated(original, dsn) from error
        raise
