"""Random things that users, supervisors, watchdogs and workers do to two crawls and their jobs.

Invariant 9, Jobs: at most one live runner per job, fenced by its epoch; a terminal state changes only by a retry; what
the user asked for wins over recovery. And invariant 6, Counts are exact, whatever ends in the middle of what.
"""

import asyncio
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any, ClassVar, Final, TypeVar

import uvloop
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from outrider.model.errors import InvalidTransition, JobConflict, JobUnfinished
from outrider.model.job import (
    CRAWL_STATES,
    STALE_AFTER_MS,
    TERMINAL,
    WATCHDOG,
    WEBHOOK_TOPIC,
    Job,
    JobEnding,
    JobRequest,
    RunKind,
    RunStatus,
    runner_name,
    status_after_run,
    status_after_silence,
)
from outrider.model.lease import Lease, LeaseRequest, Verdict
from outrider.model.machines import JOB, DesiredState, JobStatus
from outrider.model.order import OrderLimits
from outrider.model.settings import Settings
from outrider.model.task import CrawlLimits, Discovered
from outrider.store.opening import Stores, open_store
from tests.conformance.backends import Backend, Place
from tests.conformance.controlling import NOW, at
from tests.conformance.jobbing import done
from tests.recount import check_counts

Answer = TypeVar("Answer")

EXAMPLES: Final = 12
OPERATIONS: Final = 30
CRAWLS: Final = ("one", "two")
PATIENT: Final = Settings(max_lease_expiries=1_000_000, max_deferrals=1_000_000)
"""No task fails because of what happens to its leases."""
OPEN: Final = CrawlLimits(delay_ms=0, concurrency=100, robots=False, max_depth=1)

crawls = st.sampled_from(CRAWLS)
picks = st.integers(min_value=0, max_value=1_000)
outcomes = st.sampled_from(JobStatus)
wishes = st.sampled_from(DesiredState)


