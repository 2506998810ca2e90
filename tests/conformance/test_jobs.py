"""Jobs: who may run one, what their users ask for, and what becomes of them when runners die."""

import asyncio
from collections import Counter

import pytest

from outrider.model.errors import InvalidInput, InvalidTransition, JobConflict
from outrider.model.identifiers import new_uuid7
from outrider.model.job import STALE_AFTER_MS, TERMINAL, Job, JobEnding, JobFilter, UnknownJob
from outrider.model.lease import LeaseRequest, NoWork
from outrider.model.machines import JOB, DesiredState, JobStatus
from outrider.model.task import CrawlLimits, CrawlState, Discovered
from outrider.store.opening import Stores, open_store
from outrider.store.protocols import ControlStore
from tests.conformance.backends import Place
from tests.conformance.controlling import NOW, at, execute
from tests.conformance.jobbing import (
    CANCEL,
    CANCELLED,
    COMPLETED,
    FAILED,
    PAUSE,
    PAUSED,
    PENDING,
    PROCESSING,
    RUN,
    STALE,
    claimed,
    finish,
    read,
    steps,
    submit,
)
from tests.processes import run_together

PROCESSES = 8


# ------------------------------------------------------------------- submitting


async def test_a_submitted_job_is_pending_and_keeps_what_was_asked_for(control: ControlStore) -> None:
    payload = {"seeds": ["https://a.org/"], "depth": 2, "rate": 0.5, "deep": {"ü": [None, True, "\\u0000"]}}
    job = await submit(
        control, payload=payload, priority=5, max_retries=1, source_id="s", user_id="u", idempotency_key="k"
    )
    assert (job.status, job.desired_state, job.epoch, job.retry_count) == (PENDING, RUN, 0, 0)
    assert (job.payload, job.priority, job.max_retries) == (payload, 5, 1)
    assert (job.source_id, job.user_id, job.idempotency_key) == ("s", "u", "k")
    assert (job.created_at, job.available_at, job.started_at) == (at(NOW), at(NOW), None)
    assert job.crawl == job.id, "a crawl of its own"
    assert await read(control, job) == job
    assert await steps(control, job) == [(None, "pending", 0, "u")]


async def test_one_live_job_per_crawl(control: ControlStore) -> None:
    """Invariant 9, Jobs: a second live job on a crawl is refused, whatever the first one waits for."""
    first = await submit(control, crawl="c")
    for desired in (RUN, PAUSE, RUN):
        await control.set_desired_state(first.id, desired, now=NOW)
        with pytest.raises(JobConflict, match=first.id):
            await submit(control, crawl="c")
    await submit(control, crawl="another")
    await control.set_desired_state(first.id, CANCEL, now=NOW)
    second = await submit(control, crawl="c")
    assert second.id != first.id


async def test_a_second_request_with_the_same_key_gives_the_first_job(control: ControlStore) -> None:
    first = await submit(control, idempotency_key="k", crawl="c")
    assert await submit(control, idempotency_key="k", crawl="c", priority=9) == first
    assert await submit(control, idempotency_key="k") == first
    mine = await submit(control, idempotency_key="k", user_id="me")
    assert mine.id != first.id, "keys are each user's own"
    await control.set_desired_state(first.id, CANCEL, now=NOW)
    assert (await submit(control, idempotency_key="k")).status is CANCELLED
    assert len(await control.job_history(first.id)) == 2


async def test_a_senseless_request_is_refused(control: ControlStore) -> None:
    for request in (
        {"payload": ["not", "a", "mapping"]},
        {"payload": {"x": "a\0b"}},
        {"payload": {"x": "\ud800"}},
        {"payload": {"x": object()}},
        {"payload": {"x": "x" * (1 << 20)}},
        {"crawl": ""},
        {"crawl": "x" * 256},
        {"priority": 1 << 40},
        {"priority": "high"},
        {"max_retries": -1},
        {"delay_ms": -1},
        {"user_id": "a\0"},
        {"idempotency_key": ""},
    ):
        with pytest.raises(InvalidInput):
            await submit(control, **request)
    assert (await control.list_jobs()).jobs == []


