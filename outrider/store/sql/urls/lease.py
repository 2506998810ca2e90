"""Leasing: the earliest ready queues of the highest bands, as far as their gates let anybody in.

Each round takes a handful of ready queues, none of which anybody else holds, and looks at each once.
What it finds decides where the queue goes: served and at the end of its band, behind its gate, or
asleep until something is due. So a queue that has nothing to give is not met again soon, and the cost
of a lease does not depend on how many queues there are.
"""

from collections.abc import Iterator
from itertools import count

import msgspec

from outrider.model.gate import Gate
from outrider.model.job import epoch_of_runner
from outrider.model.lease import Lease, LeaseGrant, LeaseRequest, NoWork, Token
from outrider.model.machines import DomainStatus
from outrider.model.settings import Settings
from outrider.model.task import NEVER, CrawlState, DiscoveryType, Kind
from outrider.model.url import url_hash
from outrider.policy import politeness
from outrider.policy.fair_share import fair_level
from outrider.store.sql.script import Call, Row, Script, Value
from outrider.store.sql.urls import crawls, gates
from outrider.store.sql.urls.counting import ASSIGNED, PENDING, CountChanges
from outrider.store.sql.urls.crawls import StoredCrawl
from outrider.store.sql.urls.lives import Change, changes_at_lease, take
from outrider.store.sql.urls.look import Granted, ReadyQueue, Round, is_scheduled, look
from outrider.store.sql.urls.waking import LIMITED

ROUNDS = 10
QUEUES_PER_ROUND = 16
"""At least so many queues are looked at in a round, however few slots are free."""
MOST_SHARED = 10_000
"""Up to so many pages a crawl's total is shared fairly, and so many queues are counted for it."""
SHARED_WITHIN_MS = 10_000
EXCLUDED_AGAIN_MS = 1_000
"""When to look again at a task whose URL is leased in another crawl."""


def lease(request: LeaseRequest, now: int | None, settings: Settings, slot: int) -> Script[LeaseGrant]:
    """Answer a request for work, or give again what the same request was given before."""
    yield Call("lock_request", (request.worker, request.request_id))
    moment = yield from crawls.clock(now)
    held = yield Call("leases_of_request", (request.worker, request.request_id, moment))
    if held:
        return LeaseGrant(leases=[_held_again(row, moment) for row in held], next_ready_at=moment)
    if request.crawl is None:
        scheduled = is_scheduled(request, settings)
        chosen = [crawls.decoded(row) for row in (yield Call("ready_crawls", (moment, request.run_id, scheduled)))]
    else:
        chosen = [(yield from crawls.for_write(request.crawl))]
    # Whoever ends an epoch has the crawl alone: from then on its runner, should it wake up, is refused here.
    epoch = epoch_of_runner(request.worker)
    if epoch is not None and not (yield Call("job_is_run", epoch)):
        return LeaseGrant(leases=[], next_ready_at=None, no_work=NoWork.CANCELLED)
    changes = CountChanges()
    leases: list[Lease] = []
    no_work: NoWork | None = NoWork.WAITING
    served: list[tuple[int]] = []
    yield from _lock_limits(chosen, request, settings)
    ordinals = count()
    for stored in chosen:
        slots = request.slots - len(leases)
        found, no_work = yield from _from_crawl(stored, request, slots, now, settings, changes, ordinals)
        leases += found
        if found:
            served.append((stored.crawl_id,))
        if len(leases) >= request.slots:
            break
    if request.crawl is None:
        yield Call("take_turns", (), served)
    yield from changes.write(slot)
    if len(leases) >= request.slots:
        return LeaseGrant(leases=leases, next_ready_at=moment)
    if request.claims:
        crawl_id = chosen[0].crawl_id if request.crawl else None
        rows = yield Call("next_ready_at_claimed", (request.worker, moment, crawl_id))
    else:
        rows = yield (Call("next_ready_at", (chosen[0].crawl_id,)) if request.crawl else Call("next_ready_at_any"))
    next_ready_at = rows[0][0]
    if next_ready_at is not None and next_ready_at >= LIMITED:
        next_ready_at = None
    return LeaseGrant(leases=leases, next_ready_at=next_ready_at, no_work=no_work)


