"""SQLite's engine: one writing thread with group commit, readers beside it.

    callers            writing thread                     file
      | write(script)      |                                |
      | -----------------> |  BEGIN IMMEDIATE               |
      | -----------------> |    script, script, script …    |   each in a savepoint of its own
      |                    |  COMMIT                        |
      | <----------------- |  answers, only now             |

Whoever comes while a transaction is being committed shares the next one. Other processes may write to
the same file: BEGIN IMMEDIATE makes them take turns, and a script sees all that was committed before.
"""

import asyncio
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from outrider.model.errors import StoreError
from outrider.store.dsn import SqliteDsn
from outrider.store.sql.script import Call, Catalogue, Mode, Row, Script
from outrider.store.sql.sqlite.errors import translated

Answer = TypeVar("Answer")

LOCK_WAIT_S = 30.0
"""How long to wait for another process that is writing."""
SHARED_S = 0.05
"""A transaction takes in no more scripts after so long, so that the first caller is not kept waiting."""
READERS = 4

PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -49152",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
)


def connect(dsn: SqliteDsn, *, lock_wait_s: float = LOCK_WAIT_S) -> sqlite3.Connection:
    """Open the file; transactions are begun and ended by us alone."""
    return sqlite3.connect(
        dsn.path, timeout=lock_wait_s, isolation_level=None, check_same_thread=False, cached_statements=512
    )


def run(connection: sqlite3.Connection, catalogue: Catalogue, script: Script[Answer]) -> Answer:
    """Run a script to its end, statement by statement."""
    try:
        call = next(script)
        while True:
            call = script.send(_execute(connection, catalogue, call))
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def _execute(connection: sqlite3.Connection, catalogue: Catalogue, call: Call) -> list[Row]:
    name, values, rows = call
    text, mode = catalogue[name]
    if mode is Mode.ONCE:
        # SQLite has no arrays: its statements read a list with json_each.
        values = tuple(json.dumps(value) if type(value) is list else value for value in values)
        return connection.execute(text, values).fetchall()
    if not rows or mode is Mode.NONE:
        return []
    if mode is Mode.MANY:
        connection.executemany(text, [values + row for row in rows] if values else rows)
        return []
    execute = connection.execute
    answers: list[Row] = []
    for row in rows:
        answers += execute(text, values + row)
    return answers


class _Request:
    """A script that waits for its turn, and where its answer goes."""

    __slots__ = ("answer", "future", "script")

    def __init__(self, script: Callable[[], Script[Any]]) -> None:
        self.script = script
        self.future: Future[Any] = Future()
        self.answer: Any = None


class SqliteEngine:
    """Runs scripts on one SQLite file."""

    slots = 1

    def __init__(self, dsn: SqliteDsn, catalogue: Catalogue, *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self._dsn = dsn
        self._catalogue = catalogue
        self._lock_wait_s = lock_wait_s
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._closed = False
        self._connections: list[sqlite3.Connection] = []
        self._of_thread = threading.local()
        self._connection = self._opened()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="outrider-reader")
        self._writer = threading.Thread(target=self._write_forever, name="outrider-writer", daemon=True)
        self._writer.start()

    def _opened(self) -> sqlite3.Connection:
        try:
            connection = connect(self._dsn, lock_wait_s=self._lock_wait_s)
            for pragma in PRAGMAS:
                connection.execute(pragma)
        except sqlite3.Error as error:
            raise translated(error, self._dsn) from error
        self._connections.append(connection)
        return connection

    async def write(self, script: Callable[[], Script[Answer]]) -> Answer:
        """Run a script in the next transaction and answer after its commit."""
        if self._closed:
            raise StoreError(f"the store {self._dsn.shown} is closed")
        request = _Request(script)
        self._requests.put(request)
        answer: Answer = await asyncio.wrap_future(request.future)
        return answer

    async def read(self, script: Callable[[], Script[Answer]]) -> Answer:
        """Run a reading script in a snapshot of its own, beside the writer."""
        if self._closed:
            raise StoreError(f"the store {self._dsn.shown} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, script)

    def _read(self, script: Callable[[], Script[Answer]]) -> Answer:
        connection = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = self._opened()
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA cache_size = -4096")
            self._of_thread.connection = connection
        try:
            connection.execute("BEGIN")
            try:
                return run(connection, self._catalogue, script())
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translated(error, self._dsn) from error

    def _write_forever(self) -> None:
        while (request := self._requests.get()) is not None:
            self._write_together(request)

    def _write_together(self, first: _Request) -> None:
        """Run `first` and whoever comes meanwhile in one transaction; answer all after the commit."""
        taken: list[_Request] = [first]
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            until = time.monotonic() + SHARED_S
            self._run_in_savepoint(first)
            while time.monotonic() < until and (request := self._next_if_waiting()) is not None:
                taken.append(request)
                self._run_in_savepoint(request)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            for request in taken:
                _settle(request, error=translated(error, self._dsn))
        else:
            for request in taken:
                _settle(request)

    def _next_if_waiting(self) -> _Request | None:
        try:
            request = self._requests.get_nowait()
        except queue.Empty:
            return None
        if request is None:
            self._requests.put(None)
        return request

    def _run_in_savepoint(self, request: _Request) -> None:
        """Run one script; where it raises, undo what it did and answer it at once.

        Some errors, a full disk among them, make SQLite roll back the whole transaction: then all who
        share it are told.
        """
        self._connection.execute("SAVEPOINT script")
        try:
            request.answer = run(self._connection, self._catalogue, request.script())
        except Exception as error:
            if not self._connection.in_transaction:
                raise
            self._connection.execute("ROLLBACK TO script")
            self._connection.execute("RELEASE script")
            _settle(request, error=translated(error, self._dsn) if isinstance(error, sqlite3.Error) else error)
        else:
            self._connection.execute("RELEASE script")

    async def close(self) -> None:
        """Commit what is waiting, then close the file."""
        if self._closed:
            return
        self._closed = True
        self._requests.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._writer.join)
        self._readers.shutdown()
        for connection in self._connections:
            connection.close()


def _settle(request: _Request, *, error: BaseException | None = None) -> None:
    """Answer a caller, unless it was answered before or has gone away."""
    if request.future.done() or not request.future.set_running_or_notify_cancel():
        return
    if error is None:
        request.future.set_result(request.answer)
    else:
        request.future.set_exception(error)
