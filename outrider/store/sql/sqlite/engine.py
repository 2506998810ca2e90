"""SQLite's engine: one writing thread with group commit, readers beside it.

    callers            writing thread                     file
      | write(script)      |                                |
      | -----------------> |  BEGIN IMMEDIATE               |
      | -----------------> |    script, script, script …    |
      |                    |  COMMIT                        |
      | <----------------- |  answers, only now             |

Whoever comes while a transaction is being committed shares the next one. Where a script raises, the
transaction is rolled back and the others run again without it: savepoints would keep them apart, but
they doubled the cost of every write. Other processes may write to the same file: BEGIN IMMEDIATE makes
them take turns, and a script sees all that was committed before.
"""

import asyncio
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

from outrider.model.errors import StoreError
from outrider.store.dsn import SqliteDsn
from outrider.store.sql.script import ROWS, Call, Catalogue, Row, Script
from outrider.store.sql.sqlite import checkpoint
from outrider.store.sql.sqlite.checkpoint import Checkpointer
from outrider.store.sql.sqlite.errors import translated

Answer = TypeVar("Answer")

LOCK_WAIT_S = 30.0
"""How long to wait for another process that is writing."""
SHARED_S = 0.25
"""A transaction takes in no more scripts after so long, so that the first caller is not kept waiting."""
READERS = 4

CHUNKS = (256, 64, 16, 4, 1)
"""How many rows one statement takes. The interpreter's lock is let go and taken again for every statement
and for every row of an answer, which costs milliseconds when another thread is busy: so a batch must be
few statements, not one for each row. 2,000 rows one by one took 33 µs each, by 256 20 µs."""

PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -49152",
)


def connect(dsn: SqliteDsn, *, lock_wait_s: float = LOCK_WAIT_S) -> sqlite3.Connection:
    """Open the file; transactions are begun and ended by us alone."""
    return sqlite3.connect(
        dsn.path, timeout=lock_wait_s, isolation_level=None, check_same_thread=False, cached_statements=512
    )


def _execute_patiently(connection: sqlite3.Connection, pragma: str, lock_wait_s: float) -> None:
    """Wait for other processes also where SQLite does not: while the log is turned on for the first time."""
    until = time.monotonic() + lock_wait_s
    while True:
        try:
            connection.execute(pragma)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.005)


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
    text = catalogue[call.name].text
    if not text:
        return []
    # SQLite has no arrays: its statements read a list with json_each.
    values = tuple(json.dumps(value) if type(value) is list else value for value in call.values)
    rows = call.taken()
    if rows is None:
        return connection.execute(text, values).fetchall()
    answers: list[Row] = []
    if ROWS not in text:
        for row in rows:
            answers += connection.execute(text, (*values, *row))
        return answers
    start = 0
    for size in _chunks(len(rows)):
        chunk = rows[start : start + size]
        start += size
        statement = _with_rows(text, len(values), size, len(chunk[0]))
        answers += connection.execute(statement, (*values, *chain.from_iterable(chunk)))
    return answers


def _chunks(number: int) -> Iterator[int]:
    """Split a number of rows into few sizes, so that few statements need to be compiled and kept."""
    for size in CHUNKS:
        while number >= size:
            yield size
            number -= size


@lru_cache(maxsize=1024)
def _with_rows(text: str, values: int, rows: int, columns: int) -> str:
    """Write a statement for so many rows, the parameters of which come after the values."""
    numbers = iter(range(values + 1, values + 1 + rows * columns))
    row_texts = ("(" + ", ".join(f"?{next(numbers)}" for _ in range(columns)) + ")" for _ in range(rows))
    return text.replace(ROWS, ", ".join(row_texts))


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
        self._watching = self._opened()
        # It is asked on the event loop, which must not wait for a lock.
        self._watching.execute("PRAGMA busy_timeout = 0")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="outrider-reader")
        self._writer = threading.Thread(target=self._write_forever, name="outrider-writer", daemon=True)
        self._checkpointer = Checkpointer(dsn)
        self._writer.start()

    def _opened(self) -> sqlite3.Connection:
        try:
            connection = connect(self._dsn, lock_wait_s=self._lock_wait_s)
            for pragma in (*PRAGMAS, *checkpoint.PRAGMAS):
                _execute_patiently(connection, pragma, self._lock_wait_s)
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

    async def hear_of_jobs(self, timeout_s: float) -> bool:
        """Wait: SQLite has no way to tell other processes anything."""
        await asyncio.sleep(timeout_s)
        return False

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

    def version(self) -> int | None:
        """Tell a number that every commit changes, whoever makes it; takes some microseconds and no other thread."""
        try:
            version: int = self._watching.execute("PRAGMA data_version").fetchall()[0][0]
        except sqlite3.Error:  # whoever looks will meet the same, and say it
            return None
        return version

    def _write_forever(self) -> None:
        while (request := self._requests.get()) is not None:
            self._write_together(request)

    def _write_together(self, first: _Request) -> None:
        """Run `first` and whoever comes meanwhile in one transaction; answer all after the commit."""
        waiting: list[_Request] = [first]
        done: list[_Request] = []
        while waiting:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                # Those who wait behind would only wait as long again, one after the other.
                while behind := self._next_if_waiting():
                    waiting += behind
                for request in waiting:
                    _settle(request, error=translated(error, self._dsn))
                return
            try:
                self._run_all(waiting, done)
                self._connection.execute("COMMIT")
            except Exception as error:
                self._roll_back()
                ours = translated(error, self._dsn) if isinstance(error, sqlite3.Error) else error
                if waiting:
                    _settle(waiting.pop(0), error=ours)
                else:
                    for request in done:
                        _settle(request, error=ours)
                    return
                waiting[:0] = done
                done = []
        for request in done:
            _settle(request)
        self._checkpointer.after_commit(self._connection)

    def _run_all(self, waiting: list[_Request], done: list[_Request]) -> None:
        """Move requests from `waiting` to `done`; where one raises, it is the first that waits."""
        until = time.monotonic() + SHARED_S
        while waiting:
            waiting[0].answer = run(self._connection, self._catalogue, waiting[0].script())
            done.append(waiting.pop(0))
            if not waiting and time.monotonic() < until:
                waiting += self._next_if_waiting()

    def _roll_back(self) -> None:
        """Undo the transaction, unless SQLite has done so itself, as it does on a full disk."""
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _next_if_waiting(self) -> list[_Request]:
        try:
            request = self._requests.get_nowait()
        except queue.Empty:
            return []
        if request is None:
            self._requests.put(None)
            return []
        return [request]

    async def close(self) -> None:
        """Commit what is waiting, then close the file."""
        if self._closed:
            return
        self._closed = True
        self._requests.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._writer.join)
        self._readers.shutdown()
        self._checkpointer.close()
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
