"""Reading jobs: page by page in every order, what became of them, what is asked of them, and how much is to do."""

import pytest

from outrider.model.errors import InvalidInput
from outrider.model.identifiers import new_uuid7
from outrider.model.job import Job, JobFilter, JobSort, PendingWork, UnknownJob
from outrider.model.machines import JobStatus
from outrider.model.order import OrderLimits
from outrider.store.opening import Stores
from outrider.store.protocols import ControlStore
from tests.conformance.controlling import NOW, at
from tests.conformance.jobbing import (
    CANCEL,
    CANCELLED,
    FAILED,
    PAUSE,
    PAUSED,
    PENDING,
    RUN,
    STALE,
    claimed,
    finish,
    lease,
    prepared,
    submit,
)


async def pages(control: ControlStore, sort: JobSort, which: JobFilter, size: int = 3) -> list[Job]:
    """Read a listing to its end."""
    found: list[Job] = []
    cursor = None
    while True:
        page = await control.list_jobs(which, sort=sort, cursor=cursor, limit=size)
        assert len(page.jobs) <= size
        found += page.jobs
        if page.next_cursor is None:
            return found
        assert len(page.jobs) == size, "only the last page is short"
        cursor = page.next_cursor


async def many(control: ControlStore) -> list[Job]:
    """Submit jobs that differ in everything that they can be chosen by."""
    return [
        await submit(
            control,
            now=NOW + number,
            priority=number % 3 - 1,
            user_id="me" if number % 2 else None,
            source_id=f"s{number % 4}",
            labels={"team": "ab"[number % 2], 'a "$." b': "ü", "n": str(number)},
        )
        for number in range(10)
    ]


ORDERS = {
    JobSort.NEWEST: lambda job: (-int(job.id.replace("-", ""), 16),),
    JobSort.OLDEST: lambda job: (job.id,),
    JobSort.PRIORITY: lambda job: (-job.priority, job.id),
    JobSort.UPDATED: lambda job: (-job.updated_at.timestamp(), -int(job.id.replace("-", ""), 16)),
}

SOME_JOB = "01a1e0e6-4936-7000-83a7-7f5fde6f96ee"
FILTERS = {
    "any": (JobFilter(), lambda _: True),
    "status": (JobFilter(status=PAUSED), lambda job: job.status is PAUSED),
    "user": (JobFilter(user_id="me"), lambda job: job.user_id == "me"),
    "source": (JobFilter(source_id="s2"), lambda job: job.source_id == "s2"),
    "label": (JobFilter(label=("team", "a")), lambda job: job.labels["team"] == "a"),
    "odd label": (JobFilter(label=('a "$." b', "ü")), lambda _: True),
    "no such label": (JobFilter(label=("$", "a")), lambda _: False),
    "two": (JobFilter(user_id="me", label=("n", "7")), lambda job: job.labels["n"] == "7"),
}


@pytest.mark.parametrize("sort", JobSort)
@pytest.mark.parametrize("chosen", FILTERS)
async def test_jobs_are_listed_page_by_page_in_every_order(chosen: str, sort: JobSort, control: ControlStore) -> None:
    for job in (await many(control))[2:5]:
        await control.set_desired_state(job.id, PAUSE, now=NOW + 100)
    which, fits = FILTERS[chosen]
    jobs = (await control.list_jobs()).jobs
    assert len(jobs) == 10
    expected = sorted(filter(fits, jobs), key=ORDERS[sort])
    assert await pages(control, sort, which) == expected
    assert (await control.list_jobs(which, sort=sort)).next_cursor is None


async def test_whatever_changes_a_job_but_a_beat_brings_it_to_the_front(control: ControlStore) -> None:
    jobs = await many(control)
    assert [job.updated_at for job in jobs] == [at(NOW + number) for number in range(10)]
    moment = NOW + 1_000

    async def newest() -> Job:
        return (await control.list_jobs(sort=JobSort.UPDATED)).jobs[0]

    claim = await control.claim_job("w", now=moment)
    assert claim is not None
    assert (await newest()).id == claim.id
    amended = await control.amend_job(jobs[4].id, priority=9, now=moment + 1)
    assert await newest() == amended
    asked = await control.set_desired_state(claim.id, PAUSE, now=moment + 2)
    assert await newest() == asked
    paused = await control.set_desired_state(jobs[6].id, PAUSE, now=moment + 3)
    assert await newest() == paused
    await control.beat_job(claim.id, claim.epoch, percentage=5, now=moment + 4)
    assert (await newest()).id == paused.id
    failed = await finish(control, claim, FAILED, now=moment + 5)
    assert await newest() == failed
    retried = await control.retry_job(claim.id, now=moment + 6)
    assert await newest() == retried


