"""What `ControlStore` on SQL does for jobs: checks what comes in, and has an engine run the scripts."""

import random
from collections.abc import Mapping, Sequence

from outrider.model.errors import InvalidInput, shown
from outrider.model.identifiers import new_uuid7
from outrider.model.job import (
    STALE_AFTER_MS,
    WATCHDOG,
    Job,
    JobEnding,
    JobFilter,
    JobPage,
    JobRequest,
    JobSort,
    JobTransition,
    PendingWork,
)
from outrider.model.machines import DesiredState, JobStatus
from outrider.model.order import OrderLimits
from outrider.model.quota import JobQuota
from outrider.model.schedule import LONGEST_EVERY_MS, SHORTEST_EVERY_MS, Schedule, UnknownSchedule
from outrider.model.settings import Settings
from outrider.model.task import MAX_BATCH
from outrider.store.checks import (
    LARGEST,
    check_batch,
    check_choice,
    check_name,
    check_now,
    check_number,
    check_record,
    check_span,
    check_text,
    readable_uuid,
)
from outrider.store.sql.control import job_changes, job_listing, jobs, schedules
from outrider.store.sql.control.checks import (
    check_filter,
    check_job_id,
    check_limits,
    check_quota,
    check_request,
)
from outrider.store.sql.control.rows import as_json
from outrider.store.sql.engine import Engine

PAGE = 100
ANY_JOB = JobFilter()
FIRST_TASK = ("", b"")


