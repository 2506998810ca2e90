"""The service `urlfrontier.URLFrontier`, version 2.6: its messages, translated to operations of the store and back.

Everything that the reference forgets when it stops is kept here, and settings of a queue hold before its first URL.
The flag `local` of many messages is accepted and means nothing: all replicas of a service share one store.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, TypeVar

import msgspec

from outrider.model.api_key import Role
from outrider.model.batch import (
    BATCH_LEASE_MS,
    KnownUrl,
    QueueChange,
    ServeRequest,
    Statistics,
)
from outrider.model.errors import CrawlConflict, InvalidInput, LimitExceeded, StoreError, StoreUnavailable, UnknownCrawl
from outrider.model.task import (
    DEFAULT_CRAWL,
    MAX_BATCH,
    Added,
    AddResult,
    Counts,
    CrawlLimits,
    CrawlRules,
    Discovered,
    KeyRule,
)
from outrider.model.url import UrlRefused
from outrider.service import urlfrontier_pb2 as messages
from outrider.service.grpc.methods import Bidirectional, CallContext, Method, ServerStreaming, Service, Unary
from outrider.service.grpc.status import GrpcError, Status
from outrider.service.keys import Principal
from outrider.service.problems import Forbidden, RateExceeded, Unauthenticated
from outrider.service.urlfrontier_items import (
    FAIL,
    FAR,
    OK,
    Puts,
    Step,
    milliseconds_now,
    url_filter,
    url_info,
    url_item,
    url_of,
)
from outrider.store.checks import LARGEST, YEAR_MS
from outrider.store.protocols import UrlStore

RULES: Final = CrawlRules(key_rule=KeyRule.HOST)
LIMITS: Final = CrawlLimits(delay_ms=1000, robots=False)
"""Of crawls that come to be by a client's first call: the reference's delay, and robots.txt is the client's affair."""

PAGE: Final = 100
"""How many queues or URLs a list has where the client does not say."""
SENT_TOGETHER: Final = 1_000
DAY_MS: Final = 86_400_000

LEVELS: Final = {
    messages.LogLevelParams.TRACE: logging.DEBUG,
    messages.LogLevelParams.DEBUG: logging.DEBUG,
    messages.LogLevelParams.INFO: logging.INFO,
    messages.LogLevelParams.WARN: logging.WARNING,
    messages.LogLevelParams.ERROR: logging.ERROR,
}
STATUSES: Final[dict[type[Exception], Status]] = {
    Unauthenticated: Status.UNAUTHENTICATED,
    Forbidden: Status.PERMISSION_DENIED,
    RateExceeded: Status.RESOURCE_EXHAUSTED,
    InvalidInput: Status.INVALID_ARGUMENT,
    LimitExceeded: Status.INVALID_ARGUMENT,
    UrlRefused: Status.INVALID_ARGUMENT,
    UnknownCrawl: Status.NOT_FOUND,
    StoreUnavailable: Status.UNAVAILABLE,
}

Answer = TypeVar("Answer")
Item = TypeVar("Item")
Put = Callable[[str, Sequence[Item]], Awaitable[list[AddResult]]]

logger = logging.getLogger(__name__)


def translated(error: Exception) -> GrpcError | None:
    """Give the status for an error of ours; None for one that nobody foresaw."""
    for kind, status in STATUSES.items():
        if isinstance(error, kind):
            return GrpcError(status, str(error))
    return None


