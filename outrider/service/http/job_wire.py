"""The records of jobs that travel over HTTP. A job's webhook secret goes in and never comes out."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from outrider.model.job import Job, JobPage, JobSort, JobTransition
from outrider.model.machines import DesiredState, JobStatus
from outrider.model.order import JobOrder, OrderLimits
from outrider.service.http.wire import Name

MAX_PAGE: Final = 1_000


class JobBody(JobOrder, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job as it is submitted: the order, and what becomes of it besides."""

    crawl: Name | None = None
    """The crawl that it goes on with; null gives it one of its own."""
    priority: int = 0
    """Higher comes first."""
    max_retries: int = 3
    """Retries after the first run."""
    source_id: Name | None = None
    labels: dict[str, str] = {}
    webhook_url: str | None = None
    """Told when the job has ended, by a POST."""
    webhook_secret: str | None = None
    """What that is signed with."""

    def order(self) -> JobOrder:
        """Take the order out of it."""
        return JobOrder(**{name: getattr(self, name) for name in JobOrder.__struct_fields__})


class JobItem(msgspec.Struct, frozen=True, kw_only=True):
    """A job and how far it has come."""

    id: str
    crawl: str
    order: JobOrder | None
    """Null where another program has submitted something else."""
    status: JobStatus
    """What is true."""
    desired_state: DesiredState
    """What was asked for."""
    priority: int
    progress_percentage: int
    reason: str | None
    """How a completed job ended: `drained`, `limit` or `waiting`."""
    error_kind: str | None
    error_message: str | None
    retry_count: int
    max_retries: int
    created_at: datetime
    available_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    updated_at: datetime
    last_heartbeat: datetime | None
    worker_id: str | None
    epoch: int
    run_id: str | None
    user_id: str | None
    key_id: str | None
    source_id: str | None
    labels: dict[str, str]
    webhook_url: str | None
    progress: dict[str, object] | None
    """What its runner last said."""


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a listing, and where the next one starts."""

    jobs: list[JobItem]
    next_cursor: str | None


class JobHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A job and what became of it, from its submission on."""

    job: JobItem
    history: list[JobTransition]


class AmendBody(OrderLimits, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to change of a live job: what is left out stays, and null takes a limit away."""

    priority: int | UnsetType = UNSET

    def limits(self) -> OrderLimits | None:
        """Take the limits out of it; None where it has none."""
        given = {name: getattr(self, name) for name in OrderLimits.__struct_fields__}
        return None if all(value is UNSET for value in given.values()) else OrderLimits(**given)


class JobQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which jobs to list."""

    status: JobStatus | None = None
    crawl: str | None = None
    user_id: str | None = None
    source_id: str | None = None
    label: Annotated[str, Meta(pattern="=")] | None = None
    """A name and the value that it must have: `team=news`."""
    sort: JobSort = JobSort.NEWEST
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100


class RetryQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to retry a job."""

    fresh: bool = False
    """Forget what the crawl knows, instead of going on where it was."""


class EventQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin."""

    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """The id of the last step that is known already; a header `last-event-id` goes before it."""


class ResultQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which results to give."""

    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """The id of the last page that is known already."""
    limit: Annotated[int, Meta(ge=1)] | None = None
    """At most so many; all without it."""


def job_item(job: Job) -> JobItem:
    """Write a job down for its user."""
    fields = {name: getattr(job, name) for name in JobItem.__struct_fields__ if name != "order"}
    return JobItem(order=_order_of(job), **fields)


def _order_of(job: Job) -> JobOrder | None:
    try:
        return msgspec.convert(job.payload, JobOrder)
    except msgspec.ValidationError:
        return None


def job_of(item: JobItem) -> Job:
    """Read a job, without what is told to nobody."""
    fields = {name: getattr(item, name) for name in JobItem.__struct_fields__ if name != "order"}
    payload: Mapping[str, object] = {} if item.order is None else msgspec.to_builtins(item.order)
    return Job(payload=payload, idempotency_key=None, webhook_secret=None, **fields)


def job_list(page: JobPage) -> JobList:
    """Write a page of a listing down."""
    return JobList(jobs=[job_item(job) for job in page.jobs], next_cursor=page.next_cursor)
