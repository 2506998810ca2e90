"""The worker: leases for its free slots, visits, reports, and starts again.

    free slots --lease--> visits side by side --report, many at once--> free slots

A slot is free again when its report is acknowledged. While visits go on their leases are renewed; a visit
whose lease is lost is stopped, since somebody else may be fetching the page by then.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from outrider.frontier.protocol import Frontier, Work
from outrider.model.errors import OutriderError, StoreUnavailable, shown
from outrider.model.identifiers import new_uuid7
from outrider.model.lease import Lease, LeaseGrant, LeaseRequest, Outcome, Renewal, Report, ReportAnswer, Token, Verdict
from outrider.model.task import Discovered

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

WAIT_S: Final = 1.0
"""How long one request for work may wait for some."""
BUSY_WAIT_S: Final = 0.1
"""The same while visits are under way, the last of which may end the crawl."""
LINKS_AT_ONCE: Final = 2_000
"""Of a page with more links, the first are stored chunk by chunk before its report."""
REPORTS_AT_ONCE: Final = 500
GATHER_S: Final = 0.005
"""How long a report waits for company while other visits are under way: on loopback half as many transactions, and
a fifth more pages."""
STORE_PATIENCE_S: Final = 60.0
"""How long the store may be out of reach before the worker gives up."""
RETRY_S: Final = 0.5
MAX_REASON: Final = 500


class LeaseVisitor(Protocol):
    """Who makes a report of a lease."""

    async def visit(self, lease: Lease, asked_at: float) -> Report:
        """Fetch what a lease is for; `asked_at` is when the worker asked for it, on the monotonic clock."""
        ...

    def acknowledged(self, lease: Lease, links: Sequence[Discovered]) -> None:
        """Note that the frontier has the links of a page."""
        ...


class _Visit(NamedTuple):
    task: "asyncio.Task[None]"
    began_at: float


class _Waiting(NamedTuple):
    report: Report
    answer: "asyncio.Future[ReportAnswer]"


class Worker:
    """Works on one crawl, or with None on any, until it is stopped or told that nothing is left to do."""

    def __init__(
        self,
        frontier: Frontier,
        visitor: LeaseVisitor,
        *,
        name: str,
        crawl: str | None,
        slots: int,
        lease_ms: int,
        run_id: str | None = None,
        scheduled: bool = False,
        claims: bool = False,
    ) -> None:
        self._frontier = frontier
        self._visitor = visitor
        self._name = name
        self._crawl = crawl
        self._slots = slots
        self._lease_ms = lease_ms
        self._run_id = run_id
        self._scheduled = scheduled
        self._claims = claims
        self._visits: dict[Token, _Visit] = {}
        self._reports: list[_Waiting] = []
        self._something_to_report = asyncio.Event()
        self._slot_is_free = asyncio.Event()
        self._wait_s = 0.0
        """How long to wait for work when nothing is under way: not at all before `is_over` was asked."""
        self._renewed_at = time.monotonic()
        self._unreported: list[Token] = []
        """Leases whose visits have ended without a report."""
        self._failure: Exception | None = None
        """What makes going on pointless: the store or the archive cannot be written."""
        self.moved_at = time.monotonic()
        """When it last asked for work or was done with a visit."""

    @property
    def in_flight(self) -> int:
        """How many visits are under way."""
        return len(self._visits)

    async def run(
        self, stop: asyncio.Event, is_over: Callable[[LeaseGrant], Awaitable[bool]], *, grace_s: float
    ) -> None:
        """Work until `stop` is set or `is_over`, asked whenever nothing is to be had or under way, says so.

        Visits that are under way when it is stopped have `grace_s` to finish; what is left then is given back
        uncharged.
        """
        company = [asyncio.create_task(self._report_all()), asyncio.create_task(self._renew_all())]
        try:
            await self._lease_until(stop, is_over)
            if self._visits:
                await asyncio.wait([visit.task for visit in self._visits.values()], timeout=grace_s)
        finally:
            await self._give_back()
            for task in company:
                task.cancel()
            await asyncio.gather(*company, return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    async def _lease_until(self, stop: asyncio.Event, is_over: Callable[[LeaseGrant], Awaitable[bool]]) -> None:
        stopped = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set() and self._failure is None:
                free = self._slots - len(self._visits)
                if free == 0:
                    self._slot_is_free.clear()
                    freed = asyncio.create_task(self._slot_is_free.wait())
                    await asyncio.wait((freed, stopped), return_when=asyncio.FIRST_COMPLETED)
                    freed.cancel()
                    continue
                work = await self._ask(free)
                self.moved_at = time.monotonic()
                for lease in work.grant.leases:
                    task = asyncio.create_task(self._carry_out(lease, work.asked_at))
                    self._visits[lease.token] = _Visit(task, work.asked_at)
                self._wait_s = 0.0
                if not work.grant.leases and not self._visits:
                    if await is_over(work.grant):
                        return
                    self._wait_s = WAIT_S
        finally:
            stopped.cancel()

    async def _ask(self, slots: int) -> Work:
        request = LeaseRequest(
            worker=self._name,
            request_id=new_uuid7(),
            slots=slots,
            crawl=self._crawl,
            run_id=self._run_id,
            lease_ms=self._lease_ms,
            scheduled=self._scheduled,
            fair=True,
            claims=self._claims,
        )
        return await _patiently(
            partial(self._frontier.lease, request, wait_s=BUSY_WAIT_S if self._visits else self._wait_s)
        )

    async def _carry_out(self, lease: Lease, asked_at: float) -> None:
        """See one lease through to the acknowledgement of its report."""
        try:
            report = await self._visited(lease, asked_at)
            links = report.links
            answer = await self._acknowledged(await self._with_few_links(lease.crawl, report))
            if answer.verdict is Verdict.REJECTED:
                await self._charge(lease, asked_at, answer.detail)
            elif answer.verdict is Verdict.LEASE_LOST:
                # Where the claim on its domain was lost, the lease is still there, and nobody could fetch the page.
                await _patiently(partial(self._frontier.release, [lease.token]))
            else:
                self._visitor.acknowledged(lease, links)
        except Exception as error:  # of the store or of the archive: the next page would fare no better
            self._failure = self._failure or error
            self._unreported.append(lease.token)
        finally:
            self._visits.pop(lease.token, None)
            self.moved_at = time.monotonic()
            self._slot_is_free.set()

    async def _visited(self, lease: Lease, asked_at: float) -> Report:
        try:
            return await self._visitor.visit(lease, asked_at)
        except OutriderError:
            raise
        except Exception as error:  # a page must not be able to stop a crawl, whatever it found in us
            logger.exception("the visit of %s failed", lease.url)
            return _our_failure(lease, asked_at, f"{type(error).__name__}: {error}")

    async def _charge(self, lease: Lease, asked_at: float, refused_because: str | None) -> None:
        """End a lease whose report was refused as a failure: given back, the page would be fetched for the same again.

        Only where the frontier does not take even that is the lease given back.
        """
        logger.error("the report on %s was refused: %s", lease.url, shown(refused_because))
        answer = await self._acknowledged(_our_failure(lease, asked_at, f"report refused: {refused_because}"))
        if answer.verdict is Verdict.REJECTED:
            await _patiently(partial(self._frontier.release, [lease.token]))

    async def _with_few_links(self, crawl: str, report: Report) -> Report:
        """Store the links of a page that has very many of them ahead of its report."""
        links = report.links
        if len(links) <= LINKS_AT_ONCE:
            return report
        while len(links) > LINKS_AT_ONCE:
            chunk, links = links[:LINKS_AT_ONCE], links[LINKS_AT_ONCE:]
            await _patiently(partial(self._frontier.add, crawl, chunk))
        return msgspec.structs.replace(report, links=links)

    async def _acknowledged(self, report: Report) -> ReportAnswer:
        waiting = _Waiting(report, asyncio.get_running_loop().create_future())
        self._reports.append(waiting)
        self._something_to_report.set()
        return await waiting.answer

    async def _report_all(self) -> None:
        """Send what there is to report, all that has come together meanwhile at once."""
        while True:
            await self._something_to_report.wait()
            if len(self._reports) < len(self._visits):
                await asyncio.sleep(GATHER_S)
            self._something_to_report.clear()
            while self._reports:
                batch = self._next_batch()
                reports = [waiting.report for waiting in batch]
                try:
                    answers = await _patiently(partial(self._frontier.report, reports))
                except Exception as error:
                    for waiting in batch:
                        if not waiting.answer.done():
                            waiting.answer.set_exception(error)
                    continue
                for waiting, answer in zip(batch, answers, strict=True):
                    if not waiting.answer.done():
                        waiting.answer.set_result(answer)

    def _next_batch(self) -> list[_Waiting]:
        size = links = 0
        for waiting in self._reports[:REPORTS_AT_ONCE]:
            links += len(waiting.report.links)
            if size and links > 2 * LINKS_AT_ONCE:
                break
            size += 1
        batch, self._reports = self._reports[:size], self._reports[size:]
        return batch

    async def _renew_all(self) -> None:
        """Keep the leases of long visits, and stop the visits whose leases are gone."""
        while True:
            await asyncio.sleep(self._lease_ms / 4000)
            for token in await self._lost_leases():
                visit = self._visits.get(token)
                if visit is not None:
                    logger.warning("a lease was lost, its fetch is stopped")
                    visit.task.cancel()

    async def _lost_leases(self) -> list[Token]:
        """Renew what has been held for a while; tell what could not be."""
        now, lease_s = time.monotonic(), self._lease_ms / 1000
        tokens = [token for token, visit in self._visits.items() if now - visit.began_at > lease_s / 4]
        if not tokens:
            self._renewed_at = now
            return []
        try:
            renewals = await self._frontier.renew(tokens)
        except OutriderError as error:
            logger.warning("leases could not be renewed: %s", error)
            return tokens if time.monotonic() - self._renewed_at > lease_s else []
        self._renewed_at = now
        return [token for token, renewal in zip(tokens, renewals, strict=True) if renewal is Renewal.LEASE_LOST]

    async def _give_back(self) -> None:
        """Stop what is under way and give its leases back."""
        left = dict(self._visits)
        for visit in left.values():
            visit.task.cancel()
        await asyncio.gather(*(visit.task for visit in left.values()), return_exceptions=True)
        if left or self._unreported:
            try:
                await self._frontier.release([*left, *self._unreported])
            except OutriderError as error:
                self._failure = self._failure or error


def _our_failure(lease: Lease, asked_at: float, what: str) -> Report:
    """Report that something in us failed, in words that every store can keep.

    Whether and when a request was sent is not known; it was not after this moment.
    """
    reason = f"internal: {what}"[:MAX_REASON].replace("\0", "").encode(errors="replace").decode()
    sent_after_ms = max(round((time.monotonic() - asked_at) * 1000), 0)
    return Report(token=lease.token, outcome=Outcome.FAILED, reason=reason, sent_after_ms=sent_after_ms)


async def _patiently(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Try again while the store is out of reach: every call of a worker may be made twice."""
    until = time.monotonic() + STORE_PATIENCE_S
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            if time.monotonic() > until:
                raise
            logger.warning("the store is out of reach, trying again: %s", error)
            await asyncio.sleep(RETRY_S)
