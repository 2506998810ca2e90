"""The gate: the politeness of one domain over all crawls."""

import msgspec

from outrider.model.machines import DomainStatus

DEFAULT_BAND = 8
BANDS = 16

UNREACHABLE_ROBOTS = "unreachable"
"""The version of a robots.txt that could not be fetched: the domain's pages wait until it has expired."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One domain's clocks and limits. A narrow, hot row."""

    domain: str
    delay_ms: int | None = None
    """Set by an operator; None leaves the crawl's default in force."""
    robots_delay_ms: int | None = None
    """Crawl-delay of robots.txt: a floor under every other delay."""
    concurrency: int | None = None
    next_fetch_at: int = 0
    quiet_until: int = 0
    """The delay after the last request that is known to have been sent; no place is given back beyond it."""
    backoff_until: int = 0
    backoff_level: int = 0
    backoff_began_at: int = 0
    blocked_until: int = 0
    band: int = DEFAULT_BAND
    robots_version: str | None = None
    robots_expires_at: int | None = None
    """None until robots.txt was first reported."""
    status: DomainStatus = DomainStatus.PENDING
    """Where the domain stands in its life, so that who holds the gate need not read its wide row."""
    errors_in_row: int = 0
    """The domain's errors without a good answer between, one per event."""
    error_at: int = 0
    """When the last of them was counted: what was sent before is the same event."""


class GateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may set on a gate; None leaves a value as it is."""

    delay_ms: int | None = None
    concurrency: int | None = None
    blocked_until: int | None = None
    """0 unblocks."""
    band: int | None = None


class Robots(msgspec.Struct, frozen=True, kw_only=True):
    """A robots.txt as a worker reported it."""

    text: str
    expires_in_ms: int
    crawl_delay_ms: int | None = None
    unreachable: bool = False
    """It could not be fetched, and the text only says why."""
