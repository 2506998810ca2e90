"""The frontier in this process, over a store.

It waits for work on behalf of its callers, returns the leases of the dead, and passes everything else on.
"""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

from outrider.frontier.claiming import Claiming
from outrider.frontier.presence import Presence
from outrider.frontier.protocol import Work
from outrider.model.errors import StoreError
from outrider.model.lease import LeaseGrant, LeaseRequest, NoWork, Renewal, Report, ReportAnswer, Token
from outrider.model.task import AddResult, Crawl, Discovered, Outlook
from outrider.store.checks import check_batch
from outrider.store.protocols import UrlStore

logger = logging.getLogger(__name__)

POLL_S = 0.1
"""How often to see whether other processes did something, while somebody waits."""
SHORTEST_S = 0.001
LONGEST_S = 1.0
"""How often to look for work where nothing has changed, and at a crawl that is at its limit, paused or cancelled."""
UPKEEP_S = 2.0
"""How often to look for expired leases and for processes that died."""
ADDED_AT_ONCE = 256
"""How many URLs are stored at once where leases have to wait for that. Of 5,000 URLs/s in batches of 5,000, one lease
in a hundred waited 67 ms, and 20 ms in parts. The parts take a third longer: so only while somebody leases."""


class LocalFrontier:
    """A `Frontier` over a store of this process; use it as a context manager.

    `on_death` is told of each worker that died, after its leases were returned; told twice where it raises. With a
    `claiming`, who leases is enlisted in its mode, and may lease under claims.
    """

    def __init__(
        self,
        urls: UrlStore,
        presence: Presence | None = None,
        on_death: Callable[[str], Awaitable[None]] | None = None,
        claiming: Claiming | None = None,
    ) -> None:
        self._urls = urls
        self._presence = presence
        self._on_death = on_death
        self._claiming = claiming
        self._turns: defaultdict[str | None, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One waiter for each crawl looks, the others queue behind it."""
        self._news = asyncio.Event()
        """Set, and replaced by a new one, when something happens that may make work ready."""
        self._upkeep: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "LocalFrontier":
        await self.tidy()
        self._upkeep = asyncio.create_task(self._keep_tidy(), name="frontier upkeep")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._upkeep is not None:
            self._upkeep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._upkeep
        if self._claiming is not None:
            try:
                await self._claiming.close()
            except StoreError as error:
                logger.warning("claims could not be given back, they expire: %s", error)

    async def add(self, crawl: str, items: Sequence[Discovered]) -> list[AddResult]:
        """Store what is new; of a batch that is interrupted, whole parts may be stored."""
        check_batch(items, "URLs")
        results: list[AddResult] = []
        for part in _parts(items) if self._urls.leases_wait else [items]:
            results += await self._urls.add(crawl, part)
            self.tell()
        return results

    async def lease(self, request: LeaseRequest, *, wait_s: float = 0.0) -> Work:
        """Hand out ready tasks; where none is ready, wait for one, at most for so long."""
        until = time.monotonic() + wait_s
        turn = self._turns[request.crawl]
        try:
            async with asyncio.timeout(wait_s):
                await turn.acquire()
        except TimeoutError:  # others have waited for longer: one look is all there is time for
            return await self.lease_now(request)
        try:
            while True:
                news, version = self._news, self._urls.version()
                work = await self.lease_now(request)
                left_s = until - time.monotonic()
                if work.grant.leases or left_s <= 0:
                    return work
                pause_s = _pause_after(work.grant, LONGEST_S if version is not None else POLL_S)
                await self._wait(news, version, min(pause_s, left_s))
        finally:
            turn.release()

    async def _wait(self, news: asyncio.Event, version: int | None, pause_s: float) -> None:
        """Wait for news of this process, for a store of another version, or until the time is over."""
        until = time.monotonic() + pause_s
        while (left_s := until - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s if version is None else min(left_s, POLL_S)):
                    await news.wait()
                return
            if version is not None and self._urls.version() != version:
                return

    async def lease_now(self, request: LeaseRequest) -> Work:
        """Hand out what is ready at this moment; who asks so queues behind nobody."""
        if self._claiming is not None:
            await self._claiming.before(request)
        asked_at = time.monotonic()
        grant = await self._urls.lease(request)
        if self._claiming is not None and await self._claiming.after(request, len(grant.leases)) and not grant.leases:
            grant = await self._urls.lease(request)
        return Work(grant, asked_at)

    async def renew(self, tokens: Sequence[Token]) -> list[Renewal]:
        """Prolong leases that are live."""
        return await self._urls.renew(tokens)

    async def report(self, reports: Sequence[Report]) -> list[ReportAnswer]:
        """End leases with what was found."""
        answers = await self._urls.report(reports)
        self.tell()
        return answers

    async def release(self, tokens: Sequence[Token]) -> list[Token]:
        """Give leases back uncharged."""
        released = await self._urls.release(tokens)
        self.tell()
        return released

    async def show_crawl(self, name: str) -> Crawl:
        """Show a crawl with its rules, limits and conduct."""
        return await self._urls.get_crawl(name)

    async def outlook(self, crawl: str) -> Outlook:
        """Tell what a crawl has before it, all of one moment."""
        return await self._urls.outlook(crawl)

    async def robots_text(self, domain: str) -> tuple[str, str] | None:
        """Read the version and text of a domain's robots.txt."""
        return await self._urls.robots_text(domain)

    async def widen_scope(self, crawl: str, roots: Sequence[str]) -> None:
        """Remember addresses that widen a crawl's scope."""
        await self._urls.widen_scope(crawl, roots)

    async def scope_roots(self, crawl: str) -> list[str]:
        """List the addresses that widen a crawl's scope."""
        return await self._urls.scope_roots(crawl)

    async def tidy(self) -> None:
        """Return what has expired, and what the dead of this machine held."""
        returned = await self._urls.reap()
        if self._presence is not None:
            for worker in self._presence.dead():
                returned += await self._urls.reap(worker=worker)
                if self._claiming is not None:
                    await self._claiming.dismiss(worker)
                if self._on_death is not None:
                    await self._on_death(worker)
                self._presence.forget(worker)
        if self._claiming is not None:
            await self._claiming.tidy()
        if returned:
            logger.info("returned %d leases", len(returned))
            self.tell()

    def tell(self) -> None:
        """Let whoever waits look again."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _keep_tidy(self) -> None:
        while True:
            await asyncio.sleep(UPKEEP_S)
            try:
                await self.tidy()
            except StoreError as error:
                logger.warning("upkeep failed, will try again: %s", error)


def _parts(items: Sequence[Discovered]) -> list[Sequence[Discovered]]:
    """Cut a batch into parts of about the same length; an empty one is a part too."""
    number = -(-len(items) // ADDED_AT_ONCE) or 1
    size = -(-len(items) // number) or 1
    return [items[start : start + size] for start in range(0, len(items) or 1, size)]


def _pause_after(grant: LeaseGrant, longest_s: float) -> float:
    """Tell how long to wait before looking again, unless there is news before."""
    if grant.no_work in (NoWork.LIMIT, NoWork.PAUSED, NoWork.CANCELLED):
        return LONGEST_S
    if grant.next_ready_at is None:
        return longest_s
    return min(max(grant.next_ready_at / 1000 - time.time(), SHORTEST_S), longest_s)
