"""One port: HTTP/1.1, HTTP/2 in clear text, both over TLS, and a stop that loses nothing."""

import asyncio
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from outrider.model.errors import InvalidInput
from outrider.service.server import Server, ServerFailed, ServerOptions, Tls
from outrider.service.urlfrontier_pb2 import Empty, StringList
from tests.service.grpc_peers import URLFRONTIER, WAIT_S, RawClient, RunningService, raw_client, until

LIST_NODES = f"/{URLFRONTIER}/ListNodes"
GET = {":method": "GET", "content-type": "text/plain"}


class Pages:
    """A small application: what it answers is said by the path."""

    def __init__(self) -> None:
        self.waiting = 0
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.live(scope, receive, send)
            return
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        match scope["path"]:
            case "/slow":
                self.waiting += 1
                await self.go_on.wait()
            case "/fails":
                raise RuntimeError("on purpose")
            case "/says-nothing":
                return
            case "/fails-late":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"half", "more_body": True})
                raise RuntimeError("on purpose")
        about = f"{scope['http_version']} {scope['scheme']} {scope['method']} {scope['path']} {len(body)} "
        answer = (about + scope["state"].get("name", "") + "\n").encode() + body
        headers = [(b"Content-Type", b"text/plain"), (b"Connection", b"keep-alive")]
        status = 204 if scope["path"] == "/empty" else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def live(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        scope["state"]["name"] = "known"
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[Pages, Server]]:
    pages = Pages()
    async with Server(pages, ServerOptions(**{"port": 0, "drain_s": 2} | options)) as server:
        yield pages, server


