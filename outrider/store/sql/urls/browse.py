"""Browsing: tasks, queues, counts and artifacts, page by page in an order that stays."""

import base64
import binascii
from collections.abc import Sequence

import msgspec

from outrider.model.artifact import Artifact, ArtifactHorizon, Fetch
from outrider.model.errors import InvalidInput, shown
from outrider.model.lease import Holder
from outrider.model.machines import TaskState
from outrider.model.task import (
    MAX_BATCH,
    Counts,
    DiscoveryType,
    Kind,
    Outlook,
    Queue,
    QueueSettings,
    Task,
    TaskFilter,
    TaskPage,
    WaitingQueue,
)
from outrider.model.url import Location, locate, url_hash
from outrider.policy.admission import key_for, storable
from outrider.store.sql.script import Call, Row, Script
from outrider.store.sql.urls import crawls
from outrider.store.sql.urls.add import MAX_PROBES
from outrider.store.sql.urls.counting import NUMBER, STATES
from outrider.store.sql.urls.crawls import StoredCrawl
from outrider.store.sql.urls.waking import LIMITED


def check_page_size(limit: int) -> int:
    """Refuse a page that is empty or larger than a batch may be."""
    if type(limit) is not int or not 1 <= limit <= MAX_BATCH:
        raise InvalidInput(f"a page has 1 to {MAX_BATCH} rows, not {shown(limit)}")
    return limit


def encoded_cursor(key: str, digest: bytes) -> str:
    """Write the place of a task as a word that can be handed out."""
    return base64.urlsafe_b64encode(digest + key.encode()).decode()


def decoded_cursor(cursor: str | None) -> tuple[str, bytes]:
    """Read a place back; None is the beginning."""
    if cursor is None:
        return "", b""
    try:
        raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        key = raw[16:].decode()
        if not key or not storable(key):
            raise ValueError
    except (AttributeError, ValueError, binascii.Error) as error:
        raise InvalidInput(f"{shown(cursor)} is not a cursor that a listing gave out") from error
    return key, raw[:16]


def decoded_task(crawl: str, row: Row) -> Task:
    """Read a task joined with its lease and its metadata."""
    return Task(
        crawl=crawl,
        key=row[0],
        url=row[2],
        kind=Kind(row[3]),
        state=STATES[row[4]],
        priority=row[5],
        depth=row[6],
        attempt_count=row[7],
        failures=row[8],
        deferrals=row[9],
        expiries=row[10],
        discovered_at=row[11],
        due_at=row[12],
        discovery_type=DiscoveryType(row[13]),
        http_status=row[14],
        reason=row[15],
        last_heartbeat=row[16],
        metadata=None if row[17] is None else msgspec.json.decode(row[17]),
    )


def list_tasks(name: str, which: TaskFilter, cursor: str | None, limit: int) -> Script[TaskPage]:
    """List tasks by (key, hash): a task never moves in this order, whatever happens to it."""
    stored = yield from crawls.find(name)
    after_key, after_hash = decoded_cursor(cursor)
    rows = yield Call(
        "list_tasks",
        (
            stored.crawl_id, after_key, after_hash, which.key,
            None if which.state is None else NUMBER[TaskState(which.state)],
            None if which.kind is None else int(which.kind),
            which.url_contains, check_page_size(limit),
        ),
    )  # fmt: skip
    tasks = [decoded_task(name, row) for row in rows]
    next_cursor = encoded_cursor(rows[-1][0], bytes(rows[-1][1])) if len(rows) == limit else None
    return TaskPage(tasks=tasks, next_cursor=next_cursor)


def find_task(name: str, url: str, key: str | None) -> Script[Task | None]:
    """Find a task by its URL, in any spelling that normalises to the same."""
    stored = yield from crawls.find(name)
    place = _place_of(url, stored)
    kept_under = key_for(place, stored.crawl.rules) if key is None else key
    for probe in range(MAX_PROBES):
        rows = yield Call("task", (stored.crawl_id, kept_under, url_hash(place.url, probe)))
        if not rows:
            return None
        if rows[0][2] == place.url:
            return decoded_task(name, rows[0])
    return None


def _place_of(url: str, stored: StoredCrawl) -> Location:
    rules = stored.crawl.rules
    return locate(url, strip_tracking=rules.strip_tracking, sort_query=rules.sort_query)


def find_holder(name: str, url: str, key: str | None) -> Script[Holder | None]:
    """Tell who holds the lease of a task."""
    stored = yield from crawls.find(name)
    place = _place_of(url, stored)
    kept_under = key_for(place, stored.crawl.rules) if key is None else key
    rows = yield Call("holder", (stored.crawl_id, kept_under, url_hash(place.url)))
    return Holder(**dict(zip(Holder.__struct_fields__, rows[0], strict=True))) if rows else None


