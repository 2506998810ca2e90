"""The constants that one installation agrees on."""

from typing import Final

import msgspec

DAY_MS: Final = 24 * 3_600_000


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the frontier; each can be set as `OUTRIDER_<NAME>` in the environment."""

    max_retries: int = 3
    """A task is FAILED when its failures reach this."""
    crash_threshold_ms: int = 120_000
    """Length of a lease: a worker silent for longer has lost it."""
    max_deferrals: int = 20
    max_lease_expiries: int = 10
    retry_base_ms: int = 5_000
    """Wait before the first retry of a failed task; doubles with each failure."""
    retry_cap_ms: int = 3_600_000
    backoff_base_ms: int = 5_000
    """First back-off of a domain after 429 or 503 without Retry-After; doubles with each event."""
    backoff_cap_ms: int = 3_600_000
    backoff_jitter: float = 0.2
    """Share of a back-off that is added at random, so that crawlers do not return together."""
    beat_every_ms: int = 10_000
    """How often a supervisor says that its jobs are run."""
    stale_after_ms: int = 120_000
    """A job that was not beaten for so long has lost its runner."""
    watchdog_every_ms: int = 60_000
    """How often to look for jobs that have."""
    enable_domain_tracking: bool = True
    """Keep the lives of domains and what is known of their quality. Off, politeness stays."""
    enable_per_domain_budget: bool = True
    """Bind runs to each domain's `max_pages_per_run`, and share a small total fairly among domains."""
    enable_smart_scheduling: bool = False
    """Schedule from the domains table by priority; off, in the order of seeding."""
    enable_claim_protocol: bool = False
    """Have workers claim domains, each to itself."""
    enable_refresh_mode: bool = False
    """Have exhausted domains come up again when their time has come."""
    max_domain_errors: int = 5
    """So many errors in a row, one per back-off event, make a domain blocked or unreachable."""
    max_login_walls: int = 3
    """So many pages in a row that only show a login form make a domain blocked."""
    max_block_retries: int = 3
    """So often a blocked domain is tried again before it stays blocked."""
    login_required_rest_ms: int = 30 * DAY_MS
    """For how long a domain is left alone that is blocked for this reason; so with the next five."""
    rate_limited_rest_ms: int = 7 * DAY_MS
    forbidden_rest_ms: int = 14 * DAY_MS
    robots_denied_rest_ms: int = 90 * DAY_MS
    server_error_rest_ms: int = DAY_MS
    unreachable_rest_ms: int = 7 * DAY_MS
    exhausted_rest_ms: int = 14 * DAY_MS
    """At the latest so long after all its pages were crawled a domain is due for a refresh."""
    refresh_first_ms: int = DAY_MS
    """After how long a page is fetched again of which no more is known."""
    refresh_shortest_ms: int = 3_600_000
    """Pages are fetched again at most so often, and at least as often as `exhausted_rest_ms` says."""
    refresh_balance_ms: int = DAY_MS
    """Pages that change so often are fetched about as often as they change; the shorter, the more fetches in all."""
    refresh_gone_retry_ms: int = 7 * DAY_MS
    """After how long a page is tried again that was gone; doubled each time."""
    refresh_max_gone: int = 3
    """A page that was gone so many times in a row is not tried again."""
    priority_rank: int = 1000
    """Points that the first of a list of seeds has for its place; so with the next four."""
    priority_image_yield: int = 1000
    priority_remaining_page: int = 2
    priority_error_rate: int = 500
    """Taken off."""
    priority_stale_day: int = 5
    priority_most_yield: int = 100
    """Up to where images per page count; so with the next two."""
    priority_most_remaining: int = 500
    priority_most_stale_days: int = 365
