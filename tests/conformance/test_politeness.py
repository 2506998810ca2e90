"""Politeness: what a gate lets through, and when, for all crawls and over every restart."""

from typing import Any

import pytest

from outrider.model.gate import Gate, GateSettings
from outrider.model.lease import Lease
from outrider.model.task import QueueSettings
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from tests.conformance.acting import (
    DAY,
    DEFERRED,
    FAILED,
    HOUR,
    MINUTE,
    REFUSED,
    SECOND,
    T0,
    add,
    ask,
    create,
    found,
    gate,
    lease,
    lease_one,
    report,
    saying,
    task,
    wait_for_lease,
)
from tests.conformance.backends import Place
from tests.conformance.conftest import STEADY

DOMAIN = "a.example"


async def a_polite_crawl(urls: UrlStore, name: str = "c", *, pages: int = 30, **limits: Any) -> None:
    """A crawl of one domain with a delay of ten seconds, unless told otherwise."""
    await create(urls, name, **{"delay_ms": 10 * SECOND, "concurrency": 1, **limits})
    await add(urls, *(f"http://{DOMAIN}/{name}/{number}" for number in range(pages)), crawl=name)


async def assert_opens_at(urls: UrlStore, moment: int, crawl: str = "c") -> Lease:
    """Assert that the gate lets nobody in before a moment, and somebody then."""
    assert await lease(urls, crawl, slots=5, now=moment - 1) == []
    return await lease_one(urls, crawl, now=moment)


async def test_the_delay_runs_from_the_start_of_the_request(urls: UrlStore) -> None:
    """Invariant 7, Politeness: never sooner than the delay after the last request start."""
    await a_polite_crawl(urls)
    leased = await lease_one(urls)
    await report(urls, leased, now=T0 + 8 * SECOND, sent_after_ms=3 * SECOND)
    leased = await assert_opens_at(urls, T0 + 13 * SECOND)
    await report(urls, leased, now=T0 + 60 * SECOND, sent_after_ms=0)
    await lease_one(urls, now=T0 + 60 * SECOND)


async def test_a_request_cannot_have_started_after_its_report(urls: UrlStore) -> None:
    """Invariant 7, Politeness: a worker whose clock is wrong does not close a gate for long."""
    await a_polite_crawl(urls)
    await report(urls, await lease_one(urls), now=T0 + SECOND, sent_after_ms=DAY)
    await assert_opens_at(urls, T0 + 11 * SECOND)


async def test_at_concurrency_one_the_next_lease_comes_after_the_report(urls: UrlStore) -> None:
    """Invariant 7, Politeness: never more requests in flight than the concurrency, over all crawls."""
    await a_polite_crawl(urls, "c", delay_ms=0)
    await a_polite_crawl(urls, "d", delay_ms=0)
    (leased,) = await lease(urls, "c", slots=5)
    for crawl in ("c", "d", None):
        assert await lease(urls, crawl, slots=5, now=T0 + MINUTE) == []
    await report(urls, leased, now=T0 + MINUTE)
    (leased,) = await lease(urls, "d", slots=5, now=T0 + MINUTE)
    assert await lease(urls, None, slots=5, now=T0 + MINUTE) == []
    await report(urls, leased, FAILED, now=T0 + MINUTE)
    await lease_one(urls, "c", now=T0 + MINUTE)


async def test_what_is_in_flight_is_counted_over_all_crawls_and_kinds_of_queue(urls: UrlStore) -> None:
    """Invariant 7, Politeness: never more requests in flight than the concurrency, whatever the key."""
    await a_polite_crawl(urls, "c", delay_ms=0, concurrency=3)
    await a_polite_crawl(urls, "d", delay_ms=0, concurrency=3)
    other = [found(f"http://{DOMAIN}/k"), found("http://b.example/k")]
    await add(urls, *(found(item.url, key="k") for item in other), crawl="d")
    held = await lease(urls, "c", slots=2)
    held += await lease(urls, "d", slots=9)
    assert sorted(each.domain for each in held) == [DOMAIN] * 3 + ["b.example"]
    assert await lease(urls, None, slots=9) == []
    await urls.configure_gate(DOMAIN, GateSettings(concurrency=5), now=T0)
    assert len(await lease(urls, "c", slots=9)) == 2
    await urls.configure_gate(DOMAIN, GateSettings(concurrency=1), now=T0)
    for each in held[:3]:
        await report(urls, each, now=T0)
        assert await lease(urls, None, slots=9) == []


async def test_with_a_delay_requests_start_one_by_one_up_to_the_concurrency(urls: UrlStore) -> None:
    """Invariant 7, Politeness: delay and concurrency both bind."""
    await a_polite_crawl(urls, concurrency=2)
    assert len(await lease(urls, slots=5)) == 1
    await assert_opens_at(urls, T0 + 10 * SECOND)
    assert await lease(urls, slots=5, now=T0 + 30 * SECOND) == []


