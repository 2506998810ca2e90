"""The endpoints of workers: discovered, lease, renew, report, release, and what a visit needs to know."""

import asyncio
from contextlib import suppress
from typing import Final

from starlette.requests import ClientDisconnect, Request

from outrider.frontier.protocol import Work
from outrider.model.api_key import Role
from outrider.model.errors import StoreUnavailable
from outrider.model.lease import LeaseRequest, Token
from outrider.model.task import Added, DiscoveryType
from outrider.service.http import translation
from outrider.service.http.endpoint import Backend, Call, Endpoint
from outrider.service.http.wire import (
    AddAnswer,
    AllScopeRoots,
    DiscoveredBatch,
    LeaseAnswer,
    LeaseBody,
    OutlookAnswer,
    PlainDiscoveredBatch,
    PlainReportBatch,
    ReleaseAnswer,
    RenewAnswer,
    ReportBatch,
    ReportReply,
    RobotsText,
    ScopeRoots,
    Tokens,
)


async def discovered(call: Call) -> AddAnswer:
    """Store what is new, and let seeds widen the scope."""
    urls = call.backend.stores.urls
    batch: PlainDiscoveredBatch = call.body
    results = await call.backend.add(call.crawl, batch.items)
    seeds = [
        item.url
        for item, result in zip(batch.items, results, strict=True)
        if item.discovery_type is DiscoveryType.SEED and result.outcome is not Added.REJECTED
    ]
    if seeds:
        await urls.widen_scope(call.crawl, seeds)
    return AddAnswer(results=results)


async def lease(call: Call) -> LeaseAnswer:
    """Lease from one crawl."""
    return await _leased(call, call.crawl)


async def lease_any(call: Call) -> LeaseAnswer:
    """Lease from any running crawl, in rotation."""
    call.principal.check_unbound("leasing from any crawl")
    return await _leased(call, None)


async def _leased(call: Call, crawl: str | None) -> LeaseAnswer:
    body: LeaseBody = call.body
    request = LeaseRequest(
        worker=body.worker,
        request_id=body.request_id,
        slots=body.slots,
        crawl=crawl,
        run_id=body.run_id,
        lease_ms=body.lease_ms,
        max_per_queue=body.max_per_queue,
        scheduled=body.scheduled,
        fair=body.fair,
        claims=body.claims,
    )
    # Who does not have to wait does not queue behind those who do.
    work = await call.backend.frontier.lease_now(request)
    if not work.grant.leases and body.wait_ms:
        work = await _waited(call.backend, call.request, request, body.wait_ms / 1000)
    call.backend.metrics.leased(work.grant)
    return translation.lease_answer(work.grant, waited_ms=int((work.asked_at - call.received_at) * 1000))


