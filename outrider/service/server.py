"""One port for everything: HTTP/1.1, HTTP/2 in clear text, and both over TLS.

uvicorn brings HTTP/1.1 (httptools), TLS and the life of the process; HTTP/2 is ours, for reasons that stand in
`outrider.service.grpc.http2`. Which of the two a client speaks is told by ALPN or by its first bytes.
"""

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, cast
from urllib.parse import quote

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from outrider.model.errors import InvalidInput, OutriderError
from outrider.service.grpc.http2 import MAX_HEADER_BYTES, Http2Connection

BACKLOG = 2_048
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class ServerFailed(OutriderError):
    """The server could not start: its address is taken, or the application refused."""


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """The server's certificate, and the authority whose clients alone may connect, if there is one."""

    certificate: Path
    key: Path
    client_authority: Path | None = None


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how to serve."""

    host: str = "127.0.0.1"
    # 0 takes a free one.
    port: int = 7071
    # A socket of this machine to listen on instead, for the user of this process alone.
    socket_path: Path | None = None
    tls: Tls | None = None
    # How long a connection may be open without a request.
    keep_alive_s: int = 120
    # How long requests that run may take to end once a stop was asked for.
    drain_s: int = 10


class Server:
    """Serves an ASGI application for as long as it is entered.

    async with Server(app, ServerOptions(port=0)) as server:
        …  # server.base_url

    Leaving it is a graceful stop: nothing new is accepted, `on_stop` is called, requests that run are answered.
    """

    def __init__(
        self, app: Any, options: ServerOptions | None = None, *, on_stop: Sequence[Callable[[], None]] = ()
    ) -> None:
        self.options = options or ServerOptions()
        self.port = self.options.port
        self._on_stop = on_stop
        self._uvicorn = _Uvicorn(_config(app, self.options))
        self._running: asyncio.Task[None] | None = None

    @property
    def base_url(self) -> str:
        """The address, without a slash at the end; of a socket as `outrider.connect` takes it."""
        if self.options.socket_path is not None:
            return f"http+unix://{quote(str(self.options.socket_path), safe='')}"
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        return f"{'https' if self.options.tls else 'http'}://{host}:{self.port}"

    async def __aenter__(self) -> Self:
        listener = _listener(self.options)
        if self.options.socket_path is None:
            self.port = listener.getsockname()[1]
        self._running = asyncio.create_task(self._uvicorn.run_until_stopped([listener]))
        ready = asyncio.create_task(self._uvicorn.ready.wait())
        await asyncio.wait([self._running, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._running.done():
            listener.close()
            await self._running
            raise ServerFailed("the application did not start; its log says why")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._running is not None
        for act in self._on_stop:
            act()
        self._uvicorn.should_exit = True
        await self._running
        if self.options.socket_path is not None:
            self.options.socket_path.unlink(missing_ok=True)


async def serve(
    app: Any,
    options: ServerOptions | None = None,
    *,
    on_ready: Callable[[Server], None] = lambda _server: None,
    on_stop: Sequence[Callable[[], None]] = (),
) -> None:
    """Serve until SIGTERM or SIGINT, and stop gracefully."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with Server(app, options, on_stop=on_stop) as server:
        on_ready(server)
        await stopped.wait()


class _Uvicorn(uvicorn.Server):
    """uvicorn's server without its handling of signals and exits, which belong to the program."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def run_until_stopped(self, sockets: list[socket.socket]) -> None:
        try:
            await self.serve(sockets=sockets)
        except SystemExit:
            raise ServerFailed("the application did not start; its log says why") from None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _LimitedHttp1(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with a limit for the head of a request, which httptools does not have."""

    _head_bytes = 0
    _in_head = True
    _came_further = False

    def data_received(self, data: bytes) -> None:
        self._came_further = False
        super().data_received(data)
        if self._came_further or not self._in_head:
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._in_head, self._came_further = False, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._came_further = True, True
        super().on_message_complete()


class AnyHttp(asyncio.Protocol):
    """A connection that has not yet said which HTTP it speaks."""

    alpn_protocols: ClassVar[list[str]] = ["h2", "http/1.1"]

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._make: Callable[[type[Any]], asyncio.Protocol] = lambda kind: cast(
            asyncio.Protocol, kind(config=config, server_state=server_state, app_state=app_state, _loop=_loop)
        )
        self._connections = server_state.connections
        self._patience_s = config.timeout_keep_alive
        self._transport = cast(asyncio.Transport, None)
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask TLS, or wait for the first bytes."""
        self._transport = cast(asyncio.Transport, transport)
        encryption: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if encryption is not None and encryption.selected_alpn_protocol() == "h2":
            self._become(Http2Connection)
            return
        self._connections.add(cast(Any, self))
        self._timer = asyncio.get_running_loop().call_later(self._patience_s, self._transport.close)

    def data_received(self, data: bytes) -> None:
        """Decide as soon as the bytes tell."""
        self._received += data
        if len(self._received) < len(_PREFACE) and _PREFACE.startswith(self._received):
            return
        self._leave()
        self._become(Http2Connection if self._received.startswith(_PREFACE) else _LimitedHttp1)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a client that said nothing."""
        self._leave()

    def shutdown(self) -> None:
        """Close; called by uvicorn."""
        self._transport.close()

    def _leave(self) -> None:
        self._connections.discard(cast(Any, self))
        if self._timer is not None:
            self._timer.cancel()

    def _become(self, kind: type[Any]) -> None:
        protocol = self._make(kind)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if self._received:
            protocol.data_received(self._received)


def _config(app: Any, options: ServerOptions) -> uvicorn.Config:
    tls = options.tls
    return uvicorn.Config(
        app,
        http=AnyHttp,
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=options.keep_alive_s,
        timeout_graceful_shutdown=options.drain_s,
        ssl_context_factory=None if tls is None else lambda _config, _default: _tls_context(tls),
    )


def _tls_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(AnyHttp.alpn_protocols)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.client_authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(tls.client_authority)
    except OSError as error:  # ssl.SSLError is one
        raise InvalidInput(
            f"the TLS files cannot be used: {error} (certificate {tls.certificate}, key {tls.key})"
        ) from error
    return context


def _listener(options: ServerOptions) -> socket.socket:
    if options.socket_path is not None:
        return _local_listener(options.socket_path)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # With the protocol named, asyncio sends small answers at once; else each waits 40 ms for an acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ServerFailed(f"cannot serve on {options.host}:{options.port}: {error.strerror or error}") from error
    return listener


def _local_listener(path: Path) -> socket.socket:
    """Listen on a socket in the file system that only its owner can connect to, from the first moment on."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    beginning = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        # Bound under another name, it is nobody's door before its rights are set; and where a killed process has left
        # its own, that one is replaced.
        beginning.unlink(missing_ok=True)
        listener.bind(str(beginning))
        beginning.chmod(0o600)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        beginning.replace(path)
    except OSError as error:
        listener.close()
        raise ServerFailed(f"cannot serve on {path}: {error.strerror or error}") from error
    return listener
