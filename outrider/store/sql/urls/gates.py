"""Gates in the store: reading, writing, and what is in flight behind them."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import xxhash

from outrider.model.errors import InvalidInput, shown
from outrider.model.gate import BANDS, UNREACHABLE_ROBOTS, Gate, GateSettings, Robots
from outrider.model.machines import DomainStatus
from outrider.model.task import NEVER
from outrider.policy import politeness
from outrider.policy.politeness import Traffic
from outrider.store.sql.script import Call, Row, Script
from outrider.store.sql.urls import add, crawls
from outrider.store.sql.urls.waking import Wakes

STATUS = {status.value: status for status in DomainStatus}


class StoredGate(NamedTuple):
    """A gate with the id of its domain."""

    gate: Gate
    domain_id: str


def decoded(row: Row) -> StoredGate:
    """Read a row of `gates`."""
    return StoredGate(
        Gate(
            domain=row[0],
            delay_ms=row[1],
            robots_delay_ms=row[2],
            concurrency=row[3],
            next_fetch_at=row[4],
            backoff_until=row[5],
            backoff_level=row[6],
            backoff_began_at=row[7],
            blocked_until=row[8],
            band=row[9],
            robots_version=row[10],
            robots_expires_at=row[11],
            quiet_until=row[13],
            status=STATUS[row[14]],
            errors_in_row=row[15],
            error_at=row[16],
        ),
        str(row[12]),
    )


def lock(domains: Iterable[str]) -> Script[dict[str, StoredGate]]:
    """Lock gates in the order of their names, waiting for whoever holds them."""
    rows = yield Call("lock_gates", (), [(domain,) for domain in sorted(set(domains))])
    return {row[0]: decoded(row) for row in rows}


def lock_free(domains: Iterable[str]) -> Script[dict[str, StoredGate]]:
    """Lock those gates that nobody holds; never waits."""
    rows = yield Call("lock_free_gates", (), [(domain,) for domain in sorted(set(domains))])
    return {row[0]: decoded(row) for row in rows}


def traffic(domains: Iterable[str]) -> Script[dict[str, Traffic]]:
    """Count what is in flight to each of these domains; their gates must be locked."""
    rows = yield Call("traffic", (), [(domain,) for domain in domains])
    return {row[0]: Traffic(requests=row[1], robots=row[2], first_expiry=row[3]) for row in rows}


def write(before: dict[str, StoredGate], after: dict[str, Gate]) -> Script[None]:
    """Write the gates that have changed."""
    yield Call(
        "update_gates",
        (),
        [
            (
                gate.domain, gate.next_fetch_at, gate.backoff_until, gate.backoff_level, gate.backoff_began_at,
                gate.robots_delay_ms, gate.robots_version, gate.robots_expires_at, gate.quiet_until,
                gate.blocked_until, gate.errors_in_row, gate.error_at,
            )
            for domain, gate in sorted(after.items())
            if gate != before[domain].gate
        ],
    )  # fmt: skip


def with_robots(gate: Gate, robots: Robots, now: int) -> Script[Gate]:
    """Keep a robots.txt that a worker has fetched."""
    version = UNREACHABLE_ROBOTS if robots.unreachable else xxhash.xxh3_64_hexdigest(robots.text.encode())
    if version != gate.robots_version or robots.unreachable:
        yield Call("put_robots", (gate.domain, version, robots.text, now))
    return msgspec.structs.replace(
        gate,
        robots_version=version,
        robots_expires_at=now + robots.expires_in_ms,
        robots_delay_ms=robots.crawl_delay_ms,
    )


def get(domain: str) -> Script[Gate | None]:
    """Read one gate."""
    rows = yield Call("gate", (domain,))
    return decoded(rows[0]).gate if rows else None


def robots_text(domain: str) -> Script[tuple[str, str] | None]:
    """Read the robots.txt of a domain with its version."""
    rows = yield Call("robots_text", (domain,))
    return (rows[0][0], rows[0][1]) if rows else None


def configure(domain: str, settings: GateSettings, now: int | None) -> Script[Gate]:
    """Set what an operator may set, also before the domain's first URL; it holds for every crawl."""
    for field, low, high in (
        ("delay_ms", 0, 2**31), ("concurrency", 1, 2**31), ("blocked_until", 0, NEVER), ("band", 0, BANDS),
    ):  # fmt: skip
        value = getattr(settings, field)
        if value is not None and (type(value) is not int or not low <= value < high):
            raise InvalidInput(f"{field} of a gate must be a whole number from {low}, not {shown(value)}")
    moment = yield from crawls.clock(now)
    yield from add.ensure_gates({domain}, moment)
    stored = (yield from lock([domain]))[domain]
    changes = {
        field: value
        for field in ("delay_ms", "concurrency", "blocked_until", "band")
        if (value := getattr(settings, field)) is not None
    }
    gate = msgspec.structs.replace(stored.gate, **changes)
    yield Call(
        "configure_gate",
        (domain, gate.delay_ms, gate.concurrency, gate.blocked_until, gate.band, settings.band is not None),
    )
    if gate.band != stored.gate.band:
        yield Call("set_domain_band", (domain, gate.band))
    wakes = Wakes()
    wakes.gate_opens(domain, politeness.opens_at(gate))
    yield from wakes.write()
    return gate
