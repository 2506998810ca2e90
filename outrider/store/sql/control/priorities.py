"""Priorities of domains: worked out anew in batches, each a short transaction that waits for nobody."""

from collections.abc import Sequence
from typing import Final

from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import crawls

BATCH: Final = 250
FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"


def batch_by_id(after: str, limit: int) -> Script[list[tuple[str, str]]]:
    """List ids and names of the next domains."""
    rows = yield Call("domains_by_id", (after or FIRST_ID, limit))
    return [(str(row[0]), row[1]) for row in rows]


def batch_of_run(run_id: str, after: str, limit: int) -> Script[list[str]]:
    """List the next domains of which a run has fetched pages."""
    rows = yield Call("domains_of_run", (run_id, after, limit))
    return [row[0] for row in rows]


def recalculate(domains: Sequence[str], now: int | None, *, bands: bool) -> Script[list[str]]:
    """Work out rates and scores; with `bands`, move gates and queues to the bands that go with them.

    Gives those that are active and have nothing left to do, since what they had was deleted: call `lives.settle`.
    """
    moment = yield from crawls.clock(now)
    names = [(domain,) for domain in domains]
    idle = yield Call("recalculate", (moment,), names)
    idle += yield Call("active_and_idle", (), names)
    if bands:
        moved = yield Call("move_gates", (), names)
        yield Call("move_queues_of_gates", (), sorted((row[0], row[1]) for row in moved))
    return [row[0] for row in idle]
