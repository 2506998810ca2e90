"""HTTP and gRPC on one port: one store, one set of keys."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from outrider.model.api_key import Role
from outrider.service import keys
from outrider.service.keys import create_key
from outrider.service.urlfrontier_pb2 import AckMessage as Ack
from outrider.service.urlfrontier_pb2 import DiscoveredURLItem, KnownURLItem, Local, StringList, URLInfo, URLItem
from tests.service.serving import Port, Served, open_port

grpc = pytest.importorskip("grpc")
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[Port]:
    async with open_port() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def served(port: Port, tmp_path: Path) -> AsyncIterator[Served]:
    async with port.serving(tmp_path) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def channel(served: Served) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(served.base_url.removeprefix("http://")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "FRESH_S", 0.0)


def list_crawls(channel: Any) -> Any:
    return channel.unary_unary("/urlfrontier.URLFrontier/ListCrawls", Local.SerializeToString, StringList.FromString)


async def test_what_comes_by_grpc_is_seen_over_http(served: Served, channel: Any) -> None:
    put = channel.stream_stream("/urlfrontier.URLFrontier/PutURLs", URLItem.SerializeToString, Ack.FromString)
    item = URLItem(discovered=DiscoveredURLItem(info=URLInfo(url="http://a.example/")), ID="1")
    acks = [ack async for ack in put(iter([item]), timeout=10)]
    assert [(ack.ID, ack.status) for ack in acks] == [("1", Ack.OK)]
    (url,) = (await served.ask("GET", "/v1/crawls/DEFAULT/urls")).json["urls"]
    assert (url["url"], url["state"]) == ("http://a.example/", "pending")


async def test_both_ask_for_the_same_keys(served: Served, channel: Any) -> None:
    await served.crawl("news")
    await served.crawl("sports")
    made = await create_key(served.service.backend.stores.control, "reader", Role.READ, ["news"])
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await list_crawls(channel)(Local(), timeout=10)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    answer = await list_crawls(channel)(Local(), timeout=10, metadata=[("authorization", f"Bearer {made.text}")])
    assert list(answer.values) == ["news"]


async def test_whoever_asks_for_the_health_needs_no_key(served: Served, channel: Any) -> None:
    await create_key(served.service.backend.stores.control, "some", Role.READ)
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert await check(b"", timeout=10) == b"\x08\x01"
    served.service.stop()
    assert (await served.ask("GET", "/healthz")).status == 200
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await check(b"", timeout=10)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_private_addresses_are_taken_by_neither(served: Served, channel: Any) -> None:
    put = channel.stream_stream("/urlfrontier.URLFrontier/PutURLs", URLItem.SerializeToString, Ack.FromString)
    private = URLInfo(url="http://127.0.0.1:9/")
    items = [
        URLItem(discovered=DiscoveredURLItem(info=private), ID="found"),
        URLItem(known=KnownURLItem(info=private, refetchable_from_date=1), ID="known"),
        URLItem(known=KnownURLItem(info=URLInfo(url="http://b.example/"), refetchable_from_date=1), ID="public"),
    ]
    acks = [ack async for ack in put(iter(items), timeout=10)]
    assert {ack.ID: ack.status for ack in acks} == {"found": Ack.SKIPPED, "known": Ack.SKIPPED, "public": Ack.OK}
    assert [url["url"] for url in (await served.ask("GET", "/v1/crawls/DEFAULT/urls")).json["urls"]] == [
        "http://b.example/"
    ]


async def test_what_comes_by_grpc_wakes_who_waits_over_http(served: Served, channel: Any) -> None:
    await served.crawl("DEFAULT")
    wish = {"worker": "w", "request_id": "1", "slots": 1, "wait_ms": 20_000}
    waiting = asyncio.create_task(served.ask("POST", "/v1/crawls/DEFAULT/lease", wish))
    put = channel.stream_stream("/urlfrontier.URLFrontier/PutURLs", URLItem.SerializeToString, Ack.FromString)
    item = URLItem(discovered=DiscoveredURLItem(info=URLInfo(url="http://a.example/", key="a.example")))
    assert [ack.status async for ack in put(iter([item]), timeout=10)] == [Ack.OK]
    async with asyncio.timeout(10):
        assert len((await waiting).json["leases"]) == 1
