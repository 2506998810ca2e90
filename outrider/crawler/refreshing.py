"""Refreshing: which pages of a crawl come up again, before any worker begins."""

from typing import Final

import msgspec

from outrider.model.errors import InvalidInput
from outrider.model.settings import Settings
from outrider.model.task import MAX_BATCH, NEVER
from outrider.store.opening import Stores

MOST_DOMAINS: Final = MAX_BATCH
"""So many domains at most come up in one refresh; the others are still due in the next."""


class RefreshWish(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to have fetched again."""

    domains: tuple[str, ...] = ()
    """These, whatever their status; without any, the exhausted ones whose time has come."""
    due_only: bool = False
    """Of the domains that are named, only the pages that are due."""
    limit: int | None = None
    """At most so many pages."""
    enrol: bool = False
    """Look for pages that were crawled while refreshing was off."""


def check_mode(settings: Settings) -> None:
    """Refuse to refresh where that is switched off."""
    if not settings.enable_refresh_mode:
        raise InvalidInput("refreshing is off: set ENABLE_REFRESH_MODE=true, also for those who crawl")


async def reopen_pages(stores: Stores, crawl: str, wish: RefreshWish, settings: Settings) -> int:
    """Make the pages PENDING that are to be fetched again; tell how many.

    It is done once, at the beginning, so that nothing is fetched twice in one refresh. To be killed half-way is no
    loss: what was reopened stays so, and the rest is still due.
    """
    check_mode(settings)
    if wish.enrol or not await stores.urls.is_refreshed(crawl):
        await stores.urls.enrol(crawl)
    most = NEVER if wish.limit is None else wish.limit
    if not wish.domains and not settings.enable_domain_tracking:
        return await stores.urls.reopen(crawl, most=most)
    domains = wish.domains or await stores.control.refresh_candidates(limit=MOST_DOMAINS)
    everything = bool(wish.domains) and not wish.due_only
    reopened = 0
    for domain in domains:
        if reopened >= most:
            break
        reopened += await stores.urls.reopen(crawl, domain=domain, everything=everything, most=most - reopened)
    return reopened