def _lock_limits(chosen: list[StoredCrawl], request: LeaseRequest, settings: Settings) -> Script[None]:
    """Have the crawls with a page limit to ourselves, and wake what another run left at the end of its budget.

    A queue that has used up a limit is marked, so that it is not met again. Where the limit is a run's
    budget, the mark means nothing to other runs: the first request of each clears them all.
    """
    scheduled = is_scheduled(request, settings)
    others = {
        stored.crawl_id
        for stored in chosen
        if (scheduled or stored.crawl.limits.max_pages_per_domain is not None) and stored.limited_run != request.run_id
    }
    limited = {stored.crawl_id for stored in chosen if stored.crawl.limits.max_pages is not None}
    yield Call("lock_crawl_limits", (), [(crawl_id,) for crawl_id in sorted(limited | others)])
    for crawl_id in sorted(others):
        yield Call("set_limited_run", (crawl_id, request.run_id))
        yield Call("wake_limited", (crawl_id,))


def _from_crawl(
    stored: StoredCrawl,
    request: LeaseRequest,
    slots: int,
    now: int | None,
    settings: Settings,
    changes: CountChanges,
    ordinals: Iterator[int],
) -> Script[tuple[list[Lease], NoWork]]:
    """Lease from one crawl until the slots are full or nothing more is ready."""
    if stored.crawl.state is CrawlState.PAUSED:
        return [], NoWork.PAUSED
    if stored.crawl.state is CrawlState.CANCELLED:
        return [], NoWork.CANCELLED
    pages = yield from _pages_allowed(stored)
    moment = yield from crawls.clock(now)
    lease_ms = request.lease_ms or settings.crash_threshold_ms
    level = (yield from _level(stored.crawl_id, pages, moment)) if _is_shared(stored, request, settings) else None
    leases: list[Lease] = []
    looked: list[str] = []
    for _ in range(ROUNDS):
        free = min(slots - len(leases), pages)
        if free <= 0:
            break
        wanted = max(free, QUEUES_PER_ROUND)
        if request.claims:
            rows = yield Call("claimed_queues", (stored.crawl_id, moment, wanted, looked, request.worker))
        else:
            rows = yield Call("ready_queues", (stored.crawl_id, moment, wanted, looked))
        queues = [ReadyQueue(*row) for row in rows]
        round_ = Round(stored, request, moment, lease_ms, ordinals, settings, level)
        yield from look(round_, queues, free, changes)
        yield from _grant(round_, changes)
        yield from _move_queues(round_, queues)
        for granted in round_.granted:
            leases.append(_lease(stored.crawl.name, granted, round_.gates[granted.domain], lease_ms))
            pages -= granted.task.kind == Kind.PAGE
        looked += [queue.key for queue in queues]
        if len(queues) < wanted:
            break
    return leases, NoWork.LIMIT if pages <= 0 else NoWork.WAITING


def _is_shared(stored: StoredCrawl, request: LeaseRequest, settings: Settings) -> bool:
    """Tell whether the crawl's total is to be shared fairly; a large one is not worth the counting."""
    most = stored.crawl.limits.max_pages
    return request.fair and settings.enable_per_domain_budget and most is not None and most <= MOST_SHARED


def _level(crawl_id: int, remaining: int, now: int) -> Script[int]:
    """Work out to how many pages each queue may come; nobody else can lease from the crawl meanwhile.

    A queue that cannot be served soon has its share when it comes back, of what is left then.
    """
    rows = yield Call("queues_by_pages", (crawl_id, now + SHARED_WITHIN_MS, MOST_SHARED))
    return fair_level({int(row[0]): int(row[1]) for row in rows}, remaining)


def _pages_allowed(stored: StoredCrawl) -> Script[int]:
    """Tell how many more pages the crawl's limit allows; nobody else can lease from it meanwhile."""
    if stored.crawl.limits.max_pages is None:
        return NEVER
    rows = yield Call("pages_of_crawl", (stored.crawl_id,))
    return stored.crawl.limits.max_pages - int(rows[0][0])


def _grant(round_: Round, changes: CountChanges) -> Script[None]:
    """Write the leases, but not of a URL that is leased in another crawl; then the tasks and gates."""
    request, now = round_.request, round_.now
    rows: list[tuple[Value, ...]] = [
        (
            granted.token, round_.crawl_id, granted.task.key, granted.task.hash, url_hash(granted.task.url),
            granted.domain, granted.task.kind, request.worker, request.request_id, request.run_id,
            granted.task.attempt_count + 1, granted.delay_ms, granted.gate_was, now, now, round_.expires_at,
            granted.claim_version,
        )
        for granted in round_.granted
    ]  # fmt: skip
    rows.sort(key=lambda row: row[4])
    tokens = {bytes(row[0]) for row in (yield Call("insert_leases", (), rows))}
    excluded = [granted for granted in round_.granted if granted.token not in tokens]
    for granted in excluded:
        round_.take_back(granted)
    round_.granted = [granted for granted in round_.granted if granted.token in tokens]
    yield Call(
        "postpone_tasks",
        (round_.crawl_id, now + EXCLUDED_AGAIN_MS),
        sorted((granted.task.key, granted.task.hash) for granted in excluded),
    )
    yield from _assign(round_)
    for granted in round_.granted:
        changes.move((round_.crawl_id, granted.task.key, granted.domain, granted.task.kind), PENDING, ASSIGNED)
    yield from _begin_lives(round_)
    yield from gates.write(round_.locked, round_.gates)


