"""News from PostgreSQL: a connection that listens on a channel, opened when somebody first waits for it.

News are hints. Who waits is woken by all that comes while the connection lives, or else by the time-out; a
connection that is lost is made again at the next wait.
"""

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg

from outrider.model.errors import StoreError
from outrider.store.dsn import PostgresDsn
from outrider.store.sql.postgres.connection import CONNECT_S, GONE, connect_once


class News:
    """What is told on one channel."""

    def __init__(self, dsn: PostgresDsn, channel: str) -> None:
        self._dsn = dsn
        self._channel = channel
        self._connection: asyncpg.Connection | None = None
        self._connecting = asyncio.Lock()
        self._waiting: set[asyncio.Future[None]] = set()
        self._unheard = False
        """Something was told while nobody waited."""

    async def heard(self, timeout_s: float) -> bool:
        """Wait for news; False where the time is over first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._listen()
                if self._unheard:
                    self._unheard = False
                    return True
                told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.add(told)
                try:
                    await told
                finally:
                    self._waiting.discard(told)
                return True
        except TimeoutError:
            return False

    async def _listen(self) -> None:
        """Have a connection that listens; where there can be none now, wait for the time-out."""
        async with self._connecting:
            if self._connection is not None and not self._connection.is_closed():
                return
            self._connection = None
            with suppress(StoreError, asyncpg.PostgresError, asyncpg.InterfaceError, *GONE):
                self._connection = await self._connected()
                return
        await asyncio.Future()

    async def _connected(self) -> asyncpg.Connection:
        connection = await connect_once(self._dsn)
        try:
            await connection.add_listener(self._channel, self._tell)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _tell(self, *_: Any) -> None:
        self._unheard = not self._waiting
        for told in self._waiting:
            if not told.done():
                told.set_result(None)

    async def close(self) -> None:
        """Listen no more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, *GONE):
                await connection.close(timeout=CONNECT_S)
