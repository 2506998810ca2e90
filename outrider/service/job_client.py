"""The desk behind a service: the same methods as the local one, over HTTP.

What only asks is sent again until it is answered, and so is what does no harm twice; a submission is known by an
idempotency key, which is made up where the caller has none. Streams that break go on after what has arrived.
"""

import ssl
import uuid
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote, urlencode

import msgspec

from outrider.control.desk import ALL_JOBS, JobView
from outrider.control.job_events import JobEvent
from outrider.control.job_progress import JobProgress
from outrider.model.errors import OutriderError, StoreUnavailable
from outrider.model.job import TERMINAL, Job, JobFilter, JobPage, JobSort, PendingWork
from outrider.model.order import JobOrder, OrderLimits
from outrider.service.connection import PATIENCE_S, Connection, Pauses
from outrider.service.http.endpoint import JSON_LINES
from outrider.service.http.event_stream import EVENT_STREAM, KEEP_ALIVE_S, lines_of, read_events
from outrider.service.http.job_wire import AmendBody, JobBody, JobHistory, JobItem, JobList, JobQuery, job_of
from outrider.service.http.jobs import IDEMPOTENCY_KEY, JOBS, LAST_EVENT_ID
from outrider.service.problems import RateExceeded

SILENCE_S: Final = 3 * KEEP_ALIVE_S
"""How long a stream may say nothing before it counts as broken."""


class RemoteDesk:
    """A `JobDesk` behind the service at `url`; use it as a context manager, or close it.

    async with RemoteDesk("https://frontier.example.org", key="outrider_…") as desk:
        job = await desk.submit(JobOrder(seeds=("https://example.org/",)))
    """

    def __init__(
        self, url: str, *, key: str | None = None, patience_s: float = PATIENCE_S, tls: ssl.SSLContext | None = None
    ) -> None:
        self._service = Connection(url, key=key, patience_s=patience_s, tls=tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

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
        body = JobBody(
            **{name: getattr(order, name) for name in JobOrder.__struct_fields__},
            crawl=crawl,
            priority=priority,
            max_retries=max_retries,
            source_id=source_id,
            labels=dict(labels),
            webhook_url=webhook_url,
            webhook_secret=webhook_secret,
        )
        headers = {IDEMPOTENCY_KEY: idempotency_key or str(uuid.uuid4())}
        return job_of(await self._service.call("POST", JOBS, JobItem, body, headers=headers))

    async def list(
        self,
        which: JobFilter = ALL_JOBS,
        *,
        sort: JobSort = JobSort.NEWEST,
        cursor: str | None = None,
        limit: int = 100,
    ) -> JobPage:
        """List jobs page by page; a page may be short and still have a cursor."""
        query = JobQuery(
            status=which.status,
            crawl=which.crawl,
            user_id=which.user_id,
            source_id=which.source_id,
            label=None if which.label is None else "=".join(which.label),
            sort=sort,
            cursor=cursor,
            limit=limit,
        )
        page = await self._service.call("GET", f"{JOBS}?{urlencode(msgspec.to_builtins(query))}", JobList)
        return JobPage(jobs=[job_of(item) for item in page.jobs], next_cursor=page.next_cursor)

    async def show(self, job_id: str) -> JobView:
        """Show a job with its history."""
        view = await self._service.call("GET", _job(job_id), JobHistory)
        return JobView(job=job_of(view.job), history=view.history)

    async def progress(self, job_id: str) -> JobProgress:
        """Tell how far a job has come."""
        return await self._service.call("GET", f"{_job(job_id)}/progress", JobProgress)

    async def events(self, job_id: str, *, after: int = 0) -> AsyncIterator[JobEvent]:
        """Follow a job from the step after this one until it has ended: every step once, in order."""
        pauses: Pauses | None = None
        while True:
            is_over, headers = False, {"accept": EVENT_STREAM, LAST_EVENT_ID: str(after)}
            try:
                async with self._service.stream(
                    f"{_job(job_id)}/events", silence_s=SILENCE_S, headers=headers
                ) as response:
                    if response.status == 204:
                        return
                    async for event in read_events(response.content.iter_any()):
                        pauses = None
                        if event.id is not None:
                            after, is_over = event.id, event.data.get("to_status") in TERMINAL
                        yield event
                if is_over:
                    return
                broken: OutriderError = StoreUnavailable(f"the service at {self._service.base} has ended its stream")
            except (StoreUnavailable, RateExceeded) as error:
                broken = error
            pauses = pauses or Pauses(self._service.patience_s)
            await pauses.after(broken)

    async def results(self, job_id: str, *, after_id: int = 0) -> AsyncIterator[Mapping[str, object]]:
        """Give the pages that a job has so far, after this one: the lines that `outrider export` writes."""
        pauses: Pauses | None = None
        while True:
            path = f"{_job(job_id)}/results?after={after_id}"
            try:
                async with self._service.stream(path, silence_s=SILENCE_S, headers={"accept": JSON_LINES}) as response:
                    async for line in lines_of(response.content.iter_any()):
                        page = msgspec.json.decode(line, type=dict[str, object])
                        after_id, pauses = int(str(page["id"])), None
                        yield page
                return
            except (StoreUnavailable, RateExceeded) as error:
                pauses = pauses or Pauses(self._service.patience_s)
                await pauses.after(error)

    async def pause(self, job_id: str) -> Job:
        """Ask a job to pause."""
        return await self._asked(job_id, "pause")

    async def resume(self, job_id: str) -> Job:
        """Ask a paused job to go on where it was."""
        return await self._asked(job_id, "resume")

    async def cancel(self, job_id: str) -> Job:
        """Ask a job to end."""
        return await self._asked(job_id, "cancel")

    async def retry(self, job_id: str, *, fresh: bool = False) -> Job:
        """Queue a failed job again: it goes on where it was, or anew."""
        return await self._asked(job_id, "retry?fresh=true" if fresh else "retry")

    async def _asked(self, job_id: str, wish: str) -> Job:
        return job_of(await self._service.call("POST", f"{_job(job_id)}/{wish}", JobItem))

    async def amend(self, job_id: str, *, priority: int | None = None, limits: OrderLimits | None = None) -> Job:
        """Change a live job; what is left out stays, and None takes a limit away."""
        given = {} if limits is None else {name: getattr(limits, name) for name in limits.__struct_fields__}
        body = AmendBody(**given, priority=msgspec.UNSET if priority is None else priority)
        return job_of(await self._service.call("PATCH", _job(job_id), JobItem, body))

    async def summary(self) -> PendingWork:
        """Sum up the work that all live jobs have before them."""
        return await self._service.call("GET", "/v1/summary", PendingWork)


def _job(job_id: str) -> str:
    # A name of dots alone would be taken for a step in the path.
    return f"{JOBS}/{quote(job_id, safe='').replace('.', '%2E') or '%20'}"
