"""URLFrontier's calls, all 19, made by its own kind of client over a real socket on a real store."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from outrider.model.api_key import Role
from outrider.model.gate import GateSettings
from outrider.service import urlfrontier_pb2 as messages
from outrider.service.grpc.app import GrpcApp
from outrider.service.keys import Principal
from outrider.service.server import Server, ServerOptions
from outrider.service.urlfrontier import URLFrontier, translated
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore

OK, SKIPPED, FAIL = messages.AckMessage.OK, messages.AckMessage.SKIPPED, messages.AckMessage.FAIL
WAIT_S = 10
BOUND = Principal("bound", Role.CRAWL, frozenset({"mine"}))


class Client:
    """Calls by name, with the fields of their requests."""

    def __init__(self, channel: grpc.aio.Channel, urls: UrlStore, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._channel = channel
        self._metadata = metadata
        self.urls = urls
        """The store behind the service."""

    async def ask(self, name: str, **fields: Any) -> Any:
        method = METHODS[name]
        call = self._channel.unary_unary(
            f"/urlfrontier.URLFrontier/{name}", method[0].SerializeToString, method[1].FromString
        )
        return await call(method[0](**fields), timeout=WAIT_S, metadata=self._metadata)

    async def stream(self, name: str, **fields: Any) -> list[Any]:
        method = METHODS[name]
        call = self._channel.unary_stream(
            f"/urlfrontier.URLFrontier/{name}", method[0].SerializeToString, method[1].FromString
        )
        return [answer async for answer in call(method[0](**fields), timeout=WAIT_S, metadata=self._metadata)]

    async def send(self, name: str, requests: Iterable[Any]) -> list[Any]:
        method = METHODS[name]
        call = self._channel.stream_stream(
            f"/urlfrontier.URLFrontier/{name}", method[0].SerializeToString, method[1].FromString
        )
        return [answer async for answer in call(iter(requests), timeout=WAIT_S, metadata=self._metadata)]

    async def put(self, *items: messages.URLItem) -> list[Any]:
        return [ack.status for ack in await self.send("PutURLs", items)]

    async def get(self, **fields: Any) -> list[str]:
        return [info.url for info in await self.stream("GetURLs", **fields)]

    async def without_delay(self, crawl: str = "") -> None:
        await self.ask("SetDelay", delay_requestable=0, crawlID=crawl)

    async def stats(self, **fields: Any) -> tuple[int, int, int, int, int]:
        found = await self.ask("GetStats", **fields)
        counts = found.counts
        return found.size, found.inProcess, counts["completed"], found.numberOfQueues, counts["active_queues"]


M = messages
METHODS: dict[str, tuple[Any, Any]] = {
    "ListNodes": (M.Empty, M.StringList), "ListCrawls": (M.Local, M.StringList),
    "DeleteCrawl": (M.DeleteCrawlMessage, M.Long), "ListQueues": (M.Pagination, M.QueueList),
    "GetURLs": (M.GetParams, M.URLInfo), "PutURLs": (M.URLItem, M.AckMessage),
    "PutDiscovered": (M.DiscoveredBatch, M.BatchAck), "GetStats": (M.QueueWithinCrawlParams, M.Stats),
    "DeleteQueue": (M.QueueWithinCrawlParams, M.Long), "BlockQueueUntil": (M.BlockQueueParams, M.Empty),
    "SetActive": (M.Active, M.Empty), "GetActive": (M.Local, M.Boolean), "SetDelay": (M.QueueDelayParams, M.Empty),
    "SetLogLevel": (M.LogLevelParams, M.Empty), "SetCrawlLimit": (M.CrawlLimitParams, M.Empty),
    "GetURLStatus": (M.URLStatusRequest, M.URLItem), "ListURLs": (M.ListUrlParams, M.URLItem),
    "CountURLs": (M.CountUrlParams, M.Long), "PurgeURLs": (M.PurgeUrlParams, M.Long),
}  # fmt: skip


def info(url: str, key: str = "", crawl: str = "", **metadata: list[str]) -> messages.URLInfo:
    kept = {name: messages.StringList(values=values) for name, values in metadata.items()}
    return messages.URLInfo(url=url, key=key, crawlID=crawl, metadata=kept)


def discovered(url: str, key: str = "", crawl: str = "", **metadata: list[str]) -> messages.URLItem:
    return messages.URLItem(discovered=messages.DiscoveredURLItem(info=info(url, key, crawl, **metadata)))


def known(url: str, date: int, key: str = "", crawl: str = "", **metadata: list[str]) -> messages.URLItem:
    item = messages.KnownURLItem(info=info(url, key, crawl, **metadata), refetchable_from_date=date)
    return messages.URLItem(known=item)


async def _who(metadata: Any, _: str) -> Principal | None:
    return BOUND if metadata.get("authorization") == "bound" else None


@asynccontextmanager
async def connected(path: Path, metadata: tuple[tuple[str, str], ...] = ()) -> AsyncIterator[Client]:
    async with await open_store(f"sqlite:///{path}") as stores:
        frontier = URLFrontier(stores.urls, node="here:7071")
        app = GrpcApp([frontier.service], translate=translated, authorise=_who)
        async with (
            Server(app, ServerOptions(port=0, drain_s=1), on_stop=[app.drain]) as server,
            grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        ):
            yield Client(channel, stores.urls, metadata)


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a frontier that is empty."""
    async with connected(tmp_path / "store.sqlite") as connection:
        yield connection


