"""PostgreSQL's engine: over restarts, lost answers and poolers, and clear errors."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import quote

import asyncpg
import pytest

from outrider.model.artifact import Fetch
from outrider.model.errors import StoreError, StoreReadOnly, StoreUnavailable
from outrider.model.lease import Lease, LeaseRequest, Outcome, Report, Verdict
from outrider.model.task import CrawlLimits, Discovered
from outrider.policy.admission import KNOWN, NEW
from outrider.store.dsn import PostgresDsn
from outrider.store.opening import Stores, open_store
from outrider.store.protocols import UrlStore
from outrider.store.sql import migrate
from outrider.store.sql.postgres.connection import SERVER_SETTINGS
from outrider.store.sql.postgres.engine import PostgresEngine
from outrider.store.sql.script import Call, Script, Sql
from tests.conformance.backends import Place, PostgresBackend
from tests.everything import use_every_operation
from tests.pooler import CommitCutter, TransactionPooler
from tests.recount import COMPLETED, check_counts
from tests.servers import Databases, PostgresServer

OPEN = CrawlLimits(delay_ms=0, concurrency=3, robots=False)
SEEDS = 40
LINKS = 9

StartServer = Callable[..., PostgresServer]


class Existing(PostgresBackend):
    """Asks databases past the store, without making any."""

    def __init__(self) -> None:
        pass


async def query(dsn: str, sql: str) -> list[tuple[object, ...]]:
    return await Existing().query(dsn, sql)


async def check(dsn: str) -> None:
    await check_counts(Place(Existing(), dsn))


def migrated(server: Databases) -> str:
    dsn = server.create_database()
    migrate.upgrade(dsn)
    return dsn


@pytest.fixture
def database(postgres_server: Databases) -> Iterator[str]:
    """A database with our tables on the shared server."""
    dsn = migrated(postgres_server)
    yield dsn
    postgres_server.drop_database(dsn)


@asynccontextmanager
async def opened(dsn: str, patience_s: float = 30) -> AsyncIterator[UrlStore]:
    """Open a store and give it the crawl `c`."""
    async with await open_store(dsn, patience_s=patience_s) as stores:
        await stores.urls.create_crawl("c", limits=OPEN)
        yield stores.urls


def page(number: int) -> Discovered:
    return Discovered(url=f"https://s{number % 20}.example/{number}")


def done(lease: Lease) -> Report:
    """Report a page; the seeds have links."""
    number = int(lease.url.rsplit("/", 1)[1])
    found = [page(SEEDS + LINKS * number + place) for place in range(LINKS)] if number < SEEDS else []
    return Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200), links=found)


TOO_LONG_S = 60.0
"""By then everything should have been done several times over."""


class Work:
    """Workers that crawl until everything is done, and what they were told."""

    def __init__(self, urls: UrlStore) -> None:
        self.urls = urls
        self.verdicts: list[Verdict] = []
        self._progress = asyncio.Condition()

    async def run(self, worker: str) -> None:
        number = 0
        async with asyncio.timeout(TOO_LONG_S):
            while len(self.verdicts) < SEEDS * (LINKS + 1):
                number += 1
                request = LeaseRequest(worker=worker, request_id=str(number), slots=4, crawl="c")
                leases = (await self.urls.lease(request)).leases
                answers = await self.urls.report([done(lease) for lease in leases])
                async with self._progress:
                    self.verdicts += [answer.verdict for answer in answers]
                    self._progress.notify_all()

    async def reach(self, number: int) -> None:
        """Wait until so many pages have been reported."""
        async with asyncio.timeout(TOO_LONG_S), self._progress:
            await self._progress.wait_for(lambda: len(self.verdicts) >= number)


async def check_done_once(dsn: str, verdicts: list[Verdict]) -> None:
    """Check that each page was leased once, reported once and logged once, whatever went wrong meanwhile."""
    total = SEEDS * (LINKS + 1)
    assert verdicts == [Verdict.COMPLETED] * total
    assert await query(dsn, "SELECT state, attempt_count, count(*) FROM tasks GROUP BY 1, 2") == [(COMPLETED, 1, total)]
    assert await query(dsn, "SELECT count(*), count(DISTINCT url) FROM crawl_log") == [(total, total)]
    assert await query(dsn, "SELECT count(*) FROM leases") == [(0,)]
    await check(dsn)


# --------------------------------------------------- servers that go and come


async def test_a_crawl_goes_on_over_a_restart_and_a_crash_of_the_server(private_postgres: StartServer) -> None:
    """Invariants 5 Nothing lost, 3 Attempts and 6 Counts are exact: nothing is done twice either."""
    server = private_postgres()
    dsn = await asyncio.to_thread(migrated, server)
    async with opened(dsn) as urls:
        await urls.add("c", [page(number) for number in range(SEEDS)])
        work = Work(urls)
        workers = [asyncio.create_task(work.run(f"w{number}")) for number in range(4)]
        await work.reach(40)
        await asyncio.to_thread(server.restart, "fast")
        await work.reach(100)
        await asyncio.to_thread(server.restart, "immediate")
        await work.reach(200)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await asyncio.gather(*workers)
    await check_done_once(dsn, work.verdicts)


async def test_a_server_that_stays_away_is_an_error_after_a_bounded_wait(private_postgres: StartServer) -> None:
    server = private_postgres()
    dsn = await asyncio.to_thread(migrated, server)
    async with opened(dsn, patience_s=1) as urls:
        await urls.add("c", [page(0)])
        await asyncio.to_thread(server.stop)
        began = time.monotonic()
        answers = await asyncio.gather(urls.add("c", [page(1)]), urls.counts("c"), urls.reap(), return_exceptions=True)
        assert 1 <= time.monotonic() - began < 10
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
        assert "did not answer for 1 s" in str(answers[0])
        assert server.password not in str(answers)
        with pytest.raises(StoreUnavailable, match="cannot reach"):
            await open_store(dsn)
        await asyncio.to_thread(server.start)
        await urls.add("c", [page(1)])
        assert (await urls.counts("c")).total == 2


# ------------------------------------------------------------- lost answers


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_an_operation_whose_commit_was_cut_off_answers_as_if_nothing_had_happened(
    database: str, moment: Literal["before", "after"]
) -> None:
    """Invariants 2 Exclusivity, 3 Attempts and 5 Nothing lost: a second run finds what the first one did."""
    async with CommitCutter(database) as network, opened(network.dsn) as urls:
        network.armed = moment
        await urls.add("c", [page(number) for number in range(5)])
        assert (await urls.counts("c")).pending == 5

        network.armed = moment
        request = LeaseRequest(worker="w", request_id="r", slots=10, crawl="c")
        leases = (await urls.lease(request)).leases
        assert sorted(lease.url for lease in leases) == sorted(page(number).url for number in range(5))
        assert {lease.attempt for lease in leases} == {1}
        assert (await urls.counts("c")).assigned == 5

        network.armed = moment
        reports = [done(lease) for lease in leases]
        answers = await urls.report(reports)
        assert [answer.verdict for answer in answers] == [Verdict.COMPLETED] * 5
        assert await urls.report(reports) == answers
        assert network.cuts == 3
        counts = await urls.counts("c")
        assert (counts.completed, counts.pending) == (5, 5 * LINKS)
    assert await query(database, "SELECT count(*), max(attempt) FROM crawl_log") == [(5, 1)]
    assert await query(database, "SELECT max(attempt_count) FROM tasks") == [(1,)]
    await check(database)


async def test_a_crawl_goes_on_over_a_network_that_keeps_losing_answers(database: str) -> None:
    """Invariants 3 Attempts and 5 Nothing lost."""
    async with CommitCutter(database) as network, opened(network.dsn) as urls:
        await urls.add("c", [page(number) for number in range(SEEDS)])
        work = Work(urls)
        workers = [asyncio.create_task(work.run(f"w{number}")) for number in range(4)]
        for number in range(0, SEEDS * (LINKS + 1), 12):
            await work.reach(number)
            network.armed = "before" if number % 24 else "after"
        network.armed = None
        await asyncio.gather(*workers)
        assert network.cuts > 10
    await check_done_once(database, work.verdicts)


# ------------------------------------------------------------------- poolers


async def test_everything_works_behind_a_transaction_pooler(database: str) -> None:
    async with TransactionPooler(database, servers=2) as pooler:
        async with await open_store(pooler.dsn) as stores:
            await use_every_operation(stores.urls)
        assert all(len(servers) <= 2 for servers in pooler.served_by.values())
    await check(database)


async def test_clients_share_the_servers_behind_a_transaction_pooler(database: str) -> None:
    """Invariants 2 Exclusivity and 6 Counts are exact: no statement of one ends up with another."""
    async with TransactionPooler(database, servers=2) as pooler:
        clients: list[Stores] = [await open_store(pooler.dsn, pool_size=2) for _ in range(4)]
        await clients[0].urls.create_crawl("c", limits=OPEN)
        await clients[0].urls.add("c", [page(number) for number in range(SEEDS)])
        works = [Work(client.urls) for client in clients]
        for work in works:
            work.verdicts = works[0].verdicts
        await asyncio.gather(*(work.run(f"w{number}") for number, work in enumerate(works)))
        for client in clients:
            await client.close()
        assert sum(len(servers) == 2 for servers in pooler.served_by.values()) >= 4, "they should have been mixed"
    await check_done_once(database, works[0].verdicts)


# -------------------------------------------------------------------- errors


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


async def test_a_login_that_is_refused_is_a_clear_error_without_the_password(private_postgres: StartServer) -> None:
    server = private_postgres()
    secret = "s3cr@t/w#rd"
    address = f"127.0.0.1:{server.port}"
    good = f"postgres:{server.password}@{address}"
    for dsn, complaint in {
        f"postgresql://postgres:{quote(secret, safe='')}@{address}/postgres": "password authentication failed",
        f"postgresql://postgres@{address}/postgres?password={quote(secret, safe='')}": "password authentication failed",
        f"postgresql://stranger:{quote(secret, safe='')}@{address}/postgres": "password authentication failed",
        f"postgresql://{good}/nowhere": 'database "nowhere" does not exist',
    }.items():
        for use in (lambda dsn=dsn: open_store(dsn), lambda dsn=dsn: asyncio.to_thread(migrate.upgrade, dsn)):
            with pytest.raises(StoreError, match=complaint) as refused:
                await use()
            assert not isinstance(refused.value, StoreUnavailable)
            told = " ".join(f"{error} {error!r}" for error in chain(refused.value))
            assert not [word for word in (secret, quote(secret, safe=""), server.password) if word in told]


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:s3cr3t@127.0.0.1:port/db",
        "postgresql://me:s3c/r3t@127.0.0.1:1/db",
        "postgresql://me:s3c#r3t@127.0.0.1:1/db",
        "postgresql://me:s3c?r3t@127.0.0.1:1/db",
        "postgresql://me:s3cr3t@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=me&password=s3cr3t",
        "postgresql://me:s3cr3t@[::1/db",
    ],
)
async def test_a_name_that_cannot_be_used_is_shown_without_its_password(dsn: str) -> None:
    with pytest.raises(Exception, match=r"cannot (read the store name|reach)") as refused:
        await open_store(dsn)
    assert not [word for word in ("s3c", "r3t") if word in str(refused.value)]


async def test_a_database_that_may_only_be_read_is_a_clear_error(database: str) -> None:
    name = database.rpartition("/")[2]
    async with opened(database) as urls:
        await urls.add("c", [page(0)])
    await query(database, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    async with await open_store(database) as stores:
        with pytest.raises(StoreReadOnly, match="cannot be written"):
            await stores.urls.add("c", [page(1)])
        assert (await stores.urls.counts("c")).total == 1
        assert [task.url for task in (await stores.urls.list_tasks("c")).tasks] == [page(0).url]


async def test_any_other_error_of_the_database_is_told_and_the_store_goes_on(database: str) -> None:
    async with opened(database) as urls:
        await urls.add("c", [page(0)])
        await query(database, "ALTER TABLE tasks RENAME COLUMN url TO address")
        with pytest.raises(StoreError, match="url") as refused:
            await urls.add("c", [page(1)])
        assert not isinstance(refused.value, StoreUnavailable)
        await query(database, "ALTER TABLE tasks RENAME COLUMN address TO url")
        await urls.add("c", [page(1)])
    await check(database)


# ----------------------------------------------------- several processes


async def waiting_for_locks(dsn: str, number: int) -> None:
    """Wait until so many transactions wait for another."""
    waiting = """
        SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    async with asyncio.timeout(TOO_LONG_S):
        while await query(dsn, waiting) != [(number,)]:
            pass


