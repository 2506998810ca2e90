"""The endpoints of operators: crawls, queues and gates, and what is set on them."""

from typing import Final

import msgspec

from outrider.model.api_key import Role
from outrider.model.errors import JobConflict, shown
from outrider.model.gate import Gate, GateSettings
from outrider.model.job import TERMINAL, JobFilter
from outrider.model.machines import JobStatus
from outrider.model.task import MAX_BATCH, Crawl, QueueSettings
from outrider.service.http import translation
from outrider.service.http.endpoint import Call, Endpoint
from outrider.service.http.translation import now_ms
from outrider.service.http.wire import (
    KIND_NAMES,
    CrawlAnswer,
    CrawlBody,
    CrawlList,
    GateBody,
    Promoted,
    QueueBody,
    QueuePage,
    Removed,
    StateBody,
)
from outrider.service.http.working import CRAWL


class Page(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of a listing to give."""

    after: str = ""
    limit: int = 100


async def list_crawls(call: Call) -> CrawlList:
    """List the crawls that the key is good for."""
    crawls = await call.backend.stores.urls.list_crawls()
    return CrawlList(crawls=[crawl for crawl in crawls if call.principal.sees(crawl.name)])


async def show_crawl(call: Call) -> CrawlAnswer:
    """Show a crawl with its counts and what it has before it."""
    return await _described(call, await call.backend.stores.urls.get_crawl(call.crawl))


async def put_crawl(call: Call) -> CrawlAnswer:
    """Create a crawl, or change the limits of one; what they let in is promoted."""
    urls, body = call.backend.stores.urls, call.body
    if body.limits is not None:
        await _check_has_no_live_job(call)
    crawl = await urls.create_crawl(call.crawl, body.rules, body.limits)
    if body.limits is not None:
        await urls.promote(call.crawl)
    return await _described(call, crawl)


async def set_crawl_state(call: Call) -> CrawlAnswer:
    """Run, pause or cancel a crawl."""
    body: StateBody = call.body
    await _check_has_no_live_job(call)
    return await _described(call, await call.backend.stores.urls.set_crawl_state(call.crawl, body.state))


async def _check_has_no_live_job(call: Call) -> None:
    """Leave what a job's crawl does to the job, where owner and quota of the key count."""
    control = call.backend.stores.control
    for status in set(JobStatus) - TERMINAL:
        if (await control.list_jobs(JobFilter(crawl=call.crawl, status=status), limit=1)).jobs:
            raise JobConflict(
                f"crawl {shown(call.crawl)} is that of a live job: ask the job to pause, resume or cancel, "
                "and change the limits of the job"
            )


async def _described(call: Call, crawl: Crawl) -> CrawlAnswer:
    urls = call.backend.stores.urls
    counts = await urls.counts_by_kind(crawl.name)
    return CrawlAnswer(
        name=crawl.name,
        state=crawl.state,
        rules=crawl.rules,
        limits=crawl.limits,
        created_at=crawl.created_at,
        conduct=crawl.conduct,
        counts={KIND_NAMES[kind]: numbers for kind, numbers in counts.items()},
        outlook=translation.outlook_answer(await urls.outlook(crawl.name)),
    )


async def delete_crawl(call: Call) -> Removed:
    """Delete a crawl with everything but its artifacts."""
    return Removed(removed=await call.backend.stores.urls.delete_crawl(call.crawl))


async def retry_failed(call: Call) -> Promoted:
    """Give all failed URLs of a crawl a fresh start."""
    return Promoted(tasks=await call.backend.stores.urls.retry_failed(call.crawl))


async def list_queues(call: Call) -> QueuePage:
    """List the queues of a crawl by key."""
    page = call.query(Page)
    queues = await call.backend.stores.urls.list_queues(call.crawl, after=page.after, limit=page.limit)
    now = now_ms()
    return QueuePage(
        queues=[translation.queue_item(queue, now) for queue in queues],
        next_after=queues[-1].key if len(queues) == page.limit else None,
    )


async def put_queue(call: Call) -> QueueBody:
    """Set a queue's overrides, also before its first URL."""
    body: QueueBody = call.body
    settings = QueueSettings(
        delay_ms=body.delay_ms,
        blocked_until=None if body.blocked_for_ms is None else now_ms() + body.blocked_for_ms,
        page_limit=body.page_limit,
        priority=body.priority,
    )
    await call.backend.stores.urls.configure_queue(call.crawl, _key(call), settings)
    return body


async def delete_queue(call: Call) -> Removed:
    """Delete a queue with its URLs and overrides."""
    return Removed(removed=await call.backend.stores.urls.delete_queue(call.crawl, _key(call)))


def _key(call: Call) -> str:
    return str(call.request.path_params["key"])


async def put_gate(call: Call) -> Gate:
    """Set a domain's politeness for all crawls."""
    call.principal.check_unbound("what binds all crawls")
    body: GateBody = call.body
    blocked = body.blocked_for_ms
    settings = GateSettings(
        delay_ms=body.delay_ms,
        concurrency=body.concurrency,
        blocked_until=None if blocked is None else (now_ms() + blocked if blocked else 0),
        band=body.band,
    )
    return await call.backend.stores.urls.configure_gate(str(call.request.path_params["domain"]), settings)


QUEUE: Final = f"{CRAWL}/queues/{{key}}"

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/v1/crawls",
        summary="All crawls that the key is good for, by name.",
        handler=list_crawls,
        gives=CrawlList,
    ),
    Endpoint(
        method="GET",
        path=CRAWL,
        summary="A crawl: state, limits, counts, and what it has before it.",
        handler=show_crawl,
        gives=CrawlAnswer,
    ),
    Endpoint(
        method="PUT",
        path=CRAWL,
        summary="Create a crawl, or change the limits of one.",
        handler=put_crawl,
        role=Role.CRAWL,
        takes=CrawlBody,
        gives=CrawlAnswer,
    ),
    Endpoint(
        method="PUT",
        path=f"{CRAWL}/state",
        summary="Run, pause or cancel a crawl: `lease` obeys at once.",
        handler=set_crawl_state,
        role=Role.CRAWL,
        takes=StateBody,
        gives=CrawlAnswer,
    ),
    Endpoint(
        method="POST",
        path=f"{CRAWL}/retry-failed",
        summary="Give all failed URLs of a crawl a fresh start.",
        handler=retry_failed,
        role=Role.CRAWL,
        gives=Promoted,
    ),
    Endpoint(
        method="DELETE",
        path=CRAWL,
        summary="Delete a crawl with everything but its artifacts.",
        handler=delete_crawl,
        role=Role.ADMIN,
        gives=Removed,
    ),
    Endpoint(
        method="GET",
        path=f"{CRAWL}/queues",
        summary=f"Queues by key, up to {MAX_BATCH} at once.",
        handler=list_queues,
        query=Page,
        gives=QueuePage,
    ),
    Endpoint(
        method="PUT",
        path=QUEUE,
        summary="Set the delay, block, page limit and priority of a queue, also before its first URL.",
        handler=put_queue,
        role=Role.CRAWL,
        takes=QueueBody,
        gives=QueueBody,
    ),
    Endpoint(
        method="DELETE",
        path=QUEUE,
        summary="Delete a queue with its URLs and overrides.",
        handler=delete_queue,
        role=Role.ADMIN,
        gives=Removed,
    ),
    Endpoint(
        method="PUT",
        path="/v1/domains/{domain}/gate",
        summary="Set a domain's politeness for all crawls.",
        handler=put_gate,
        role=Role.ADMIN,
        takes=GateBody,
        gives=Gate,
    ),
)
