"""Restoring what an export told of: tasks with their past, where they are not there."""

from collections.abc import Sequence

from outrider.model.errors import shown
from outrider.model.machines import TaskState
from outrider.model.task import Added, AddResult, Refusal, Restored
from outrider.policy.admission import KNOWN, NEW, Admission, Candidate, storable
from outrider.store.checks import END_OF_TIME_MS, LARGEST, MAX_TEXT_CHARACTERS
from outrider.store.sql.script import Call, Script, Value
from outrider.store.sql.urls import add, crawls
from outrider.store.sql.urls.counting import NUMBER, CountChanges
from outrider.store.sql.urls.crawls import StoredCrawl
from outrider.store.sql.urls.known import find
from outrider.store.sql.urls.waking import Wakes

ENDED = (TaskState.COMPLETED, TaskState.FAILED)


def refusal_of(item: Restored) -> AddResult | None:
    """Find what makes the past of a task unreadable; everything else is admitted as a discovery is."""
    if not isinstance(item, Restored):
        return AddResult(Added.REJECTED, Refusal.BAD_TEXT, f"item {shown(item)} is not allowed")
    if not isinstance(item.state, TaskState):
        return _refused("state", item.state)
    for name, value, most in (
        ("attempt_count", item.attempt_count, LARGEST),
        ("failures", item.failures, LARGEST),
        ("deferrals", item.deferrals, LARGEST),
    ):
        if type(value) is not int or not 0 <= value <= most:
            return _refused(name, value)
    for name, value_or_none, most in (
        ("http_status", item.http_status, 999),
        ("due_at", item.due_at, END_OF_TIME_MS - 1),
        ("discovered_at", item.discovered_at, END_OF_TIME_MS - 1),
    ):
        if value_or_none is not None and (type(value_or_none) is not int or not 0 <= value_or_none <= most):
            return _refused(name, value_or_none)
    reason = item.reason
    if reason is not None and not (isinstance(reason, str) and storable(reason) and len(reason) <= MAX_TEXT_CHARACTERS):
        return _refused("reason", reason)
    return None


def _refused(name: str, value: object) -> AddResult:
    return AddResult(Added.REJECTED, Refusal.BAD_HISTORY, f"{name} {shown(value)} is not allowed")


def restore(
    admitted_for: StoredCrawl, admission: Admission, items: Sequence[Restored], now: int | None, slot: int
) -> Script[list[AddResult]]:
    """Make the tasks that are not there, each as it was; of two items for one task the first holds."""
    stored = yield from crawls.for_write(admitted_for.crawl.name)
    if stored.crawl_id != admitted_for.crawl_id:
        raise add.RulesChanged
    moment = yield from crawls.clock(now)
    changes, wakes = CountChanges(), Wakes()
    first = {(each.key, each.url): each for each in reversed(admission.candidates)}
    offered = [_offered(each, items[each.position], moment) for each in sorted(first.values())]
    new = yield from add.insert([add.Batch(stored, offered, len(items))], moment, changes, wakes)
    found = yield from find(stored.crawl_id, new)
    rows: list[tuple[Value, ...]] = []
    for candidate in sorted(new):
        item, place = items[candidate.position], found[candidate.position]
        state = NUMBER[item.state] if item.state in ENDED else place.state
        changes.move((stored.crawl_id, candidate.key, candidate.domain, place.kind), place.state, state)
        due_at = moment + candidate.due_in_ms if item.due_at is None else item.due_at
        discovered_at = moment if item.discovered_at is None else item.discovered_at
        past = (item.attempt_count, item.failures, item.deferrals, item.http_status, item.reason)
        is_delayed = item.state not in ENDED and due_at > moment
        rows.append((candidate.key, place.hash, state, is_delayed, due_at, discovered_at, *past))
    yield Call("restore_tasks", (stored.crawl_id,), rows)
    yield from wakes.write()
    yield from changes.write(slot, moment)
    results = [KNOWN if result is None else result for result in admission.results]
    for candidate in new:
        results[candidate.position] = NEW
    return results


def _offered(candidate: Candidate, item: Restored, now: int) -> Candidate:
    """Have a task be due when it was; what is past is due now."""
    return candidate if item.due_at is None else candidate._replace(due_in_ms=max(0, item.due_at - now))
