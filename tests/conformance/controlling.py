"""What the tests of the control plane share: a moment, the database itself, and its plans."""

import sqlite3
from datetime import UTC, datetime
from typing import Any, Final

import asyncpg

from outrider.policy.domain_priority import PriorityWeights
from outrider.store.sql.postgres.catalogue import catalogue as postgres_catalogue
from outrider.store.sql.postgres.connection import SERVER_SETTINGS
from outrider.store.sql.sqlite.catalogue import catalogue as sqlite_catalogue
from tests.conformance.backends import Place

NOW: Final = 1_767_323_045_678
"""2026-01-02T03:04:05.678Z: its milliseconds would show if they were lost."""
DAY: Final = 86_400_000
SQLITE: Final = sqlite_catalogue(PriorityWeights())
POSTGRES: Final = postgres_catalogue(PriorityWeights())


def at(milliseconds: int) -> datetime:
    """Give a moment as records hold it."""
    return datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)


async def execute(place: Place, *statements: str) -> None:
    """Write past the store, as later parts of the system will, or as no part ever should."""
    if place.dsn.startswith("sqlite"):
        connection = sqlite3.connect(place.dsn.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
        for statement in statements:
            connection.execute(statement)
        connection.close()
    else:
        server = await asyncpg.connect(place.dsn)
        for statement in statements:
            await server.execute(statement)
        await server.close()


async def plan_of(name: str, values: tuple[Any, ...], place: Place) -> str:
    """Ask how a statement is run; on PostgreSQL it is, in a transaction that is then rolled back."""
    if place.dsn.startswith("sqlite"):
        connection = sqlite3.connect(place.dsn.removeprefix("sqlite:///"))
        steps = connection.execute(f"EXPLAIN QUERY PLAN {SQLITE[name].text}", values).fetchall()
        connection.close()
        return "".join(f"{row[3]}\n" for row in steps)
    server = await asyncpg.connect(place.dsn, server_settings=SERVER_SETTINGS)
    literals = ", ".join(f"'{value}'" if isinstance(value, str) else str(value) for value in values)
    await server.execute(f"PREPARE statement AS {POSTGRES[name].text}")
    await server.execute("BEGIN")
    steps = await server.fetch(f"EXPLAIN (ANALYZE, TIMING OFF) EXECUTE statement ({literals})")
    await server.execute("ROLLBACK")
    await server.close()
    return "".join(f"{row[0]}\n" for row in steps)


def check_plan(plan: str, index: str) -> None:
    """Check that a statement goes by this index and looks at nothing in vain."""
    assert index in plan, plan
    for waste in ("Rows Removed", "Seq Scan", "Sort", "Hash Join", "TEMP B-TREE"):
        assert waste not in plan, plan
    scans = [line for line in plan.splitlines() if line.startswith("SCAN ") and " INDEX " not in line]
    assert scans == [], plan
