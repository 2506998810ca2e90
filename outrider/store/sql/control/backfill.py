"""Backfills: adding what is missing of the past of domains, and the ledger that knows what is.

A domain is offered with all that a source tells of it. The ledger has what the same source brought before; the
difference is added to the domain's own columns, which are offsets to what its counts say. So neither a repetition nor
a kill between two batches counts anything twice, and live counters are never written.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from outrider.model.backfill import (
    COUNTERS,
    Backfill,
    BackfillFigures,
    BackfillKind,
    BackfillStep,
    DomainPast,
    StatusFigures,
    UnknownBackfill,
)
from outrider.model.domain_name import parent_domain
from outrider.model.identifiers import new_uuid7
from outrider.model.machines import DomainStatus
from outrider.model.settings import Settings
from outrider.policy.domain_priority import Signals
from outrider.policy.lifecycle import path
from outrider.policy.past import Beginning, beginning_of
from outrider.store.sql.control.rows import record
from outrider.store.sql.script import Call, Script, Value
from outrider.store.sql.urls import crawls

ACTOR = "backfill"
"""Who took the first steps of a domain's life, in its history."""


class Missing(NamedTuple):
    """What a domain lacks of its past."""

    past: DomainPast
    counters: tuple[int, ...]
    """By the order of `COUNTERS`, how much more than the ledger has."""


def begin(backfill_id: str, source: str, kind: BackfillKind, now: int | None) -> Script[Backfill]:
    """Open an entry, or go on with the one that is there."""
    moment = yield from crawls.clock(now)
    rows = yield Call("insert_backfill", (backfill_id, source, kind.value, moment))
    return record(Backfill, rows[0])


def find(backfill_id: str) -> Script[Backfill | None]:
    """Read an entry."""
    rows = yield Call("backfill", (backfill_id,))
    return record(Backfill, rows[0]) if rows else None


def listed() -> Script[list[Backfill]]:
    """List all entries."""
    rows = yield Call("list_backfills")
    return [record(Backfill, row) for row in rows]


def note(
    backfill_id: str, position: str | None, read: int, refused: int, finished: bool, now: int | None
) -> Script[Backfill]:
    """Write down how far a backfill has come."""
    moment = yield from crawls.clock(now)
    rows = yield Call("note_backfill", (backfill_id, moment, position, read, refused, int(finished)))
    if not rows:
        raise UnknownBackfill(backfill_id)
    return record(Backfill, rows[0])


def preview(backfill_id: str, pasts: Sequence[DomainPast]) -> Script[BackfillStep]:
    """Tell what `add` would do."""
    missing = yield from _missing(backfill_id, pasts)
    known = yield Call("known_domains", (), [(each.past.domain,) for each in missing])
    new = len(missing) - len(known)
    return BackfillStep(new=new, added_to=len(known), unchanged=len(pasts) - len(missing))


def add(backfill_id: str, pasts: Sequence[DomainPast], settings: Settings, now: int | None) -> Script[BackfillStep]:
    """Add what is missing and write it down in the ledger."""
    found = yield Call("lock_backfill", (backfill_id,))
    if not found:
        raise UnknownBackfill(backfill_id)
    entry = record(Backfill, found[0])
    moment = yield from crawls.clock(now)
    missing = yield from _missing(backfill_id, pasts)
    if not missing:
        return BackfillStep(unchanged=len(pasts))
    # Ids in the order of names: among equals, the first is the first claimed.
    ids = dict(zip((each.past.domain for each in missing), sorted(new_uuid7() for _ in missing), strict=True))
    seeds = [(each, domain, parent_domain(domain), entry.kind.source, None) for domain, each in ids.items()]
    inserted = yield Call("insert_seeds", (moment,), seeds)
    fresh = {row[0] for row in inserted}
    new = [each.past for each in missing if each.past.domain in fresh]
    if new:
        yield Call("insert_gates", (), [(past.domain,) for past in new])
        yield from _begin_lives(new, ids, settings, moment)
    yield Call("lock_domains", (), [(each.past.domain,) for each in missing])
    filled = {row[0] for row in (yield Call("fill_backfilled", (), [_filling(each) for each in missing]))}
    # A domain that was merged into another meanwhile is not there: it comes again, as a new one, the next time.
    kept = [each for each in missing if each.past.domain in filled]
    yield Call("keep_backfilled", (backfill_id,), [(each.past.domain, *each.counters) for each in kept])
    yield Call("count_backfilled", (backfill_id, moment, len(new), kept[-1].past.domain if kept else None))
    return BackfillStep(new=len(new), added_to=len(kept) - len(new), unchanged=len(pasts) - len(kept))


