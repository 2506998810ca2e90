import asyncio
import gc
import gzip
import os
import resource
import socket
import ssl
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from outrider.crawler.exchange import FailureKind, FetchFailed, FetchLimits, Request, Response
from outrider.crawler.fetch import Fetcher
from outrider.model.errors import InvalidInput
from tests.crawler.raw_server import (
    Answer,
    Exchange,
    certificate,
    full_backlog,
    page,
    proxying,
    serving,
    trusting,
    unused_port,
)

QUICK = FetchLimits(connect_s=0.2, first_byte_s=0.2, total_s=0.4)


def fetcher(
    *,
    limits: FetchLimits | None = None,
    allow_private: bool = True,
    private_places: frozenset[tuple[str, int]] = frozenset(),
    proxy: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> Fetcher:
    return Fetcher(
        user_agent="outrider-test/1.0",
        concurrency=8,
        limits=limits,
        allow_private=allow_private,
        private_places=private_places,
        proxy=proxy,
        tls=tls,
    )


async def fetch_one(answer: Answer, limits: FetchLimits | None = None) -> Response:
    async with serving({"/": answer}) as server, fetcher(limits=limits) as web:
        return await web.fetch(Request(url=server.url("/")))


async def failure_of(answer: Answer, limits: FetchLimits | None = None) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        await fetch_one(answer, limits)
    return caught.value


async def failure(web: Fetcher, url: str) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        await web.fetch(Request(url=url))
    return caught.value


# What comes back


async def test_a_response_is_kept_as_it_came() -> None:
    answer = page(b"caf\xe9", "X-Odd: one", "x-odd: two", "Content-Type: Text/HTML; Charset=ISO-8859-1", 'ETag: "v1"')
    async with serving({"/a?b=%C3%A9": answer}) as server, fetcher() as web:
        before, before_ms = time.monotonic(), time.time_ns() // 1_000_000
        response = await web.fetch(Request(url=server.url("/a?b=%C3%A9")))
    assert (response.status, response.reason, response.version) == (200, "OK", "HTTP/1.1")
    assert response.headers[:2] == ((b"X-Odd", b"one"), (b"x-odd", b"two"))
    assert response.header("X-ODD") == "one"
    assert response.header_values("x-odd") == ["one", "two"]
    assert response.header("nothing") is None
    assert (response.content_type, response.charset_declared) == ("text/html", "iso-8859-1")
    assert response.body == response.raw_body == b"caf\xe9"
    assert not response.truncated
    assert response.address == "127.0.0.1"
    assert before <= response.started <= time.monotonic()
    assert before_ms <= response.fetched_at <= time.time() * 1000
    assert 0 <= response.elapsed_ms < 5000
    assert response.request_head == server.heads[0]
    assert b"GET /a?b=%C3%A9 HTTP/1.1\r\n" in server.heads[0]
    assert b"\r\nUser-Agent: outrider-test/1.0\r\n" in server.heads[0]
    assert b"\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n" in server.heads[0]


@pytest.mark.parametrize(
    ("header", "media_type", "charset"),
    [
        ("text/html", "text/html", None),
        ('text/html; charset="utf-8"', "text/html", "utf-8"),
        ("text/html;charset=Shift_JIS;q=1", "text/html", "shift_jis"),
        ("text/html; charset=", "text/html", None),
        ("", None, None),
        (";;;", None, None),
    ],
)
async def test_content_types_are_read_as_people_write_them(
    header: str, media_type: str | None, charset: str | None
) -> None:
    response = await fetch_one(page(b"", f"Content-Type: {header}"))
    assert (response.content_type, response.charset_declared) == (media_type, charset)


async def test_a_header_in_no_known_charset_is_readable_all_the_same() -> None:
    response = await fetch_one(
        b"HTTP/1.1 301 Moved\r\nLocation: /\xc3\xa9\r\nX-Latin: /\xe9\r\nContent-Length: 0\r\n\r\n"
    )
    assert (response.header("location"), response.header("x-latin")) == ("/é", "/é")


async def test_a_chunked_body_is_joined_and_a_body_without_length_ends_with_the_connection() -> None:
    chunked = await fetch_one(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    unbounded = await fetch_one(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nabcde")
    assert chunked.raw_body == unbounded.raw_body == b"abcde"
    assert unbounded.version == "HTTP/1.0"


async def test_no_redirect_is_followed_and_no_cookie_is_sent_back() -> None:
    moved = page(b"", "Location: /other", "Set-Cookie: a=b; Path=/", status="302 Found")
    async with serving({"/": moved}) as server, fetcher() as web:
        responses = [await web.fetch(Request(url=server.url("/"))) for _ in range(2)]
    assert [response.status for response in responses] == [302, 302]
    assert responses[0].header("location") == "/other"
    assert len(server.heads) == 2
    assert b"cookie" not in server.heads[1].lower()


async def test_validators_are_sent_and_an_unchanged_page_is_304_without_a_body() -> None:
    async with serving({"/": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n"}) as server, fetcher() as web:
        asked = Request(url=server.url("/"), etag='W/"x"', last_modified="Mon, 01 Jan 2024 00:00:00 GMT")
        response = await web.fetch(asked)
    assert (response.status, response.body) == (304, b"")
    assert b'\r\nIf-None-Match: W/"x"\r\nIf-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT\r\n' in server.heads[0]


async def test_interim_responses_are_passed_over() -> None:
    response = await fetch_one(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + page())
    assert (response.status, response.body) == (200, b"hello")


async def test_connections_are_kept_and_used_again() -> None:
    async with serving() as server, fetcher() as web:
        for _ in range(5):
            await web.fetch(Request(url=server.url("/")))
    assert server.connections == 1


async def test_the_start_is_that_of_the_request_and_not_of_the_connection() -> None:
    connected_at = 0.0

    async def answer(exchange: Exchange) -> None:
        nonlocal connected_at
        connected_at = time.monotonic()
        await exchange.send(page())

    async with serving({"/": answer}) as server, fetcher() as web:
        response = await web.fetch(Request(url=server.url("/", host="localhost")))
    assert abs(response.started - connected_at) < 0.05


# Bodies with limits


async def test_an_encoded_body_is_given_both_ways() -> None:
    encoded = gzip.compress(b"hello" * 1000)
    response = await fetch_one(page(encoded, "Content-Encoding: gzip"))
    assert response.raw_body == encoded
    assert response.body == b"hello" * 1000


async def test_a_large_encoded_body_is_decoded_as_well() -> None:
    content = bytes(value * 167 % 251 for value in range(300_000)) + b"x" * 300_000
    encoded = gzip.compress(content, compresslevel=0)
    assert (await fetch_one(page(encoded, "Content-Encoding: gzip"))).body == content


async def test_an_unknown_encoding_is_kept_and_named() -> None:
    response = await fetch_one(page(b"???", "Content-Encoding: rot13"))
    assert (response.body, response.unknown_encoding) == (b"???", "rot13")


async def test_a_bomb_is_cut_at_the_limit() -> None:
    response = await fetch_one(
        page(gzip.compress(bytes(5_000_000)), "Content-Encoding: gzip"), FetchLimits(max_body=100_000)
    )
    assert response.body == bytes(100_000)
    assert response.truncated


async def test_an_invalid_encoding_is_a_failure_except_where_only_the_headers_matter() -> None:
    failed = await failure_of(page(b"<html>plain</html>", "Content-Encoding: gzip"))
    assert (failed.kind, failed.sent) == (FailureKind.BAD_ENCODING, True)
    moved = page(b"<html>plain</html>", "Content-Encoding: gzip", "Location: /", status="301 Moved")
    assert (await fetch_one(moved)).status == 301


@pytest.mark.parametrize("limit", [1000, 300_000])
@pytest.mark.parametrize("more", [0, 1, 200_000])
async def test_a_body_over_the_limit_is_cut_and_marked(limit: int, more: int) -> None:
    response = await fetch_one(page(b"x" * (limit + more)), FetchLimits(max_body=limit))
    assert response.body == b"x" * limit
    assert response.truncated is (more > 0)


async def test_a_request_may_have_a_limit_of_its_own() -> None:
    async with serving({"/": page(b"x" * 100)}) as server, fetcher() as web:
        response = await web.fetch(Request(url=server.url("/"), max_body=10))
    assert response.body == b"x" * 10


async def test_the_rest_of_a_cut_body_is_not_drained() -> None:
    hung_up = asyncio.Event()

    async def endless(exchange: Exchange) -> None:
        try:
            await exchange.send(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                await exchange.send(b"x" * 65536)
        except ConnectionError:
            hung_up.set()
            raise

    async with serving({"/": endless}) as server, fetcher(limits=FetchLimits(max_body=100_000)) as web:
        response = await web.fetch(Request(url=server.url("/")))
        async with asyncio.timeout(5):
            await hung_up.wait()
    assert (len(response.body), response.truncated) == (100_000, True)


# Servers that misbehave


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nX-Cut",
    ],
)
async def test_a_response_that_is_cut_off_is_a_disconnection(answer: bytes) -> None:
    async def cut(exchange: Exchange) -> None:
        await exchange.send(answer)

    failed = await failure_of(cut)
    assert (failed.kind, failed.sent) == (FailureKind.DISCONNECTED, True)


async def test_a_chunk_that_is_none_after_a_good_beginning_is_a_bad_response() -> None:
    async def spoil(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await asyncio.sleep(0.05)  # so that the two arrive apart
        await exchange.send(b"zz\r\n")
        await exchange.until_hung_up()

    assert (await failure_of(spoil, QUICK)).kind is FailureKind.BAD_RESPONSE


async def hang_up(exchange: Exchange) -> None:
    pass


async def test_a_request_whose_connection_breaks_is_never_sent_again() -> None:
    """Politeness: a request that a library repeats on its own would be one that nobody counted."""
    async with serving({"/": page(), "/break": hang_up}) as server, fetcher() as web:
        fresh = await failure(web, server.url("/break"))
        await web.fetch(Request(url=server.url("/")))
        kept = await failure(web, server.url("/break"))
    assert (fresh.kind, fresh.sent, fresh.reused) == (FailureKind.DISCONNECTED, True, False)
    assert (kept.kind, kept.sent, kept.reused) == (FailureKind.DISCONNECTED, True, True)
    assert len(server.heads) == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 banana OK\r\n\r\n",
        b"HTTP/1.1 000\r\n\r\n",
        b"HTTP/1.1 000 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 42 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Flood: x\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + (b"X-Flood: " + b"x" * 1000 + b"\r\n") * 100 + b"\r\n",
    ],
)
async def test_what_is_not_http_or_floods_headers_is_a_bad_response(answer: bytes) -> None:
    failed = await failure_of(answer)
    assert (failed.kind, failed.sent) == (FailureKind.BAD_RESPONSE, True)
    assert failed.detail
    assert "\n" not in failed.detail
    assert len(failed.detail) <= 200


async def test_long_headers_of_honest_sites_pass() -> None:
    response = await fetch_one(page(b"", "Content-Security-Policy: " + "x" * 20_000))
    assert len(response.header("content-security-policy") or "") == 20_000


async def say_nothing(exchange: Exchange) -> None:
    await exchange.until_hung_up()


async def drip_headers(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await exchange.send(b"X-Slow: 1\r\n")
        await asyncio.sleep(0.05)


async def drip_body(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        await exchange.send(b"x")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "kind", "least"),
    [
        (say_nothing, FailureKind.FIRST_BYTE_TIMEOUT, QUICK.first_byte_s),
        (drip_headers, FailureKind.FIRST_BYTE_TIMEOUT, QUICK.first_byte_s),
        (drip_body, FailureKind.TIMEOUT, QUICK.total_s),
    ],
)
async def test_a_slow_server_runs_into_the_limit_of_its_phase(
    answer: Callable[[Exchange], Awaitable[None]], kind: FailureKind, least: float
) -> None:
    began = time.monotonic()
    failed = await failure_of(answer, QUICK)
    assert (failed.kind, failed.sent) == (kind, True)
    assert least <= time.monotonic() - began < least + 1
    assert failed.started is not None
    assert failed.started >= began


# Connections that cannot be made


async def test_nothing_was_sent_where_no_connection_came_about() -> None:
    async with fetcher() as web:
        refused = await failure(web, f"http://127.0.0.1:{unused_port()}/")
        unknown = await failure(web, f"http://{'x' * 64}.invalid/")
        foreign = await failure(web, "ftp://127.0.0.1/")
        nowhere = await failure(web, "http:///path")
    assert (refused.kind, refused.sent, refused.detail) == (FailureKind.CONNECT, False, "Connection refused")
    assert (unknown.kind, unknown.sent) == (FailureKind.DNS, False)
    assert (foreign.kind, foreign.sent) == (FailureKind.BAD_REQUEST, False)
    assert (nowhere.kind, nowhere.sent) == (FailureKind.BAD_REQUEST, False)


async def test_a_validator_that_cannot_be_sent_fails_that_request_alone() -> None:
    async with serving() as server, fetcher() as web:
        with pytest.raises(FetchFailed) as caught:
            await web.fetch(Request(url=server.url("/"), etag="a\r\nHost: evil"))
        assert (await web.fetch(Request(url=server.url("/")))).status == 200
    assert (caught.value.kind, caught.value.sent) == (FailureKind.BAD_REQUEST, False)
    assert len(server.heads) == 1


async def test_a_connection_that_takes_too_long_is_given_up() -> None:
    async with full_backlog() as port, fetcher(limits=QUICK) as web:
        failed = await failure(web, f"http://127.0.0.1:{port}/")
    assert (failed.kind, failed.sent) == (FailureKind.CONNECT_TIMEOUT, False)


async def test_a_user_agent_and_a_proxy_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(InvalidInput):
        Fetcher(user_agent="a\r\nX: y", concurrency=1)
    for proxy in ("", "localhost:3128", "socks5://127.0.0.1:1080", "http://[::1"):
        with pytest.raises(InvalidInput, match="a proxy is written as"):
            fetcher(proxy=proxy)


# Private addresses


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "vm.localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_a_private_address_is_refused_by_whatever_name(host: str) -> None:
    async with serving() as server, fetcher(allow_private=False) as web:
        failed = await failure(web, server.url("/", host=host))
    assert (failed.kind, failed.sent) == (FailureKind.PRIVATE_ADDRESS, False)
    assert " is " in failed.detail
    assert server.connections == 0


@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "2130706433", "0177.0.0.1"])
async def test_an_odd_spelling_of_an_address_is_never_connected_to(host: str) -> None:
    async with serving() as server, fetcher(allow_private=False) as web:
        failed = await failure(web, server.url("/", host=host))
    assert not failed.sent
    assert server.connections == 0


async def test_a_place_that_the_user_typed_is_allowed_for_itself_and_not_for_its_other_ports() -> None:
    async with serving() as server, serving() as neighbour:
        typed = frozenset({("127.0.0.1", server.port)})
        async with fetcher(allow_private=False, private_places=typed) as web:
            assert (await web.fetch(Request(url=server.url("/")))).status == 200
            other_host = await failure(web, server.url("/", host="localhost"))
            other_port = await failure(web, neighbour.url("/"))
    assert (other_host.kind, other_host.sent) == (FailureKind.PRIVATE_ADDRESS, False)
    assert (other_port.kind, other_port.sent) == (FailureKind.PRIVATE_ADDRESS, False)
    assert neighbour.connections == 0


@pytest.mark.parametrize(
    ("place", "admitted", "refused"),
    [
        (("127.0.0.1", 80), "http://127.0.0.1/", "https://127.0.0.1/"),
        (("127.0.0.1", 443), "https://127.0.0.1/", "http://127.0.0.1/"),
        (("::1", 8080), "http://[::1]:8080/", "http://[::1]/"),
    ],
)
async def test_a_port_that_is_not_written_is_that_of_the_scheme(
    place: tuple[str, int], admitted: str, refused: str
) -> None:
    """A proxy that is not there tells both apart, whoever listens on these ports."""
    nowhere = f"http://127.0.0.1:{unused_port()}"
    async with fetcher(proxy=nowhere, allow_private=False, private_places=frozenset({place})) as web:
        assert (await failure(web, admitted)).kind is FailureKind.PROXY
        assert (await failure(web, refused)).kind is FailureKind.PRIVATE_ADDRESS


# TLS


async def test_a_trusted_certificate_is_a_fetch_like_any_other(tmp_path: Path) -> None:
    tls = certificate(tmp_path, name="127.0.0.1")
    async with serving(tls=tls) as server, fetcher(tls=trusting(tmp_path)) as web:
        responses = [await web.fetch(Request(url=server.url("/", scheme="https"))) for _ in range(2)]
    assert [response.body for response in responses] == [b"hello", b"hello"]
    assert responses[0].address == "127.0.0.1"
    assert server.connections == 1


async def test_a_certificate_that_does_not_hold_is_reported_with_its_reason(tmp_path: Path) -> None:
    tls = certificate(tmp_path, name="elsewhere.example")
    async with serving(tls=tls) as server:
        async with fetcher() as web:
            unknown = await failure(web, server.url("/", scheme="https"))
        async with fetcher(tls=trusting(tmp_path)) as web:
            mismatched = await failure(web, server.url("/", scheme="https"))
    assert (unknown.kind, unknown.sent) == (FailureKind.TLS, False)
    assert "self-signed" in unknown.detail
    assert (mismatched.kind, mismatched.sent) == (FailureKind.TLS, False)
    assert "127.0.0.1" in mismatched.detail
    assert "mismatch" in mismatched.detail


async def test_an_expired_certificate_is_called_expired(tmp_path: Path) -> None:
    tls = certificate(tmp_path, name="127.0.0.1", days=-1)
    async with serving(tls=tls) as server, fetcher(tls=trusting(tmp_path)) as web:
        failed = await failure(web, server.url("/", scheme="https"))
    assert (failed.kind, failed.detail) == (FailureKind.TLS, "certificate has expired")


async def test_a_server_that_does_not_speak_tls_is_a_tls_failure() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with listener, fetcher() as web:
        failed = await failure(web, f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/")
    assert (failed.kind, failed.sent) == (FailureKind.TLS, False)


# Proxies


async def test_a_page_comes_through_a_proxy_whose_password_stays_out_of_the_record() -> None:
    async with serving({"/x": page()}) as server, proxying() as (proxy, heads), fetcher(proxy=proxy) as web:
        response = await web.fetch(Request(url=server.url("/x")))
    assert (response.status, response.body, response.address) == (200, b"hello", None)
    assert heads[0].startswith(b"GET " + server.url("/x").encode())
    assert b"GET /x HTTP/1.1\r\n" in response.request_head
    assert b"Proxy-Authorization" not in response.request_head


async def test_tls_goes_through_a_proxy_in_a_tunnel(tmp_path: Path) -> None:
    tls = certificate(tmp_path, name="127.0.0.1")
    async with (
        serving(tls=tls) as server,
        proxying() as (proxy, heads),
        fetcher(proxy=proxy, tls=trusting(tmp_path)) as web,
    ):
        response = await web.fetch(Request(url=server.url("/", scheme="https")))
    assert response.body == b"hello"
    assert heads[0].startswith(b"CONNECT 127.0.0.1:")


async def test_what_the_proxy_does_wrong_is_not_the_sites_fault() -> None:
    async with serving() as server, proxying() as (proxy, _):
        async with fetcher(proxy=proxy.replace("secret", "wrong")) as web:
            unauthorised = [await failure(web, server.url("/", scheme=scheme)) for scheme in ("http", "https")]
        async with fetcher(proxy=f"http://127.0.0.1:{unused_port()}") as web:
            gone = await failure(web, server.url("/"))
        async with fetcher(proxy=f"http://{'x' * 64}.invalid:3128") as web:
            unknown = await failure(web, server.url("/"))
    assert [each.kind for each in (*unauthorised, gone, unknown)] == [FailureKind.PROXY] * 4
    assert not gone.sent
    assert all("wrong" not in str(each) for each in unauthorised)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f.1"])
async def test_a_proxy_is_not_a_way_to_private_addresses(host: str) -> None:
    async with serving() as server, proxying() as (proxy, heads), fetcher(proxy=proxy, allow_private=False) as web:
        failed = await failure(web, server.url("/", host=host))
    assert failed.kind is FailureKind.PRIVATE_ADDRESS
    assert not heads


async def test_a_proxy_that_the_user_named_may_itself_be_private() -> None:
    async with serving() as server, proxying() as (proxy, _):
        typed = frozenset({("127.0.0.1", server.port)})
        async with fetcher(proxy=proxy, allow_private=False, private_places=typed) as web:
            assert (await web.fetch(Request(url=server.url("/")))).status == 200


# Nothing is left behind


async def cancel_when(event: asyncio.Event, web: Fetcher, url: str) -> None:
    task = asyncio.create_task(web.fetch(Request(url=url)))
    async with asyncio.timeout(5):
        await event.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("answer", [say_nothing, drip_headers, drip_body])
async def test_a_cancelled_fetch_frees_its_connection_at_once(answer: Callable[[Exchange], Awaitable[None]]) -> None:
    async with serving({"/": answer}) as server, fetcher() as web:
        await cancel_when(server.request_came, web, server.url("/"))
        async with asyncio.timeout(5):
            await server.all_closed.wait()


async def test_a_fetch_can_be_cancelled_at_every_step_of_connecting() -> None:
    async with full_backlog() as port, fetcher() as web:
        for steps in range(8):
            for host in ("127.0.0.1", "localhost"):
                task = asyncio.create_task(web.fetch(Request(url=f"http://{host}:{port}/")))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task


async def test_a_machine_without_free_sockets_says_nothing_about_the_site() -> None:
    async with serving() as server, fetcher() as web:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            failed = await failure(web, server.url("/"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (failed.kind, failed.sent) == (FailureKind.LOCAL, False)


async def test_a_cut_connection_is_closed_even_where_tls_would_wait_for_a_farewell(tmp_path: Path) -> None:
    tls = certificate(tmp_path, name="127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client_hangs_up = asyncio.create_task(asyncio.to_thread(serve_and_never_close, listener, tls))
        async with fetcher(limits=FetchLimits(max_body=1000), tls=trusting(tmp_path)) as web:
            response = await web.fetch(Request(url=f"https://127.0.0.1:{listener.getsockname()[1]}/"))
        assert response.truncated
        assert await client_hangs_up


def serve_and_never_close(listener: socket.socket, tls: ssl.SSLContext) -> bool:
    """Send part of a page and then only listen; tell whether the client closes within two seconds."""
    accepted, _ = listener.accept()
    secured = tls.wrap_socket(accepted, server_side=True)
    secured.recv(65536)
    secured.sendall(page(b"x" * 20_000)[:5000])
    with socket.socket(fileno=secured.detach()) as bare:
        bare.settimeout(2)
        try:
            while bare.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True


def open_sockets() -> set[str]:
    return {target for each in Path("/proc/self/fd").iterdir() if (target := _target(each)).startswith("socket:")}


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


async def test_no_socket_and_no_task_outlives_the_fetcher(tmp_path: Path) -> None:
    tls = certificate(tmp_path, name="127.0.0.1")
    answers: dict[str, Answer] = {"/": page(), "/big": page(b"x" * 3_000_000), "/break": hang_up, "/slow": drip_body}
    limits = FetchLimits(max_body=1000, total_s=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        async with serving(answers) as server, serving(answers, tls=tls) as secure:
            sockets, tasks = open_sockets(), asyncio.all_tasks()
            async with fetcher(limits=limits, tls=trusting(tmp_path)) as web:
                urls = [s.url(path, scheme=how) for s, how in ((server, "http"), (secure, "https")) for path in answers]
                outcomes = await asyncio.gather(*(web.fetch(Request(url=url)) for url in urls), return_exceptions=True)
            for each in (server, secure):
                async with asyncio.timeout(5):
                    await each.all_closed.wait()
            assert asyncio.all_tasks() == tasks
            gc.collect()
            assert open_sockets() <= sockets
    kinds = [each.kind if isinstance(each, FetchFailed) else type(each) for each in outcomes]
    assert kinds == [Response, Response, FailureKind.DISCONNECTED, FailureKind.TIMEOUT] * 2


@pytest.mark.parametrize(
    "specification",
    [
        test_a_response_is_kept_as_it_came,
        test_connections_are_kept_and_used_again,
        test_the_start_is_that_of_the_request_and_not_of_the_connection,
        test_the_rest_of_a_cut_body_is_not_drained,
        test_a_request_whose_connection_breaks_is_never_sent_again,
        test_nothing_was_sent_where_no_connection_came_about,
        test_a_connection_that_takes_too_long_is_given_up,
        test_a_place_that_the_user_typed_is_allowed_for_itself_and_not_for_its_other_ports,
        test_a_server_that_does_not_speak_tls_is_a_tls_failure,
        test_a_page_comes_through_a_proxy_whose_password_stays_out_of_the_record,
        test_what_the_proxy_does_wrong_is_not_the_sites_fault,
        test_a_fetch_can_be_cancelled_at_every_step_of_connecting,
    ],
)
def test_it_holds_on_uvloop_as_well(specification: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await specification()

    uvloop.run(run())


@pytest.mark.parametrize(
    "specification",
    [
        test_a_certificate_that_does_not_hold_is_reported_with_its_reason,
        test_tls_goes_through_a_proxy_in_a_tunnel,
        test_a_cut_connection_is_closed_even_where_tls_would_wait_for_a_farewell,
        test_no_socket_and_no_task_outlives_the_fetcher,
    ],
)
def test_tls_holds_on_uvloop_as_well(specification: Callable[[Path], Awaitable[None]], tmp_path: Path) -> None:
    async def run() -> None:
        await specification(tmp_path)

    uvloop.run(run())
