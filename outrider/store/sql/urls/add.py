"""Adding what was discovered: new tasks, their queues, gates and domains, and the counts."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple, cast

import msgspec

from outrider.model.domain_name import parent_domain
from outrider.model.identifiers import new_uuid7
from outrider.model.task import MAX_DEPTH, AddResult
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
    size: int
    """How many items the candidates were chosen from."""


Offered = dict[QueueKey, list[Candidate]]

_hash = itemgetter(1)
SEQUENCE = 9
"""The place of a task's sequence in its row."""
_identity = itemgetter(0, 1, 2, 3, SEQUENCE)

TaskRow = tuple[Value, ...]
"""What is written of a new task: crawl, key, hash, url, kind, state, delayed, priority, depth, sequence, due
and so on. It sorts in the order in which tasks are stored."""


def add(admitted_for: StoredCrawl, admission: Admission, now: int | None, slot: int) -> Script[list[AddResult]]:
    """Store one admitted batch."""
    stored = yield from crawls.for_write(admitted_for.crawl.name)
    if stored.crawl_id != admitted_for.crawl_id:
        raise RulesChanged
    moment = yield from crawls.clock(now)
    changes, wakes = CountChanges(), Wakes()
    batch = Batch(stored, admission.candidates, len(admission.results))
    new = yield from insert([batch], moment, changes, wakes)
    yield from wakes.write()
    yield from changes.write(slot)
    results = list(admission.results)
    for candidate in admission.candidates:
        results[candidate[2]] = KNOWN
    for candidate in new:
        results[candidate[2]] = NEW
    return cast(list[AddResult], results)


