"""The remote frontier on a bad day: answers that get lost, services that restart, refuse or are none."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

import outrider
from outrider.model.api_key import Role
from outrider.model.artifact import Fetch
from outrider.model.errors import InvalidInput, OutriderError, StoreUnavailable
from outrider.model.lease import LeaseRequest, Outcome, Report, Verdict
from outrider.model.task import Added, CrawlLimits, CrawlRules, CrawlState, Discovered
from outrider.service import client
from outrider.service.client import RemoteFrontier, connect
from outrider.service.keys import create_key
from outrider.service.problems import Unauthenticated
from tests.service.serving import Port, Served, open_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

FREE = CrawlLimits(delay_ms=0, concurrency=100, robots=False)


class Line:
    """A connection to a service that can lose answers."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._host, self._port = str(parts.hostname), parts.port
        self.to_lose = 0
        """So many of the next answers do not arrive, though the service has sent them."""
        self.lost = 0
        self.base_url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        upstream, outgoing = await asyncio.open_connection(self._host, self._port)
        forth = asyncio.create_task(self._carry(reader, outgoing))
        try:
            while data := await upstream.read(65_536):
                if self.to_lose:
                    self.to_lose -= 1
                    self.lost += 1
                    return
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            forth.cancel()
            for each in (writer, outgoing):
                each.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def open_line(target: str) -> AsyncIterator[Line]:
    line = Line(target)
    async with await asyncio.start_server(line.handle, "127.0.0.1", 0) as server:
        line.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield line


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[Port]:
    async with open_port() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def served(port: Port, tmp_path: Path) -> AsyncIterator[Served]:
    async with port.serving(tmp_path) as running:
        await running.service.backend.stores.urls.create_crawl("news", CrawlRules(), FREE)
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def line(served: Served) -> AsyncIterator[Line]:
    async with open_line(served.base_url) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def remote(line: Line) -> AsyncIterator[RemoteFrontier]:
    async with connect(line.base_url) as frontier:
        yield frontier


def wish(request_id: str = "r", slots: int = 10) -> LeaseRequest:
    return LeaseRequest(worker="w", request_id=request_id, slots=slots, crawl="news")


async def test_it_is_had_from_the_package_itself() -> None:
    assert outrider.connect is client.connect


async def test_leases_whose_answer_got_lost_are_had_by_asking_again(remote: RemoteFrontier, line: Line) -> None:
    """Invariant 2, Exclusivity: nothing is stranded, nothing handed out twice."""
    await remote.add("news", [Discovered(url=f"http://a.example/{number}") for number in range(5)])
    line.to_lose = 2
    began = time.monotonic()
    work = await remote.lease(wish(slots=3))
    assert (len(work.grant.leases), line.lost) == (3, 2)
    assert {lease.attempt for lease in work.grant.leases} == {1}
    # They may have begun when they were first asked for.
    assert began <= work.asked_at < began + 0.04
    assert len((await remote.lease(wish("next"))).grant.leases) == 2


async def test_the_clock_of_leases_runs_from_the_first_call_that_asked_for_them(served: Served, line: Line) -> None:
    async with connect(line.base_url, patience_s=0) as hasty:
        await hasty.add("news", [Discovered(url="http://a.example/")])
        began = time.monotonic()
        line.to_lose = 1
        with pytest.raises(StoreUnavailable):
            await hasty.lease(wish())
        asked_again = time.monotonic()
        work = await hasty.lease(wish())
    assert len(work.grant.leases) == 1
    assert began <= work.asked_at <= asked_again


async def test_a_report_whose_answer_got_lost_counts_once(remote: RemoteFrontier, line: Line) -> None:
    """Invariant 5, Nothing lost."""
    await remote.add("news", [Discovered(url="http://a.example/")])
    (lease,) = (await remote.lease(wish())).grant.leases
    links = [Discovered(url="http://a.example/next")]
    line.to_lose = 1
    report = Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200), links=links)
    (answer,) = await remote.report([report])
    assert (answer.verdict, line.lost) == (Verdict.COMPLETED, 1)
    counts = (await remote.outlook("news")).counts
    assert (counts.completed, counts.pending) == (1, 1)


