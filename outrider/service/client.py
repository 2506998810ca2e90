"""The remote frontier: the same protocol as the local one, over HTTP.

Every call may be repeated: a lease is known by its request id, a report by its token, an addition by its URL. So
whatever is lost on the way is sent again, for as long as patience lasts; then `StoreUnavailable` says that the service
is out of reach, which callers treat as they treat a store that is.
"""

import asyncio
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar
from urllib.parse import quote, unquote, urlsplit

import aiohttp
import msgspec
from yarl import URL

from outrider.frontier.protocol import Work
from outrider.model.errors import InvalidInput, LimitExceeded, OutriderError, StoreUnavailable, shown
from outrider.model.lease import LeaseRequest, Renewal, Report, ReportAnswer, Token
from outrider.model.task import MAX_BATCH, AddResult, Crawl, CrawlLimits, CrawlRules, CrawlState, Discovered, Outlook
from outrider.service.http import translation
from outrider.service.http.endpoint import JSON
from outrider.service.http.wire import (
    MAX_WAIT_MS,
    AddAnswer,
    AllScopeRoots,
    CrawlAnswer,
    CrawlBody,
    CrawlList,
    LeaseAnswer,
    LeaseBody,
    OutlookAnswer,
    PlainDiscoveredBatch,
    PlainReportBatch,
    ReleaseAnswer,
    RenewAnswer,
    ReportReply,
    RobotsText,
    ScopeRoots,
    StateBody,
    Tokens,
)
from outrider.service.problems import RateExceeded, error_of

Answer = TypeVar("Answer", bound=msgspec.Struct)
Item = TypeVar("Item")
Result = TypeVar("Result")

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
MOST_UNANSWERED: Final = 10_000

DEFAULT_RULES: Final = CrawlRules()
UNIX: Final = "http+unix://"
"""How the address of a service on a socket of this machine begins."""

_encode: Final = msgspec.json.Encoder().encode


def connect(
    url: str, *, key: str | None = None, patience_s: float = PATIENCE_S, tls: ssl.SSLContext | None = None
) -> "RemoteFrontier":
    """Make a frontier of the service at `url`; nothing is sent before the first call.

    `tls` is for services with a certificate of their own making, or that ask for the client's. A service on a socket
    of this machine is `http+unix://` and the socket's path, with slashes as `%2F`.

    async with outrider.connect("https://frontier.example.org", key="outrider_…") as frontier:
        await frontier.add("news", [Discovered(url="https://example.org/")])
    """
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise InvalidInput("an API key is one word; this one is not")
    if url.startswith(UNIX):
        socket_path = unquote(url.removeprefix(UNIX))
        if not socket_path.startswith("/") or "\0" in socket_path:
            raise InvalidInput(f"a service's socket is like {UNIX}%2Frun%2Foutrider.sock, not {shown(url)}")
        return RemoteFrontier("http://localhost", key=key, patience_s=patience_s, tls=None, socket_path=socket_path)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput(f"a service's address is like https://host:7071, not {shown(url)}")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("a service's address has no user and no password: give the key as `key`")
    return RemoteFrontier(url.rstrip("/"), key=key, patience_s=patience_s, tls=tls)


