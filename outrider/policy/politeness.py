"""Politeness: when a domain may be asked again, and how a gate moves."""

import msgspec

from outrider.model.gate import UNREACHABLE_ROBOTS, Gate
from outrider.model.lease import Outcome, Report
from outrider.model.settings import Settings
from outrider.model.task import CrawlLimits


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What is in flight to one domain, over all crawls."""

    requests: int = 0
    robots: int = 0
    first_expiry: int = 0
    """When the first of these leases ends by itself."""


def effective_delay(gate: Gate, limits: CrawlLimits, queue_delay_ms: int | None) -> int:
    """Take the most specific delay that was set, never under what robots.txt asks for."""
    if queue_delay_ms is not None:
        chosen = queue_delay_ms
    elif gate.delay_ms is not None:
        chosen = gate.delay_ms
    else:
        chosen = limits.delay_ms
    return max(chosen, gate.robots_delay_ms or 0)


def effective_concurrency(gate: Gate, limits: CrawlLimits) -> int:
    """Take the gate's own concurrency, else the crawl's."""
    return max(1, limits.concurrency if gate.concurrency is None else gate.concurrency)


def opens_at(gate: Gate) -> int:
    """Tell when the gate's clocks let the next request start."""
    return max(gate.next_fetch_at, gate.backoff_until, gate.blocked_until)


def free_slots(gate: Gate, traffic: Traffic, limits: CrawlLimits, delay_ms: int, now: int) -> int:
    """Tell how many requests may start now: with a delay one at a time, else up to the concurrency."""
    if opens_at(gate) > now:
        return 0
    free = effective_concurrency(gate, limits) - traffic.requests
    return max(0, min(free, 1) if delay_ms > 0 else free)


def look_again_at(gate: Gate, traffic: Traffic, limits: CrawlLimits) -> int:
    """Give a lower bound for the next free slot, as long as nothing is reported before."""
    if traffic.requests >= effective_concurrency(gate, limits):
        return max(opens_at(gate), traffic.first_expiry)
    return opens_at(gate)


def needs_robots(gate: Gate, limits: CrawlLimits, now: int) -> bool:
    """Tell whether robots.txt must be fetched before anything else of this domain."""
    return limits.robots and (gate.robots_expires_at is None or gate.robots_expires_at <= now)


def waits_for_robots_until(gate: Gate, limits: CrawlLimits) -> int:
    """Tell until when nothing may be asked of a domain because its robots.txt could not be fetched."""
    if not limits.robots or gate.robots_version != UNREACHABLE_ROBOTS:
        return 0
    return gate.robots_expires_at or 0


def after_lease(gate: Gate, delay_ms: int, now: int) -> Gate:
    """Assume that the request starts at once; the report will say when it really did."""
    if delay_ms <= 0:
        return gate
    return msgspec.structs.replace(gate, next_fetch_at=max(gate.next_fetch_at, now + delay_ms))


class Leased(msgspec.Struct, frozen=True, kw_only=True):
    """What a lease remembers of the gate that it passed."""

    granted_at: int
    delay_ms: int
    gate_was: int
    """`next_fetch_at` before the lease."""


def after_report(gate: Gate, leased: Leased, report: Report, now: int, settings: Settings, chance: float) -> Gate:
    """Move the clocks by what the worker saw. `chance` in [0, 1) is the draw for the jitter."""
    if report.sent_after_ms is None:
        return give_back(gate, leased)
    started_at = started(leased, report, now)
    moved = _after_start(gate, started_at + leased.delay_ms)
    if report.backs_off:
        return _back_off(moved, started_at, report.retry_after_ms, now, settings, chance)
    if report.outcome is Outcome.DONE and gate.backoff_level and started_at >= gate.backoff_began_at:
        return msgspec.structs.replace(moved, backoff_level=0)
    return moved


def started(leased: Leased, report: Report, now: int) -> int:
    """Tell when the request started, by what the worker says; not before its lease, nor after its report."""
    return leased.granted_at + min(max(report.sent_after_ms or 0, 0), max(now - leased.granted_at, 0))


def give_back(gate: Gate, leased: Leased) -> Gate:
    """Undo what the lease did to the clock, unless somebody has moved it since.

    What it was before may be too early: a request that was under way then has told since when it started.
    """
    if leased.delay_ms > 0 and gate.next_fetch_at == leased.granted_at + leased.delay_ms:
        return msgspec.structs.replace(gate, next_fetch_at=max(leased.gate_was, gate.quiet_until))
    return gate


def after_silence(gate: Gate, leased: Leased, now: int) -> Gate:
    """Assume that a worker of which nothing more was heard had sent its request just now."""
    return _after_start(gate, now + leased.delay_ms)


def _after_start(gate: Gate, opens_at: int) -> Gate:
    return msgspec.structs.replace(
        gate, next_fetch_at=max(gate.next_fetch_at, opens_at), quiet_until=max(gate.quiet_until, opens_at)
    )


def _back_off(gate: Gate, started_at: int, asked_ms: int | None, now: int, settings: Settings, chance: float) -> Gate:
    """Double once per event: an answer to a request sent before the last back-off began is the same event."""
    if gate.backoff_began_at and started_at < gate.backoff_began_at:
        if asked_ms is None:
            return gate
        return msgspec.structs.replace(gate, backoff_until=max(gate.backoff_until, now + asked_ms))
    own = min(settings.backoff_base_ms << min(gate.backoff_level, 30), settings.backoff_cap_ms)
    wait = max(own, asked_ms or 0)
    wait += int(wait * settings.backoff_jitter * chance)
    return msgspec.structs.replace(
        gate,
        backoff_until=max(gate.backoff_until, now + wait),
        backoff_level=gate.backoff_level + 1,
        backoff_began_at=now,
    )