class SqlJobStore:
    """Jobs on an SQL engine."""

    def __init__(self, engine: Engine, settings: Settings | None = None) -> None:
        self._engine = engine
        self._settings = settings or Settings()

    def _context(self, now: int | None) -> jobs.Context:
        return jobs.Context(self._settings, self._slot(), now)

    def _slot(self) -> int:
        return random.randrange(self._engine.slots)

    async def submit_job(
        self,
        request: JobRequest,
        *,
        quota: JobQuota | None = None,
        actor: str | None = None,
        now: int | None = None,
    ) -> Job:
        """Queue a job, or find the one that was queued under the same idempotency key."""
        check_record(request, "request", JobRequest)
        check_request(request)
        if quota is not None:
            check_record(quota, "quota", JobQuota)
            check_quota(quota)
        submission = jobs.Submission(
            job_id=new_uuid7(),
            request=request,
            payload=as_json(request.payload, "the payload of a job"),
            labels=as_json(request.labels, "the labels of a job"),
            actor=check_name(actor or request.user_id or "user", "actor"),
            quota=quota,
        )
        return await self._engine.write(lambda: jobs.submit(submission, now))

    async def get_job(self, job_id: str) -> Job | None:
        """Read a job."""
        readable = readable_uuid(job_id)
        return None if readable is None else await self._engine.read(lambda: job_listing.find(readable))

    async def list_jobs(
        self,
        which: JobFilter = ANY_JOB,
        *,
        sort: JobSort = JobSort.NEWEST,
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> JobPage:
        """List jobs page by page."""
        check_record(which, "which", JobFilter)
        check_filter(which)
        order = check_choice(sort, "sort", JobSort)
        check_number(limit, "limit", 1, MAX_BATCH)
        start = job_listing.place_of(cursor, order)
        return await self._engine.read(lambda: job_listing.listed(which, order, start, limit))

    async def job_history(self, job_id: str) -> list[JobTransition]:
        """Read what became of a job, from its submission on."""
        return await self.job_events(job_id, limit=MAX_BATCH)

    async def job_events(self, job_id: str, *, after: int = 0, limit: int = PAGE) -> list[JobTransition]:
        """Read what became of a job after one of its steps."""
        readable = check_job_id(job_id)
        check_number(after, "after", 0, 2**63 - 1)
        check_number(limit, "limit", 1, MAX_BATCH)
        return await self._engine.read(lambda: job_listing.history(readable, after, limit))

    async def job_counts(self) -> dict[JobStatus, int]:
        """Count jobs by status."""
        return await self._engine.read(job_listing.counts)

    async def pending_work(self) -> PendingWork:
        """Sum up what there is to do over all jobs that have not ended."""
        return await self._engine.read(job_listing.pending_work)

    async def desired_states(self, jobs: Sequence[tuple[str, int]]) -> dict[str, DesiredState | None]:
        """Hear what the users of many jobs want, each under its epoch."""
        check_batch(jobs, "jobs")
        for each in jobs:
            if not isinstance(each, tuple) or len(each) != 2:
                raise InvalidInput(f"a job is named by its id and epoch, not {shown(each)}")
        readable = [(check_job_id(job_id), check_number(epoch, "epoch", 0, LARGEST)) for job_id, epoch in jobs]
        if not readable:
            return {}
        return await self._engine.read(lambda: job_listing.desired_states(readable))

    async def job_news(self, timeout_s: float) -> bool:
        """Wait until somebody submits a job or asks something of one, or until the time is over."""
        return await self._engine.hear_of_jobs(timeout_s)

    async def claim_job(self, worker: str, *, now: int | None = None) -> Job | None:
        """Take the first job that is due; the caller runs it under its epoch."""
        if check_name(worker, "worker") == WATCHDOG:
            raise InvalidInput(f"no worker may be named {WATCHDOG!r}")
        earlier: list[Job] = []
        return await self._engine.write(lambda: jobs.claim(worker, now, earlier))

    async def beat_job(
        self,
        job_id: str,
        epoch: int,
        *,
        percentage: int | None = None,
        progress: Mapping[str, object] | None = None,
        now: int | None = None,
    ) -> DesiredState | None:
        """Say that a job's runner lives; hear what the user wants, or None where the job is lost."""
        readable = check_job_id(job_id)
        check_number(epoch, "epoch", 0, LARGEST)
        if percentage is not None:
            check_number(percentage, "percentage", 0, 100)
        check_now(now)
        encoded = None if progress is None else as_json(progress, "progress")
        return await self._engine.write(lambda: jobs.beat(readable, epoch, percentage, encoded, now))

    async def forget_tasks(self, job_id: str, epoch: int, *, now: int | None = None) -> int:
        """Forget what the crawl of a job knows, chunk by chunk."""
        readable = check_job_id(job_id)
        check_number(epoch, "epoch", 0, LARGEST)
        context = self._context(now)
        begun = await self._engine.write(lambda: job_changes.begin_to_forget(readable, epoch, context))
        forgotten = 0
        place: job_changes.Place | None = FIRST_TASK if begun else None
        while place is not None:
            number, place = await self._forget_chunk(readable, epoch, place)
            forgotten += number
        await self._engine.write(lambda: job_changes.end_forgetting(readable, epoch))
        return forgotten

    async def _forget_chunk(
        self, job_id: str, epoch: int, place: job_changes.Place
    ) -> tuple[int, job_changes.Place | None]:
        slot = self._slot()
        return await self._engine.write(lambda: job_changes.forget(job_id, epoch, place, slot))

    async def finish_job(self, job_id: str, epoch: int, ending: JobEnding, *, now: int | None = None) -> Job:
        """End an epoch of a job; raises `JobConflict` where it is not the live one."""
        readable = check_job_id(job_id)
        check_number(epoch, "epoch", 0, LARGEST)
        check_record(ending, "ending", JobEnding)
        check_choice(ending.outcome, "outcome", JobStatus)
        check_text(ending.reason, "reason")
        check_text(ending.error_kind, "error_kind")
        check_text(ending.error_message, "error_message")
        check_span(ending.retry_in_ms, "retry_in_ms")
        check_span(ending.max_wait_ms, "max_wait_ms")
        context = self._context(now)
        return await self._engine.write(lambda: jobs.finish(readable, epoch, ending, context))

    async def set_desired_state(
        self, job_id: str, desired: DesiredState, *, actor: str = "user", now: int | None = None
    ) -> Job:
        """Ask a job to run, pause or cancel; its crawl follows at once."""
        readable = check_job_id(job_id)
        wish = check_choice(desired, "desired", DesiredState)
        check_name(actor, "actor")
        context = self._context(now)
        return await self._engine.write(lambda: jobs.set_desired_state(readable, wish, actor, context))

    async def retry_job(
        self,
        job_id: str,
        *,
        fresh: bool = False,
        quota: JobQuota | None = None,
        actor: str = "user",
        now: int | None = None,
    ) -> Job:
        """Queue a failed job again."""
        readable = check_job_id(job_id)
        check_name(actor, "actor")
        if quota is not None:
            check_quota(quota)
        wish = jobs.Retry(actor=actor, fresh=fresh, quota=quota)
        earlier: list[int] = []
        return await self._engine.write(lambda: jobs.retry(readable, wish, now, earlier))

    async def amend_job(
        self,
        job_id: str,
        *,
        priority: int | None = None,
        limits: OrderLimits | None = None,
        now: int | None = None,
    ) -> Job:
        """Change a live job's priority and limits, and those of its crawl."""
        readable = check_job_id(job_id)
        if priority is not None:
            check_number(priority, "priority", -LARGEST, LARGEST)
        if limits is not None:
            check_record(limits, "limits", OrderLimits)
            check_limits(limits)
        slot = self._slot()
        return await self._engine.write(lambda: job_changes.amend(readable, priority, limits, now, slot))

    async def recover_stale_jobs(
        self, *, stale_after_ms: int = STALE_AFTER_MS, limit: int = PAGE, now: int | None = None
    ) -> list[Job]:
        """Take jobs from runners that fell silent, each in a transaction of its own."""
        check_span(stale_after_ms, "stale_after_ms")
        check_number(limit, "limit", 1, MAX_BATCH)
        recovered: list[Job] = []
        while len(recovered) < limit:
            context = self._context(now)
            job = await self._recover_one(stale_after_ms, context)
            if job is None:
                break
            recovered.append(job)
        return recovered

    async def _recover_one(self, stale_after_ms: int, context: jobs.Context) -> Job | None:
        return await self._engine.write(lambda: jobs.recover_one(stale_after_ms, context))

    # schedules

    async def put_schedule(self, request: JobRequest, *, every_ms: int, now: int | None = None) -> Schedule:
        """Have a request submitted at once, and again and again after so long."""
        check_record(request, "request", JobRequest)
        check_request(request)
        check_number(every_ms, "every_ms", SHORTEST_EVERY_MS, LONGEST_EVERY_MS)
        schedule_id = new_uuid7()
        return await self._engine.write(lambda: schedules.put(schedule_id, request, every_ms, now))

    async def list_schedules(self) -> list[Schedule]:
        """List all schedules by crawl."""
        return await self._engine.read(schedules.listed)

    async def remove_schedule(self, schedule_id: str) -> None:
        """Remove a schedule, not the jobs that came of it."""
        readable = readable_uuid(schedule_id)
        if readable is None:
            raise UnknownSchedule(schedule_id)
        await self._engine.write(lambda: schedules.remove(readable))

    async def submit_due(self, *, most: int = PAGE, now: int | None = None) -> list[Job]:
        """Submit what schedules have due, each once however many look."""
        check_number(most, "most", 1, MAX_BATCH)
        return await self._engine.write(lambda: schedules.submit_due(most, now))