# --------------------------------------------------------------------- put


async def test_every_call_of_the_definition_is_served(tmp_path: Path) -> None:
    service = messages.DESCRIPTOR.services_by_name["URLFrontier"]
    assert set(METHODS) == {method.name for method in service.methods}
    async with await open_store(f"sqlite:///{tmp_path}/methods.sqlite") as stores:
        assert set(URLFrontier(stores.urls).service.methods) == set(METHODS)


async def test_an_ack_echoes_the_id_or_else_the_url_as_it_was_sent(client: Client) -> None:
    spelt = "HTTP://Example.org:80/a/../b#top"
    items = [discovered(spelt), discovered("http://example.org/c"), known("http://example.org/d", 5)]
    items[1].ID = "mine"
    acks = await client.send("PutURLs", items)
    assert [(ack.ID, ack.status) for ack in acks] == [(spelt, OK), ("mine", OK), ("http://example.org/d", OK)]
    assert sorted(await client.get()) == [f"http://example.org/{page}" for page in "bcd"]


async def test_a_discovery_of_what_is_known_or_comes_twice_is_skipped(client: Client) -> None:
    one, done = discovered("http://a.org/1"), known("http://a.org/done", 0)
    assert await client.put(one, done, one) == [OK, OK, SKIPPED]
    assert await client.put(one, discovered("http://a.org/done")) == [SKIPPED, SKIPPED]
    assert await client.get() == ["http://a.org/1"]


async def test_items_of_one_url_count_in_the_order_in_which_they_came(client: Client) -> None:
    url = "http://a.org/1"
    assert await client.put(discovered(url), known(url, 0), discovered(url), known(url, 7)) == [OK, OK, SKIPPED, OK]
    status = await client.ask("GetURLStatus", url=url)
    assert status.known.refetchable_from_date == 7


async def test_what_cannot_be_stored_is_skipped_and_harms_nothing_else(client: Client) -> None:
    items = [
        discovered("not a url"), discovered("http://a.org/1", key="k" * 256), known("ftp://a.org/", 1),
        known("http://a.org/2", 1, key="k" * 256), messages.URLItem(), discovered("http://a.org/3", crawl="c" * 300),
        discovered("http://a.org/4", note=["x" * 20_000]), discovered("http://a.org/5", key="k" * 255),
    ]  # fmt: skip
    assert await client.put(*items) == [SKIPPED] * 7 + [OK]


async def test_the_statuses_of_a_batch_are_in_its_order_and_an_empty_one_is_acked(client: Client) -> None:
    pages = [info(f"http://h{number}.org/") for number in range(300)]
    batches = [
        messages.DiscoveredBatch(ID="a", items=[*pages[:200], info("nonsense"), pages[0]]),
        messages.DiscoveredBatch(ID="probe"),
        messages.DiscoveredBatch(ID="b", items=pages[199:]),
    ]
    acks = await client.send("PutDiscovered", batches)
    assert [ack.ID for ack in acks] == ["a", "probe", "b"]
    assert list(acks[0].statuses) == [OK] * 200 + [SKIPPED] * 2
    assert list(acks[1].statuses) == []
    assert list(acks[2].statuses) == [SKIPPED] + [OK] * 100


