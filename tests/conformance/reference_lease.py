"""What a lease may hand out, and what it must not overlook.

Stores are free to choose among queues that are equally ready, so the model does not foretell a grant. It
judges one, lease by lease in the order of the answer, and takes it over.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from outrider.model.lease import Lease, LeaseGrant, LeaseRequest, NoWork
from outrider.model.machines import TaskState
from outrider.model.task import CrawlState, Kind
from tests.conformance.reference import Model, ModelCrawl, ModelLease, ModelTask

PATIENCE_MS = 1_000
"""How late a store may notice that a queue of several domains can be served, or that another lease has let
go of a URL."""


class Offer(NamedTuple):
    """Something that could be handed out."""

    asker: ModelTask
    """The task whose turn it is."""
    url: str
    """Its URL, or that of the robots.txt which has to come first."""
    calls_for_robots: bool
    is_sure: bool
    """A store has no excuse for not seeing it at once."""
    is_optional: bool
    """A store need not see it at all."""


def held_again(model: Model, request: LeaseRequest, now: int) -> list[ModelLease]:
    """List the leases that a repeated request must be given again."""
    return [
        lease
        for lease in model.leases.values()
        if (lease.worker, lease.request_id) == (request.worker, request.request_id) and lease.expires_at > now
    ]


def check_repeated(held: list[ModelLease], grant: LeaseGrant, now: int) -> None:
    """Hold the answer to a repeated request against the leases that the first one was given."""
    assert {lease.token for lease in grant.leases} == {lease.token for lease in held}
    by_token = {lease.token: lease for lease in held}
    for lease in grant.leases:
        _check_fields(lease, by_token[lease.token].task, attempt=by_token[lease.token].task.attempt_count)
        assert lease.lease_ms == by_token[lease.token].expires_at - now
    assert grant.no_work is None


class LeaseJudge:
    """Judges the answer to one request."""

    def __init__(self, model: Model, request: LeaseRequest, now: int) -> None:
        self.model = model
        self.request = request
        self.now = now
        self.crawls = [
            crawl
            for crawl in model.crawls.values()
            if request.crawl in (None, crawl.name) and crawl.state is CrawlState.RUNNING
        ]
        self._taken: Counter[tuple[str, str]] = Counter()
        self._gave_other_kinds: set[tuple[str, str]] = set()
        self.leased_elsewhere: set[tuple[str, str, str]] = set()
        """The due tasks of its crawls whose URLs have another lease. A look may end at each of them."""

    def take_over(self, grant: LeaseGrant) -> None:
        """Check everything that was granted, and note it in the model."""
        assert len(grant.leases) <= self.request.slots
        self._note_leased_urls()
        for lease in grant.leases:
            self._check(lease)
            self._check_turn(lease)
            self.model.grant(lease, self.request, self.now)
            self._taken[lease.crawl, lease.key] += 1
            if lease.kind is not Kind.PAGE:
                self._gave_other_kinds.add((lease.crawl, lease.key))
        self._note_leased_urls()
        self.model.lease_calls += 1
        if self.request.crawl is None:
            for lease in grant.leases:
                self.model.crawls[lease.crawl].turn = self.model.lease_calls
        self._check_word(grant)
        if len(grant.leases) < self.request.slots:
            self._check_promise(grant.next_ready_at)

    def robots_in_doubt(self) -> list[ModelTask]:
        """List the tasks before which robots.txt should come, while that URL is leased elsewhere as a page.

        A store may have made or renewed the task for it before it found out.
        """
        return [
            task
            for crawl in self.crawls
            for task in crawl.tasks.values()
            if task.state is TaskState.PENDING
            and task.due_at <= self.now
            and self._needs_robots(crawl, task.domain, self.now)
            and self._is_leased(robots_url(task))
            and self._robots_first(crawl, task, self.now) is not None
        ]

    def overlooked(self) -> list[Offer]:
        """List what could have been granted as well."""
        offers = (offer for crawl in self.crawls for offer in self._offers_of(crawl, self.now))
        return [offer for offer in offers if not offer.is_optional]

    def _check(self, lease: Lease) -> None:
        """One lease: it is on offer, nothing better is in its queue, no better queue was passed over."""
        crawl = self.model.crawls[lease.crawl]
        assert crawl in self.crawls, f"leased from {lease.crawl}"
        offers = list(self._offers(crawl, lease.key, self.now))
        offer = next((offer for offer in offers if offer.url == lease.url), None)
        assert offer is not None, f"{lease.url} of {lease.crawl}/{lease.key} could not be leased"
        better = [each for each in offers if each.is_sure and each.asker.rank < offer.asker.rank]
        assert not better, f"{lease.url} was leased before {better[0].url}"
        self._check_bands(crawl, lease.key)
        if offer.calls_for_robots:
            self.model.call_for_robots(crawl, lease.key, lease.url, offer.asker.domain, self.now)
        task = crawl.tasks[lease.key, lease.url]
        _check_fields(lease, task, attempt=task.attempt_count + 1)
        assert lease.lease_ms == (self.request.lease_ms or self.model.settings.crash_threshold_ms)
        has_robots = self.model.gates[task.domain].robots_text is not None
        assert (lease.robots_version is not None) == has_robots
        assert lease.token not in self.model.leases
        assert lease.token not in self.model.answers

    def _check_bands(self, crawl: ModelCrawl, served: str) -> None:
        """No queue of a better band waits.

        But a look stops after as many tasks as a limit allows pages: having met other kinds of tasks, it may
        leave a page for the next one.
        """
        band = crawl.queues[served].band
        if band is None or self.leased_elsewhere:
            return
        for key, queue in crawl.queues.items():
            if queue.band is not None and queue.band < band and (crawl.name, key) not in self._gave_other_kinds:
                passed_over = [each for each in self._offers(crawl, key, self.now) if each.is_sure]
                assert not passed_over, f"band {queue.band} was passed over for band {band}: {passed_over}"

    def _check_turn(self, lease: Lease) -> None:
        """Leases from any crawl rotate over crawls first."""
        if self.request.crawl is not None or self.leased_elsewhere:
            return
        for crawl in self.crawls:
            gave_other_kinds = any(name == crawl.name for name, _ in self._gave_other_kinds)
            if crawl.turn < self.model.crawls[lease.crawl].turn and not gave_other_kinds:
                waiting = [offer for offer in self._offers_of(crawl, self.now) if offer.is_sure]
                assert not waiting, f"it was the turn of {crawl.name}, not of {lease.crawl}: {waiting}"

    def _check_word(self, grant: LeaseGrant) -> None:
        """The answer says why it is short."""
        if len(grant.leases) == self.request.slots:
            assert grant.no_work is None
        elif self.request.crawl is None:
            assert grant.no_work in (NoWork.WAITING, NoWork.LIMIT)
        else:
            crawl = self.model.crawls[self.request.crawl]
            if crawl.state is not CrawlState.RUNNING:
                assert grant.no_work == NoWork(crawl.state.value)
            else:
                assert grant.no_work is (NoWork.WAITING if _has_room(crawl) else NoWork.LIMIT)

    def _check_promise(self, next_ready_at: int | None) -> None:
        """Until `next_ready_at` nothing becomes ready by the passing of time alone."""
        self._taken.clear()
        for moment in self._moments():
            if next_ready_at is not None and next_ready_at <= moment:
                return
            is_late = next_ready_at is None or next_ready_at > moment + PATIENCE_MS
            for crawl in self.crawls:
                for offer in self._offers_of(crawl, moment):
                    is_sure = offer.is_sure and not self.leased_elsewhere
                    assert offer.is_optional or not (is_late or is_sure), (
                        f"{offer.url} of {offer.asker.crawl}/{offer.asker.key} is ready at {moment} "
                        f"({moment - self.now:+}), but next_ready_at is {next_ready_at}"
                    )

    def _moments(self) -> list[int]:
        """List the moments at which something may come to be ready, from now on."""
        moments = {self.now}
        for gate in self.model.gates.values():
            moments |= {gate.opens_at, gate.robots_expires_at or 0}
        for crawl in self.crawls:
            moments |= {queue.settings.blocked_until or 0 for queue in crawl.queues.values()}
            for task in crawl.tasks.values():
                if task.state is TaskState.PENDING:
                    moments |= {task.due_at, task.passed_over_until}
        return sorted(moment for moment in moments if moment >= self.now)

    def _offers_of(self, crawl: ModelCrawl, at: int) -> Iterator[Offer]:
        for key in crawl.queues:
            yield from self._offers(crawl, key, at)

    def _offers(self, crawl: ModelCrawl, key: str, at: int) -> Iterator[Offer]:
        """Find what this request could be given from one queue at a moment."""
        queue = crawl.queues[key]
        limit, most = queue.settings.page_limit, self.request.max_per_queue
        if (
            not _has_room(crawl)
            or (limit is not None and crawl.pages(key) >= limit)
            or (queue.settings.blocked_until or 0) > at
            or (most is not None and self._taken[crawl.name, key] >= most)
        ):
            return
        lets_in = {domain: self._lets_in(crawl, domain, at) for domain in queue.domains}
        if not any(lets_in.values()):
            return
        asked: set[str] = set()
        settled: set[str] = set()
        for task in sorted(crawl.queue_tasks(key), key=lambda task: task.rank):
            if task.state is not TaskState.PENDING or task.due_at > at or not lets_in[task.domain]:
                continue
            is_sure = not queue.is_mixed and task.passed_over_until <= at
            if task.kind is Kind.ROBOTS or not self._needs_robots(crawl, task.domain, at):
                if not self._is_leased(task.url):
                    yield Offer(task, task.url, False, is_sure, False)
            elif task.domain not in settled:
                # The first task says whose robots.txt it is; a store need not ask any other.
                is_leased, is_first = self._is_leased(task.url), task.domain not in asked
                url = self._robots_first(crawl, task, at)
                if url is not None and not self._is_leased(url):
                    yield Offer(task, url, True, is_sure and is_first, is_leased or not is_first)
                asked.add(task.domain)
                if is_sure and not is_leased:
                    settled.add(task.domain)

    def _lets_in(self, crawl: ModelCrawl, domain: str, at: int) -> bool:
        """Tell whether clocks, concurrency and budget allow one more request, and no robots.txt is awaited."""
        gate = self.model.gates[domain]
        concurrency = crawl.limits.concurrency if gate.concurrency is None else gate.concurrency
        under_way = list(self.model.in_flight(domain))
        if max(gate.opens_at, gate.quiet_until) > at or len(under_way) >= concurrency:
            return False
        if crawl.limits.robots and gate.robots_unreachable and (gate.robots_expires_at or 0) > at:
            return False
        if self._needs_robots(crawl, domain, at) and any(lease.task.kind is Kind.ROBOTS for lease in under_way):
            return False
        return self._has_budget(crawl, domain)

    def _has_budget(self, crawl: ModelCrawl, domain: str) -> bool:
        """Tell whether the run may have another page of a domain."""
        run_id, budget = self.request.run_id, crawl.limits.max_pages_per_domain
        if run_id is None or budget is None:
            return True
        under_way = self.model.in_flight(domain)
        pages = sum(lease.run_id == run_id and lease.task.kind is Kind.PAGE for lease in under_way)
        return self.model.run_pages[run_id, domain] + pages < budget

    def _needs_robots(self, crawl: ModelCrawl, domain: str, at: int) -> bool:
        expires_at = self.model.gates[domain].robots_expires_at
        return crawl.limits.robots and (expires_at is None or expires_at <= at)

    def _robots_first(self, crawl: ModelCrawl, asker: ModelTask, at: int) -> str | None:
        """Name the robots.txt that must be fetched for a task; None while that is put off."""
        url = robots_url(asker)
        task = crawl.tasks.get((asker.key, url))
        is_put_off = task is not None and (
            task.state is TaskState.ASSIGNED or (task.state is TaskState.PENDING and task.due_at > at)
        )
        return None if is_put_off else url

    def _is_leased(self, url: str) -> bool:
        return any(lease.task.url == url for lease in self.model.leases.values())

    def _note_leased_urls(self) -> None:
        """Note the due tasks that have to wait because of a lease elsewhere: a store finds out by trying."""
        for crawl in self.crawls:
            for task in crawl.tasks.values():
                if task.state is TaskState.PENDING and task.due_at <= self.now and self._is_leased(task.url):
                    task.passed_over_until = self.now + PATIENCE_MS
                    task.was_passed_over = True
                    self.leased_elsewhere.add((task.crawl, task.key, task.url))


def robots_url(task: ModelTask) -> str:
    """Name the robots.txt of a task's host."""
    return "/".join([*task.url.split("/")[:3], "robots.txt"])


def _has_room(crawl: ModelCrawl) -> bool:
    return crawl.limits.max_pages is None or crawl.pages() < crawl.limits.max_pages


def _check_fields(lease: Lease, task: ModelTask, attempt: int) -> None:
    """Hold what a lease carries against its task."""
    assert (lease.crawl, lease.key, lease.url, lease.domain) == (task.crawl, task.key, task.url, task.domain)
    assert (lease.kind, lease.depth, lease.priority) == (task.kind, task.depth, task.priority)
    assert (lease.attempt, lease.discovery_type) == (attempt, task.discovery_type)
    assert (lease.etag, lease.metadata) == (task.etag, task.metadata)
