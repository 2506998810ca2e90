"""Past: what a domain is to be that was crawled by others before."""

from typing import NamedTuple

from outrider.model.backfill import DomainPast
from outrider.model.machines import DomainStatus
from outrider.model.settings import Settings
from outrider.policy.blocking import BlockReason


class Beginning(NamedTuple):
    """With what a domain's life begins here."""

    status: DomainStatus
    reason: str | None = None
    reason_code: BlockReason | None = None
    next_crawl_after: int | None = None
    """Milliseconds; its rest counts from its last crawl, so that it may be over."""


def beginning_of(past: DomainPast, settings: Settings, now: int) -> Beginning:
    """Decide how a domain begins: blocked where more than half of its rows were errors, else exhausted.

    One of which only images are known has yet to be crawled; and where the lives of domains are not kept, each is
    pending for ever.

    >>> beginning_of(DomainPast(domain="a.org", pages_discovered=2, total_error_count=1), Settings(), 0).status
    <DomainStatus.EXHAUSTED: 'exhausted'>
    """
    if past.pages_discovered == 0 or not settings.enable_domain_tracking:
        return Beginning(DomainStatus.PENDING)
    last = now if past.last_crawled_at is None else min(past.last_crawled_at, now)
    errors = past.total_error_count
    if 2 * errors <= past.pages_discovered:
        return Beginning(DomainStatus.EXHAUSTED, next_crawl_after=last + settings.exhausted_rest_ms)
    reason = f"{errors:,} of {past.pages_discovered:,} rows of its crawl log were errors"
    if 2 * past.server_error_count > errors:
        return Beginning(DomainStatus.BLOCKED, reason, BlockReason.SERVER_ERROR, last + settings.server_error_rest_ms)
    if 2 * past.rate_limited_count > errors:
        return Beginning(DomainStatus.BLOCKED, reason, BlockReason.RATE_LIMITED, last + settings.rate_limited_rest_ms)
    return Beginning(DomainStatus.BLOCKED, reason, BlockReason.FORBIDDEN, last + settings.forbidden_rest_ms)
