"""PostgreSQL's engine: scripts in transactions on pooled connections.

A transaction that failed because the server went away is run again from the start until `patience_s`
is over. That is safe even when the answer to COMMIT was lost: a report is known by its token, a lease
by its request, an addition by its URL, so that a second run finds what the first one did.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import TypeVar

import asyncpg

from outrider.model.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from outrider.store.dsn import PostgresDsn
from outrider.store.sql.engine import RowTaken
from outrider.store.sql.postgres.arrays import array_text, prepared
from outrider.store.sql.postgres.connection import (
    CONNECT_S,
    GONE,
    SERVER_SETTINGS,
    TURN_LOST,
    behind_pooler,
    connect_once,
    was_closed,
)
from outrider.store.sql.postgres.control import JOB_NEWS
from outrider.store.sql.postgres.news import News
from outrider.store.sql.script import Call, Catalogue, Row, Script

Answer = TypeVar("Answer")

PATIENCE_S = 30.0
STATEMENT_S = 60.0
POOL_SIZE = 8
REPLAN_S = 15
"""How long a plan is kept. One that was made when a table was nearly empty suits it badly once it has grown, and
nothing but the next ANALYZE would tell: `wake_queues` was seen to take 20 times as long for a minute."""


class PostgresEngine:
    """Runs scripts on one PostgreSQL database."""

    slots = 16

    def __init__(
        self, dsn: PostgresDsn, catalogue: Catalogue, pool: asyncpg.Pool, *, pooled: bool, patience_s: float
    ) -> None:
        self._dsn = dsn
        self._statements = {name: prepared(statement.text) for name, statement in catalogue.items()}
        self._pool = pool
        self._pooled = pooled
        self._patience_s = patience_s
        self._news = News(dsn, JOB_NEWS)

    @classmethod
    async def open(
        cls,
        dsn: PostgresDsn,
        catalogue: Catalogue,
        *,
        pool_size: int = POOL_SIZE,
        patience_s: float = PATIENCE_S,
    ) -> "PostgresEngine":
        """Connect once to learn what is there, then make the pool."""
        first = await connect_once(dsn, statement_cache_size=0)
        try:
            pooled = await behind_pooler(first)
        finally:
            await first.close()
        # Behind a pooler nothing may be said about the session, for it is not ours.
        pool = await asyncpg.create_pool(
            dsn.url,
            min_size=0,
            max_size=pool_size,
            timeout=CONNECT_S,
            command_timeout=STATEMENT_S,
            statement_cache_size=0 if pooled else 1000,
            max_cached_statement_lifetime=REPLAN_S,
            max_inactive_connection_lifetime=300,
            server_settings=None if pooled else SERVER_SETTINGS,
            reset=_nothing,
        )
        return cls(dsn, catalogue, pool, pooled=pooled, patience_s=patience_s)

    async def write(self, script: Callable[[], Script[Answer]]) -> Answer:
        """Run a script in a transaction and answer after its commit."""
        return await self._run(script, readonly=False)

    async def read(self, script: Callable[[], Script[Answer]]) -> Answer:
        """Run a reading script in one snapshot."""
        return await self._run(script, readonly=True)

    async def hear_of_jobs(self, timeout_s: float) -> bool:
        """Wait for the hint that there may be something to do for a job; behind a pooler, just wait."""
        if self._pooled:
            await asyncio.sleep(timeout_s)
            return False
        return await self._news.heard(timeout_s)

    async def _run(self, script: Callable[[], Script[Answer]], *, readonly: bool) -> Answer:
        deadline = time.monotonic() + self._patience_s
        wait_s = 0.02
        while True:
            try:
                return await self._run_once(script, readonly=readonly)
            except (*GONE, *TURN_LOST, asyncpg.InterfaceError) as error:
                if isinstance(error, asyncpg.InterfaceError) and not was_closed(error):
                    raise
                if self._pool.is_closing():
                    raise StoreError(f"the store {self._dsn.shown} is closed") from error
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise StoreUnavailable(
                        f"{self._dsn.shown} did not answer for {self._patience_s:g} s: {error or type(error).__name__}"
                    ) from error
            except asyncpg.DiskFullError as error:
                raise StoreFull(f"no room left on the disk of {self._dsn.shown}: nothing was written") from error
            except asyncpg.ReadOnlySQLTransactionError as error:
                raise StoreReadOnly(f"{self._dsn.shown} cannot be written: {error}") from error
            except asyncpg.UniqueViolationError as error:
                raise RowTaken(f"{self._dsn.shown}: {error}") from error
            except asyncpg.PostgresError as error:
                raise StoreError(f"{self._dsn.shown}: {error}") from error
            await asyncio.sleep(min(wait_s * random.uniform(0.5, 1.0), left_s))
            wait_s = min(wait_s * 2, 1.0)

    async def _run_once(self, script: Callable[[], Script[Answer]], *, readonly: bool) -> Answer:
        async with self._pool.acquire(timeout=max(self._patience_s, 1)) as connection:
            isolation = "repeatable_read" if readonly else "read_committed"
            async with connection.transaction(isolation=isolation, readonly=readonly):
                return await self._follow(connection, script())

    async def _follow(self, connection: asyncpg.Connection, script: Script[Answer]) -> Answer:
        try:
            call = next(script)
            while True:
                call = script.send(await self._execute(connection, call))
        except StopIteration as end:
            answer: Answer = end.value
            return answer

    async def _execute(self, connection: asyncpg.Connection, call: Call) -> list[Row]:
        text, unnested = self._statements[call.name]
        if not text or (call.rows is not None and not call.rows):
            return []
        columns = zip(*(call.taken() or ()), strict=True)
        arguments = [
            array_text(argument) if number in unnested else list(argument) if type(argument) is tuple else argument
            for number, argument in enumerate([*call.values, *columns], 1)
        ]
        answers: list[Row] = await connection.fetch(text, *arguments)
        return answers

    def version(self) -> int | None:
        """Tell nothing: to ask a server is no cheaper than to look."""
        return None

    async def close(self) -> None:
        """Finish what is under way and close the connections."""
        await self._news.close()
        try:
            await asyncio.wait_for(self._pool.close(), CONNECT_S)
        except TimeoutError:
            self._pool.terminate()


async def _nothing(_: asyncpg.Connection) -> None:
    """Save the round trip that resets a session: scripts leave nothing behind in it."""