async def test_an_unknown_job_is_none_and_cannot_be_changed(control: ControlStore) -> None:
    for job_id in (new_uuid7(), "nonsense", "a\0", ""):
        assert await control.get_job(job_id) is None
        with pytest.raises(UnknownJob):
            await control.set_desired_state(job_id, PAUSE)
        with pytest.raises(UnknownJob):
            await control.retry_job(job_id)
        with pytest.raises(UnknownJob):
            await control.finish_job(job_id, 1, JobEnding(outcome=COMPLETED))
    assert await control.beat_job(new_uuid7(), 1) is None


async def test_jobs_are_listed_newest_first_page_by_page(control: ControlStore) -> None:
    jobs = [await submit(control, user_id="even" if n % 2 == 0 else "odd") for n in range(9)]
    await control.set_desired_state(jobs[4].id, PAUSE, now=NOW)
    newest_first = sorted((job.id for job in jobs), reverse=True)
    pages: list[str] = []
    cursor = None
    while not pages or cursor:
        page = await control.list_jobs(cursor=cursor, limit=4)
        cursor = page.next_cursor
        pages += [job.id for job in page.jobs]
    assert pages == newest_first
    paused = (await control.list_jobs(JobFilter(status=PAUSED))).jobs
    assert [job.id for job in paused] == [jobs[4].id]
    assert len((await control.list_jobs(JobFilter(user_id="even"))).jobs) == 5
    assert [job.id for job in (await control.list_jobs(JobFilter(crawl=jobs[2].crawl))).jobs] == [jobs[2].id]


# --------------------------------------------------------------------- claiming


async def test_jobs_are_claimed_by_priority_then_by_age(control: ControlStore) -> None:
    low = await submit(control, now=NOW, priority=0)
    old = await submit(control, now=NOW + 1, priority=5)
    new = await submit(control, now=NOW + 2, priority=5)
    later = await submit(control, now=NOW, priority=9, delay_ms=1_000)
    order = []
    while job := await control.claim_job("w", now=NOW + 10):
        order.append(job.id)
    assert order == [old.id, new.id, low.id]
    assert await control.claim_job("w", now=NOW + 999) is None
    waited = await control.claim_job("w", now=NOW + 1_000)
    assert waited is not None
    assert waited.id == later.id


async def test_a_claim_starts_an_epoch(control: ControlStore) -> None:
    job = await claimed(control, now=NOW + 7)
    assert (job.status, job.worker_id, job.epoch) == (PROCESSING, "w", 1)
    assert (job.started_at, job.last_heartbeat) == (at(NOW + 7), at(NOW + 7))
    await finish(control, job, PENDING, error_kind="network")
    again = await control.claim_job("x", now=NOW + 9)
    assert again is not None
    assert (again.epoch, again.worker_id, again.started_at) == (2, "x", at(NOW + 7))
    assert await steps(control, job) == [
        (None, "pending", 0, "user"),
        ("pending", "processing", 1, "w"),
        ("processing", "pending", 1, "w"),
        ("pending", "processing", 2, "x"),
    ]


async def test_a_beat_tells_progress_and_hears_what_the_user_wants(control: ControlStore) -> None:
    job = await claimed(control)
    progress = {"pages_done": 12, "last_error": None}
    assert await control.beat_job(job.id, 1, percentage=40, progress=progress, now=NOW + 10_000) is RUN
    assert await control.beat_job(job.id, 1, now=NOW + 20_000) is RUN
    found = await read(control, job)
    assert (found.last_heartbeat, found.progress_percentage) == (at(NOW + 20_000), 40)
    assert found.progress == progress
    await control.set_desired_state(job.id, PAUSE, now=NOW)
    assert await control.beat_job(job.id, 1, now=NOW) is PAUSE
    assert await control.beat_job(job.id, 0, now=NOW) is None
    assert await control.beat_job(job.id, 2, now=NOW) is None
    for percentage in (-1, 101, 0.5):
        with pytest.raises(InvalidInput):
            await control.beat_job(job.id, 1, percentage=percentage)  # type: ignore[arg-type]


