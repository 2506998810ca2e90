"""Revisits: what is remembered of each page's changes, and the pages that are due to be fetched again.

A page has a row once it was completed while refreshing is on, or was enrolled later. Whatever is leased of such a page
is a refresh. Here alone COMPLETED tasks become PENDING.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from outrider.model.lease import Report
from outrider.model.machines import TASK, TaskState
from outrider.model.settings import Settings
from outrider.model.task import NEVER, Kind
from outrider.model.url import locate
from outrider.policy import recrawl
from outrider.policy.recrawl import Hints, History, RefreshSettings
from outrider.store.sql.script import Call, Row, Script, Value
from outrider.store.sql.urls import crawls
from outrider.store.sql.urls.counting import COMPLETED, PENDING, CountChanges
from outrider.store.sql.urls.waking import Wakes

CHUNK = 1_000
GONE = frozenset({404, 410})
REVISITED = frozenset({Kind.PAGE, Kind.SITEMAP})

Place = tuple[int, str, bytes]
"""Crawl, key and hash of a task."""


class Visit(NamedTuple):
    """A page that a report completes."""

    place: Place
    domain: str
    report: Report
    chance: float
    artifact_id: int


class Revisit(NamedTuple):
    """What is remembered of a page."""

    history: History
    changes: int
    artifact_id: int | None
    """The last fetch that brought the page: its validators and hashes are what the next one is compared with."""


def settings_of(settings: Settings) -> RefreshSettings:
    """Choose what the policy needs of the settings."""
    return RefreshSettings(
        balance_ms=settings.refresh_balance_ms,
        first_ms=settings.refresh_first_ms,
        shortest_ms=settings.refresh_shortest_ms,
        longest_ms=max(settings.exhausted_rest_ms, settings.refresh_shortest_ms),
        gone_retry_ms=settings.refresh_gone_retry_ms,
        max_gone=settings.refresh_max_gone,
    )


def find(places: Sequence[Place]) -> Script[dict[Place, Revisit]]:
    """Read what is remembered of pages that this transaction has the tasks of."""
    rows = yield Call("revisits_of", (), sorted(places))
    return {(row[0], row[1], bytes(row[2])): _decoded(row[3:]) for row in rows}


def _decoded(row: Row) -> Revisit:
    visited_at, interval_ms, gap_ms, spread, changed_at, streak, visits, gone, changes, artifact_id = row
    history = History(
        visited_at=visited_at, interval_ms=interval_ms, gap_ms=gap_ms, spread=spread, changed_at=changed_at,
        streak=streak, visits=visits, gone=gone,
    )  # fmt: skip
    return Revisit(history, changes, artifact_id)


def note(visits: Sequence[Visit], known: Mapping[Place, Revisit], now: int, settings: Settings) -> Script[None]:
    """Learn from pages that were completed, and write down when to fetch each again."""
    wanted = settings_of(settings)
    rows = [_row(visit, known.get(visit.place), now, wanted) for visit in visits]
    yield Call("put_revisits", (), sorted(rows, key=lambda row: row[:3]))


def _row(visit: Visit, known: Revisit | None, now: int, settings: RefreshSettings) -> tuple[Value, ...]:
    report = visit.report
    fresh_until = None if report.fresh_for_ms is None else now + report.fresh_for_ms
    hints = Hints(fresh_until_ms=fresh_until)
    before = recrawl.first_visit(now, settings) if known is None else known.history
    changes = 0 if known is None else known.changes
    artifact_id: int | None = visit.artifact_id
    after: History | None
    if report.fetch.http_status in GONE:
        after = recrawl.after_gone(before, now, settings)
        artifact_id = None if known is None else known.artifact_id
    elif known is None:
        after = before
    elif report.changed is None:
        after = msgspec.structs.replace(before, visited_at=now, gone=0)
    else:
        after = recrawl.after_visit(before, now, changed=report.changed)
        changes += report.changed
    if after is None:
        due_at, after = NEVER, msgspec.structs.replace(before, visited_at=now, gone=before.gone + 1)
    else:
        due_at = recrawl.next_due(after, settings, visit.chance, hints)
    return (*visit.place, visit.domain, due_at, *_columns(after), changes, artifact_id)


def _columns(history: History) -> tuple[Value, ...]:
    return (
        history.visited_at, history.interval_ms, history.gap_ms, history.spread, history.changed_at, history.streak,
        history.visits, history.gone,
    )  # fmt: skip


def hasten_changed(crawl_id: int, links: Sequence[tuple[str, bytes, int]], now: int) -> Script[None]:
    """Make pages due of which a sitemap says that they have changed since they were fetched."""
    if links:
        yield Call("hasten_changed", (crawl_id, now), sorted(links))


def reopen(
    name: str, domain: str | None, most: int, now: int | None, settings: Settings, slot: int
) -> Script[tuple[int, int, int]]:
    """Make one chunk of COMPLETED tasks PENDING whose time has come, the longest overdue first.

    Tell how many came up, and how many were made PENDING: what is being fetched already, or has failed since, is not.
    Tell also the time; the chunks of one refresh all have that of the first, so that nothing comes up in two of them.
    Each is put off at once, so that a page whose fetch does not complete comes up again, but not in this refresh.
    """
    stored = yield from crawls.for_write(name)
    moment = yield from crawls.clock(now)
    TASK.check(TaskState.COMPLETED, TaskState.PENDING)
    call = "due_revisits" if domain is None else "due_revisits_of_domain"
    values = (stored.crawl_id, moment, min(most, CHUNK)) + (() if domain is None else (domain,))
    places = sorted((row[0], bytes(row[1])) for row in (yield Call(call, values)))
    moved = yield Call("reopen_tasks", (stored.crawl_id, moment), places)
    changes, wakes = CountChanges(), Wakes()
    for key, kind, url in moved:
        changes.move((stored.crawl_id, key, locate(url).domain, kind), COMPLETED, PENDING)
        wakes.task_due((stored.crawl_id, key), moment)
    yield Call("postpone_revisits", (stored.crawl_id, moment + max(settings_of(settings).longest_ms, 1)), places)
    yield from wakes.write()
    yield from changes.write(slot)
    return len(places), len(moved), moment


def hasten(name: str, domain: str, now: int | None) -> Script[int]:
    """Make one chunk of a domain's pages due, except those that were dropped; tell how many."""
    stored = yield from crawls.for_write(name)
    moment = yield from crawls.clock(now)
    rows = yield Call("hasten_domain", (stored.crawl_id, moment, domain, CHUNK))
    return len(rows)


