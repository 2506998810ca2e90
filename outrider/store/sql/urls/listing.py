"""Lists and sums as batch clients ask for them; each call reads one short range of a crawl."""

import msgspec

from outrider.model.batch import ListedUrl, QueueNames, Statistics, UrlFilter, UrlRange
from outrider.model.task import Counts
from outrider.model.url import locate, url_hash
from outrider.policy.admission import key_for
from outrider.store.checks import check_record
from outrider.store.sql.script import Call, Row, Script
from outrider.store.sql.urls import browse, crawls
from outrider.store.sql.urls.add import MAX_PROBES
from outrider.store.sql.urls.checks import check_key, check_readable
from outrider.store.sql.urls.counting import COMPLETED, FAILED

RANGE = 10_000
"""How many rows one call goes through."""
LAST_KEY = chr(0x10FFFF) * 256
"""Sorts behind every key."""


def check_filter(which: UrlFilter) -> None:
    """Check what a listing is about."""
    check_record(which, "which", UrlFilter)
    if which.key is not None:
        check_key(which.key)
    if which.contains is not None:
        check_readable(which.contains, "contains")


def statistics(name: str, key: str | None, now: int | None) -> Script[Statistics]:
    """Sum up a crawl or one of its queues; an unknown queue has nothing."""
    stored = yield from crawls.find(name)
    moment = yield from crawls.clock(now)
    counts = yield from browse.counts(name, key)
    expired = (yield Call("expired_of_crawl", (stored.crawl_id, moment, key)))[0][0]
    if key is None:
        queues, active = yield from _count_queues(stored.crawl_id)
    else:
        queues, active = int(counts.total > 0), int(_is_active(counts))
    return Statistics(counts=counts, in_process=counts.assigned - expired, queues=queues, active_queues=active)


def _is_active(counts: Counts) -> bool:
    return counts.discovered + counts.pending + counts.assigned > 0


def _count_queues(crawl_id: int) -> Script[tuple[int, int]]:
    queues = active = 0
    after: str | None = ""
    while after is not None:
        number, some, last = (yield Call("count_queues", (crawl_id, after, RANGE)))[0]
        queues += number
        active += some
        after = last if number == RANGE else None
    return queues, active


def queue_names(name: str, start: int, size: int, everything: bool, now: int | None) -> Script[QueueNames]:
    """List queues that have had a URL, by key; without `everything` only those that have one left and no block."""
    stored = yield from crawls.find(name)
    moment = yield from crawls.clock(now)
    keys: list[str] = []
    total = 0
    after = ""
    while True:
        rows = yield Call("queue_keys", (stored.crawl_id, after, everything, moment, RANGE))
        first = max(0, start - total)
        keys += [row[0] for row in rows[first : first + size - len(keys)]]
        total += len(rows)
        if len(rows) < RANGE:
            return QueueNames(keys=keys, total=total)
        after = rows[-1][0]


def find_url(name: str, url: str, key: str | None) -> Script[ListedUrl | None]:
    """Find a URL in any spelling, with its metadata."""
    stored = yield from crawls.find(name)
    rules = stored.crawl.rules
    place = locate(url, strip_tracking=rules.strip_tracking, sort_query=rules.sort_query)
    kept_under = key_for(place, rules) if key is None else key
    for probe in range(MAX_PROBES):
        rows = yield Call("url_by_hash", (stored.crawl_id, kept_under, url_hash(place.url, probe)))
        if not rows:
            return None
        if rows[0][2] == place.url:
            return _listed(rows[0])
    return None


def list_urls(name: str, which: UrlFilter, cursor: str | None) -> Script[UrlRange]:
    """List what one range of a crawl has of these URLs, in an order that stays."""
    stored = yield from crawls.find(name)
    bounds = _bounds(which, cursor)
    end = yield from _end_of_range(stored.crawl_id, bounds)
    rows = yield Call("list_urls", (stored.crawl_id, *bounds, RANGE, which.contains, which.ignore_case))
    return UrlRange(urls=[_listed(row) for row in rows], next_cursor=end)


def count_urls(name: str, which: UrlFilter, cursor: str | None) -> Script[tuple[int, str | None]]:
    """Count what one range of a crawl has of these URLs; tell where the next range starts."""
    stored = yield from crawls.find(name)
    bounds = _bounds(which, cursor)
    end = yield from _end_of_range(stored.crawl_id, bounds)
    rows = yield Call("count_urls", (stored.crawl_id, *bounds, RANGE, which.contains, which.ignore_case))
    return rows[0][0], end


def _bounds(which: UrlFilter, cursor: str | None) -> tuple[str, bytes, str]:
    """Give the place behind which a range starts, and the last key that it may reach."""
    if which.key is None:
        return (*browse.decoded_cursor(cursor), LAST_KEY)
    if cursor is None:
        return which.key, b"", which.key
    return (*browse.decoded_cursor(cursor), which.key)


def _end_of_range(crawl_id: int, bounds: tuple[str, bytes, str]) -> Script[str | None]:
    rows = yield Call("end_of_urls", (crawl_id, *bounds, RANGE - 1))
    return browse.encoded_cursor(rows[0][0], bytes(rows[0][1])) if rows else None


def _listed(row: Row) -> ListedUrl:
    key, _, url, state, due_at, discovered_at, metadata = row
    return ListedUrl(
        url=url,
        key=key,
        due_at=None if state in (COMPLETED, FAILED) else due_at,
        discovered_at=discovered_at,
        metadata=None if metadata is None else msgspec.json.decode(metadata),
    )
