"""One stream of HTTP/2, as an ASGI application sees it."""

import asyncio
from typing import Any, Protocol

import h2.exceptions

Headers = list[tuple[bytes, bytes]]

# Not for HTTP/2 (RFC 9113, 8.2.2); an application that also speaks HTTP/1.1 may send them.
FORBIDDEN = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})


class Connection(Protocol):
    """What a stream needs of its connection."""

    def acknowledge(self, stream: "Stream") -> None:
        """Open the peer's window for what the application has taken."""

    def write_headers(self, stream_id: int, headers: Headers, *, end: bool) -> None:
        """Send a response's head or its trailers."""

    async def write_body(self, stream: "Stream", body: bytes, *, end: bool) -> None:
        """Send a body as fast as the peer's windows and its socket allow."""


class ClientDisconnected(OSError):
    """The stream that was written to is gone."""


class Stream:
    """One request with its response: the `receive` and `send` of an ASGI application."""

    def __init__(self, connection: Connection, stream_id: int, *, bodyless: bool) -> None:
        self.stream_id = stream_id
        # Set when the peer may have made room for more.
        self.writable = asyncio.Event()
        # Reset by the peer, or its connection is lost.
        self.gone = False
        # A part of the response is sent, or all of it.
        self.started = False
        self.answered = False
        self.request_ended = False
        self._connection = connection
        self._inbound: list[bytes] = []
        self._unacknowledged = 0
        self._arrived = asyncio.Event()
        self._end_told = False
        self._head: Headers | None = None
        self._bodyless = bodyless
        self._trailers_follow = False

    def data(self, body: bytes, flow_controlled_length: int) -> None:
        """Keep what came until the application asks; the peer gets no new window for it before."""
        self._inbound.append(body)
        self._unacknowledged += flow_controlled_length
        self._arrived.set()

    def end_request(self) -> None:
        """Note that the client has sent all; it still listens."""
        self.request_ended = True
        self._arrived.set()

    def disappear(self) -> None:
        """Wake whoever waits for this stream: nothing will come any more and nobody listens."""
        self.gone = True
        self._arrived.set()
        self.writable.set()

    def take_credit(self) -> int:
        """The bytes for which the peer's window may open again."""
        credit, self._unacknowledged = self._unacknowledged, 0
        return credit

    async def receive(self) -> dict[str, Any]:
        """All of the body that has come since the last call, as one chunk."""
        while not self._inbound and not (self.request_ended and not self._end_told):
            if self.gone or self.answered:
                return {"type": "http.disconnect"}
            self._arrived.clear()
            await self._arrived.wait()
        if self.gone:
            return {"type": "http.disconnect"}
        body = self._inbound[0] if len(self._inbound) == 1 else b"".join(self._inbound)
        self._inbound.clear()
        self._connection.acknowledge(self)
        self._end_told = self.request_ended
        return {"type": "http.request", "body": body, "more_body": not self.request_ended}

    async def send(self, message: Any) -> None:
        """Send a part of the response; ends when the peer has had room for it.

        The head waits for the first part of the body, so that a response without one is a single frame, which is what
        gRPC calls trailers-only.
        """
        if self.gone:
            raise ClientDisconnected("the client has gone")
        try:
            if message["type"] == "http.response.start":
                self._start(message)
            elif message["type"] == "http.response.body":
                await self._body(bytes(message.get("body", b"")), more=message.get("more_body", False))
            elif message["type"] == "http.response.trailers":
                self._connection.write_headers(self.stream_id, list(message["headers"]), end=True)
                self._finish()
        except h2.exceptions.ProtocolError as error:
            raise ClientDisconnected(f"the client has gone: {error}") from error

    def _start(self, message: Any) -> None:
        fields = [(name.lower(), value) for name, value in message.get("headers", ())]
        status = (b":status", str(message["status"]).encode())
        self._head = [status, *((name, value) for name, value in fields if name not in FORBIDDEN)]
        self._trailers_follow = message.get("trailers", False)
        self._bodyless |= message["status"] in (204, 304)

    async def _body(self, body: bytes, *, more: bool) -> None:
        last = not more and not self._trailers_follow
        if self._bodyless:
            body = b""
        if self._head is not None:
            head, self._head, self.started = self._head, None, True
            self._connection.write_headers(self.stream_id, head, end=last and not body)
            if last and not body:
                self._finish()
                return
        if body or last:
            await self._connection.write_body(self, body, end=last)
        if last:
            self._finish()

    def _finish(self) -> None:
        self.answered = True
        self._arrived.set()
