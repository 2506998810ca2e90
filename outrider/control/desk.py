"""The desk: where people submit jobs, follow them and say what they want.

`JobDesk` is what a command line or a page needs, whether the store is here (`LocalDesk`) or behind a service
(`outrider.service.job_client.RemoteDesk`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from outrider.control import orders
from outrider.control.customer import OPERATOR, Customer
from outrider.control.job_events import JobEvent, follow
from outrider.control.job_progress import JobProgress, progress_of
from outrider.control.orders import FINGERPRINT, OrderRefused
from outrider.crawler.page_lines import PageLine
from outrider.crawler.settled_pages import SettledPages
from outrider.model.errors import JobConflict, UnknownCrawl, shown
from outrider.model.job import Job, JobFilter, JobPage, JobRequest, JobSort, JobTransition, PendingWork, UnknownJob
from outrider.model.machines import DesiredState, JobStatus
from outrider.model.order import JobOrder, OrderLimits
from outrider.model.task import NEVER, Counts, Kind
from outrider.store.opening import Stores

SETTLING_S: Final = 0.02
SETTLING_PATIENCE_S: Final = 10.0
"""How long results wait for a page that another connection is about to write; it comes with the next request."""

ALL_JOBS: Final = JobFilter()


class IdempotencyConflict(JobConflict):
    """An idempotency key was used before, for another request."""

    def __init__(self, key: str, job_id: str) -> None:
        super().__init__(f"the idempotency key {key!r} was used before, for another request: it made job {job_id}")


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job and what became of it, from its submission on."""

    job: Job
    history: list[JobTransition]


