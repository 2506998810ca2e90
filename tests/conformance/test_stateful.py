"""Random operations and clock jumps, done to a store and to the model, which must agree on everything.

All invariants of the URL plane are in it: Identity, Exclusivity, Attempts, Depth, Counts are exact, and
Politeness is global and durable.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar, Final, TypeVar

import pytest
import uvloop
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from outrider.model.artifact import Fetch
from outrider.model.errors import UnknownCrawl
from outrider.model.gate import GateSettings
from outrider.model.lease import LeaseRequest, Outcome, Report, ReportAnswer, Token
from outrider.model.machines import TaskState
from outrider.model.task import AddResult, CrawlLimits, CrawlState, Discovered, Kind, QueueSettings, TaskFilter
from outrider.model.url import locate
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from tests.conformance import reference_check, reference_lease, reference_report
from tests.conformance.backends import Backend
from tests.conformance.reference import Model, ModelCrawl, ModelTask
from tests.conformance.universe import (
    CRAWLS,
    DOMAINS,
    ITEMS,
    KEYS,
    MIXED_URLS,
    OUTCOMES,
    RUNS,
    SECOND_QUEUE_URLS,
    SHORT_LIVED,
    T0,
    URLS,
    batches,
    crawls,
    jumps,
    limits,
    picks,
    reports,
    spans,
    workers,
)

Answer = TypeVar("Answer")

SEQUENCES: Final = 500
OPERATIONS: Final = 52
"""In a sequence that counts."""
CHUNK: Final = 50
FULL_CHECK_EVERY: Final = 26
QUEUE_CHECK_EVERY: Final = 9
FURTHER_CALLS: Final = 3
"""After so many, a store must have offered everything that it could offer."""
REPRODUCIBLE: Final = settings(
    max_examples=CHUNK, stateful_step_count=OPERATIONS, database=None, deadline=None, print_blob=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


class StoreAndModel(RuleBasedStateMachine):
    """One sequence of operations."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    store: ClassVar[UrlStore]
    backend: ClassVar[Backend]
    dsn: ClassVar[str]
    completed: ClassVar[int] = 0
    """Sequences that came to their end."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(SHORT_LIVED)
        self.now = T0
        self.tokens: list[Token] = []
        self.requests: list[LeaseRequest] = []
        self.domains, self.urls = DOMAINS, URLS
        self.operations = 0
        self.run(self.backend.wipe(self.dsn))

    def run(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run_until_complete(call)

    def teardown(self) -> None:
        type(self).completed += self.operations >= OPERATIONS

    # ---------------------------------------------------------- operations

    @initialize(first=limits, second=limits, sites=st.sampled_from([1, 2, 5]), batch=batches)
    def create(self, first: CrawlLimits, second: CrawlLimits, sites: int, batch: list[tuple[int, int]]) -> None:
        self.domains = DOMAINS[:sites]
        self.urls = [url for url in URLS if locate(url).domain in self.domains]
        self._create("first", first)
        self._create("second", second)
        self.add("first", batch)
        self.add("second", batch)

    def _create(self, name: str, limits: CrawlLimits) -> None:
        made = self.run(self.store.create_crawl(name, limits=limits, now=self.now))
        assert (made.name, made.limits, made.state) == (name, limits, CrawlState.RUNNING)
        self.model.crawls[name] = ModelCrawl(name=name, limits=limits)

    def _key(self, pick: int) -> str:
        keys = [*self.domains, "mixed", "second-queue"]
        return keys[pick % len(keys)]

    def _discovery(self, place: int, shape: int) -> Discovered:
        fields = ITEMS[shape]
        urls = {"mixed": MIXED_URLS, "second-queue": SECOND_QUEUE_URLS}.get(fields.get("key", ""), self.urls)
        return Discovered(**{"url": urls[place % len(urls)], **fields})

    @rule(crawl=crawls, batch=batches)
    def add(self, crawl: str, batch: list[tuple[int, int]]) -> None:
        items = [self._discovery(*pair) for pair in batch]
        answers = self.run(self.store.add(crawl, items, now=self.now))
        stripped = [AddResult(answer.outcome, answer.reason) for answer in answers]
        assert stripped == self.model.add(crawl, items, self.now)

    @rule(crawl=crawls, batch=batches)
    def add_more(self, crawl: str, batch: list[tuple[int, int]]) -> None:
        self.add(crawl, batch)

    @rule(
        crawl=st.sampled_from([*CRAWLS, None]),
        worker=workers,
        run_id=st.sampled_from(RUNS),
        slots=st.integers(1, 5),
        most=st.sampled_from([None, None, 1, 2]),
        lease_ms=st.sampled_from([None, 1_500, 30_000]),
        jump=jumps,
    )
    def lease(
        self,
        crawl: str | None,
        worker: str,
        run_id: str | None,
        slots: int,
        most: int | None,
        lease_ms: int | None,
        jump: int,
    ) -> None:
        self.now += jump
        further_calls = 0
        while True:
            request = LeaseRequest(
                worker=worker, request_id=f"request {len(self.requests)}", slots=slots, crawl=crawl,
                run_id=run_id, lease_ms=lease_ms, max_per_queue=most,
            )  # fmt: skip
            judge = self._ask(request)
            overlooked = judge.overlooked() if judge is not None else []
            if judge is None or not overlooked:
                return
            assert further_calls < FURTHER_CALLS + len(judge.leased_elsewhere), f"was never offered: {overlooked}"
            further_calls += 1
            if further_calls == 2:
                self.now += reference_lease.PATIENCE_MS + 100

    @rule(crawl=st.sampled_from([*CRAWLS, None]), run_id=st.sampled_from(RUNS), slots=st.integers(1, 5), jump=jumps)
    def lease_simply(self, crawl: str | None, run_id: str | None, slots: int, jump: int) -> None:
        self.lease(crawl, "ann", run_id, slots, None, None, jump)

    @rule(crawl=crawls, run_id=st.sampled_from(RUNS))
    def lease_at_once(self, crawl: str, run_id: str | None) -> None:
        self.lease(crawl, "ann", run_id, 5, None, None, 0)

    @rule(pick=picks)
    def lease_again(self, pick: int) -> None:
        """Repeat a request, as if its answer had been lost."""
        if self.requests:
            self._ask(self.requests[-1 - pick % len(self.requests)])

    def _ask(self, request: LeaseRequest) -> reference_lease.LeaseJudge | None:
        """Ask once; returns the judge where the answer is shorter than was asked for."""
        self.requests.append(request)
        grant = self.run(self.store.lease(request, now=self.now))
        held = reference_lease.held_again(self.model, request, self.now)
        if held:
            reference_lease.check_repeated(held, grant, self.now)
            return None
        judge = reference_lease.LeaseJudge(self.model, request, self.now)
        judge.take_over(grant)
        for task in judge.robots_in_doubt():
            self._settle_robots(task)
        self.tokens += [lease.token for lease in grant.leases]
        return judge if len(grant.leases) < request.slots else None

    def _settle_robots(self, asker: ModelTask) -> None:
        """Follow the store where it may or may not have called for a robots.txt."""
        url = reference_lease.robots_url(asker)
        crawl = self.model.crawls[asker.crawl]
        found = self.run(self.store.find_task(asker.crawl, url, asker.key))
        known = crawl.tasks.get((asker.key, url))
        if found is not None and (known is None or (known.kind, known.state) != (found.kind, found.state)):
            made = self.model.call_for_robots(crawl, asker.key, url, asker.domain, self.now)
            made.passed_over_until, made.was_passed_over = self.now + reference_lease.PATIENCE_MS, True

    def _token(self, pick: int) -> Token:
        """Choose a token: mostly one in use, else one of old, now and then one that never was."""
        tokens = list(self.model.leases) if pick < 8 else self.tokens
        if pick == 10 or not tokens:
            return Token("ab" * 16)
        return Token("nonsense") if pick == 11 else tokens[pick % len(tokens)]

    @rule(chosen=st.lists(picks, min_size=1, max_size=4), lease_ms=st.sampled_from([None, 1_000, 90_000]), jump=jumps)
    def renew(self, chosen: list[int], lease_ms: int | None, jump: int) -> None:
        self.now += jump
        tokens = [self._token(pick) for pick in chosen]
        answers = self.run(self.store.renew(tokens, lease_ms=lease_ms, now=self.now))
        assert answers == reference_report.renew(self.model, tokens, lease_ms, self.now)

    @rule(chosen=reports, jump=jumps)
    def report(self, chosen: list[tuple[int, int, list[int]]], jump: int) -> None:
        self.now += jump
        said = []
        for pick, outcome, places in chosen:
            fields = OUTCOMES[outcome]
            fetch = Fetch(http_status=200) if fields["outcome"] is Outcome.DONE else Fetch(http_status=500)
            links = [self._discovery(place, (place + pick) % len(ITEMS)) for place in places]
            said.append(Report(**{"token": self._token(pick), "fetch": fetch, "links": links, **fields}))
        answers = self.run(self.store.report(said, now=self.now))
        stripped = [
            ReportAnswer(verdict=each.verdict, retry_at=each.retry_at, refusal=each.refusal) for each in answers
        ]
        assert stripped == reference_report.report(self.model, said, self.now)

    @rule(chosen=reports)
    def report_at_once(self, chosen: list[tuple[int, int, list[int]]]) -> None:
        self.report(chosen, 0)

    @rule(most=st.sampled_from([None, 1, 1_000]), chosen=st.lists(picks, max_size=3), worker=workers, jump=jumps)
    def reap_or_release(self, most: int | None, chosen: list[int], worker: str, jump: int) -> None:
        self.now += jump
        if most is None:
            self._release([self._token(pick) for pick in chosen], None if chosen else worker)
        else:
            self._reap(most)

    def _reap(self, most: int) -> None:
        expired = reference_report.expired(self.model, self.now)
        reaped = self.run(self.store.reap(most=most, now=self.now))
        assert len(reaped) == len(set(reaped)) == min(most, len(expired))
        assert set(reaped) <= {lease.token for lease in expired}
        ends = sorted(self.model.leases[token].expires_at for token in reaped)
        assert ends == [lease.expires_at for lease in expired[: len(reaped)]]
        for token in reaped:
            reference_report.reap(self.model, token, self.now)

    def _release(self, tokens: list[Token], worker: str | None) -> None:
        released = self.run(self.store.release(tokens, worker=worker, now=self.now))
        assert len(released) == len(set(released))
        assert set(released) == reference_report.release(self.model, tokens, worker, self.now)

    @rule(
        crawl=crawls,
        what=st.sampled_from(["limits", "promote", "retry", *CrawlState, CrawlState.RUNNING]),
        limits=limits,
        which=st.sampled_from([*KEYS, *Kind, "/1", None, None]),
    )
    def change_crawl(self, crawl: str, what: str, limits: CrawlLimits, which: str | Kind | None) -> None:
        """Set its state or its limits, promote, or retry what has failed."""
        known = self.model.crawls[crawl]
        if isinstance(what, CrawlState):
            assert self.run(self.store.set_crawl_state(crawl, what)).state is what
            known.state = what
        elif what == "retry":
            chosen = _filter(which, None)
            retried = self.run(self.store.retry_failed(crawl, chosen, now=self.now))
            assert retried == self.model.retry_failed(self.model.matching(crawl, chosen), self.now)
        else:
            assert self.run(self.store.set_crawl_limits(crawl, limits)).limits == limits
            known.limits = limits
            if what == "promote":
                assert self.run(self.store.promote(crawl, now=self.now)) == self.model.promote(known, self.now)

    @rule(
        crawl=crawls,
        pick=picks,
        delay_ms=st.sampled_from([None, 0, 700]),
        blocked=spans,
        page_limit=st.sampled_from([None, None, 0, 1, 1, 2]),
        priority=st.sampled_from([None, None, 0, 1, 1_000, -3]),
    )
    def configure_queue(
        self,
        crawl: str,
        pick: int,
        delay_ms: int | None,
        blocked: int | None,
        page_limit: int | None,
        priority: int | None,
    ) -> None:
        overrides = QueueSettings(
            delay_ms=delay_ms, blocked_until=self.now + blocked if blocked else None, page_limit=page_limit,
            priority=priority,
        )  # fmt: skip
        self.run(self.store.configure_queue(crawl, self._key(pick), overrides, now=self.now))
        self.model.configure_queue(self.model.crawls[crawl], self._key(pick), overrides)

    @rule(
        pick=picks,
        delay_ms=st.sampled_from([None, 0, 1_500]),
        concurrency=st.sampled_from([None, 1, 3]),
        blocked=spans,
        band=st.sampled_from([None, None, 2, 8, 12]),
    )
    def configure_gate(
        self, pick: int, delay_ms: int | None, concurrency: int | None, blocked: int | None, band: int | None
    ) -> None:
        domain = self.domains[pick % len(self.domains)]
        blocked_until = None if blocked is None else self.now + blocked if blocked else 0
        wanted = GateSettings(delay_ms=delay_ms, concurrency=concurrency, blocked_until=blocked_until, band=band)
        gate = self.run(self.store.configure_gate(domain, wanted, now=self.now))
        self.model.configure_gate(domain, wanted)
        assert gate == self.model.gates[domain].as_record(domain, gate.robots_version)

    @rule(crawl=crawls, what=st.sampled_from([None, "queue", *[-1, 0, 5_000, 100_000] * 2]), pick=picks, limits=limits)
    def remove(self, crawl: str, what: str | int | None, pick: int, limits: CrawlLimits) -> None:
        """Delete a crawl or a queue, or purge what is older than so many milliseconds."""
        if what is None:
            self._delete_crawl(crawl, limits)
        elif isinstance(what, str):
            self._delete_queue(crawl, self._key(pick))
        else:
            self._purge(crawl, what, self._key(pick) if pick < 6 else None)

    def _delete_queue(self, crawl: str, key: str) -> None:
        removed = self.run(self.store.delete_queue(crawl, key))
        known = self.model.crawls[crawl]
        assert removed == self.model.remove(known, known.queue_tasks(key))
        known.queues.pop(key, None)

    def _delete_crawl(self, crawl: str, limits: CrawlLimits) -> None:
        removed = self.run(self.store.delete_crawl(crawl))
        known = self.model.crawls.pop(crawl)
        assert removed == self.model.remove(known, list(known.tasks.values()))
        with pytest.raises(UnknownCrawl):
            self.run(self.store.add(crawl, [Discovered(url=URLS[0])], now=self.now))
        self._create(crawl, limits)

    def _purge(self, crawl: str, age: int, key: str | None) -> None:
        removed = self.run(self.store.purge(crawl, before=self.now - age, key=key))
        known = self.model.crawls[crawl]
        old = [
            task
            for task in known.tasks.values()
            if task.discovered_at < self.now - age and key in (None, task.key) and task.state is not TaskState.ASSIGNED
        ]
        assert removed == self.model.remove(known, old)

    @rule(
        crawl=crawls,
        place=st.integers(0, len(URLS) - 1),
        key=st.sampled_from([None, None, "mixed", "second-queue"]),
        which=st.sampled_from([*KEYS, *Kind, "/1", None]),
        state=st.sampled_from([None, *TaskState]),
        limit=st.integers(1, 7),
    )
    def look(
        self, crawl: str, place: int, key: str | None, which: str | Kind | None, state: TaskState | None, limit: int
    ) -> None:
        """Find one task and list some."""
        where = locate(URLS[place])
        found = self.run(self.store.find_task(crawl, URLS[place] + "#found", key))
        known = self.model.crawls[crawl].tasks.get((key or where.domain, where.url))
        reference_check.check_task(self.model, known, found)
        chosen = _filter(which, state)
        listed = self.run(reference_check.listed(self.store, crawl, chosen, limit))
        assert set(listed) == {(task.key, task.url) for task in self.model.matching(crawl, chosen)}

    # --------------------------------------------------------- comparisons

    @invariant()
    def counts_agree(self) -> None:
        """Compare the queues of a crawl now and then, and everything half-way and at the end."""
        if not self.model.crawls:
            return
        self.operations += 1
        if self.operations % FULL_CHECK_EVERY == 0:
            self.run(reference_check.check_everything(self.store, self.model))
        elif self.operations % QUEUE_CHECK_EVERY == 0:
            self.run(reference_check.check_queues(self.store, self.model, CRAWLS[self.operations % 2]))


def _filter(which: str | Kind | None, state: TaskState | None) -> TaskFilter:
    if isinstance(which, Kind):
        return TaskFilter(kind=which, state=state)
    if which is not None and which.startswith("/"):
        return TaskFilter(url_contains=which, state=state)
    return TaskFilter(key=which, state=state)


def test_a_store_does_what_the_model_does(backend: Backend) -> None:
    class Machine(StoreAndModel):
        pass

    Machine.backend = backend
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        Machine.loop = runner.get_loop()
        # Some sequences end early, for Hypothesis also tries shorter ones: they do not count. Every chunk has
        # a store of its own, for what is deleted between sequences slows PostgreSQL down in the end.
        for number in range(2 * SEQUENCES // CHUNK):
            if Machine.completed >= SEQUENCES:
                break
            Machine.dsn = backend.create()
            stores = runner.run(open_store(Machine.dsn, SHORT_LIVED))
            Machine.store = stores.urls
            try:
                run_state_machine_as_test(seed(number)(Machine), settings=REPRODUCIBLE)
            finally:
                runner.run(stores.close())
                backend.drop(Machine.dsn)
    assert Machine.completed >= SEQUENCES