class URLFrontier:
    """The handlers of all 19 calls; `service` is what to give to a `GrpcApp`."""

    def __init__(
        self,
        urls: UrlStore,
        *,
        node: str = "localhost",
        add: "Put[Discovered] | None" = None,
        put_known: "Put[KnownUrl] | None" = None,
    ) -> None:
        self._urls = urls
        self._node = node
        self._add = add or urls.add
        """How discoveries are stored, where the service has conditions of its own; and so what is known."""
        self._put_known = put_known or urls.put_known

    @property
    def service(self) -> Service:
        """The methods by name, each with its kind."""
        methods: dict[str, Method] = {
            "ListNodes": Unary(request=messages.Empty, handle=self.list_nodes),
            "ListCrawls": Unary(request=messages.Local, handle=self.list_crawls),
            "DeleteCrawl": Unary(request=messages.DeleteCrawlMessage, handle=self.delete_crawl),
            "ListQueues": Unary(request=messages.Pagination, handle=self.list_queues),
            "GetURLs": ServerStreaming(request=messages.GetParams, handle=self.get_urls),
            "PutURLs": Bidirectional(request=messages.URLItem, handle=self.put_urls),
            "PutDiscovered": Bidirectional(request=messages.DiscoveredBatch, handle=self.put_discovered),
            "GetStats": Unary(request=messages.QueueWithinCrawlParams, handle=self.get_stats),
            "DeleteQueue": Unary(request=messages.QueueWithinCrawlParams, handle=self.delete_queue),
            "BlockQueueUntil": Unary(request=messages.BlockQueueParams, handle=self.block_queue_until),
            "SetActive": Unary(request=messages.Active, handle=self.set_active),
            "GetActive": Unary(request=messages.Local, handle=self.get_active),
            "SetDelay": Unary(request=messages.QueueDelayParams, handle=self.set_delay),
            "SetLogLevel": Unary(request=messages.LogLevelParams, handle=self.set_log_level),
            "SetCrawlLimit": Unary(request=messages.CrawlLimitParams, handle=self.set_crawl_limit),
            "GetURLStatus": Unary(request=messages.URLStatusRequest, handle=self.get_url_status),
            "ListURLs": ServerStreaming(request=messages.ListUrlParams, handle=self.list_urls),
            "CountURLs": Unary(request=messages.CountUrlParams, handle=self.count_urls),
            "PurgeURLs": Unary(request=messages.PurgeUrlParams, handle=self.purge_urls),
        }
        return Service(name="urlfrontier.URLFrontier", methods=methods, file=messages.DESCRIPTOR)

    # ------------------------------------------------------------ in and out

    async def get_urls(
        self, context: CallContext, request: messages.GetParams
    ) -> AsyncIterator[list[messages.URLInfo]]:
        """Serve a batch; nothing for an unknown crawl, or while the frontier is inactive."""
        crawl = (request.crawlID or DEFAULT_CRAWL) if request.WhichOneof("item") == "crawlID" else None
        _check(context, Role.CRAWL, crawl)
        if crawl is None and context.principal is not None:
            context.principal.check_unbound("any crawl")
        wish = ServeRequest(
            crawl=crawl,
            key=request.key or None,
            max_urls_per_queue=request.max_urls_per_queue or None,
            max_queues=request.max_queues or None,
            lease_ms=min(request.delay_requestable * 1000, YEAR_MS) or BATCH_LEASE_MS,
        )
        try:
            batch = await self._urls.serve(wish)
        except UnknownCrawl:
            return
        for part in _parts(batch, SENT_TOGETHER):
            yield [url_info(served) for served in part]

    async def put_urls(self, context: CallContext, batch: Sequence[messages.URLItem]) -> list[messages.AckMessage]:
        """Store discoveries and what is known; one ack for each item, with its ID or else its URL."""
        puts = Puts(len(batch))
        for position, item in enumerate(batch):
            match item.WhichOneof("item"):
                case "discovered":
                    puts.discovered(position, item.discovered.info)
                case "known":
                    puts.known(position, item.known.info, item.known.refetchable_from_date)
        await self._put(context, puts)
        return [
            messages.AckMessage(ID=item.ID or url_of(item), status=status)
            for item, status in zip(batch, puts.statuses, strict=True)
        ]

    async def put_discovered(
        self, context: CallContext, batch: Sequence[messages.DiscoveredBatch]
    ) -> list[messages.BatchAck]:
        """Store discoveries; the statuses of each batch are in the order of its items."""
        puts = Puts(sum(len(each.items) for each in batch))
        for position, info in enumerate(info for each in batch for info in each.items):
            puts.discovered(position, info)
        await self._put(context, puts)
        statuses = iter(puts.statuses)
        return [messages.BatchAck(ID=each.ID, statuses=islice(statuses, len(each.items))) for each in batch]

    async def _put(self, context: CallContext, puts: Puts) -> None:
        for crawl in puts.steps:
            _check(context, Role.CRAWL, crawl)
        await asyncio.gather(*(self._put_in_crawl(crawl, steps, puts) for crawl, steps in puts.steps.items()))

    async def _put_in_crawl(self, crawl: str, steps: Sequence[Step], puts: Puts) -> None:
        for step in steps:
            new, any_ = {Added.NEW}, {Added.NEW, Added.KNOWN}
            found, known = _parts(step.discovered, MAX_BATCH), _parts(step.known, MAX_BATCH)
            await asyncio.gather(
                *(self._put_part(crawl, part, self._add, new, puts) for part in found),
                *(self._put_part(crawl, part, self._put_known, any_, puts) for part in known),
            )

    async def _put_part(
        self,
        crawl: str,
        part: Sequence[tuple[int, Item]],
        put: Put[Item],
        accepted: set[Added],
        puts: Puts,
    ) -> None:
        items = [item for _, item in part]
        try:
            results = await self._in_crawl(crawl, lambda: put(crawl, items))
        except InvalidInput:  # no crawl can have this name
            return
        except StoreError as error:
            logger.warning("%d URLs could not be stored: %s", len(items), error)
            puts.statuses_of([position for position, _ in part], FAIL)
            return
        for (position, _), result in zip(part, results, strict=True):
            if result.outcome in accepted:
                puts.statuses[position] = OK

    async def _in_crawl(self, crawl: str, action: Callable[[], Awaitable[Answer]]) -> Answer:
        """Act on a crawl, which comes to be where it is not there."""
        try:
            return await action()
        except UnknownCrawl:
            # Somebody else may just have made it, with rules of their own.
            with suppress(CrawlConflict):
                await self._urls.create_crawl(crawl, RULES, LIMITS)
            return await action()

    async def get_url_status(self, context: CallContext, request: messages.URLStatusRequest) -> messages.URLItem:
        """Tell what is known of one URL, in any spelling."""
        crawl = _crawl(context, Role.READ, request.crawlID)
        try:
            found = await self._urls.find_url(crawl, request.url, request.key or None)
        except UnknownCrawl:
            found = None
        if found is None:
            raise GrpcError(Status.NOT_FOUND, f"{request.url[:200]!r} is not in the crawl {crawl!r}")
        return url_item(found, crawl)

    # --------------------------------------------------------------- listing

    async def list_nodes(self, context: CallContext, _: messages.Empty) -> messages.StringList:
        """Name this node; others that share its store need not be known."""
        _check(context, Role.READ)
        return messages.StringList(values=[self._node])

    async def list_crawls(self, context: CallContext, _: messages.Local) -> messages.StringList:
        """List the crawls that the caller may see."""
        _check(context, Role.READ)
        who: Principal | None = context.principal
        names = [crawl.name for crawl in await self._urls.list_crawls() if who is None or who.sees(crawl.name)]
        return messages.StringList(values=names)

    async def list_queues(self, context: CallContext, request: messages.Pagination) -> messages.QueueList:
        """List queues that may give something, or all that ever had a URL."""
        crawl = _crawl(context, Role.READ, request.crawlID)
        answer = messages.QueueList(start=request.start, crawlID=crawl)
        try:
            names = await self._urls.queue_names(
                crawl, start=request.start, size=request.size or PAGE, everything=request.include_inactive
            )
        except UnknownCrawl:
            return answer
        answer.values.extend(names.keys)
        answer.size, answer.total = len(names.keys), names.total
        return answer

    async def get_stats(self, context: CallContext, request: messages.QueueWithinCrawlParams) -> messages.Stats:
        """Sum up a crawl or a queue; what is unknown has nothing."""
        crawl = _crawl(context, Role.READ, request.crawlID)
        try:
            found = await self._urls.statistics(crawl, request.key or None)
        except UnknownCrawl:
            found = Statistics(counts=Counts(), in_process=0, queues=0, active_queues=0)
        counts = found.counts
        return messages.Stats(
            size=counts.discovered + counts.pending + counts.assigned,
            inProcess=found.in_process,
            counts={"completed": counts.completed, "active_queues": found.active_queues},
            numberOfQueues=found.queues,
            crawlID=crawl,
        )

    async def list_urls(
        self, context: CallContext, request: messages.ListUrlParams
    ) -> AsyncIterator[list[messages.URLItem]]:
        """List URLs range by range; `start` counts those that pass the filter."""
        crawl = _crawl(context, Role.READ, request.crawlID)
        skip, left = request.start, request.size or PAGE
        which, cursor = url_filter(request), None
        while left > 0:
            try:
                found = await self._urls.list_urls(crawl, which, cursor=cursor)
            except UnknownCrawl:
                return
            urls = found.urls[skip : skip + left]
            skip = max(0, skip - len(found.urls))
            left -= len(urls)
            for part in _parts(urls, SENT_TOGETHER):
                yield [url_item(each, crawl) for each in part]
            cursor = found.next_cursor
            if cursor is None:
                return

    async def count_urls(self, context: CallContext, request: messages.CountUrlParams) -> messages.Long:
        """Count URLs by queue and substring."""
        crawl = _crawl(context, Role.READ, request.crawlID)
        which = url_filter(request)
        if which.contains is None:
            return await _number(self._total(crawl, which.key))
        return await _number(self._urls.count_urls(crawl, which))

    async def _total(self, crawl: str, key: str | None) -> int:
        return (await self._urls.counts(crawl, key)).total

    # -------------------------------------------------------------- settings

    async def set_active(self, context: CallContext, request: messages.Active) -> messages.Empty:
        """Serve, or serve nothing; it stays so over restarts."""
        _check(context, Role.ADMIN)
        await self._urls.set_active(request.state)
        return messages.Empty()

    async def get_active(self, context: CallContext, _: messages.Local) -> messages.Boolean:
        """Tell whether anything is served."""
        _check(context, Role.READ)
        return messages.Boolean(state=await self._urls.is_active())

    async def set_delay(self, context: CallContext, request: messages.QueueDelayParams) -> messages.Empty:
        """Set the delay of a queue, or of all queues of a crawl that have none of their own."""
        crawl = _crawl(context, Role.CRAWL, request.crawlID)
        delay_ms = min(request.delay_requestable * 1000, LARGEST)
        if request.key:
            return await self._change_queue(crawl, request.key, QueueChange(delay_ms=delay_ms))
        limits = (await self._in_crawl(crawl, lambda: self._urls.get_crawl(crawl))).limits
        await self._urls.set_crawl_limits(crawl, msgspec.structs.replace(limits, delay_ms=delay_ms))
        return messages.Empty()

    async def block_queue_until(self, context: CallContext, request: messages.BlockQueueParams) -> messages.Empty:
        """Block a queue until a time; 0 unblocks it."""
        crawl = _crawl(context, Role.CRAWL, request.crawlID)
        until = min(request.time, FAR) * 1000
        return await self._change_queue(crawl, request.key, QueueChange(blocked_until=until))

    async def set_crawl_limit(self, context: CallContext, request: messages.CrawlLimitParams) -> messages.Empty:
        """Stop a queue once so many of its URLs are completed; 0 is for no limit."""
        crawl = _crawl(context, Role.CRAWL, request.crawlID)
        return await self._change_queue(crawl, request.key, QueueChange(page_limit=request.limit or None))

    async def _change_queue(self, crawl: str, key: str, change: QueueChange) -> messages.Empty:
        await self._in_crawl(crawl, lambda: self._urls.change_queue(crawl, key, change))
        return messages.Empty()

    async def set_log_level(self, context: CallContext, request: messages.LogLevelParams) -> messages.Empty:
        """Set the level of one of our packages; one of the reference's own stands for all of ours."""
        _check(context, Role.ADMIN)
        ours = request.package == "outrider" or request.package.startswith("outrider.")
        logging.getLogger(request.package if ours else "outrider").setLevel(LEVELS.get(request.level, logging.INFO))
        return messages.Empty()

    # -------------------------------------------------------------- removing

    async def delete_crawl(self, context: CallContext, request: messages.DeleteCrawlMessage) -> messages.Long:
        """Remove a crawl; tell how many URLs it had."""
        return await _number(self._urls.delete_crawl(_crawl(context, Role.ADMIN, request.value)))

    async def delete_queue(self, context: CallContext, request: messages.QueueWithinCrawlParams) -> messages.Long:
        """Remove a queue; tell how many URLs it had."""
        crawl = _crawl(context, Role.ADMIN, request.crawlID)
        if not request.key:
            return messages.Long()
        return await _number(self._urls.delete_queue(crawl, request.key))

    async def purge_urls(self, context: CallContext, request: messages.PurgeUrlParams) -> messages.Long:
        """Remove URLs that came more than so many days ago, except those in flight."""
        crawl = _crawl(context, Role.ADMIN, request.crawlID)
        before = max(0, milliseconds_now() - request.days * DAY_MS)
        return await _number(self._urls.purge(crawl, before=before, key=request.key or None))


def _check(context: CallContext, needed: Role, crawl: str | None = None) -> None:
    """Ask whether the caller may; whoever serves without keys lets everybody."""
    who: Principal | None = context.principal
    if who is not None:
        who.check(needed, crawl)


def _crawl(context: CallContext, needed: Role, crawl_id: str) -> str:
    """Name the crawl of a call that the caller may make; a blank one is the default."""
    crawl = crawl_id or DEFAULT_CRAWL
    _check(context, needed, crawl)
    return crawl


async def _number(counting: Awaitable[int]) -> messages.Long:
    """Answer with a number; there is nothing in a crawl that is not there."""
    try:
        return messages.Long(value=await counting)
    except UnknownCrawl:
        return messages.Long()


def _parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))
