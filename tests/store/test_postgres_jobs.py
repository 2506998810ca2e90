"""Jobs on PostgreSQL: news that reach who waits for them, and discoveries that are under way when a job would end."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from outrider.model.errors import JobUnfinished
from outrider.model.job import JobRequest, runner_name
from outrider.model.lease import LeaseRequest
from outrider.model.machines import DesiredState
from outrider.model.settings import Settings
from outrider.model.task import Discovered
from outrider.policy.admission import admit
from outrider.store.opening import Stores, open_store
from outrider.store.sql import migrate
from outrider.store.sql.control_store import SqlControlStore
from outrider.store.sql.postgres.engine import PostgresEngine
from outrider.store.sql.script import Script
from outrider.store.sql.urls import crawls
from outrider.store.sql.urls.add import Batch, add
from outrider.store.sql.urls.lease import lease
from tests.conformance.controlling import NOW
from tests.conformance.jobbing import COMPLETED, PENDING, STALE, finish, prepared, read
from tests.servers import Databases

LONG_S = 20.0


@pytest_asyncio.fixture
async def stores(postgres_server: Databases) -> AsyncIterator[Stores]:
    """Both planes on a database of their own."""
    dsn = postgres_server.create_database()
    await asyncio.to_thread(migrate.upgrade, dsn)
    async with await open_store(dsn) as opened:
        yield opened
    await asyncio.to_thread(postgres_server.drop_database, dsn)


def engine_of(stores: Stores) -> PostgresEngine:
    assert isinstance(stores.control, SqlControlStore)
    assert isinstance(stores.control._engine, PostgresEngine)
    return stores.control._engine


class HeldTransaction:
    """A script that has done everything but commit."""

    def __init__(self, engine: PostgresEngine, script: Script[object]) -> None:
        self._engine = engine
        self._script = script

    async def __aenter__(self) -> int:
        self._connection = await self._engine._pool.acquire()
        self._transaction = self._connection.transaction()
        await self._transaction.start()
        await self._engine._follow(self._connection, self._script)
        return int(self._connection.get_server_pid())

    async def __aexit__(self, *_: object) -> None:
        await self._transaction.commit()
        await self._engine._pool.release(self._connection)


async def wait_until_blocked(engine: PostgresEngine, holder: int) -> None:
    """Wait until somebody waits for the locks of this process of the server."""
    deadline = time.monotonic() + LONG_S
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE $1::int = ANY (pg_blocking_pids(pid))"
    while not await engine._pool.fetchval(blocked, holder):
        assert time.monotonic() < deadline, "nobody waits"
        await asyncio.sleep(0.01)


async def test_a_job_that_would_end_waits_for_what_is_being_added(stores: Stores) -> None:
    job = await prepared(stores)
    engine = engine_of(stores)
    stored = await engine.read(lambda: crawls.find("c"))
    late = admit([Discovered(url="https://late.example/")], stored.crawl.rules).candidates
    async with HeldTransaction(engine, add(Batch(stored, late, 1), NOW, 0)) as adding:
        ending = asyncio.create_task(finish(stores.control, job, COMPLETED))
        await wait_until_blocked(engine, adding)
    with pytest.raises(JobUnfinished):
        await ending
    assert await read(stores.control, job) == job


async def test_recovery_also_ends_a_lease_that_is_just_being_granted(stores: Stores) -> None:
    """Invariant 9, Jobs: no token of the silent runner outlives it."""
    job = await prepared(stores, "https://a.org/")
    request = LeaseRequest(worker=runner_name(job.id, job.epoch), request_id="1", slots=1, crawl="c")
    engine = engine_of(stores)
    async with HeldTransaction(engine, lease(request, STALE, Settings(), 0)) as leasing:
        recovery = asyncio.create_task(stores.control.recover_stale_jobs(now=STALE))
        await wait_until_blocked(engine, leasing)
    [recovered] = await recovery
    assert recovered.status is PENDING
    assert (await stores.urls.counts("c")).assigned == 0


# ------------------------------------------------------------------------- news


async def heard(stores: Stores) -> bool:
    """Wait for news for so long that a time-out would show."""
    return await stores.control.job_news(LONG_S)


async def test_who_waits_hears_of_submissions_and_wishes_at_once(stores: Stores) -> None:
    assert await stores.control.job_news(0.5) is False, "it listens from now on"
    job = await stores.control.submit_job(JobRequest(payload={}))
    assert await heard(stores), "also of what was told while it did something else"
    for desired in (DesiredState.PAUSE, DesiredState.RUN):
        waiting = [asyncio.create_task(heard(stores)) for _ in range(3)]
        await asyncio.sleep(0)
        await stores.control.set_desired_state(job.id, desired)
        assert await asyncio.gather(*waiting) == [True] * 3


async def test_who_lost_its_connection_listens_again(stores: Stores) -> None:
    assert await stores.control.job_news(0.5) is False
    listening = engine_of(stores)._news._connection
    assert listening is not None
    listening.terminate()
    assert await stores.control.job_news(0.5) is False
    await stores.control.submit_job(JobRequest(payload={}))
    assert await heard(stores)


async def test_a_store_that_is_closed_leaves_no_listener(stores: Stores) -> None:
    await stores.control.job_news(0.5)
    listening = engine_of(stores)._news._connection
    assert listening is not None
    await stores.control.close()
    assert listening.is_closed()