class Jobs(RuleBasedStateMachine):
    """Whatever can be done, against the rules that hold all the time."""

    backend: ClassVar[Backend]
    loop: ClassVar[asyncio.AbstractEventLoop]
    stores: ClassVar[Stores]
    dsn: ClassVar[str]

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        self.now = NOW
        self.jobs: list[str] = []
        self.epochs: list[tuple[str, int]] = []
        """Everybody who was ever told to run a job."""
        self.leases: list[tuple[str, Lease]] = []
        """What was leased, and for whom."""
        self.run(self._prepare())
        for crawl in CRAWLS:
            self.submit(crawl, retries=1, priority=0)
            self.claim("a")
            self.lease(0, slots=2, joined=False)

    async def _prepare(self) -> None:
        await self.backend.wipe(self.dsn)
        for crawl in CRAWLS:
            await self.stores.urls.create_crawl(crawl, limits=OPEN, now=NOW)
            pages = [Discovered(url=f"https://{crawl}.example/{n}", depth=n % 3) for n in range(9)]
            await self.stores.urls.add(crawl, pages, now=NOW)

    async def job(self, job_id: str) -> Job:
        found = await self.stores.control.get_job(job_id)
        assert found is not None
        return found

    # --------------------------------------------------------------------- users

    @rule(crawl=crawls, retries=st.integers(0, 2), priority=st.integers(-1, 1))
    def submit(self, crawl: str, retries: int, priority: int) -> None:
        request = JobRequest(
            payload={}, crawl=crawl, max_retries=retries, priority=priority, webhook_url="https://hooks.example/"
        )
        try:
            job = self.run(self.stores.control.submit_job(request, now=self.now))
        except JobConflict:
            live = [each for each in self.all_jobs() if each.crawl == crawl and each.status not in TERMINAL]
            assert len(live) == 1
        else:
            self.jobs.append(job.id)

    @rule(pick=picks, desired=wishes)
    def wish(self, pick: int, desired: DesiredState) -> None:
        if not self.jobs:
            return
        before = self.run(self.job(self.jobs[pick % len(self.jobs)]))
        try:
            after = self.run(self.stores.control.set_desired_state(before.id, desired, now=self.now))
        except JobConflict:
            assert before.status in TERMINAL or before.desired_state is DesiredState.CANCEL
            return
        assert after.desired_state is desired
        assert self.run(self.stores.urls.get_crawl(before.crawl)).state is CRAWL_STATES[desired]
        if desired is DesiredState.CANCEL:
            assert self.run(self.stores.urls.counts(before.crawl)).assigned == 0

    @rule(pick=picks, fresh=st.booleans())
    def retry(self, pick: int, fresh: bool) -> None:
        if not self.jobs:
            return
        before = self.run(self.job(self.jobs[pick % len(self.jobs)]))
        try:
            after = self.run(self.stores.control.retry_job(before.id, fresh=fresh, now=self.now))
        except JobConflict:
            taken = any(each.crawl == before.crawl and each.status not in TERMINAL for each in self.all_jobs())
            assert before.status is not JobStatus.FAILED or taken
            return
        assert (before.status, after.status, after.retry_count) == (JobStatus.FAILED, JobStatus.PENDING, 0)

    @rule(pick=picks, max_depth=st.sampled_from([0, 1, 2, None]))
    def amend(self, pick: int, max_depth: int | None) -> None:
        if not self.jobs:
            return
        before = self.run(self.job(self.jobs[pick % len(self.jobs)]))
        limits = OrderLimits(max_depth=max_depth)
        try:
            self.run(self.stores.control.amend_job(before.id, priority=pick % 3, limits=limits, now=self.now))
        except JobConflict:
            assert before.status in TERMINAL
            return
        if max_depth in (2, None):
            assert self.run(self.stores.urls.counts(before.crawl)).discovered == 0

    # --------------------------------------------------------------- supervisors

    @rule(worker=st.sampled_from(["a", "b"]))
    def claim(self, worker: str) -> None:
        job = self.run(self.stores.control.claim_job(worker, now=self.now))
        if job is None:
            return
        assert (job.id, job.epoch) not in self.epochs, "no epoch is given twice"
        assert job.desired_state is DesiredState.RUN
        self.epochs.append((job.id, job.epoch))
        if job.begins_afresh:
            self.run(self.stores.control.forget_tasks(job.id, job.epoch, now=self.now))
        self.run(self.stores.control.open_run(job.crawl, RunKind.JOB, job_id=job.id, epoch=job.epoch, now=self.now))

    @rule(pick=picks)
    def beat(self, pick: int) -> None:
        if not self.epochs:
            return
        job_id, epoch = self.epochs[pick % len(self.epochs)]
        job = self.run(self.job(job_id))
        is_live = (job.status, job.epoch) == (JobStatus.PROCESSING, epoch)
        answer = self.run(self.stores.control.beat_job(job_id, epoch, now=self.now))
        assert answer == (job.desired_state if is_live else None)
        assert self.run(self.stores.control.desired_states([(job_id, epoch)])) == {job_id: answer}

    @rule(pick=picks, outcome=outcomes)
    def finish(self, pick: int, outcome: JobStatus) -> None:
        if not self.epochs:
            return
        job_id, epoch = self.epochs[pick % len(self.epochs)]
        before = self.run(self.job(job_id))
        is_live = (before.status, before.epoch) == (JobStatus.PROCESSING, epoch)
        try:
            after = self.run(self.stores.control.finish_job(job_id, epoch, JobEnding(outcome=outcome), now=self.now))
        except JobUnfinished:
            counts = self.run(self.stores.urls.counts(before.crawl))
            assert outcome is JobStatus.COMPLETED
            assert counts.pending + counts.assigned > 0
        except JobConflict:
            assert not is_live
        except InvalidTransition:
            assert outcome is JobStatus.PROCESSING
        else:
            assert after.status is (status_after_run(before, outcome) if is_live else before.status)

    @rule()
    def recover(self) -> None:
        silent = [
            job
            for job in self.all_jobs()
            if job.status is JobStatus.PROCESSING and job.last_heartbeat < at(self.now - STALE_AFTER_MS)  # type: ignore[operator]
        ]
        recovered = self.run(self.stores.control.recover_stale_jobs(now=self.now))
        assert {job.id: job.status for job in recovered} == {job.id: status_after_silence(job) for job in silent}

    @rule(span=st.sampled_from([1, 1_000, STALE_AFTER_MS, STALE_AFTER_MS + 1]))
    def wait(self, span: int) -> None:
        self.now += span

    # ------------------------------------------------------------------- workers

    @rule(pick=picks, slots=st.integers(1, 3), joined=st.booleans())
    def lease(self, pick: int, slots: int, joined: bool) -> None:
        live = [job for job in self.all_jobs() if job.status is JobStatus.PROCESSING]
        if not live:
            return
        job = live[pick % len(live)]
        worker = "joined" if joined else runner_name(job.id, job.epoch)
        request = LeaseRequest(
            worker=worker, request_id=f"{self.now}-{len(self.leases)}", slots=slots, crawl=job.crawl,
            lease_ms=10 * STALE_AFTER_MS, run_id=job.run_id,
        )  # fmt: skip
        grant = self.run(self.stores.urls.lease(request, now=self.now))
        assert not grant.leases or job.desired_state is DesiredState.RUN
        self.leases += [(worker, lease) for lease in grant.leases]

    @rule(pick=picks)
    def report(self, pick: int) -> None:
        if not self.leases:
            return
        worker, lease = self.leases.pop(pick % len(self.leases))
        live = {runner_name(job.id, job.epoch) for job in self.all_jobs() if job.status is JobStatus.PROCESSING}
        [answer] = self.run(self.stores.urls.report([done(lease)], now=self.now))
        if worker not in (*live, "joined"):
            assert answer.verdict is Verdict.LEASE_LOST, "its epoch has ended"

    # ---------------------------------------------------------------- invariants

    def all_jobs(self) -> list[Job]:
        return self.run(self.stores.control.list_jobs(limit=1_000)).jobs

    @invariant()
    def histories_tell_of_one_runner_at_a_time(self) -> None:
        for job in self.all_jobs():
            steps = self.run(self.stores.control.job_history(job.id))
            assert (steps[0].from_status, steps[0].to_status) == (None, JobStatus.PENDING)
            assert (steps[-1].to_status, steps[-1].epoch) == (job.status, job.epoch)
            for before, after in pairwise(steps):
                assert before.sequence < after.sequence
                assert after.from_status is before.to_status
                JOB.check(before.to_status, after.to_status)
                assert after.epoch == before.epoch + (after.to_status is JobStatus.PROCESSING)
                assert before.to_status not in TERMINAL or after.to_status is JobStatus.PENDING
                assert after.actor != WATCHDOG or before.to_status is JobStatus.PROCESSING

    @invariant()
    def no_lease_outlives_the_epoch_that_it_was_for(self) -> None:
        live = {runner_name(job.id, job.epoch) for job in self.all_jobs() if job.status is JobStatus.PROCESSING}
        holders = self.run(self.backend.query(self.dsn, "SELECT worker FROM leases"))
        assert {str(worker) for (worker,) in holders} <= live | {"joined"}

    @invariant()
    def every_end_is_told_once(self) -> None:
        ends = {
            job.id: sum(step.to_status in TERMINAL for step in self.run(self.stores.control.job_history(job.id)))
            for job in self.all_jobs()
        }
        backlog = {each.topic: each.number for each in self.run(self.stores.control.outbox_backlog())}
        assert backlog.get(WEBHOOK_TOPIC, 0) == sum(ends.values())

    @invariant()
    def runs_are_open_as_long_as_their_jobs(self) -> None:
        for job in self.all_jobs():
            run = self.run(self.stores.control.get_run(job.run_id)) if job.run_id else None
            if run is not None and job.status in TERMINAL:
                assert run.status is not RunStatus.RUNNING

    def teardown(self) -> None:
        self.run(check_counts(Place(self.backend, self.dsn)))


def test_nothing_that_anybody_does_breaks_a_rule_of_jobs(backend: Backend) -> None:
    class Machine(Jobs):
        pass

    Machine.backend = backend
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        Machine.loop = runner.get_loop()
        Machine.dsn = backend.create()
        Machine.stores = runner.run(open_store(Machine.dsn, PATIENT))
        try:
            chosen = settings(
                max_examples=EXAMPLES,
                stateful_step_count=OPERATIONS,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            run_state_machine_as_test(seed(1)(Machine), settings=chosen)
        finally:
            runner.run(Machine.stores.close())
            backend.drop(Machine.dsn)
