"""One request, one answer: HTTP with limits on everything that a server decides.

A fetch ends as a `Response` or raises `FetchFailed`, which says what went wrong and whether a request
may have reached the server: politeness counts those that did. Nothing is sent twice and no redirect
is followed, for every request must pass the frontier.

Time runs in three phases, each with its own limit:

    name, connection, TLS --connect_s--> request sent --first_byte_s--> headers --total_s--> last byte
"""

import asyncio
import errno
import io
import os
import ssl
from http import HTTPStatus
from time import monotonic, time
from types import TracebackType
from typing import Final, NoReturn, Self

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.client_middlewares import ClientHandlerType
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from outrider.crawler import addresses, decoding
from outrider.crawler.exchange import FailureKind, FetchFailed, FetchLimits, Request, Response
from outrider.model.errors import InvalidInput, shown

ACCEPT: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

_KEEP_ALIVE_S: Final = 4.0
"""Apache and Node close idle connections after 5 seconds; a request sent in that moment is lost."""
_DNS_KEPT_S: Final = 300
_DNS_KEPT_HOSTS: Final = 10_000
_MAX_HEADER_LINES: Final = 256
_DECODED_INLINE: Final = 128 * 1024
"""Longer bodies are decoded in a thread: 10 MiB take 40 ms, in which nobody else would be served."""
_WATCH_S: Final = 0.05
_DETAIL_CHARACTERS: Final = 200
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Fetcher:
    """Fetches pages over connections that are kept and shared. Use it as an asynchronous context.

    More fetches at once than `concurrency` wait for a connection, within their time to connect.
    `private_places` are hosts (of IPv6 without brackets) and ports that may be connected to although they are private.
    """

    def __init__(
        self,
        *,
        user_agent: str,
        concurrency: int,
        limits: FetchLimits | None = None,
        allow_private: bool = False,
        private_places: frozenset[tuple[str, int]] = frozenset(),
        proxy: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if not user_agent.isprintable() or not user_agent.strip():
            raise InvalidInput(f"a user agent is one line of text, not {shown(user_agent)}")
        self._user_agent = user_agent
        self._concurrency = concurrency
        self._limits = limits or FetchLimits()
        self._allow_private = allow_private
        self._private_places = private_places
        self._proxy = None if proxy is None else _proxy_url(proxy)
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._resolver: AbstractResolver | None = None
        self._proxied_hosts: addresses.ProxiedHosts | None = None
        self._under_way: set[_Attempt] = set()
        self._watch: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._resolver = addresses.open_resolver()
        if self._proxy is not None and not self._allow_private:
            self._proxied_hosts = addresses.ProxiedHosts(self._resolver)
        self._session = self._open_session(self._resolver)
        self._watch_deadlines()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._session is not None:
            await self._session.close()
        if self._resolver is not None:
            await self._resolver.close()

    def _open_session(self, resolver: AbstractResolver) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=resolver,
            ttl_dns_cache=_DNS_KEPT_S,
            dns_cache_max_size=_DNS_KEPT_HOSTS,
            limit=self._concurrency,
            keepalive_timeout=_KEEP_ALIVE_S,
            socket_factory=addresses.guarded_socket,
            ssl=self._tls or True,
        )
        return aiohttp.ClientSession(
            connector=connector,
            request_class=_NotingRequest,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "User-Agent": self._user_agent,
                "Accept": ACCEPT,
                "Accept-Encoding": decoding.ACCEPT_ENCODING,
            },
            proxy=self._proxy,
            timeout=aiohttp.ClientTimeout(),  # none of aiohttp's: `_watch_deadlines` sees to all phases
            auto_decompress=False,
            max_line_size=self._limits.max_headers,
            max_field_size=self._limits.max_headers,
            max_headers=_MAX_HEADER_LINES,
        )

    def _watch_deadlines(self) -> None:
        """End the fetches that are late or stuck, some twenty times a second.

        One timer for all, as three per fetch cost 12 µs of its 120.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        for attempt in [attempt for attempt in self._under_way if attempt.is_over(now)]:
            self._under_way.discard(attempt)
            attempt.timer.reschedule(now)
        self._watch = loop.call_later(_WATCH_S, self._watch_deadlines)

    async def fetch(self, request: Request) -> Response:
        """Send one GET and read the answer, or raise `FetchFailed`."""
        attempt = _Attempt(self._limits, proxied=self._proxy is not None)
        try:
            async with attempt.timer:
                self._under_way.add(attempt)
                return await self._exchange(request, attempt)
        except TimeoutError:
            attempt.fail(*attempt.lateness())
        except (aiohttp.ClientError, OSError, RuntimeError, ValueError) as error:
            attempt.fail_for(error)
        finally:
            self._under_way.discard(attempt)
            attempt.let_go()

    async def _exchange(self, request: Request, attempt: "_Attempt") -> Response:
        assert self._session is not None, "a Fetcher is used as an asynchronous context"
        url = URL(request.url, encoded=True)
        await self._admit(url, attempt)
        answer = await self._session.get(
            url, headers=_validators(request), allow_redirects=False, middlewares=(attempt.pass_on,)
        )
        limit = self._limits.max_body if request.max_body is None else request.max_body
        try:
            attempt.head_came()
            self._check_head(answer, attempt)
            raw_body, cut = await _read(answer.content, limit)
        finally:
            answer.close()  # which leaves a connection alone that was read to its end
        elapsed_ms = attempt.body_came()
        decoded = await _decode(answer, raw_body, limit, attempt)
        return Response(
            url=request.url,
            status=answer.status,
            reason=answer.reason or "",
            version="HTTP/1.0" if answer.version == aiohttp.HttpVersion10 else "HTTP/1.1",
            headers=answer.raw_headers,
            raw_body=raw_body,
            body=decoded.body,
            truncated=cut or decoded.truncated,
            unknown_encoding=decoded.unknown,
            request_head=attempt.request_head,
            address=attempt.address,
            fetched_at=attempt.fetched_at,
            started=attempt.started,
            elapsed_ms=elapsed_ms,
        )

    async def _admit(self, url: URL, attempt: "_Attempt") -> None:
        """Settle to which addresses this fetch may connect."""
        host = url.raw_host
        if not host or url.scheme not in ("http", "https"):
            attempt.fail(FailureKind.BAD_REQUEST, "the URL is neither http nor https")
        attempt.private_allowed = self._allow_private or (host, url.port) in self._private_places
        if self._proxied_hosts is not None:
            if not attempt.private_allowed and (refusal := await self._proxied_hosts.refusal(host)):
                attempt.fail(FailureKind.PRIVATE_ADDRESS, refusal)
            # The only sockets from here on go to the proxy, which the user named.
            attempt.private_allowed = True
        addresses.current_dial.set(attempt)

    def _check_head(self, answer: aiohttp.ClientResponse, attempt: "_Attempt") -> None:
        if sum([len(name) + len(value) for name, value in answer.raw_headers]) > self._limits.max_headers:
            attempt.fail(FailureKind.BAD_RESPONSE, f"more than {self._limits.max_headers} bytes of headers")
        if answer.status < HTTPStatus.CONTINUE:
            attempt.fail(FailureKind.BAD_RESPONSE, f"there is no status {answer.status:03}")
        if answer.status == HTTPStatus.SWITCHING_PROTOCOLS:
            attempt.fail(FailureKind.BAD_RESPONSE, "the server switched to another protocol unasked")
        if answer.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED and self._proxy is not None:
            attempt.fail(FailureKind.PROXY, "the proxy wants a user name and password")


def _proxy_url(text: str) -> URL:
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidInput("a proxy is written as http://host:port or http://user:password@host:port")
    return url


def _validators(request: Request) -> dict[str, str]:
    headers = {}
    if request.etag:
        headers["If-None-Match"] = request.etag
    if request.last_modified:
        headers["If-Modified-Since"] = request.last_modified
    return headers


async def _read(content: aiohttp.StreamReader, limit: int) -> tuple[bytes, bool]:
    """Read a body up to the limit, and tell whether there was more."""
    chunk = await content.readany()
    if content.at_eof() and len(chunk) <= limit:
        return chunk, False
    # Gives its content away without a copy, which joining chunks would make.
    body = io.BytesIO()
    while chunk:
        room = limit - body.tell()
        if len(chunk) > room:
            body.write(memoryview(chunk)[:room])
            return body.getvalue(), True
        body.write(chunk)
        chunk = await content.readany()
    return body.getvalue(), False


async def _decode(answer: aiohttp.ClientResponse, raw_body: bytes, limit: int, attempt: "_Attempt") -> decoding.Decoded:
    encoding = ",".join(answer.headers.getall("Content-Encoding", ()))
    try:
        if encoding and len(raw_body) > _DECODED_INLINE:
            return await asyncio.to_thread(decoding.decode, raw_body, encoding, limit)
        return decoding.decode(raw_body, encoding, limit)
    except decoding.BadEncoding as error:
        if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
            return decoding.Decoded(body=b"")  # a redirect is followed for its header
        attempt.fail(FailureKind.BAD_ENCODING, str(error))


class _NotingRequest(aiohttp.ClientRequest):
    """A request that tells its attempt when it was sent; aiohttp's tracing would cost ten times as much."""

    attempt: "_Attempt"

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        answer = await super().send(conn)
        self.attempt.was_sent(self, conn)
        return answer