async def test_the_delay_holds_over_all_crawls(urls: UrlStore) -> None:
    """Invariant 7, Politeness is global: one domain, one clock."""
    await a_polite_crawl(urls, "c")
    await a_polite_crawl(urls, "d", delay_ms=SECOND)
    await report(urls, await lease_one(urls, "c"), now=T0)
    leased = await assert_opens_at(urls, T0 + 10 * SECOND, "d")
    await report(urls, leased, now=T0 + 10 * SECOND)
    await assert_opens_at(urls, T0 + 11 * SECOND, "c")


@pytest.mark.parametrize(
    ("queue", "own", "crawl", "expected"),
    [(None, None, 3, 3), (None, 2, 3, 2), (1, 2, 3, 1), (None, 5, 3, 5), (6, None, 3, 6), (0, 2, 3, 0)],
)
async def test_the_most_specific_delay_holds(
    urls: UrlStore, queue: int | None, own: int | None, crawl: int, expected: int
) -> None:
    """Invariant 7, Politeness: the delay of the queue, else of the gate, else of the crawl."""
    await a_polite_crawl(urls, delay_ms=crawl * SECOND)
    if own is not None:
        await urls.configure_gate(DOMAIN, GateSettings(delay_ms=own * SECOND), now=T0)
    if queue is not None:
        await urls.configure_queue("c", DOMAIN, QueueSettings(delay_ms=queue * SECOND), now=T0)
    await report(urls, await lease_one(urls), now=T0)
    if expected:
        await assert_opens_at(urls, T0 + expected * SECOND)
    else:
        await lease_one(urls)


async def test_a_back_off_doubles_with_each_event_up_to_a_cap_and_ends_with_success(urls: UrlStore) -> None:
    """Invariant 7, Politeness: nothing before the back-off ends."""
    await a_polite_crawl(urls, delay_ms=0)
    now = T0
    for wait in (5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600):
        await report(urls, await lease_one(urls, now=now), DEFERRED, now=now, backs_off=True)
        assert (await gate(urls, DOMAIN)).backoff_until == now + wait * SECOND
        assert await lease(urls, now=now + wait * SECOND - 1) == []
        now += wait * SECOND
    await report(urls, await lease_one(urls, now=now), now=now)
    assert (await gate(urls, DOMAIN)).backoff_level == 0
    await report(urls, await lease_one(urls, now=now), DEFERRED, now=now, backs_off=True)
    assert (await gate(urls, DOMAIN)).backoff_until == now + 5 * SECOND


async def test_answers_to_requests_that_were_under_way_together_are_one_event(urls: UrlStore) -> None:
    """Invariant 7, Politeness: a back-off doubles once per event, not once per response."""
    await a_polite_crawl(urls, delay_ms=0, concurrency=4)
    first, second, third, fourth = await lease(urls, slots=4)
    await report(urls, first, DEFERRED, now=T0 + 10, backs_off=True)
    together = [saying(second, DEFERRED, backs_off=True), saying(third, DEFERRED, backs_off=True)]
    await urls.report(together, now=T0 + 20)
    await report(urls, fourth, now=T0 + 30)
    backing_off = await gate(urls, DOMAIN)
    assert (backing_off.backoff_level, backing_off.backoff_until) == (1, T0 + 10 + 5 * SECOND)


async def test_a_back_off_binds_every_crawl_and_what_was_deferred_comes_back_after_it(urls: UrlStore) -> None:
    """Invariant 7, Politeness is global: nothing before the back-off ends."""
    await a_polite_crawl(urls, "c", pages=1)
    await a_polite_crawl(urls, "d", pages=1)
    leased = await lease_one(urls, "c")
    answer = await report(urls, leased, DEFERRED, now=T0, backs_off=True, retry_after_ms=HOUR)
    assert answer.retry_at == T0 + HOUR
    leased = await assert_opens_at(urls, T0 + HOUR, "d")
    await report(urls, leased, now=T0 + HOUR)
    await assert_opens_at(urls, T0 + HOUR + 10 * SECOND, "c")


@pytest.mark.parametrize(("asked", "waits"), [(2 * SECOND, 5 * SECOND), (MINUTE, MINUTE), (5 * HOUR, 5 * HOUR)])
async def test_a_site_is_left_alone_for_as_long_as_it_asks(urls: UrlStore, asked: int, waits: int) -> None:
    """Invariant 7, Politeness: Retry-After may make a back-off longer, never shorter."""
    await a_polite_crawl(urls, delay_ms=0)
    await report(urls, await lease_one(urls), DEFERRED, now=T0, backs_off=True, retry_after_ms=asked)
    await assert_opens_at(urls, T0 + waits)


