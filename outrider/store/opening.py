"""`open_store`: from a name to both planes."""

from dataclasses import dataclass
from types import TracebackType

from outrider.model.settings import Settings
from outrider.policy.domain_priority import weights_of
from outrider.store.dsn import SqliteDsn, parse_dsn
from outrider.store.protocols import ControlStore, UrlStore
from outrider.store.sql import opening as sql_opening
from outrider.store.sql.control_store import SqlControlStore
from outrider.store.sql.engine import Engine
from outrider.store.sql.postgres.catalogue import catalogue as postgres_catalogue
from outrider.store.sql.postgres.engine import PATIENCE_S, POOL_SIZE, PostgresEngine
from outrider.store.sql.sqlite.catalogue import catalogue as sqlite_catalogue
from outrider.store.sql.sqlite.engine import SqliteEngine
from outrider.store.sql.url_store import SqlUrlStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Stores:
    """The two planes of one installation."""

    urls: UrlStore
    control: ControlStore

    async def close(self) -> None:
        """Let go of both."""
        await self.urls.close()
        await self.control.close()

    async def __aenter__(self) -> "Stores":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def open_store(
    dsn: str,
    settings: Settings | None = None,
    *,
    patience_s: float = PATIENCE_S,
    pool_size: int = POOL_SIZE,
) -> Stores:
    """Open both planes on one database.

    `patience_s` bounds the wait for a server that has gone away, or for another process that holds the
    file. A SQLite file is created where there is none; a PostgreSQL database must have been prepared
    with `outrider db upgrade`.
    """
    parsed = parse_dsn(dsn)
    await sql_opening.prepare(parsed)
    weights = weights_of(settings or Settings())
    engine: Engine
    if isinstance(parsed, SqliteDsn):
        engine = SqliteEngine(parsed, sqlite_catalogue(weights), lock_wait_s=patience_s)
    else:
        engine = await PostgresEngine.open(
            parsed, postgres_catalogue(weights), pool_size=pool_size, patience_s=patience_s
        )
    return Stores(urls=SqlUrlStore(engine, settings), control=SqlControlStore(engine, settings))
