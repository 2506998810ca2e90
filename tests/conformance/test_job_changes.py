"""Changing live jobs: priority and limits, and beginning afresh."""

import asyncio
from multiprocessing.connection import Connection
from typing import Any

import pytest

from outrider.model.errors import InvalidInput, JobConflict
from outrider.model.gate import GateSettings
from outrider.model.identifiers import new_uuid7
from outrider.model.job import Job, UnknownJob
from outrider.model.lease import Verdict
from outrider.model.order import JobOrder, OrderLimits
from outrider.model.task import CrawlLimits, CrawlState, Discovered
from outrider.store.opening import Stores, open_store
from outrider.store.protocols import ControlStore
from outrider.store.sql.urls import upkeep
from tests.conformance.backends import Place
from tests.conformance.controlling import NOW
from tests.conformance.jobbing import (
    CANCEL,
    CANCELLED,
    FAILED,
    PAUSE,
    STALE,
    claimed,
    done,
    finish,
    lease,
    prepared,
    read,
    submit,
)
from tests.processes import start
from tests.recount import check_counts

PAGE = "https://a.org/"


async def test_a_higher_priority_is_claimed_first(control: ControlStore) -> None:
    first, second = [await submit(control, now=NOW + number) for number in range(2)]
    amended = await control.amend_job(second.id, priority=5, now=NOW + 9)
    assert (amended.priority, amended.payload) == (5, second.payload)
    assert await read(control, second) == amended
    taken = await control.claim_job("w", now=NOW + 9)
    assert taken is not None
    assert taken.id == second.id
    assert (await read(control, first)).status == "pending"


async def test_raised_limits_let_a_crawl_go_on_at_once(stores: Stores, place: Place) -> None:
    """What stood at the limits is ready in the same transaction: nobody can take the job for complete in between."""
    deep = [Discovered(url=f"{PAGE}{n}", depth=2) for n in range(3)]
    job = await prepared(stores, f"{PAGE}a", f"{PAGE}b", *deep, max_depth=1, max_pages=1)
    [held] = await lease(stores.urls, "w")
    await stores.urls.report([done(held)], now=NOW)
    assert await lease(stores.urls, "w") == []
    limits = OrderLimits(max_depth=2, max_pages=None, delay=0.25, per_domain=7)
    amended = await stores.control.amend_job(job.id, limits=limits, now=NOW)
    changes = {"max_depth": 2, "max_pages": None, "delay": 0.25, "per_domain": 7}
    assert amended.payload == {**job.payload, **changes}
    assert (await stores.urls.get_crawl("c")).limits == CrawlLimits(
        max_depth=2, max_pages=None, delay_ms=250, concurrency=7, robots=False
    )
    counts = await stores.urls.counts("c")
    assert (counts.discovered, counts.pending) == (0, 4)
    await check_counts(place)
    assert len(await lease(stores.urls, "w", now=NOW + 250)) >= 1


async def test_what_is_left_out_stays_as_it_is(stores: Stores) -> None:
    job = await prepared(stores, PAGE, max_pages=9, max_pages_per_domain=8)
    await stores.control.amend_job(job.id, limits=OrderLimits(max_pages_per_domain=3), now=NOW)
    limits = (await stores.urls.get_crawl("c")).limits
    assert (limits.max_pages, limits.max_pages_per_domain, limits.concurrency) == (9, 3, 100)


async def test_a_job_can_be_amended_before_it_has_a_crawl(control: ControlStore) -> None:
    job = await submit(control)
    amended = await control.amend_job(job.id, limits=OrderLimits(max_pages=5), now=NOW)
    assert amended.payload["max_pages"] == 5
    assert (await control.amend_job(job.id, now=NOW)).payload == amended.payload


async def test_a_job_that_has_ended_is_amended_no_more(control: ControlStore) -> None:
    job = await claimed(control)
    await finish(control, job, CANCELLED)
    with pytest.raises(JobConflict, match="is cancelled: it can no longer be changed"):
        await control.amend_job(job.id, priority=1)
    with pytest.raises(UnknownJob):
        await control.amend_job(new_uuid7(), priority=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_pages", -1), ("max_depth", "3"), ("max_pages_per_domain", 1 << 40), ("delay", -0.5), ("delay", "x"),
     ("delay", float("nan")), ("delay", None), ("per_domain", 0), ("per_domain", None)],
)  # fmt: skip
async def test_a_senseless_limit_is_refused_by_name(field: str, value: Any, control: ControlStore) -> None:
    job = await submit(control)
    with pytest.raises(InvalidInput, match=field):
        await control.amend_job(job.id, limits=OrderLimits(**{field: value}))
    assert await read(control, job) == job


# ------------------------------------------------------------------ beginning afresh


async def failed(stores: Stores, pages: int) -> Job:
    """Make a job that has failed after its first page."""
    job = await prepared(stores, *(f"{PAGE}{number:05}" for number in range(pages)))
    [held] = await lease(stores.urls, "w", slots=1)
    await stores.urls.report([done(held)], now=NOW)
    return await finish(stores.control, job, FAILED)


async def test_a_retry_goes_on_where_the_job_was(stores: Stores) -> None:
    job = await failed(stores, 3)
    retried = await stores.control.retry_job(job.id, now=NOW)
    assert (retried.begins_afresh, retried.payload) == (False, job.payload)
    assert (await stores.urls.counts("c")).completed == 1


