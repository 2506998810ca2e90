"""Serving batches by URLFrontier's rules: so many URLs of so many queues, in rotation.

A queue has its own delay since it was last served, and a cap on what is in flight that each request names. Of a
domain's gate only the block and the back-off count. As in `lease`, a queue that has nothing to give moves out of the
way, so that no request walks over those that wait.

First everything is chosen, from queues and gates that nobody else holds; then all of it is written at once.
"""

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import msgspec

from outrider.model.batch import BATCH_WORKER, Served, ServeRequest
from outrider.model.gate import Gate
from outrider.model.identifiers import new_uuid7_bytes
from outrider.model.task import MAX_BATCH, NEVER, CrawlState
from outrider.model.url import locate, url_hash
from outrider.store.checks import YEAR_MS, check_number, check_record
from outrider.store.sql.script import Call, Script, Value
from outrider.store.sql.urls import crawls, gates, settings
from outrider.store.sql.urls.checks import check_key
from outrider.store.sql.urls.counting import ASSIGNED, PENDING, CountChanges
from outrider.store.sql.urls.crawls import StoredCrawl
from outrider.store.sql.urls.known import TaskHeld, expiry_mark
from outrider.store.sql.urls.waking import LIMITED

ROUNDS = 10
QUEUES_PER_ROUND = 16
"""At least so many queues are looked at in the first round, and in each one twice as many as before: what clients say
of their URLs may have woken thousands that are still in their delay."""
UNLIMITED_QUEUES = 256
"""So many queues share the room of a batch where each may give all that it has."""
HELD_AGAIN_MS = 20
"""When to look again at a queue whose gate somebody held."""
FULL_AGAIN_MS = 5_000
"""When to look again at a queue with too many in flight: the next client may allow more than this one. It is looked at
before when one of them ends, or when a client names it."""
MIXED_LOOK = 8
MIXED_AGAIN_MS = 1_000
EXCLUDED_AGAIN_MS = 1_000
"""When to look again at a task whose URL is leased in another crawl."""


class ServeableQueue(NamedTuple):
    """A queue whose time has come, locked."""

    key: str
    domain: str | None
    delay_ms: int | None
    blocked_until: int
    page_limit: int | None
    last_served_at: int | None


class Head(NamedTuple):
    """A due task at the head of its queue."""

    key: str
    hash: bytes
    url: str
    kind: int
    priority: int
    sequence: int
    attempt_count: int
    metadata: str | None


class Taken(NamedTuple):
    """A task on its way to a client."""

    task: Head
    domain: str
    token: bytes


class Choice:
    """What is chosen from one crawl, and where the queues that were looked at belong afterwards."""

    def __init__(self, stored: StoredCrawl, request: ServeRequest, now: int, *, queues: int, urls: int) -> None:
        self.stored = stored
        self.crawl_id = stored.crawl_id
        self.request = request
        self.now = now
        self.queues_left = queues
        self.urls_left = urls
        self.taken: list[Taken] = []
        self.served: dict[str, int] = {}
        """The delay of each queue that gave something."""
        self.opens: dict[str, int] = {}
        """When to look again at a queue that may give nothing now."""
        self.drained: list[str] = []
        self.looked: list[str] = []
        self.gates: dict[str, Gate] = {}

    @property
    def is_full(self) -> bool:
        """Whether there is as much as was asked for."""
        return self.queues_left <= 0 or self.urls_left <= 0

    def delay_of(self, queue: ServeableQueue) -> int:
        """Give a queue's delay: its own, else its crawl's."""
        return self.stored.crawl.limits.delay_ms if queue.delay_ms is None else queue.delay_ms

    def lock_gates(self, domains: set[str]) -> Script[None]:
        """Lock those of these gates that nobody holds."""
        locked = yield from gates.lock_free(domains - self.gates.keys())
        self.gates.update({domain: stored.gate for domain, stored in locked.items()})

    def gate_opens_at(self, domain: str) -> int:
        """Tell when a domain lets batches through; in a moment where somebody holds its gate."""
        gate = self.gates.get(domain)
        return self.now + HELD_AGAIN_MS if gate is None else max(gate.blocked_until, gate.backoff_until)

    def take(self, queue: ServeableQueue, tasks: Sequence[tuple[Head, str]], ordinals: "count[int]") -> None:
        """Take tasks, each with its domain, from a queue that is not taken from again."""
        self.taken += [Taken(task, domain, new_uuid7_bytes(next(ordinals))) for task, domain in tasks]
        self.urls_left -= len(tasks)
        self.queues_left -= 1
        self.served[queue.key] = self.delay_of(queue)


def check_request(request: ServeRequest) -> None:
    """Refuse a wish that cannot be granted; 0 is no number of URLs or queues, None is for no limit."""
    check_record(request, "request", ServeRequest)
    if request.key is not None:
        check_key(request.key)
    for field, most in (("max_urls_per_queue", NEVER), ("max_queues", NEVER), ("max_urls", MAX_BATCH)):
        value = getattr(request, field)
        if value is not None:
            check_number(value, field, 1, most)
    check_number(request.lease_ms, "lease_ms", 1, YEAR_MS)


