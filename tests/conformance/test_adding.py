"""Adding: what is new is stored once, what is known is discarded, and the counts say so."""

import msgspec
import pytest

from outrider.model.errors import CrawlConflict, LimitExceeded, UnknownCrawl
from outrider.model.machines import TaskState
from outrider.model.task import (
    MAX_BATCH,
    MAX_METADATA_BYTES,
    Added,
    CrawlLimits,
    CrawlRules,
    CrawlState,
    DiscoveryType,
    KeyRule,
    Kind,
    Refusal,
)
from outrider.store.protocols import UrlStore
from tests.conformance.acting import (
    FAILED,
    KNOWN,
    NEW,
    REFUSED,
    REJECTED,
    SECOND,
    T0,
    add,
    answers,
    check_counts,
    create,
    found,
    lease,
    lease_one,
    report,
    state,
    task,
    tasks,
)
from tests.conformance.backends import Place


async def test_a_batch_is_answered_item_by_item_in_its_order(urls: UrlStore) -> None:
    """Invariant 1, Identity."""
    await create(urls)
    await add(urls, "http://a.example/known")
    answered = await add(
        urls, "http://z.example/", "http://a.example/known", "ftp://a.example/", "http://a.example/new"
    )
    assert answered == [NEW, KNOWN, REJECTED, NEW]


async def test_an_empty_batch_has_an_empty_answer(urls: UrlStore) -> None:
    """Invariant 1, Identity."""
    await create(urls)
    assert await add(urls) == []


async def test_a_new_task_is_as_it_was_discovered(urls: UrlStore) -> None:
    """Invariant 1, Identity, and Invariant 3, Attempts."""
    await create(urls)
    await add(
        urls,
        found(
            "http://www.A.example/x", depth=3, priority=7, kind=Kind.SITEMAP, due_in_ms=5 * SECOND,
            discovery_type=DiscoveryType.FEED, metadata={"a": [1]},
        ),
    )  # fmt: skip
    stored = await task(urls, "http://www.a.example/x")
    assert msgspec.structs.asdict(stored) == {
        "crawl": "c", "key": "a.example", "url": "http://www.a.example/x", "kind": Kind.SITEMAP,
        "state": TaskState.PENDING, "priority": 7, "depth": 3, "attempt_count": 0, "failures": 0, "deferrals": 0,
        "expiries": 0, "discovered_at": T0, "due_at": T0 + 5 * SECOND, "discovery_type": DiscoveryType.FEED,
        "last_heartbeat": None, "http_status": None, "reason": None, "metadata": {"a": [1]},
    }  # fmt: skip


async def test_of_duplicates_in_one_batch_the_first_counts(urls: UrlStore) -> None:
    """Invariant 1, Identity."""
    await create(urls)
    first, second = found("http://a.example/", depth=2), found("http://a.example/", depth=1)
    assert await add(urls, first, second, first) == [NEW, KNOWN, KNOWN]
    assert (await task(urls, "http://a.example/")).depth == 2
    assert (await check_counts(urls)).total == 1


async def test_a_url_is_known_in_every_state(urls: UrlStore) -> None:
    """Invariant 1, Identity: a discovery of a known URL, in any state, is discarded."""
    await create(urls, max_depth=5)
    deep = found("http://a.example/discovered", depth=6)
    await add(urls, "http://a.example/completed", "http://a.example/failed", "http://a.example/assigned", deep)
    completed, failed, _ = await lease(urls, slots=3)
    await report(urls, completed, now=T0)
    await report(urls, failed, REFUSED, now=T0)
    await add(urls, "http://a.example/pending")
    before = await tasks(urls)
    assert {row.state for row in before} == set(TaskState)
    for row in before:
        assert await add(urls, found(row.url, depth=0, priority=9), now=T0 + SECOND) == [KNOWN]
    assert await tasks(urls) == before
    await check_counts(urls)


@pytest.mark.parametrize(
    "spelling",
    [
        "HTTP://A.EXAMPLE/b%7Ec",
        "http://a.example:80/b~c",
        "http://me:secret@a.example/b~c",
        "http://a.example/x/../b~c#part",
        "  http://a.example/b~c\n",
        "http://a.example./b~c",
    ],
)
async def test_spellings_of_one_url_are_one_task(urls: UrlStore, spelling: str) -> None:
    """Invariant 1, Identity: one task per normalised URL."""
    await create(urls)
    assert await add(urls, "http://a.example/b~c", spelling) == [NEW, KNOWN]
    assert (await task(urls, spelling)).url == "http://a.example/b~c"


