"""Lives of domains: the steps that leases, reports and clocks bring about, in their own transactions.

Only who has a domain's gate changes its life, so what is read of it under the gate stays true. The row itself is
locked last, all rows of a transaction at once and in the order of their names; or not waited for, as by leases.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from outrider.model.gate import Gate
from outrider.model.machines import DOMAIN, DomainStatus
from outrider.model.settings import Settings
from outrider.policy.blocking import BlockReason, Standing, decide
from outrider.policy.lifecycle import DomainEvent, after
from outrider.policy.trouble import block_settings
from outrider.store.sql.script import Call, Script, Value

BY_LEASE: Final = "lease"
BY_REPORT: Final = "report"
BY_CLOCK: Final = "clock"

_GIVEN_UP: Final = (DomainStatus.BLOCKED, DomainStatus.UNREACHABLE)


class Life(NamedTuple):
    """What a domain's next step depends on; its row is locked."""

    domain: str
    domain_id: str
    status: DomainStatus
    version: int
    block_count: int
    next_crawl_after: int | None


class Change(NamedTuple):
    """A step that is due, of whatever version the domain then has."""

    target: DomainStatus
    actor: str
    run_id: str | None = None
    next_crawl_after: int | None = None
    reason_code: str | None = None
    reason: str | None = None


class Step(NamedTuple):
    """A step to take."""

    life: Life
    change: Change


class Trouble(NamedTuple):
    """An answer that may be the last straw."""

    reason: BlockReason
    said: str | None
    run_id: str | None
    errors_in_row: int


def lock(domains: Iterable[str]) -> Script[dict[str, Life]]:
    """Lock the rows of domains, once in a transaction."""
    rows = yield Call("lock_lives", (), [(domain,) for domain in sorted(set(domains))])
    return {row[0]: _life(row) for row in rows}


def lock_free(domains: Iterable[str]) -> Script[dict[str, Life]]:
    """Lock those that nobody holds; never waits."""
    rows = yield Call("lock_free_lives", (), [(domain,) for domain in sorted(set(domains))])
    return {row[0]: _life(row) for row in rows}


def read(domains: Iterable[str]) -> Script[dict[str, Life]]:
    """Read the lives of domains whose gates are locked. Their versions may grow yet, by claims."""
    rows = yield Call("lives", (), [(domain,) for domain in sorted(set(domains))])
    return {row[0]: _life(row) for row in rows}


def _life(row: Sequence[Value]) -> Life:
    return Life(row[0], str(row[1]), DomainStatus(row[2]), *row[3:])


def take(lives: Mapping[str, Life], changes: Mapping[str, Sequence[Change]], now: int) -> Script[None]:
    """Take the steps that are due, of each domain one after the other, and write them down."""
    current = dict(lives)
    for place in range(max(map(len, changes.values()), default=0)):
        wave = [Step(current[domain], due[place]) for domain, due in sorted(changes.items()) if len(due) > place]
        for life, change in wave:
            DOMAIN.check(life.status, change.target)
            current[life.domain] = life._replace(status=change.target, version=life.version + 1)
        taken = yield Call("step_domains", (now,), [_row(step) for step in wave])
        if len(taken) != len(wave):
            raise AssertionError("a domain whose row is locked has changed")
        yield Call("insert_domain_history", (now,), [_history_row(step) for step in wave])


def _row(step: Step) -> tuple[Value, ...]:
    life, (target, _, run_id, next_crawl_after, reason_code, reason) = step
    return (
        life.domain, life.status.value, life.version, target.value, next_crawl_after, reason_code, reason, run_id
    )  # fmt: skip


def _history_row(step: Step) -> tuple[Value, ...]:
    life, (target, actor, run_id, _, reason_code, reason) = step
    return (
        life.domain_id, life.status.value, target.value, reason_code, reason, actor, run_id, life.version + 1
    )  # fmt: skip


def changes_at_lease(life: Life, run_id: str | None, now: int, *, is_crawled: bool) -> list[Change]:
    """Tell which steps a lease brings about: a rest is over, and what `is_crawled` becomes active.

    A gate that is open while the rest of its domain lasts was opened by an operator.
    """
    changes: list[Change] = []
    status = life.status
    if status in _GIVEN_UP:
        rested = life.next_crawl_after is not None and life.next_crawl_after <= now
        event = DomainEvent.COOLDOWN_EXPIRES if rested else DomainEvent.UNBLOCKED
        status = after(event, status)
        changes.append(Change(status, BY_CLOCK if rested else BY_LEASE, run_id, reason=event.value))
    if is_crawled:
        event = DomainEvent.NEW_WORK if status is DomainStatus.EXHAUSTED else DomainEvent.CRAWL_STARTS
        if after(event, status) is not status:
            changes.append(Change(after(event, status), BY_LEASE, run_id, reason=event.value))
    return changes


