import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from outrider.demo.server import DemoServer
from outrider.demo.site import SiteOptions

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(server: DemoServer) -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def exchange(server: DemoServer, sent: bytes) -> bytes:
    """Send these bytes and take all that comes until the server closes."""
    async with connected(server) as (reader, writer):
        writer.write(sent)
        return await asyncio.wait_for(reader.read(), 2)


async def read_answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 2)
    length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    return head, await asyncio.wait_for(reader.readexactly(length), 2)


def request(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: site.example", *headers, "\r\n"]).encode()


async def test_a_connection_serves_one_request_after_the_other(server: DemoServer) -> None:
    async with connected(server) as (reader, writer):
        for number in (1, 2, 3):
            writer.write(request(f"/nowhere/{number}"))
            head, _ = await read_answer(reader)
            assert head.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert server.requests == 3
    assert server.statuses == {404: 3}


async def test_requests_sent_at_once_are_answered_in_order_slow_ones_too(server: DemoServer) -> None:
    paths = ["/botany/1", "/odd/slow", "/craft/2", "/odd/slow", "/"]
    async with connected(server) as (reader, writer):
        writer.write(b"".join(map(request, paths)))
        titles = [(await read_answer(reader))[1].partition(b"<h1>")[2].partition(b"</h1>")[0] for _ in paths]
    assert titles == [b"Page 1: botany", b"Slow", b"Page 2: craft", b"Slow", b"Page 0: almanac"]


async def test_a_request_may_come_byte_by_byte(server: DemoServer) -> None:
    async with connected(server) as (reader, writer):
        for byte in request("/botany/1"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        head, _ = await read_answer(reader)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_the_body_of_a_request_is_skipped(server: DemoServer) -> None:
    async with connected(server) as (reader, writer):
        writer.write(request("/", "Content-Length: 20", method="POST") + b"GET / HTTP/1.1\r\n\r\n\r\n"[:20])
        writer.write(request("/botany/1"))
        heads = [(await read_answer(reader))[0].split(b" ")[1] for _ in range(2)]
    assert heads == [b"405", b"200"]


async def test_a_head_request_gets_the_head_of_the_page_and_no_body(server: DemoServer) -> None:
    got = await exchange(server, request("/botany/1", "Connection: close"))
    head = await exchange(server, request("/botany/1", "Connection: close", method="HEAD"))
    assert head == got.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


async def test_the_connection_ends_when_the_client_says_so(server: DemoServer) -> None:
    assert (await exchange(server, request("/", "Connection: close"))).endswith(b"</html>\n")
    assert (await exchange(server, b"GET / HTTP/1.0\r\n\r\n")).endswith(b"</html>\n")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"rubbish\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b'GET / HTTP/1.1\r\nHost: "><script>\r\n\r\n', 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded: x\r\n\r\n", 400),
        (b"GET nowhere HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"z" * 70_000, 431),
        (b"GET / HTTP/3\r\nHost: a\r\n\r\n", 505),
    ],
)
async def test_a_bad_request_is_refused_with_a_reason_and_the_connection_ends(
    server: DemoServer, sent: bytes, status: int
) -> None:
    answer = await exchange(server, sent)
    assert int(answer.split(b" ")[1]) == status
    assert len(answer.partition(b"\r\n\r\n")[2]) > 10
    assert server.requests == 0


async def test_any_host_is_served_and_so_is_one_asked_for_as_of_a_proxy(server: DemoServer) -> None:
    for host in ("a.example", "a.example:8080", "[::1]:80", "10.0.0.1"):
        answer = await exchange(
            server, f"GET /robots.txt HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )
        assert f"Sitemap: http://{host}/sitemap.xml".encode() in answer
    proxied = request("http://other.example:81/robots.txt", "Connection: close")
    assert b"Sitemap: http://other.example:81/sitemap.xml" in await exchange(server, proxied)


async def test_every_request_is_told_of_with_its_time_host_and_path() -> None:
    told: list[tuple[float, str, str]] = []
    before = time.monotonic()
    async with DemoServer(SiteOptions(pages=5), on_request=lambda *request: told.append(request)) as server:
        await exchange(server, request("/botany/1?a=b") + request("/nowhere", "Connection: close"))
    assert [each[1:] for each in told] == [("site.example", "/botany/1?a=b"), ("site.example", "/nowhere")]
    assert before <= told[0][0] <= told[1][0] <= time.monotonic()


async def test_several_addresses_share_one_port() -> None:
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    async with DemoServer(SiteOptions(pages=5), hosts=hosts) as server, aiohttp.ClientSession() as session:
        assert server.base_urls == [f"http://{host}:{server.port}" for host in hosts]
        for base_url in server.base_urls:
            async with session.get(f"{base_url}/") as answer:
                assert answer.status == 200
    assert server.requests == 3


async def test_a_port_in_use_is_an_error() -> None:
    async with DemoServer() as server:
        with pytest.raises(OSError, match="in use"):
            await DemoServer(port=server.port).__aenter__()


async def test_closing_ends_connections_that_wait_or_never_end() -> None:
    async with DemoServer(SiteOptions(pages=5)) as server:
        streams = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        for (_, writer), path in zip(streams, ("/odd/silent", "/odd/endless", "/"), strict=True):
            writer.write(request(path))
        await streams[1][0].readexactly(1_000_000)
        await streams[2][0].readuntil(b"</html>")
    for reader, writer in streams:
        with suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 2)
        writer.close()
    assert len(asyncio.all_tasks()) == 1


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outrider.demo.server", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert started.stdout is not None
    try:
        yield started, (await asyncio.wait_for(started.stdout.readline(), 20)).decode().strip()
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
async def test_the_command_prints_its_address_logs_every_request_and_stops_on_a_signal(
    tmp_path: Path, stop: signal.Signals
) -> None:
    log = tmp_path / "requests.log"
    log.write_text("1 before.example /\n")
    async with process("--pages", "30", "--no-oddities", "--log", str(log)) as (server, base_url):
        async with aiohttp.ClientSession(base_url) as session:
            for path in ("/botany/1", "/odd/"):
                async with session.get(path):
                    pass
        lines = [line.split(" ") for line in log.read_text().splitlines()]
        server.send_signal(stop)
        assert await asyncio.wait_for(server.wait(), 5) == 0
    host = base_url.removeprefix("http://")
    assert [line[1:] for line in lines] == [["before.example", "/"], [host, "/botany/1"], [host, "/odd/"]]
    assert int(lines[1][0]) <= int(lines[2][0]) <= time.monotonic_ns()