async def test_a_batch_larger_than_the_store_takes_at_once_is_stored_whole(client: Client) -> None:
    items = [info(f"http://a.org/{number}") for number in range(10_500)]
    (ack,) = await client.send("PutDiscovered", [messages.DiscoveredBatch(ID="large", items=items)])
    assert list(ack.statuses) == [OK] * 10_500


# --------------------------------------------------------------------- get


async def test_a_url_comes_with_its_key_its_crawl_and_its_metadata(client: Client) -> None:
    await client.put(discovered("http://www.a.org/", depth=["1"], tags=["x", "y"]), discovered("http://b.org/", "mine"))
    found = {each.url: each for each in await client.stream("GetURLs")}
    assert found["http://www.a.org/"] == info("http://www.a.org/", "www.a.org", "DEFAULT", depth=["1"], tags=["x", "y"])
    assert found["http://b.org/"] == info("http://b.org/", "mine", "DEFAULT")


async def test_urls_come_by_their_dates_and_then_as_they_were_put(client: Client) -> None:
    await client.put(discovered("http://a.org/today"), *(known(f"http://a.org/{date}", date) for date in (30, 10, 20)))
    await client.put(known("http://a.org/11", 10), known("http://a.org/tomorrow", int(time.time()) + 86_400))
    expected = ["10", "11", "20", "30", "today"]
    assert await client.get() == [f"http://a.org/{name}" for name in expected]


async def test_a_get_is_bound_by_queues_and_urls_per_queue_and_may_name_crawl_and_queue(client: Client) -> None:
    for crawl in ("", "other"):
        await client.without_delay(crawl)
        await client.put(*(discovered(f"http://h{n % 5}.{crawl or 'org'}/{n}", crawl=crawl) for n in range(20)))
    some = await client.stream("GetURLs", max_urls_per_queue=2, max_queues=3, crawlID="other")
    assert len({each.key for each in some}) == 3
    assert len(some) == 6
    assert {each.crawlID for each in some} == {"other"}
    assert len(await client.get(key="h0.org")) == 4
    assert await client.get(crawlID="other", key="h0.org") == []
    assert await client.get(crawlID="unknown") == []
    everything = await client.stream("GetURLs", anyCrawlID=messages.AnyCrawlID())
    assert len(everything) == 40 - 6 - 4
    assert {each.crawlID for each in everything} == {"DEFAULT", "other"}


async def test_a_queue_in_its_delay_or_with_enough_in_process_is_passed_over(client: Client) -> None:
    await client.put(*(discovered(f"http://a.org/{n}") for n in range(4)))
    assert len(await client.get(max_urls_per_queue=1)) == 1
    assert await client.get(max_urls_per_queue=2) == [], "by default, a queue is served once a second"
    await client.without_delay()
    assert await client.get(max_urls_per_queue=1) == []
    await client.put(known("http://a.org/0", 0))
    assert await client.get(max_urls_per_queue=1) == ["http://a.org/1"]


async def test_a_deactivated_frontier_serves_an_empty_stream_and_stays_so_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    async with connected(path) as client:
        assert (await client.ask("GetActive")).state is True
        await client.put(discovered("http://a.org/"))
        await client.ask("SetActive", state=False)
        assert await client.get() == []
    async with connected(path) as client:
        assert (await client.ask("GetActive")).state is False
        await client.ask("SetActive", state=True)
        assert await client.get() == ["http://a.org/"]
        assert await client.get() == [], "its lease has outlived the restart as well"


async def test_a_block_of_a_domain_holds_for_these_clients_too(client: Client) -> None:
    await client.urls.configure_gate("a.org", GateSettings(blocked_until=int(time.time() + 3600) * 1000))
    await client.put(discovered("http://a.org/"), discovered("http://b.org/"))
    assert await client.get() == ["http://b.org/"]