async def test_a_later_answer_of_the_same_event_may_ask_for_more(urls: UrlStore) -> None:
    """Invariant 7, Politeness: of several Retry-After the longest holds."""
    await a_polite_crawl(urls, delay_ms=0, concurrency=2)
    first, second = await lease(urls, slots=2)
    await report(urls, first, DEFERRED, now=T0, backs_off=True, retry_after_ms=MINUTE)
    await report(urls, second, DEFERRED, now=T0, backs_off=True, retry_after_ms=HOUR)
    assert (await gate(urls, DOMAIN)).backoff_level in (1, 2)
    await assert_opens_at(urls, T0 + HOUR)


async def test_a_blocked_gate_binds_every_crawl_until_it_is_unblocked(urls: UrlStore) -> None:
    """Invariant 7, Politeness is global: nothing before the block ends."""
    await urls.configure_gate(DOMAIN, GateSettings(blocked_until=T0 + DAY), now=T0)
    await a_polite_crawl(urls, "c")
    await a_polite_crawl(urls, "d", delay_ms=0)
    for crawl in ("c", "d", None):
        grant = await ask(urls, crawl)
        assert (grant.leases, grant.next_ready_at) == ([], T0 + DAY)
    assert await lease(urls, None, now=T0 + DAY - 1) == []
    unblocked = await urls.configure_gate(DOMAIN, GateSettings(blocked_until=0), now=T0)
    assert unblocked.blocked_until == 0
    await lease_one(urls, None)


async def test_a_gate_keeps_what_is_not_set_anew(urls: UrlStore) -> None:
    """Invariant 7, Politeness is durable."""
    assert await urls.get_gate("www.a.example") is None
    chosen = GateSettings(delay_ms=7, concurrency=2, blocked_until=T0, band=3)
    made = await urls.configure_gate("https://WWW.a.example/page", chosen, now=T0)
    assert made == Gate(domain=DOMAIN, delay_ms=7, concurrency=2, blocked_until=T0, band=3)
    assert await urls.configure_gate(DOMAIN, GateSettings(delay_ms=8), now=T0) == await gate(urls, DOMAIN)
    assert await gate(urls, DOMAIN) == Gate(domain=DOMAIN, delay_ms=8, concurrency=2, blocked_until=T0, band=3)


async def test_a_refused_lease_gives_its_place_back(urls: UrlStore) -> None:
    """Invariant 7, Politeness: nothing was sent, so the clocks stand as before."""
    await a_polite_crawl(urls)
    await report(urls, await lease_one(urls), now=T0)
    before = await gate(urls, DOMAIN)
    assert before.next_fetch_at == T0 + 10 * SECOND
    leased = await lease_one(urls, now=T0 + MINUTE)
    assert (await gate(urls, DOMAIN)).next_fetch_at == T0 + MINUTE + 10 * SECOND
    await report(urls, leased, REFUSED, now=T0 + MINUTE, reason="robots", sent_after_ms=None)
    assert await gate(urls, DOMAIN) == before
    await lease_one(urls, now=T0 + MINUTE)


async def test_a_lease_that_is_refused_after_its_request_keeps_its_place(urls: UrlStore) -> None:
    """Invariant 7, Politeness: a page that redirects to itself is refused, but was asked for."""
    await a_polite_crawl(urls)
    await report(urls, await lease_one(urls), REFUSED, now=T0 + SECOND, sent_after_ms=500)
    await assert_opens_at(urls, T0 + 10 * SECOND + 500)


async def test_a_lease_of_which_nothing_was_sent_gives_its_place_back(urls: UrlStore) -> None:
    """Invariant 7, Politeness: only request starts count."""
    await a_polite_crawl(urls)
    leased = await lease_one(urls)
    await report(urls, leased, DEFERRED, now=T0 + SECOND, sent_after_ms=None)
    await lease_one(urls, now=T0 + SECOND)


async def test_a_place_is_not_given_back_over_a_later_request(urls: UrlStore) -> None:
    """Invariant 7, Politeness: never sooner than the delay after the last request start."""
    await a_polite_crawl(urls, concurrency=3)
    first = await lease_one(urls)
    second = await lease_one(urls, now=T0 + 10 * SECOND)
    await report(urls, first, REFUSED, now=T0 + 11 * SECOND, sent_after_ms=None)
    assert (await gate(urls, DOMAIN)).next_fetch_at == T0 + 20 * SECOND
    await report(urls, second, now=T0 + 15 * SECOND, sent_after_ms=4 * SECOND)
    await assert_opens_at(urls, T0 + 24 * SECOND)


