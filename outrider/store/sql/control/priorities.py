"""Priorities of domains: worked out anew in batches, each a short transaction that waits for nobody."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import crawls

BATCH: Final = 500
FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"


class Recalculated(NamedTuple):
    """What one batch came to."""

    number: int
    last: str
    """The last of them, by what they were found by."""
    idle: list[str]
    """Those that are active and have nothing left to do, since what they had was deleted: call `lives.settle`."""


def by_id(after: str, limit: int, now: int | None, *, bands: bool) -> Script[Recalculated]:
    """Recalculate the next domains in the order of their ids."""
    rows = yield Call("domains_by_id", (after, limit))
    idle = yield from _recalculate([row[1] for row in rows], now, bands=bands)
    return Recalculated(len(rows), str(rows[-1][0]) if rows else after, idle)


def of_run(run_id: str, after: str, limit: int, now: int | None, *, bands: bool) -> Script[Recalculated]:
    """Recalculate the next domains of which a run has fetched pages, in the order of their names."""
    rows = yield Call("domains_of_run", (run_id, after, limit))
    idle = yield from _recalculate([row[0] for row in rows], now, bands=bands)
    return Recalculated(len(rows), rows[-1][0] if rows else after, idle)


def _recalculate(domains: Sequence[str], now: int | None, *, bands: bool) -> Script[list[str]]:
    """Work out rates and scores; with `bands`, move gates and queues to the bands that go with them."""
    yield Call("commit_at_leisure")
    moment = yield from crawls.clock(now)
    names = [(domain,) for domain in domains]
    idle = yield Call("recalculate", (moment,), names)
    idle += yield Call("active_and_idle", (), names)
    if bands:
        moved = yield Call("move_gates", (), names)
        yield Call("move_queues_of_gates", (), sorted((row[0], row[1]) for row in moved))
    return [row[0] for row in idle]