def _missing(backfill_id: str, pasts: Sequence[DomainPast]) -> Script[list[Missing]]:
    """Compare pasts with the ledger; what a source no longer tells of stays."""
    wanted = {past.domain: past for past in pasts}
    rows = yield Call("backfilled_domains", (backfill_id,), [(domain,) for domain in sorted(wanted)])
    ledger = {row[0]: row[1:] for row in rows}
    missing = []
    for domain, past in sorted(wanted.items()):
        told = tuple(getattr(past, counter) for counter in COUNTERS)
        kept = ledger.get(domain)
        more = told if kept is None else tuple(max(0, new - old) for new, old in zip(told, kept, strict=True))
        if kept is None or any(more):
            missing.append(Missing(past, more))
    return missing


def _filling(missing: Missing) -> tuple[Value, ...]:
    past = missing.past
    bounds = (past.crawl_depth_reached, past.first_seen_at, past.last_crawled_at)
    return (past.domain, *missing.counters, *bounds)


def _begin_lives(pasts: Sequence[DomainPast], ids: Mapping[str, str], settings: Settings, moment: int) -> Script[None]:
    """Give new domains, which nobody else can see yet, the status that their past says."""
    lives = [(past, beginning_of(past, settings, moment)) for past in pasts]
    blocked = [(past.domain, life.next_crawl_after) for past, life in lives if life.status is DomainStatus.BLOCKED]
    if blocked:
        yield Call("block_backfilled_gates", (), blocked)
    yield Call("begin_backfilled", (moment,), [_life(past, life) for past, life in lives])
    steps = [step for past, life in lives for step in _steps(ids[past.domain], life)]
    if steps:
        yield Call("insert_domain_history", (moment,), steps)


def _life(past: DomainPast, life: Beginning) -> tuple[Value, ...]:
    signals = Signals(
        first_seen_at=0,
        pages_crawled=past.pages_crawled,
        images_found=past.images_found,
        images_stored=past.images_stored,
        total_error_count=past.total_error_count,
    )
    rates = (signals.image_yield_rate, signals.avg_images_per_page, signals.error_rate)
    return (
        past.domain, life.status.value, life.reason, life.reason_code, life.next_crawl_after, len(_path(life)), *rates
    )  # fmt: skip


def _steps(domain_id: str, life: Beginning) -> list[tuple[Value, ...]]:
    """Write the history that leads to a status, by steps that the state machine has."""
    steps: list[tuple[Value, ...]] = []
    for version, (source, target) in enumerate(pairwise((DomainStatus.PENDING, *_path(life))), start=1):
        reason = (life.reason_code, life.reason) if target is life.status else (None, None)
        steps.append((domain_id, source.value, target.value, *reason, ACTOR, None, version))
    return steps


def _path(life: Beginning) -> tuple[DomainStatus, ...]:
    return () if life.status is DomainStatus.PENDING else path(DomainStatus.PENDING, life.status)


def figures() -> Script[BackfillFigures]:
    """Sum up what backfills have brought, and what there is."""
    total = yield Call("count_domains")
    rows = yield Call("backfill_figures")
    by_status = [record(StatusFigures, row) for row in rows]
    return BackfillFigures(
        backfilled_domains=sum(each.domains for each in by_status),
        total_domains=total[0][0],
        by_status=by_status,
    )