async def test_a_place_is_not_given_back_over_a_request_that_started_late(urls: UrlStore) -> None:
    """Invariant 7, Politeness: never sooner than the delay after the last request start."""
    await a_polite_crawl(urls, concurrency=2)
    late = await lease_one(urls)
    unsent = await lease_one(urls, now=T0 + 10 * SECOND)
    await report(urls, late, now=T0 + 11 * SECOND, sent_after_ms=9 * SECOND)
    await report(urls, unsent, REFUSED, now=T0 + 12 * SECOND, sent_after_ms=None)
    await assert_opens_at(urls, T0 + 19 * SECOND)


async def test_a_lease_that_fell_silent_counts_as_a_request_just_now(urls: UrlStore) -> None:
    """Invariant 7, Politeness: a worker of which nothing was heard may have sent its request."""
    await a_polite_crawl(urls)
    await lease_one(urls)
    assert await lease(urls, now=T0 + 2 * MINUTE + SECOND) == []
    assert len(await urls.reap(now=T0 + 3 * MINUTE)) == 1
    await assert_opens_at(urls, T0 + 3 * MINUTE + 10 * SECOND)


async def test_a_released_lease_counts_as_a_request_just_now(urls: UrlStore) -> None:
    """Invariant 7, Politeness: an orderly stop may come in the middle of a request."""
    await a_polite_crawl(urls)
    leased = await lease_one(urls)
    assert await urls.release(worker="w", now=T0 + 30 * SECOND) == [leased.token]
    again = await assert_opens_at(urls, T0 + 40 * SECOND)
    assert again.url == leased.url


async def test_the_next_ready_time_leads_to_the_opening_of_the_gate(urls: UrlStore) -> None:
    """Invariant 7, Politeness: a worker that sleeps until `next_ready_at` misses nothing."""
    await a_polite_crawl(urls, pages=4)
    await report(urls, await lease_one(urls), now=T0, sent_after_ms=0)
    leased, at = await wait_for_lease(urls, now=T0)
    assert at == T0 + 10 * SECOND
    await report(urls, leased, DEFERRED, now=at, backs_off=True, retry_after_ms=MINUTE)
    leased, at = await wait_for_lease(urls, now=at)
    assert at == T0 + 10 * SECOND + MINUTE
    ends_at = at + 2 * MINUTE
    grant = await ask(urls, now=at)
    assert (grant.leases, grant.next_ready_at) == ([], ends_at), "not before the lease in the way has ended"
    assert await urls.reap(now=ends_at) == [leased.token]
    _, at = await wait_for_lease(urls, now=ends_at)
    assert at == ends_at + 10 * SECOND


async def test_closed_gates_do_not_hide_an_open_one(urls: UrlStore) -> None:
    """Invariant 7, Politeness: however many queues wait, what is ready is found at once."""
    await create(urls)
    await add(urls, *(f"http://{number}.shut.example/" for number in range(300)), now=T0 - SECOND)
    for number in range(300):
        await urls.configure_gate(f"{number}.shut.example", GateSettings(blocked_until=T0 + DAY), now=T0 - SECOND)
    await add(urls, "http://open.example/")
    leased, at = await wait_for_lease(urls, now=T0)
    assert leased.domain == "open.example"
    assert at < T0 + 100
    grant = await ask(urls, now=T0 + SECOND)
    assert grant.leases == []


async def test_clocks_survive_a_restart(place: Place) -> None:
    """Invariant 7, Politeness is durable: a new process keeps the delays and back-offs of the old one."""
    async with await open_store(place.dsn, STEADY) as stores:
        await a_polite_crawl(stores.urls)
        await add(stores.urls, "http://b.example/")
        for leased in await lease(stores.urls, slots=5):
            if leased.domain == DOMAIN:
                await report(stores.urls, leased, now=T0, sent_after_ms=0)
            else:
                await report(stores.urls, leased, DEFERRED, now=T0, backs_off=True, retry_after_ms=MINUTE)
        before = [await gate(stores.urls, domain) for domain in (DOMAIN, "b.example")]
    async with await open_store(place.dsn, STEADY) as stores:
        assert [await gate(stores.urls, domain) for domain in (DOMAIN, "b.example")] == before
        leased = await assert_opens_at(stores.urls, T0 + 10 * SECOND)
    async with await open_store(place.dsn, STEADY) as stores:
        held = await task(stores.urls, leased.url)
        assert held.last_heartbeat == T0 + 10 * SECOND
        blocked = await lease(stores.urls, slots=5, now=T0 + MINUTE + 10 * SECOND)
        assert [each.domain for each in blocked] == ["b.example"], "the lease of the old process is still in the way"
        await report(stores.urls, leased, now=T0 + MINUTE + 10 * SECOND, sent_after_ms=0)
        await lease_one(stores.urls, now=T0 + MINUTE + 10 * SECOND)