class Lives:
    """What a transaction that ends leases does to the lives of domains, whose gates it has locked."""

    def __init__(self, settings: Settings, gates: dict[str, Gate], now: int) -> None:
        self._settings = settings
        self._gates = gates
        """As they will be; a domain that is given up closes its gate here."""
        self._now = now
        self._changes: dict[str, list[Change]] = {}

    def give_up(self, troubles: Mapping[str, Trouble]) -> Script[None]:
        """Block those domains with which patience is over, and close their gates."""
        lives = yield from read(troubles)
        for domain, life in lives.items():
            trouble = troubles[domain]
            standing = Standing(status=life.status, errors_in_row=trouble.errors_in_row, block_count=life.block_count)
            decision = decide(standing, trouble.reason, self._now, block_settings(self._settings))
            if decision is None:
                continue
            *between, last = decision.steps
            self._changes[domain] = [
                *(Change(target, BY_REPORT, trouble.run_id) for target in between),
                Change(last, BY_REPORT, trouble.run_id, decision.next_crawl_after, decision.reason.value, trouble.said),
            ]
            gate = self._gates[domain]
            until = max(gate.blocked_until, decision.blocked_until)
            self._gates[domain] = msgspec.structs.replace(gate, blocked_until=until, status=last)

    def reach_again(self, runs: Mapping[str, str | None]) -> Script[None]:
        """Make unreachable domains active that have answered after all, and open the gates that closed with them."""
        lives = yield from read(runs)
        for domain, life in lives.items():
            target = after(DomainEvent.PAGE_CRAWLED, life.status)
            self._changes[domain] = [Change(target, BY_REPORT, runs[domain], reason=DomainEvent.PAGE_CRAWLED.value)]
            gate = self._gates[domain]
            until = 0 if gate.blocked_until == life.next_crawl_after else gate.blocked_until
            self._gates[domain] = msgspec.structs.replace(gate, blocked_until=until, status=target)

    def finish(self, ended: set[tuple[int, str, str]], first_pages: Sequence[tuple[str, str]]) -> Script[None]:
        """Take all steps, as the last thing of all.

        `ended` are crawl, key and domain of tasks that are over: nothing may be left of an active domain then.
        `first_pages` are the runs and domains that have just met.
        """
        active = {
            (crawl_id, key, domain)
            for crawl_id, key, domain in ended
            if self._gates[domain].status is DomainStatus.ACTIVE
        }
        exhausted = (yield from _idle(active)) if active else set()
        met = [(domain, run_id) for run_id, domain in first_pages]
        domains = self._changes.keys() | exhausted | {domain for domain, _ in met}
        if not domains:
            return
        locked = yield from lock(domains)
        due_at = yield from _due_at(exhausted, self._now + self._settings.exhausted_rest_ms)
        for domain in exhausted:
            done = Change(DomainStatus.EXHAUSTED, BY_REPORT, None, due_at[domain], reason=DomainEvent.ALL_DONE.value)
            self._changes.setdefault(domain, []).append(done)
        yield Call("note_runs", (self._now,), met)
        yield from take(locked, self._changes, self._now)


def _idle(queues: set[tuple[int, str, str]]) -> Script[set[str]]:
    """Tell of which domains nothing is PENDING or ASSIGNED, in any crawl.

    To look for a task in a queue is cheaper than to sum up counts, so that comes first, where a queue has one domain
    for sure.
    """
    own = sorted((crawl_id, key) for crawl_id, key, domain in queues if key == domain)
    candidates = {domain for _, key, domain in queues if key != domain}
    candidates |= {row[0] for row in (yield Call("idle_queues", (), own))}
    return {row[0] for row in (yield Call("idle_domains", (), [(domain,) for domain in sorted(candidates)]))}


def _due_at(domains: Iterable[str], latest: int) -> Script[dict[str, int]]:
    """Tell when exhausted domains are due: with the first of their pages, and then at the latest."""
    due_at = dict.fromkeys(domains, latest)
    rows = yield Call("next_due_of_domains", (), [(domain,) for domain in sorted(due_at)])
    return due_at | {domain: min(due, latest) for domain, due in rows}


def settle(domains: Iterable[str], rest_ms: int, now: int) -> Script[int]:
    """Make those of these active domains exhausted of which nothing is left, however it went away."""
    names = sorted(set(domains))
    yield Call("lock_gates", (), [(domain,) for domain in names])
    idle = [row[0] for row in (yield Call("idle_domains", (), [(domain,) for domain in names]))]
    lives = yield from lock(idle)
    due_at = yield from _due_at(idle, now + rest_ms)
    changes = {
        domain: [Change(DomainStatus.EXHAUSTED, BY_CLOCK, None, due_at[domain], reason=DomainEvent.ALL_DONE.value)]
        for domain, life in lives.items()
        if life.status is DomainStatus.ACTIVE
    }
    yield from take(lives, changes, now)
    return len(changes)


def wake(now: int, most: int, *, refresh: bool) -> Script[int]:
    """Make domains pending whose rest is over, or whose refresh is due; tell how many. Never waits."""
    rested = [_life(row) for row in (yield Call("lock_rested", (now, most)))]
    due = (yield Call("lock_refreshable", (now, most - len(rested)))) if refresh and len(rested) < most else []
    lives = {life.domain: life for life in (*rested, *map(_life, due))}
    changes = {}
    for domain, life in lives.items():
        is_rested = life.status in _GIVEN_UP
        event = DomainEvent.COOLDOWN_EXPIRES if is_rested else DomainEvent.REFRESH_DUE
        changes[domain] = [Change(after(event, life.status), BY_CLOCK, reason=event.value)]
    yield from take(lives, changes, now)
    return len(lives)