async def test_urls_that_differ_in_case_of_path_scheme_or_www_are_different_tasks(urls: UrlStore) -> None:
    """Invariant 1, Identity."""
    await create(urls)
    spellings = ["http://a.example/b", "http://a.example/B", "https://a.example/b", "http://www.a.example/b"]
    assert await add(urls, *spellings) == [NEW] * 4
    assert (await urls.counts("c", "a.example")).pending == 4


async def test_one_url_in_two_crawls_is_two_tasks(urls: UrlStore) -> None:
    """Invariant 1, Identity: one task per crawl."""
    await create(urls, "c")
    await create(urls, "d")
    assert await add(urls, "http://a.example/", crawl="c") == [NEW]
    assert await add(urls, "http://a.example/", crawl="d") == [NEW]
    assert await add(urls, "http://a.example/", crawl="d") == [KNOWN]
    assert (await check_counts(urls, "c")).total == (await check_counts(urls, "d")).total == 1


async def test_one_url_under_two_keys_that_a_client_named_is_two_tasks(urls: UrlStore) -> None:
    """Invariant 1, Identity: one task per key, which a client may name."""
    await create(urls)
    url = "http://a.example/"
    batch = [found(url), found(url, key="k"), found(url, key="K"), found(url, key="k"), found(url, key="a.example")]
    assert await add(urls, *batch) == [NEW, NEW, NEW, KNOWN, KNOWN]
    assert [row.key for row in await tasks(urls)] == ["K", "a.example", "k"]
    assert (await task(urls, url, key="K")).key == "K"
    assert await urls.find_task("c", url, "other") is None
    await check_counts(urls)


@pytest.mark.parametrize(
    ("rule", "keys"),
    [
        (KeyRule.DOMAIN, ["example.co.uk:8080", "example.co.uk", "blog.example.co.uk"]),
        (KeyRule.HOST, ["www.example.co.uk:8080", "www.example.co.uk", "blog.example.co.uk"]),
        (KeyRule.PARENT_DOMAIN, ["example.co.uk"] * 3),
    ],
)
async def test_the_key_follows_from_the_url_by_the_rule_of_the_crawl(
    urls: UrlStore, rule: KeyRule, keys: list[str]
) -> None:
    """Invariant 1, Identity: the key is a function of the URL, fixed when the crawl is created."""
    await create(urls, rules=CrawlRules(key_rule=rule))
    addresses = [
        "http://www.example.co.uk:8080/", "http://www.example.co.uk/", "http://blog.example.co.uk/",
    ]  # fmt: skip
    await add(urls, *addresses)
    assert [(await task(urls, url)).key for url in addresses] == keys
    await check_counts(urls)


async def test_a_crawl_may_strip_tracking_and_sort_queries(urls: UrlStore) -> None:
    """Invariant 1, Identity: what is one URL is fixed when the crawl is created."""
    await create(urls, "plain")
    await create(urls, "tidy", rules=CrawlRules(strip_tracking=True, sort_query=True))
    one, other = "http://a.example/?b=2&a=1&utm_source=x", "http://a.example/?a=1&b=2"
    assert await add(urls, one, other, crawl="plain") == [NEW, NEW]
    assert await add(urls, one, other, crawl="tidy") == [NEW, KNOWN]
    assert (await task(urls, one, "tidy")).url == other
    assert (await task(urls, one, "plain")).url == one


async def test_what_lies_too_deep_stays_discovered_until_the_limit_is_raised(urls: UrlStore) -> None:
    """Invariant 4, Depth."""
    await create(urls, max_depth=1)
    deep = [found(f"http://a.example/{depth}", depth=depth) for depth in range(4)]
    assert await add(urls, *deep) == [NEW] * 4
    counts = await check_counts(urls)
    assert (counts.pending, counts.discovered) == (2, 2)
    assert len(await lease(urls, slots=10)) == 2
    assert await urls.promote("c", now=T0) == 0

    await urls.set_crawl_limits("c", CrawlLimits(max_depth=2, delay_ms=0, concurrency=100, robots=False))
    assert await state(urls, "http://a.example/2") is TaskState.DISCOVERED
    assert await urls.promote("c", now=T0 + SECOND) == 1
    (promoted,) = await lease(urls, slots=10, now=T0 + SECOND)
    assert (promoted.url, promoted.depth) == ("http://a.example/2", 2)

    await urls.set_crawl_limits("c", CrawlLimits(max_depth=None, robots=False))
    assert await urls.promote("c", now=T0 + SECOND) == 1
    assert await urls.promote("c", now=T0 + SECOND) == 0
    assert (await check_counts(urls)).discovered == 0


