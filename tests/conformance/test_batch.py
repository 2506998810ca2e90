"""Batch mode: serving by URLFrontier's rules, and setting what its clients know."""

import pytest

from outrider.model.batch import KnownUrl, QueueChange, Served, ServeRequest, UrlFilter, priority_of
from outrider.model.errors import InvalidInput, UnknownCrawl
from outrider.model.gate import GateSettings
from outrider.model.lease import LeaseRequest, Outcome, Report, Verdict
from outrider.model.machines import TaskState
from outrider.model.settings import Settings
from outrider.model.task import Added, CrawlLimits, CrawlRules, CrawlState, Discovered, KeyRule, QueueSettings, Refusal
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from outrider.store.sql.urls import listing
from tests.conformance.backends import Place
from tests.recount import check_counts

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
SECOND = 1000
OPEN = CrawlLimits(delay_ms=0, robots=False)


async def make(urls: UrlStore, *crawls: str, delay_ms: int = 0) -> None:
    rules, limits = CrawlRules(key_rule=KeyRule.HOST), CrawlLimits(delay_ms=delay_ms, robots=False)
    for name in crawls or ("c",):
        await urls.create_crawl(name, rules, limits, now=NOW)


def page(number: int, host: str = "a.org") -> str:
    return f"https://{host}/{number}"


async def discover(urls: UrlStore, *found: str, crawl: str = "c", key: str | None = None, now: int = NOW) -> None:
    await urls.add(crawl, [Discovered(url=url, key=key, priority=priority_of(now)) for url in found], now=now)


async def served(
    urls: UrlStore, now: int = NOW, *, per_queue: int | None = 10, crawl: str | None = "c", key: str | None = None,
    max_queues: int | None = None, lease_ms: int = 30 * SECOND,
) -> list[str]:  # fmt: skip
    request = ServeRequest(crawl=crawl, key=key, max_urls_per_queue=per_queue, max_queues=max_queues, lease_ms=lease_ms)
    return [each.url for each in await urls.serve(request, now=now)]


async def know(urls: UrlStore, url: str, due_at: int | None, now: int = NOW, crawl: str = "c") -> Added:
    (result,) = await urls.put_known(crawl, [KnownUrl(url=url, due_at=due_at)], now=now)
    return result.outcome


# ------------------------------------------------------------------ order


async def test_a_queue_gives_its_urls_by_date_and_then_in_the_order_of_insertion(urls: UrlStore) -> None:
    await make(urls)
    await discover(urls, page(1), page(2))
    dates = {3: NOW + 2 * SECOND, 4: 7_000, 5: 3_000, 6: 7_000, 7: NOW - HOUR_MS, 8: NOW + SECOND, 9: NOW + SECOND}
    await urls.put_known("c", [KnownUrl(url=page(n), due_at=date) for n, date in dates.items()], now=NOW)
    await discover(urls, page(10), now=NOW + SECOND)
    expected = [page(n) for n in (5, 4, 6, 7, 1, 2, 8, 9, 10, 3)]
    assert await served(urls, NOW + 2 * SECOND, per_queue=4) == expected[:4]
    assert await served(urls, NOW + 2 * SECOND, per_queue=10) == expected[4:]


async def test_a_url_whose_date_is_moved_stands_where_its_new_date_belongs(urls: UrlStore) -> None:
    await make(urls)
    await discover(urls, page(1), page(2), page(3))
    await know(urls, page(3), 1_000)
    await know(urls, page(1), NOW + HOUR_MS)
    assert await served(urls) == [page(3), page(2)]
    assert await served(urls, NOW + HOUR_MS) == [page(1)]


async def test_queues_take_turns(urls: UrlStore) -> None:
    await make(urls)
    hosts = [f"h{n}.org" for n in range(6)]
    await discover(urls, *(page(n, host) for n in range(2) for host in hosts))
    first = [await served(urls, NOW + n, per_queue=1, max_queues=2) for n in (1, 2, 3)]
    assert sorted(url for batch in first for url in batch) == [page(0, host) for host in hosts]


async def test_crawls_take_turns_where_none_is_named(urls: UrlStore) -> None:
    await make(urls, "one", "two")
    for name in ("one", "two"):
        await discover(urls, *(page(0, f"{name}{n}.org") for n in range(4)), crawl=name)
    request = ServeRequest(max_queues=2)
    crawls = [{each.crawl for each in await urls.serve(request, now=NOW + n)} for n in range(4)]
    assert crawls == [{"one"}, {"two"}, {"one"}, {"two"}]
    assert await urls.serve(request, now=NOW + 5) == []


