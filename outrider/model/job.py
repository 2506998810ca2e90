"""Jobs, the runs that execute them, the workers that do, and the messages that tell of it."""

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from outrider.model.errors import OutriderError, StoreError
from outrider.model.machines import DesiredState, JobStatus
from outrider.model.task import CrawlState

STALE_AFTER_MS: Final = 120_000
"""A job that was not beaten for so long has lost its runner."""

MAX_JSON_BYTES: Final = 1 << 20

WATCHDOG: Final = "watchdog"
"""The actor of a recovery; no worker may have this name."""

TIMED_OUT: Final = "worker timed out"

WEBHOOK_TOPIC: Final = "job-webhook"
"""The topic of the messages that tell a job's webhook of its end."""

TERMINAL: Final = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED})
"""States that only an explicit retry leaves."""

CRAWL_STATES: Final = {
    DesiredState.RUN: CrawlState.RUNNING,
    DesiredState.PAUSE: CrawlState.PAUSED,
    DesiredState.CANCEL: CrawlState.CANCELLED,
}
"""What a user's wish for a job makes of its crawl, so that `lease` obeys at once."""


class UnknownJob(OutriderError):
    """There is no job with this id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id:.100}")
        self.job_id = job_id


class UnknownRun(OutriderError):
    """There is no run with this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id:.100}")
        self.run_id = run_id


class MixedModes(StoreError):
    """Workers with and workers without domain claims must not share a store."""


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A person's request for a crawl."""

    payload: Mapping[str, object]
    """What to crawl and how, as the runner reads it."""
    crawl: str | None = None
    """None gives the job a crawl of its own, named by its id."""
    priority: int = 0
    """Higher comes first."""
    max_retries: int = 3
    """Retries after the first run."""
    delay_ms: int = 0
    source_id: str | None = None
    user_id: str | None = None
    idempotency_key: str | None = None
    """The same user's second request with this key gives the first one's job."""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    key_id: str | None = None
    """The API key that submits it, whose quotas it counts for."""
    webhook_url: str | None = None
    """Where to tell of its end."""
    webhook_secret: str | None = None
    """What that is signed with; it is shown to nobody."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a crawl and how far it has come."""

    id: str
    crawl: str
    payload: Mapping[str, object]
    priority: int
    status: JobStatus
    """What is true."""
    desired_state: DesiredState
    """What the user asked for."""
    epoch: int
    """How often it was claimed; fences off every earlier runner."""
    worker_id: str | None
    run_id: str | None
    progress_percentage: int
    progress: Mapping[str, object] | None
    created_at: datetime
    available_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    last_heartbeat: datetime | None
    retry_count: int
    max_retries: int
    error_message: str | None
    error_kind: str | None
    source_id: str | None
    user_id: str | None
    idempotency_key: str | None
    labels: Mapping[str, str]
    key_id: str | None
    webhook_url: str | None
    webhook_secret: str | None
    reason: str | None
    """How a completed job ended: `drained`, `limit` or `waiting`."""
    updated_at: datetime
    """When its status, what the user asks for, its priority or its limits changed last; a beat is no change."""

    def __repr__(self) -> str:
        """Say which job it is, and not what its webhook is signed with: that must get into no log."""
        return f"Job(id={self.id!r}, crawl={self.crawl!r}, status={self.status.value!r}, epoch={self.epoch})"

    @property
    def retries_left(self) -> bool:
        """Whether one more run may follow."""
        return self.retry_count < self.max_retries

    @property
    def begins_afresh(self) -> bool:
        """Whether what its crawl knows is to be forgotten before its run is opened."""
        return self.payload.get("fresh") is True and self.run_id is None


_RUNNER: Final = re.compile(r"job-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-([0-9]{1,18})", re.ASCII)


def runner_name(job_id: str, epoch: int) -> str:
    """Name the worker that leases for one epoch of a job: when the epoch ends, so do the leases of this name."""
    return f"job-{job_id}-{epoch}"


def epoch_of_runner(worker: str) -> tuple[str, int] | None:
    """Read the job and the epoch from the name of a worker; None where it is not a runner's.

    >>> epoch_of_runner("job-0190c8a0-0000-7000-8000-000000000001-3"), epoch_of_runner("job-seeker")
    (('0190c8a0-0000-7000-8000-000000000001', 3), None)
    """
    found = _RUNNER.fullmatch(worker)
    return (found[1], int(found[2])) if found else None


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs a listing is about; None means any."""

    status: JobStatus | None = None
    crawl: str | None = None
    user_id: str | None = None
    source_id: str | None = None
    label: tuple[str, str] | None = None
    """A name and the value that it must have."""


class JobSort(StrEnum):
    """The order of a listing."""

    NEWEST = "newest"
    OLDEST = "oldest"
    PRIORITY = "priority"
    """The highest first, and of those alike the oldest."""
    UPDATED = "updated"
    """What changed last comes first."""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a listing, and where the next one starts."""

    jobs: list[Job]
    next_cursor: str | None


