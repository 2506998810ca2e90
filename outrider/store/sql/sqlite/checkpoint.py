"""Checkpoints beside the writer.

SQLite would move the write-ahead log back into the file inside whichever commit finds it long, and that
caller would wait. Here a thread does it while the writer goes on. A log that is never quite emptied is
never begun anew, so once it is too long the writer waits for the thread, does the little that is left
while nobody writes, and the log starts over.
"""

import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

from outrider.store.dsn import SqliteDsn

WORTH_MOVING_BYTES = 8 * 2**20
TOO_LONG_BYTES = 128 * 2**20
"""The writer waits 25 ms for a log that starts over: with half of this, one lease in a hundred did."""
KEPT_BYTES = 4 * 2**20
"""To what a log that starts over is cut down; its length then tells how much is in it."""

PRAGMAS = ("PRAGMA wal_autocheckpoint = 0", f"PRAGMA journal_size_limit = {KEPT_BYTES}")
"""What every connection must be told that leaves the checkpoints to us."""

MOVE = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpointer:
    """Keeps one file's write-ahead log short."""

    def __init__(self, dsn: SqliteDsn) -> None:
        self._dsn = dsn
        self._log = Path(dsn.path + "-wal")
        self._wanted = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._closing = False
        self._thread = threading.Thread(target=self._move_forever, name="outrider-checkpoints", daemon=True)
        self._thread.start()

    def after_commit(self, writer: sqlite3.Connection) -> None:
        """Look at the log, on the writing thread, between two transactions."""
        try:
            length = self._log.stat().st_size
        except FileNotFoundError:
            return
        if length > TOO_LONG_BYTES:
            self._idle.wait()
            with suppress(sqlite3.Error):
                writer.execute(MOVE)
        elif length > WORTH_MOVING_BYTES and self._idle.is_set():
            self._idle.clear()
            self._wanted.set()

    def _move_forever(self) -> None:
        # An error here harms nobody: the log stays longer, and the writer will meet the same error.
        connection = sqlite3.connect(self._dsn.path, isolation_level=None, timeout=1)
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closing:
                break
            with suppress(sqlite3.Error):
                connection.execute(MOVE)
            self._idle.set()
        connection.close()

    def close(self) -> None:
        """Stop after the checkpoint that is under way."""
        self._closing = True
        self._wanted.set()
        self._thread.join()
