"""One connection of the demo server: just enough HTTP/1.1, by hand.

The server is the other side of a benchmark on the same machine, so that each microsecond here is taken from
the crawler. Measured, a page costs 40 µs of CPU here and 65 with aiohttp's low-level server.
"""

import asyncio
import re
import time
from collections import Counter
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol, cast

import msgspec

from outrider.demo.answer import Answer, Request, Step
from outrider.demo.site import Site

MOST_HEAD_BYTES = 64 * 1024
MOST_BODY_BYTES = 1024 * 1024

_END = b"\r\n\r\n"
_HOST = re.compile(r"[A-Za-z0-9._\-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")
_TARGET = re.compile(r"[!-~\x80-\xff]+")
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REASONS = {status.value: status.phrase for status in HTTPStatus}


class OnRequest(Protocol):
    """Is told of every request as soon as its head has arrived."""

    def __call__(self, monotonic_time: float, host: str, path: str, /) -> None:
        """Take the time of the monotonic clock in seconds, the Host header, and the path with its query."""


class Traffic(msgspec.Struct):
    """What the connections of one server share: the site, what was counted, and who is connected."""

    site: Site
    on_request: OnRequest | None = None
    requests: int = 0
    statuses: Counter[int] = msgspec.field(default_factory=Counter)
    visits: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    connections: set["Connection"] = msgspec.field(default_factory=set)
    dated: tuple[int, str] = (0, "")

    def date(self, now: float) -> str:
        """The Date header, which is written anew only once a second."""
        if self.dated[0] != int(now):
            self.dated = (int(now), formatdate(now, usegmt=True))
        return self.dated[1]


class BadRequest(Exception):
    """The client sent what cannot be understood; its connection ends with this status."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class Head(msgspec.Struct, frozen=True):
    """The head of a request, understood."""

    method: str
    target: str
    host: str
    headers: dict[str, str]
    body_bytes: int
    keep_alive: bool


def parse_head(data: bytes) -> Head:
    """Understand a request's head without its empty line; raises `BadRequest`."""
    first, *lines = data.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not _NAME.fullmatch(words[0]) or not _TARGET.fullmatch(words[1]):
        raise BadRequest("the request line is not `METHOD TARGET VERSION`")
    method, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest("only HTTP/1.1 and HTTP/1.0 are spoken here", 505)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name):
            raise BadRequest("a header is not `Name: value`")
        name = name.lower()
        if name in headers and name in ("host", "content-length", "transfer-encoding"):
            raise BadRequest(f"there is more than one {name}")
        headers[name] = value.strip(" \t")
    host = headers.get("host", "localhost" if version == "HTTP/1.0" else "")
    if not target.startswith("/"):
        host, target = _absolute(target)
    if not _HOST.fullmatch(host):
        raise BadRequest("the Host header is missing or no host")
    wish = headers.get("connection", "").lower()
    keep_alive = wish != "close" if version == "HTTP/1.1" else wish == "keep-alive"
    return Head(method, target, host.lower(), headers, _body_bytes(headers), keep_alive)


def _absolute(target: str) -> tuple[str, str]:
    """Split `http://host/path`, the form in which a proxy is asked: to serve as one, the site answers for all hosts."""
    if not target.lower().startswith("http://"):
        raise BadRequest("the target is neither a path nor an http address")
    host, slash, rest = target[len("http://") :].partition("/")
    return host, slash + rest or "/"


