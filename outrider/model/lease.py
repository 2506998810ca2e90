"""A lease, the reports that end it, and the answers."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NewType

import msgspec

from outrider.model.artifact import Fetch
from outrider.model.gate import Robots
from outrider.model.task import Discovered, DiscoveryType, Kind, Refusal

Token = NewType("Token", str)
"""Names one lease; 32 hexadecimal digits of a UUIDv7, never used twice."""


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's wish for work. Asked again with the same `request_id`, it gives the same leases."""

    worker: str
    request_id: str
    slots: int
    crawl: str | None = None
    """None means any running crawl, in rotation."""
    run_id: str | None = None
    lease_ms: int | None = None
    """None means the setting `CRASH_THRESHOLD`."""
    max_per_queue: int | None = None
    """At most this many from one queue in one answer; the gate's concurrency binds as well."""
    scheduled: bool = False
    """The run is scheduled from the domains table: what a domain may have of one run (`max_pages_per_run`) binds it."""
    fair: bool = False
    """Share what is left of a small `max_pages` fairly among the crawl's queues."""
    claims: bool = False
    """Take only from domains on which this worker has a live claim; such a run is scheduled from their table."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to fetch one task, with all that the fetch needs."""

    token: Token
    crawl: str
    key: str
    url: str
    domain: str
    kind: Kind
    depth: int
    priority: int
    attempt: int
    discovery_type: DiscoveryType
    lease_ms: int
    etag: str | None = None
    last_modified: str | None = None
    digest: str | None = None
    """Of the body that the last fetch brought, for a worker to compare with."""
    similarity: int | None = None
    robots_version: str | None = None
    metadata: Mapping[str, object] | None = None


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the lease of a task."""

    worker: str
    granted_at: int
    last_heartbeat: int
    expires_at: int


class NoWork(StrEnum):
    """Why a lease answer is shorter than was asked for."""

    WAITING = "waiting"
    """Nothing is ready at this moment; `next_ready_at` says when something may be."""
    LIMIT = "limit"
    """The crawl's page limit is reached."""
    PAUSED = "paused"
    CANCELLED = "cancelled"


class LeaseGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `LeaseRequest`."""

    leases: list[Lease]
    next_ready_at: int | None
    """A lower bound for when more may be ready; None where nothing is known to come."""
    no_work: NoWork | None = None


class Outcome(StrEnum):
    """What a worker says of a lease."""

    DONE = "done"
    FAILED = "failed"
    """Charged: counts towards `MAX_RETRIES`."""
    DEFERRED = "deferred"
    """Not charged: the site or the worker asks to come back later."""
    REFUSED = "refused"
    """Nothing will ever be fetched: robots, private address, self-redirect."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one lease, with everything found on the page."""

    token: Token
    outcome: Outcome
    fetch: Fetch = Fetch()
    links: list[Discovered] = []
    reason: str | None = None
    retry_after_ms: int | None = None
    """What the site asked for (`Retry-After`), or the worker's own wish."""
    backs_off: bool = False
    """The answer was 429 or 503: the whole domain must be left alone for a while."""
    block_code: str | None = None
    """What the trouble says of the whole domain: a `BlockReason`. None for a good answer, and for trouble that says
    nothing of it."""
    changed: bool | None = None
    """Whether the page says something else than at the last fetch; None where there was none, or nobody can tell."""
    fresh_for_ms: int | None = None
    """For how long the answer promised not to change."""
    sent_after_ms: int | None = 0
    """From the grant of the lease to the start of the request; None where nothing was sent."""
    robots: Robots | None = None


class Verdict(StrEnum):
    """What the frontier made of a report."""

    COMPLETED = "completed"
    RETRY_AT = "retry_at"
    FAILED = "failed"
    LEASE_LOST = "lease_lost"
    REJECTED = "rejected"
    """The report itself was malformed; the lease stays as it was."""


class ReportAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one report; the same again when the report is repeated."""

    verdict: Verdict
    retry_at: int | None = None
    refusal: Refusal | None = None
    detail: str | None = None


class Renewal(StrEnum):
    """The answer to one renewal."""

    OK = "ok"
    LEASE_LOST = "lease_lost"
