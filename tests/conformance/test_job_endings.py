"""How jobs end: only when it is true, with their leases and their run, and with a message to who asked for one."""

import asyncio

import pytest

from outrider.model.batch import ServeRequest
from outrider.model.errors import JobConflict, JobUnfinished
from outrider.model.gate import GateSettings
from outrider.model.job import Job, RunStatus, runner_name
from outrider.model.lease import Renewal, Verdict
from outrider.model.machines import DesiredState, JobStatus
from outrider.model.task import Discovered
from outrider.store.opening import Stores, open_store
from outrider.store.protocols import ControlStore
from tests.conformance.backends import Place
from tests.conformance.controlling import NOW, at
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
    done,
    finish,
    lease,
    messages,
    prepared,
    read,
    submit,
)
from tests.processes import run_together
from tests.recount import check_counts

MINUTE = 60_000
PAGE = "https://a.org/"

# ------------------------------------------------------------------- completion


async def test_a_job_is_not_complete_while_anybody_holds_a_lease_of_its_crawl(stores: Stores) -> None:
    job = await prepared(stores, PAGE)
    [held] = await lease(stores.urls, "a worker that has joined")
    with pytest.raises(JobUnfinished, match="1 of its URLs are in flight"):
        await finish(stores.control, job, COMPLETED)
    assert await read(stores.control, job) == job
    assert await stores.control.beat_job(job.id, job.epoch, now=NOW) is RUN, "the runner goes on under its epoch"
    await stores.urls.report([done(held)], now=NOW)
    after = await finish(stores.control, job, COMPLETED, reason="limit")
    assert (after.status, after.reason) == (COMPLETED, "drained"), "the store has looked for itself"
    assert await read(stores.control, job) == after


async def test_a_job_is_not_complete_while_something_may_be_ready_soon(stores: Stores) -> None:
    job = await prepared(stores, PAGE)
    with pytest.raises(JobUnfinished, match="some of its 1 URLs"):
        await finish(stores.control, job, COMPLETED)
    assert (await read(stores.control, job)).status is PROCESSING
    await stores.urls.configure_gate("a.org", GateSettings(blocked_until=NOW + MINUTE), now=NOW)
    assert await lease(stores.urls, "w") == []
    with pytest.raises(JobUnfinished):
        await finish(stores.control, job, COMPLETED, max_wait_ms=MINUTE)
    after = await finish(stores.control, job, COMPLETED, max_wait_ms=MINUTE - 1)
    assert (after.status, after.reason) == (COMPLETED, "waiting")


async def test_a_gate_may_know_of_a_longer_wait_than_its_queue(stores: Stores) -> None:
    """The queue was looked at when its gate was to open sooner."""
    job = await prepared(stores, PAGE)
    await stores.urls.configure_gate("a.org", GateSettings(blocked_until=NOW + MINUTE), now=NOW)
    assert await lease(stores.urls, "w") == []
    await stores.urls.configure_gate("a.org", GateSettings(blocked_until=NOW + 9 * MINUTE), now=NOW)
    await lease(stores.urls, "w")
    assert (await finish(stores.control, job, COMPLETED, max_wait_ms=5 * MINUTE)).reason == "waiting"


async def test_a_job_at_the_limit_of_its_crawl_is_complete(stores: Stores) -> None:
    job = await prepared(stores, f"{PAGE}1", f"{PAGE}2", max_pages=1)
    [held] = await lease(stores.urls, "w")
    await stores.urls.report([done(held)], now=NOW)
    assert (await finish(stores.control, job, COMPLETED)).reason == "limit"


async def test_a_job_at_the_budget_of_its_only_domain_is_complete(stores: Stores) -> None:
    job = await prepared(stores, f"{PAGE}1", f"{PAGE}2", max_pages_per_domain=1)
    for _ in range(2):
        request_held = await lease(stores.urls, "w", run_id=job.run_id)
        await stores.urls.report([done(held) for held in request_held], now=NOW)
    assert (await finish(stores.control, job, COMPLETED)).reason == "limit"


# ----------------------------------------------------------------------- leases


