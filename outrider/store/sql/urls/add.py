"""Adding what was discovered: new tasks, their queues, gates and domains, and the counts."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from outrider.model.domain_name import parent_domain
from outrider.model.identifiers import new_uuid7
from outrider.model.task import MAX_DEPTH, NEVER
from outrider.model.url import url_hash
from outrider.policy.admission import Candidate
from outrider.store.sql.script import Call, Script
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

TaskRow = tuple[int, str, bytes, str, int, int]
"""A new task: crawl, key, hash, url, sequence, and the place of its `Facts`. It sorts in the order in which tasks are
stored."""

SEQUENCE: Final = 4
_identity = itemgetter(0, 1, 2, 3, SEQUENCE)


class Facts(NamedTuple):
    """What many tasks of a batch have in common: it travels once for all of them."""

    kind: int
    state: int
    priority: int
    depth: int
    due_at: int
    discovery_type: int


def add(batch: Batch, now: int | None, slot: int, *, contended: bool = False) -> Script[list[Candidate]]:
    """Store one admitted batch; tell which of it was new.

    Unless it is `contended`, a URL that somebody else stores at the same moment ends it with `RowTaken`.
    """
    stored = yield from crawls.for_write(batch.stored.crawl.name)
    if stored.crawl_id != batch.stored.crawl_id:
        raise RulesChanged
    moment = yield from crawls.clock(now)
    changes, wakes = CountChanges(), Wakes()
    new = yield from insert([batch._replace(stored=stored)], moment, changes, wakes, contended=contended)
    yield from wakes.write()
    yield from changes.write(slot, moment)
    return new


def insert(
    batches: Sequence[Batch], now: int, changes: CountChanges, wakes: Wakes, *, contended: bool = True
) -> Script[list[Candidate]]:
    """Insert the tasks that are not there yet and return what they were made from.

    The caller writes `wakes` and `changes`, merged with its own, at the end of the transaction.
    """
    offered = {(batch.stored.crawl_id, key): group for batch in batches for key, group in _by_key(batch).items()}
    if not offered:
        return []
    numbers = yield from _take_numbers(sum(batch.size for batch in batches))
    origins: dict[int, Candidate] = {}
    rows, facts = _rows(batches, offered, numbers, now, origins)
    inserted: list[TaskRow] = []
    robots = sorted({(origin[1],) for origin in origins.values() if origin[3].endswith("/robots.txt")})
    yield Call("lock_robots_urls", (), robots)
    for probe in range(1, MAX_PROBES):
        fresh, again = yield from _insert_unknown(rows, facts, now, contended)
        inserted += fresh
        if not again:
            break
        rows = sorted((*row[:2], url_hash(row[3], probe), *row[3:]) for row in again)
    made_from = [origins[row[SEQUENCE]] for row in inserted]
    yield from _tend_queues(_counted(inserted, made_from, facts, changes), now, wakes)
    metadata = [
        (*row[:3], origin[10]) for row, origin in zip(inserted, made_from, strict=True) if origin[10] is not None
    ]
    yield Call("insert_metadata", (), metadata)
    return made_from


def _take_numbers(size: int) -> Script[list[int]]:
    """Take numbers of discovery. SQLite gives all blocks as one, PostgreSQL each by itself."""
    blocks = -(-size // SEQUENCE_BLOCK)
    starts = yield Call("take_sequence", (blocks,))
    length = min(size, blocks // len(starts) * SEQUENCE_BLOCK)
    return [number for (start,) in starts for number in range(start, start + length)]


def _by_key(batch: Batch) -> dict[str, list[Candidate]]:
    groups: defaultdict[str, list[Candidate]] = defaultdict(list)
    for candidate in batch.candidates:
        groups[candidate[0]].append(candidate)
    return groups


def _rows(
    batches: Sequence[Batch], offered: Offered, numbers: list[int], now: int, origins: dict[int, Candidate]
) -> tuple[list[TaskRow], list[Facts]]:
    """Make task rows, numbered in the order of discovery and sorted in the order of storage.

    Sorting each queue's few by their hash is several times faster than sorting all by key and hash.
    """
    facts: list[Facts] = []
    crawl_facts: dict[int, tuple[int, int, dict[tuple[int, ...], int]]] = {}
    size = 0
    for batch in batches:
        max_depth = batch.stored.crawl.limits.max_depth
        crawl_facts[batch.stored.crawl_id] = size, MAX_DEPTH if max_depth is None else max_depth, {}
        size += batch.size
    rows: list[TaskRow] = []
    for queue in sorted(offered):
        crawl_id, key = queue
        before, deepest, places = crawl_facts[crawl_id]
        for candidate in sorted(offered[queue], key=_hash):
            common = candidate[5:10]
            place = places.get(common)
            if place is None:
                kind, priority, depth, due_in_ms, discovery_type = common
                state = PENDING if depth <= deepest else DISCOVERED
                place = places[common] = len(facts)
                facts.append(Facts(kind, state, priority, depth, now + due_in_ms, discovery_type))
            sequence = numbers[before + candidate[2]]
            origins[sequence] = candidate
            rows.append((crawl_id, key, candidate[1], candidate[3], sequence, place))
    return rows, facts


def _insert_unknown(
    offered: list[TaskRow], facts: list[Facts], now: int, contended: bool
) -> Script[tuple[list[TaskRow], list[TaskRow]]]:
    """Insert what is not known; returns what was inserted, and what must be tried with another hash.

    SQLite asks first and inserts the rest. PostgreSQL does both in one statement; where others are expected to insert
    the same, it inserts first and asks about what was there. Either way each task is looked up once.
    """
    known: set[int] = set()
    colliding: set[int] = set()
    for same, other in (yield Call("known_tasks", (), offered, _identity)):
        known.update(msgspec.json.decode(same))
        colliding.update(msgspec.json.decode(other))
    unknown: list[TaskRow] = []
    again = [row for row in offered if row[SEQUENCE] in colliding] if colliding else []
    settled = known | colliding
    last: TaskRow = (-1, "", b"", "", 0, 0)
    for row in offered:
        if settled and row[SEQUENCE] in settled:
            continue
        if row[2] != last[2] or row[1] != last[1] or row[0] != last[0]:
            unknown.append(row)
            last = row
        elif row[3] != last[3]:
            again.append(row)
    common = [list(column) for column in zip(*facts, strict=True)]
    answer = yield Call("insert_tasks" if contended else "insert_new_tasks", (now, *common), unknown)
    if not answer:
        return unknown, again
    if contended:
        new = set(answer[0][0] or ())
        refused = [row for row in unknown if row[SEQUENCE] not in new]
        colliding = {row[0] for row in (yield Call("colliding_tasks", (), refused, _identity))}
        settled = {row[SEQUENCE] for row in refused}
    else:
        colliding = set(answer[0][1] or ())
        settled = colliding.union(answer[0][0] or ())
    again += [row for row in unknown if row[SEQUENCE] in colliding] if colliding else []
    return [row for row in unknown if row[SEQUENCE] not in settled], again


class _Needs(NamedTuple):
    """What new tasks need of their queue."""

    domains: set[str]
    due_at: int
    """When the first of them is due, `NEVER` where none is PENDING."""


def _counted(
    inserted: list[TaskRow], origins: list[Candidate], facts: list[Facts], changes: CountChanges
) -> dict[QueueKey, _Needs]:
    """Count new tasks; tell what they need of their queues."""
    numbers = Counter([(row[0], row[1], origin[4], row[5]) for row, origin in zip(inserted, origins, strict=True)])
    needs: dict[QueueKey, _Needs] = {}
    for (crawl_id, key, domain, place), number in numbers.items():
        kind, state, _, _, due_at, _ = facts[place]
        changes.add((crawl_id, key, domain, kind), state, number)
        due = due_at if state == PENDING else NEVER
        before = needs.get((crawl_id, key))
        needs[crawl_id, key] = (
            _Needs({domain}, due) if before is None else _Needs(before.domains | {domain}, min(before.due_at, due))
        )
    return needs


def _tend_queues(needs: dict[QueueKey, _Needs], now: int, wakes: Wakes) -> Script[None]:
    """Create the queues, gates and domains that are missing, and wake the queues that sleep.

    A queue knows the domain of its tasks: `''` before its first one, None where a client's key gathers
    several domains.
    """
    rows = [(*queue, _only(domains), due_at) for queue, (domains, due_at) in sorted(needs.items())]
    missing: dict[QueueKey, set[str]] = {}
    unknown: set[str] = set()
    for crawl_id, key, is_there, domain in (yield Call("queues_to_tend", (), rows)):
        domains, due_at = needs[crawl_id, key]
        if not is_there:
            missing[crawl_id, key] = domains
        elif domains != {domain} and domain is not None:
            wakes.name((crawl_id, key), _only(domains) if domain == "" else None)
        if domains != {domain}:
            unknown |= domains
        if is_there and due_at < NEVER:
            wakes.task_due((crawl_id, key), due_at)
    yield from ensure_gates(unknown, now)
    made = yield Call(
        "insert_queues",
        (now,),
        [(*queue, _only(domains), min(domains)) for queue, domains in sorted(missing.items())],
    )
    for queue in missing.keys() - {(row[0], row[1]) for row in made}:
        # Somebody else made it meanwhile, perhaps for another domain.
        wakes.name(queue, _only(missing[queue]))
        wakes.task_due(queue, needs[queue].due_at)


def _only(domains: set[str]) -> str | None:
    return next(iter(domains)) if len(domains) == 1 else None


def ensure_gates(domains: set[str], now: int) -> Script[None]:
    """Create the domains and gates that are missing among these."""
    ordered = sorted(domains)
    rows = [(new_uuid7(), domain, parent_domain(domain)) for domain in ordered]
    made = {row[0] for row in (yield Call("insert_domains", (now,), rows))}
    yield Call("insert_gates", (), [(domain,) for domain in ordered if domain not in made])
