"""A connection to a service: every request is sent again until it is answered or patience is over.

What cannot be reached is `StoreUnavailable`, which callers treat as they treat a store that is out of reach.
"""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import aiohttp
import msgspec
from yarl import URL

from outrider.model.errors import InvalidInput, OutriderError, StoreUnavailable, shown
from outrider.service.http.endpoint import JSON
from outrider.service.problems import RateExceeded, error_of

Answer = TypeVar("Answer", bound=msgspec.Struct)

PATIENCE_S: Final = 5.0
"""How long a call is tried again; a worker has more patience of its own."""
ANSWER_S: Final = 60.0
"""How long the service may take for one answer, beside the wait that was asked for."""
CONNECT_S: Final = 5.0
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
CONNECTIONS: Final = 32
KEPT_S: Final = 60.0
"""How long an idle connection is kept: less than a service keeps it, so that none is closed under a request."""

UNIX: Final = "http+unix://"
"""How the address of a service on a socket of this machine begins."""

_encode: Final = msgspec.json.Encoder().encode


class Reply(NamedTuple):
    """An answer, and how often it was asked for."""

    data: bytes
    attempts: int

    def read(self, gives: type[Answer]) -> Answer:
        """Read it as a record."""
        try:
            return msgspec.json.decode(self.data, type=gives)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise OutriderError(f"the service gave an answer that is none: {error}; is it an Outrider?") from None


class Pauses:
    """The growing pauses between attempts, until patience is over."""

    def __init__(self, patience_s: float) -> None:
        self._until = time.monotonic() + patience_s
        self._pause_s = FIRST_PAUSE_S

    async def after(self, error: OutriderError) -> None:
        """Wait before the next attempt, or raise what stood in the way of the last one."""
        if time.monotonic() + self._pause_s > self._until:
            raise StoreUnavailable(str(error)) from error
        await asyncio.sleep(self._pause_s * random.uniform(0.5, 1.5))
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)


class Connection:
    """The way to one service; nothing is sent before the first call."""

    def __init__(
        self, url: str, *, key: str | None = None, patience_s: float = PATIENCE_S, tls: ssl.SSLContext | None = None
    ) -> None:
        _check_key(key)
        self._socket_path = _socket_path(url)
        self.base = _checked(url) if self._socket_path is None else "http://localhost"
        self.patience_s = patience_s
        self._headers = {"accept": JSON}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(
        self,
        method: str,
        path: str,
        gives: type[Answer],
        body: msgspec.Struct | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request until it is answered, and read the answer."""
        return (await self.reply(method, path, body, headers=headers)).read(gives)

    async def reply(
        self,
        method: str,
        path: str,
        body: msgspec.Struct | None,
        *,
        wait_s: float = 0.0,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request until it is answered, or patience is over."""
        data = None if body is None else _encode(body)
        within = aiohttp.ClientTimeout(total=wait_s + ANSWER_S, sock_connect=CONNECT_S)
        pauses, attempts = Pauses(self.patience_s), 0
        while True:
            attempts += 1
            try:
                async with self._sent(method, path, within, data, headers) as response:
                    return Reply(await response.read(), attempts)
            except (StoreUnavailable, RateExceeded) as error:
                await pauses.after(error)

    @asynccontextmanager
    async def stream(
        self, path: str, *, silence_s: float, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a stream once; one that is silent for so long is broken, which raises `StoreUnavailable`."""
        within = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
        async with self._sent("GET", path, within, None, headers) as response:
            yield response

    @asynccontextmanager
    async def _sent(
        self,
        method: str,
        path: str,
        within: aiohttp.ClientTimeout,
        data: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request once and give a success; all else raises, also while its body is read."""
        sent = {**(headers or {}), **({} if data is None else {"content-type": JSON})}
        url = URL(self.base + path, encoded=True)
        try:
            async with self._opened().request(
                method, url, data=data, headers=sent, timeout=within, allow_redirects=False
            ) as response:
                if not 200 <= response.status < 300:
                    raise error_of(response.status, await response.read())
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            told = str(error) or type(error).__name__
            raise StoreUnavailable(f"the service at {self.base} is out of reach: {told}") from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector: aiohttp.BaseConnector
            if self._socket_path is not None:
                connector = aiohttp.UnixConnector(self._socket_path, limit=CONNECTIONS, keepalive_timeout=KEPT_S)
            else:
                connector = aiohttp.TCPConnector(
                    limit=CONNECTIONS, keepalive_timeout=KEPT_S, ssl=True if self._tls is None else self._tls
                )
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        return self._session


def _socket_path(url: str) -> str | None:
    """Name the socket of a service on this machine; None where the address is none of those."""
    if not url.startswith(UNIX):
        return None
    path = unquote(url.removeprefix(UNIX))
    if not path.startswith("/") or "\0" in path:
        raise InvalidInput(f"a service's socket is like {UNIX}%2Frun%2Foutrider.sock, not {shown(url)}")
    return path


def _check_key(key: str | None) -> None:
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise InvalidInput("an API key is one word; this one is not")


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput(f"a service's address is like https://host:7071, not {shown(url)}")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("a service's address has no user and no password: give the key as `key`")
    return url.rstrip("/")