async def test_one_batch_may_come_from_several_crawls(urls: UrlStore) -> None:
    await make(urls, "one", "two")
    await discover(urls, page(0, "one.org"), crawl="one")
    await discover(urls, page(0, "two.org"), crawl="two")
    assert {each.crawl for each in await urls.serve(ServeRequest(), now=NOW)} == {"one", "two"}


async def test_a_queue_can_be_named_also_without_its_crawl(urls: UrlStore) -> None:
    await make(urls, "one", "two")
    await discover(urls, page(0, "x.org"), page(1, "y.org"), crawl="one")
    await discover(urls, page(2, "y.org"), crawl="two")
    assert await served(urls, crawl="one", key="y.org") == [page(1, "y.org")]
    assert await served(urls, crawl=None, key="y.org") == [page(2, "y.org")]
    assert await served(urls, crawl=None, key="nobody.org") == []


# ----------------------------------------------------------------- limits


async def test_no_limits_mean_everything_up_to_the_largest_batch(urls: UrlStore) -> None:
    await make(urls)
    await discover(urls, *(page(n, "big.org") for n in range(300)), *(page(n, f"s{n}.org") for n in range(100)))
    assert len(await urls.serve(ServeRequest(crawl="c", max_urls=150), now=NOW)) == 150
    assert len(await urls.serve(ServeRequest(crawl="c"), now=NOW + 1)) == 250


async def test_at_most_so_many_queues_with_so_many_urls_each_are_served(urls: UrlStore) -> None:
    await make(urls)
    await discover(urls, *(page(n, f"h{host}.org") for n in range(5) for host in range(100)))
    batch = await urls.serve(ServeRequest(crawl="c", max_urls_per_queue=3, max_queues=70), now=NOW)
    keys = [each.key for each in batch]
    assert len(set(keys)) == 70
    assert {keys.count(key) for key in keys} == {3}


async def test_a_queue_waits_for_its_delay_since_it_was_last_served(urls: UrlStore) -> None:
    await make(urls, delay_ms=1000)
    await discover(urls, page(1), page(2), page(3))
    assert await served(urls, per_queue=None, key="a.org") == [page(1), page(2), page(3)]
    await discover(urls, page(4))
    assert await served(urls, NOW + 999) == []
    assert await served(urls, NOW + 1000) == [page(4)]


async def test_a_queue_that_had_nothing_to_give_is_not_penalised(urls: UrlStore) -> None:
    await make(urls, delay_ms=60_000)
    await know(urls, page(1), NOW + 5)
    assert await served(urls) == []
    assert await served(urls, NOW + 5) == [page(1)]


async def test_queues_that_were_woken_in_their_delay_do_not_hide_one_that_is_ready(urls: UrlStore) -> None:
    await make(urls, delay_ms=60_000)
    busy = [page(1, f"busy{n}.org") for n in range(500)]
    await discover(urls, *busy)
    assert len(await served(urls, NOW + 1)) == 500
    await discover(urls, page(1, "ready.org"), now=NOW + 2)
    await urls.put_known("c", [KnownUrl(url=url, due_at=1_000) for url in busy], now=NOW + 3)
    assert await served(urls, NOW + 4, max_queues=1) == [page(1, "ready.org")]


async def test_a_queues_own_delay_goes_before_its_crawls_and_holds_before_its_first_url(urls: UrlStore) -> None:
    await make(urls, delay_ms=60_000)
    await urls.change_queue("c", "a.org", QueueChange(delay_ms=10), now=NOW)
    await discover(urls, page(1), page(2))
    assert await served(urls, per_queue=None, max_queues=1) == [page(1), page(2)]
    await discover(urls, page(3))
    assert await served(urls, NOW + 9) == []
    assert await served(urls, NOW + 10) == [page(3)]
    await urls.set_crawl_limits("c", CrawlLimits(delay_ms=20, robots=False))
    await urls.change_queue("c", "a.org", QueueChange(delay_ms=None), now=NOW)
    await discover(urls, page(4))
    assert await served(urls, NOW + 29) == []
    assert await served(urls, NOW + 30) == [page(4)]