class PendingWork(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is to do, over all jobs that have not ended."""

    jobs: Mapping[JobStatus, int]
    """Jobs by status, the ended ones too."""
    total_pending: int
    """URLs that wait or are in flight."""
    total_assigned: int


class JobEnding(msgspec.Struct, frozen=True, kw_only=True):
    """How a runner leaves its job."""

    outcome: JobStatus
    """`pending` asks for another run after an error that may pass, which costs a retry. `paused` says
    that the runner stopped in order: for a user who asked for that, or else for the next runner."""
    reason: str | None = None
    """Why the runner takes the crawl for complete. The store looks for itself, and writes down what it finds."""
    error_kind: str | None = None
    error_message: str | None = None
    retry_in_ms: int = 0
    max_wait_ms: int = 900_000
    """A crawl is not complete while something of it can become ready within so long."""


class JobTransition(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a job's history."""

    job_id: str
    sequence: int
    """Grows within a job, and no two rows ever have the same."""
    from_status: JobStatus | None
    to_status: JobStatus
    epoch: int
    actor: str
    note: str | None
    at: datetime


def status_after_run(job: Job, outcome: JobStatus) -> JobStatus:
    """Decide where a job goes when its runner leaves it.

    What the user asked for wins over another run, and a cancel over a failure as well; what is
    completed stays completed.
    """
    if outcome is JobStatus.PENDING:
        return status_after_silence(job)
    if outcome is JobStatus.PAUSED and job.desired_state is DesiredState.RUN:
        return JobStatus.PENDING
    if outcome in (JobStatus.PAUSED, JobStatus.FAILED) and job.desired_state is DesiredState.CANCEL:
        return JobStatus.CANCELLED
    return outcome


def status_after_silence(job: Job) -> JobStatus:
    """Decide where a job goes whose runner can do no more for it."""
    match job.desired_state:
        case DesiredState.CANCEL:
            return JobStatus.CANCELLED
        case DesiredState.PAUSE:
            return JobStatus.PAUSED
        case DesiredState.RUN:
            return JobStatus.PENDING if job.retries_left else JobStatus.FAILED


def status_after_wish(job: Job, desired: DesiredState) -> JobStatus:
    """Decide where a job goes when its user wishes something; while it runs, its runner obeys."""
    if job.status is JobStatus.PROCESSING:
        return JobStatus.PROCESSING
    match desired:
        case DesiredState.CANCEL:
            return JobStatus.CANCELLED
        case DesiredState.PAUSE:
            return JobStatus.PAUSED
        case DesiredState.RUN:
            return JobStatus.PENDING


class RunKind(StrEnum):
    """What a run executes."""

    CRAWL = "crawl"
    JOB = "job"
    REFRESH = "refresh"


class RunStatus(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a job or of a `crawl` command; it survives recoveries."""

    id: str
    crawl: str
    job_id: str | None
    kind: RunKind
    status: RunStatus
    reason: str | None
    settings: Mapping[str, object]
    started_at: datetime
    finished_at: datetime | None


class WorkerKind(StrEnum):
    """What a registered process does."""

    WORKER = "worker"
    RUNNER = "runner"
    SUPERVISOR = "supervisor"


class WorkerMode(StrEnum):
    """Whether a worker leases only domains that it has claimed."""

    PLAIN = "plain"
    CLAIMS = "claims"


class WorkerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What a process says of itself when it registers."""

    worker_id: str
    kind: WorkerKind
    mode: WorkerMode
    host: str
    process_id: int
    lock_path: str | None = None
    """A file that it keeps locked while it lives."""


class Worker(WorkerIdentity, frozen=True, kw_only=True):
    """A registered process; the registration expires with its beat."""

    started_at: datetime
    last_beat_at: datetime
    expires_at: datetime


class OutboxMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be told to the outside, after the transaction that makes it true."""

    topic: str
    ordering_key: str
    """Messages that share it are delivered in the order in which they were appended."""
    payload: Mapping[str, object]


class StoredMessage(OutboxMessage, frozen=True, kw_only=True):
    """A message in the outbox."""

    id: str
    """The same at every delivery, so that a receiver knows a message that comes twice."""
    sequence: int
    """Its place in the order of all messages."""
    created_at: datetime
    attempts: int
    """How often it was taken for delivery."""
    next_attempt_at: datetime
    last_error: str | None
    delivered_at: datetime | None


class TopicBacklog(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in the outbox for one topic."""

    topic: str
    number: int
    failing: int
    """How many of them could not be delivered the last time."""
    oldest: datetime


class CrawlProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How much a crawl has done and has to do: a row of `crawl_states`."""

    crawl: str
    state: CrawlState
    job_id: str | None
    """Its latest job."""
    total_discovered: int
    total_pending: int
    """What waits and what is in flight."""
    total_assigned: int
    total_completed: int
    total_failed: int