@pytest.mark.parametrize(
    "cursor",
    ["", "nonsense", "newest", "newest.0.x", f"newest.x.{SOME_JOB}", f"oldest.0.{SOME_JOB}", 5, "a.b\0.c"],
)
async def test_a_cursor_of_another_order_is_refused(cursor: str, control: ControlStore) -> None:
    await submit(control)
    with pytest.raises(InvalidInput, match="no cursor of jobs sorted by newest"):
        await control.list_jobs(cursor=cursor)


@pytest.mark.parametrize("sort", JobSort)
async def test_a_forged_cursor_does_no_harm(sort: JobSort, control: ControlStore) -> None:
    await submit(control)
    for rank in (-(2**31), 0, 253_402_300_799_999):
        await control.list_jobs(sort=sort, cursor=f"{sort}.{rank}.{new_uuid7()}")


async def test_a_senseless_listing_is_refused(control: ControlStore) -> None:
    for which in (
        JobFilter(status="odd"),  # type: ignore[arg-type]
        JobFilter(crawl="a\0"),
        JobFilter(source_id=5),  # type: ignore[arg-type]
        JobFilter(label="team=a"),  # type: ignore[arg-type]
        JobFilter(label=("", "a")),
    ):
        with pytest.raises(InvalidInput):
            await control.list_jobs(which)
    with pytest.raises(InvalidInput, match="sort must be one of newest"):
        await control.list_jobs(sort="best")  # type: ignore[arg-type]


# ----------------------------------------------------------------------- events


async def test_the_steps_of_a_job_are_numbered_and_read_from_any_of_them(control: ControlStore) -> None:
    job = await claimed(control)
    other = await submit(control)
    await finish(control, job, FAILED, now=NOW + 1)
    await control.retry_job(job.id, now=NOW + 2)
    await control.set_desired_state(other.id, CANCEL, now=NOW)
    events = await control.job_events(job.id)
    numbers = [event.sequence for event in events]
    assert [event.to_status for event in events] == ["pending", "processing", "failed", "pending"]
    assert numbers == sorted(set(numbers))
    others = {event.sequence for event in await control.job_events(other.id)}
    assert not others & set(numbers), "no two steps share a number"
    assert await control.job_events(job.id, after=numbers[1]) == events[2:]
    assert await control.job_events(job.id, after=numbers[0], limit=2) == events[1:3]
    assert await control.job_events(job.id, after=numbers[-1]) == []
    assert await control.job_history(job.id) == events
    with pytest.raises(UnknownJob):
        await control.job_events("nonsense")
    with pytest.raises(InvalidInput):
        await control.job_events(job.id, after=-1)


# ----------------------------------------------------- what is asked and what is to do


async def test_the_wishes_of_many_jobs_are_read_at_once(control: ControlStore) -> None:
    running, paused, lost = [await claimed(control, worker=f"w{n}", now=NOW + n) for n in range(3)]
    waiting = await submit(control)
    await control.set_desired_state(paused.id, PAUSE, now=NOW)
    await finish(control, lost, CANCELLED)
    asked = [(job.id, job.epoch) for job in (running, paused, lost, waiting)]
    assert await control.desired_states(asked) == {
        running.id: RUN,
        paused.id: PAUSE,
        lost.id: None,
        waiting.id: None,
    }
    assert await control.desired_states([(running.id, 2), (new_uuid7(), 1)]) != {running.id: RUN}
    assert await control.desired_states([]) == {}


async def test_pending_work_is_what_active_jobs_have_to_do(stores: Stores) -> None:
    control = stores.control
    none = dict.fromkeys(JobStatus, 0)
    assert await control.pending_work() == PendingWork(jobs=none, total_pending=0, total_assigned=0)
    first = await prepared(stores, *(f"https://a.org/{n}" for n in range(5)), crawl="first")
    await prepared(stores, "https://b.org/", crawl="second")
    await stores.urls.create_crawl("nobody's", now=NOW)
    await submit(control, crawl="not made yet")
    assert len(await lease(stores.urls, "w", slots=2, crawl="first")) == 2
    work = await control.pending_work()
    assert (work.total_pending, work.total_assigned) == (6, 2)
    assert work.jobs == {**none, PENDING: 1, JobStatus.PROCESSING: 2} == await control.job_counts()
    await finish(control, first, FAILED)
    work = await control.pending_work()
    assert (work.total_pending, work.total_assigned) == (1, 0)


async def test_the_wait_for_news_is_over_when_its_time_is(control: ControlStore) -> None:
    assert await control.job_news(0.01) is False
    assert (await submit(control, now=STALE)).status is PENDING
    await control.amend_job((await submit(control)).id, limits=OrderLimits(max_pages=1))