async def test_a_queue_with_as_many_in_flight_as_a_client_wants_of_each_is_passed_over(urls: UrlStore) -> None:
    await make(urls)
    await discover(urls, *(page(n) for n in range(9)))
    assert await served(urls, per_queue=2) == [page(0), page(1)]
    assert await served(urls, NOW + 1, per_queue=2) == []
    await know(urls, page(0), None, NOW + 2)
    assert await served(urls, NOW + 2, per_queue=2) == [page(2), page(3)]
    assert await served(urls, NOW + 3, per_queue=2) == []
    assert await served(urls, NOW + 3, per_queue=4, key="a.org") == [page(n) for n in range(4, 8)], (
        "three are in flight"
    )


async def test_a_client_that_allows_more_in_flight_finds_a_full_queue_in_the_end(urls: UrlStore) -> None:
    await make(urls)
    await discover(urls, *(page(n) for n in range(9)))
    assert await served(urls, per_queue=2) == [page(0), page(1)]
    assert await served(urls, NOW + 1, per_queue=2) == []
    assert await served(urls, NOW + 5001, per_queue=4) == [page(n) for n in range(2, 6)]


async def test_a_queue_stops_once_as_many_are_completed_as_its_limit(urls: UrlStore) -> None:
    await make(urls)
    await urls.change_queue("c", "a.org", QueueChange(page_limit=2), now=NOW)
    await discover(urls, *(page(n) for n in range(6)))
    assert await served(urls, per_queue=3) == [page(0), page(1), page(2)]
    await know(urls, page(0), None)
    assert await served(urls, NOW + 1, per_queue=3) == [page(3), page(4), page(5)], "one is completed"
    await know(urls, page(1), None)
    await know(urls, page(2), 5_000)
    assert await served(urls, NOW + 2, per_queue=9) == []
    await urls.change_queue("c", "a.org", QueueChange(page_limit=None), now=NOW)
    assert await served(urls, NOW + 3, per_queue=9) == [page(2)]


async def test_a_completed_url_that_is_due_again_leaves_room_below_the_limit(urls: UrlStore) -> None:
    await make(urls)
    await urls.change_queue("c", "a.org", QueueChange(page_limit=1), now=NOW)
    await discover(urls, page(1))
    await know(urls, page(2), None)
    assert await served(urls) == []
    await know(urls, page(2), 1_000)
    assert await served(urls) == [page(2), page(1)]


async def test_a_blocked_queue_gives_nothing_until_its_block_ends_or_is_lifted(urls: UrlStore) -> None:
    await make(urls)
    await urls.change_queue("c", "a.org", QueueChange(blocked_until=NOW + 100), now=NOW)
    await discover(urls, page(1), page(2))
    assert await served(urls, NOW + 99) == []
    assert await served(urls, NOW + 100, per_queue=1) == [page(1)]
    await urls.change_queue("c", "a.org", QueueChange(blocked_until=NOW + HOUR_MS), now=NOW)
    assert await served(urls, NOW + 200) == []
    await urls.change_queue("c", "a.org", QueueChange(blocked_until=0), now=NOW)
    assert await served(urls, NOW + 200) == [page(2)]


async def test_a_change_of_one_override_leaves_the_others(urls: UrlStore) -> None:
    await make(urls)
    await urls.configure_queue("c", "a.org", QueueSettings(delay_ms=5, priority=3), now=NOW)
    await urls.change_queue("c", "a.org", QueueChange(page_limit=7), now=NOW)
    await urls.change_queue("c", "a.org", QueueChange(blocked_until=9), now=NOW)
    (queue,) = await urls.list_queues("c")
    assert queue.settings == QueueSettings(delay_ms=5, blocked_until=9, page_limit=7, priority=3)


async def test_a_block_and_a_back_off_of_the_domain_hold_but_not_its_delay_and_concurrency(urls: UrlStore) -> None:
    await make(urls)
    gate = GateSettings(delay_ms=HOUR_MS, concurrency=1, blocked_until=NOW + 100)
    await urls.configure_gate("a.org", gate, now=NOW)
    await discover(urls, page(1), page(2), page(3))
    assert await served(urls, NOW + 99) == []
    assert await served(urls, NOW + 100, per_queue=2) == [page(1), page(2)]

    await urls.create_crawl("polite", limits=OPEN, now=NOW)
    await urls.configure_gate("a.org", GateSettings(concurrency=10, delay_ms=0), now=NOW)
    await discover(urls, page(9), crawl="polite")
    request = LeaseRequest(worker="w", request_id="r", slots=1, crawl="polite")
    (lease,) = (await urls.lease(request, now=NOW + 200)).leases
    report = Report(token=lease.token, outcome=Outcome.DEFERRED, backs_off=True, retry_after_ms=60_000)
    await urls.report([report], now=NOW + 200)
    assert await served(urls, NOW + 60_000, per_queue=None) == []
    assert await served(urls, NOW + 60_200, per_queue=None) == [page(3)]