async def test_a_beat_by_the_stores_own_clock_is_now(control: ControlStore) -> None:
    job = await claimed(control)
    assert await control.beat_job(job.id, 1) is RUN
    assert await control.recover_stale_jobs() == [], "it was beaten just now"
    beaten = (await read(control, job)).last_heartbeat
    assert beaten is not None
    assert beaten.microsecond % 1000 == 0


# -------------------------------------------------------------------- finishing


async def test_an_epoch_ends_once_and_says_so_again(control: ControlStore) -> None:
    job = await claimed(control)
    done = await finish(control, job, COMPLETED, now=NOW + 5)
    assert (done.status, done.completed_at, done.progress_percentage) == (COMPLETED, at(NOW + 5), 100)
    assert (done.worker_id, done.error_message) == ("w", None)
    assert await read(control, job) == done
    assert await finish(control, job, COMPLETED, now=NOW + 6) == done
    assert await finish(control, job, FAILED, now=NOW + 7) == done, "the first end counts"
    assert len(await control.job_history(job.id)) == 3


async def test_a_failure_keeps_its_reason(control: ControlStore) -> None:
    job = await claimed(control)
    failed = await finish(control, job, FAILED, error_kind="bad_seed", error_message="no such host")
    assert (failed.status, failed.error_kind, failed.error_message) == (FAILED, "bad_seed", "no such host")
    assert (await control.job_history(job.id))[-1].note == "no such host"


async def test_a_passing_error_costs_a_retry_and_waits_until_there_are_none(control: ControlStore) -> None:
    """At most max_retries + 1 runs."""
    job = await claimed(control, max_retries=2)
    for retry in (1, 2):
        after = await finish(control, job, PENDING, error_kind="network", error_message="reset", retry_in_ms=500)
        assert (after.status, after.retry_count, after.worker_id) == (PENDING, retry, None)
        assert (after.available_at, after.error_message) == (at(NOW + 500), "reset")
        assert await control.claim_job("w", now=NOW + 499) is None
        again = await control.claim_job("w", now=NOW + 500)
        assert again is not None
        job = again
    last = await finish(control, job, PENDING, error_message="reset")
    assert (last.status, last.retry_count, last.completed_at) == (FAILED, 2, at(NOW))


async def test_a_zombie_can_end_nothing(control: ControlStore) -> None:
    """Invariant 9, Jobs: at most one live runner per job, fenced by its epoch."""
    zombie = await claimed(control, "zombie")
    [recovered] = await control.recover_stale_jobs(now=STALE)
    assert (recovered.status, recovered.epoch) == (PENDING, 1)
    for outcome in (COMPLETED, FAILED, PAUSED, CANCELLED, PENDING):
        with pytest.raises(JobConflict, match="no longer run under epoch 1"):
            await finish(control, zombie, outcome)
    alive = await control.claim_job("alive", now=STALE)
    assert alive is not None
    with pytest.raises(JobConflict, match="epoch 2"):
        await finish(control, zombie, COMPLETED)
    assert await control.beat_job(zombie.id, zombie.epoch, now=STALE) is None
    assert await read(control, zombie) == alive
    assert (await finish(control, alive, COMPLETED)).status is COMPLETED
    with pytest.raises(JobConflict):
        await finish(control, zombie, FAILED)


async def test_a_runner_leaves_its_job_only_for_where_the_table_says(control: ControlStore) -> None:
    job = await claimed(control)
    with pytest.raises(InvalidTransition):
        await finish(control, job, PROCESSING)
    assert await read(control, job) == job


async def test_a_runner_that_stops_in_order_costs_no_retry(control: ControlStore) -> None:
    job = await claimed(control, max_retries=0)
    after = await finish(control, job, PAUSED, now=NOW + 3)
    assert (after.status, after.retry_count, after.available_at) == (PENDING, 0, at(NOW + 3))


# --------------------------------------------------------------- what users ask