async def _waited(backend: Backend, asked: Request, request: LeaseRequest, wait_s: float) -> Work:
    """Wait for work, unless the client goes away or the service is about to stop.

    A wait that is broken off may have been granted something a moment before. So whoever is told to come again must
    do so under the same id, as for every answer that got lost; an empty answer would strand those leases.
    """
    waiting = asyncio.create_task(backend.frontier.lease(request, wait_s=wait_s))
    gone = asyncio.create_task(_disconnected(asked))
    stopping = asyncio.create_task(backend.stopping.wait())
    try:
        await asyncio.wait((waiting, gone, stopping), return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        if gone.done():
            raise ClientDisconnect
        raise StoreUnavailable("the service is about to stop: ask again with the same request_id")
    finally:
        for task in (waiting, gone, stopping):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(waiting, gone, stopping, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def renew(call: Call) -> RenewAnswer:
    """Prolong leases."""
    body: Tokens = call.body
    return RenewAnswer(results=await call.backend.frontier.renew([Token(token) for token in body.tokens]))


async def report(call: Call) -> ReportReply:
    """End leases with what was found."""
    batch: PlainReportBatch = call.body
    answers = await call.backend.frontier.report(batch.reports)
    call.backend.metrics.reported(answers)
    return translation.report_reply(answers)


async def release(call: Call) -> ReleaseAnswer:
    """Give leases back uncharged."""
    body: Tokens = call.body
    released = await call.backend.frontier.release([Token(token) for token in body.tokens])
    return ReleaseAnswer(released=[str(token) for token in released])


async def outlook(call: Call) -> OutlookAnswer:
    """Tell what a crawl has before it."""
    return translation.outlook_answer(await call.backend.frontier.outlook(call.crawl))


async def robots_text(call: Call) -> RobotsText:
    """Read a domain's robots.txt."""
    found = await call.backend.frontier.robots_text(str(call.request.path_params["domain"]))
    version, text = found or (None, None)
    return RobotsText(version=version, text=text)


async def scope_roots(call: Call) -> AllScopeRoots:
    """List what widens a crawl's scope."""
    return AllScopeRoots(roots=await call.backend.frontier.scope_roots(call.crawl))


async def widen_scope(call: Call) -> ScopeRoots:
    """Widen a crawl's scope."""
    body: ScopeRoots = call.body
    await call.backend.frontier.widen_scope(call.crawl, body.roots)
    return body


CRAWL: Final = "/v1/crawls/{crawl}"

ENDPOINTS: Final = (
    Endpoint(
        method="POST",
        path=f"{CRAWL}/discovered",
        summary="Add URLs. One answer for each, in order; seeds widen the crawl's scope.",
        handler=discovered,
        role=Role.CRAWL,
        takes=DiscoveredBatch,
        plain=PlainDiscoveredBatch,
        gives=AddAnswer,
    ),
    Endpoint(
        method="POST",
        path=f"{CRAWL}/lease",
        summary="Lease URLs to fetch; with `wait_ms`, wait for some.",
        handler=lease,
        role=Role.CRAWL,
        takes=LeaseBody,
        gives=LeaseAnswer,
    ),
    Endpoint(
        method="POST",
        path="/v1/lease",
        summary="Lease URLs of any running crawl, in rotation.",
        handler=lease_any,
        role=Role.CRAWL,
        takes=LeaseBody,
        gives=LeaseAnswer,
    ),
    *(
        endpoint
        for prefix in (CRAWL, "/v1")
        for endpoint in (
            Endpoint(
                method="POST",
                path=f"{prefix}/renew",
                summary="Prolong leases. One answer for each token, in order.",
                handler=renew,
                role=Role.CRAWL,
                takes=Tokens,
                gives=RenewAnswer,
            ),
            Endpoint(
                method="POST",
                path=f"{prefix}/report",
                summary="End leases with what was found. One answer for each report, in order; safe to repeat.",
                handler=report,
                role=Role.CRAWL,
                takes=ReportBatch,
                plain=PlainReportBatch,
                gives=ReportReply,
            ),
            Endpoint(
                method="POST",
                path=f"{prefix}/release",
                summary="Give leases back uncharged.",
                handler=release,
                role=Role.CRAWL,
                takes=Tokens,
                gives=ReleaseAnswer,
            ),
        )
    ),
    Endpoint(
        method="GET",
        path=f"{CRAWL}/outlook",
        summary="What a crawl has before it, all of one moment.",
        handler=outlook,
        gives=OutlookAnswer,
    ),
    Endpoint(
        method="GET",
        path=f"{CRAWL}/scope",
        summary="The addresses that widen a crawl's scope.",
        handler=scope_roots,
        gives=AllScopeRoots,
    ),
    Endpoint(
        method="POST",
        path=f"{CRAWL}/scope",
        summary="Widen a crawl's scope, such as by what a seed redirects to.",
        handler=widen_scope,
        role=Role.CRAWL,
        takes=ScopeRoots,
        gives=ScopeRoots,
    ),
    Endpoint(
        method="GET",
        path="/v1/domains/{domain}/robots",
        summary="A domain's robots.txt, as it was last reported.",
        handler=robots_text,
        gives=RobotsText,
    ),
)
