"""Connecting to PostgreSQL, and finding out what stands in between."""

import ssl
from typing import Any

import asyncpg

from outrider.model.errors import StoreError, StoreUnavailable
from outrider.store.dsn import PostgresDsn

CONNECT_S = 10.0

# Every statement looks up few rows by an index, whatever the values and however large the tables. Planning
# each anew, or compiling it, would cost more than running it; and a planner without statistics, as on a fresh
# database, would read whole tables: 2,500 reports took 5 s that way, and 0.5 s by the indexes.
SERVER_SETTINGS = {
    "application_name": "outrider",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # A process that is stopped in the middle of a transaction, or whose machine is, holds its locks: nobody could take
    # its job from it. No transaction of ours waits for its client for longer than milliseconds.
    "idle_in_transaction_session_timeout": "10s",
}

GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
    OSError,
)
"""What a lost or missing server looks like; all of it may pass. A time-out is an OSError."""

TURN_LOST = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""The transaction was rolled back for somebody else's sake."""


async def connect_once(dsn: PostgresDsn, **options: Any) -> asyncpg.Connection:
    """Connect, or say in our words why not."""
    try:
        return await asyncpg.connect(dsn.url, timeout=CONNECT_S, **options)
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
        raise StoreError(f"cannot open {dsn.shown}: {error}") from error
    except (asyncpg.ClientConfigurationError, ValueError) as error:
        raise StoreError(f"cannot read the store name {dsn.shown}: {error}") from error
    except (*GONE, ssl.SSLError) as error:
        raise StoreUnavailable(f"cannot reach {dsn.shown}: {error or type(error).__name__}") from error


def was_closed(error: asyncpg.InterfaceError) -> bool:
    """Tell a connection that was closed under us from a statement that we got wrong."""
    return not isinstance(error, asyncpg.DataError) and "closed" in str(error)


async def behind_pooler(connection: asyncpg.Connection) -> bool:
    """Tell whether a pooler stands between: the server that answers is not the one that greeted us.

    A pooler gives out process numbers of its own. One that hands out a server per transaction would
    mix up prepared statements, so the engine then does without them.
    """
    number = await connection.fetchval("SELECT pg_backend_pid()")
    return bool(number != connection.get_server_pid())
