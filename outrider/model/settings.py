"""The constants that one installation agrees on."""

import msgspec


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