@pytest.mark.parametrize(
    ("desired", "outcome", "status"),
    [
        (PAUSE, PAUSED, PAUSED),
        (PAUSE, PENDING, PAUSED),
        (PAUSE, COMPLETED, COMPLETED),
        (PAUSE, FAILED, FAILED),
        (CANCEL, CANCELLED, CANCELLED),
        (CANCEL, PAUSED, CANCELLED),
        (CANCEL, PENDING, CANCELLED),
        (CANCEL, FAILED, CANCELLED),
        (CANCEL, COMPLETED, COMPLETED),
    ],
)
async def test_what_the_user_asked_for_wins_over_another_run(
    desired: DesiredState, outcome: JobStatus, status: JobStatus, control: ControlStore
) -> None:
    """Invariant 9, Jobs."""
    job = await claimed(control)
    asked = await control.set_desired_state(job.id, desired, now=NOW)
    assert (asked.status, asked.desired_state) == (PROCESSING, desired)
    assert (await finish(control, job, outcome)).status is status


async def test_a_job_that_nobody_runs_obeys_at_once(control: ControlStore) -> None:
    job = await submit(control)
    paused = await control.set_desired_state(job.id, PAUSE, actor="me", now=NOW)
    assert (paused.status, paused.desired_state) == (PAUSED, PAUSE)
    assert await control.set_desired_state(job.id, PAUSE, now=NOW) == paused
    assert await control.claim_job("w", now=NOW) is None
    resumed = await control.set_desired_state(job.id, RUN, now=NOW + 5)
    assert (resumed.status, resumed.desired_state, resumed.available_at) == (PENDING, RUN, at(NOW + 5))
    await control.set_desired_state(job.id, PAUSE, now=NOW)
    cancelled = await control.set_desired_state(job.id, CANCEL, now=NOW + 9)
    assert (cancelled.status, cancelled.completed_at) == (CANCELLED, at(NOW + 9))
    assert [target for _, target, _, _ in await steps(control, job)] == [
        "pending", "paused", "pending", "paused", "cancelled",
    ]  # fmt: skip
    assert await read(control, job) == cancelled


async def test_a_terminal_state_changes_only_by_an_explicit_retry(control: ControlStore) -> None:
    """Invariant 9, Jobs."""
    for outcome in (COMPLETED, FAILED, CANCELLED):
        job = await claimed(control)
        ended = await finish(control, job, outcome)
        for desired in DesiredState:
            with pytest.raises(JobConflict, match=str(outcome)):
                await control.set_desired_state(job.id, desired, now=NOW)
        assert await control.recover_stale_jobs(now=STALE) == []
        assert await control.beat_job(job.id, job.epoch, now=NOW) is None
        assert await control.claim_job("w", now=STALE) is None
        assert await read(control, job) == ended
        if outcome is not FAILED:
            with pytest.raises(JobConflict, match=f"is {outcome}: only a failed one"):
                await control.retry_job(job.id, now=NOW)


async def test_a_retried_job_has_all_its_retries_again(control: ControlStore) -> None:
    job = await claimed(control, max_retries=0)
    await finish(control, job, PENDING, error_kind="network", error_message="reset")
    retried = await control.retry_job(job.id, actor="me", now=NOW + 9)
    assert (retried.status, retried.retry_count, retried.completed_at) == (PENDING, 0, None)
    assert (retried.error_message, retried.worker_id, retried.available_at) == (None, None, at(NOW + 9))
    assert (await steps(control, job))[-1] == ("failed", "pending", 1, "me")
    assert (await control.job_history(job.id))[-2].note == "reset", "the history keeps the error"
    again = await control.claim_job("w", now=NOW + 9)
    assert again is not None
    assert again.epoch == 2


async def test_a_job_cannot_be_retried_while_another_has_its_crawl(control: ControlStore) -> None:
    """Invariant 9, Jobs: one live job per crawl."""
    job = await claimed(control, crawl="c")
    await finish(control, job, FAILED)
    other = await submit(control, crawl="c")
    with pytest.raises(JobConflict, match=other.id):
        await control.retry_job(job.id, now=NOW)


async def test_a_cancel_is_not_taken_back(control: ControlStore) -> None:
    job = await claimed(control)
    await control.set_desired_state(job.id, PAUSE, now=NOW)
    assert (await control.set_desired_state(job.id, RUN, now=NOW)).desired_state is RUN
    await control.set_desired_state(job.id, CANCEL, now=NOW)
    for desired in (RUN, PAUSE):
        with pytest.raises(JobConflict, match="being cancelled"):
            await control.set_desired_state(job.id, desired, now=NOW)
    assert (await control.set_desired_state(job.id, CANCEL, now=NOW)).desired_state is CANCEL


