"""Reading many domains: in an order, in numbers, and what does not fit together."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from outrider.model.domain import Domain
from outrider.model.domain_view import (
    DomainAudit,
    DomainCensus,
    DomainPage,
    DomainSort,
    LoggedPages,
    StepsTaken,
    StepTally,
)
from outrider.model.errors import InvalidInput, shown
from outrider.model.machines import DOMAIN, DomainStatus
from outrider.store.checks import END_OF_TIME_MS
from outrider.store.sql.control.job_listing import FIRST_ID, UUID
from outrider.store.sql.control.rows import record
from outrider.store.sql.script import Call, Script, Value
from outrider.store.sql.urls import crawls

SETTLING_MS: Final = 5_000
"""Steps are counted when they are so old: by then every transaction that got an earlier number has ended."""
LAST_FETCHES: Final = 100_000
"""Among so many fetches pages are looked for that were fetched twice."""
LAST_STEPS: Final = 1_000_000

CURSOR: Final = re.compile(rf"(?P<sort>[a-z]+)\.(?P<rank>-?[0-9.e+-]{{0,30}})\.(?P<id>{UUID})")


class Order(NamedTuple):
    """How one of the orders counts."""

    first: int | float
    """A rank that none is before."""
    read: Callable[[str], int | float]
    has_rest: bool
    """Whether domains may have no rank; those come after all others, by their ids."""


ORDERS: Final = {
    DomainSort.PRIORITY: Order(2**31 - 1, int, has_rest=False),
    DomainSort.YIELD: Order(float("inf"), float, has_rest=True),
    DomainSort.CRAWLED: Order(END_OF_TIME_MS - 1, int, has_rest=True),
}
"""All but that of names, which needs no rank."""


class Place(NamedTuple):
    """Where a page starts: after the domain with this rank and id. Without a rank, among those that have none."""

    rank: int | float | None
    id: str


def listed(status: DomainStatus | None, sort: DomainSort, cursor: str | None, limit: int) -> Script[DomainPage]:
    """List a page of domains in an order."""
    chosen = None if status is None else status.value
    if sort is DomainSort.NAME:
        rows = yield Call("list_domains", (chosen, cursor or "", limit + 1))
        found = [record(Domain, row) for row in rows[:limit]]
        return DomainPage(domains=found, next_cursor=found[-1].domain if len(rows) > limit else None)
    place = place_of(cursor, sort)
    ranked: list[tuple[str, Place]] = []
    if place.rank is not None:
        ranked += yield from _ranked(f"domains_by_{sort}", (chosen, place.rank, place.id, limit + 1))
        place = Place(None, FIRST_ID)
    if ORDERS[sort].has_rest and len(ranked) <= limit:
        ranked += yield from _ranked(f"domains_without_{sort}", (chosen, place.id, limit + 1 - len(ranked)))
    found = yield from _named([name for name, _ in ranked[:limit]])
    return DomainPage(domains=found, next_cursor=_cursor(sort, ranked[limit - 1][1]) if len(ranked) > limit else None)


def _ranked(statement: str, values: tuple[Value, ...]) -> Script[list[tuple[str, Place]]]:
    rows = yield Call(statement, values)
    return [(row[0], Place(row[2], str(row[1]))) for row in rows]


def _named(names: list[str]) -> Script[list[Domain]]:
    """Read domains whole, in the order of their names here; one that is gone meanwhile is left out."""
    if not names:
        return []
    rows = yield Call("domains_named", (), [(name,) for name in names])
    found = {each.domain: each for each in (record(Domain, row) for row in rows)}
    return [found[name] for name in names if name in found]


def _cursor(sort: DomainSort, place: Place) -> str:
    return f"{sort}.{'' if place.rank is None else repr(place.rank)}.{place.id}"


def place_of(cursor: str | None, sort: DomainSort) -> Place:
    """Read where a page starts.

    >>> place_of("yield.0.5.0190163d-8694-739b-aea5-966c26f8ad91", DomainSort.YIELD).rank
    0.5
    """
    order = ORDERS[sort]
    if cursor is None:
        return Place(order.first, FIRST_ID)
    found = CURSOR.fullmatch(cursor)
    if found is not None and found["sort"] == sort and (found["rank"] or order.has_rest):
        try:
            rank = order.read(found["rank"]) if found["rank"] else None
        except ValueError:
            rank = float("inf")
        if rank is None or -(2**31) <= rank < END_OF_TIME_MS:
            return Place(rank, found["id"])
    raise InvalidInput(f"this is no cursor of domains sorted by {sort}: {shown(cursor)}")


def top(limit: int) -> Script[list[Domain]]:
    """List the domains with the most images per page."""
    rows = yield Call("top_domains", (limit,))
    return (yield from _named([row[0] for row in rows]))


def census(now: int | None) -> Script[DomainCensus]:
    """Count domains by status and reason, and claims."""
    moment = yield from crawls.clock(now)
    statuses = {DomainStatus(row[0]): int(row[1]) for row in (yield Call("domain_counts"))}
    codes = yield Call("blocked_counts")
    (live, expired), *_ = yield Call("claim_counts", (moment,))
    return DomainCensus(
        by_status={status: statuses.get(status, 0) for status in DomainStatus},
        blocked_by_code={str(row[0]): int(row[1]) for row in codes},
        live_claims=int(live),
        expired_claims=int(expired),
    )


def steps_since(after: int | None, now: int | None) -> Script[StepsTaken]:
    """Count steps after one of them; without it, tell only where to begin."""
    if after is None:
        (last_id,), *_ = yield Call("last_step")
        return StepsTaken(tallies=[], last_id=last_id)
    moment = yield from crawls.clock(now)
    (last_id,), *_ = yield Call("last_settled_step", (after, moment - SETTLING_MS))
    if last_id <= after:
        return StepsTaken(tallies=[], last_id=after)
    rows = yield Call("step_counts", (after, last_id))
    return StepsTaken(tallies=[record(StepTally, row) for row in rows], last_id=last_id)


def audit(now: int | None) -> Script[DomainAudit]:
    """Count what does not fit together."""
    moment = yield from crawls.clock(now)
    (without_gate, another_status, too_soon), *_ = yield Call("audit_gates", (moment,))
    (without_domain,), *_ = yield Call("audit_counted")
    (exhausted,), *_ = yield Call("audit_exhausted")
    (of_nobody,), *_ = yield Call("audit_claims", (moment,))
    (twice,), *_ = yield Call("audit_fetched_twice", (LAST_FETCHES,))
    steps = yield Call("audit_steps", (LAST_STEPS,))
    return DomainAudit(
        without_gate=int(without_gate),
        gates_of_another_status=int(another_status),
        gates_open_too_soon=int(too_soon),
        counted_without_domain=int(without_domain),
        exhausted_for_ever=int(exhausted),
        claims_of_nobody=int(of_nobody),
        fetched_twice=int(twice),
        illegal_steps=sum(
            int(number)
            for source, target, number in steps
            if not DOMAIN.allows(DomainStatus(source), DomainStatus(target))
        ),
    )


def logged_pages(after: int, until: int) -> Script[list[LoggedPages]]:
    """Count pages by domain in a range of the log."""
    rows = yield Call("logged_pages", (after, until))
    return [record(LoggedPages, row) for row in rows]