def serve(request: ServeRequest, now: int | None, slot: int) -> Script[list[Served]]:
    """Hand out due URLs; nothing while the frontier is set inactive."""
    if not (yield from settings.is_active()):
        return []
    chosen = yield from _crawls_for(request, (yield from crawls.clock(now)))
    moment = yield from crawls.clock(now)
    queues, urls = request.max_queues or NEVER, request.max_urls
    choices: list[Choice] = []
    ordinals = count()
    for stored in chosen:
        choice = Choice(stored, request, moment, queues=queues, urls=urls)
        choices.append(choice)
        yield from _choose(choice, ordinals)
        queues, urls = choice.queues_left, choice.urls_left
        if choice.is_full:
            break
    yield from _grant(choices, request, moment, slot)
    return [
        Served(
            url=task.url,
            key=task.key,
            crawl=choice.stored.crawl.name,
            metadata=None if task.metadata is None else msgspec.json.decode(task.metadata),
        )
        for choice in choices
        for task, _, _ in choice.taken
    ]


def _crawls_for(request: ServeRequest, now: int) -> Script[list[StoredCrawl]]:
    """Find the crawls to serve from, the one that waited longest first."""
    if request.crawl is not None:
        stored = yield from crawls.for_write(request.crawl)
        return [stored] if stored.crawl.state is CrawlState.RUNNING else []
    if request.key is not None:
        rows = yield Call("crawls_with_queue", (request.key,))
    else:
        rows = yield Call("ready_crawls", (now, None, False))
    return [crawls.decoded(row) for row in rows]


