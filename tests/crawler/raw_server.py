"""Servers on loopback that answer with the very bytes, and the manners, that a test gives them."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

Answer = bytes | Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request as it came, and the way back."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head = head
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_hung_up(self) -> None:
        """Wait until the client closes the connection."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


class RawServer:
    """What a running server saw."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = answers
        self.port = 0
        self.heads: list[bytes] = []
        self.connections = 0
        self.open_connections = 0
        self.request_came = asyncio.Event()
        self.all_closed = asyncio.Event()

    def url(self, path: str, *, scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        self.all_closed.clear()
        try:
            # An incomplete read is how a client's farewell looks.
            with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                while await self._answer(Exchange(await reader.readuntil(b"\r\n\r\n"), reader, writer)):
                    pass
        finally:
            writer.close()
            self.open_connections -= 1
            if not self.open_connections:
                self.all_closed.set()

    async def _answer(self, exchange: Exchange) -> bool:
        self.heads.append(exchange.head)
        self.request_came.set()
        target = exchange.head.split(b" ", 2)[1].decode()
        answer = self.answers[target]
        if isinstance(answer, bytes):
            await exchange.send(answer)
            return b"\r\nConnection: close\r\n" not in answer
        await answer(exchange)
        return False


def page(body: bytes = b"hello", *headers: str, status: str = "200 OK") -> bytes:
    """A whole and proper response."""
    lines = (f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}")
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


@asynccontextmanager
async def serving(
    answers: Mapping[str, Answer] | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """Run a server for as long as the context lasts, and drop what is still connected at its end."""
    server = RawServer(answers or {"/": page()})
    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await server.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the end of the test; asyncio would log it as an error
        finally:
            connections.discard(task)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


def unused_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def full_backlog() -> AsyncIterator[int]:
    """A port on which connections are neither accepted nor refused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        try:
            yield port
        finally:
            for each in waiting:
                each.close()


@asynccontextmanager
async def proxying() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A small forwarding proxy that wants the password `secret`; gives its URL and the heads that it saw."""
    heads: list[bytes] = []

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head)
        method, target, _ = head.split(b" ", 2)
        authority = target if method == b"CONNECT" else target.split(b"/")[2]
        host, _, port = authority.decode().rpartition(":")
        if b"Proxy-Authorization: Basic bWU6c2VjcmV0\r\n" not in head:
            writer.write(page(b"", status="407 Proxy Authentication Required"))
        else:
            site_reader, site_writer = await asyncio.open_connection(host, int(port))
            if method == b"CONNECT":
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                site_writer.write(b"GET /" + target.split(b"/", 3)[3] + b" HTTP/1.1\r\nConnection: close\r\n\r\n")
            await asyncio.gather(pump(site_reader, writer), pump(reader, site_writer), return_exceptions=True)
            site_writer.close()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield f"http://me:secret@127.0.0.1:{listener.sockets[0].getsockname()[1]}", heads


def certificate(folder: Path, *, name: str, days: int = 2) -> ssl.SSLContext:
    """Make a self-signed certificate, already expired where `days` is negative, and the context that serves it."""
    kind = "IP" if name[0].isdigit() else "DNS"
    # fmt: off
    request = (
        "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", "key.pem", "-out", "request.pem", "-subj", f"/CN={name}", "-addext", f"subjectAltName={kind}:{name}",
    )
    signing = (
        "x509", "-req", "-in", "request.pem", "-key", "key.pem", "-out", "certificate.pem",
        "-days", str(days), "-copy_extensions", "copyall",
    )
    # fmt: on
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make certificates with")
    for command in (request, signing):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context


def trusting(folder: Path) -> ssl.SSLContext:
    """A client's context that trusts what `certificate` made in this folder."""
    return ssl.create_default_context(cafile=str(folder / "certificate.pem"))
