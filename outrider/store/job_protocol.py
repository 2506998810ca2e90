"""What a control plane must be able to do for jobs.

Every write that a runner's supervisor makes names the epoch that it was given by `claim_job`: under an
epoch that has ended it is refused and changes nothing. Whenever an epoch ends, all leases of
`runner_name(job_id, epoch)` end in the same transaction, as if they had expired.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from outrider.model.job import (
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
from outrider.model.schedule import Schedule


class JobStore(Protocol):
    """Jobs: submitting, claiming, beating, ending and recovering them."""

    async def submit_job(
        self,
        request: JobRequest,
        *,
        quota: JobQuota | None = None,
        actor: str | None = None,
        now: int | None = None,
    ) -> Job:
        """Queue a job, or find the one that was queued under the same idempotency key.

        Raises `JobConflict` where another live job has the crawl, and `QuotaExceeded` where the key that
        submits it has used up its quota of active jobs or of jobs a day.
        """
        ...

    async def get_job(self, job_id: str) -> Job | None:
        """Read a job."""
        ...

    async def list_jobs(
        self, which: JobFilter = ..., *, sort: JobSort = ..., cursor: str | None = None, limit: int = ...
    ) -> JobPage:
        """List jobs page by page; a cursor is good for the order that it came from."""
        ...

    async def job_history(self, job_id: str) -> list[JobTransition]:
        """Read what became of a job, from its submission on."""
        ...

    async def job_events(self, job_id: str, *, after: int = 0, limit: int = ...) -> list[JobTransition]:
        """Read what became of a job after the step with this sequence number, the earliest first."""
        ...

    async def job_counts(self) -> dict[JobStatus, int]:
        """Count jobs by status, every status named."""
        ...

    async def pending_work(self) -> PendingWork:
        """Sum up what there is to do over all jobs that have not ended, without looking at tasks."""
        ...

    async def desired_states(self, jobs: Sequence[tuple[str, int]]) -> dict[str, DesiredState | None]:
        """Hear what the users of many jobs want, each under its epoch; None for a job that is lost."""
        ...

    async def job_news(self, timeout_s: float) -> bool:
        """Wait until somebody submits a job or asks something of one, or until the time is over.

        It is a hint: news may be missed, and where nobody tells them it is the time-out alone.
        """
        ...

    async def claim_job(self, worker: str, *, now: int | None = None) -> Job | None:
        """Take the first job that is due; the caller runs it under its epoch."""
        ...

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
        ...

    async def forget_tasks(self, job_id: str, epoch: int, *, now: int | None = None) -> int:
        """Forget what the crawl of a job knows, but not its gates, chunk by chunk; tell how many tasks.

        For a job that `begins_afresh`, before its run is opened: cut off, it can be done again from the start.
        """
        ...

    async def finish_job(self, job_id: str, epoch: int, ending: JobEnding, *, now: int | None = None) -> Job:
        """End an epoch of a job; raises `JobConflict` where it is not the live one.

        Said again by the same runner, it changes nothing and gives the job as it is. A job is completed only
        where its crawl is: else `JobUnfinished` is raised, and the runner goes on under its epoch.
        """
        ...

    async def set_desired_state(
        self, job_id: str, desired: DesiredState, *, actor: str = "user", now: int | None = None
    ) -> Job:
        """Ask a job to run, pause or cancel; its crawl follows at once, and so does a job that nobody runs.

        A cancel ends all leases of the crawl, whoever holds them; a pause leaves them. Raises `JobConflict`
        where the job has ended or is being cancelled.
        """
        ...

    async def retry_job(
        self,
        job_id: str,
        *,
        fresh: bool = False,
        quota: JobQuota | None = None,
        actor: str = "user",
        now: int | None = None,
    ) -> Job:
        """Queue a failed job again with all its retries; raises `JobConflict` where it has not failed.

        It goes on where it was; where it is to be fresh, it `begins_afresh`. Raises `QuotaExceeded` where its
        key has as many active jobs as it may.
        """
        ...

    async def amend_job(
        self,
        job_id: str,
        *,
        priority: int | None = None,
        limits: OrderLimits | None = None,
        now: int | None = None,
    ) -> Job:
        """Change a live job's priority and limits, and those of its crawl; raises `JobConflict` where it has ended.

        What a raised limit allows is ready at once.
        """
        ...

    async def recover_stale_jobs(
        self, *, stale_after_ms: int = ..., limit: int = ..., now: int | None = None
    ) -> list[Job]:
        """Take jobs from runners that fell silent; what the user asked for wins over another run."""
        ...

    async def put_schedule(self, request: JobRequest, *, every_ms: int, now: int | None = None) -> Schedule:
        """Have a request submitted at once, and again and again after so long.

        Without a crawl it gets one of its own, the same each time. Raises `JobConflict` where the crawl has a schedule.
        """
        ...

    async def list_schedules(self) -> list[Schedule]:
        """List all schedules by crawl."""
        ...

    async def remove_schedule(self, schedule_id: str) -> None:
        """Remove a schedule, not the jobs that came of it; raises `UnknownSchedule`."""
        ...

    async def submit_due(self, *, most: int = ..., now: int | None = None) -> list[Job]:
        """Submit what schedules have due, each once however many look; tell which jobs came of it."""
        ...
