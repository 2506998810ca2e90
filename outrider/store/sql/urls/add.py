"""Adding what was discovered: new tasks, their queues, gates and domains, and the counts."""

from collections.abc import Sequence
from typing import NamedTuple

from outrider.model.domain_name import parent_domain
from outrider.model.identifiers import new_uuid7
from outrider.model.task import AddResult
from outrider.model.url import url_hash
from outrider.policy.admission import KNOWN, NEW, Admission, Candidate
from outrider.store.sql.script import Call, Script, Value
from outrider.store.sql.urls import crawls
from outrider.store.sql.urls.counting import DISCOVERED, PENDING, CountChanges
from outrider.store.sql.urls.crawls import StoredCrawl
from outrider.store.sql.urls.waking import QueueKey, Wakes

SEQUENCE_BLOCK = 10_000
"""How many numbers of discovery one step of the store's sequence stands for."""

MAX_PROBES = 16


class RulesChanged(Exception):
    """The crawl was deleted and created anew since its batch was admitted: admit it again."""


class Batch(NamedTuple):
    """What one crawl was offered."""

    stored: StoredCrawl
    candidates: Sequence[Candidate]


def add(admitted_for: StoredCrawl, admission: Admission, now: int | None, slot: int) -> Script[list[AddResult]]:
    """Store one admitted batch."""
    stored = yield from crawls.for_write(admitted_for.crawl.name)
    if stored.crawl_id != admitted_for.crawl_id:
        raise RulesChanged
    moment = yield from crawls.clock(now)
    changes, wakes = CountChanges(), Wakes()
    new = yield from insert([Batch(stored, admission.candidates)], moment, changes, wakes)
    yield from wakes.write()
    yield from changes.write(slot)
    fresh = {candidate.position for candidate in new}
    return [
        result if result is not None else NEW if position in fresh else KNOWN
        for position, result in enumerate(admission.results)
    ]


def insert(
    batches: Sequence[Batch], now: int, changes: CountChanges, wakes: Wakes
) -> Script[list[Candidate]]:
    """Insert the tasks that are not there yet and return them.

    The caller writes `wakes` and `changes`, merged with its own, at the end of the transaction.
    """
    offered = [
        (batch.stored, candidate)
        for batch in sorted(batches, key=lambda batch: batch.stored.crawl_id)
        for candidate in sorted(batch.candidates)
    ]
    if not offered:
        return []
    yield from _ensure_queues(offered, now, wakes)
    starts = yield Call("take_sequence", (-(-len(offered) // SEQUENCE_BLOCK),))
    numbered = _numbered(offered, [row[0] for row in starts], now)
    fresh: list[Candidate] = []
    for probe in range(1, MAX_PROBES):
        inserted = {row[0] for row in (yield Call("insert_tasks", (now,), [row for row, _ in numbered]))}
        metadata = []
        for row, candidate in numbered:
            if row[9] not in inserted:
                continue
            crawl_id, key, digest, state, due_at = row[0], row[1], row[2], row[5], row[10]
            fresh.append(candidate)
            changes.add((crawl_id, key, candidate.domain, candidate.kind), state)
            if state == PENDING:
                wakes.task_due((crawl_id, key), due_at)
            if candidate.metadata is not None:
                metadata.append((crawl_id, key, digest, candidate.metadata))
        yield Call("insert_metadata", (), metadata)
        refused = [pair for pair in numbered if pair[0][9] not in inserted]
        colliding = yield Call("colliding_tasks", (), [(*row[:4], row[9]) for row, _ in refused])
        if not colliding:
            break
        again = {row[0] for row in colliding}
        numbered = sorted(
            ((*row[:2], url_hash(row[3], probe), *row[3:]), candidate)
            for row, candidate in refused
            if row[9] in again
        )
    return fresh


def _numbered(
    offered: list[tuple[StoredCrawl, Candidate]], starts: list[int], now: int
) -> list[tuple[tuple[Value, ...], Candidate]]:
    """Make task rows, numbered in the order of discovery and sorted in the order of storage."""
    order = sorted(range(len(offered)), key=lambda place: (offered[place][0].crawl_id, offered[place][1].position))
    sequences = [0] * len(offered)
    for ordinal, place in enumerate(order):
        sequences[place] = starts[ordinal // SEQUENCE_BLOCK] + ordinal % SEQUENCE_BLOCK
    rows = []
    for (stored, candidate), sequence in zip(offered, sequences, strict=True):
        max_depth = stored.crawl.limits.max_depth
        rows.append(
            (
                (
                    stored.crawl_id, candidate.key, candidate.hash, candidate.url, candidate.kind,
                    PENDING if max_depth is None or candidate.depth <= max_depth else DISCOVERED,
                    candidate.due_in_ms > 0, candidate.priority, candidate.depth, sequence,
                    now + candidate.due_in_ms, candidate.discovery_type,
                ),
                candidate,
            )
        )  # fmt: skip
    return rows


def _ensure_queues(offered: list[tuple[StoredCrawl, Candidate]], now: int, wakes: Wakes) -> Script[None]:
    """Create the queues, gates and domains that are missing, in the order domains, gates, queues.

    A queue knows the domain of its tasks: `''` before its first one, None where a client's key gathers
    several domains.
    """
    wanted: dict[QueueKey, set[str]] = {}
    for stored, candidate in offered:
        domains = wanted.get((stored.crawl_id, candidate.key))
        if domains is None:
            wanted[stored.crawl_id, candidate.key] = {candidate.domain}
        else:
            domains.add(candidate.domain)
    facts = yield Call("queue_domains", (), list(wanted))
    missing = dict(wanted)
    unknown: set[str] = set()
    for crawl_id, key, domain in facts:
        domains = missing.pop((crawl_id, key))
        if domain is None:
            unknown |= domains
        elif domains != {domain}:
            unknown |= domains
            wakes.name((crawl_id, key), next(iter(domains)) if domain == "" and len(domains) == 1 else None)
    unknown.update(*missing.values())
    yield from ensure_gates(unknown, now)
    yield Call(
        "insert_queues",
        (now,),
        [
            (crawl_id, key, min(domains) if len(domains) == 1 else None, min(domains))
            for (crawl_id, key), domains in missing.items()
        ],
    )


def ensure_gates(domains: set[str], now: int) -> Script[None]:
    """Create the domains and gates that are missing among these."""
    ordered = sorted(domains)
    yield Call("insert_domains", (now,), [(new_uuid7(), domain, parent_domain(domain)) for domain in ordered])
    yield Call("insert_gates", (), [(domain,) for domain in ordered])
