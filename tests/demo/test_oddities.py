"""What a client sees of the oddities, over a real connection."""

import aiohttp
import pytest

from outrider.demo.answer import html_page
from outrider.demo.odd.network import BLOCK
from outrider.demo.server import DemoServer
from outrider.demo.site import ODDITIES
from tests.demo.conftest import OPTIONS
from tests.demo.test_server import connected, exchange, request

ENDLESS = {"/odd/slow-head", "/odd/slow-body", "/odd/silent", "/odd/endless"}


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_pages_are_encoded_for_those_who_accept_it(client: aiohttp.ClientSession, encoding: str) -> None:
    path, plain = f"/odd/encoded/{encoding}", html_page(f"Encoded: {encoding}", "<p>Plain in the end.</p>" * 50).body
    async with client.get(path, headers={"Accept-Encoding": f"{encoding};q=1, x"}) as answer:
        assert answer.headers["Content-Encoding"] == encoding
        assert await answer.read() == plain
    async with client.get(path, headers={"Accept-Encoding": "identity"}) as answer:
        assert "Content-Encoding" not in answer.headers
        assert await answer.read() == plain


@pytest.mark.parametrize("name", ["gzip-bomb", "zstd-bomb"])
async def test_a_bomb_is_small_and_grows_vast(client: aiohttp.ClientSession, name: str) -> None:
    async with client.get(f"/odd/encoded/{name}") as answer:
        assert int(answer.headers["Content-Length"]) < OPTIONS.bomb_bytes / 900
        assert await answer.read() == b" " * OPTIONS.bomb_bytes


async def test_what_is_not_gzip_cannot_be_decoded(client: aiohttp.ClientSession) -> None:
    async with client.get("/odd/encoded/invalid-gzip") as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


@pytest.mark.parametrize("name", ["truncated", "truncated-chunks"])
async def test_a_truncated_body_is_noticed(client: aiohttp.ClientSession, name: str) -> None:
    async with client.get(f"/odd/{name}") as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_a_huge_body_has_just_its_length(client: aiohttp.ClientSession) -> None:
    async with client.get("/odd/huge") as answer:
        body = await answer.read()
    assert len(body) == OPTIONS.huge_bytes
    assert body.startswith(BLOCK)


@pytest.mark.parametrize("name", ["dropped", "not-http", "two-lengths"])
async def test_what_is_no_answer_is_an_error(client: aiohttp.ClientSession, name: str) -> None:
    with pytest.raises(aiohttp.ClientError):
        await client.get(f"/odd/{name}")


@pytest.mark.parametrize("name", ["slow-head", "silent"])
async def test_some_never_come_to_the_end_of_their_head(client: aiohttp.ClientSession, name: str) -> None:
    with pytest.raises(TimeoutError):
        await client.get(f"/odd/{name}", timeout=aiohttp.ClientTimeout(total=0.1))


@pytest.mark.parametrize("name", ["slow-body", "endless"])
async def test_some_bodies_never_end(client: aiohttp.ClientSession, name: str) -> None:
    async with client.get(f"/odd/{name}", timeout=aiohttp.ClientTimeout(total=0.2)) as answer:
        with pytest.raises(TimeoutError):
            await answer.read()


async def test_an_endless_body_waits_for_a_client_that_does_not_read(
    server: DemoServer, client: aiohttp.ClientSession
) -> None:
    async with connected(server) as (reader, writer):
        writer.write(request("/odd/endless"))
        await reader.readexactly(10)
        # Each request gives the endless body a turn or more to write 64 KiB.
        for _ in range(300):
            async with client.get("/botany/1") as answer:
                await answer.read()
        assert server.unsent_bytes < 1_000_000


async def test_there_are_thousands_of_headers(server: DemoServer) -> None:
    answer = await exchange(server, request("/odd/header-flood", "Connection: close"))
    assert answer.partition(b"\r\n\r\n")[0].count(b"X-Flood-") == OPTIONS.flood_headers


async def test_a_page_recovers_for_each_host_by_itself(client: aiohttp.ClientSession) -> None:
    async def ask(host: str) -> int:
        async with client.get("/odd/recovers/429-seconds", headers={"Host": host}) as answer:
            return answer.status

    assert [await ask(host) for host in ("a.example", "a.example", "b.example", "a.example", "b.example")] == [
        429, 429, 429, 200, 429,
    ]  # fmt: skip


async def test_every_oddity_can_be_asked_for_and_none_harms_the_next(server: DemoServer) -> None:
    for oddity in ODDITIES:
        if oddity.path in ENDLESS:
            continue
        answer = await exchange(server, request(oddity.path, "Connection: close"))
        assert answer or oddity.path == "/odd/dropped"
    assert server.requests == len(ODDITIES) - len(ENDLESS)
    assert (await exchange(server, request("/", "Connection: close"))).endswith(b"</html>\n")