class _Attempt(addresses.Dial):
    """One fetch on its way: its clock, and what is known of it should it fail."""

    def __init__(self, limits: FetchLimits, *, proxied: bool) -> None:
        super().__init__(private_allowed=False)
        self._limits = limits
        self._proxied = proxied
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._ends_at = now + limits.total_s
        self.deadline = min(self._ends_at, now + limits.connect_s)
        self.timer = asyncio.timeout(None)
        self._transport: asyncio.Transport | None = None
        self._protocol: ResponseHandler | None = None
        self._has_head = False
        self._suspected = self._malformed = False
        self.started = 0.0
        self.fetched_at = 0
        self.request_head = b""
        self.address: str | None = None

    async def pass_on(self, request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
        """Send the request once, as aiohttp's middleware.

        Left alone, aiohttp sends a request again whose connection broke, at once and unseen by politeness;
        it does not do so for an error that it does not know.
        """
        assert isinstance(request, _NotingRequest)
        request.attempt = self
        try:
            return await handler(request)
        except (aiohttp.ClientError, OSError) as error:
            self.fail_for(error)

    def was_sent(self, request: aiohttp.ClientRequest, connection: Connection) -> None:
        """Note what was sent and when, and begin to wait for the head of the response."""
        self._transport = transport = connection.transport
        self._protocol = connection.protocol
        if transport is not None and not self._proxied:
            peer = transport.get_extra_info("peername")
            self.address = peer[0] if peer else None
        lines = [f"{request.method} {request.url.raw_path_qs} HTTP/1.1\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in request.headers.items() if name != "Proxy-Authorization"]
        self.request_head = f"{''.join(lines)}\r\n".encode()
        self._mark_the_start()
        # uvloop writes at the end of the loop's round; a round later is surely not before the sending.
        self._loop.call_soon(self._mark_the_start)
        self.deadline = min(self._ends_at, self._loop.time() + self._limits.first_byte_s)

    def _mark_the_start(self) -> None:
        self.started = monotonic()
        self.fetched_at = int(time() * 1000)

    def head_came(self) -> None:
        """Begin to wait for the end of the body."""
        self._has_head = True
        self.deadline = self._ends_at

    def body_came(self) -> int:
        """Give the milliseconds since the sending; what else comes on the connection is not this fetch's."""
        self._protocol = None
        return round((monotonic() - self.started) * 1000)

    def is_over(self, now: float) -> bool:
        """Tell whether waiting longer is forbidden, or would bring nothing.

        When a body turns out malformed halfway, aiohttp closes the connection and does not tell those who
        wait for the rest. Twice seen is certain: who has been told is gone after a round of the loop.
        """
        broken = self._protocol is not None and self._protocol.exception() is not None
        self._malformed, self._suspected = broken and self._suspected, broken
        return self._malformed or self.deadline <= now

    def let_go(self) -> None:
        """Drop a connection that is closing: TLS would wait half a minute for the other side's farewell."""
        if self._transport is not None and self._transport.is_closing():
            self._transport.abort()

    def lateness(self) -> tuple[FailureKind, str]:
        """Say which of the three times ran out, or that waiting longer would have brought nothing."""
        if self._malformed:
            return FailureKind.BAD_RESPONSE, "the body is malformed"
        if not self.started:
            return FailureKind.CONNECT_TIMEOUT, f"no connection within {self._limits.connect_s:g} s"
        if not self._has_head:
            return FailureKind.FIRST_BYTE_TIMEOUT, f"no response within {self._limits.first_byte_s:g} s"
        return FailureKind.TIMEOUT, f"not complete within {self._limits.total_s:g} s"

    def fail_for(self, error: Exception) -> NoReturn:
        """Raise what an error of the libraries means."""
        if self.refusal is not None and not self.connected:
            self.fail(FailureKind.PRIVATE_ADDRESS, self.refusal)
        kind, detail = _diagnosis(error)
        if self._proxied and kind in (FailureKind.DNS, FailureKind.CONNECT):
            kind = FailureKind.PROXY
        self.fail(kind, detail, error)

    def fail(self, kind: FailureKind, detail: str, error: Exception | None = None) -> NoReturn:
        """Raise `FetchFailed` with what is known of the sending."""
        line = next(iter(detail.splitlines()), "")[:_DETAIL_CHARACTERS]
        raise FetchFailed(kind, line, started=self.started or None, reused=not self.connected) from error


def _diagnosis(error: Exception) -> tuple[FailureKind, str]:
    """Name the kind of an error of aiohttp or below, and say it in a few words."""
    tls = _tls_error(error)
    match error:
        case _ if tls is not None:
            return FailureKind.TLS, getattr(tls, "verify_message", None) or tls.reason or str(tls)
        case aiohttp.ClientHttpProxyError():
            return FailureKind.PROXY, f"the proxy answered {error.status} {error.message}"
        case aiohttp.ClientConnectorDNSError():
            return FailureKind.DNS, f"{error.host}: {error.os_error.strerror or error.os_error}"
        case OSError() if error.errno in _OUT_OF_RESOURCES:
            return FailureKind.LOCAL, os.strerror(error.errno)
        case aiohttp.ClientConnectorError():
            number = error.os_error.errno
            return FailureKind.CONNECT, os.strerror(number) if number else str(error.os_error)
        case aiohttp.ClientResponseError():
            return FailureKind.BAD_RESPONSE, error.message or "the response is not HTTP"
        case aiohttp.ClientPayloadError():
            return FailureKind.DISCONNECTED, str(error)
        case aiohttp.InvalidURL() | ValueError():
            return FailureKind.BAD_REQUEST, str(error)
        case _:
            return FailureKind.DISCONNECTED, str(error) or "the server closed the connection"


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    """Find the TLS error that an error is or came from."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, aiohttp.ClientError):
            return seen
        seen = seen.__cause__
    return None
