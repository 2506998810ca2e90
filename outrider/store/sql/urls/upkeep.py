"""Upkeep: promoting, retrying, purging and deleting, in chunks where there may be much to do."""

from collections import Counter

from outrider.model.machines import TASK, TaskState
from outrider.model.task import MAX_DEPTH, Kind, TaskFilter
from outrider.model.url import locate
from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import crawls
from outrider.store.sql.urls.counting import COMPLETED, DISCOVERED, FAILED, NUMBER, PENDING, CountChanges
from outrider.store.sql.urls.waking import Wakes

CHUNK = 2_000


def promote(name: str, now: int | None, slot: int) -> Script[int]:
    """Make one chunk of what a lower depth limit had left DISCOVERED ready; tell how many."""
    stored = yield from crawls.for_write(name)
    moment = yield from crawls.clock(now)
    changes, wakes = CountChanges(), Wakes()
    number = yield from _promote_chunk(stored.crawl_id, stored.crawl.limits.max_depth, moment, changes, wakes)
    yield from wakes.write()
    yield from changes.write(slot, moment)
    return number


def promote_all(crawl_id: int, max_depth: int | None, now: int, slot: int) -> Script[None]:
    """Make all that was left DISCOVERED ready, in a crawl that nobody else can write to.

    What it learns is written once, at the end: to write it for each chunk would lock rows out of order.
    """
    changes, wakes = CountChanges(), Wakes()
    while (yield from _promote_chunk(crawl_id, max_depth, now, changes, wakes)) == CHUNK:
        pass
    yield from wakes.write()
    yield from changes.write(slot, now)


def _promote_chunk(crawl_id: int, max_depth: int | None, now: int, changes: CountChanges, wakes: Wakes) -> Script[int]:
    deepest = MAX_DEPTH if max_depth is None else max_depth
    TASK.check(TaskState.DISCOVERED, TaskState.PENDING)
    moved = yield Call("promote_tasks", (crawl_id, deepest, now, CHUNK))
    for key, kind, url in moved:
        changes.move((crawl_id, key, locate(url).domain, kind), DISCOVERED, PENDING)
        wakes.task_due((crawl_id, key), now)
    return len(moved)


def retry_failed(name: str, which: TaskFilter, now: int | None, slot: int) -> Script[tuple[int, list[str]]]:
    """Give one chunk of FAILED tasks a fresh start; their attempts stay counted.

    Tell how many, and the domains whose robots.txt is among them: call `try_robots_again` for these.
    """
    stored = yield from crawls.for_write(name)
    moment = yield from crawls.clock(now)
    TASK.check(TaskState.FAILED, TaskState.PENDING)
    if which.state not in (None, TaskState.FAILED):
        return 0, []
    kind = None if which.kind is None else int(which.kind)
    moved = yield Call("retry_tasks", (stored.crawl_id, which.key, kind, which.url_contains, moment, CHUNK))
    changes, wakes = CountChanges(), Wakes()
    robots: set[str] = set()
    for key, task_kind, url in moved:
        domain = locate(url).domain
        changes.move((stored.crawl_id, key, domain, task_kind), FAILED, PENDING)
        wakes.task_due((stored.crawl_id, key), moment)
        if task_kind == Kind.ROBOTS:
            robots.add(domain)
    yield from wakes.write()
    yield from changes.write(slot, moment)
    return len(moved), sorted(robots)


def try_robots_again(domains: list[str], now: int | None) -> Script[None]:
    """Have the pages of these domains wait no longer for a robots.txt that could not be fetched.

    A transaction of its own, since gates are locked before tasks. Where it does not come about, the pages wait for as
    long as they would have without it.
    """
    moment = yield from crawls.clock(now)
    yield Call("forget_robots_trouble", (moment,), [(domain,) for domain in domains])
    yield from open_gates(domains)


def purge(
    name: str, before: int, key: str | None, after: tuple[str, bytes], slot: int
) -> Script[tuple[int, tuple[str, bytes] | None]]:
    """Remove tasks discovered before a time, except what is in flight, from one chunk of the crawl.

    Returns how many were removed and where the next chunk starts.
    """
    stored = yield from crawls.alone(name)
    rows = yield Call("tasks_in_order", (stored.crawl_id, key, *after, CHUNK))
    old = [row for row in rows if row[5] < before and row[3] != NUMBER[TaskState.ASSIGNED]]
    places = [(row[0], row[1]) for row in old]
    removed = yield Call("delete_tasks", (stored.crawl_id,), places)
    yield Call("delete_metadata", (stored.crawl_id,), places)
    yield Call("delete_revisits", (stored.crawl_id,), places)
    yield Call("wake_limited", (stored.crawl_id,))
    changes = CountChanges()
    crawled: Counter[str] = Counter()
    for task_key, _, url, state, kind, _ in old:
        domain = locate(url).domain
        changes.add((stored.crawl_id, task_key, domain, kind), state, -1)
        crawled[domain] += kind == Kind.PAGE and state == COMPLETED
    yield from changes.write(slot)
    yield Call("keep_pages", (), sorted((domain, number) for domain, number in crawled.items() if number))
    return len(removed), (rows[-1][0], bytes(rows[-1][1])) if len(rows) == CHUNK else None


Deleted = tuple[int, list[str]]
"""How many tasks are gone, and the domains of those that were in flight: call `open_gates` for these."""


def delete_queue(name: str, key: str, slot: int) -> Script[Deleted]:
    """Remove a queue with its tasks and settings; leases on them are lost."""
    stored = yield from crawls.alone(name)
    totals = yield Call("queue_totals", (stored.crawl_id, key))
    ended = yield Call("delete_queue_leases", (stored.crawl_id, key))
    for part in ("tasks", "metadata", "revisits", "row"):
        yield Call(f"delete_queue_{part}", (stored.crawl_id, key))
    changes = CountChanges()
    for kind, *numbers in totals:
        for state, number in enumerate(numbers):
            changes.add((stored.crawl_id, key, "", kind), state, -int(number))
    yield from changes.write_sums_only(slot)
    yield Call("keep_counts", (stored.crawl_id, key))
    yield Call("delete_queue_counts", (stored.crawl_id, key))
    return sum(int(number) for _, *numbers in totals for number in numbers), [row[0] for row in ended]


def delete_crawl(name: str) -> Script[Deleted]:
    """Remove a crawl with everything but its artifacts."""
    stored = yield from crawls.alone(name)
    totals = yield Call("queue_totals", (stored.crawl_id, ""))
    yield Call("lock_queues_of_crawl", (stored.crawl_id,))
    ended = yield Call("delete_crawl_leases", (stored.crawl_id,))
    for part in ("tasks", "metadata", "revisits", "queues", "scope", "row"):
        yield Call(f"delete_crawl_{part}", (stored.crawl_id,))
    yield Call("keep_counts", (stored.crawl_id, None))
    yield Call("delete_crawl_counts", (stored.crawl_id,))
    return sum(int(number) for _, *numbers in totals for number in numbers), [row[0] for row in ended]


def open_gates(domains: list[str]) -> Script[None]:
    """Have the queues behind these gates looked at again.

    A transaction of its own: one that deletes holds queues of its crawl and must not wait for those of others. Where it
    does not come about, the queues wait until the deleted leases would have ended.
    """
    wakes = Wakes()
    for domain in domains:
        wakes.gate_opens(domain, 0)
    yield from wakes.write()