async def test_an_addition_whose_answer_got_lost_is_known_the_second_time(remote: RemoteFrontier, line: Line) -> None:
    line.to_lose = 1
    (result,) = await remote.add("news", [Discovered(url="http://a.example/")])
    assert (result.outcome, line.lost) == (Added.KNOWN, 1)
    assert (await remote.outlook("news")).counts.total == 1


async def test_a_service_out_of_reach_is_a_store_out_of_reach_after_bounded_patience() -> None:
    began = time.monotonic()
    async with connect("http://127.0.0.1:9", patience_s=0.3) as frontier:
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:9 is out of reach"):
            await frontier.outlook("news")
    assert time.monotonic() - began < 5


async def test_a_batch_larger_than_the_service_takes_is_sent_in_parts(port: Port, tmp_path: Path) -> None:
    async with port.serving(tmp_path, max_body_bytes=5_000) as served, connect(served.base_url) as frontier:
        await frontier.create_crawl("news", limits=FREE)
        items = [Discovered(url=f"http://a.example/{number}") for number in range(200)]
        items[150] = Discovered(url="nope")
        results = await frontier.add("news", items)
        assert [result.outcome for result in results] == [
            Added.REJECTED if number == 150 else Added.NEW for number in range(200)
        ]
        huge = Discovered(url="http://a.example/huge", metadata={"text": "x" * 6_000})
        with pytest.raises(OutriderError, match="allowed are 5000"):
            await frontier.add("news", [huge])


async def test_more_than_a_batch_may_hold_is_sent_in_batches(remote: RemoteFrontier) -> None:
    items = [Discovered(url=f"http://a.example/{number}") for number in range(10_001)]
    results = await remote.add("news", items)
    assert [result.outcome for result in results] == [Added.NEW] * 10_001


async def test_a_key_that_asks_too_often_comes_again_by_itself(port: Port, tmp_path: Path) -> None:
    async with port.serving(tmp_path, rate=4) as served:
        urls = served.service.backend.stores.urls
        await urls.create_crawl("news", CrawlRules(), FREE)
        made = await create_key(served.service.backend.stores.control, "mine", Role.CRAWL)
        async with connect(served.base_url, key=made.text) as frontier:
            began = time.monotonic()
            for _ in range(6):
                await frontier.outlook("news")
            assert time.monotonic() - began > 0.4


async def test_a_wrong_key_is_told_at_once(served: Served) -> None:
    await create_key(served.service.backend.stores.control, "other", Role.CRAWL)
    async with connect(served.base_url, key=f"outrider_{'0' * 16}_{'x' * 43}") as frontier:
        began = time.monotonic()
        with pytest.raises(Unauthenticated):
            await frontier.outlook("news")
        assert time.monotonic() - began < 2


async def test_a_server_that_is_no_outrider_is_told_as_such() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"http://127.0.0.1:{port}") as frontier:
            with pytest.raises(OutriderError, match="is it an Outrider"):
                await frontier.outlook("news")


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:7071", "ftp://host", "http://", "http://me:secret@host", "http://host/?x=1"]
)
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        connect(url)
    assert "secret" not in str(refused.value)


async def test_a_key_that_is_none_is_refused_without_being_told() -> None:
    with pytest.raises(InvalidInput) as refused:
        connect("http://127.0.0.1", key="two words\n")
    assert "two words" not in str(refused.value)


async def test_crawls_are_set_up_from_afar(remote: RemoteFrontier) -> None:
    made = await remote.create_crawl("a/b", CrawlRules(sort_query=True), CrawlLimits(max_pages=3))
    assert (made.name, made.limits.max_pages, made.rules.sort_query) == ("a/b", 3, True)
    assert (await remote.set_crawl_state("a/b", CrawlState.PAUSED)).state is CrawlState.PAUSED
    assert [crawl.name for crawl in await remote.list_crawls()] == ["a/b", "news"]
    assert (await remote.show_crawl("a/b")).state is CrawlState.PAUSED
