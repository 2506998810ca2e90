"""Reports: outcome, artifact, links, clocks and counts of many leases in one transaction.

Nothing is written for a report whose lease is not live; a token that has ended its task before is
answered as it was then.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple

import msgspec

from outrider.model.errors import InvalidTransition
from outrider.model.gate import Gate, Robots
from outrider.model.lease import Outcome, Renewal, Report, ReportAnswer, Token, Verdict
from outrider.model.machines import TASK, DomainStatus, TaskState
from outrider.model.settings import Settings
from outrider.model.task import Discovered, DiscoveryType, Kind
from outrider.policy import politeness, retry, trouble
from outrider.policy.admission import admit
from outrider.policy.politeness import Leased
from outrider.policy.retry import Decision, Tally
from outrider.store.sql.script import Call, Row, Script, Value
from outrider.store.sql.urls import add, crawls, gates, revisits
from outrider.store.sql.urls.counting import ASSIGNED, NUMBER, CountChanges
from outrider.store.sql.urls.crawls import StoredCrawl
from outrider.store.sql.urls.lives import Lives, Trouble
from outrider.store.sql.urls.revisits import Place, Revisit, Visit
from outrider.store.sql.urls.waking import Wakes

LOST = ReportAnswer(verdict=Verdict.LEASE_LOST)
ROBOTS_DAY_MS = 24 * 3_600_000
"""How long a robots.txt holds where the worker did not say."""


class HeldLease(NamedTuple):
    """A live lease with its task, both locked."""

    token: bytes
    crawl_id: int
    crawl: str
    key: str
    hash: bytes
    domain: str
    kind: int
    run_id: str | None
    attempt: int
    delay_ms: int
    gate_was: int
    granted_at: int
    expires_at: int
    url: str
    url_hash: bytes
    depth: int
    discovery_type: int
    failures: int
    deferrals: int
    expiries: int
    worker: str
    claim_version: int | None
    """The claim that it was leased under; None without claims."""

    @property
    def scope(self) -> tuple[int, str, str, int]:
        """What its counts are kept under."""
        return (self.crawl_id, self.key, self.domain, self.kind)

    @property
    def place(self) -> Place:
        """What its task is found by."""
        return (self.crawl_id, self.key, bytes(self.hash))

    @property
    def tally(self) -> Tally:
        """What the task has been through so far."""
        return Tally(failures=self.failures, deferrals=self.deferrals, expiries=self.expiries)

    @property
    def leased(self) -> Leased:
        """What it remembers of its gate."""
        return Leased(granted_at=self.granted_at, delay_ms=self.delay_ms, gate_was=self.gate_was)


def held_lease(row: Row) -> HeldLease:
    """Read a lease joined with its task."""
    held = HeldLease(*row)
    return held if held.run_id is None else held._replace(run_id=str(held.run_id))


class Ending(NamedTuple):
    """A lease that ends, and what becomes of its task."""

    held: HeldLease
    decision: Decision
    http_status: int | None = None
    artifact_id: int | None = None


def report(
    reports: Sequence[Report], now: int | None, settings: Settings, slot: int, chances: Sequence[float]
) -> Script[list[ReportAnswer]]:
    """Take reports that were found readable; `chances` are the draws for the jitter, one for each."""
    tokens = {report.token: bytes.fromhex(report.token) for report in reports}
    wanted = [(token,) for token in sorted(tokens.values())]
    stored = {row[1]: crawls.decoded(row) for row in (yield Call("crawls_of_leases", (), wanted))}
    rows = yield Call("lock_leases", (), wanted)
    moment = yield from crawls.clock(now)
    live = {held.token: held for held in map(held_lease, rows) if held.expires_at > moment}
    yield from _drop_lost_claims(live, moment)
    answers = yield from _earlier_answers([token for token in tokens.values() if token not in live])
    accepted: dict[bytes, tuple[HeldLease, Report, float]] = {}
    for each, chance in zip(reports, chances, strict=True):
        held = live.get(tokens[each.token])
        if held is not None and held.token not in accepted:
            accepted[held.token] = (held, each, chance)
    if accepted:
        answers |= yield from _accept(list(accepted.values()), stored, moment, settings, slot)
    return [answers.get(tokens[each.token], LOST) for each in reports]


def _drop_lost_claims(live: dict[bytes, HeldLease], now: int) -> Script[None]:
    """Take out the leases of workers that have lost their claim on the domain since."""
    claims = {
        (held.domain, held.worker, held.claim_version) for held in live.values() if held.claim_version is not None
    }
    if not claims:
        return
    rows = yield Call("live_claims", (now,), sorted(claims))
    kept = {(row[0], row[1], row[2]) for row in rows}
    for token, held in list(live.items()):
        if held.claim_version is not None and (held.domain, held.worker, held.claim_version) not in kept:
            del live[token]


def _earlier_answers(tokens: list[bytes]) -> Script[dict[bytes, ReportAnswer]]:
    rows = yield Call("earlier_answers", (), [(token,) for token in tokens])
    return {bytes(row[0]): ReportAnswer(verdict=Verdict(row[1]), retry_at=row[2]) for row in rows}


def _accept(
    accepted: list[tuple[HeldLease, Report, float]],
    stored: dict[str, StoredCrawl],
    now: int,
    settings: Settings,
    slot: int,
) -> Script[dict[bytes, ReportAnswer]]:
    changes, wakes = CountChanges(), Wakes()
    yield from _add_links(accepted, stored, now, changes, wakes)
    before = yield from gates.lock({held.domain for held, _, _ in accepted})
    after = {domain: stored.gate for domain, stored in before.items()}
    lives = Lives(settings, after, now)
    yield from _note_answers(accepted, after, lives, changes, now, settings)
    decisions: list[Decision] = []
    for held, each, chance in accepted:
        gate = politeness.after_report(after[held.domain], held.leased, each, now, settings, chance)
        decision = retry.after_report(each, held.tally, now, settings)
        if decision.state is TaskState.PENDING and each.outcome is Outcome.DEFERRED:
            decision = _due_when_the_gate_opens(decision, gate, before[held.domain].gate.blocked_until)
        if held.kind == Kind.ROBOTS and decision.state is not TaskState.PENDING:
            gate = yield from gates.with_robots(gate, each.robots or _unsaid_robots(each.outcome, settings), now)
        after[held.domain] = gate
        decisions.append(decision)
    known = yield from _revisited(accepted, settings)
    logged = yield from _log(accepted, decisions, before, known, now)
    endings = [
        Ending(held, decision, each.fetch.http_status, logged[held.token])
        for (held, each, _), decision in zip(accepted, decisions, strict=True)
    ]
    for ending in endings:
        if ending.decision.state is TaskState.COMPLETED and ending.held.kind == Kind.PAGE and ending.held.run_id:
            changes.page_done(ending.held.run_id, ending.held.domain)
    yield from end(endings, changes, wakes)
    if settings.enable_refresh_mode:
        yield from _note_visits(accepted, endings, known, now, settings)
        yield from _note_changes(accepted, stored, now)
    met = yield from close(before, after, wakes, changes, slot, now)
    if settings.enable_domain_tracking:
        yield from lives.finish(_ended(endings, changes), met)
    return {
        ending.held.token: ReportAnswer(
            verdict=ending.decision.verdict,
            retry_at=ending.decision.due_at if ending.decision.state is TaskState.PENDING else None,
        )
        for ending in endings
    }


def _revisited(accepted: list[tuple[HeldLease, Report, float]], settings: Settings) -> Script[dict[Place, Revisit]]:
    """Read what is remembered of the pages that were fetched before; nothing costs nothing where none are refreshed."""
    if not settings.enable_refresh_mode:
        return {}
    return (yield from revisits.find([held.place for held, _, _ in accepted if held.kind in revisits.REVISITED]))


def _note_visits(
    accepted: list[tuple[HeldLease, Report, float]],
    endings: list[Ending],
    known: dict[Place, Revisit],
    now: int,
    settings: Settings,
) -> Script[None]:
    """Learn from the pages that were completed."""
    visits = [
        Visit(held.place, held.domain, each, chance, ending.artifact_id)
        for (held, each, chance), ending in zip(accepted, endings, strict=True)
        if ending.decision.state is TaskState.COMPLETED and ending.artifact_id and held.kind in revisits.REVISITED
    ]
    yield from revisits.note(visits, known, now, settings)


def _note_changes(
    accepted: list[tuple[HeldLease, Report, float]], stored: dict[str, StoredCrawl], now: int
) -> Script[None]:
    """Learn from sitemaps which pages have changed since they were fetched."""
    for held, each, _ in accepted:
        dated = [link for link in each.links if isinstance(link, Discovered) and link.changed_at is not None]
        candidates = admit(dated, stored[held.crawl].crawl.rules).candidates if dated else []
        changed = [(found.key, found.hash, dated[found.position].changed_at or 0) for found in candidates]
        yield from revisits.hasten_changed(held.crawl_id, changed, now)


def _due_when_the_gate_opens(decision: Decision, gate: Gate, blocked_until: int) -> Decision:
    """Put a task off until its domain may be asked again.

    Not for as long as a domain rests that is given up with this very report: its gate keeps it, and may be opened.
    """
    opens_at = max(gate.backoff_until, blocked_until)
    return Decision(
        state=decision.state, due_at=max(decision.due_at, opens_at), tally=decision.tally, reason=decision.reason
    )


def _unsaid_robots(outcome: Outcome | None, settings: Settings) -> Robots:
    """Stand in where a robots task ended without a text.

    Done means that there is none: everything is allowed. Refused means that nothing can be fetched
    from this address: the workers will refuse each page as well. Failed, or ended without a report, means
    that it could not be read, and everything waits until it can be.
    """
    if outcome not in (Outcome.DONE, Outcome.REFUSED):
        return Robots(text="User-agent: *\nDisallow: /\n", expires_in_ms=settings.retry_cap_ms, unreachable=True)
    return Robots(text="", expires_in_ms=ROBOTS_DAY_MS)


def _note_answers(
    accepted: list[tuple[HeldLease, Report, float]],
    gates_after: dict[str, Gate],
    lives: Lives,
    changes: CountChanges,
    now: int,
    settings: Settings,
) -> Script[None]:
    """Count what the answers say of their domains, and give those up with which patience is over."""
    if not settings.enable_domain_tracking:
        return
    patience = trouble.block_settings(settings)
    troubles: dict[str, Trouble] = {}
    reached: dict[str, str | None] = {}
    for held, each, _ in accepted:
        reason = trouble.reason_of(each, held.kind)
        is_good = trouble.is_good(each, reason)
        images, depth = (each.fetch.images_found, held.depth) if is_good and held.kind == Kind.PAGE else (0, 0)
        if reason is not None or images or depth:
            changes.answered(held.scope, images=images, error=reason is not None, depth=depth)
        gate = gates_after[held.domain]
        if is_good and gate.status is DomainStatus.UNREACHABLE and held.kind == Kind.PAGE:
            reached[held.domain] = held.run_id
        if reason is None and not gate.errors_in_row:
            continue
        gate = trouble.after_answer(gate, each, reason, politeness.started(held.leased, each, now), now)
        gates_after[held.domain] = gate
        if not gate.errors_in_row:
            troubles.pop(held.domain, None)
        if reason is not None and held.domain not in troubles and trouble.may_end_patience(gate, reason, patience):
            troubles[held.domain] = Trouble(reason, each.reason, held.run_id, gate.errors_in_row)
    if troubles:
        yield from lives.give_up(troubles)
    if reached:
        yield from lives.reach_again(reached)


def _add_links(
    accepted: list[tuple[HeldLease, Report, float]],
    stored: dict[str, StoredCrawl],
    now: int,
    changes: CountChanges,
    wakes: Wakes,
) -> Script[None]:
    """Add the links of all pages, each to its own crawl, in one go."""
    links: dict[str, list[Discovered]] = {}
    for held, each, _ in accepted:
        if each.links:
            links.setdefault(held.crawl, []).extend(each.links)
    batches = [
        add.Batch(stored[name], admit(found, stored[name].crawl.rules).candidates, len(found))
        for name, found in links.items()
    ]
    yield from add.insert(batches, now, changes, wakes)


def _log(
    accepted: list[tuple[HeldLease, Report, float]],
    decisions: list[Decision],
    before: dict[str, gates.StoredGate],
    revisited: Container[Place],
    now: int,
) -> Script[dict[bytes, int]]:
    """Write one row of `crawl_log` for each report; tell their numbers by token."""
    rows: list[tuple[Value, ...]] = []
    for (held, each, _), decision in zip(accepted, decisions, strict=True):
        fetch = each.fetch
        found_how = DiscoveryType.REFRESH.value if held.place in revisited else held.discovery_type
        rows.append(
            (
                held.crawl, held.key, held.url, held.url_hash, held.token, held.attempt, held.domain,
                before[held.domain].domain_id, held.kind, each.outcome.value, decision.verdict.value,
                decision.due_at if decision.state is TaskState.PENDING else None,
                each.reason or decision.reason, fetch.http_status, fetch.images_found, fetch.digest,
                fetch.etag, fetch.last_modified, fetch.content_type, fetch.body_bytes,
                fetch.content_location, found_how, held.depth, held.run_id, held.granted_at,
                fetch.fetched_at, fetch.elapsed_ms, now, fetch.title, fetch.links_found, fetch.noindex,
                msgspec.json.encode(fetch.redirects).decode() if fetch.redirects else None,
                fetch.similarity,
            )
        )  # fmt: skip
    logged = yield Call("insert_crawl_log", (), rows)
    return {bytes(row[0]): row[1] for row in logged}


def end(endings: Sequence[Ending], changes: CountChanges, wakes: Wakes) -> Script[None]:
    """End leases, the gates of which are locked, and move their tasks."""
    ended = yield Call("delete_leases", (), sorted((ending.held.token,) for ending in endings))
    if len(ended) != len(endings):
        raise AssertionError("a locked lease has vanished")
    rows: list[tuple[Value, ...]] = []
    for held, decision, http_status, artifact_id in endings:
        TASK.check(TaskState.ASSIGNED, decision.state)
        tally = decision.tally
        delayed = decision.state is TaskState.PENDING
        rows.append(
            (
                held.crawl_id, held.key, held.hash, held.attempt, NUMBER[decision.state], delayed,
                decision.due_at, tally.failures, tally.deferrals, tally.expiries, http_status,
                decision.reason, artifact_id,
            )
        )  # fmt: skip
        changes.move(held.scope, ASSIGNED, NUMBER[decision.state])
        if decision.state is TaskState.PENDING:
            wakes.task_due((held.crawl_id, held.key), decision.due_at)
        if decision.state is not TaskState.COMPLETED and held.kind == Kind.PAGE:
            wakes.page_freed((held.crawl_id, held.key))
    rows.sort(key=lambda row: row[:3])
    moved = yield Call("end_tasks", (), rows)
    if len(moved) != len(rows):
        raise InvalidTransition("task", "a state other than ASSIGNED", "the end of its lease")


def close(
    before: dict[str, gates.StoredGate],
    after: dict[str, Gate],
    wakes: Wakes,
    changes: CountChanges,
    slot: int,
    now: int,
) -> Script[list[tuple[str, str]]]:
    """Write the gates, wake the queues behind them, write the counts: how every ending closes.

    Gives the runs and domains that have just met.
    """
    yield from gates.write(before, after)
    for domain, gate in after.items():
        wakes.gate_opens(domain, politeness.opens_at(gate))
    yield from wakes.write()
    return (yield from changes.write(slot, now))


def _ended(endings: Sequence[Ending], changes: CountChanges) -> set[tuple[int, str, str]]:
    """Tell crawl, key and domain of tasks that are over, unless more of their domains wait than before."""
    more = changes.has_more()
    return {
        ending.held.scope[:3]
        for ending in endings
        if ending.decision.state is not TaskState.PENDING and ending.held.domain not in more
    }


def renew(tokens: Sequence[Token], now: int | None, lease_ms: int) -> Script[list[Renewal]]:
    """Prolong the leases that are live."""
    binary = [bytes.fromhex(token) for token in tokens]
    rows = [(token,) for token in sorted(set(binary))]
    yield Call("lock_lease_tokens", (), rows)
    moment = yield from crawls.clock(now)
    renewed = {bytes(row[0]) for row in (yield Call("renew_leases", (moment, moment + lease_ms), rows))}
    return [Renewal.OK if token in renewed else Renewal.LEASE_LOST for token in binary]


def reap(worker: str | None, now: int | None, most: int, settings: Settings, slot: int) -> Script[list[Token]]:
    """End the leases that have expired; each by whoever locks it first, and only if it still has.

    Those of a worker that is known to be dead end whether they have expired or not.
    """
    moment = yield from crawls.clock(now)
    if worker is None:
        locked = [row[0] for row in (yield Call("crawls_of_expired_leases", (moment, most)))]
        rows = yield Call("lock_expired_leases", (moment, most, locked))
    else:
        locked = [row[0] for row in (yield Call("crawls_of_worker", (worker,)))]
        rows = yield Call("lock_leases_of_worker", (worker, locked))
    held = [held_lease(row) for row in rows]
    decisions = [retry.after_expiry(each.tally, moment, settings) for each in held]
    yield from end_without_report(held, decisions, moment, settings, slot)
    return [Token(each.token.hex()) for each in held]


def release(
    tokens: Sequence[Token], worker: str | None, now: int | None, settings: Settings, slot: int
) -> Script[list[Token]]:
    """Give leases back, uncharged: those named, or all of a worker."""
    if worker is None:
        binary = [(token,) for token in sorted({bytes.fromhex(token) for token in tokens})]
        yield Call("crawls_of_leases", (), binary)
        rows = yield Call("lock_leases", (), binary)
    else:
        locked = [row[0] for row in (yield Call("crawls_of_worker", (worker,)))]
        rows = yield Call("lock_leases_of_worker", (worker, locked))
    moment = yield from crawls.clock(now)
    held = [each for each in map(held_lease, rows) if each.expires_at > moment]
    decisions = [retry.put_off(each.tally, moment, 0, settings, "released") for each in held]
    yield from end_without_report(held, decisions, moment, settings, slot)
    return [Token(each.token.hex()) for each in held]


def end_without_report(
    held: list[HeldLease], decisions: list[Decision], now: int, settings: Settings, slot: int
) -> Script[None]:
    """End leases of which nobody says what came of them."""
    if not held:
        return
    changes, wakes = CountChanges(), Wakes()
    before = yield from gates.lock({each.domain for each in held})
    after = {domain: stored.gate for domain, stored in before.items()}
    for each, decision in zip(held, decisions, strict=True):
        gate = politeness.after_silence(after[each.domain], each.leased, now)
        if each.kind == Kind.ROBOTS and decision.state is TaskState.FAILED:
            gate = yield from gates.with_robots(gate, _unsaid_robots(None, settings), now)
        after[each.domain] = gate
    endings = [Ending(each, decision) for each, decision in zip(held, decisions, strict=True)]
    yield from end(endings, changes, wakes)
    yield from close(before, after, wakes, changes, slot, now)
    if settings.enable_domain_tracking:
        yield from Lives(settings, after, now).finish(_ended(endings, changes), [])
