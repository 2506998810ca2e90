"""Quotas of keys: counted in the transaction that submits, and each key's own."""

import asyncio
from typing import Any

import pytest

from outrider.model.api_key import Role
from outrider.model.errors import InvalidInput, JobConflict
from outrider.model.job import Job, JobRequest
from outrider.model.quota import JobQuota, Quota, QuotaExceeded
from outrider.store.opening import open_store
from outrider.store.protocols import ControlStore
from tests.conformance.backends import Place
from tests.conformance.controlling import DAY, NOW, at
from tests.conformance.jobbing import CANCEL, FAILED, PAUSE, claimed, finish
from tests.processes import run_together

PROCESSES = 8


async def submit(control: ControlStore, quota: JobQuota, now: int | None = NOW, **request: Any) -> Job:
    asked = JobRequest(**{"payload": {}, "key_id": "k", **request})
    return await control.submit_job(asked, quota=quota, now=now)


async def test_a_key_has_no_more_active_jobs_than_it_may(control: ControlStore) -> None:
    quota = JobQuota(max_active_jobs=2)
    first = await submit(control, quota)
    paused = await submit(control, quota)
    await control.set_desired_state(paused.id, PAUSE, now=NOW)
    with pytest.raises(QuotaExceeded, match="2 jobs that have not ended") as refused:
        await submit(control, quota)
    assert (refused.value.which, refused.value.limit, refused.value.retry_at) == (Quota.ACTIVE_JOBS, 2, None)
    await submit(control, quota, key_id="another")
    await submit(control, quota, key_id=None)
    await control.set_desired_state(first.id, CANCEL, now=NOW)
    await submit(control, quota)
    with pytest.raises(QuotaExceeded):
        await submit(control, quota)
    assert len((await control.list_jobs()).jobs) == 5


async def test_a_key_submits_no_more_jobs_a_day_than_it_may(control: ControlStore) -> None:
    quota = JobQuota(max_jobs_per_day=2)
    for moment in (NOW, NOW + 5_000):
        job = await submit(control, quota, now=moment)
        await control.set_desired_state(job.id, CANCEL, now=moment)
    with pytest.raises(QuotaExceeded, match="2 jobs in 24 hours") as refused:
        await submit(control, quota, now=NOW + DAY - 1)
    assert (refused.value.which, refused.value.retry_at) == (Quota.JOBS_PER_DAY, at(NOW + DAY))
    await submit(control, quota, now=NOW + DAY)
    with pytest.raises(QuotaExceeded) as refused:
        await submit(control, quota, now=NOW + DAY)
    assert refused.value.retry_at == at(NOW + 5_000 + DAY)
    with pytest.raises(QuotaExceeded):
        await submit(control, JobQuota(max_jobs_per_day=0), key_id="new")


async def test_a_request_that_is_made_again_is_not_refused_for_the_job_that_it_has(control: ControlStore) -> None:
    quota = JobQuota(max_active_jobs=1, max_jobs_per_day=1)
    first = await submit(control, quota, idempotency_key="once")
    assert await submit(control, quota, idempotency_key="once") == first
    with pytest.raises(QuotaExceeded):
        await submit(control, quota, idempotency_key="twice")


async def test_a_refused_job_leaves_nothing_behind(control: ControlStore) -> None:
    with pytest.raises(QuotaExceeded):
        await submit(control, JobQuota(max_active_jobs=0), crawl="c", idempotency_key="i")
    job = await submit(control, JobQuota(max_active_jobs=1), crawl="c", idempotency_key="i")
    with pytest.raises(JobConflict):
        await submit(control, JobQuota(max_active_jobs=2), crawl="c")
    assert (await control.list_jobs()).jobs == [job]


async def test_a_retry_counts_as_an_active_job(control: ControlStore) -> None:
    quota = JobQuota(max_active_jobs=1, max_jobs_per_day=2)
    failed = await claimed(control, key_id="k")
    await finish(control, failed, FAILED)
    other = await submit(control, quota)
    with pytest.raises(QuotaExceeded):
        await control.retry_job(failed.id, quota=quota, now=NOW)
    await control.set_desired_state(other.id, CANCEL, now=NOW)
    assert (await control.retry_job(failed.id, quota=quota, now=NOW)).status == "pending"


def test_the_pages_of_a_job_are_bounded_by_its_order() -> None:
    quota = JobQuota(max_pages_per_job=10)
    quota.check_pages(10)
    JobQuota().check_pages(None)
    for pages in (11, None):
        with pytest.raises(QuotaExceeded, match="at most 10 pages") as refused:
            quota.check_pages(pages)
        assert refused.value.which is Quota.PAGES_PER_JOB


async def test_a_key_keeps_its_owner_and_its_quotas(control: ControlStore) -> None:
    quota = JobQuota(max_active_jobs=1, max_pages_per_job=2, max_jobs_per_day=3)
    made = await control.create_key("one", "d" * 64, name="laptop", role=Role.CRAWL, owner="me", quota=quota)
    assert (made.owner, made.quota) == ("me", quota)
    assert await control.find_key("one") == made
    plain = await control.create_key("two", "d" * 64, name="laptop", role=Role.CRAWL)
    assert (plain.owner, plain.quota) == ("laptop", JobQuota())
    with pytest.raises(InvalidInput, match="max_active_jobs"):
        await control.create_key("three", "d" * 64, name="x", role=Role.READ, quota=JobQuota(max_active_jobs=-1))
    with pytest.raises(InvalidInput, match="owner"):
        await control.create_key("three", "d" * 64, name="x", role=Role.READ, owner="")


async def submit_many(dsn: str, _number: int) -> tuple[int, int]:
    """Submit five jobs; tell how many were taken and how many refused."""
    async with await open_store(dsn) as stores:
        answers = await asyncio.gather(
            *(submit(stores.control, JobQuota(max_active_jobs=7), now=None) for _ in range(5)), return_exceptions=True
        )
    refused = sum(isinstance(answer, QuotaExceeded) for answer in answers)
    return sum(isinstance(answer, Job) for answer in answers), refused


def test_processes_at_once_submit_no_more_than_the_quota(place: Place) -> None:
    answers = run_together(submit_many, [(place.dsn, number) for number in range(PROCESSES)])
    assert sum(taken for taken, _ in answers) == 7
    assert sum(refused for _, refused in answers) == 5 * PROCESSES - 7
