"""Reporting: what the four outcomes make of a task, and that a lease ends once."""

from typing import Any
from uuid import uuid4

import msgspec
import pytest

from outrider.model.artifact import Fetch
from outrider.model.lease import Lease, Renewal, ReportAnswer, Token, Verdict
from outrider.model.machines import TaskState
from outrider.model.task import MAX_BATCH, DiscoveryType, Kind
from outrider.store.opening import Stores
from outrider.store.protocols import UrlStore
from tests.conformance.acting import (
    DEFERRED,
    DONE,
    FAILED,
    HOUR,
    KNOWN,
    MINUTE,
    REFUSED,
    SECOND,
    T0,
    add,
    check_counts,
    create,
    everything,
    found,
    lease,
    lease_one,
    report,
    saying,
    state,
    task,
    tasks,
    wait_for_lease,
)
from tests.conformance.backends import Place

LOST = ReportAnswer(verdict=Verdict.LEASE_LOST)
URL = "http://a.example/"


async def a_leased_page(urls: UrlStore, **wishes: Any) -> Lease:
    """A crawl with one page, which is leased."""
    await create(urls)
    await add(urls, URL)
    return await lease_one(urls, **wishes)


async def test_done_completes_the_task(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: an artifact with a status above 0 completes its task, whatever the status."""
    await create(urls)
    await add(urls, *(f"http://a.example/{status}" for status in (200, 301, 404, 500)))
    for leased in await lease(urls, slots=4):
        status = int(leased.url[-3:])
        answer = await report(urls, leased, DONE, now=T0, fetch=Fetch(http_status=status))
        assert answer == ReportAnswer(verdict=Verdict.COMPLETED)
        stored = await task(urls, leased.url)
        assert (stored.state, stored.http_status, stored.reason) == (TaskState.COMPLETED, status, None)
    assert await lease(urls, slots=9, now=T0 + HOUR) == []
    assert (await check_counts(urls)).completed == 4


async def test_failures_are_charged_until_max_retries(urls: UrlStore) -> None:
    """Invariant 3, Attempts: FAILED when failures reach MAX_RETRIES, with growing waits before that."""
    leased, now = await a_leased_page(urls), T0
    for failures, wait in ((1, 5 * SECOND), (2, 10 * SECOND)):
        answer = await report(urls, leased, FAILED, now=now, reason="timeout")
        assert answer == ReportAnswer(verdict=Verdict.RETRY_AT, retry_at=now + wait)
        stored = await task(urls, URL)
        assert (stored.state, stored.failures, stored.due_at) == (TaskState.PENDING, failures, now + wait)
        assert stored.reason == "timeout"
        assert await lease(urls, now=now + wait - 1) == []
        now += wait
        leased = await lease_one(urls, now=now)
    assert await report(urls, leased, FAILED, now=now) == ReportAnswer(verdict=Verdict.FAILED)
    stored = await task(urls, URL)
    assert (stored.state, stored.failures, stored.attempt_count) == (TaskState.FAILED, 3, 3)
    assert await lease(urls, now=now + HOUR) == []
    assert (await check_counts(urls)).failed == 1


async def test_a_failure_may_ask_for_a_longer_wait(urls: UrlStore) -> None:
    """Invariant 7, Politeness: what the site asked for holds for the task as well."""
    leased = await a_leased_page(urls)
    assert (await report(urls, leased, FAILED, now=T0, retry_after_ms=HOUR)).retry_at == T0 + HOUR


async def test_deferrals_are_not_charged_but_end_after_twenty(urls: UrlStore) -> None:
    """Invariant 3, Attempts: deferred at most 20 times, then FAILED; failures stay as they were."""
    leased, now = await a_leased_page(urls), T0
    for deferrals in range(1, 21):
        answer = await report(urls, leased, DEFERRED, now=now, retry_after_ms=SECOND, reason="busy")
        assert answer == ReportAnswer(verdict=Verdict.RETRY_AT, retry_at=now + SECOND)
        stored = await task(urls, URL)
        assert (stored.deferrals, stored.failures, stored.state) == (deferrals, 0, TaskState.PENDING)
        leased, now = await wait_for_lease(urls, now=now)
    assert (await report(urls, leased, DEFERRED, now=now, reason="busy")).verdict is Verdict.FAILED
    stored = await task(urls, URL)
    assert (stored.state, stored.failures, stored.attempt_count) == (TaskState.FAILED, 0, 21)
    assert stored.reason == "busy"
    await check_counts(urls)


async def test_refused_fails_at_once_with_its_reason(urls: UrlStore) -> None:
    """Invariant 3, Attempts: nothing was sent and nothing ever will be."""
    leased = await a_leased_page(urls)
    answer = await report(urls, leased, REFUSED, now=T0, reason="robots", sent_after_ms=None)
    assert answer == ReportAnswer(verdict=Verdict.FAILED)
    stored = await task(urls, URL)
    assert (stored.state, stored.failures, stored.reason) == (TaskState.FAILED, 0, "robots")


async def test_a_task_that_silences_worker_after_worker_is_poison(urls: UrlStore) -> None:
    """Invariant 3, Attempts: one page cannot kill workers for ever."""
    leased, now = await a_leased_page(urls), T0
    for expiries in range(1, 10):
        now += 2 * MINUTE
        assert await urls.reap(now=now) == [leased.token]
        stored = await task(urls, URL)
        assert (stored.state, stored.expiries, stored.failures) == (TaskState.PENDING, expiries, 0)
        assert stored.reason == "lease_expired"
        leased = await lease_one(urls, now=now)
    await urls.reap(now=now + 2 * MINUTE)
    stored = await task(urls, URL)
    assert (stored.state, stored.reason, stored.attempt_count) == (TaskState.FAILED, "poison", 10)
    assert await urls.artifacts("c") == []
    await check_counts(urls)


async def dead_by_reaper(urls: UrlStore, leased: Lease) -> None:
    assert await urls.reap(now=T0 + 2 * MINUTE) == [leased.token]


async def dead_by_release(urls: UrlStore, leased: Lease) -> None:
    assert await urls.release([leased.token], now=T0 + SECOND) == [leased.token]


async def dead_by_next_lease(urls: UrlStore, leased: Lease) -> None:
    await urls.reap(now=T0 + 2 * MINUTE)
    assert (await lease_one(urls, now=T0 + 2 * MINUTE)).url == leased.url


async def dead_by_time_alone(urls: UrlStore, leased: Lease) -> None:
    """Expired, and no reaper has come by yet."""


@pytest.mark.parametrize(
    "death", [dead_by_reaper, dead_by_release, dead_by_next_lease, dead_by_time_alone], ids=lambda death: death.__name__
)
@pytest.mark.parametrize("outcome", [DONE, FAILED])
async def test_a_dead_token_is_refused_and_changes_nothing(urls: UrlStore, death: Any, outcome: Any) -> None:
    """Invariant 2, Exclusivity: a renewal or report whose token is not live changes nothing."""
    leased = await a_leased_page(urls)
    await add(urls, "http://b.example/")
    await death(urls, leased)
    before = await everything(urls)
    links = [found("http://c.example/")]
    assert await report(urls, leased, outcome, now=T0 + 2 * MINUTE, links=links, backs_off=True) == LOST
    assert await urls.renew([leased.token], now=T0 + 2 * MINUTE) == [Renewal.LEASE_LOST]
    assert await urls.release([leased.token], now=T0 + 2 * MINUTE) == []
    assert await everything(urls) == before
    assert await urls.get_gate("c.example") is None


async def test_a_token_that_never_was_is_refused(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity."""
    await a_leased_page(urls)
    before = await everything(urls)
    stranger = Token(uuid4().hex)
    assert await report(urls, stranger, now=T0) == LOST
    assert await urls.renew([stranger], now=T0) == [Renewal.LEASE_LOST]
    assert await everything(urls) == before


async def test_a_live_lease_is_renewed_again_and_again(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: a renewed lease lasts from the renewal."""
    leased = await a_leased_page(urls, lease_ms=10 * SECOND)
    assert await urls.renew([leased.token], lease_ms=10 * SECOND, now=T0 + 9 * SECOND) == [Renewal.OK]
    stranger = Token(uuid4().hex)
    tokens = [stranger, leased.token, leased.token]
    answers = await urls.renew(tokens, now=T0 + 18 * SECOND)
    assert answers == [Renewal.LEASE_LOST, Renewal.OK, Renewal.OK]
    assert await urls.reap(now=T0 + 18 * SECOND + 2 * MINUTE - 1) == []
    assert await urls.renew([leased.token], now=T0 + 18 * SECOND + 2 * MINUTE) == [Renewal.LEASE_LOST]
    assert await urls.renew([], now=T0) == []


@pytest.mark.parametrize("outcome", [DONE, FAILED, DEFERRED, REFUSED])
async def test_a_repeated_report_is_answered_as_the_first_time(urls: UrlStore, outcome: Any) -> None:
    """Invariant 2, Exclusivity: repeating the token that ended a task gives the same answer again."""
    leased = await a_leased_page(urls)
    first = await report(urls, leased, outcome, now=T0, links=[found("http://b.example/")])
    before = await everything(urls)
    assert await report(urls, leased, outcome, now=T0 + MINUTE, links=[found("http://c.example/")]) == first
    other = DONE if outcome is FAILED else FAILED
    assert await report(urls, leased, other, now=T0 + HOUR) == first, "the first word counts"
    assert await urls.renew([leased.token], now=T0) == [Renewal.LEASE_LOST]
    assert await everything(urls) == before


async def test_a_report_repeated_within_one_batch_counts_once(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity."""
    leased = await a_leased_page(urls)
    reports = [saying(leased, FAILED), saying(leased, DONE), saying(uuid4().hex), saying(leased, FAILED)]
    first, *others = await urls.report(reports, now=T0)
    assert first == ReportAnswer(verdict=Verdict.RETRY_AT, retry_at=T0 + 5 * SECOND)
    assert others == [first, LOST, first]
    assert (await task(urls, URL)).failures == 1
    assert len(await urls.artifacts("c")) == 1


async def test_a_repeated_report_after_the_task_went_on_is_answered_as_the_first_time(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: an old answer touches nothing that came later."""
    first = await a_leased_page(urls)
    answer = await report(urls, first, FAILED, now=T0)
    second = await lease_one(urls, now=T0 + 5 * SECOND)
    before = await everything(urls)
    assert await report(urls, first, FAILED, now=T0 + 6 * SECOND) == answer
    assert await everything(urls) == before
    assert (await report(urls, second, now=T0 + 6 * SECOND)).verdict is Verdict.COMPLETED


async def test_links_are_added_with_the_outcome(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: never an outcome without the links found on that page."""
    leased = await a_leased_page(urls)
    await add(urls, found("http://b.example/known", depth=7))
    links = [
        found("http://b.example/new", depth=1), found("http://b.example/known", depth=1), found(URL, depth=1),
        found("http://c.example/", depth=1, metadata={"m": 1}, discovery_type=DiscoveryType.REDIRECT),
        found("http://b.example/new", depth=1),
    ]  # fmt: skip
    await report(urls, leased, now=T0 + SECOND, links=links)
    depths = {row.url: (row.state, row.depth) for row in await tasks(urls)}
    assert depths == {
        URL: (TaskState.COMPLETED, 0),
        "http://b.example/known": (TaskState.PENDING, 7),
        "http://b.example/new": (TaskState.PENDING, 1),
        "http://c.example/": (TaskState.PENDING, 1),
    }
    assert (await task(urls, "http://c.example/")).discovered_at == T0 + SECOND
    by_url = {each.url: each for each in await lease(urls, slots=9, now=T0 + SECOND)}
    assert by_url["http://c.example/"].metadata == {"m": 1}
    await check_counts(urls)


async def test_links_come_with_every_outcome(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: a page that failed half-way may have had links."""
    leased = await a_leased_page(urls)
    await report(urls, leased, FAILED, now=T0, links=[found("http://b.example/")])
    assert await state(urls, "http://b.example/") is TaskState.PENDING


async def test_reports_may_have_more_links_together_than_a_batch_may_have(urls: UrlStore) -> None:
    await create(urls)
    await add(urls, "http://a.example/", "http://b.example/")
    half = MAX_BATCH // 2 + 1
    leases = await lease(urls, slots=2)
    reports = [saying(leased, links=[found(f"{leased.url}{n}") for n in range(half)]) for leased in leases]
    await urls.report(reports, now=T0)
    assert (await urls.counts("c")).pending == 2 * half


async def test_links_past_the_depth_limit_stay_discovered(urls: UrlStore) -> None:
    """Invariant 4, Depth."""
    await create(urls, max_depth=1)
    await add(urls, URL)
    links = [found("http://a.example/1", depth=1), found("http://a.example/2", depth=2)]
    await report(urls, await lease_one(urls), now=T0, links=links)
    assert await state(urls, "http://a.example/1") is TaskState.PENDING
    assert await state(urls, "http://a.example/2") is TaskState.DISCOVERED


async def test_reports_of_several_crawls_add_their_links_each_to_its_own(urls: UrlStore) -> None:
    """Invariant 1, Identity: each crawl has its own set of seen URLs."""
    reports = []
    for crawl in ("d", "c", "e"):
        await create(urls, crawl)
        await add(urls, f"http://{crawl}.example/", f"http://{crawl}2.example/", crawl=crawl)
        reports += [
            saying(leased, links=[found("http://x.example/"), found(f"{leased.url}x")])
            for leased in await lease(urls, crawl, slots=2)
        ]
    answers = await urls.report(reports, now=T0)
    assert [answer.verdict for answer in answers] == [Verdict.COMPLETED] * 6
    for crawl in ("c", "d", "e"):
        urls_found = sorted(row.url for row in await tasks(urls, crawl, state=TaskState.PENDING))
        assert urls_found == [f"http://{crawl}.example/x", f"http://{crawl}2.example/x", "http://x.example/"]
        await check_counts(urls, crawl)
        assert await add(urls, "http://x.example/", crawl=crawl) == [KNOWN]


async def test_every_accepted_report_is_one_artifact_with_all_that_was_measured(stores: Stores, place: Place) -> None:
    """Invariant 5, Nothing lost: one row of `crawl_log` per report."""
    urls, run = stores.urls, str(uuid4())
    await create(urls)
    seed = found("http://www.a.example/x", depth=2, kind=Kind.IMAGE, key="k", discovery_type=DiscoveryType.SEED)
    await add(urls, seed)
    first = await lease_one(urls, run_id=run)
    broken = Fetch(http_status=503, fetched_at=T0 + 1, elapsed_ms=2)
    await report(urls, first, FAILED, now=T0 + SECOND, fetch=broken, reason="server_error")
    second = await lease_one(urls, now=T0 + MINUTE)
    fetch = Fetch(
        http_status=200, fetched_at=T0 + MINUTE + 5, elapsed_ms=1234, content_type="text/html; charset=utf-8",
        body_bytes=5_000_000_000, images_found=17, digest="sha256:0a", etag='W/"é"',
        last_modified="Wed, 21 Oct 2015 07:28:00 GMT", content_location="warc/0001.warc.gz#42",
    )  # fmt: skip
    await report(urls, second, DONE, now=T0 + MINUTE + 9, fetch=fetch)

    failed, done = await urls.artifacts("c")
    ((domain_id,),) = await place.backend.query(place.dsn, "SELECT id FROM domains WHERE domain = 'a.example'")
    assert msgspec.structs.asdict(done) == {
        "artifact_id": done.artifact_id, "crawl": "c", "key": "k", "url": seed.url, "token": second.token,
        "attempt": 2, "domain": "a.example", "domain_id": str(domain_id), "kind": Kind.IMAGE, "outcome": "done",
        "reason": None, "discovery_type": DiscoveryType.SEED, "run_id": None, "depth": 2, "fetch": fetch,
        "leased_at": T0 + MINUTE, "reported_at": T0 + MINUTE + 9,
    }  # fmt: skip
    assert (failed.token, failed.attempt, failed.run_id, failed.fetch) == (first.token, 1, run, broken)
    assert (failed.outcome, failed.reason, failed.reported_at) == ("failed", "server_error", T0 + SECOND)
    assert failed.artifact_id < done.artifact_id