async def test_a_queue_of_several_domains_is_not_held_up_by_one_that_is_blocked(urls: UrlStore) -> None:
    await make(urls)
    await urls.configure_gate("a.org", GateSettings(blocked_until=NOW + HOUR_MS), now=NOW)
    await discover(urls, *(page(n) for n in range(30)), page(0, "b.org"), key="mine")
    assert await served(urls, per_queue=3) == [page(0, "b.org")]
    assert await served(urls, NOW + 1, per_queue=3) == []
    assert len(await served(urls, NOW + HOUR_MS, per_queue=3)) == 3


async def test_a_crawl_that_is_paused_or_a_frontier_that_is_inactive_gives_nothing(place: Place) -> None:
    async with await open_store(place.dsn) as stores:
        await make(stores.urls)
        await discover(stores.urls, page(1))
        assert await stores.urls.is_active()
        await stores.urls.set_active(False)
    async with await open_store(place.dsn) as stores:
        assert not await stores.urls.is_active(), "it is kept"
        assert await served(stores.urls) == []
        await stores.urls.set_active(True)
        await stores.urls.set_crawl_state("c", CrawlState.PAUSED)
        assert await served(stores.urls) == []
        assert await served(stores.urls, crawl=None) == []
        await stores.urls.set_crawl_state("c", CrawlState.RUNNING)
        assert await served(stores.urls) == [page(1)]


async def test_what_cannot_be_asked_for_is_refused(urls: UrlStore) -> None:
    await make(urls)
    for wrong in ({"max_queues": 0}, {"max_urls_per_queue": -1}, {"max_urls": 10_001}, {"lease_ms": 0}, {"key": ""}):
        with pytest.raises(InvalidInput):
            await urls.serve(ServeRequest(crawl="c", **wrong), now=NOW)
    with pytest.raises(UnknownCrawl):
        await urls.serve(ServeRequest(crawl="nobody's"), now=NOW)
    with pytest.raises(InvalidInput, match="delay_ms"):
        await urls.change_queue("c", "a.org", QueueChange(delay_ms=-1))


# ----------------------------------------------------------------- leases


async def test_a_served_url_is_assigned_and_due_again_when_its_lease_expires_however_often(place: Place) -> None:
    few = Settings(max_lease_expiries=2)
    async with await open_store(place.dsn, few) as stores:
        urls = stores.urls
        await make(urls)
        await discover(urls, page(2))
        await know(urls, page(1), 4_000)
        for attempt in range(1, 6):
            moment = NOW + attempt * HOUR_MS
            assert await served(urls, moment, per_queue=9, lease_ms=500) == [page(1), page(2)], "its date is kept"
            task = await urls.find_task("c", page(1))
            assert task is not None
            assert (task.state, task.attempt_count) == (TaskState.ASSIGNED, attempt)
            assert (await urls.statistics("c", now=moment + 499)).in_process == 2
            assert (await urls.statistics("c", now=moment + 500)).in_process == 0
            assert await urls.reap(now=moment + 499) == []
            assert len(await urls.reap(most=1, now=moment + 500)) == 1
            assert len(await urls.reap(now=moment + 500)) == 1
            await check_counts(place)
        task = await urls.find_task("c", page(1))
        assert task is not None
        assert (task.state, task.expiries, task.due_at) == (TaskState.PENDING, 0, 4_000)


