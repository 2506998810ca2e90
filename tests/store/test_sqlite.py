"""SQLite's engine: one writer with group commit, readers beside it, and clear errors that leave nothing behind."""

import asyncio
import os
import sqlite3
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import pytest_asyncio

from outrider.model.artifact import Fetch
from outrider.model.errors import InvalidTransition, StoreError, StoreUnavailable
from outrider.model.lease import Lease, LeaseRequest, Outcome, Report, Verdict
from outrider.model.task import Added, CrawlLimits, Discovered
from outrider.store.opening import Stores, open_store
from outrider.store.protocols import UrlStore
from tests.processes import start

NOW = 1_700_000_000_000
OPEN = CrawlLimits(delay_ms=0, concurrency=100, robots=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outrider.sqlite"


@pytest_asyncio.fixture
async def stores(path: Path) -> AsyncIterator[Stores]:
    """An open store with the crawl `c`, which it knows already."""
    async with await open_store(f"sqlite:///{path}") as opened:
        await opened.urls.create_crawl("c", limits=OPEN, now=NOW)
        await opened.urls.add("c", [Discovered(url="https://first.example/")], now=NOW)
        yield opened


@pytest.fixture
def urls(stores: Stores) -> UrlStore:
    return stores.urls


def page(number: int) -> Discovered:
    return Discovered(url=f"https://s{number % 5}.example/{number}")


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    """Ask the file from a connection of its own, which sees only what was committed."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def commits(path: Path) -> int:
    """Count the transactions in the write-ahead log: the last frame of each says how long the file now is."""
    log = Path(f"{path}-wal").read_bytes()
    page_size, salts = struct.unpack(">I", log[8:12])[0], log[16:24]
    number = 0
    for start_of_frame in range(32, len(log), 24 + page_size):
        header = log[start_of_frame : start_of_frame + 24]
        if header[8:16] != salts:
            break
        number += header[4:8] != bytes(4)
    return number


def files_beside(path: Path) -> list[str]:
    return [found.name for found in path.parent.iterdir() if found != path]


def hold(pipe: Connection, path: str) -> None:
    """Be another process that writes, for as long as it is let."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    pipe.send("held")
    pipe.recv()
    connection.execute("ROLLBACK")
    connection.close()


@contextmanager
def written_by_another_process(path: Path) -> Iterator[None]:
    """Keep the writer waiting inside the block."""
    child = start(hold, str(path))
    assert child.receive() == "held"
    try:
        yield
    finally:
        child.pipe.send("enough")
        child.process.join()


async def begun(*calls: Awaitable[object]) -> list["asyncio.Future[object]"]:
    """Start calls, and return when each of them stands in the writer's queue."""
    tasks: list[asyncio.Future[object]] = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)
    return tasks


async def answers_of(calls: list["asyncio.Future[object]"]) -> list[object]:
    """Collect answers and errors; somebody who is never answered is an error, too."""
    async with asyncio.timeout(30):
        return await asyncio.gather(*calls, return_exceptions=True)


async def leased(urls: UrlStore, number: int) -> list[Lease]:
    await urls.add("c", [page(n) for n in range(number)], now=NOW)
    request = LeaseRequest(worker="w", request_id="r", slots=number + 1, crawl="c")
    leases = (await urls.lease(request, now=NOW)).leases
    return [lease for lease in leases if "first" not in lease.url]


def done(lease: Lease) -> Report:
    links = [Discovered(url=f"{lease.url}/found")]
    return Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200), links=links)


# ------------------------------------------------------------- group commit


async def test_callers_who_come_together_share_a_transaction(urls: UrlStore, path: Path) -> None:
    before = commits(path)
    with written_by_another_process(path):
        calls = await begun(*(urls.add("c", [page(n)], now=NOW) for n in range(100)))
    assert not [answer for answer in await answers_of(calls) if isinstance(answer, Exception)]
    assert commits(path) == before + 1
    assert query(path, "SELECT count(*) FROM tasks") == [(101,)]


async def test_without_others_each_call_is_a_transaction(urls: UrlStore, path: Path) -> None:
    before = commits(path)
    for number in range(5):
        await urls.add("c", [page(number)], now=NOW)
    assert commits(path) == before + 5


async def test_a_caller_is_answered_after_the_commit(urls: UrlStore, path: Path) -> None:
    """Invariant 5, Nothing lost: what a caller was told is in the file."""

    async def add_and_look(number: int) -> None:
        assert (await urls.add("c", [page(number)], now=NOW))[0].outcome is Added.NEW
        assert query(path, f"SELECT count(*) FROM tasks WHERE url LIKE '%/{number}'") == [(1,)]

    await asyncio.gather(*map(add_and_look, range(300)))


