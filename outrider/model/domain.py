"""A domain: what is known of a site for ever, and the claims on it."""

from datetime import datetime
from typing import Final

import msgspec

from outrider.model.errors import OutriderError
from outrider.model.machines import DomainStatus

CLAIM_MS: Final = 30 * 60_000
"""How long a claim lasts unless it is renewed; its holder renews it every third of that."""

REST_MS: Final = 60_000
"""A claimed domain of which nothing can be fetched for so long is given back."""

MAX_SOURCE_CHARACTERS: Final = 100
MAX_REASON_CODE_CHARACTERS: Final = 50


class UnknownDomain(OutriderError):
    """The store has never heard of this domain."""

    def __init__(self, domain: str) -> None:
        super().__init__(f"there is no domain {domain!r} in this store")
        self.domain = domain


class DomainSeed(msgspec.Struct, frozen=True, kw_only=True):
    """A domain as a list of seeds names it, in any spelling."""

    domain: str
    source: str | None = None
    """Where it was listed, with the list's version: `tranco_20260205`."""
    seed_rank: int | None = None
    """Its place in that list, 1 for the best."""


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of a domain. A wide, cool row."""

    id: str
    domain: str
    parent_domain: str
    status: DomainStatus
    block_reason: str | None
    block_reason_code: str | None
    first_blocked_at: datetime | None
    block_count: int
    claimed_by: str | None
    """Who holds the claim, or held one that has expired since."""
    claim_expires_at: datetime | None
    version: int
    """Grows with every claim, release, transition and setting."""
    images_found: int
    images_stored: int
    max_pages_per_run: int | None
    crawl_depth_reached: int
    image_yield_rate: float | None
    avg_images_per_page: float | None
    error_rate: float | None
    total_error_count: int
    consecutive_error_count: int
    priority_score: int
    priority_computed_at: datetime | None
    seed_rank: int | None
    source: str | None
    first_seen_at: datetime
    last_crawled_at: datetime | None
    next_crawl_after: datetime | None
    updated_at: datetime
    last_crawl_run_id: str | None
    frontier_updated_at: datetime | None
    pages_discovered: int
    """Pages known, in whatever state; like the next two summed up when read, so that it is exact."""
    pages_crawled: int
    frontier_size: int
    """Tasks of every kind that are still to be done."""
    frontier_checkpoint_id: str | None
    """Where those tasks are: the URL plane is the checkpoint. None where there are none."""


class DomainChange(msgspec.Struct, frozen=True, kw_only=True):
    """A step in a domain's life, by a writer who says what it believes to be true.

    With a `worker`, its claim must be live. Without, status and version alone are checked, and whoever
    held a claim has lost it.
    """

    source: DomainStatus
    target: DomainStatus
    expected_version: int
    worker: str | None = None
    block_reason: str | None = None
    block_reason_code: str | None = None
    next_crawl_after: int | None = None
    """Milliseconds; None where nothing has to be waited for."""
    run_id: str | None = None
    """The run that makes the domain active."""
    actor: str | None = None
    """Who makes the step, for the history; None names the worker, else an operator."""


class DomainStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a domain's life that was taken, as its history keeps it."""

    domain: str
    history_id: int
    """Grows with every step, of whatever domain."""
    from_status: DomainStatus
    to_status: DomainStatus
    reason_code: str | None
    reason: str | None
    actor: str
    """A worker, an operator, or `lease`, `report`, `clock` for what the store itself finds."""
    run_id: str | None
    at: datetime
    version: int
    """The domain's version after the step."""


class PriorityBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch of a recalculation came to."""

    number: int
    """How many domains were looked at."""
    after: str | None
    """Where the next batch starts; None where this was the last."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The right of one worker to schedule a domain until a time.

    `version` is its epoch, the domain's version when it was claimed. Steps that leases and reports of the holder bring
    about leave it; a holder that makes a transition itself goes on with the version that it brought about.
    """

    domain: str
    domain_id: str
    version: int
    expires_at: datetime


class ClaimTally(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a worker's claims when they were tended."""

    held: int
    claimed: list[str]
    """The domains that are new among them."""
    released: int
    """How many were given back, because nothing of theirs can be fetched soon."""


class WorkerClaims(msgspec.Struct, frozen=True, kw_only=True):
    """The live claims of one worker."""

    worker: str
    number: int
    earliest_expiry: datetime


class ClaimOverview(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds what, what is stuck, and what is free."""

    workers: list[WorkerClaims]
    expired: int
    """Claims that nobody renewed, released or took over."""
    unclaimed: dict[DomainStatus, int]
    """Pending and active domains without a live claim, those that are cooling down included."""
