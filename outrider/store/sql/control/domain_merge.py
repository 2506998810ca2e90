"""Merging two rows for what is one domain, such as one that was written under a name that is not canonical.

The row that was there first is kept, under the name of the second. What the log says of the two moves in ranges, each
a transaction of its own, and the last of them with the rows themselves: a merge that is broken off leaves two whole
domains, and goes on when it is asked for again.
"""

from typing import NamedTuple

from outrider.model.domain import Domain, UnknownDomain
from outrider.model.domain_name import parent_domain
from outrider.model.domain_view import DomainInUse
from outrider.model.errors import InvalidInput
from outrider.store.sql.control import domains
from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import gates

MOVED_AT_ONCE = 20_000
"""So many rows of the log are looked at in one transaction."""


class Merge(NamedTuple):
    """Which row goes where."""

    name: str
    into: str
    kept_id: str
    dropped_id: str
    target_id: str
    log_end: int
    """Where the log ended when this was looked up."""


def plan(name: str, into: str) -> Script[Merge]:
    """Look up two domains, and refuse what cannot be merged.

    Reports lock the gate of their domain before they write to the log. So with both gates locked, all that the log
    says of the two up to its end is there, and whatever comes later gets a higher number.
    """
    if name == into:
        raise InvalidInput(f"{name!r} cannot be merged into itself")
    yield from gates.lock([name, into])
    yield Call("lock_domains", (), [(each,) for each in sorted((name, into))])
    merged, target = (yield from _existing(name)), (yield from _existing(into))
    (tasks,), *_ = yield Call("tasks_of_domain", (name,))
    if tasks:
        raise DomainInUse(name, int(tasks))
    kept, dropped = sorted((merged, target), key=lambda each: (each.first_seen_at, each.id))
    (log_end,), *_ = yield Call("log_end")
    return Merge(name, into, kept.id, dropped.id, target.id, int(log_end))


def _existing(name: str) -> Script[Domain]:
    found = yield from domains.find(name)
    if found is None:
        raise UnknownDomain(name)
    return found


def move_log(merge: Merge, after: int, until: int) -> Script[None]:
    """Have the log's rows of one range name the domain that is kept."""
    yield Call("move_log", (merge.name, merge.into, merge.kept_id, after, until))


def join(name: str, into: str, moved_until: int) -> Script[Domain]:
    """Make two rows one, after what is left of the log."""
    merge = yield from plan(name, into)
    yield from move_log(merge, moved_until, merge.log_end)
    yield Call("sum_domains", (merge.kept_id, merge.dropped_id, merge.target_id))
    yield Call("move_domain_history", (merge.dropped_id, merge.kept_id))
    yield Call("drop_domain", (merge.dropped_id,))
    yield Call("join_gates", (name, into, merge.kept_id))
    yield Call("move_queues_of_domain", (name, into))
    yield Call("drop_gate", (name,))
    yield Call("drop_robots", (name,))
    yield Call("rename_domain", (merge.kept_id, into, parent_domain(into)))
    return (yield from _existing(into))