# ---------------------------------------------------------------- settings


async def test_settings_of_a_queue_hold_before_its_first_url(client: Client) -> None:
    await client.without_delay()
    await client.ask("BlockQueueUntil", key="blocked.org", time=int(time.time()) + 3600)
    await client.ask("SetDelay", key="slow.org", delay_requestable=3600)
    await client.ask("SetCrawlLimit", key="small.org", limit=1)
    hosts = ("blocked.org", "slow.org", "small.org")
    await client.put(*(discovered(f"http://{host}/{n}") for host in hosts for n in range(3)))
    assert sorted(await client.get(max_urls_per_queue=1)) == ["http://slow.org/0", "http://small.org/0"]
    await client.put(known("http://small.org/0", 0))
    assert await client.get(max_urls_per_queue=2) == []
    await client.ask("BlockQueueUntil", key="blocked.org", time=0)
    await client.ask("SetCrawlLimit", key="small.org", limit=0)
    await client.ask("SetDelay", key="slow.org", delay_requestable=0)
    assert len(await client.get(max_urls_per_queue=2)) == 6


async def test_a_setting_without_a_usable_key_is_an_invalid_argument(client: Client) -> None:
    for name in ("BlockQueueUntil", "SetCrawlLimit"):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await client.ask(name)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_log_level_is_set(client: Client) -> None:
    before = logging.getLogger("outrider").level
    try:
        await client.ask("SetLogLevel", package="crawlercommons", level=messages.LogLevelParams.ERROR)
        assert logging.getLogger("outrider").level == logging.ERROR
    finally:
        logging.getLogger("outrider").setLevel(before)


# ----------------------------------------------------------------- listing


async def test_statistics_tell_what_is_active_in_process_and_completed(client: Client) -> None:
    assert await client.stats() == (0, 0, 0, 0, 0)
    await client.put(*(discovered(f"http://h{n % 2}.org/{n}") for n in range(6)), known("http://done.org/", 0))
    assert len(await client.get(max_urls_per_queue=1)) == 2
    assert await client.stats() == (6, 2, 1, 3, 2)
    assert await client.stats(crawlID="DEFAULT", key="h0.org") == (3, 1, 0, 1, 1)
    assert await client.stats(key="unknown.org") == (0, 0, 0, 0, 0)


async def test_queues_and_crawls_and_nodes_are_listed(client: Client) -> None:
    await client.put(*(discovered(f"http://h{n:03}.org/") for n in range(150)), known("http://done.org/", 0))
    await client.put(discovered("http://a.org/", crawl="with_underscore"))
    first = await client.ask("ListQueues")
    assert (len(first.values), first.total, first.start, first.size, first.crawlID) == (100, 150, 0, 100, "DEFAULT")
    rest = await client.ask("ListQueues", start=100, size=60, include_inactive=True)
    assert (len(rest.values), rest.total) == (51, 151)
    assert list((await client.ask("ListQueues", crawlID="unknown")).values) == []
    assert list((await client.ask("ListCrawls")).values) == ["DEFAULT", "with_underscore"]
    assert list((await client.ask("ListNodes")).values) == ["here:7071"]


async def test_urls_are_listed_as_known_items_with_an_offset_behind_the_filter(client: Client) -> None:
    urls = [f"http://h{n % 3}.org/{'Odd' if n % 2 else 'even'}/{n}" for n in range(240)]
    await client.put(*(discovered(url) for url in urls), known("http://done.org/x", 0, a=["b"]))
    everything = await client.stream("ListURLs", size=2**31 - 1)
    assert {each.known.info.url for each in everything} == {*urls, "http://done.org/x"}
    assert {each.WhichOneof("item") for each in everything} == {"known"}
    (done,) = (each for each in everything if each.known.info.url == "http://done.org/x")
    assert (done.known.refetchable_from_date, done.known.info) == (
        0,
        info("http://done.org/x", "done.org", "DEFAULT", a=["b"]),
    )
    assert abs(done.creation_date - time.time()) < 60
    assert len(await client.stream("ListURLs")) == 100
    odd = await client.stream("ListURLs", filter="odd", ignoreCase=True, size=1000)
    assert len(odd) == 120
    assert await client.stream("ListURLs", filter="odd", ignoreCase=True, start=50, size=10) == odd[50:60]
    assert await client.stream("ListURLs", filter="odd") == []
    assert len(await client.stream("ListURLs", key="h1.org", start=70, size=1000)) == 10
    assert await client.stream("ListURLs", crawlID="unknown") == []