@pytest.mark.parametrize("outcome", [COMPLETED, FAILED, CANCELLED, PAUSED, PENDING])
async def test_with_an_epoch_all_its_leases_end(outcome: JobStatus, stores: Stores, place: Place) -> None:
    """Invariant 9, Jobs: a runner that wakes up later can change nothing."""
    job = await prepared(stores, *(f"{PAGE}{number}" for number in range(3)))
    mine = await lease(stores.urls, runner_name(job.id, job.epoch), slots=2)
    [other] = await lease(stores.urls, "joined")
    if outcome is COMPLETED:
        reports = await stores.urls.report([done(each) for each in (*mine, other)], now=NOW)
        assert {report.verdict for report in reports} == {Verdict.COMPLETED}
    await finish(stores.control, job, outcome)
    await check_counts(place)
    if outcome is COMPLETED:
        return
    assert await stores.urls.renew([each.token for each in mine], now=NOW) == [Renewal.LEASE_LOST] * 2
    reports = await stores.urls.report([done(each, Discovered(url="https://b.org/")) for each in mine], now=NOW)
    assert {report.verdict for report in reports} == {Verdict.LEASE_LOST}
    counts = await stores.urls.counts("c")
    assert (counts.pending, counts.assigned, counts.total) == (2, 1, 3)
    assert await stores.urls.renew([other.token], now=NOW) == [Renewal.OK], "it has only joined"
    await check_counts(place)


async def test_recovery_kills_the_tokens_of_the_silent_runner(stores: Stores, place: Place) -> None:
    """Invariant 9, Jobs."""
    job = await prepared(stores, PAGE)
    [held] = await lease(stores.urls, runner_name(job.id, job.epoch), now=STALE - 1)
    [recovered] = await stores.control.recover_stale_jobs(now=STALE)
    assert recovered.status is PENDING
    [answer] = await stores.urls.report([done(held)], now=STALE)
    assert answer.verdict is Verdict.LEASE_LOST
    task = await stores.urls.find_task("c", PAGE)
    assert task is not None
    assert (task.expiries, task.attempt_count) == (1, 1), "as if the lease had expired"
    await check_counts(place)


async def test_a_runner_that_wakes_up_after_its_epoch_gets_no_new_work(stores: Stores) -> None:
    """Invariant 9, Jobs: at most one live runner."""
    job = await prepared(stores, PAGE)
    await stores.control.recover_stale_jobs(now=STALE)
    assert await lease(stores.urls, runner_name(job.id, job.epoch), now=STALE) == []
    again = await claimed(stores.control, now=STALE)
    assert await lease(stores.urls, runner_name(job.id, job.epoch), now=STALE) == []
    assert len(await lease(stores.urls, runner_name(job.id, again.epoch), now=STALE)) == 1


async def test_a_cancel_ends_the_leases_of_everybody_at_once(stores: Stores, place: Place) -> None:
    job = await prepared(stores, f"{PAGE}1", f"{PAGE}2", f"{PAGE}3", "https://batch.example/")
    held = await lease(stores.urls, runner_name(job.id, job.epoch), slots=1)
    held += await lease(stores.urls, "joined", slots=1)
    assert await stores.urls.serve(ServeRequest(crawl="c", key="batch.example"), now=NOW)
    asked = await stores.control.set_desired_state(job.id, CANCEL, now=NOW)
    assert (asked.status, asked.desired_state) == (PROCESSING, CANCEL)
    assert await stores.urls.renew([each.token for each in held], now=NOW) == [Renewal.LEASE_LOST] * 2
    answers = await stores.urls.report([done(each) for each in held], now=NOW)
    assert {answer.verdict for answer in answers} == {Verdict.LEASE_LOST}
    counts = await stores.urls.counts("c")
    assert (counts.pending, counts.assigned) == (4, 0)
    assert await lease(stores.urls, "joined") == []
    await check_counts(place)


async def test_a_pause_leaves_leases_alone(stores: Stores) -> None:
    job = await prepared(stores, PAGE)
    [held] = await lease(stores.urls, "joined")
    await stores.control.set_desired_state(job.id, PAUSE, now=NOW)
    [answer] = await stores.urls.report([done(held)], now=NOW)
    assert answer.verdict is Verdict.COMPLETED


# -------------------------------------------------------------- runs and webhooks


async def end_by(way: str, control: ControlStore, job: Job) -> Job:
    """End a job in one of the ways that there are."""
    if way == "wish":
        await finish(control, job, PAUSED)
        return await control.set_desired_state(job.id, CANCEL, now=NOW)
    if way == "recovery of a cancelled one":
        await control.set_desired_state(job.id, CANCEL, now=NOW)
    if way.startswith("recovery"):
        [recovered] = await control.recover_stale_jobs(now=STALE)
        return recovered
    return await finish(control, job, JobStatus(way), error_kind="dns" if way == "failed" else None)


