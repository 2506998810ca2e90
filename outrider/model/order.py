"""What a job is to crawl and how: the record that lies in a job's payload."""

from enum import StrEnum
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

MAX_BODY: Final = 10 * 1024 * 1024


class Strategy(StrEnum):
    """How a job finds its pages."""

    SINGLE = "single"
    """The seeds alone: no sitemaps, and no links followed."""
    SITEMAP = "sitemap"
    """What the sitemaps of the seeds' sites list; links on pages are not followed."""
    RECURSIVE = "recursive"
    """The seeds, what sitemaps list, and whatever is linked from there, within the scope."""


class JobOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl as somebody orders it. None means no limit, or for the user agent the crawler's own."""

    seeds: tuple[str, ...]
    strategy: Strategy = Strategy.RECURSIVE
    scope: Literal["host", "domain", "prefix", "any"] = "host"
    """A rule of `outrider.policy.scope`."""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_pages: int | None = None
    max_pages_per_domain: int | None = None
    max_depth: int | None = None
    delay: float = 1.0
    """Seconds between two requests to one domain."""
    per_domain: int = 1
    """Requests in flight to one domain."""
    concurrency: int = 32
    """Requests in flight of one runner."""
    robots: bool = True
    sitemaps: bool = True
    ignore_nofollow: bool = False
    user_agent: str | None = None
    timeout: float = 60.0
    """Seconds for one request, with its body."""
    max_body: int = MAX_BODY
    """Bytes of a body that are read."""
    max_wait: float = 900.0
    """Seconds that a crawl waits for what cannot be fetched yet before it counts as complete."""
    fresh: bool = False
    """Forget what the crawl knows before it begins."""
    refresh: bool = False
    """Fetch the pages of the crawl again that are due, at most `max_pages` of them; seeds may then be left out."""


class OrderLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What may be changed of the order of a live job; what is left out stays as it is."""

    max_pages: int | UnsetType | None = UNSET
    max_pages_per_domain: int | UnsetType | None = UNSET
    max_depth: int | UnsetType | None = UNSET
    delay: float | UnsetType = UNSET
    per_domain: int | UnsetType = UNSET