def counts(name: str, key: str | None) -> Script[Counts]:
    """Sum the counts of a crawl or of one of its queues; an unknown queue has none."""
    stored = yield from crawls.find(name)
    rows = yield Call("counts", (stored.crawl_id, "" if key is None else key))
    return _counts(rows[0])


def counts_by_kind(name: str) -> Script[dict[Kind, Counts]]:
    """Sum the counts of a crawl for each kind of task that it has."""
    stored = yield from crawls.find(name)
    rows = yield Call("counts_by_kind", (stored.crawl_id,))
    return {Kind(kind): _counts(numbers) for kind, *numbers in rows}


def outlook(name: str) -> Script[Outlook]:
    """Tell what a crawl has before it."""
    return (yield from outlook_of((yield from crawls.find(name))))


def outlook_of(stored: StoredCrawl) -> Script[Outlook]:
    """Tell what a crawl that was found has before it."""
    *numbers, next_ready_at, limited = (yield Call("outlook", (stored.crawl_id,)))[0]
    return Outlook(
        counts=_counts(numbers),
        next_ready_at=None if next_ready_at is None or next_ready_at >= LIMITED else next_ready_at,
        limited=bool(limited),
    )


def waiting_queues(name: str, after: int, limit: int) -> Script[list[WaitingQueue]]:
    """List the queues that wait longest."""
    stored = yield from crawls.find(name)
    rows = yield Call("waiting_queues", (stored.crawl_id, after, check_page_size(limit)))
    return [WaitingQueue(**dict(zip(WaitingQueue.__struct_fields__, row, strict=True))) for row in rows]


def scope_roots(name: str) -> Script[list[str]]:
    """List the addresses that widen a crawl's scope."""
    stored = yield from crawls.find(name)
    return [row[0] for row in (yield Call("scope_roots", (stored.crawl_id,)))]


def _counts(numbers: Sequence[int]) -> Counts:
    return Counts(**{state.lower(): int(number) for state, number in zip(STATES, numbers, strict=True)})


def list_queues(name: str, after: str, limit: int) -> Script[list[Queue]]:
    """List queues by key with their settings and counts."""
    stored = yield from crawls.find(name)
    rows = yield Call("list_queues", (stored.crawl_id, after, check_page_size(limit)))
    return [
        Queue(
            crawl=name,
            key=row[0],
            domain=row[1] or None,
            band=row[2],
            ready_at=row[3],
            last_served_at=row[4],
            settings=QueueSettings(delay_ms=row[5], blocked_until=row[6] or None, page_limit=row[7], priority=row[8]),
            counts=_counts(row[9:14]),
        )
        for row in rows
    ]


def artifacts(name: str, after_id: int, limit: int) -> Script[list[Artifact]]:
    """List a crawl's artifacts in the order in which they were reported."""
    rows = yield Call("list_artifacts", (name, after_id, check_page_size(limit)))
    return decoded_artifacts(rows)


def artifacts_of(name: str, url: str, limit: int) -> Script[list[Artifact]]:
    """List the artifacts of one URL, in any spelling, the newest first."""
    stored = yield from crawls.find(name)
    place = _place_of(url, stored)
    rows = yield Call("artifacts_of_url", (name, url_hash(place.url), place.url, check_page_size(limit)))
    return decoded_artifacts(rows)


def artifact_horizon() -> Script[ArtifactHorizon]:
    """Tell how far the numbers of artifacts have come."""
    last_id, next_writer, oldest_writer = (yield Call("artifact_horizon"))[0]
    return ArtifactHorizon(last_id=last_id, next_writer=next_writer, oldest_writer=oldest_writer)


def decoded_artifacts(rows: list[Row]) -> list[Artifact]:
    """Read rows of `crawl_log`."""
    return [
        Artifact(
            artifact_id=row[0],
            crawl=row[1],
            key=row[2],
            url=row[3],
            token=bytes(row[4]).hex(),
            attempt=row[5],
            domain=row[6],
            domain_id=None if row[7] is None else str(row[7]),
            kind=Kind(row[8]),
            outcome=row[9],
            reason=row[10],
            discovery_type=DiscoveryType(row[11]),
            run_id=None if row[12] is None else str(row[12]),
            depth=row[13],
            leased_at=row[14],
            reported_at=row[15],
            fetch=_fetch(row[16:]),
        )
        for row in rows
    ]


def _fetch(values: Row) -> Fetch:
    fields = dict(zip(Fetch.__struct_fields__, values, strict=True))
    fields["noindex"] = bool(fields["noindex"])
    redirects = fields.pop("redirects")
    return Fetch(**fields, redirects=() if redirects is None else tuple(msgspec.json.decode(redirects)))
