"""Backfill: what a domain's past was elsewhere, and the ledger of what was taken over of it."""

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from outrider.model.errors import OutriderError
from outrider.model.machines import DomainStatus

SOURCE_PREFIX: Final = "backfill"
"""What the `source` of a domain begins with that a backfill has brought."""


class UnknownBackfill(OutriderError):
    """The ledger has no such backfill."""

    def __init__(self, backfill_id: str) -> None:
        super().__init__(f"there is no backfill {backfill_id!r} in this store: begin it first")
        self.backfill_id = backfill_id


class BackfillKind(StrEnum):
    """What a backfill reads."""

    CRAWL_LOG = "crawl_log"
    """Rows of pages that were fetched, and of images that were stored, in tables or files."""
    SCRAPY = "scrapy"
    URLFRONTIER = "urlfrontier"

    @property
    def source(self) -> str:
        """What domains name as their source that were not known before."""
        return f"{SOURCE_PREFIX}_{self.value}"


class DomainPast(msgspec.Struct, frozen=True, kw_only=True):
    """All that one source tells of a domain, summed up over every spelling of its name."""

    domain: str
    """Canonical."""
    pages_discovered: int = 0
    pages_crawled: int = 0
    images_found: int = 0
    images_stored: int = 0
    total_error_count: int = 0
    rate_limited_count: int = 0
    """Of the errors, those with status 429; so with the next, from 500 on."""
    server_error_count: int = 0
    crawl_depth_reached: int = 0
    first_seen_at: int | None = None
    """Milliseconds, as the next."""
    last_crawled_at: int | None = None


COUNTERS: Final = ("pages_discovered", "pages_crawled", "images_found", "images_stored", "total_error_count")
"""What is added to a domain, and kept in the ledger; all else is a bound, which may be set twice."""


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the ledger: which source, how far, and what it brought."""

    backfill_id: str
    source: str
    """For people: without a password."""
    kind: BackfillKind
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    """When it last came to its end; None while it is under way, or was broken off."""
    position: str | None
    """Where to go on in a source of URLs; the last domain taken over of one of rows."""
    rows_read: int
    rows_refused: int
    domains_new: int
    """Domains that this source brought, over all times that it was read."""


class BackfillStep(msgspec.Struct, frozen=True, kw_only=True):
    """What became, or would become, of one batch of domains."""

    new: int = 0
    added_to: int = 0
    """Domains that were there and had something missing."""
    unchanged: int = 0
    """Domains of which all was taken over before."""


class StatusFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The backfilled domains of one status, on average."""

    status: DomainStatus
    domains: int
    average_yield: float | None
    """Images stored per page, over those domains that have pages."""
    average_pages: float


class BackfillFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What validates a backfill."""

    backfilled_domains: int
    total_domains: int
    by_status: list[StatusFigures]
