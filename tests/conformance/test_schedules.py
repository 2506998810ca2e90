"""Schedules: requests that are submitted again and again, once each time however many look."""

import asyncio

import pytest

from outrider.model.errors import InvalidInput, JobConflict
from outrider.model.job import JobRequest
from outrider.model.schedule import UnknownSchedule
from outrider.store.opening import open_store
from outrider.store.protocols import ControlStore
from tests.conformance.backends import Place
from tests.conformance.controlling import NOW
from tests.conformance.jobbing import COMPLETED, finish

HOUR = 3_600_000
REQUEST = JobRequest(payload={"seeds": []}, crawl="news", labels={"a": "b"}, priority=3, idempotency_key="k")


async def end_job(control: ControlStore, now: int) -> None:
    job = await control.claim_job("w", now=now)
    assert job is not None
    await finish(control, job, COMPLETED, now=now)


async def test_a_schedule_submits_its_request_at_once_and_then_after_each_interval(control: ControlStore) -> None:
    made = await control.put_schedule(REQUEST, every_ms=HOUR, now=NOW)
    assert (made.crawl, made.last_job_id) == ("news", None)
    (first,) = await control.submit_due(now=NOW)
    assert (first.crawl, first.priority, first.labels) == ("news", 3, {"a": "b"})
    await end_job(control, NOW + 1)
    assert await control.submit_due(now=NOW + HOUR - 1) == []
    (second,) = await control.submit_due(now=NOW + HOUR)
    assert second.id != first.id
    (listed,) = await control.list_schedules()
    assert (listed.id, listed.last_job_id, listed.due_at.timestamp() * 1000) == (made.id, second.id, NOW + 2 * HOUR)


async def test_a_job_that_lives_is_not_joined_by_another_and_missed_times_are_not_made_up(
    control: ControlStore,
) -> None:
    await control.put_schedule(REQUEST, every_ms=HOUR, now=NOW)
    assert len(await control.submit_due(now=NOW)) == 1
    assert await control.submit_due(now=NOW + HOUR) == []
    await end_job(control, NOW + HOUR + 1)
    assert await control.submit_due(now=NOW + HOUR + 2) == []
    assert len(await control.submit_due(now=NOW + 9 * HOUR + 5)) == 1
    (listed,) = await control.list_schedules()
    assert listed.due_at.timestamp() * 1000 == NOW + 10 * HOUR


async def test_of_many_that_look_one_submits(place: Place) -> None:
    async with await open_store(place.dsn) as one, await open_store(place.dsn) as other:
        for number in range(5):
            await one.control.put_schedule(JobRequest(payload={}, crawl=f"c{number}"), every_ms=HOUR, now=NOW)
        looks = [stores.control.submit_due(now=NOW) for stores in (one, other) * 4]
        found = await asyncio.gather(*looks)
        assert sorted(job.crawl for jobs in found for job in jobs) == [f"c{number}" for number in range(5)]


async def test_a_request_without_a_crawl_gets_the_same_one_each_time(control: ControlStore) -> None:
    made = await control.put_schedule(JobRequest(payload={}), every_ms=HOUR, now=NOW)
    (first,) = await control.submit_due(now=NOW)
    await end_job(control, NOW + 1)
    (second,) = await control.submit_due(now=NOW + HOUR)
    assert first.crawl == second.crawl == made.crawl


async def test_a_crawl_has_one_schedule_until_that_is_removed(control: ControlStore) -> None:
    made = await control.put_schedule(REQUEST, every_ms=HOUR, now=NOW)
    with pytest.raises(JobConflict, match="'news' has a schedule"):
        await control.put_schedule(REQUEST, every_ms=HOUR, now=NOW)
    await control.remove_schedule(made.id)
    assert await control.list_schedules() == []
    assert await control.submit_due(now=NOW) == []
    await control.put_schedule(REQUEST, every_ms=HOUR, now=NOW)
    for unknown in (made.id, "nothing"):
        with pytest.raises(UnknownSchedule):
            await control.remove_schedule(unknown)


@pytest.mark.parametrize("every_ms", [0, 999, 2**60, "7d"])
async def test_an_interval_that_makes_no_sense_is_refused(control: ControlStore, every_ms: int) -> None:
    with pytest.raises(InvalidInput, match="every_ms"):
        await control.put_schedule(REQUEST, every_ms=every_ms)