def _body_bytes(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequest("a body must come with its Content-Length", 411)
    length = headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 12:
        raise BadRequest("the Content-Length is no number")
    if int(length) > MOST_BODY_BYTES:
        raise BadRequest(f"a body may have {MOST_BODY_BYTES} bytes", 413)
    return int(length)


class Connection(asyncio.Protocol):
    """Reads requests, one after the other, and answers them in order, however many came at once."""

    _transport: asyncio.Transport

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._buffer = b""
        self._skip = 0
        """How many bytes of a request's body are still to come."""
        self._script: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # A cast, as those of uvloop are transports by duck typing only.
        self._transport = cast(asyncio.Transport, transport)
        self._traffic.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End, with whatever was being sent."""
        self._traffic.connections.discard(self)
        if self._script is not None:
            self._script.cancel()

    def pause_writing(self) -> None:
        """The client does not read as fast as we write: wait for it."""
        self._writable.clear()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._writable.set()
        self._go_on()

    def data_received(self, data: bytes) -> None:
        """Answer what is complete."""
        self._buffer = self._buffer + data if self._buffer else data
        self._serve()

    @property
    def unsent_bytes(self) -> int:
        """How many bytes wait for the client to read on."""
        return self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._transport.abort()

    def _serve(self) -> None:
        while self._script is None and self._writable.is_set() and not self._transport.is_closing():
            if self._skip:
                skipped = min(self._skip, len(self._buffer))
                self._buffer, self._skip = self._buffer[skipped:], self._skip - skipped
            head, end, rest = self._buffer.lstrip(b"\r\n").partition(_END)
            if self._skip or not end:
                if len(head) > MOST_HEAD_BYTES:
                    self._refuse(BadRequest(f"a head may have {MOST_HEAD_BYTES} bytes", 431))
                return
            self._buffer = rest
            try:
                parsed = parse_head(head)
            except BadRequest as bad:
                self._refuse(bad)
                return
            self._skip = parsed.body_bytes
            self._answer(parsed)
        if len(self._buffer) > MOST_HEAD_BYTES:
            self._transport.pause_reading()

    def _go_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._serve()

    def _refuse(self, bad: BadRequest) -> None:
        self._traffic.statuses[bad.status] += 1
        answer = Answer(status=bad.status, headers=(("Content-Type", "text/plain"),), body=f"{bad}\n".encode())
        self._transport.write(self._head(answer, len(answer.body), keep_alive=False) + answer.body)
        self._transport.close()

    def _answer(self, head: Head) -> None:
        traffic = self._traffic
        traffic.requests += 1
        if traffic.on_request is not None:
            traffic.on_request(time.monotonic(), head.host, head.target)
        visit = 1
        path = head.target.partition("?")[0]
        if traffic.site.counts_visits(path):
            traffic.visits[head.host, path] += 1
            visit = traffic.visits[head.host, path]
        request = Request(
            target=head.target, method=head.method, headers=head.headers, host=head.host, now=time.time(), visit=visit
        )
        answer = traffic.site.answer(request)
        traffic.statuses[answer.status] += 1
        if answer.is_scripted:
            self._script = asyncio.get_running_loop().create_task(self._perform(answer, head))
            return
        start = self._head(answer, len(answer.body), keep_alive=head.keep_alive)
        self._transport.write(start if head.method == "HEAD" else start + answer.body)
        if not head.keep_alive:
            self._transport.close()

    def _head(self, answer: Answer, length: int | None, *, keep_alive: bool) -> bytes:
        """The status line and the headers; no length means that the body comes in chunks."""
        lines = [f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        lines.append(f"Date: {self._traffic.date(time.time())}")
        if length is None:
            lines.append("Transfer-Encoding: chunked")
        elif answer.status not in (204, 304):
            lines.append(f"Content-Length: {length}")
        if not keep_alive:
            lines.append("Connection: close")
        return "\r\n".join([*lines, "\r\n"]).encode()

    async def _perform(self, answer: Answer, head: Head) -> None:
        """Send an answer that takes more than one write, then go on with the next request."""
        await asyncio.sleep(answer.wait_s)
        whole = (Step(data=answer.body),) if answer.body else ()
        length = answer.declared_length if answer.script or answer.cut else len(answer.body)
        if not answer.raw:
            self._transport.write(self._head(answer, length, keep_alive=head.keep_alive and not answer.cut))
        if answer.raw or head.method != "HEAD":
            chunked = length is None and not answer.raw
            for step in answer.script or whole:
                await self._take(step, chunked=chunked)
            if chunked and not answer.cut:
                self._transport.write(b"0\r\n\r\n")
        self._script = None
        if answer.cut or answer.raw or not head.keep_alive:
            self._transport.close()
        else:
            self._go_on()

    async def _take(self, step: Step, *, chunked: bool) -> None:
        data = b"%x\r\n%b\r\n" % (len(step.data), step.data) if chunked and step.data else step.data
        taken = 0
        while step.times is None or taken < step.times:
            # Even a step without a wait lets others have a turn.
            await asyncio.sleep(step.wait_s)
            await self._writable.wait()
            self._transport.write(data)
            taken += 1