async def test_a_fresh_retry_forgets_everything_but_the_gates(stores: Stores, place: Place) -> None:
    urls, control = stores.urls, stores.control
    job = await failed(stores, 3)
    await urls.widen_scope("c", [PAGE])
    gate = await urls.configure_gate("a.org", GateSettings(band=3), now=NOW)
    [joined] = await lease(urls, "joined", slots=1)
    retried = await control.retry_job(job.id, fresh=True, now=NOW)
    assert (retried.begins_afresh, retried.run_id) == (True, None)
    assert await read(control, job) == retried
    assert (await urls.counts("c")).total == 3, "whoever claims it does the forgetting"
    again = await control.claim_job("w", now=NOW)
    assert again is not None
    assert again.begins_afresh
    assert await control.forget_tasks(again.id, again.epoch, now=NOW) == 3
    assert (await urls.counts("c")).total == 0
    assert (await urls.report([done(joined)], now=NOW))[0].verdict is Verdict.LEASE_LOST
    assert await urls.scope_roots("c") == []
    after = await urls.get_gate("a.org")
    assert after is not None
    assert (after.band, after.next_fetch_at) == (3, gate.next_fetch_at)
    crawl = await urls.get_crawl("c")
    assert (crawl.state, crawl.limits.concurrency) == (CrawlState.RUNNING, 100)
    await check_counts(place)
    assert await control.forget_tasks(again.id, again.epoch, now=NOW) == 0
    await urls.add("c", [Discovered(url=f"{PAGE}00000")], now=NOW)
    assert len(await lease(urls, "w")) == 1, "a forgotten page is fetched again"


async def test_an_order_may_ask_for_a_fresh_beginning(control: ControlStore) -> None:
    job = await claimed(control, payload={"seeds": [PAGE], "fresh": True})
    assert job.begins_afresh
    assert await control.forget_tasks(job.id, job.epoch, now=NOW) == 0, "it has no crawl yet"


async def test_only_the_live_epoch_may_forget(stores: Stores) -> None:
    job = await prepared(stores, PAGE)
    for epoch in (0, 2):
        with pytest.raises(JobConflict, match="no longer run under epoch"):
            await stores.control.forget_tasks(job.id, epoch)
    await stores.control.recover_stale_jobs(now=STALE)
    with pytest.raises(JobConflict):
        await stores.control.forget_tasks(job.id, job.epoch)
    assert (await stores.urls.counts("c")).total == 1


@pytest.mark.parametrize(("wish", "state"), [(PAUSE, CrawlState.PAUSED), (CANCEL, CrawlState.CANCELLED)])
async def test_what_the_user_asks_for_holds_after_the_forgetting(wish: Any, state: CrawlState, stores: Stores) -> None:
    job = await prepared(stores, PAGE)
    await stores.control.set_desired_state(job.id, wish, now=NOW)
    await stores.control.forget_tasks(job.id, job.epoch, now=NOW)
    assert (await stores.urls.get_crawl("c")).state is state


def forget_and_tell(pipe: Connection, dsn: str, job_id: str, epoch: int) -> None:
    """Forget in chunks of one task, and say so after each."""
    upkeep.CHUNK = 1
    removed = upkeep.purge

    def telling(*arguments: Any) -> Any:
        pipe.send("chunk")
        pipe.recv()
        return (yield from removed(*arguments))

    upkeep.purge = telling  # type: ignore[assignment]

    async def forget() -> None:
        async with await open_store(dsn) as stores:
            await stores.control.forget_tasks(job_id, epoch)

    asyncio.run(forget())


def test_forgetting_that_is_cut_off_can_be_done_again(place: Place) -> None:
    """Killed with -9 between two chunks; the next epoch begins from the start."""

    async def prepare() -> Job:
        async with await open_store(place.dsn) as stores:
            job = await failed(stores, 5)
            await stores.control.retry_job(job.id, fresh=True, now=NOW)
            again = await stores.control.claim_job("first", now=NOW)
            assert again is not None
            return again

    async def go_on() -> tuple[int, int, int, CrawlState]:
        async with await open_store(place.dsn) as stores:
            left = (await stores.urls.counts("c")).total
            with_leases = len(await lease(stores.urls, "joined", now=STALE))
            [recovered] = await stores.control.recover_stale_jobs(now=STALE)
            assert recovered.begins_afresh
            again = await stores.control.claim_job("second", now=STALE)
            assert again is not None
            forgotten = await stores.control.forget_tasks(again.id, again.epoch, now=STALE)
            return left, with_leases, forgotten, (await stores.urls.get_crawl("c")).state

    job = asyncio.run(prepare())
    child = start(forget_and_tell, place.dsn, job.id, job.epoch)
    for _ in range(2):
        assert child.receive() == "chunk"
        child.pipe.send("go on")
    assert child.receive() == "chunk"
    child.kill()
    assert asyncio.run(go_on()) == (3, 0, 3, CrawlState.RUNNING)
    asyncio.run(check_counts(place))


def test_an_order_says_what_it_does_not_name() -> None:
    order = JobOrder(seeds=(PAGE,))
    assert (order.strategy, order.scope, order.max_wait, order.fresh) == ("recursive", "host", 900.0, False)
