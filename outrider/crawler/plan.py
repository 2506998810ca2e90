"""The plan of a crawl: everything that its command can be told, with the defaults."""

from pathlib import Path
from typing import Final

import msgspec

from outrider import __version__
from outrider.model.task import DEFAULT_CRAWL
from outrider.policy.scope import ScopeRule

USER_AGENT: Final = f"Outrider/{__version__}"
DATABASE: Final = "outrider.sqlite"
WARC_FOLDER: Final = "warc"
WORKERS_FOLDER: Final = "workers"
LOG_FILE: Final = "outrider.log"


class CrawlPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one `crawl` command is to do; two commands with the same plan share one crawl."""

    seeds: tuple[str, ...] = ()
    """As they were typed, or read from `seeds_file`."""
    seeds_file: str | None = None
    """One URL per line, or CSV `rank,domain`; `-` is standard input; `redis://host/0/key` a sorted set."""
    seeds_source: str | None = None
    """What the domains table calls the list of the seeds; None is its own name."""
    data: str = "outrider-data"
    """The folder of the SQLite file, the WARC files and the logs."""
    store: str | None = None
    """The DSN of the store; None is the SQLite file in the data folder."""
    crawl: str = DEFAULT_CRAWL
    max_pages: int | None = None
    max_pages_per_domain: int | None = None
    max_depth: int | None = None
    scope: ScopeRule = ScopeRule.HOST
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    concurrency: int = 32
    """Fetches at the same time, over all domains."""
    per_domain: int = 1
    """Fetches at the same time from one domain."""
    delay: float = 1.0
    """Seconds between the starts of two requests to one domain."""
    sitemaps: bool = True
    robots: bool = True
    ignore_nofollow: bool = False
    user_agent: str = USER_AGENT
    timeout: float = 60.0
    """Seconds for one whole fetch."""
    max_body: int = 10 * 1024 * 1024
    """Bytes of a body that are read; the rest is cut off."""
    proxy: str | None = None
    output: str | None = None
    """A file for one JSON line per completed page."""
    warc: bool = True
    allow_private: bool = False
    claims: bool = False
    """Claim domains before they are crawled, each for this process alone, whatever the setting says."""
    max_wait: float = 900.0
    """Seconds: a crawl whose next page is further away than this ends as waiting."""
    fresh: bool = False
    """Forget the crawl's tasks first."""


def store_dsn(plan: CrawlPlan) -> str:
    """Name the store of a plan: its own, or the file in its data folder."""
    return plan.store or f"sqlite:///{Path(plan.data) / DATABASE}"


def without_credentials(place: str) -> str:
    """Name where seeds come from without what is secret about it.

    >>> without_credentials("redis://me:secret@host/0/start_urls"), without_credentials("me@home.txt")
    ('redis://host/0/start_urls', 'me@home.txt')
    """
    scheme, separator, rest = place.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}" if separator else place