async def test_a_url_that_is_leased_in_one_crawl_is_not_served_in_another(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: at most one live lease per URL, over all crawls."""
    await make(urls, "one", "two")
    await discover(urls, page(1), page(2), crawl="one")
    await discover(urls, page(1), crawl="two")
    assert await served(urls, crawl="two") == [page(1)]
    assert await served(urls, crawl="one") == [page(2)]
    await know(urls, page(1), None, crawl="two")
    assert await served(urls, NOW + 1000, crawl="one") == [page(1)]


async def test_what_a_client_knows_ends_the_lease_of_a_worker(place: Place, urls: UrlStore) -> None:
    await urls.create_crawl("c", limits=OPEN, now=NOW)
    await discover(urls, page(1), page(2))
    request = LeaseRequest(worker="w", request_id="r", slots=1, crawl="c")
    (lease,) = (await urls.lease(request, now=NOW)).leases
    assert lease.url == page(1)
    assert await know(urls, page(1), 2_000) is Added.KNOWN
    (answer,) = await urls.report([Report(token=lease.token, outcome=Outcome.FAILED)], now=NOW + 1)
    assert answer.verdict is Verdict.LEASE_LOST
    await check_counts(place)
    again = (await urls.lease(LeaseRequest(worker="w", request_id="s", slots=9, crawl="c"), now=NOW + 2)).leases
    assert [each.url for each in again] == [page(1)], "the gate has one place, which is free again"


# ------------------------------------------------------------------ known


async def test_a_known_url_is_made_or_set_whatever_its_state(place: Place, urls: UrlStore) -> None:
    await make(urls)
    assert await know(urls, page(1), None) is Added.NEW
    await discover(urls, page(1), page(2))
    assert await served(urls) == [page(2)], "done is done, also for discoveries"
    assert await know(urls, page(2), None) is Added.KNOWN
    counts = await urls.counts("c")
    assert (counts.completed, counts.total) == (2, 2)
    assert await know(urls, page(2), NOW + 50) is Added.KNOWN
    assert await served(urls, NOW + 49) == []
    assert await served(urls, NOW + 50) == [page(2)]
    task = await urls.find_task("c", page(1))
    assert task is not None
    assert (task.state, task.http_status, task.attempt_count) == (TaskState.COMPLETED, None, 0)
    await check_counts(place)


async def test_metadata_are_replaced_also_by_nothing(urls: UrlStore) -> None:
    await make(urls)

    async def kept(*items: KnownUrl) -> list[object]:
        await urls.put_known("c", items, now=NOW)
        found = [await urls.find_url("c", page(n)) for n in (1, 2)]
        return [each.metadata for each in found if each is not None]

    await urls.add("c", [Discovered(url=page(2), metadata={"a": ["0"]})], now=NOW)
    assert await kept(KnownUrl(url=page(1), due_at=1, metadata={"a": ["1", "2"]})) == [{"a": ["1", "2"]}, {"a": ["0"]}]
    one = KnownUrl(url=page(1), due_at=1, metadata={"b": ["x"]})
    assert await kept(one, KnownUrl(url=page(2), due_at=2 * SECOND)) == [{"b": ["x"]}, None]
    assert await urls.serve(ServeRequest(crawl="c"), now=NOW) == [
        Served(url=page(1), key="a.org", crawl="c", metadata={"b": ["x"]}),
        Served(url=page(2), key="a.org", crawl="c"),
    ]


async def test_of_two_items_for_one_url_in_a_batch_the_last_holds(place: Place, urls: UrlStore) -> None:
    await make(urls)
    items = [
        KnownUrl(url=page(1), due_at=None),
        KnownUrl(url="HTTPS://A.org:443/1#top", due_at=9_000, metadata={"a": ["b"]}),
        KnownUrl(url=page(1), due_at=None, key="another queue"),
    ]
    results = await urls.put_known("c", items, now=NOW)
    assert [result.outcome for result in results] == [Added.KNOWN, Added.NEW, Added.NEW]
    found = await urls.find_url("c", page(1))
    assert found is not None
    assert (found.due_at, found.metadata) == (9_000, {"a": ["b"]})
    await check_counts(place)


async def test_each_bad_item_is_refused_by_itself(urls: UrlStore) -> None:
    await make(urls)
    items = [
        KnownUrl(url="mailto:me", due_at=1),
        KnownUrl(url=page(1), due_at=1, key="k" * 256),
        KnownUrl(url=page(1), due_at=-1),
        KnownUrl(url=page(1), due_at=1, metadata={"a": ["x" * 20_000]}),
        KnownUrl(url=page(1), due_at=1),
    ]
    results = await urls.put_known("c", items, now=NOW)
    assert [result.outcome for result in results] == [Added.REJECTED] * 4 + [Added.NEW]
    reasons = [Refusal.NOT_HTTP, Refusal.BAD_KEY, Refusal.BAD_DUE, Refusal.BAD_METADATA]
    assert [result.reason for result in results[:4]] == reasons


# ---------------------------------------------------------------- listing


async def test_statistics_of_a_crawl_and_of_a_queue(urls: UrlStore) -> None:
    await make(urls)
    await urls.change_queue("c", "settings.only", QueueChange(delay_ms=3), now=NOW)
    await discover(urls, page(1), page(2), page(1, "b.org"))
    await know(urls, page(1, "done.org"), None)
    assert len(await served(urls, per_queue=1)) == 2
    crawl, queue = await urls.statistics("c", now=NOW), await urls.statistics("c", "a.org", now=NOW)
    assert (crawl.counts.total, crawl.in_process, crawl.queues, crawl.active_queues) == (4, 2, 3, 2)
    assert (queue.counts.total, queue.in_process, queue.queues, queue.active_queues) == (2, 1, 1, 1)
    unknown = await urls.statistics("c", "nobody.org", now=NOW)
    assert (unknown.counts.total, unknown.in_process, unknown.queues, unknown.active_queues) == (0, 0, 0, 0)


async def test_queues_that_are_blocked_or_finished_are_listed_only_on_request(urls: UrlStore) -> None:
    await make(urls)
    await discover(urls, *(page(1, f"{letter}.org") for letter in "abcde"))
    await know(urls, page(1, "b.org"), None)
    await urls.change_queue("c", "c.org", QueueChange(blocked_until=NOW + 5), now=NOW)
    await urls.change_queue("c", "never.seen", QueueChange(blocked_until=NOW + 5), now=NOW)
    names = await urls.queue_names("c", now=NOW)
    assert (names.keys, names.total) == (["a.org", "d.org", "e.org"], 3)
    names = await urls.queue_names("c", start=1, size=3, everything=True, now=NOW)
    assert (names.keys, names.total) == (["b.org", "c.org", "d.org"], 5)
    assert (await urls.queue_names("c", start=9, now=NOW)).keys == []
    assert (await urls.queue_names("c", start=2, size=1, now=NOW + 5)).keys == ["d.org"]


async def test_urls_are_listed_and_counted_by_queue_and_substring(urls: UrlStore) -> None:
    await make(urls)
    await discover(urls, page(1), page(2), page(1, "b.org"), "https://b.org/Path")

    async def found(which: UrlFilter) -> list[str]:
        listed = await urls.list_urls("c", which)
        assert listed.next_cursor is None
        assert await urls.count_urls("c", which) == len(listed.urls)
        return sorted(each.url for each in listed.urls)

    assert len(await found(UrlFilter())) == 4
    assert await found(UrlFilter(key="a.org")) == [page(1), page(2)]
    assert await found(UrlFilter(contains="/1")) == [page(1), page(1, "b.org")]
    assert await found(UrlFilter(contains="PATH")) == []
    assert await found(UrlFilter(contains="pATH", ignore_case=True)) == ["https://b.org/Path"]
    assert await found(UrlFilter(key="b.org", contains="/1")) == [page(1, "b.org")]
    assert await found(UrlFilter(key="nobody.org")) == []


async def test_long_lists_and_sums_are_read_range_by_range(urls: UrlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "RANGE", 3)
    await make(urls)
    everything = [page(n, f"h{n % 7}.org") for n in range(25)]
    await discover(urls, *everything)
    listed: list[str] = []
    cursor: str | None = None
    for _ in range(9):
        part = await urls.list_urls("c", cursor=cursor)
        assert len(part.urls) <= 3
        listed += [each.url for each in part.urls]
        cursor = part.next_cursor
    assert cursor is None
    assert sorted(listed) == sorted(everything)
    for which in (UrlFilter(key="h1.org"), UrlFilter(contains="h1.org")):
        assert await urls.count_urls("c", which) == 4
    statistics = await urls.statistics("c", now=NOW)
    assert (statistics.queues, statistics.active_queues) == (7, 7)
    for start, size in ((0, 100), (0, 2), (2, 3), (4, 2), (6, 9)):
        names = await urls.queue_names("c", start=start, size=size, now=NOW)
        assert (names.keys, names.total) == ([f"h{n}.org" for n in range(7)][start : start + size], 7)