async def test_rediscovery_never_changes_depth(urls: UrlStore) -> None:
    """Invariant 4, Depth is set at discovery: a shorter way to a known page does not make it less deep."""
    await create(urls, max_depth=2)
    pending, deep = found("http://a.example/pending", depth=2), found("http://a.example/deep", depth=3)
    await add(urls, pending, deep)
    shorter = [found(pending.url, depth=0), found(deep.url, depth=0)]
    assert await add(urls, *shorter) == [KNOWN, KNOWN]
    assert [(await task(urls, item.url)).depth for item in shorter] == [2, 3]
    assert await state(urls, deep.url) is TaskState.DISCOVERED
    assert (await lease_one(urls)).depth == 2


async def test_a_promoted_task_keeps_its_due_time_and_depth(urls: UrlStore) -> None:
    """Invariant 4, Depth never changes once the task is PENDING."""
    await create(urls, max_depth=0)
    await add(urls, found("http://a.example/", depth=1, due_in_ms=60 * SECOND))
    await urls.set_crawl_limits("c", CrawlLimits(robots=False))
    assert await urls.promote("c", now=T0 + SECOND) == 1
    assert await lease(urls, now=T0 + 59 * SECOND) == []
    assert (await lease_one(urls, now=T0 + 60 * SECOND)).depth == 1


async def test_urls_whose_hashes_collide_are_both_kept(urls: UrlStore, place: Place) -> None:
    """Invariant 1, Identity is that of the URL, not of its hash."""
    await create(urls)
    await add(urls, "http://a.example/one")
    await place.backend.query(
        place.dsn, "UPDATE tasks SET url = 'http://a.example/other' WHERE url = 'http://a.example/one'"
    )
    fresh = found("http://a.example/one", metadata={"of": "one"})
    assert await add(urls, fresh, "http://a.example/two") == [NEW, NEW]
    assert await add(urls, "http://a.example/one", "http://a.example/one") == [KNOWN, KNOWN]
    assert (await task(urls, "http://a.example/one")).url == "http://a.example/one"
    assert await check_counts(urls) == await urls.counts("c", "a.example")
    leases = await lease(urls, slots=10)
    assert {each.url: each.metadata for each in leases} == {
        "http://a.example/other": None,
        "http://a.example/one": {"of": "one"},
        "http://a.example/two": None,
    }
    for each in leases:
        await report(urls, each, now=T0)
    assert (await check_counts(urls)).completed == 3