async def test_one_that_fails_does_not_harm_those_it_shares_a_transaction_with(urls: UrlStore, path: Path) -> None:
    """Invariant 5, Nothing lost: of the one that fails nothing stays, not even what it had already written."""
    leases = await leased(urls, 20)
    # Nobody but a person with an SQL prompt can do this; the report finds out at its very end.
    spoilt = leases[7]
    connection = sqlite3.connect(path)
    connection.execute("UPDATE tasks SET state = 3 WHERE url = ?", (spoilt.url,))
    connection.commit()
    connection.close()

    before = commits(path)
    with written_by_another_process(path):
        calls = await begun(*(urls.report([done(lease)], now=NOW + 1) for lease in leases))
    answers = await answers_of(calls)
    assert isinstance(answers.pop(7), InvalidTransition)
    assert {answer[0].verdict for answer in answers if isinstance(answer, list)} == {Verdict.COMPLETED}
    assert len(answers) == 19
    assert commits(path) == before + 1
    found = query(path, "SELECT url FROM tasks WHERE url LIKE '%/found'")
    assert sorted(found) == sorted((f"{lease.url}/found",) for lease in leases if lease is not spoilt)
    assert query(path, f"SELECT count(*) FROM leases WHERE token = x'{spoilt.token}'") == [(1,)]
    assert query(path, "SELECT count(*) FROM crawl_log") == [(19,)]


async def test_a_caller_that_gives_up_harms_nobody(urls: UrlStore, path: Path) -> None:
    with written_by_another_process(path):
        calls = await begun(*(urls.add("c", [page(n)], now=NOW) for n in range(10)))
        for number in (0, 4, 9):
            calls[number].cancel()
        await asyncio.sleep(0)
    answers = await answers_of(calls)
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [n in (0, 4, 9) for n in range(10)]
    stored = {url for (url,) in query(path, "SELECT url FROM tasks")}
    assert {page(n).url for n in range(10) if n not in (0, 4, 9)} <= stored
    assert (await urls.add("c", [page(99)], now=NOW))[0].outcome is Added.NEW


async def test_closing_commits_what_is_waiting(path: Path) -> None:
    """Invariant 5, Nothing lost: an orderly end answers everybody first."""
    stores = await open_store(f"sqlite:///{path}")
    await stores.urls.create_crawl("c", limits=OPEN, now=NOW)
    await stores.urls.add("c", [page(0)], now=NOW)
    with written_by_another_process(path):
        calls = await begun(*(stores.urls.add("c", [page(n)], now=NOW) for n in range(1, 10)), stores.close())
    assert not [answer for answer in await answers_of(calls) if isinstance(answer, Exception)]
    assert query(path, "SELECT count(*) FROM tasks") == [(10,)]
    assert files_beside(path) == [], "the log has gone back into the file"
    with pytest.raises(StoreError, match="is closed"):
        await stores.urls.add("c", [page(11)], now=NOW)
    with pytest.raises(StoreError, match="is closed"):
        await stores.urls.counts("c")
    await stores.close()


# --------------------------------------------------------- others beside us


async def test_readers_and_the_writer_do_not_wait_for_each_other(urls: UrlStore, path: Path) -> None:
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM tasks").fetchone() == (1,)
    await urls.add("c", [page(1)], now=NOW)
    assert reader.execute("SELECT count(*) FROM tasks").fetchone() == (1,), "it reads on in its snapshot"
    reader.close()
    with written_by_another_process(path):
        assert (await urls.counts("c")).total == 2
        assert len((await urls.list_tasks("c")).tasks) == 2


async def test_another_process_that_writes_for_too_long_is_an_error_after_a_bounded_wait(path: Path) -> None:
    patience_s = 1
    async with await open_store(f"sqlite:///{path}", patience_s=patience_s) as stores:
        await stores.urls.create_crawl("c", limits=OPEN, now=NOW)
        await stores.urls.add("c", [page(0)], now=NOW)
        with written_by_another_process(path):
            began = time.monotonic()
            calls = await begun(*(stores.urls.add("c", [page(n)], now=NOW) for n in range(1, 9)))
            answers = await answers_of(calls)
            waited_s = time.monotonic() - began
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 8
        assert "locked by another process" in str(answers[0])
        # However many wait: one after the other would have been eight times as long.
        assert patience_s <= waited_s < 4 * patience_s
        assert (await stores.urls.counts("c")).total == 1
        assert (await stores.urls.add("c", [page(1)], now=NOW))[0].outcome is Added.NEW


async def test_two_processes_write_to_one_file_in_turns(urls: UrlStore, path: Path) -> None:
    """Invariant 6, Counts are exact: each sees what the other has committed."""
    child = start(add_some, str(path))
    for number in range(100):
        await urls.add("c", [page(number)], now=NOW)
    assert child.receive() == "done"
    child.process.join()
    assert (await urls.counts("c")).total == 201
    assert query(path, "SELECT count(*) FROM tasks") == [(201,)]


def add_some(pipe: Connection, path: str) -> None:
    async def add() -> None:
        async with await open_store(f"sqlite:///{path}") as stores:
            for number in range(100, 200):
                await stores.urls.add("c", [page(number)], now=NOW)

    asyncio.run(add())
    pipe.send("done")


def test_the_file_is_let_go_of_when_its_process_dies(path: Path) -> None:
    """Invariant 5, Nothing lost: a writer killed in the middle keeps nobody out."""
    asyncio.run(make(path))
    child = start(hold, str(path))
    assert child.receive() == "held"
    os.kill(child.process.pid or 0, 9)
    child.process.join()
    asyncio.run(make(path))


async def make(path: Path) -> None:
    async with await open_store(f"sqlite:///{path}", patience_s=1) as stores:
        await stores.urls.create_crawl("c", limits=OPEN, now=NOW)
        await stores.urls.add("c", [page(0)], now=NOW)