class RemoteFrontier:
    """A `Frontier` in another process; use it as a context manager, or close it."""

    def __init__(
        self,
        base: str,
        *,
        key: str | None,
        patience_s: float,
        tls: ssl.SSLContext | None,
        socket_path: str | None = None,
    ) -> None:
        self.base = base
        self._socket_path = socket_path
        """A socket of this machine that is connected to, whatever the address says."""
        self._headers = {"accept": JSON, "content-type": JSON}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"
        self._patience_s = patience_s
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._asked: dict[str, float] = {}
        """When requests for work that were never answered were first sent: their leases may have begun then."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # ------------------------------------------------------- the Frontier protocol

    async def add(self, crawl: str, items: Sequence[Discovered]) -> list[AddResult]:
        """Store what is new; one answer for each item, in order."""

        async def send(chunk: Sequence[Discovered]) -> list[AddResult]:
            body = PlainDiscoveredBatch(items=list(chunk))
            return (await self._call("POST", f"{_crawl(crawl)}/discovered", AddAnswer, body)).results

        return await _in_parts(items, send)

    async def lease(self, request: LeaseRequest, *, wait_s: float = 0.0) -> Work:
        """Hand out ready tasks; where none is ready, wait for one, at most for so long."""
        asked_at = time.monotonic()
        first_asked_at = self._asked.setdefault(request.request_id, asked_at)
        _forget_oldest(self._asked)
        path = "/v1/lease" if request.crawl is None else f"{_crawl(request.crawl)}/lease"
        body = LeaseBody(
            worker=request.worker,
            request_id=request.request_id,
            slots=request.slots,
            wait_ms=min(round(wait_s * 1000), MAX_WAIT_MS),
            lease_ms=request.lease_ms,
            run_id=request.run_id,
            max_per_queue=request.max_per_queue,
        )
        reply = await self._reply("POST", path, body, wait_s=wait_s)
        answer = reply.read(LeaseAnswer)
        del self._asked[request.request_id]
        if reply.attempts == 1 and first_asked_at == asked_at:
            # The service had the request no sooner than it was sent, and granted nothing while it waited.
            return Work(translation.grant_of(answer), asked_at + answer.waited_ms / 1000)
        # An answer may have been lost, and then the leases began when they were first asked for.
        return Work(translation.grant_of(answer), first_asked_at)

    async def renew(self, tokens: Sequence[Token]) -> list[Renewal]:
        """Prolong leases that are live; one answer for each token, in order."""

        async def send(chunk: Sequence[Token]) -> list[Renewal]:
            return (await self._call("POST", "/v1/renew", RenewAnswer, Tokens(tokens=list(chunk)))).results

        return await _in_parts(tokens, send)

    async def report(self, reports: Sequence[Report]) -> list[ReportAnswer]:
        """End leases with what was found; one answer for each report, in order."""

        async def send(chunk: Sequence[Report]) -> list[ReportAnswer]:
            reply = await self._call("POST", "/v1/report", ReportReply, PlainReportBatch(reports=list(chunk)))
            return [translation.report_answer(result) for result in reply.results]

        return await _in_parts(reports, send)

    async def release(self, tokens: Sequence[Token]) -> list[Token]:
        """Give leases back uncharged; tell which were live."""

        async def send(chunk: Sequence[Token]) -> list[Token]:
            answer = await self._call("POST", "/v1/release", ReleaseAnswer, Tokens(tokens=list(chunk)))
            return [Token(token) for token in answer.released]

        return await _in_parts(tokens, send)

    async def outlook(self, crawl: str) -> Outlook:
        """Tell what a crawl has before it, all of one moment."""
        return translation.outlook_of(await self._call("GET", f"{_crawl(crawl)}/outlook", OutlookAnswer))

    async def robots_text(self, domain: str) -> tuple[str, str] | None:
        """Read the version and text of a domain's robots.txt."""
        found = await self._call("GET", f"/v1/domains/{quote(domain, safe='')}/robots", RobotsText)
        return None if found.version is None or found.text is None else (found.version, found.text)

    async def widen_scope(self, crawl: str, roots: Sequence[str]) -> None:
        """Remember addresses that widen a crawl's scope."""
        for chunk in _chunks(roots):
            await self._call("POST", f"{_crawl(crawl)}/scope", ScopeRoots, ScopeRoots(roots=list(chunk)))

    async def scope_roots(self, crawl: str) -> list[str]:
        """List the addresses that widen a crawl's scope."""
        return (await self._call("GET", f"{_crawl(crawl)}/scope", AllScopeRoots)).roots

    # ----------------------------------------------------------------- crawls

    async def create_crawl(
        self, name: str, rules: CrawlRules = DEFAULT_RULES, limits: CrawlLimits | None = None
    ) -> CrawlAnswer:
        """Create a crawl, or find it; raises `CrawlConflict` where its rules are others."""
        return await self._call("PUT", _crawl(name), CrawlAnswer, CrawlBody(rules=rules, limits=limits))

    async def show_crawl(self, name: str) -> CrawlAnswer:
        """Show a crawl with its counts; raises `UnknownCrawl`."""
        return await self._call("GET", _crawl(name), CrawlAnswer)

    async def list_crawls(self) -> list[Crawl]:
        """List the crawls that the key is good for, by name."""
        return (await self._call("GET", "/v1/crawls", CrawlList)).crawls

    async def set_crawl_state(self, name: str, state: CrawlState) -> CrawlAnswer:
        """Run, pause or cancel a crawl."""
        return await self._call("PUT", f"{_crawl(name)}/state", CrawlAnswer, StateBody(state=state))

    # -------------------------------------------------------------------- wire

    async def _call(self, method: str, path: str, gives: type[Answer], body: msgspec.Struct | None = None) -> Answer:
        return (await self._reply(method, path, body)).read(gives)

    async def _reply(self, method: str, path: str, body: msgspec.Struct | None, *, wait_s: float = 0.0) -> "_Reply":
        """Send a request until it is answered, or patience is over."""
        data = None if body is None else _encode(body)
        until = time.monotonic() + self._patience_s
        pause_s, attempts = FIRST_PAUSE_S, 0
        while True:
            attempts += 1
            try:
                return _Reply(await self._sent(method, path, data, wait_s), attempts)
            except (StoreUnavailable, RateExceeded) as error:
                if time.monotonic() + pause_s > until:
                    raise StoreUnavailable(str(error)) from error
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _sent(self, method: str, path: str, data: bytes | None, wait_s: float) -> bytes:
        timeout = aiohttp.ClientTimeout(total=wait_s + ANSWER_S, sock_connect=CONNECT_S)
        try:
            async with self._opened().request(
                method, URL(self.base + path, encoded=True), data=data, timeout=timeout, allow_redirects=False
            ) as response:
                answer = await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            told = str(error) or type(error).__name__
            raise StoreUnavailable(f"the service at {self.base} is out of reach: {told}") from error
        if status == 200:
            return answer
        raise error_of(status, answer)

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


class _Reply(NamedTuple):
    data: bytes
    attempts: int

    def read(self, gives: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(self.data, type=gives)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise OutriderError(f"the service gave an answer that is none: {error}; is it an Outrider?") from None


def _crawl(name: str) -> str:
    # A name of dots alone would be taken for a step in the path.
    return f"/v1/crawls/{quote(name, safe='').replace('.', '%2E')}"


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + MAX_BATCH] for start in range(0, len(items), MAX_BATCH))


async def _in_parts(items: Sequence[Item], send: Callable[[Sequence[Item]], Awaitable[list[Result]]]) -> list[Result]:
    """Send a batch in as many parts as the service needs: it may take fewer bytes at once than these have."""
    answers: list[Result] = []
    for chunk in _chunks(items):
        try:
            answers += await send(chunk)
        except LimitExceeded:
            if len(chunk) == 1:
                raise
            middle = len(chunk) // 2
            answers += await _in_parts(chunk[:middle], send)
            answers += await _in_parts(chunk[middle:], send)
    return answers


def _forget_oldest(asked: dict[str, float]) -> None:
    if len(asked) > MOST_UNANSWERED:
        del asked[next(iter(asked))]