async def test_metadata_comes_with_the_lease_every_time(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost."""
    await create(urls)
    metadata = {"from": "sitemap", "weights": [1, 2.5, None, True], "deep": {"è": "\N{WHALE} \0 \x1f"}, "": ""}
    await add(urls, found("http://a.example/", metadata=metadata), found("http://b.example/", metadata={}))
    leases = await lease(urls, slots=2)
    assert {each.url: each.metadata for each in leases} == {
        "http://a.example/": metadata,
        "http://b.example/": {},
    }
    await add(urls, found("http://a.example/", metadata={"other": 1}))
    for each in leases:
        await report(urls, each, FAILED, now=T0)
    again = await lease(urls, slots=2, now=T0 + 60 * SECOND)
    assert {each.url: each.metadata for each in again} == {each.url: each.metadata for each in leases}


async def test_metadata_has_a_limit_that_the_refusal_names(urls: UrlStore) -> None:
    """Invariant 1, Identity: a refused item is not known."""
    await create(urls)
    room = MAX_METADATA_BYTES - len('{"m":""}')
    fits = found("http://a.example/fits", metadata={"m": "x" * room})
    too_long = found("http://a.example/long", metadata={"m": "x" * (room + 1)})
    in_bytes = found("http://a.example/bytes", metadata={"m": "é" * (room // 2 + 1)})
    first, *refused = await answers(urls, fits, too_long, in_bytes)
    assert first.outcome is NEW
    for answer in refused:
        assert (answer.outcome, answer.reason) == (REJECTED, Refusal.BAD_METADATA)
        assert str(MAX_METADATA_BYTES) in (answer.detail or "")
    assert (await lease_one(urls)).metadata == fits.metadata
    assert await add(urls, "http://a.example/long") == [NEW]


async def test_a_batch_has_a_limit_that_the_error_names(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: of a batch that is refused as a whole nothing is stored."""
    await create(urls)
    batch = [found(f"http://{number % 100}.example/{number}") for number in range(MAX_BATCH + 1)]
    with pytest.raises(LimitExceeded, match=r"10001 URLs .* 10000"):
        await urls.add("c", batch, now=T0)
    assert (await urls.counts("c")).total == 0
    answered = await urls.add("c", batch[:-1], now=T0)
    assert {answer.outcome for answer in answered} == {Added.NEW}
    assert (await urls.counts("c")).pending == MAX_BATCH
    assert (await urls.counts("c", "7.example")).pending == MAX_BATCH // 100


async def test_counts_are_kept_by_crawl_queue_and_kind(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact."""
    await create(urls, max_depth=1)
    await add(
        urls,
        found("http://a.example/1"), found("http://a.example/2", depth=2), found("http://b.example/"),
        found("http://a.example/s", kind=Kind.SITEMAP), found("http://b.example/i", kind=Kind.IMAGE, depth=9),
        found("http://b.example/", key="a.example"),
    )  # fmt: skip
    await lease(urls, slots=2)
    counts = await check_counts(urls)
    assert (counts.discovered, counts.pending, counts.assigned, counts.total) == (2, 2, 2, 6)
    assert (await urls.counts("c", "a.example")).total == 4
    assert {kind: each.total for kind, each in (await urls.counts_by_kind("c")).items()} == {
        Kind.PAGE: 4, Kind.SITEMAP: 1, Kind.IMAGE: 1,
    }  # fmt: skip


async def test_a_queue_that_is_not_there_counts_nothing(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact."""
    await create(urls)
    await add(urls, "http://a.example/")
    assert (await urls.counts("c", "b.example")).total == 0
    assert (await urls.counts_by_kind("c")).keys() == {Kind.PAGE}


async def test_order_of_discovery_is_kept_within_and_between_batches_of_one_moment(urls: UrlStore) -> None:
    """Invariant 1, Identity: of two discoveries the earlier comes first, also within a millisecond."""
    await create(urls)
    names = [f"http://a.example/{number * 37 % 101}" for number in range(90)]
    for start in range(0, 90, 30):
        await add(urls, *names[start : start + 30])
    assert [each.url for each in await lease(urls, slots=90)] == names


async def test_nothing_can_be_added_to_a_crawl_that_is_not_there(urls: UrlStore) -> None:
    """Invariant 1, Identity: every task belongs to a crawl."""
    with pytest.raises(UnknownCrawl, match="'nowhere'"):
        await add(urls, "http://a.example/", crawl="nowhere")
    with pytest.raises(UnknownCrawl):
        await urls.get_crawl("nowhere")
    await create(urls, "nowhere")
    assert await add(urls, "http://a.example/", crawl="nowhere") == [NEW]


async def test_a_crawl_created_again_with_the_same_rules_is_found(urls: UrlStore) -> None:
    """Invariant 1, Identity."""
    rules = CrawlRules(key_rule=KeyRule.HOST, sort_query=True)
    made = await create(urls, rules=rules, max_depth=4)
    assert (made.name, made.state, made.created_at) == ("c", CrawlState.RUNNING, T0)
    await add(urls, "http://a.example/")
    assert await urls.create_crawl("c", rules, now=T0 + SECOND) == made
    limited = await urls.create_crawl("c", rules, CrawlLimits(max_depth=9), now=T0 + SECOND)
    assert (limited.limits, limited.created_at) == (CrawlLimits(max_depth=9), T0)
    assert await urls.get_crawl("c") == limited
    assert await urls.list_crawls() == [limited]
    assert (await urls.counts("c")).total == 1


@pytest.mark.parametrize(
    "other",
    [CrawlRules(key_rule=KeyRule.HOST), CrawlRules(strip_tracking=True), CrawlRules(sort_query=True)],
)
async def test_a_crawl_created_again_with_other_rules_is_a_conflict(urls: UrlStore, other: CrawlRules) -> None:
    """Invariant 1, Identity: the rules are fixed when the crawl is created."""
    made = await create(urls)
    with pytest.raises(CrawlConflict, match="'c' exists with other rules"):
        await urls.create_crawl("c", other, CrawlLimits(max_depth=1), now=T0)
    assert await urls.get_crawl("c") == made