async def test_urls_are_counted_by_queue_and_filter(client: Client) -> None:
    await client.put(*(discovered(f"http://h{n % 3}.org/{n}") for n in range(30)))

    async def count(**fields: Any) -> int:
        return int((await client.ask("CountURLs", **fields)).value)

    assert await count() == 30
    assert await count(key="h1.org") == 10
    assert await count(filter="ORG/2", ignoreCase=True) == 11
    assert await count(filter="ORG/2") == 0
    assert await count(key="h2.org", filter="/2") == 5
    assert await count(crawlID="unknown") == 0


async def test_the_status_of_a_url_is_found_by_any_spelling(client: Client) -> None:
    await client.put(known("http://A.org:80/x", 12, a=["1"]))
    found = await client.ask("GetURLStatus", url="http://a.org/./x#y")
    assert found.known == messages.KnownURLItem(
        info=info("http://a.org/x", "a.org", "DEFAULT", a=["1"]), refetchable_from_date=12
    )
    for fields, code in (
        ({"url": "http://a.org/y"}, grpc.StatusCode.NOT_FOUND),
        ({"url": "http://a.org/x", "key": "other"}, grpc.StatusCode.NOT_FOUND),
        ({"url": "http://a.org/x", "crawlID": "unknown"}, grpc.StatusCode.NOT_FOUND),
        ({"url": "nonsense"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({}, grpc.StatusCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await client.ask("GetURLStatus", **fields)
        assert raised.value.code() is code


# ---------------------------------------------------------------- removing


async def test_what_is_removed_is_counted(client: Client) -> None:
    await client.put(*(discovered(f"http://h{n % 3}.org/{n}") for n in range(30)))
    assert (await client.ask("DeleteQueue", key="h0.org")).value == 10
    assert (await client.ask("DeleteQueue", key="h0.org")).value == 0
    assert (await client.ask("DeleteQueue")).value == 0
    assert (await client.ask("PurgeURLs", days=1)).value == 0
    assert (await client.ask("PurgeURLs", key="h1.org", crawlID="unknown")).value == 0
    assert (await client.ask("DeleteCrawl")).value == 20
    assert (await client.ask("DeleteCrawl", value="unknown")).value == 0
    assert await client.put(discovered("http://h0.org/0")) == [OK]


async def test_many_streams_at_once_leave_exact_counts(client: Client) -> None:
    await client.without_delay()

    async def crawl(worker: int) -> int:
        done = 0
        urls = [f"http://h{n % 7}.org/{n}" for n in range(worker * 50, worker * 50 + 100)]
        await client.put(*(discovered(url) for url in urls))
        while batch := await client.get(max_urls_per_queue=5):
            done += sum(status == OK for status in await client.put(*(known(url, 0) for url in batch)))
        return done

    async with asyncio.timeout(WAIT_S):
        done = sum(await asyncio.gather(*(crawl(worker) for worker in range(5))))
        while batch := await client.get():
            done += len(batch)
            await client.put(*(known(url, 0) for url in batch))
    assert done == 300
    assert await client.stats() == (0, 0, 300, 7, 0)


# -------------------------------------------------------------------- keys


async def test_a_key_that_is_bound_to_a_crawl_is_good_for_that_crawl_alone(tmp_path: Path) -> None:
    async with connected(tmp_path / "store.sqlite", (("authorization", "bound"),)) as client:
        assert await client.put(discovered("http://a.org/", crawl="mine")) == [OK]
        assert await client.get(crawlID="mine") == ["http://a.org/"]
        for refused in (
            client.put(discovered("http://a.org/")), client.get(), client.get(crawlID="other"),
            client.ask("GetStats"), client.ask("DeleteCrawl", value="mine"), client.ask("SetActive"),
        ):  # fmt: skip
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await refused
            assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