def _begin_lives(round_: Round) -> Script[None]:
    """Take the steps of domains that are leased from now on; the first page makes a domain active."""
    if not round_.lives:
        return
    served = {granted.domain for granted in round_.granted}
    crawled = {granted.domain for granted in round_.granted if granted.task.kind != Kind.ROBOTS}
    due: dict[str, list[Change]] = {}
    for domain in served & round_.lives.keys():
        steps = changes_at_lease(round_.lives[domain], round_.request.run_id, round_.now, is_crawled=domain in crawled)
        if steps:
            due[domain] = steps
        if DomainStatus.PENDING in [step.target for step in steps]:
            round_.gates[domain] = msgspec.structs.replace(round_.gates[domain], errors_in_row=0)
    yield from take(round_.lives, due, round_.now)


def _assign(round_: Round) -> Script[None]:
    """Assign the tasks that are still PENDING; those that somebody has taken or ended since lose their lease."""
    places = sorted((granted.task.key, granted.task.hash) for granted in round_.granted)
    rows = yield Call("assign_tasks", (round_.crawl_id,), places)
    if len(rows) == len(places):
        return
    # A hash is enough: a URL has one lease, however many queues it is in.
    hashes = {bytes(row[0]) for row in rows}
    gone = [granted for granted in round_.granted if granted.task.hash not in hashes]
    yield Call("delete_leases", (), sorted((granted.token,) for granted in gone))
    for granted in gone:
        round_.take_back(granted)
    round_.granted = [granted for granted in round_.granted if granted.task.hash in hashes]


def _move_queues(round_: Round, queues: list[ReadyQueue]) -> Script[None]:
    """Send each queue that was looked at to where it belongs."""
    served = {granted.task.key: granted.domain for granted in round_.granted}
    moves = []
    for queue in queues:
        if queue.key in served:
            gate, traffic = round_.gates[served[queue.key]], round_.traffic[served[queue.key]]
            again_at = round_.now if queue.domain is None else politeness.look_again_at(gate, traffic, round_.limits)
            moves.append((queue.key, max(again_at, round_.now), True))
        elif queue.key in round_.opens and not (round_.excluded and queue.domain in (None, *round_.excluded)):
            moves.append((queue.key, round_.opens[queue.key], False))
    yield Call("move_queues", (round_.crawl_id, round_.now), moves)
    yield Call("rest_queues", (round_.crawl_id, round_.now), [(key,) for key in round_.drained])


def _lease(crawl: str, granted: Granted, gate: Gate, lease_ms: int) -> Lease:
    task = granted.task
    return Lease(
        token=Token(granted.token.hex()),
        crawl=crawl,
        key=task.key,
        url=task.url,
        domain=granted.domain,
        kind=Kind(task.kind),
        depth=task.depth,
        priority=task.priority,
        attempt=task.attempt_count + 1,
        discovery_type=DiscoveryType(task.discovery_type),
        lease_ms=lease_ms,
        etag=task.etag,
        last_modified=task.last_modified,
        robots_version=gate.robots_version,
        metadata=None if task.metadata is None else msgspec.json.decode(task.metadata),
        digest=task.digest,
        similarity=task.similarity,
    )


def _held_again(row: Row, now: int) -> Lease:
    return Lease(
        token=Token(bytes(row[0]).hex()),
        crawl=row[1],
        key=row[2],
        url=row[3],
        domain=row[4],
        kind=Kind(row[5]),
        depth=row[6],
        priority=row[7],
        attempt=row[8],
        discovery_type=DiscoveryType(row[9]),
        lease_ms=row[10] - now,
        etag=row[11],
        last_modified=row[12],
        robots_version=row[13],
        metadata=None if row[14] is None else msgspec.json.decode(row[14]),
        digest=row[15],
        similarity=row[16],
    )