def insert(batches: Sequence[Batch], now: int, changes: CountChanges, wakes: Wakes) -> Script[list[Candidate]]:
    """Insert the tasks that are not there yet and return what they were made from.

    The caller writes `wakes` and `changes`, merged with its own, at the end of the transaction.
    """
    offered = {(batch.stored.crawl_id, key): group for batch in batches for key, group in _by_key(batch).items()}
    if not offered:
        return []
    yield from _ensure_queues(offered, now, wakes)
    blocks = -(-sum(batch.size for batch in batches) // SEQUENCE_BLOCK)
    starts = [row[0] for row in (yield Call("take_sequence", (blocks,)))]
    origins: dict[int, Candidate] = {}
    rows = _rows(batches, offered, starts, now, origins)
    inserted: list[TaskRow] = []
    robots = sorted({(origin[1],) for origin in origins.values() if origin[3].endswith("/robots.txt")})
    yield Call("lock_robots_urls", (), robots)
    for probe in range(1, MAX_PROBES):
        fresh, again = yield from _insert_unknown(rows)
        inserted += fresh
        if not again:
            break
        rows = sorted((*row[:2], url_hash(row[3], probe), *row[3:]) for row in again)
    made_from = [origins[row[SEQUENCE]] for row in inserted]
    _count(inserted, made_from, changes, wakes)
    metadata = [
        (*row[:3], origin[10]) for row, origin in zip(inserted, made_from, strict=True) if origin[10] is not None
    ]
    yield Call("insert_metadata", (), metadata)
    return made_from


def _by_key(batch: Batch) -> dict[str, list[Candidate]]:
    groups: defaultdict[str, list[Candidate]] = defaultdict(list)
    for candidate in batch.candidates:
        groups[candidate[0]].append(candidate)
    return groups


def _rows(
    batches: Sequence[Batch], offered: Offered, starts: list[int], now: int, origins: dict[int, Candidate]
) -> list[TaskRow]:
    """Make task rows, numbered in the order of discovery and sorted in the order of storage.

    Sorting each queue's few by their hash is several times faster than sorting all by key and hash.
    """
    first: dict[int, tuple[int, int]] = {}
    size = 0
    for batch in batches:
        max_depth = batch.stored.crawl.limits.max_depth
        first[batch.stored.crawl_id] = size, MAX_DEPTH if max_depth is None else max_depth
        size += batch.size
    rows: list[TaskRow] = []
    for queue in sorted(offered):
        crawl_id = queue[0]
        before, deepest = first[crawl_id]
        for candidate in sorted(offered[queue], key=_hash):
            key, digest, position, url, _, kind, priority, depth, due_in_ms, discovery_type, _ = candidate
            ordinal = before + position
            sequence = starts[ordinal // SEQUENCE_BLOCK] + ordinal % SEQUENCE_BLOCK
            origins[sequence] = candidate
            rows.append(
                (
                    crawl_id, key, digest, url, kind, PENDING if depth <= deepest else DISCOVERED, due_in_ms > 0,
                    priority, depth, sequence, now + due_in_ms, discovery_type, now,
                )
            )  # fmt: skip
    return rows


def _insert_unknown(offered: list[TaskRow]) -> Script[tuple[list[TaskRow], list[TaskRow]]]:
    """Insert what is not known; returns what was inserted, and what must be tried with another hash.

    SQLite asks first and inserts the rest; PostgreSQL, where others insert as well, inserts first and asks about
    what was there. Either way each task is looked up once.
    """
    known, colliding = yield from _compared("known_tasks", offered)
    unknown: list[TaskRow] = []
    again: list[TaskRow] = []
    last: TaskRow = (None,) * 4
    for row in offered:
        if row[SEQUENCE] in known:
            continue
        if row[SEQUENCE] in colliding:
            again.append(row)
        elif row[2] != last[2] or row[1] != last[1] or row[0] != last[0]:
            unknown.append(row)
            last = row
        elif row[3] != last[3]:
            again.append(row)
    there = {row[0] for row in (yield Call("insert_tasks", (), unknown))}
    if not there:
        return unknown, again
    refused = [row for row in unknown if row[SEQUENCE] in there]
    _, colliding = yield from _compared("compare_tasks", refused)
    again += [row for row in refused if row[SEQUENCE] in colliding]
    return [row for row in unknown if row[SEQUENCE] not in there], again


def _compared(statement: str, rows: list[TaskRow]) -> Script[tuple[set[int], set[int]]]:
    """Tell which of these tasks are there, and where another URL has taken the place of one."""
    known: set[int] = set()
    colliding: set[int] = set()
    for same, other in (yield Call(statement, (), [_identity(row) for row in rows])):
        known.update(msgspec.json.decode(same))
        colliding.update(msgspec.json.decode(other))
    return known, colliding


def _count(inserted: list[TaskRow], origins: list[Candidate], changes: CountChanges, wakes: Wakes) -> None:
    numbers = Counter(
        [(row[0], row[1], origin[4], row[4], row[5], row[10]) for row, origin in zip(inserted, origins, strict=True)]
    )
    for (crawl_id, key, domain, kind, state, due_at), number in numbers.items():
        changes.add((crawl_id, key, domain, kind), state, number)
        if state == PENDING:
            wakes.task_due((crawl_id, key), due_at)


def _ensure_queues(offered: Offered, now: int, wakes: Wakes) -> Script[None]:
    """Create the queues, gates and domains that are missing, in the order domains, gates, queues.

    A queue knows the domain of its tasks: `''` before its first one, None where a client's key gathers
    several domains.
    """
    wanted = {queue: {candidate[4] for candidate in group} for queue, group in offered.items()}
    facts = yield Call("queue_domains", (), sorted(wanted))
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
    made = yield Call(
        "insert_queues",
        (now,),
        [
            (crawl_id, key, min(domains) if len(domains) == 1 else None, min(domains))
            for (crawl_id, key), domains in sorted(missing.items())
        ],
    )
    for queue in missing.keys() - {(row[0], row[1]) for row in made}:
        # Somebody else made it meanwhile, perhaps for another domain.
        domains = missing[queue]
        wakes.name(queue, min(domains) if len(domains) == 1 else None)


def ensure_gates(domains: set[str], now: int) -> Script[None]:
    """Create the domains and gates that are missing among these."""
    ordered = sorted(domains)
    yield Call("insert_domains", (now,), [(new_uuid7(), domain, parent_domain(domain)) for domain in ordered])
    yield Call("insert_gates", (), [(domain,) for domain in ordered])
