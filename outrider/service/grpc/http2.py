"""HTTP/2 under ASGI, with flow control that reaches the application, stream by stream.

`h2` keeps the protocol; this keeps the promises that gRPC streams need. A stream's window opens only when the
application takes what came, and a `send` ends only when the peer has room for it. No server that was tried does both:
hypercorn and uvicorn's own HTTP/2 keep what a client does not read in memory without bound, 100 to 200 MB of GetURLs in
four seconds, and hypercorn spends 20 µs on each small frame; granian sends no trailers.

It runs inside uvicorn, which brings HTTP/1.1, TLS and the life of the process.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any, ClassVar, cast
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import hyperframe.frame
from uvicorn.config import Config
from uvicorn.server import ServerState

from outrider.service.grpc.http2_stream import ClientDisconnected, Headers, Stream
from outrider.service.grpc.small_frames import FrameJoiner

# What one stream may have sent without the application having taken it, and all streams of a connection together.
STREAM_WINDOW = 256 * 1024
CONNECTION_WINDOW = 2 * 1024 * 1024
MAX_FRAME = 64 * 1024
MAX_STREAMS = 128
MAX_HEADER_BYTES = 16 * 1024
# Written at once at the latest after so many bytes, and other tasks get their turn.
FLUSH_BYTES = 64 * 1024

log = logging.getLogger(__name__)


class Http2Connection(asyncio.Protocol):
    """One client: its frames in and out, and a task of the application for each of its streams."""

    alpn_protocols: ClassVar[list[str]] = ["h2"]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._config = config
        self._state = server_state
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, None)
        self._streams: dict[int, Stream] = {}
        self._joiner = FrameJoiner(most_bytes=MAX_FRAME)
        self._last_stream_id = 0
        self._stopping = False
        self._write_paused = False
        self._flush_scheduled = False
        self._unflushed = 0
        self._idle: asyncio.TimerHandle | None = None
        self._scope: dict[str, Any] = {}
        self._http2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        codes = h2.settings.SettingCodes
        self._http2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                codes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                codes.MAX_FRAME_SIZE: MAX_FRAME,
                codes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                codes.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
            },
        )
        # h2 reads these two only when a setting changes, and ours never do.
        self._http2.max_inbound_frame_size = MAX_FRAME
        self._http2.decoder.max_header_list_size = MAX_HEADER_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the client."""
        self._transport = cast(asyncio.Transport, transport)
        self._state.connections.add(cast(Any, self))
        _notice_dead_peers(self._transport)
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "2",
            "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
            "server": _address(transport.get_extra_info("sockname")),
            "client": _address(transport.get_extra_info("peername")),
            "root_path": "",
            "extensions": {"http.response.trailers": {}},
        }
        self._http2.initiate_connection()
        self._http2.increment_flow_control_window(CONNECTION_WINDOW - 65_535)
        self._flush()
        self._wait_idly()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every stream's application that its client has gone."""
        self._state.connections.discard(cast(Any, self))
        if self._idle is not None:
            self._idle.cancel()
        for stream in self._streams.values():
            stream.disappear()

    def data_received(self, data: bytes) -> None:
        """Hand each frame to its stream."""
        try:
            events = self._http2.receive_data(self._joiner.join(data))
        except h2.exceptions.ProtocolError as error:
            log.info("closing a connection that breaks HTTP/2: %s", error)
            self._flush()
            self._transport.close()
            return
        for event in events:
            act = _ACTIONS.get(type(event))
            if act is not None:
                # A later frame of the same read may have closed the stream that this event is about.
                with contextlib.suppress(h2.exceptions.StreamClosedError):
                    act(self, event)
        self._flush()

    def pause_writing(self) -> None:
        """Stop reading, too: what a client sends without reading its socket would be answered into memory."""
        self._write_paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on with what waits."""
        self._write_paused = False
        self._transport.resume_reading()
        self._wake_all()

    def shutdown(self) -> None:
        """Take no more requests, and close when those that run are answered; called by uvicorn."""
        self._stopping = True
        if not self._streams:
            self._close()
            return
        # `close_connection` of h2 would also end its own sending, and the streams that run still have answers.
        self._flush()
        self._transport.write(hyperframe.frame.GoAwayFrame(0, last_stream_id=self._last_stream_id).serialize())

    def acknowledge(self, stream: Stream) -> None:
        """Open the peer's window for what the application has taken."""
        credit = stream.take_credit()
        if credit:
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self._http2.acknowledge_received_data(credit, stream.stream_id)
            self._flush_soon()

    def write_headers(self, stream_id: int, headers: Headers, *, end: bool) -> None:
        """Send a response's head or its trailers."""
        if not end or headers[0][0] == b":status":
            headers = [*headers, *self._state.default_headers]
        self._http2.send_headers(stream_id, headers, end_stream=end)
        self._flush_soon()

    async def write_body(self, stream: Stream, body: bytes, *, end: bool) -> None:
        """Send a body as fast as the peer's windows and its socket allow."""
        rest = memoryview(body)
        while True:
            window = self._http2.local_flow_control_window(stream.stream_id)
            if self._write_paused or (rest and window <= 0):
                self._flush()
                stream.writable.clear()
                await stream.writable.wait()
                if stream.gone:
                    raise ClientDisconnected("the client has gone")
                continue
            size = min(window, self._http2.max_outbound_frame_size, len(rest))
            last = size == len(rest)
            self._http2.send_data(stream.stream_id, bytes(rest[:size]), end_stream=end and last)
            self._unflushed += size
            if self._unflushed >= FLUSH_BYTES:
                self._flush()
                await asyncio.sleep(0)
                if stream.gone and not last:
                    raise ClientDisconnected("the client has gone")
            if last:
                self._flush_soon()
                return
            rest = rest[size:]

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._unflushed = 0
        data = self._http2.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def _flush_soon(self) -> None:
        """Write at the end of this turn of the loop, with what others add until then."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _request(self, event: h2.events.RequestReceived) -> None:
        stream_id = event.stream_id
        # h2 bounds the streams that are open. Tasks of streams that were answered or reset may still be cleaning up;
        # they are bounded, too, so that a client which opens and resets streams all the time gains nothing.
        if self._stopping or len(self._streams) >= 2 * MAX_STREAMS:
            self._http2.reset_stream(stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
            return
        self._last_stream_id = stream_id
        request = _request_scope(event.headers)
        stream = self._streams[stream_id] = Stream(self, stream_id, bodyless=request["method"] == "HEAD")
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        scope = self._scope | request | {"state": self._app_state.copy()}
        task = self._loop.create_task(self._run(stream, scope))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    async def _run(self, stream: Stream, scope: dict[str, Any]) -> None:
        try:
            await self._config.loaded_app(scope, stream.receive, stream.send)
        except ClientDisconnected:
            pass
        except Exception:
            log.exception("the application failed on %s", scope["path"])
        finally:
            if not stream.answered and not stream.gone:
                self._give_up(stream)
            self._forget(stream)

    def _give_up(self, stream: Stream) -> None:
        """Answer for an application that did not: 500 where nothing was sent, a reset elsewhere."""
        with contextlib.suppress(h2.exceptions.ProtocolError):
            if stream.started:
                self._http2.reset_stream(stream.stream_id, h2.errors.ErrorCodes.INTERNAL_ERROR)
            else:
                self._http2.send_headers(stream.stream_id, [(b":status", b"500")], end_stream=True)

    def _forget(self, stream: Stream) -> None:
        self._state.total_requests += 1
        del self._streams[stream.stream_id]
        with contextlib.suppress(h2.exceptions.ProtocolError):
            if not stream.request_ended and not stream.gone:
                # The answer is complete and the client still sends: it may stop (RFC 9113, 8.1).
                self._http2.reset_stream(stream.stream_id, h2.errors.ErrorCodes.NO_ERROR)
        self.acknowledge(stream)
        self._flush_soon()
        if not self._streams:
            if self._stopping:
                self._close()
            else:
                self._wait_idly()

    def _data(self, event: h2.events.DataReceived) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is None or stream.answered:
            self._http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        else:
            stream.data(event.data, event.flow_controlled_length)

    def _end_of_request(self, event: h2.events.StreamEnded) -> None:
        if stream := self._streams.get(event.stream_id):
            stream.end_request()

    def _reset(self, event: h2.events.StreamReset) -> None:
        if stream := self._streams.get(event.stream_id):
            stream.disappear()

    def _window(self, event: h2.events.WindowUpdated) -> None:
        if event.stream_id == 0:
            self._wake_all()
        elif stream := self._streams.get(event.stream_id):
            stream.writable.set()

    def _settings(self, _event: h2.events.RemoteSettingsChanged) -> None:
        self._wake_all()

    def _farewell(self, _event: h2.events.ConnectionTerminated) -> None:
        self._flush()
        self._transport.close()

    def _wake_all(self) -> None:
        for stream in self._streams.values():
            stream.writable.set()

    def _wait_idly(self) -> None:
        self._idle = self._loop.call_later(self._config.timeout_keep_alive, self._close)

    def _close(self) -> None:
        if not self._transport.is_closing():
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self._http2.close_connection()
            self._flush()
            self._transport.close()


_ACTIONS: dict[type[h2.events.Event], Callable[[Http2Connection, Any], None]] = {
    h2.events.RequestReceived: Http2Connection._request,
    h2.events.DataReceived: Http2Connection._data,
    h2.events.StreamEnded: Http2Connection._end_of_request,
    h2.events.StreamReset: Http2Connection._reset,
    h2.events.WindowUpdated: Http2Connection._window,
    h2.events.RemoteSettingsChanged: Http2Connection._settings,
    h2.events.ConnectionTerminated: Http2Connection._farewell,
}


def _request_scope(fields: Any) -> dict[str, Any]:
    """The part of an ASGI scope that differs from request to request."""
    pseudo = {name: value for name, value in fields if name.startswith(b":")}
    headers = [(name, value) for name, value in fields if not name.startswith(b":")]
    if b":authority" in pseudo and not any(name == b"host" for name, _ in headers):
        headers.insert(0, (b"host", pseudo[b":authority"]))
    raw_path, _, query = pseudo.get(b":path", b"*").partition(b"?")
    return {
        "method": pseudo[b":method"].decode("latin-1"),
        "path": unquote(raw_path.decode("latin-1")),
        "raw_path": raw_path,
        "query_string": query,
        "headers": headers,
    }


def _address(name: Any) -> tuple[str, int] | None:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None


def _notice_dead_peers(transport: asyncio.Transport) -> None:
    """Let the kernel probe silent connections: a stream may be open for days with nothing to say."""
    raw: socket.socket | None = transport.get_extra_info("socket")
    if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
