"""What batch clients set: whether the frontier serves at all, and one override of a queue at a time."""

from msgspec import UNSET

from outrider.model.batch import QueueChange
from outrider.model.errors import InvalidInput, shown
from outrider.model.gate import DEFAULT_BAND
from outrider.model.task import NEVER
from outrider.policy.admission import key_problem
from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import crawls

FRONTIER = (0, "")
"""The queue of no crawl and no key: its block is the frontier's own. Crawls are numbered from 1."""


def is_active() -> Script[bool]:
    """Tell whether the frontier hands out batches."""
    rows = yield Call("queue_block", FRONTIER)
    return not rows or rows[0][0] == 0


def set_active(active: bool, now: int | None) -> Script[None]:
    """Have the frontier hand out batches, or not; it stays so."""
    moment = yield from crawls.clock(now)
    yield Call(
        "change_queue", (*FRONTIER, DEFAULT_BAND, NEVER, moment, False, None, True, 0 if active else 1, False, None)
    )


def change_queue(name: str, key: str, change: QueueChange, now: int | None) -> Script[None]:
    """Set some overrides of a queue, also before its first URL."""
    problem = key_problem(key)
    if problem is not None:
        raise InvalidInput(f"cannot set a queue: {problem.detail}")
    values: list[object] = []
    for field, high in (("delay_ms", 2**31), ("blocked_until", NEVER), ("page_limit", 2**62)):
        value = getattr(change, field)
        if value not in (None, UNSET) and (type(value) is not int or not 0 <= value < high):
            raise InvalidInput(f"{field} of a queue must be a whole number from 0, not {shown(value)}")
        is_set = value is not UNSET
        values += (is_set, (value or 0 if field == "blocked_until" else value) if is_set else None)
    stored = yield from crawls.for_write(name)
    moment = yield from crawls.clock(now)
    yield Call("change_queue", (stored.crawl_id, key, DEFAULT_BAND, NEVER, moment, *values))
