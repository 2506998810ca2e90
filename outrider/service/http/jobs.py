"""The endpoints of jobs: submit, follow, and say what is wanted of them.

Keys below admin see and touch the jobs of their owner only; to them those of others do not exist.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from msgspec import UNSET
from starlette.responses import Response, StreamingResponse

from outrider.control.customer import OPERATOR, Customer
from outrider.control.desk import LocalDesk
from outrider.control.job_progress import JobProgress
from outrider.crawler.page_lines import PageLine, encoded
from outrider.model.api_key import Role
from outrider.model.errors import InvalidInput
from outrider.model.job import Job, JobFilter, PendingWork
from outrider.model.quota import JobQuota, QuotaExceeded
from outrider.service.http import event_stream
from outrider.service.http.endpoint import JSON_LINES, Call, Endpoint
from outrider.service.http.job_wire import (
    AmendBody,
    EventQuery,
    JobBody,
    JobHistory,
    JobItem,
    JobList,
    JobQuery,
    ResultQuery,
    RetryQuery,
    job_item,
    job_list,
)
from outrider.service.keys import Principal

IDEMPOTENCY_KEY: Final = "idempotency-key"
LAST_EVENT_ID: Final = "last-event-id"


def customer_of(principal: Principal) -> Customer:
    """Tell on whose behalf a call is made; who needs no key is the operator."""
    if principal.key_id is None:
        return OPERATOR
    return Customer(
        actor=f"key {principal.key_id}",
        user_id=principal.owner,
        key_id=principal.key_id,
        quota=principal.quota or JobQuota(),
        sees_all=principal.role.includes(Role.ADMIN),
        crawls=principal.crawls,
    )


def _desk(call: Call) -> LocalDesk:
    backend = call.backend
    return LocalDesk(backend.stores, customer_of(call.principal), allow_private=backend.allow_private)


def _job(call: Call) -> str:
    return str(call.request.path_params["job"])


async def submit_job(call: Call) -> JobItem:
    """Queue a job."""
    body: JobBody = call.body
    if body.crawl is None:
        call.principal.check_unbound("a job with a crawl of its own")
    else:
        call.principal.check(Role.CRAWL, body.crawl)
    try:
        job = await _submitted(call, body)
    except QuotaExceeded as error:
        call.backend.metrics.over_quota(error.which)
        raise
    call.backend.metrics.submitted()
    return job_item(job)


async def _submitted(call: Call, body: JobBody) -> Job:
    return await _desk(call).submit(
        body.order(),
        crawl=body.crawl,
        priority=body.priority,
        max_retries=body.max_retries,
        source_id=body.source_id,
        labels=body.labels,
        webhook_url=body.webhook_url,
        webhook_secret=body.webhook_secret,
        idempotency_key=call.request.headers.get(IDEMPOTENCY_KEY),
    )


async def list_jobs(call: Call) -> JobList:
    """List jobs."""
    query = call.query(JobQuery)
    name, _, value = (query.label or "").partition("=")
    which = JobFilter(
        status=query.status,
        crawl=query.crawl,
        user_id=query.user_id,
        source_id=query.source_id,
        label=None if query.label is None else (name, value),
    )
    return job_list(await _desk(call).list(which, sort=query.sort, cursor=query.cursor, limit=query.limit))


async def show_job(call: Call) -> JobHistory:
    """Show a job with its history."""
    view = await _desk(call).show(_job(call))
    return JobHistory(job=job_item(view.job), history=view.history)


async def job_progress(call: Call) -> JobProgress:
    """Tell how far a job has come."""
    return await _desk(call).progress(_job(call))


async def job_events(call: Call) -> Response:
    """Follow a job."""
    headers = call.request.headers
    after = event_stream.last_event_id(headers.get(LAST_EVENT_ID))
    if after is None:
        after = call.query(EventQuery).after
    events = _desk(call).events(_job(call), after=after)
    keys = call.backend.keys

    async def still_allowed() -> None:
        if call.principal.key_id is not None:
            await keys.principal(headers.get("authorization"), headers.get("host", ""))

    return await event_stream.stream(events, call.backend.stopping, still_allowed)


async def job_results(call: Call) -> Response:
    """Give the pages of a job."""
    query = call.query(ResultQuery)
    pages = _desk(call).pages(_job(call), after_id=query.after)
    # The first are read before the answer begins, which can then still be that there is no such job.
    first = await anext(pages, None) or ()
    return StreamingResponse(_lines(first, pages, query.limit), media_type=JSON_LINES)


async def _lines(
    first: Sequence[PageLine], rest: AsyncIterator[Sequence[PageLine]], most: int | None
) -> AsyncIterator[bytes]:
    left = most
    if first:
        yield encoded(first[:left])
    left = None if left is None else left - len(first)
    while left is None or left > 0:
        lines = await anext(rest, None)
        if lines is None:
            return
        yield encoded(lines[:left])
        left = None if left is None else left - len(lines)


async def pause_job(call: Call) -> JobItem:
    """Ask a job to pause."""
    return job_item(await _desk(call).pause(_job(call)))


async def resume_job(call: Call) -> JobItem:
    """Ask a paused job to go on."""
    return job_item(await _desk(call).resume(_job(call)))


async def cancel_job(call: Call) -> JobItem:
    """Ask a job to end."""
    return job_item(await _desk(call).cancel(_job(call)))


async def retry_job(call: Call) -> JobItem:
    """Queue a failed job again."""
    return job_item(await _desk(call).retry(_job(call), fresh=call.query(RetryQuery).fresh))


async def amend_job(call: Call) -> JobItem:
    """Change a live job."""
    body: AmendBody = call.body
    limits = body.limits()
    if limits is None and body.priority is UNSET:
        raise InvalidInput(
            "say what to change: priority, max_pages, max_pages_per_domain, max_depth, delay, per_domain"
        )
    priority = None if body.priority is UNSET else body.priority
    return job_item(await _desk(call).amend(_job(call), priority=priority, limits=limits))


async def summary(call: Call) -> PendingWork:
    """Sum up the work that all live jobs have before them."""
    return await _desk(call).summary()


JOBS: Final = "/v1/jobs"
JOB: Final = f"{JOBS}/{{job}}"

ENDPOINTS: Final = (
    Endpoint(
        method="POST",
        path=JOBS,
        summary="Submit a job; asked again with the same `idempotency-key`, it gives the same job.",
        handler=submit_job,
        role=Role.CRAWL,
        takes=JobBody,
        gives=JobItem,
        status=202,
        location=JOBS,
        headers=(IDEMPOTENCY_KEY,),
    ),
    Endpoint(
        method="GET",
        path=JOBS,
        summary="Jobs by status, crawl, user, source or label, in one of four orders, by cursor.",
        handler=list_jobs,
        query=JobQuery,
        gives=JobList,
    ),
    Endpoint(method="GET", path=JOB, summary="A job and its history.", handler=show_job, gives=JobHistory),
    Endpoint(
        method="GET",
        path=f"{JOB}/progress",
        summary="How far a job has come: exact counts of pages, and what its runner last said.",
        handler=job_progress,
        gives=JobProgress,
    ),
    Endpoint(
        method="GET",
        path=f"{JOB}/events",
        summary="State changes and progress as they happen (server-sent events), until the job has ended.",
        handler=job_events,
        query=EventQuery,
        media=event_stream.EVENT_STREAM,
        headers=(LAST_EVENT_ID,),
    ),
    Endpoint(
        method="GET",
        path=f"{JOB}/results",
        summary="The pages of a job so far as JSON lines; `after` goes on after one.",
        handler=job_results,
        query=ResultQuery,
        media=JSON_LINES,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/pause",
        summary="Ask a job to pause: it keeps everything.",
        handler=pause_job,
        role=Role.CRAWL,
        gives=JobItem,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/resume",
        summary="Ask a paused job to go on where it was.",
        handler=resume_job,
        role=Role.CRAWL,
        gives=JobItem,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/cancel",
        summary="Ask a job to end, and end all leases of its crawl.",
        handler=cancel_job,
        role=Role.CRAWL,
        gives=JobItem,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/retry",
        summary="Queue a failed job again: where it was, or anew.",
        handler=retry_job,
        role=Role.CRAWL,
        query=RetryQuery,
        gives=JobItem,
    ),
    Endpoint(
        method="PATCH",
        path=JOB,
        summary="Change the priority and limits of a live job.",
        handler=amend_job,
        role=Role.CRAWL,
        takes=AmendBody,
        gives=JobItem,
    ),
    Endpoint(
        method="GET",
        path="/v1/summary",
        summary="Pending work over all live jobs, from counts that are kept.",
        handler=summary,
        gives=PendingWork,
    ),
)
