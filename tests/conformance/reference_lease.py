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
    is_sure: bool
    """A store has no excuse for not seeing it."""

    @property
    def is_robots_for_another(self) -> bool:
        """Tell whether robots.txt is fetched for the asker's sake."""
        return self.url != self.asker.url


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
        self._met_leased_url = False

    def take_over(self, grant: LeaseGrant) -> None:
        """Check everything that was granted, and note it in the model."""
        assert len(grant.leases) <= self.request.slots
        self._note_leased_urls()
        for lease in grant.leases:
            self._check(lease)
            self._check_turn(lease)
            self.model.grant(lease, self.request, self.now)
            self._taken[lease.crawl, lease.key] += 1
        self._note_leased_urls()
        self.model.lease_calls += 1
        if self.request.crawl is None:
            for lease in grant.leases:
                self.model.crawls[lease.crawl].turn = self.model.lease_calls
        self._check_word(grant)
        if len(grant.leases) < self.request.slots:
            self._check_promise(grant.next_ready_at)

    def overlooked(self) -> list[Offer]:
        """List what could have been granted as well."""
        return [offer for crawl in self.crawls for offer in self._offers_of(crawl, self.now)]

    def _check(self, lease: Lease) -> None:
        """One lease: it is on offer, nothing better is in its queue, no better queue was passed over."""
        crawl = self.model.crawls[lease.crawl]
        assert crawl in self.crawls, f"leased from {lease.crawl}"
        offers = sorted(self._offers(crawl, lease.key, self.now), key=lambda offer: offer.asker.rank)
        offer = next((offer for offer in offers if offer.url == lease.url), None)
        assert offer is not None, f"{lease.url} of {lease.crawl}/{lease.key} could not be leased"
        better = [each for each in offers if each.is_sure and each.asker.rank < offer.asker.rank]
        assert not better, f"{lease.url} was leased before {better[0].url}"
        for key, queue in crawl.queues.items():
            band = crawl.queues[lease.key].band
            if queue.band is None or band is None or queue.band >= band or self._met_leased_url:
                continue
            passed_over = [each for each in self._offers(crawl, key, self.now) if each.is_sure]
            assert not passed_over, f"band {queue.band} was passed over for band {band}: {passed_over}"
        if offer.is_robots_for_another:
            self.model.call_for_robots(crawl, lease.key, lease.url, offer.asker.domain, self.now)
        task = crawl.tasks[lease.key, lease.url]
        _check_fields(lease, task, attempt=task.attempt_count + 1)
        assert lease.lease_ms == (self.request.lease_ms or self.model.settings.crash_threshold_ms)
        has_robots = self.model.gates[task.domain].robots_text is not None
        assert (lease.robots_version is not None) == has_robots
        assert lease.token not in self.model.leases
        assert lease.token not in self.model.answers

    def _check_turn(self, lease: Lease) -> None:
        """Leases from any crawl rotate over crawls first."""
        if self.request.crawl is not None or self._met_leased_url:
            return
        for crawl in self.crawls:
            if crawl.turn < self.model.crawls[lease.crawl].turn:
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
                    is_sure = offer.is_sure and not self._met_leased_url
                    assert not (is_late or is_sure), (
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
        for task in crawl.queue_tasks(key):
            if task.state is not TaskState.PENDING or task.due_at > at or not lets_in[task.domain]:
                continue
            url: str | None = task.url
            if task.kind is not Kind.ROBOTS and self._needs_robots(crawl, task.domain, at):
                url = self._robots_first(crawl, task, at)
            if url is not None and not self._is_leased(url):
                yield Offer(task, url, not queue.is_mixed and task.passed_over_until <= at)

    def _lets_in(self, crawl: ModelCrawl, domain: str, at: int) -> bool:
        """Tell whether a domain's clocks, its concurrency and the run's budget allow one more request."""
        gate, limits = self.model.gates[domain], crawl.limits
        concurrency = limits.concurrency if gate.concurrency is None else gate.concurrency
        if max(gate.opens_at, gate.quiet_until) > at or len(list(self.model.in_flight(domain))) >= concurrency:
            return False
        run_id, budget = self.request.run_id, limits.max_pages_per_domain
        if run_id is None or budget is None:
            return True
        under_way = sum(
            lease.run_id == run_id and lease.task.kind is Kind.PAGE for lease in self.model.in_flight(domain)
        )
        return self.model.run_pages[run_id, domain] + under_way < budget

    def _needs_robots(self, crawl: ModelCrawl, domain: str, at: int) -> bool:
        expires_at = self.model.gates[domain].robots_expires_at
        return crawl.limits.robots and (expires_at is None or expires_at <= at)

    def _robots_first(self, crawl: ModelCrawl, asker: ModelTask, at: int) -> str | None:
        """Name the robots.txt that must be fetched for a task; None while that is under way or put off."""
        if any(lease.task.kind is Kind.ROBOTS for lease in self.model.in_flight(asker.domain)):
            return None
        url = "/".join([*asker.url.split("/")[:3], "robots.txt"])
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
                    self._met_leased_url = True


def _has_room(crawl: ModelCrawl) -> bool:
    return crawl.limits.max_pages is None or crawl.pages() < crawl.limits.max_pages


def _check_fields(lease: Lease, task: ModelTask, attempt: int) -> None:
    """Hold what a lease carries against its task."""
    assert (lease.crawl, lease.key, lease.url, lease.domain) == (task.crawl, task.key, task.url, task.domain)
    assert (lease.kind, lease.depth, lease.priority) == (task.kind, task.depth, task.priority)
    assert (lease.attempt, lease.discovery_type) == (attempt, task.discovery_type)