class JobDesk(Protocol):
    """Where jobs are submitted and followed. Every method on one job raises `UnknownJob` where there is none."""

    async def submit(
        self,
        order: JobOrder,
        *,
        crawl: str | None = None,
        priority: int = 0,
        max_retries: int = 3,
        source_id: str | None = None,
        labels: Mapping[str, str] = ...,
        webhook_url: str | None = None,
        webhook_secret: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Queue a job; the same request again, by its idempotency key, gives the same job.

        Raises `InvalidInput` for an order that makes no sense, `JobConflict` where the crawl has a live job and
        `QuotaExceeded`.
        """
        ...

    async def list(
        self,
        which: JobFilter = ...,
        *,
        sort: JobSort = JobSort.NEWEST,
        cursor: str | None = None,
        limit: int = 100,
    ) -> JobPage:
        """List jobs page by page; a page may be short and still have a cursor."""
        ...

    async def show(self, job_id: str) -> JobView:
        """Show a job with its history."""
        ...

    async def progress(self, job_id: str) -> JobProgress:
        """Tell how far a job has come."""
        ...

    def events(self, job_id: str, *, after: int = 0) -> AsyncIterator[JobEvent]:
        """Follow a job from the step after this one until it has ended: every step once, in order."""
        ...

    def results(self, job_id: str, *, after_id: int = 0) -> AsyncIterator[Mapping[str, object]]:
        """Give the pages that a job has so far, after this one: the lines that `outrider export` writes."""
        ...

    async def pause(self, job_id: str) -> Job:
        """Ask a job to pause."""
        ...

    async def resume(self, job_id: str) -> Job:
        """Ask a paused job to go on where it was."""
        ...

    async def cancel(self, job_id: str) -> Job:
        """Ask a job to end."""
        ...

    async def retry(self, job_id: str, *, fresh: bool = False) -> Job:
        """Queue a failed job again: it goes on where it was, or anew."""
        ...

    async def amend(self, job_id: str, *, priority: int | None = None, limits: OrderLimits | None = None) -> Job:
        """Change a live job; what is left out stays, and None takes a limit away."""
        ...

    async def summary(self) -> PendingWork:
        """Sum up the work that all live jobs have before them."""
        ...

    async def close(self) -> None:
        """Let go of what is open."""
        ...


class LocalDesk:
    """A `JobDesk` over a store that is open; it belongs to whoever opened it."""

    def __init__(self, stores: Stores, customer: Customer = OPERATOR, *, allow_private: bool = False) -> None:
        self._urls = stores.urls
        self._control = stores.control
        self._customer = customer
        self._allow_private = allow_private

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Do nothing: the store is not the desk's."""

    async def submit(
        self,
        order: JobOrder,
        *,
        crawl: str | None = None,
        priority: int = 0,
        max_retries: int = 3,
        source_id: str | None = None,
        labels: Mapping[str, str] = {},
        webhook_url: str | None = None,
        webhook_secret: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Queue a job; the same request again, by its idempotency key, gives the same job."""
        customer = self._customer
        order = self._within_quota(orders.checked_order(order, allow_private=self._allow_private))
        orders.check_crawl(order, crawl)
        orders.check_labels(labels)
        orders.check_webhook(webhook_url, webhook_secret, allow_private=self._allow_private)
        if order.fresh and crawl is not None:
            await self._check_may_forget(crawl)
        request = JobRequest(
            payload=msgspec.to_builtins(order),
            crawl=crawl,
            priority=priority,
            max_retries=max_retries,
            source_id=source_id,
            user_id=customer.user_id,
            labels=labels,
            key_id=customer.key_id,
            webhook_url=webhook_url,
            webhook_secret=webhook_secret,
            idempotency_key=idempotency_key,
        )
        # Whoever changes to another key of the same owner still asks for the same.
        fingerprint = orders.fingerprint_of(msgspec.structs.replace(request, key_id=None))
        request = msgspec.structs.replace(request, payload={**request.payload, FINGERPRINT: fingerprint})
        job = await self._control.submit_job(request, quota=customer.quota, actor=customer.actor)
        if idempotency_key is not None and job.payload.get(FINGERPRINT, fingerprint) != fingerprint:
            raise IdempotencyConflict(idempotency_key, job.id)
        return job

    async def _check_may_forget(self, crawl: str) -> None:
        """Refuse to begin a crawl anew that others have filled: to delete theirs takes an operator."""
        if self._customer.sees_all:
            return
        latest = (await self._control.list_jobs(JobFilter(crawl=crawl), limit=1)).jobs
        if latest:
            is_own = self._customer.sees(latest[0])
        else:
            is_own = await self._is_new(crawl)
        if not is_own:
            raise OrderRefused("fresh", f"the crawl {shown(crawl)} is of others, and not for this key to begin anew")

    async def _is_new(self, crawl: str) -> bool:
        try:
            await self._urls.get_crawl(crawl)
        except UnknownCrawl:
            return True
        return False

    def _within_quota(self, order: JobOrder) -> JobOrder:
        """Give an order without a limit on pages the one of its key; raises `QuotaExceeded` where it asks for more."""
        most = self._customer.quota.max_pages_per_job
        if order.max_pages is None and most is not None:
            return msgspec.structs.replace(order, max_pages=most)
        self._customer.quota.check_pages(order.max_pages)
        return order

    async def list(
        self,
        which: JobFilter = ALL_JOBS,
        *,
        sort: JobSort = JobSort.NEWEST,
        cursor: str | None = None,
        limit: int = 100,
    ) -> JobPage:
        """List the jobs that the customer sees, page by page; a page may be short and still have a cursor."""
        customer = self._customer
        if not customer.sees_all:
            if which.user_id not in (None, customer.user_id):
                return JobPage(jobs=[], next_cursor=None)
            which = msgspec.structs.replace(which, user_id=customer.user_id)
        page = await self._control.list_jobs(which, sort=sort, cursor=cursor, limit=limit)
        return JobPage(jobs=[job for job in page.jobs if customer.sees(job)], next_cursor=page.next_cursor)

    async def show(self, job_id: str) -> JobView:
        """Show a job with its history."""
        job = await self._found(job_id)
        return JobView(job=job, history=await self._control.job_history(job.id))

    async def progress(self, job_id: str) -> JobProgress:
        """Tell how far a job has come."""
        job = await self._found(job_id)
        try:
            counts = (await self._urls.counts_by_kind(job.crawl)).get(Kind.PAGE, Counts())
        except UnknownCrawl:  # it is made when the job first runs
            counts = Counts()
        max_pages = job.payload.get("max_pages")
        return progress_of(job, counts, max_pages if isinstance(max_pages, int) else None)

    async def events(self, job_id: str, *, after: int = 0) -> AsyncIterator[JobEvent]:
        """Follow a job from the step after this one until it has ended: every step once, in order."""
        job = await self._found(job_id)
        async for event in follow(self._control, job, after, lambda: self.progress(job.id)):
            yield event

    async def results(self, job_id: str, *, after_id: int = 0) -> AsyncIterator[Mapping[str, object]]:
        """Give the pages that a job has so far, after this one: the lines that `outrider export` writes."""
        async for lines in self.pages(job_id, after_id=after_id):
            for line in lines:
                yield msgspec.to_builtins(line)

    async def pages(self, job_id: str, *, after_id: int = 0) -> AsyncIterator[Sequence[PageLine]]:
        """Give the same many at a time, as far as they are settled."""
        job = await self._found(job_id)
        pages = SettledPages(self._urls, job.crawl)
        try:
            pages.created_at = await self._began_at(job)
        except UnknownCrawl:
            return
        last_id = (await self._urls.artifact_horizon()).last_id
        position, until = after_id, time.monotonic() + SETTLING_PATIENCE_S
        while position < last_id:
            await pages.settle()
            if position < pages.settled:
                lines, position = await pages.read(position)
                if lines:
                    yield lines
                until = time.monotonic() + SETTLING_PATIENCE_S
            elif time.monotonic() > until:
                return
            else:
                await asyncio.sleep(SETTLING_S)

    async def _began_at(self, job: Job) -> int:
        """Tell from when on pages count: for a job that began afresh, those of its own run alone."""
        created_at = (await self._urls.get_crawl(job.crawl)).created_at
        if job.begins_afresh:
            return NEVER
        run = await self._control.get_run(job.run_id) if job.payload.get("fresh") and job.run_id else None
        return created_at if run is None else max(created_at, int(run.started_at.timestamp() * 1000))

    async def pause(self, job_id: str) -> Job:
        """Ask a job to pause."""
        return await self._wish(job_id, DesiredState.PAUSE)

    async def resume(self, job_id: str) -> Job:
        """Ask a paused job to go on where it was."""
        return await self._wish(job_id, DesiredState.RUN)

    async def cancel(self, job_id: str) -> Job:
        """Ask a job to end; one that is cancelled already is left as it is, so that asking again does no harm."""
        job = await self._found(job_id)
        return job if job.status is JobStatus.CANCELLED else await self._wish(job_id, DesiredState.CANCEL)

    async def _wish(self, job_id: str, desired: DesiredState) -> Job:
        job = await self._found(job_id)
        return await self._control.set_desired_state(job.id, desired, actor=self._customer.actor)

    async def retry(self, job_id: str, *, fresh: bool = False) -> Job:
        """Queue a failed job again: it goes on where it was, or anew."""
        job = await self._found(job_id)
        customer = self._customer
        if fresh:
            await self._check_may_forget(job.crawl)
        return await self._control.retry_job(job.id, fresh=fresh, quota=customer.quota, actor=customer.actor)

    async def amend(self, job_id: str, *, priority: int | None = None, limits: OrderLimits | None = None) -> Job:
        """Change a live job; what is left out stays, and None takes a limit away."""
        job = await self._found(job_id)
        if limits is not None:
            for field in limits.__struct_fields__:
                value = getattr(limits, field)
                if value is not msgspec.UNSET:
                    orders.check_bounds(field, value)
            if limits.max_pages is not msgspec.UNSET:
                self._customer.quota.check_pages(limits.max_pages)
        return await self._control.amend_job(job.id, priority=priority, limits=limits)

    async def summary(self) -> PendingWork:
        """Sum up the work that all live jobs have before them."""
        return await self._control.pending_work()

    async def _found(self, job_id: str) -> Job:
        job = await self._control.get_job(job_id)
        if job is None or not self._customer.sees(job):
            raise UnknownJob(job_id)
        return job
