"""The watchdog: what it finds, what it says, and who counts it."""

import logging
from collections.abc import Sequence

import pytest

from outrider.control.watchdog import Watchdog
from outrider.control.witness import Nobody
from outrider.model.job import TIMED_OUT, Job, JobRequest
from outrider.model.machines import DesiredState, JobStatus
from outrider.model.settings import Settings
from outrider.store.opening import Stores, open_store
from tests.conformance.backends import Place
from tests.control.supervised import wait_until

AT_ONCE = Settings(stale_after_ms=0, beat_every_ms=0)


class Counting(Nobody):
    """Remembers what was recovered."""

    def __init__(self) -> None:
        self.statuses: list[JobStatus] = []

    def recovered(self, jobs: Sequence[Job], /) -> None:
        """Remember them."""
        self.statuses += [job.status for job in jobs]


async def silent_job(stores: Stores, max_retries: int = 3) -> Job:
    await stores.control.submit_job(JobRequest(payload={}, max_retries=max_retries))
    job = await stores.control.claim_job("gone")
    assert job is not None
    return job


async def test_a_silent_job_is_tried_again_until_its_retries_are_used_up(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    counting = Counting()
    async with await open_store(place.dsn) as stores:
        watchdog = Watchdog(stores.control, AT_ONCE, counting)
        job = await silent_job(stores, max_retries=1)
        assert [found.id for found in await wait_until(watchdog.look, "a stale job")] == [job.id]
        assert (await stores.control.claim_job("gone too")) is not None
        [failed] = await wait_until(watchdog.look, "a stale job")
    assert (failed.status, failed.error_message) == (JobStatus.FAILED, TIMED_OUT)
    said = [(record.getMessage(), getattr(record, "action", None)) for record in caplog.records]
    assert said == [
        (f"Recovering stale job {job.id} (Retry 1/1)", "recover_stale_job"),
        (f"Job {job.id} failed permanently", "fail_stale_job"),
    ]
    assert counting.statuses == [JobStatus.PENDING, JobStatus.FAILED]


async def test_a_silent_job_goes_where_its_user_wants_it(place: Place) -> None:
    """Invariant 9, Jobs: what the user asked for wins over recovery."""
    async with await open_store(place.dsn) as stores:
        watchdog = Watchdog(stores.control, AT_ONCE)
        for wish, end in ((DesiredState.PAUSE, JobStatus.PAUSED), (DesiredState.CANCEL, JobStatus.CANCELLED)):
            job = await silent_job(stores)
            await stores.control.set_desired_state(job.id, wish)
            [found] = await wait_until(watchdog.look, "a stale job")
            assert (found.id, found.status, found.retry_count) == (job.id, end, 0)


async def test_a_job_that_is_beaten_for_is_left_alone(place: Place) -> None:
    async with await open_store(place.dsn) as stores:
        await silent_job(stores)
        assert await Watchdog(stores.control, Settings()).look() == []