def _choose(choice: Choice, ordinals: "count[int]") -> Script[None]:
    """Choose from one crawl until there is enough or nothing more is ready."""
    request = choice.request
    for round_ in range(ROUNDS):
        if choice.is_full:
            return
        limit = request.max_urls_per_queue
        needed = min(choice.queues_left, UNLIMITED_QUEUES if limit is None else -(-choice.urls_left // limit))
        wanted = max(needed, QUEUES_PER_ROUND << round_)
        if request.key is None:
            rows = yield Call("serveable_queues", (choice.crawl_id, choice.now, wanted, choice.looked))
        else:
            rows = yield Call("serveable_queue", (choice.crawl_id, request.key))
        queues = [ServeableQueue(*row) for row in rows]
        choice.looked += [queue.key for queue in queues]
        ready = yield from _open_queues(choice, queues)
        while ready and not choice.is_full:
            some = min(needed, choice.queues_left)
            yield from _take_from(choice, ready[:some], ordinals)
            ready = ready[some:]
        if request.key is not None or len(queues) < wanted:
            return


def _open_queues(choice: Choice, queues: list[ServeableQueue]) -> Script[list[ServeableQueue]]:
    """Keep the queues that may give something now; note of the others when to look again."""
    now, unblocked = choice.now, []
    for queue in queues:
        last = queue.last_served_at
        opens_at = max(queue.blocked_until, 0 if last is None else last + choice.delay_of(queue))
        if opens_at > now:
            choice.opens[queue.key] = opens_at
        elif queue.domain == "":
            choice.drained.append(queue.key)
        else:
            unblocked.append(queue)
    yield from _close_limited(choice, unblocked)
    yield from _close_full(choice, unblocked)
    yield from choice.lock_gates({queue.domain for queue in unblocked if queue.domain is not None})
    for queue in unblocked:
        if queue.domain is not None and (opens_at := choice.gate_opens_at(queue.domain)) > now:
            choice.opens.setdefault(queue.key, opens_at)
    return [queue for queue in unblocked if queue.key not in choice.opens]


def _close_limited(choice: Choice, queues: list[ServeableQueue]) -> Script[None]:
    """Close the queues of which as many are completed as their limits allow."""
    limits = {queue.key: queue.page_limit for queue in queues if queue.page_limit is not None}
    for key, completed in (yield Call("completed_of_queues", (choice.crawl_id,), [(key,) for key in limits])):
        if completed >= limits.pop(key):
            choice.opens[key] = LIMITED
    choice.opens.update({key: LIMITED for key, limit in limits.items() if limit <= 0})


def _close_full(choice: Choice, queues: list[ServeableQueue]) -> Script[None]:
    """Close the queues of which as many are in flight as the client wants of each."""
    most = choice.request.max_urls_per_queue
    if most is None:
        return
    keys = [(queue.key,) for queue in queues]
    for key, in_flight, first_expiry in (yield Call("in_flight_of_queues", (choice.crawl_id, choice.now), keys)):
        if in_flight >= most:
            choice.opens.setdefault(key, min(first_expiry, choice.now + FULL_AGAIN_MS))


def _take_from(choice: Choice, queues: list[ServeableQueue], ordinals: "count[int]") -> Script[None]:
    """Take what is due from these queues, as evenly as there is room where a queue has no limit."""
    limit = choice.request.max_urls_per_queue
    number = min(limit or -(-choice.urls_left // len(queues)), choice.urls_left)
    heads = yield from _heads(choice, [queue.key for queue in queues], number)
    for queue in queues:
        if choice.is_full:
            return
        room = min(limit or choice.urls_left, choice.urls_left)
        tasks = heads[queue.key]
        if limit is None and len(tasks) == number < room:
            tasks = (yield from _heads(choice, [queue.key], room))[queue.key]
        if queue.domain is None:
            yield from _take_mixed(choice, queue, tasks, room, ordinals)
            continue
        if len(tasks) < room:
            choice.drained.append(queue.key)
        if tasks:
            choice.take(queue, [(task, queue.domain) for task in tasks[:room]], ordinals)


def _take_mixed(
    choice: Choice, queue: ServeableQueue, tasks: list[Head], room: int, ordinals: "count[int]"
) -> Script[None]:
    """Take from a queue of several domains what stands before an open gate, however deep that is."""
    number = room
    while True:
        domains = {task.hash: locate(task.url).domain for task in tasks}
        yield from choice.lock_gates(set(domains.values()))
        closed = [at for domain in domains.values() if (at := choice.gate_opens_at(domain)) > choice.now]
        open_tasks = [
            (task, domains[task.hash]) for task in tasks if choice.gate_opens_at(domains[task.hash]) <= choice.now
        ]
        if open_tasks or len(tasks) < number or number >= MAX_BATCH:
            break
        number = min(max(8 * number, MIXED_LOOK), MAX_BATCH)
        tasks = (yield from _heads(choice, [queue.key], number))[queue.key]
    if open_tasks:
        choice.take(queue, open_tasks[:room], ordinals)
    elif closed:
        choice.opens[queue.key] = min(*closed, choice.now + MIXED_AGAIN_MS)
    if len(tasks) < room:
        choice.drained.append(queue.key)


def _heads(choice: Choice, keys: list[str], number: int) -> Script[dict[str, list[Head]]]:
    """Read the first tasks of each queue: those that have long been due, and those that have become so."""
    heads: dict[str, list[Head]] = {key: [] for key in keys}
    rows = [(key,) for key in keys]
    for row in (yield Call("ready_heads", (choice.crawl_id, number), rows)):
        heads[row[0]].append(Head(*row))
    for row in (yield Call("due_heads", (choice.crawl_id, number, choice.now), rows)):
        heads[row[0]].append(Head(*row))
    for key, tasks in heads.items():
        tasks.sort(key=_order)
        heads[key] = tasks[:number]
    return heads


def _order(task: Head) -> tuple[int, int]:
    return -task.priority, task.sequence


def _grant(choices: list[Choice], request: ServeRequest, now: int, slot: int) -> Script[None]:
    """Write leases, tasks, queues and counts; URLs that are leased in another crawl are not served."""
    expires_at = now + request.lease_ms
    mark = expiry_mark(expires_at)
    rows: list[tuple[Value, ...]] = [
        (
            token, choice.crawl_id, task.key, task.hash, url_hash(task.url), domain, task.kind, BATCH_WORKER, mark,
            None, task.attempt_count + 1, 0, 0, now, now, expires_at, None,
        )
        for choice in choices
        for task, domain, token in choice.taken
    ]  # fmt: skip
    rows.sort(key=lambda row: row[4])
    leased = {bytes(row[0]) for row in (yield Call("insert_leases", (), rows))}
    changes = CountChanges()
    for choice in choices:
        excluded = [(taken.task.key, taken.task.hash) for taken in choice.taken if taken.token not in leased]
        yield Call("postpone_tasks", (choice.crawl_id, now + EXCLUDED_AGAIN_MS), sorted(excluded))
        choice.taken = [taken for taken in choice.taken if taken.token in leased]
        places = sorted((taken.task.key, taken.task.hash) for taken in choice.taken)
        if len((yield Call("assign_tasks", (choice.crawl_id,), places))) < len(places):
            raise TaskHeld
        for task, domain, _ in choice.taken:
            changes.move((choice.crawl_id, task.key, domain, task.kind), PENDING, ASSIGNED)
        yield from _move_queues(choice)
    if request.crawl is None:
        yield Call("take_turns", (), [(choice.crawl_id,) for choice in choices if choice.taken])
    yield from changes.write(slot)


def _move_queues(choice: Choice) -> Script[None]:
    """Send each queue that was looked at to where it belongs; one that gave nothing keeps its place in time."""
    now = choice.now
    gave = {taken.task.key for taken in choice.taken}
    moves = [(key, now + delay, True) for key, delay in choice.served.items() if key in gave]
    moves += [(key, opens_at, False) for key, opens_at in choice.opens.items()]
    yield Call("move_queues", (choice.crawl_id, now), moves)
    yield Call("rest_queues", (choice.crawl_id, now), [(key,) for key in choice.drained])
