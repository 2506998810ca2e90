"""The remote frontier: the same protocol as the local one, over HTTP.

Every call may be repeated: a lease is known by its request id, a report by its token, an addition by its URL. So
whatever is lost on the way is sent again, for as long as patience lasts; then `StoreUnavailable` says that the service
is out of reach, which callers treat as they treat a store that is.
"""

import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import quote

from outrider.frontier.protocol import Work
from outrider.model.errors import LimitExceeded
from outrider.model.lease import LeaseRequest, Renewal, Report, ReportAnswer, Token
from outrider.model.task import MAX_BATCH, AddResult, Crawl, CrawlLimits, CrawlRules, CrawlState, Discovered, Outlook
from outrider.service.connection import PATIENCE_S, Connection
from outrider.service.http import translation
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

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_UNANSWERED: Final = 10_000

DEFAULT_RULES: Final = CrawlRules()


def connect(
    url: str, *, key: str | None = None, patience_s: float = PATIENCE_S, tls: ssl.SSLContext | None = None
) -> "RemoteFrontier":
    """Make a frontier of the service at `url`; nothing is sent before the first call.

    `tls` is for services with a certificate of their own making, or that ask for the client's. A service on a socket
    of this machine is `http+unix://` and the socket's path, with slashes as `%2F`.

    async with outrider.connect("https://frontier.example.org", key="outrider_…") as frontier:
        await frontier.add("news", [Discovered(url="https://example.org/")])
    """
    return RemoteFrontier(Connection(url, key=key, patience_s=patience_s, tls=tls))


class RemoteFrontier:
    """A `Frontier` in another process; use it as a context manager, or close it."""

    def __init__(self, service: Connection) -> None:
        self._service = service
        self._asked: dict[str, float] = {}
        """When requests for work that were never answered were first sent: their leases may have begun then."""

    @property
    def base(self) -> str:
        """The address of the service, without a slash at the end."""
        return self._service.base

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

    # ------------------------------------------------------- the Frontier protocol

    async def add(self, crawl: str, items: Sequence[Discovered]) -> list[AddResult]:
        """Store what is new; one answer for each item, in order."""

        async def send(chunk: Sequence[Discovered]) -> list[AddResult]:
            body = PlainDiscoveredBatch(items=list(chunk))
            return (await self._service.call("POST", f"{_crawl(crawl)}/discovered", AddAnswer, body)).results

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
            scheduled=request.scheduled,
            fair=request.fair,
            claims=request.claims,
        )
        reply = await self._service.reply("POST", path, body, wait_s=wait_s)
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
            return (await self._service.call("POST", "/v1/renew", RenewAnswer, Tokens(tokens=list(chunk)))).results

        return await _in_parts(tokens, send)

    async def report(self, reports: Sequence[Report]) -> list[ReportAnswer]:
        """End leases with what was found; one answer for each report, in order."""

        async def send(chunk: Sequence[Report]) -> list[ReportAnswer]:
            reply = await self._service.call("POST", "/v1/report", ReportReply, PlainReportBatch(reports=list(chunk)))
            return [translation.report_answer(result) for result in reply.results]

        return await _in_parts(reports, send)

    async def release(self, tokens: Sequence[Token]) -> list[Token]:
        """Give leases back uncharged; tell which were live."""

        async def send(chunk: Sequence[Token]) -> list[Token]:
            answer = await self._service.call("POST", "/v1/release", ReleaseAnswer, Tokens(tokens=list(chunk)))
            return [Token(token) for token in answer.released]

        return await _in_parts(tokens, send)

    async def outlook(self, crawl: str) -> Outlook:
        """Tell what a crawl has before it, all of one moment."""
        return translation.outlook_of(await self._service.call("GET", f"{_crawl(crawl)}/outlook", OutlookAnswer))

    async def robots_text(self, domain: str) -> tuple[str, str] | None:
        """Read the version and text of a domain's robots.txt."""
        found = await self._service.call("GET", f"/v1/domains/{quote(domain, safe='')}/robots", RobotsText)
        return None if found.version is None or found.text is None else (found.version, found.text)

    async def widen_scope(self, crawl: str, roots: Sequence[str]) -> None:
        """Remember addresses that widen a crawl's scope."""
        for chunk in _chunks(roots):
            await self._service.call("POST", f"{_crawl(crawl)}/scope", ScopeRoots, ScopeRoots(roots=list(chunk)))

    async def scope_roots(self, crawl: str) -> list[str]:
        """List the addresses that widen a crawl's scope."""
        return (await self._service.call("GET", f"{_crawl(crawl)}/scope", AllScopeRoots)).roots

    # ----------------------------------------------------------------- crawls

    async def create_crawl(
        self, name: str, rules: CrawlRules = DEFAULT_RULES, limits: CrawlLimits | None = None
    ) -> CrawlAnswer:
        """Create a crawl, or find it; raises `CrawlConflict` where its rules are others."""
        return await self._service.call("PUT", _crawl(name), CrawlAnswer, CrawlBody(rules=rules, limits=limits))

    async def show_crawl(self, name: str) -> CrawlAnswer:
        """Show a crawl with its counts; raises `UnknownCrawl`."""
        return await self._service.call("GET", _crawl(name), CrawlAnswer)

    async def list_crawls(self) -> list[Crawl]:
        """List the crawls that the key is good for, by name."""
        return (await self._service.call("GET", "/v1/crawls", CrawlList)).crawls

    async def set_crawl_state(self, name: str, state: CrawlState) -> CrawlAnswer:
        """Run, pause or cancel a crawl."""
        return await self._service.call("PUT", f"{_crawl(name)}/state", CrawlAnswer, StateBody(state=state))


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