async def test_urls_that_another_process_is_just_storing_are_known_and_the_others_new(database: str) -> None:
    """Invariants Identity and Counts: the later one finds them only when it inserts."""
    holder = await asyncpg.connect(database)
    async with opened(database) as first, opened(database) as second:
        async with holder.transaction():
            await holder.execute("LOCK TABLE counts IN EXCLUSIVE MODE")
            earlier = asyncio.create_task(first.add("c", [page(1), page(2), page(3)]))
            await waiting_for_locks(database, 1)
            later = asyncio.create_task(second.add("c", [page(0), page(2), page(4), page(3)]))
            await waiting_for_locks(database, 2)
        assert await earlier == [NEW] * 3
        assert await later == [NEW, KNOWN, NEW, KNOWN]
    await holder.close()
    await check(database)


# ------------------------------------------------------------------ versions


async def test_everything_works_on_an_older_server(private_postgres: StartServer) -> None:
    dsn = await asyncio.to_thread(migrated, private_postgres(version=16))
    async with await open_store(dsn) as stores:
        await use_every_operation(stores.urls)
    await check(dsn)


async def test_a_process_that_stops_in_the_middle_of_a_transaction_loses_its_locks_and_tries_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else could go on with what is locked, if the server waited for a process that is stopped."""
    monkeypatch.setitem(SERVER_SETTINGS, "idle_in_transaction_session_timeout", "200ms")
    catalogue = {"lock": Sql("SELECT pg_advisory_xact_lock(1)")}
    engine = await PostgresEngine.open(PostgresDsn(url=database), catalogue)
    stops = iter([0.6, 0.0])

    def locking() -> Script[None]:
        yield Call("lock")
        time.sleep(next(stops))  # as if by SIGSTOP
        yield Call("lock")

    await engine.write(locking)
    assert next(stops, None) is None, "it was tried twice"
    await engine.close()
