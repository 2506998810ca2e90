"""Returning: leases that end without a report, and tasks that an operator gives another chance."""

import msgspec

from outrider.model.lease import Verdict
from outrider.model.machines import TaskState
from outrider.model.task import Counts, Kind, TaskFilter
from outrider.store.protocols import UrlStore
from tests.conformance.acting import (
    DEFERRED,
    FAILED,
    MINUTE,
    REFUSED,
    SECOND,
    T0,
    add,
    check_counts,
    create,
    found,
    lease,
    lease_one,
    report,
    saying,
    state,
    task,
    tasks,
)
from tests.conformance.backends import Place


async def test_released_leases_are_given_back_uncharged(urls: UrlStore) -> None:
    """Invariant 3, Attempts: an orderly stop costs no retry, but the attempt was made."""
    await create(urls)
    await add(urls, "http://a.example/", "http://b.example/")
    first, second = await lease(urls, slots=2)
    assert await urls.release([first.token, first.token], now=T0 + SECOND) == [first.token]
    stored = await task(urls, first.url)
    assert (stored.state, stored.failures, stored.attempt_count) == (TaskState.PENDING, 0, 1)
    assert (stored.reason, stored.last_heartbeat) == ("released", None)
    assert await state(urls, second.url) is TaskState.ASSIGNED
    assert (await lease_one(urls, now=T0 + SECOND)).url == first.url
    assert await urls.artifacts("c") == []
    await check_counts(urls)


async def test_a_worker_that_stops_releases_all_that_it_holds_and_no_more(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: others keep what they hold."""
    for crawl in ("c", "d"):
        await create(urls, crawl)
        await add(urls, *(f"http://{crawl}.example/{number}" for number in range(3)), crawl=crawl)
    mine = await lease(urls, "c", slots=2, worker="mine") + await lease(urls, "d", slots=1, worker="mine")
    theirs = await lease(urls, "c", slots=2, worker="theirs")
    assert set(await urls.release(worker="mine", now=T0)) == {each.token for each in mine}
    assert await urls.release(worker="mine", now=T0) == []
    assert [row.url for row in await tasks(urls, state=TaskState.ASSIGNED)] == [each.url for each in theirs]
    await check_counts(urls, "c")
    await check_counts(urls, "d")


async def test_a_lease_that_has_expired_is_for_the_reaper_not_for_release(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: a worker that comes back too late has nothing to give."""
    await create(urls)
    await add(urls, "http://a.example/")
    leased = await lease_one(urls)
    assert await urls.release(worker="w", now=T0 + 2 * MINUTE) == []
    assert await urls.reap(now=T0 + 2 * MINUTE) == [leased.token]
    assert await urls.reap(now=T0 + 2 * MINUTE) == []
    assert (await task(urls, leased.url)).expiries == 1


async def test_reaping_takes_the_longest_expired_first_and_no_more_than_asked(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact, chunk by chunk."""
    await create(urls)
    await add(urls, *(f"http://a.example/{number}" for number in range(5)))
    expected = [(await lease_one(urls, lease_ms=(number + 1) * SECOND)).token for number in range(5)]
    reaped = []
    for _ in range(3):
        reaped.append(await urls.reap(most=2, now=T0 + MINUTE))
        await check_counts(urls)
    assert reaped == [expected[:2], expected[2:4], expected[4:]]
    assert [each.attempt for each in await lease(urls, slots=9, now=T0 + MINUTE)] == [2] * 5


async def test_an_operator_gives_failed_tasks_a_fresh_start(urls: UrlStore) -> None:
    """Invariant 3, Attempts: a retry resets the failures, never the attempts."""
    await create(urls)
    await add(urls, "http://a.example/")
    now = T0
    for _ in range(3):
        await report(urls, await lease_one(urls, now=now), FAILED, now=now)
        now += MINUTE
    assert await urls.retry_failed("c", now=now) == 1
    stored = await task(urls, "http://a.example/")
    assert (stored.state, stored.failures, stored.attempt_count) == (TaskState.PENDING, 0, 3)
    assert stored.due_at == now
    leased = await lease_one(urls, now=now)
    assert leased.attempt == 4
    assert (await report(urls, leased, FAILED, now=now)).verdict is Verdict.RETRY_AT
    await check_counts(urls)


async def test_a_retry_may_be_about_some_tasks_only(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: what a filter leaves out stays as it was."""
    await create(urls)
    pages = ["http://a.example/1", "http://a.example/2", "http://b.example/1"]
    await add(urls, *pages, found("http://b.example/s", kind=Kind.SITEMAP), "http://c.example/done")
    for each in await lease(urls, slots=9):
        if not each.url.endswith("done"):
            await report(urls, each, REFUSED, now=T0)

    async def retried(**which: object) -> tuple[int, list[str]]:
        number = await urls.retry_failed("c", TaskFilter(**which), now=T0)  # type: ignore[arg-type]
        ready = sorted(each.url for each in await lease(urls, slots=9))
        await check_counts(urls)
        return number, ready

    assert await retried(key="nowhere.example") == (0, [])
    assert await retried(state=TaskState.COMPLETED) == (0, [])
    assert await retried(key="a.example", url_contains="/2") == (1, ["http://a.example/2"])
    assert await retried(kind=Kind.SITEMAP) == (1, ["http://b.example/s"])
    assert await retried(key="a.example") == (1, ["http://a.example/1"])
    assert await retried() == (1, ["http://b.example/1"])


async def test_only_failed_tasks_are_retried(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: a retry ends no lease and revives no page that is done."""
    await create(urls, max_depth=0)
    await add(urls, *(f"http://a.example/{number}" for number in range(3)), found("http://a.example/deep", depth=1))
    done, deferred, _ = await lease(urls, slots=3)
    await report(urls, done, now=T0)
    await report(urls, deferred, DEFERRED, now=T0)
    before = await tasks(urls)
    assert {row.state for row in before} == set(TaskState) - {TaskState.FAILED}
    assert await urls.retry_failed("c", now=T0) == 0
    assert await tasks(urls) == before


async def test_many_tasks_are_promoted_and_retried_in_one_call(urls: UrlStore, place: Place) -> None:
    """Invariant 6, Counts are exact, over more than one chunk."""
    made = await create(urls, max_depth=0)
    await add(urls, *(found(f"http://{number % 50}.example/{number}", depth=1) for number in range(2_500)))
    await urls.set_crawl_limits("c", msgspec.structs.replace(made.limits, max_depth=1))
    assert await urls.promote("c", now=T0) == 2_500
    assert await check_counts(urls) == Counts(pending=2_500)
    await place.backend.query(place.dsn, "ANALYZE")  # as a server does by itself a minute later
    leases = await lease(urls, slots=2_500)
    await urls.report([saying(each, REFUSED) for each in leases], now=T0)
    assert await check_counts(urls) == Counts(failed=2_500)
    assert await urls.retry_failed("c", now=T0) == 2_500
    assert await check_counts(urls) == Counts(pending=2_500)