async def test_a_crawl_follows_its_job_at_once(stores: Stores) -> None:
    urls, control = stores.urls, stores.control
    await urls.create_crawl("c", limits=CrawlLimits(robots=False), now=NOW)
    await urls.add("c", [Discovered(url="https://a.org/")], now=NOW)
    job = await claimed(control, crawl="c")

    async def state() -> CrawlState:
        return (await urls.get_crawl("c")).state

    await control.set_desired_state(job.id, PAUSE, now=NOW)
    assert await state() is CrawlState.PAUSED
    grant = await urls.lease(LeaseRequest(worker="w", request_id="1", slots=1, crawl="c"), now=NOW)
    assert (grant.leases, grant.no_work) == ([], NoWork.PAUSED)
    await control.set_desired_state(job.id, RUN, now=NOW)
    assert await state() is CrawlState.RUNNING
    await control.set_desired_state(job.id, CANCEL, now=NOW)
    assert await state() is CrawlState.CANCELLED
    await finish(control, job, CANCELLED)
    again = await submit(control, crawl="c")
    assert await state() is CrawlState.RUNNING, "submitted again on the same crawl"
    taken = await control.claim_job("w", now=NOW)
    assert taken is not None
    assert taken.id == again.id
    await finish(control, taken, FAILED)
    await urls.set_crawl_state("c", CrawlState.PAUSED)
    await control.retry_job(again.id, now=NOW)
    assert await state() is CrawlState.RUNNING


# --------------------------------------------------------------------- recovery


async def test_a_silent_job_is_recovered_until_its_retries_are_used_up(control: ControlStore) -> None:
    """Three retries after the first run: four runs, then failed with the reason and the last progress."""
    recovered = await submit(control, max_retries=3)
    now = NOW
    for run in range(1, 5):
        job = await control.claim_job("w", now=now)
        assert job is not None
        await control.beat_job(job.id, run, percentage=run * 10, now=now)
        assert await control.recover_stale_jobs(now=now + STALE_AFTER_MS) == [], "not a moment too early"
        now += STALE_AFTER_MS + 1
        [recovered] = await control.recover_stale_jobs(now=now)
        if run < 4:
            assert (recovered.status, recovered.retry_count, recovered.worker_id) == (PENDING, run, None)
    assert (recovered.status, recovered.retry_count) == (FAILED, 3)
    assert (recovered.error_message, recovered.progress_percentage) == ("worker timed out", 40)
    assert recovered.completed_at == at(now)
    assert await read(control, recovered) == recovered
    notes = [each.note for each in await control.job_history(recovered.id) if each.actor == "watchdog"]
    assert [note.split("; ")[1] for note in notes if note] == [
        "retry 1/3", "retry 2/3", "retry 3/3", "retries used up",
    ]  # fmt: skip
    assert await control.recover_stale_jobs(now=now + STALE_AFTER_MS + 1) == []


@pytest.mark.parametrize(("desired", "status"), [(PAUSE, PAUSED), (CANCEL, CANCELLED)])
async def test_what_the_user_asked_for_wins_over_recovery(
    desired: DesiredState, status: JobStatus, control: ControlStore
) -> None:
    """Invariant 9, Jobs: also when the runner is dead and no retries are left."""
    job = await claimed(control, max_retries=0)
    await control.set_desired_state(job.id, desired, now=NOW)
    [recovered] = await control.recover_stale_jobs(now=STALE)
    assert (recovered.status, recovered.retry_count, recovered.error_message) == (status, 0, None)


async def test_only_silent_jobs_are_recovered(control: ControlStore) -> None:
    silent = await claimed(control)
    alive = await claimed(control)
    await control.beat_job(alive.id, 1, now=STALE - 1)
    assert [job.id for job in await control.recover_stale_jobs(now=STALE)] == [silent.id]
    assert [job.id for job in await control.recover_stale_jobs(stale_after_ms=0, now=STALE)] == [alive.id]