def http1(
    port: int, path: str, *, method: str = "GET", body: bytes = b"", headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    connection.request(method, path, body=body, headers=headers or {})
    answer = connection.getresponse()
    result = answer.status, answer.read()
    connection.close()
    return result


def http2(client: RawClient, path: str, *, method: str = "GET", body: bytes = b"") -> tuple[dict[str, str], bytes]:
    stream = client.request(path, GET | {":method": method}, end=not body)
    if body:
        client.write(stream, body, end=True)
    return client.answer(stream)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder = tmp_path_factory.mktemp("tls")
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    return Tls(certificate=folder / "certificate.pem", key=folder / "key.pem")


def trusting(authority: trustme.CA, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


async def test_both_versions_of_http_are_served_on_one_port() -> None:
    async with serving() as (_, server):
        assert await asyncio.to_thread(http1, server.port, "/a%20b") == (200, b"1.1 http GET /a b 0 known\n")

        def ask() -> tuple[dict[str, str], bytes]:
            with raw_client(server.port) as client:
                return http2(client, "/a%20b")

        fields, body = await asyncio.to_thread(ask)
        assert (fields[":status"], fields["content-type"], body) == ("200", "text/plain", b"2 http GET /a b 0 known\n")
        assert ("date" in fields, "connection" in fields) == (True, False)


async def test_bodies_larger_than_all_windows_pass_both_ways() -> None:
    large = os.urandom(3_000_000)
    async with serving() as (_, server):
        assert (await asyncio.to_thread(http1, server.port, "/", method="PUT", body=large))[1].endswith(large)

        def ask() -> bytes:
            with raw_client(server.port) as client:
                return http2(client, "/", method="PUT", body=large)[1]

        assert (await asyncio.to_thread(ask)).endswith(large)


async def test_responses_that_must_not_have_a_body_have_none() -> None:
    async with serving() as (_, server):

        def ask() -> list[tuple[str, bytes]]:
            with raw_client(server.port) as client:
                answers = [http2(client, "/", method="HEAD"), http2(client, "/empty")]
                return [(fields[":status"], body) for fields, body in answers]

        assert await asyncio.to_thread(ask) == [("200", b""), ("204", b"")]


async def test_an_application_that_fails_does_not_take_the_connection_with_it() -> None:
    async with serving() as (_, server):

        def ask() -> list[tuple[str | None, str | None]]:
            with raw_client(server.port) as client:
                answers = [http2(client, path)[0] for path in ("/fails", "/says-nothing", "/fails-late", "/")]
                return [(fields.get(":status"), fields.get("reset")) for fields in answers]

        internal_error = "2"
        assert await asyncio.to_thread(ask) == [
            ("500", None), ("500", None), ("200", internal_error), ("200", None),
        ]  # fmt: skip


async def test_the_head_of_a_request_is_limited() -> None:
    async with serving() as (_, server):

        def throw(data: bytes) -> bytes:
            with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as plain:
                answer = b""
                try:
                    plain.sendall(data)
                    while more := plain.recv(65_536):
                        answer += more
                except (ConnectionResetError, BrokenPipeError):
                    pass
                return answer

        endless = await asyncio.to_thread(throw, b"GET / HTTP/1.1\r\nx: " + b"y" * 300_000)
        assert endless.startswith(b"HTTP/1.1 431 ")
        assert (await asyncio.to_thread(http1, server.port, "/", headers={"x": "y" * 10_000}))[0] == 200


async def test_grpc_over_http1_is_told_what_it_needs() -> None:
    with RunningService() as service:
        status, words = await asyncio.to_thread(
            http1, service.port, LIST_NODES, method="POST", headers={"content-type": "application/grpc"}
        )
        assert (status, words) == (505, b"gRPC calls need HTTP/2\n")


async def test_a_connection_without_requests_is_closed_after_a_while() -> None:
    async with serving(keep_alive_s=1) as (_, server):

        def wait() -> tuple[bytes, bool]:
            with (
                socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as silent,
                raw_client(server.port) as client,
            ):
                http2(client, "/")
                while client.read():
                    pass
                return silent.recv(10), client.dismissed

        assert await asyncio.to_thread(wait) == (b"", True)


@pytest.mark.parametrize("version", ["h2", "http/1.1"])
async def test_tls_agrees_on_the_version(tls: Tls, authority: trustme.CA, version: str) -> None:
    async with serving(tls=tls) as (_, server):

        def ask() -> bytes:
            context = trusting(authority, version)
            if version == "h2":
                with raw_client(server.port, tls=context) as client:
                    return http2(client, "/")[1]
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=WAIT_S, context=context)
            connection.request("GET", "/")
            body = connection.getresponse().read()
            connection.close()
            return body

        assert await asyncio.to_thread(ask) == f"{'2' if version == 'h2' else '1.1'} https GET / 0 known\n".encode()
        assert server.base_url == f"https://127.0.0.1:{server.port}"


def test_a_client_of_grpc_calls_over_tls(tls: Tls, authority: trustme.CA) -> None:
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    with (
        RunningService(ServerOptions(port=0, tls=tls)) as service,
        grpc.secure_channel(service.target, credentials) as channel,
    ):
        nodes = channel.unary_unary(
            LIST_NODES, request_serializer=Empty.SerializeToString, response_deserializer=StringList.FromString
        )
        assert nodes(Empty(), timeout=WAIT_S).values == ["here"]


async def test_with_an_authority_for_clients_only_those_of_it_may_connect(
    tls: Tls, authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    strict = Tls(certificate=tls.certificate, key=tls.key, client_authority=tmp_path / "authority.pem")
    async with serving(tls=strict) as (_, server):

        def ask(context: ssl.SSLContext) -> bytes:
            with raw_client(server.port, tls=context) as client:
                return http2(client, "/")[1]

        # An alert of TLS or a closed connection, as the timing has it.
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(ask, trusting(authority, "h2"))
        known = trusting(authority, "h2")
        authority.issue_cert("worker").configure_cert(known)
        assert (await asyncio.to_thread(ask, known)).startswith(b"2 https")


async def test_a_stop_answers_what_runs_and_takes_nothing_new() -> None:
    pages = Pages()
    server = Server(pages, ServerOptions(port=0, drain_s=5))
    await server.__aenter__()
    first = asyncio.create_task(asyncio.to_thread(http1, server.port, "/slow"))

    def ask() -> tuple[str, bytes, bool]:
        with raw_client(server.port) as client:
            fields, body = http2(client, "/slow")
            while client.read():
                pass
            return fields[":status"], body, client.dismissed

    second = asyncio.create_task(asyncio.to_thread(ask))
    await asyncio.to_thread(until, lambda: pages.waiting == 2)
    stopping = asyncio.create_task(server.__aexit__(None, None, None))
    await asyncio.to_thread(until, lambda: not can_connect(server.port))
    pages.go_on.set()
    assert (await asyncio.wait_for(first, WAIT_S))[0] == 200
    assert await asyncio.wait_for(second, WAIT_S) == ("200", b"2 http GET /slow 0 known\n", True)
    await asyncio.wait_for(stopping, WAIT_S)


def can_connect(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


async def test_a_stop_does_not_wait_for_ever() -> None:
    async with serving(drain_s=1) as (pages, server):

        def ask() -> dict[str, str]:
            with raw_client(server.port) as client:
                return http2(client, "/slow")[0]

        asked = asyncio.create_task(asyncio.to_thread(ask))
        await asyncio.to_thread(until, lambda: pages.waiting == 1)
    fields = await asyncio.wait_for(asked, WAIT_S)
    assert fields.get(":status") != "200"


async def test_an_address_that_is_taken_is_named() -> None:
    async with serving() as (_, server):
        with pytest.raises(ServerFailed, match=rf"cannot serve on 127\.0\.0\.1:{server.port}: Address already in use"):
            await Server(Pages(), ServerOptions(port=server.port)).__aenter__()


async def test_tls_files_that_cannot_be_used_are_named(tmp_path: Path, tls: Tls) -> None:
    for wrong in (tmp_path / "nowhere.pem", tls.key):
        with pytest.raises(InvalidInput, match=wrong.name):
            await Server(Pages(), ServerOptions(port=0, tls=Tls(certificate=wrong, key=tls.key))).__aenter__()


async def test_an_application_that_does_not_start_is_an_error() -> None:
    async def refuse(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "not today"})

    with pytest.raises(ServerFailed):
        await Server(refuse, ServerOptions(port=0)).__aenter__()


PROGRAM = """
import uvloop
from outrider.service.server import ServerOptions, serve
from tests.service.test_server import Pages
uvloop.run(serve(Pages(), ServerOptions(port=0), on_ready=lambda server: print(server.base_url, flush=True)))
"""


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent.parent
    )
    yield running
    running.kill()
    running.wait(WAIT_S)


def test_a_signal_stops_the_program_with_success(program: subprocess.Popen[str]) -> None:
    assert program.stdout is not None
    address = program.stdout.readline().strip()
    assert http1(int(address.rpartition(":")[2]), "/")[0] == 200
    program.send_signal(signal.SIGTERM)
    assert program.wait(WAIT_S) == 0