WAYS = {
    "completed": (COMPLETED, RunStatus.COMPLETED, "drained"),
    "failed": (FAILED, RunStatus.FAILED, "failed"),
    "cancelled": (CANCELLED, RunStatus.STOPPED, "cancelled"),
    "wish": (CANCELLED, RunStatus.STOPPED, "cancelled"),
    "recovery": (FAILED, RunStatus.FAILED, "worker timed out"),
    "recovery of a cancelled one": (CANCELLED, RunStatus.STOPPED, "cancelled"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_however_a_job_ends_its_run_is_closed_and_its_webhook_is_told_once(way: str, stores: Stores) -> None:
    control = stores.control
    job = await prepared(stores, PAGE, max_retries=0)
    [held] = await lease(stores.urls, "w")
    await stores.urls.report([done(held)], now=NOW)
    assert await messages(control) == []
    ended = await end_by(way, control, job)
    status, run_status, reason = WAYS[way]
    assert ended.status is status
    run = await control.get_run(job.run_id or "")
    assert run is not None
    assert (run.status, run.reason, run.finished_at) == (run_status, reason, ended.completed_at)
    [message] = await messages(control)
    assert message.ordering_key == job.id
    told = message.payload
    assert (told["job"], told["crawl"], told["status"], told["reason"]) == (job.id, "c", status, ended.reason)
    assert told["counts"] == {"discovered": 0, "pending": 0, "completed": 1, "failed": 0}
    assert ended.completed_at is not None
    assert at(NOW) <= ended.completed_at
    if status is FAILED:
        assert told["error"] == {"kind": ended.error_kind, "message": ended.error_message}
    assert "s3cret" not in str(message)
    with pytest.raises(JobConflict):
        await control.set_desired_state(job.id, DesiredState.CANCEL, now=NOW)
    assert len(await messages(control, now=STALE + 10 * MINUTE)) == 1, "only that one, again"


@pytest.mark.parametrize("outcome", [PAUSED, PENDING])
async def test_a_job_that_goes_on_later_keeps_its_run_and_tells_nobody(outcome: JobStatus, stores: Stores) -> None:
    job = await prepared(stores, PAGE)
    await finish(stores.control, job, outcome)
    run = await stores.control.get_run(job.run_id or "")
    assert run is not None
    assert run.status is RunStatus.RUNNING
    assert await messages(stores.control) == []


async def test_a_job_without_a_webhook_tells_nobody(control: ControlStore) -> None:
    job = await claimed(control)
    assert (await finish(control, job, COMPLETED)).status is COMPLETED
    waiting = await submit(control)
    await control.set_desired_state(waiting.id, CANCEL, now=NOW)
    assert await messages(control) == []


# -------------------------------------------------------------- several at once


async def work(dsn: str, worker: str) -> int:
    """Lease and report, each page with two links, until the crawl is over."""
    number = 0
    async with await open_store(dsn) as stores:
        while (await stores.control.crawl_state("c")).total_pending:
            for held in await lease(stores.urls, worker, slots=2, now=None):
                deeper = [Discovered(url=f"{held.url}{n}", depth=held.depth + 1) for n in (1, 2) if held.depth < 4]
                [answer] = await stores.urls.report([done(held, *deeper)])
                number += answer.verdict is Verdict.COMPLETED
    return number


async def finish_again_and_again(dsn: str, job_id: str) -> int:
    """Say that a job is complete until that is true; tell how many pages were done by then."""
    async with await open_store(dsn) as stores:
        job = await stores.control.get_job(job_id)
        assert job is not None
        while True:
            try:
                await finish(stores.control, job, COMPLETED, now=None)
            except JobUnfinished:
                await asyncio.sleep(0)
                continue
            return (await stores.urls.counts("c")).completed


async def either(which: str, dsn: str, argument: str) -> int:
    return await (finish_again_and_again if which == "finish" else work)(dsn, argument)


def test_a_job_is_never_complete_while_a_discovery_is_under_way(place: Place) -> None:
    """31 pages in a tree: whoever reports one finds the next two."""

    async def prepare() -> str:
        async with await open_store(place.dsn) as stores:
            return (await prepared(stores, PAGE)).id

    job_id = asyncio.run(prepare())
    workers = [("work", place.dsn, f"w{number}") for number in range(3)]
    completed, *pages = run_together(either, [("finish", place.dsn, job_id), *workers])
    assert completed == sum(pages) == 31