def test_the_table_of_jobs_has_no_other_way_out_of_a_terminal_state() -> None:
    leaving = {(source, target) for source, target in JOB.steps if source in TERMINAL}
    assert leaving == {(FAILED, PENDING)}


# -------------------------------------------------------------- several at once


async def run_jobs(dsn: str, worker: str) -> list[tuple[str, int]]:
    """Claim, beat and complete until nothing is left."""
    done = []
    async with await open_store(dsn) as stores:
        while job := await stores.control.claim_job(worker):
            assert await stores.control.beat_job(job.id, job.epoch, percentage=50) is RUN
            await stores.control.finish_job(job.id, job.epoch, JobEnding(outcome=COMPLETED))
            done.append((job.id, job.epoch))
    return done


def test_eight_processes_run_every_job_exactly_once(place: Place) -> None:
    """Invariant 9, Jobs: at most one live runner per job."""

    async def prepare() -> list[str]:
        async with await open_store(place.dsn) as stores:
            return [(await submit(stores.control, now=None, priority=n % 3)).id for n in range(50)]

    async def jobs() -> list[Job]:
        async with await open_store(place.dsn) as stores:
            return (await stores.control.list_jobs()).jobs

    submitted = asyncio.run(prepare())
    done = run_together(run_jobs, [(place.dsn, f"w{number}") for number in range(PROCESSES)])
    assert sorted(job for each in done for job, _ in each) == sorted(submitted)
    assert {epoch for each in done for _, epoch in each} == {1}
    assert Counter(job.status for job in asyncio.run(jobs())) == {COMPLETED: 50}


async def watch(dsn: str) -> list[tuple[str, int]]:
    async with await open_store(dsn) as stores:
        recovered = []
        for _ in range(3):
            recovered += await stores.control.recover_stale_jobs(limit=20, now=STALE)
        return [(job.id, job.retry_count) for job in recovered]


def test_two_watchdogs_at_once_recover_each_job_once(place: Place) -> None:
    """Invariant 9, Jobs."""

    async def prepare() -> list[str]:
        async with await open_store(place.dsn) as stores:
            return [(await claimed(stores.control)).id for _ in range(40)]

    async def jobs() -> list[Job]:
        async with await open_store(place.dsn) as stores:
            return (await stores.control.list_jobs()).jobs

    taken = asyncio.run(prepare())
    recovered = run_together(watch, [(place.dsn,), (place.dsn,)])
    assert sorted(job for each in recovered for job, _ in each) == sorted(taken)
    assert {(job.status, job.retry_count, job.epoch) for job in asyncio.run(jobs())} == {(PENDING, 1, 1)}


async def finish_late(dsn: str, job_id: str, epoch: int) -> str:
    async with await open_store(dsn) as stores:
        try:
            job = await stores.control.finish_job(job_id, epoch, JobEnding(outcome=COMPLETED), now=STALE)
        except JobConflict:
            return "refused"
        return job.status.value


async def watch_one(dsn: str, _job_id: str, _epoch: int) -> str:
    async with await open_store(dsn) as stores:
        recovered = await stores.control.recover_stale_jobs(now=STALE)
        return "recovered" if recovered else "nothing to do"


async def either(which: str, dsn: str, job_id: str, epoch: int) -> str:
    return await (finish_late if which == "finish" else watch_one)(dsn, job_id, epoch)


def test_a_late_end_and_the_watchdog_cannot_both_have_a_job(place: Place) -> None:
    """Invariant 9, Jobs: whoever comes second changes nothing."""

    async def prepare() -> Job:
        async with await open_store(place.dsn) as stores:
            return await claimed(stores.control)

    async def found(job: Job) -> Job:
        async with await open_store(place.dsn) as stores:
            return await read(stores.control, job)

    for _ in range(3):
        job = asyncio.run(prepare())
        answers = run_together(either, [(which, place.dsn, job.id, job.epoch) for which in ("finish", "watch")])
        after = asyncio.run(found(job))
        assert (*answers, after.status) in {
            ("completed", "nothing to do", COMPLETED),
            ("refused", "recovered", PENDING),
        }
        asyncio.run(execute(place, "DELETE FROM job_history", "DELETE FROM crawl_jobs"))
