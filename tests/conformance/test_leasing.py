"""Leasing: who gets which task when, and that nobody else has it."""

from types import SimpleNamespace

import msgspec
import pytest

from outrider.model import identifiers
from outrider.model.gate import GateSettings
from outrider.model.lease import LeaseRequest, NoWork, Renewal, Verdict
from outrider.model.machines import TaskState
from outrider.model.settings import Settings
from outrider.model.task import CrawlState, DiscoveryType, Kind, QueueSettings, TaskFilter
from outrider.store.protocols import UrlStore
from tests.conformance.acting import (
    DEFERRED,
    FAILED,
    MINUTE,
    REFUSED,
    SECOND,
    T0,
    add,
    ask,
    check_counts,
    create,
    found,
    lease,
    lease_one,
    report,
    saying,
    state,
    task,
    wait_for_lease,
)


async def test_a_lease_carries_all_that_the_fetch_needs(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: the lease is the right to fetch."""
    await create(urls)
    item = found("http://www.a.example/", depth=2, priority=5, kind=Kind.IMAGE, metadata={"m": 1})
    await add(urls, item)
    leased = await lease_one(urls)
    assert len(bytes.fromhex(leased.token)) == 16
    assert msgspec.structs.asdict(leased) == {
        "token": leased.token, "crawl": "c", "key": "a.example", "url": item.url, "domain": "a.example",
        "kind": Kind.IMAGE, "depth": 2, "priority": 5, "attempt": 1, "discovery_type": DiscoveryType.LINK,
        "lease_ms": 120 * SECOND, "etag": None, "last_modified": None, "digest": None, "similarity": None,
        "robots_version": None,
        "metadata": {"m": 1},
    }  # fmt: skip


async def test_a_leased_task_is_assigned_with_a_heartbeat_until_its_report(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity, and Invariant 6, Counts are exact."""
    await create(urls)
    await add(urls, "http://a.example/")
    leased = await lease_one(urls, now=T0 + 5)
    stored = await task(urls, leased.url)
    assert (stored.state, stored.last_heartbeat) == (TaskState.ASSIGNED, T0 + 5)
    assert await urls.renew([leased.token], now=T0 + 9) == [Renewal.OK]
    assert (await task(urls, leased.url)).last_heartbeat == T0 + 9
    assert (await check_counts(urls)).assigned == 1
    await report(urls, leased, now=T0 + 10)
    stored = await task(urls, leased.url)
    assert (stored.state, stored.last_heartbeat) == (TaskState.COMPLETED, None)


def test_the_defaults_are_those_of_the_frontier_phase() -> None:
    """Invariant 2, Exclusivity ends with CRASH_THRESHOLD; Invariant 3, Attempts are bounded by MAX_RETRIES."""
    assert (Settings().crash_threshold_ms, Settings().max_retries) == (120 * SECOND, 3)


async def test_a_lease_lasts_as_long_as_was_asked_for(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: a lease that has ended is nobody's."""
    await create(urls)
    await add(urls, "http://a.example/1", "http://a.example/2")
    short, default = await lease_one(urls, lease_ms=SECOND), await lease_one(urls)
    assert (short.lease_ms, default.lease_ms) == (SECOND, 120 * SECOND)
    assert await urls.reap(now=T0 + SECOND - 1) == []
    assert await urls.reap(now=T0 + SECOND) == [short.token]
    assert await urls.reap(now=T0 + 120 * SECOND - 1) == []
    assert await urls.reap(now=T0 + 120 * SECOND) == [default.token]


async def test_attempts_count_every_lease_and_never_fall(urls: UrlStore) -> None:
    """Invariant 3, Attempts: the number of times that the task entered ASSIGNED."""
    await create(urls)
    await add(urls, "http://a.example/")
    now = T0
    for attempt in range(1, 9):
        leased = await lease_one(urls, now=now)
        stored = await task(urls, leased.url)
        assert leased.attempt == stored.attempt_count == attempt
        match attempt:
            case 1 | 2:
                await report(urls, leased, FAILED, now=now)
            case 3:
                await report(urls, leased, DEFERRED, now=now)
            case 4:
                await urls.release([leased.token], now=now)
            case 5:
                assert await urls.reap(now=now + 2 * MINUTE) == [leased.token]
            case 6:
                await report(urls, leased, REFUSED, now=now)
                assert await urls.retry_failed("c", now=now) == 1
            case _:
                await urls.renew([leased.token], now=now)
                await report(urls, leased, DEFERRED, now=now)
        assert (await task(urls, leased.url)).attempt_count == attempt
        now += 5 * MINUTE


async def test_within_a_queue_priority_comes_first_and_then_discovery(urls: UrlStore) -> None:
    """Invariant 7, Politeness is global: the queue decides what goes through its gate."""
    await create(urls)
    await add(urls, found("http://a.example/1"), found("http://a.example/2", priority=1))
    await add(urls, found("http://a.example/3", priority=2), found("http://a.example/4", priority=1), now=T0 - SECOND)
    await add(urls, found("http://a.example/5", priority=2**31 - 1))
    served = [(await lease_one(urls)).url[-1] for _ in range(5)]
    assert served == ["5", "3", "2", "4", "1"]


async def test_a_delayed_task_is_not_served_before_it_is_due(urls: UrlStore) -> None:
    """Invariant 7, Politeness: nothing is served before its time."""
    await create(urls)
    await add(urls, found("http://a.example/later", due_in_ms=10 * SECOND, priority=9), "http://a.example/now")
    assert [each.url for each in await lease(urls, slots=5)] == ["http://a.example/now"]
    assert await lease(urls, slots=5, now=T0 + 10 * SECOND - 1) == []
    await add(urls, "http://a.example/new", now=T0 + 10 * SECOND)
    served = [each.url for each in await lease(urls, slots=5, now=T0 + 10 * SECOND)]
    assert served == ["http://a.example/later", "http://a.example/new"]


async def test_the_next_ready_time_leads_to_the_moment_when_something_is_due(urls: UrlStore) -> None:
    """Invariant 7, Politeness: a worker that sleeps until `next_ready_at` misses nothing."""
    await create(urls)
    await add(urls, found("http://a.example/", due_in_ms=7 * SECOND), found("http://b.example/", due_in_ms=9_001))
    first, first_at = await wait_for_lease(urls, now=T0)
    assert (first.url, first_at) == ("http://a.example/", T0 + 7 * SECOND)
    second, second_at = await wait_for_lease(urls, None, now=first_at)
    assert (second.url, second_at) == ("http://b.example/", T0 + 9_001)


async def test_the_next_ready_time_is_none_in_the_end_where_nothing_is_known_to_come(urls: UrlStore) -> None:
    """Invariant 7, Politeness: a drained queue sleeps until something happens to it."""
    await create(urls)
    await add(urls, "http://a.example/")
    await report(urls, await lease_one(urls), now=T0)
    grant, now, looks = await ask(urls), T0, 0
    while grant.next_ready_at is not None:  # a store may look a few times before it believes that a queue is empty
        assert (grant.leases, grant.no_work) == ([], NoWork.WAITING)
        now, looks = max(now + 1, grant.next_ready_at), looks + 1
        assert looks < 2_000
        grant = await ask(urls, now=now)
    await add(urls, "http://a.example/new", now=now)
    assert (await lease_one(urls, now=now)).url == "http://a.example/new"


async def test_higher_bands_are_served_first_however_long_others_have_been_ready(urls: UrlStore) -> None:
    """Invariant 7, Politeness: the order in which gates are visited."""
    await create(urls)
    await add(urls, "http://plain.example/", now=T0 - MINUTE)
    for key, priority in (("low", -3), ("high", 3), ("highest", 100)):
        await add(urls, f"http://{key}.example/", now=T0 - SECOND)
        await urls.configure_queue("c", f"{key}.example", QueueSettings(priority=priority), now=T0)
    await add(urls, "http://gate.example/")
    await urls.configure_gate("gate.example", GateSettings(band=0), now=T0)
    served = [(await lease_one(urls)).domain.removesuffix(".example") for _ in range(5)]
    assert served == ["gate", "highest", "high", "plain", "low"]


async def test_the_band_of_a_gate_holds_where_the_queue_has_no_priority_of_its_own(urls: UrlStore) -> None:
    """Invariant 7, Politeness is global: a gate's band binds the queues of every crawl."""
    await create(urls)
    await create(urls, "d")
    await urls.configure_gate("a.example", GateSettings(band=0), now=T0)
    await urls.configure_queue("d", "a.example", QueueSettings(delay_ms=5), now=T0)
    for crawl in ("c", "d"):
        await add(urls, "http://b.example/", "http://a.example/", crawl=crawl)
        assert [queue.band for queue in await urls.list_queues(crawl)] == [0, 8]
    await urls.configure_queue("c", "a.example", QueueSettings(priority=-100), now=T0)
    await urls.configure_gate("a.example", GateSettings(band=2), now=T0)
    assert [queue.band for queue in await urls.list_queues("c")] == [15, 8]
    assert [queue.band for queue in await urls.list_queues("d")] == [2, 8]
    await urls.configure_queue("c", "a.example", QueueSettings(), now=T0)
    assert [queue.band for queue in await urls.list_queues("c")] == [2, 8]


async def test_queues_take_turns(urls: UrlStore) -> None:
    """Invariant 7, Politeness: the queue is the unit of rotation and fairness."""
    await create(urls)
    for number in range(3):
        await add(urls, *(f"http://{letter}.example/{number}" for letter in "abc"))
    served = [(await lease_one(urls, now=T0 + turn)).domain[0] for turn in range(1, 10)]
    assert sorted(served[:3]) == ["a", "b", "c"]
    assert served == served[:3] * 3


async def test_an_answer_has_no_more_than_the_slots_and_from_a_queue_no_more_than_asked(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: a worker holds no lease that it did not ask for."""
    await create(urls)
    for number in range(4):
        await add(urls, *(f"http://{letter}.example/{number}" for letter in "ab"))
    assert len(await lease(urls, slots=1)) == 1
    assert sorted(each.domain for each in await lease(urls, slots=7, max_per_queue=1)) == ["a.example", "b.example"]
    grant = await ask(urls, slots=2)
    assert (len(grant.leases), grant.no_work) == (2, None)
    grant = await ask(urls, slots=10)
    assert (len(grant.leases), grant.no_work) == (3, NoWork.WAITING)
    assert (await check_counts(urls)).assigned == 8


async def test_the_same_request_is_given_the_same_leases_again(urls: UrlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 5, Nothing lost: a lost reply strands nothing."""
    monkeypatch.setattr(identifiers, "time", SimpleNamespace(time_ns=lambda: T0 * 1_000_000))
    for crawl in ("c", "d"):
        await create(urls, crawl)
        pages = [found(f"http://{crawl}{number}.example/", metadata={"n": number}) for number in range(20)]
        await add(urls, *pages, crawl=crawl)
    request = LeaseRequest(worker="w", request_id="r", slots=40)
    first = (await urls.lease(request, now=T0)).leases
    assert len(first) == 40
    again = (await urls.lease(request, now=T0 + SECOND)).leases
    assert [each.token for each in again] == [each.token for each in first], "in the same order"
    left = [msgspec.structs.replace(each, lease_ms=119 * SECOND) for each in first]
    assert again == left

    await urls.report([saying(each) for each in first[:5]], now=T0 + SECOND)
    assert (await urls.lease(request, now=T0 + SECOND)).leases == left[5:]
    other = msgspec.structs.replace(request, worker="v")
    assert (await urls.lease(other, now=T0 + SECOND)).leases == []
    assert (await check_counts(urls, "c")).assigned + (await check_counts(urls, "d")).assigned == 35


async def test_leases_that_have_ended_are_not_given_again(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: what a repeated request is given is live."""
    await create(urls)
    await add(urls, "http://a.example/1", "http://a.example/2")
    first = await lease_one(urls, request_id="r")
    second = await lease_one(urls, request_id="r", now=T0 + 2 * MINUTE)
    assert (first.url, second.url) == ("http://a.example/1", "http://a.example/2")


async def test_tokens_are_never_used_twice(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: a token names one lease for ever."""
    await create(urls)
    await add(urls, *(f"http://a.example/{number}" for number in range(20)))
    tokens = []
    for _ in range(4):
        leases = await lease(urls, slots=20, request_id="always the same", now=T0)
        tokens += [each.token for each in leases]
        await urls.release([each.token for each in leases], now=T0)
    assert len(tokens) == len(set(tokens)) == 80


async def test_one_url_is_leased_once_over_all_crawls(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: at most one live lease per URL, over all crawls and workers."""
    for crawl in ("c", "d"):
        await create(urls, crawl)
        await add(urls, "http://a.example/x", crawl=crawl)
    held = await lease_one(urls, "c")
    assert await lease(urls, "d") == []
    assert await state(urls, "http://a.example/x", "d") is TaskState.PENDING
    assert (await task(urls, "http://a.example/x", "d")).attempt_count == 0
    await add(urls, "http://a.example/y", crawl="d")
    assert (await lease_one(urls, "d")).url == "http://a.example/y"
    await report(urls, held, now=T0 + SECOND)
    assert (await lease_one(urls, "d", now=T0 + SECOND)).url == "http://a.example/x"
    await check_counts(urls, "d")


async def test_one_url_is_leased_once_over_all_keys(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity."""
    await create(urls)
    await add(urls, found("http://a.example/"), found("http://a.example/", key="k"))
    (held,) = await lease(urls, slots=10)
    assert await lease(urls, slots=10, now=T0 + 10 * SECOND) == []
    assert (await check_counts(urls)).assigned == 1
    await report(urls, held, now=T0 + 20 * SECOND)
    assert (await lease_one(urls, now=T0 + 20 * SECOND)).key != held.key


async def test_a_url_that_is_leased_elsewhere_holds_up_nothing_else_of_its_domain(urls: UrlStore) -> None:
    """Invariant 7, Politeness: only a request that starts moves the clocks of a gate."""
    for crawl in ("c", "d"):
        await create(urls, crawl, delay_ms=SECOND, concurrency=2)
    await add(urls, "http://a.example/x", crawl="c")
    await add(urls, found("http://a.example/x", priority=9), "http://a.example/y", crawl="d")
    await lease_one(urls, "c", lease_ms=10 * MINUTE)
    leased, at = await wait_for_lease(urls, "d", now=T0 + SECOND)
    assert leased.url == "http://a.example/y"
    assert at < T0 + 2 * SECOND


@pytest.mark.parametrize(
    ("halted", "reason"),
    [(CrawlState.PAUSED, NoWork.PAUSED), (CrawlState.CANCELLED, NoWork.CANCELLED)],
)
async def test_a_crawl_that_does_not_run_gives_no_work(urls: UrlStore, halted: CrawlState, reason: NoWork) -> None:
    """Invariant 5, Nothing lost: what is in flight may still be reported, with its links."""
    await create(urls)
    await add(urls, "http://a.example/1", "http://a.example/2")
    leased = await lease_one(urls)
    assert (await urls.set_crawl_state("c", halted)).state is halted
    grant = await ask(urls)
    assert (grant.leases, grant.no_work) == ([], reason)
    assert await lease(urls, None) == []
    assert await urls.renew([leased.token], now=T0) == [Renewal.OK]
    assert (await report(urls, leased, now=T0, links=[found("http://b.example/")])).verdict is Verdict.COMPLETED
    assert await state(urls, "http://b.example/") is TaskState.PENDING
    await urls.set_crawl_state("c", CrawlState.RUNNING)
    assert len(await lease(urls, slots=5)) == 2


async def test_leases_from_any_crawl_rotate_over_the_crawls(urls: UrlStore) -> None:
    """Invariant 7, Politeness is global: no crawl starves another."""
    for crawl in ("c", "d", "e"):
        await create(urls, crawl)
        await add(urls, *(f"http://{crawl}.example/{number}" for number in range(3)), crawl=crawl)
    served = [(await lease_one(urls, None)).crawl for _ in range(9)]
    assert sorted(served[:3]) == ["c", "d", "e"]
    assert served == served[:3] * 3
    grant = await ask(urls, None)
    assert (grant.leases, grant.no_work) == ([], NoWork.WAITING)


async def test_a_queue_of_several_domains_obeys_the_gate_of_each(urls: UrlStore) -> None:
    """Invariant 7, Politeness is that of the domain, whatever key a client gives its tasks."""
    await create(urls, delay_ms=10 * SECOND, concurrency=1)
    await add(urls, *(found(f"http://{letter}.example/{n}", key="k") for n in range(2) for letter in "ab"))
    assert [queue.domain for queue in await urls.list_queues("c")] == [None]
    first = await lease(urls, slots=10)
    assert [each.url for each in first] == ["http://a.example/0", "http://b.example/0"]
    await urls.report([saying(each) for each in first], now=T0)
    await urls.configure_gate("b.example", GateSettings(blocked_until=T0 + MINUTE), now=T0)
    assert await lease(urls, slots=10, now=T0 + 10 * SECOND - 1) == []
    second, at = await wait_for_lease(urls, now=T0 + 10 * SECOND)
    assert (second.url, at) == ("http://a.example/1", T0 + 10 * SECOND)
    assert await lease(urls, slots=10, now=T0 + MINUTE - 1) == []
    third, at = await wait_for_lease(urls, now=T0 + MINUTE)
    assert third.url == "http://b.example/1"
    assert at <= T0 + MINUTE + SECOND
    assert [row.key for row in (await urls.list_tasks("c", TaskFilter(state=TaskState.ASSIGNED))).tasks] == ["k"] * 2


async def test_a_queue_of_one_domain_that_gets_another_obeys_both_gates(urls: UrlStore) -> None:
    """Invariant 7, Politeness is that of the domain."""
    await create(urls, delay_ms=10 * SECOND, concurrency=1)
    await add(urls, found("http://a.example/0", key="k"), found("http://a.example/1", key="k"))
    await report(urls, await lease_one(urls), now=T0)
    assert await lease(urls, slots=10) == []
    await add(urls, found("http://b.example/0", key="k"), found("http://b.example/1", key="k"))
    leased, at = await wait_for_lease(urls, now=T0)
    assert leased.domain == "b.example"
    assert at < T0 + 10 * SECOND
    await check_counts(urls)


async def test_a_blocked_domain_at_the_head_of_a_mixed_queue_does_not_hold_up_the_rest(urls: UrlStore) -> None:
    """Invariant 7, Politeness: a gate closes its own domain and no other."""
    await create(urls)
    await add(urls, *(found(f"http://shut.example/{number}", key="k") for number in range(100)))
    await add(urls, found("http://open.example/", key="k"))
    await urls.configure_gate("shut.example", GateSettings(blocked_until=T0 + 90 * 24 * 60 * MINUTE), now=T0)
    assert [leased.url for leased in await lease(urls, now=T0 + SECOND)] == ["http://open.example/"]
