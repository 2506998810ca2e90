"""The desk behind a service does what the one over a store does, also on a bad day."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from outrider.control.customer import Customer
from outrider.control.desk import IdempotencyConflict, JobDesk, LocalDesk
from outrider.control.job_events import JobEvent
from outrider.control.orders import OrderRefused
from outrider.model.api_key import Role
from outrider.model.errors import InvalidInput, JobConflict, StoreUnavailable
from outrider.model.job import JobFilter, JobSort, UnknownJob
from outrider.model.machines import DesiredState, JobStatus
from outrider.model.order import JobOrder, OrderLimits, Strategy
from outrider.model.quota import JobQuota, Quota, QuotaExceeded
from outrider.service import keys
from outrider.service.job_client import RemoteDesk
from outrider.service.keys import create_key
from tests.service.job_serving import (
    FREE,
    SEED,
    backend,
    claimed,
    dsn,
    fetched,
    finished,
    port,
    served,
    stores_of,
)
from tests.service.serving import Port, Served
from tests.service.test_client import open_line

__all__ = ["backend", "dsn", "port", "served"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

ORDER = JobOrder(seeds=(SEED,))
UNKNOWN = "01900000-0000-7000-8000-000000000000"
DEADLINE_S = 20


@pytest_asyncio.fixture(loop_scope="module", params=["local", "remote"])
async def desk(served: Served, request: pytest.FixtureRequest) -> AsyncIterator[JobDesk]:
    if request.param == "local":
        yield LocalDesk(stores_of(served))
    else:
        async with RemoteDesk(served.base_url) as remote:
            yield remote


async def collected(events: AsyncIterator[JobEvent]) -> list[JobEvent]:
    async with asyncio.timeout(DEADLINE_S):
        return [event async for event in events]


def steps(events: list[JobEvent]) -> list[object]:
    return [event.data["to_status"] for event in events if event.kind == "state"]


async def test_a_job_is_submitted_shown_and_listed(served: Served, desk: JobDesk) -> None:
    order = msgspec.structs.replace(ORDER, strategy=Strategy.SINGLE, include=("a", "b"), max_pages=3)
    job = await desk.submit(
        order, crawl="news", priority=5, max_retries=0, source_id="s", labels={"a": "b"},
        webhook_url="https://hooks.example/", webhook_secret="a secret of some length",
    )  # fmt: skip
    assert (job.status, job.crawl, job.priority, job.max_retries) == (JobStatus.PENDING, "news", 5, 0)
    assert (job.source_id, job.labels, job.webhook_url) == ("s", {"a": "b"}, "https://hooks.example/")
    assert msgspec.convert(job.payload, JobOrder) == order
    view = await desk.show(job.id)
    assert (view.job.id, [step.to_status for step in view.history]) == (job.id, [JobStatus.PENDING])
    kept = await stores_of(served).control.get_job(job.id)
    assert kept is not None
    assert kept.webhook_secret == "a secret of some length"
    other = await desk.submit(ORDER)
    assert [each.id for each in (await desk.list()).jobs] == [other.id, job.id]
    assert [each.id for each in (await desk.list(JobFilter(label=("a", "b"), crawl="news"))).jobs] == [job.id]
    page = await desk.list(sort=JobSort.PRIORITY, limit=1)
    rest = await desk.list(sort=JobSort.PRIORITY, limit=1, cursor=page.next_cursor)
    assert [each.id for each in page.jobs + rest.jobs] == [job.id, other.id]
    assert rest.next_cursor is None


async def test_what_is_wrong_is_the_same_error(desk: JobDesk) -> None:
    with pytest.raises(OrderRefused, match=r"seeds\[0\]"):
        await desk.submit(JobOrder(seeds=("ftp://a.example/",)))
    with pytest.raises(OrderRefused, match="loopback"):
        await desk.submit(JobOrder(seeds=("http://localhost/",)))
    await desk.submit(ORDER, crawl="news", idempotency_key="k")
    with pytest.raises(JobConflict, match="live job"):
        await desk.submit(ORDER, crawl="news")
    with pytest.raises(IdempotencyConflict, match="another request"):
        await desk.submit(ORDER, crawl="sports", idempotency_key="k")
    with pytest.raises(InvalidInput, match="cursor"):
        await desk.list(cursor="odd")
    for job_id in (UNKNOWN, "no id", "..", ""):
        with pytest.raises(UnknownJob):
            await desk.show(job_id)
        with pytest.raises(UnknownJob):
            await desk.pause(job_id)
        with pytest.raises(UnknownJob):
            await collected(desk.events(job_id))
        with pytest.raises(UnknownJob):
            [line async for line in desk.results(job_id)]


async def test_wishes_changes_and_retries_are_carried_out(served: Served, desk: JobDesk) -> None:
    stores = stores_of(served)
    job = await desk.submit(ORDER)
    assert (await desk.pause(job.id)).status is JobStatus.PAUSED
    assert (await desk.resume(job.id)).status is JobStatus.PENDING
    changed = await desk.amend(job.id, priority=3, limits=OrderLimits(max_pages=7, max_depth=None))
    assert (changed.priority, changed.payload["max_pages"], changed.payload["max_depth"]) == (3, 7, None)
    assert (await desk.amend(job.id, limits=OrderLimits(max_pages=None))).payload["max_pages"] is None
    await finished(stores, await claimed(stores), JobStatus.FAILED, error_message="broken")
    assert (await desk.retry(job.id, fresh=True)).payload["fresh"] is True
    assert (await desk.cancel(job.id)).status is JobStatus.CANCELLED
    assert (await desk.cancel(job.id)).desired_state is DesiredState.CANCEL
    with pytest.raises(JobConflict):
        await desk.amend(job.id, priority=1)
    summary = await desk.summary()
    assert (summary.jobs[JobStatus.CANCELLED], summary.total_pending) == (1, 0)


async def test_progress_events_and_results_are_the_same(served: Served, desk: JobDesk) -> None:
    stores = stores_of(served)
    submitted = await desk.submit(msgspec.structs.replace(ORDER, max_pages=4))
    following = asyncio.create_task(collected(desk.events(submitted.id)))
    job = await claimed(stores)
    await fetched(stores, job, SEED, f"{SEED}a")
    progress = await desk.progress(job.id)
    assert (progress.done, progress.percentage, progress.percentage_of) == (2, 50, "limit")
    lines = [line async for line in desk.results(job.id)]
    assert [line["url"] for line in lines] == [SEED, f"{SEED}a"]
    assert [line async for line in desk.results(job.id, after_id=int(str(lines[0]["id"])))] == lines[1:]
    await finished(stores, job)
    events = await following
    assert steps(events) == ["pending", "processing", "completed"]
    assert events[-1].kind == "state"
    assert (await desk.progress(job.id)).percentage == 100
    last = events[-1].id
    assert last is not None
    assert await collected(desk.events(job.id, after=last)) == []
    assert steps(await collected(desk.events(job.id, after=last - 1))) == ["completed"]


async def test_a_job_that_begins_afresh_has_the_pages_of_its_own_run_alone(served: Served, desk: JobDesk) -> None:
    stores = stores_of(served)
    old = await desk.submit(ORDER, crawl="news")
    await fetched(stores, await claimed(stores), SEED)
    await finished(stores, (await desk.show(old.id)).job)
    await desk.submit(msgspec.structs.replace(ORDER, fresh=True), crawl="news")
    job = await claimed(stores)
    assert [line async for line in desk.results(job.id)] == []
    await stores.control.forget_tasks(job.id, job.epoch)
    await stores.control.open_run("news", "job", job_id=job.id, epoch=job.epoch)  # type: ignore[arg-type]
    await stores.urls.set_crawl_limits("news", FREE)
    await fetched(stores, job, f"{SEED}new")
    assert [line["url"] async for line in desk.results(job.id)] == [f"{SEED}new"]


async def test_a_customer_has_its_own_jobs_and_quota(served: Served) -> None:
    stores = stores_of(served)
    ada = LocalDesk(stores, Customer(user_id="ada", key_id="a", sees_all=False, quota=JobQuota(max_active_jobs=1)))
    bob = LocalDesk(stores, Customer(user_id="bob", key_id="b", sees_all=False))
    job = await ada.submit(ORDER)
    with pytest.raises(UnknownJob):
        await bob.show(job.id)
    assert (await bob.list(JobFilter(user_id="ada"))).jobs == []
    with pytest.raises(QuotaExceeded):
        await ada.submit(ORDER)


async def test_a_quota_is_told_to_the_client_with_its_numbers(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "FRESH_S", 0.0)
    quota = JobQuota(max_jobs_per_day=1)
    made = await create_key(stores_of(served).control, "ada", Role.CRAWL, quota=quota)
    async with RemoteDesk(served.base_url, key=made.text) as desk:
        await desk.submit(ORDER)
        with pytest.raises(QuotaExceeded, match="1 jobs in 24 hours") as refused:
            await desk.submit(ORDER)
    assert (refused.value.which, refused.value.limit) == (Quota.JOBS_PER_DAY, 1)
    assert refused.value.retry_at is not None


async def test_a_submission_whose_answer_is_lost_is_one_job(served: Served) -> None:
    async with open_line(served.base_url) as line, RemoteDesk(line.base_url) as desk:
        line.to_lose = 1
        job = await desk.submit(ORDER)
        assert line.lost == 1
        assert [each.id for each in (await desk.list()).jobs] == [job.id]


async def test_a_stream_that_breaks_goes_on_after_what_has_arrived(served: Served) -> None:
    stores = stores_of(served)
    async with open_line(served.base_url) as line, RemoteDesk(line.base_url) as desk:
        submitted = await desk.submit(ORDER)
        job = await claimed(stores)
        await fetched(stores, job, SEED)
        heard: list[JobEvent] = []
        async with asyncio.timeout(DEADLINE_S):
            async for event in desk.events(submitted.id):
                heard.append(event)
                if len(steps(heard)) == 2 and not line.lost:
                    line.to_lose = 1  # the next thing that is told does not arrive
                    await finished(stores, job)
    assert line.lost == 1
    assert steps(heard) == ["pending", "processing", "completed"]


async def test_results_that_break_off_go_on_after_the_last_whole_line(served: Served) -> None:
    stores = stores_of(served)
    async with open_line(served.base_url) as line, RemoteDesk(line.base_url) as desk:
        submitted = await desk.submit(ORDER)
        job = await claimed(stores)
        await fetched(stores, job, *(f"{SEED}{number}" for number in range(5_000)))
        urls = []
        async for page in desk.results(submitted.id):
            urls.append(page["url"])
            if len(urls) == 10:
                line.to_lose = 1
    assert line.lost == 1
    assert len(urls) == len(set(urls)) == 5_000


async def test_a_desk_follows_a_job_over_a_restart_of_the_service(port: Port, dsn: str) -> None:
    heard: list[JobEvent] = []
    async with RemoteDesk(port.base_url) as desk:
        async with port.serving(dsn) as served:
            job = await desk.submit(ORDER)
            events = desk.events(job.id)
            heard.append(await anext(events))
            served.service.stop()
        async with port.serving(dsn) as served:
            await stores_of(served).control.set_desired_state(job.id, DesiredState.CANCEL)
            heard += await collected(events)
    assert steps(heard) == ["pending", "cancelled"]


async def test_a_service_that_is_out_of_reach_is_told_when_patience_is_over() -> None:
    async with RemoteDesk("http://127.0.0.1:9", patience_s=0.1) as desk:
        with pytest.raises(StoreUnavailable):
            await desk.summary()
        with pytest.raises(StoreUnavailable):
            await collected(desk.events(UNKNOWN))
        with pytest.raises(StoreUnavailable):
            [line async for line in desk.results(UNKNOWN)]
