"""`transition_domain_status`: a step of a domain's life for those who speak SQL to PostgreSQL."""

import itertools
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from outrider.model.domain import DomainSeed
from outrider.model.machines import DOMAIN, DomainStatus
from outrider.store.opening import open_store
from outrider.store.sql import migrate

STEP = "SELECT transition_domain_status($1, $2, $3, $4, $5)"


@pytest_asyncio.fixture
async def server(migrated_database: str) -> AsyncIterator[asyncpg.Connection]:
    async with await open_store(migrated_database) as stores:
        await stores.control.remember_domains([DomainSeed(domain="a.org")])
    connection = await asyncpg.connect(migrated_database)
    yield connection
    await connection.close()


@pytest.fixture
def migrated_database(postgres_database: str) -> str:
    migrate.upgrade(postgres_database)
    return postgres_database


@pytest.mark.parametrize(("source", "target"), list(itertools.product(DomainStatus, DomainStatus)))
async def test_it_takes_the_steps_of_the_table_and_no_other(
    server: asyncpg.Connection, source: DomainStatus, target: DomainStatus
) -> None:
    await server.execute("UPDATE domains SET status = $1", source.value)
    domain_id = await server.fetchval("SELECT id FROM domains")
    if not DOMAIN.allows(source, target):
        with pytest.raises(asyncpg.RaiseError, match=f"Invalid transition: {source} -> {target}"):
            await server.fetchval(STEP, domain_id, source.value, target.value, None, 0)
        return
    assert await server.fetchval(STEP, domain_id, source.value, target.value, None, 0) is True
    assert await server.fetchval("SELECT (status, version)::text FROM domains") == f"({target},1)"
    assert await server.fetchval("SELECT status FROM gates") == target.value
    history = await server.fetch("SELECT from_status, to_status, version, actor FROM domain_history")
    assert [tuple(row) for row in history] == [(source.value, target.value, 1, "sql")]


async def test_it_changes_nothing_for_a_writer_who_is_mistaken(server: asyncpg.Connection) -> None:
    domain_id = await server.fetchval("SELECT id FROM domains")
    await server.execute(
        "UPDATE domains SET claimed_by = 'w', claim_expires_at = now() + interval '1 hour', claim_version = 0"
    )
    assert await server.fetchval(STEP, domain_id, "active", "blocked", "w", 0) is False, "another status"
    assert await server.fetchval(STEP, domain_id, "pending", "active", "w", 7) is False, "another version"
    assert await server.fetchval(STEP, domain_id, "pending", "active", "other", 0) is False, "no claim"
    assert await server.fetchval(STEP, domain_id, "pending", "active", "w", 0) is True
    await server.execute("UPDATE domains SET claim_expires_at = now() - interval '1 second'")
    assert await server.fetchval(STEP, domain_id, "active", "blocked", "w", 1) is False, "a claim that has expired"
    assert await server.fetchval("SELECT count(*) FROM domain_history") == 1