def enrol(
    name: str, after: tuple[str, bytes], chances: Sequence[float], settings: Settings
) -> Script[tuple[int, tuple[str, bytes] | None]]:
    """Begin to remember one chunk of the pages that were completed before refreshing was on.

    Tell how many, and where the next chunk starts.
    """
    stored = yield from crawls.for_write(name)
    rows = yield Call("tasks_in_order", (stored.crawl_id, None, *after, CHUNK))
    completed = [(row[0], bytes(row[1])) for row in rows if row[3] == COMPLETED and row[4] in REVISITED]
    strangers = yield Call("strangers", (stored.crawl_id,), completed)
    wanted = settings_of(settings)
    begun: list[tuple[Value, ...]] = []
    for (key, digest, url, http_status, fetched_at, artifact_id), chance in zip(strangers, chances, strict=False):
        history = recrawl.first_visit(fetched_at, wanted)
        if http_status in GONE:
            history = msgspec.structs.replace(history, gone=1)
        due_at = recrawl.next_due(history, wanted, chance)
        place = (stored.crawl_id, key, bytes(digest), locate(url).domain)
        begun.append((*place, due_at, *_columns(history), 0, artifact_id))
    yield Call("put_revisits", (), sorted(begun, key=lambda row: row[:3]))
    return len(begun), (rows[-1][0], bytes(rows[-1][1])) if len(rows) == CHUNK else None


def is_refreshed(name: str) -> Script[bool]:
    """Tell whether anything is remembered of a crawl's pages."""
    stored = yield from crawls.find(name)
    return bool((yield Call("is_refreshed", (stored.crawl_id,))))
