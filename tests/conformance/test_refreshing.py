"""Refreshing: pages that are fetched again when their time has come, and what is learnt of each."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from outrider.model.artifact import Fetch
from outrider.model.errors import InvalidInput, UnknownCrawl
from outrider.model.lease import Lease
from outrider.model.machines import TaskState
from outrider.model.settings import Settings
from outrider.model.task import Discovered, DiscoveryType, Kind
from outrider.store.opening import Stores, open_store
from outrider.store.protocols import UrlStore
from tests.conformance.acting import (
    DAY,
    FAILED,
    HOUR,
    T0,
    add,
    check_counts,
    create,
    lease,
    lease_one,
    report,
    saying,
    task,
)
from tests.conformance.backends import Place

REFRESHING = Settings(backoff_jitter=0.0, enable_refresh_mode=True)
PAGE = "http://a.example/page"


@pytest_asyncio.fixture
async def stores(place: Place) -> AsyncIterator[Stores]:
    """Both planes, in refresh mode."""
    async with await open_store(place.dsn, REFRESHING) as opened:
        yield opened


def fetched(status: int = 200, **fields: Any) -> Fetch:
    return Fetch(http_status=status, **fields)


async def crawl(urls: UrlStore, *pages: str, now: int = T0) -> None:
    """Fetch some pages for the first time."""
    await create(urls)
    await add(urls, *pages)
    for leased in await lease(urls, slots=100, now=now):
        await report(urls, leased, now=now, fetch=fetched(etag=f'"{leased.url}"', digest="sha256:1", similarity=-5))


async def refetch(urls: UrlStore, now: int, status: int = 200, **said: Any) -> Lease:
    """Reopen the one page that is due, and fetch it."""
    assert await urls.reopen("c", now=now) == 1
    leased = await lease_one(urls, now=now)
    await report(urls, leased, now=now, fetch=fetched(status, digest="sha256:2"), **said)
    return leased


async def due_at(place: Place) -> int:
    """When the one page is due."""
    ((due,),) = await place.backend.query(place.dsn, "SELECT due_at FROM revisits")
    assert isinstance(due, int)
    return due


async def test_a_page_comes_up_when_it_is_due_and_not_before(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: one fewer completed, one more pending."""
    await crawl(urls, PAGE)
    assert await urls.reopen("c", now=T0 + HOUR) == 0
    assert await urls.reopen("c", now=T0 + 2 * DAY) == 1
    counts = await urls.counts("c")
    assert (counts.pending, counts.completed) == (1, 0)
    await check_counts(urls)


async def test_a_page_is_reopened_once_however_often_that_is_asked_for(urls: UrlStore) -> None:
    """Invariant 1, Identity: refreshing makes no second task, and nothing is fetched twice in one refresh."""
    await crawl(urls, PAGE)
    before = await task(urls, PAGE)
    assert await urls.reopen("c", now=T0 + 2 * DAY) == 1
    assert await urls.reopen("c", now=T0 + 2 * DAY) == 0
    leased = await lease_one(urls, now=T0 + 2 * DAY)
    assert await urls.reopen("c", now=T0 + 20 * DAY) == 0
    await report(urls, leased, now=T0 + 2 * DAY + 1, fetch=fetched(304), changed=False)
    assert await urls.reopen("c", now=T0 + 2 * DAY + 2) == 0
    after = await task(urls, PAGE)
    assert (after.state, after.attempt_count) == (TaskState.COMPLETED, 2)
    assert (after.depth, after.discovered_at, after.discovery_type) == (
        before.depth,
        before.discovered_at,
        before.discovery_type,
    )


async def test_the_lease_of_a_refresh_brings_what_the_last_fetch_had_and_its_artifact_says_refresh(
    urls: UrlStore,
) -> None:
    """A failed try in between changes nothing of what is compared with."""
    await crawl(urls, PAGE)
    await urls.reopen("c", now=T0 + 2 * DAY)
    first = await lease_one(urls, now=T0 + 2 * DAY)
    await report(urls, first, FAILED, now=T0 + 2 * DAY, fetch=fetched(500, etag='"error"', digest="sha256:error"))
    again = await lease_one(urls, now=T0 + 3 * DAY, request_id="again")
    for leased in (first, again, *await lease(urls, now=T0 + 3 * DAY, request_id="again")):
        assert (leased.etag, leased.digest, leased.similarity) == (f'"{PAGE}"', "sha256:1", -5)
    await report(urls, again, now=T0 + 3 * DAY, fetch=fetched(similarity=7), changed=True)
    kinds = [(each.discovery_type, each.fetch.similarity) for each in await urls.artifacts("c")]
    refresh = DiscoveryType.REFRESH
    assert kinds == [(DiscoveryType.LINK, -5), (refresh, None), (refresh, 7)]


async def test_intervals_grow_while_a_page_stays_and_shrink_when_it_changes(urls: UrlStore, place: Place) -> None:
    """Each page has its own, between the bounds."""
    await crawl(urls, PAGE)
    now, waits = T0, []
    for changed in (False, False, False, False, True, True, True, True, True, True, True, True):
        now = await due_at(place)
        await refetch(urls, now, changed=changed)
        waits.append(await due_at(place) - now)
    assert waits[0] < waits[3]
    assert waits[3] > waits[-1]
    assert all(HOUR <= wait <= 14 * DAY * 1.05 for wait in waits)


async def test_a_page_that_is_gone_is_tried_again_later_and_later_and_then_dropped(
    urls: UrlStore, place: Place
) -> None:
    """404 and 410 alike; what was dropped is not even fetched when everything of the domain is."""
    await crawl(urls, PAGE)
    first = await due_at(place)
    await refetch(urls, first, 404)
    second = await due_at(place)
    await refetch(urls, second, 410)
    third = await due_at(place)
    assert third - second > second - first >= 7 * DAY
    await refetch(urls, third, 404)
    assert await urls.reopen("c", now=third + 1000 * DAY) == 0
    assert await urls.reopen("c", domain="a.example", everything=True, now=third + 1000 * DAY) == 0
    assert (await task(urls, PAGE)).state is TaskState.COMPLETED


async def test_a_page_that_comes_back_is_visited_as_before(urls: UrlStore, place: Place) -> None:
    """Only being gone without a break drops a page."""
    await crawl(urls, PAGE)
    for status in (404, 404, 200, 404, 404):
        await refetch(urls, await due_at(place), status, changed=True if status == 200 else None)
    assert await due_at(place) < T0 + 1000 * DAY


async def test_all_of_one_domain_is_fetched_again_on_request_and_nothing_of_others(urls: UrlStore) -> None:
    """Whether it is due or not."""
    await crawl(urls, PAGE, "http://a.example/other", "http://b.example/")
    assert await urls.reopen("c", domain="a.example", now=T0 + 1) == 0
    assert await urls.reopen("c", domain="www.A.example", everything=True, now=T0 + 1) == 2
    assert {each.domain for each in await lease(urls, slots=9, now=T0 + 1)} == {"a.example"}
    await check_counts(urls)


async def test_a_limit_takes_the_longest_overdue_first(urls: UrlStore) -> None:
    """The others stay due."""
    await create(urls)
    for number in range(3):
        url = f"http://a.example/{number}"
        await add(urls, url, now=T0 + number * DAY)
        await report(urls, await lease_one(urls, now=T0 + number * DAY), now=T0 + number * DAY)
    assert await urls.reopen("c", most=2, now=T0 + 30 * DAY) == 2
    assert (await task(urls, "http://a.example/2")).state is TaskState.COMPLETED
    assert await urls.reopen("c", most=2, now=T0 + 30 * DAY) == 1


async def test_a_sitemap_that_tells_of_a_change_makes_a_page_due(urls: UrlStore, place: Place) -> None:
    """But not one that was fetched since."""
    await crawl(urls, PAGE, "http://a.example/later")
    sitemap = Discovered(url="http://a.example/sitemap.xml", kind=Kind.SITEMAP)
    await add(urls, sitemap, now=T0 + 10)
    links = [
        Discovered(url=PAGE, changed_at=T0 + 5),
        Discovered(url="http://a.example/later", changed_at=T0 - 5),
        Discovered(url="http://a.example/new", changed_at=T0),
        Discovered(url="http://a.example/wrong", changed_at=-1),
    ]
    await report(urls, await lease_one(urls, now=T0 + 10), now=T0 + 10, links=links)
    assert await urls.reopen("c", now=T0 + 11) == 1
    assert (await task(urls, PAGE)).state is TaskState.PENDING
    assert (await task(urls, "http://a.example/new")).state is TaskState.PENDING
    assert await urls.find_task("c", "http://a.example/wrong") is None


async def test_an_answer_that_promises_to_stay_fresh_is_left_alone_for_longer(urls: UrlStore, place: Place) -> None:
    """By no more than the page's own interval."""
    waits = []
    await create(urls)
    for number, fresh_for_ms in enumerate((None, 365 * DAY)):
        await add(urls, f"http://a.example/{number}")
        now = T0 + number
        await report(urls, await lease_one(urls, now=now), now=now, fresh_for_ms=fresh_for_ms)
    rows = await place.backend.query(
        place.dsn, "SELECT due_at - visited_at, interval_ms FROM revisits ORDER BY visited_at"
    )
    waits = [(int(str(wait)), int(str(interval))) for wait, interval in rows]
    assert waits[1][0] >= waits[1][1]
    assert waits[1][0] < 365 * DAY


async def test_pages_of_before_are_enrolled_once(place: Place) -> None:
    """What was crawled while refreshing was off has no history, and begins one."""
    async with await open_store(place.dsn, msgspec.structs.replace(REFRESHING, enable_refresh_mode=False)) as stores:
        await crawl(stores.urls, PAGE, "http://b.example/")
        await add(stores.urls, "http://c.example/")
        assert not await stores.urls.is_refreshed("c")
        assert await stores.urls.reopen("c", now=T0 + 100 * DAY) == 0
    async with await open_store(place.dsn, REFRESHING) as stores:
        assert await stores.urls.enrol("c") == 2
        assert await stores.urls.enrol("c") == 0
        assert await stores.urls.is_refreshed("c")
        assert await stores.urls.reopen("c", now=T0 + HOUR) == 0
        assert await stores.urls.reopen("c", now=T0 + 2 * DAY) == 2


async def test_what_is_deleted_is_not_remembered(urls: UrlStore, place: Place) -> None:
    """By a purge, with a queue, and with a crawl."""
    await crawl(urls, PAGE, "http://b.example/", "http://c.example/")
    await urls.purge("c", before=T0 + 1, key="a.example")
    await urls.delete_queue("c", "b.example")
    rows = await place.backend.query(place.dsn, "SELECT domain FROM revisits")
    assert [str(row[0]) for row in rows] == ["c.example"]
    await urls.delete_crawl("c")
    assert await place.backend.query(place.dsn, "SELECT 1 FROM revisits") == []


async def test_wishes_that_make_no_sense_are_refused(urls: UrlStore) -> None:
    """Each with its reason."""
    await create(urls)
    with pytest.raises(InvalidInput, match="name it"):
        await urls.reopen("c", everything=True)
    with pytest.raises(InvalidInput, match="most"):
        await urls.reopen("c", most=0)
    with pytest.raises(UnknownCrawl):
        await urls.reopen("nowhere")
    with pytest.raises(UnknownCrawl):
        await urls.enrol("nowhere")


@pytest.mark.parametrize(
    "fields", [{"changed": 1}, {"fresh_for_ms": -1}, {"fetch": Fetch(http_status=200, similarity=2**63)}]
)
async def test_a_report_with_a_wrong_word_on_changes_is_refused(urls: UrlStore, fields: dict[str, Any]) -> None:
    """For that report alone; its lease stays."""
    await create(urls)
    await add(urls, PAGE)
    leased = await lease_one(urls)
    answer = await report(urls, leased, now=T0, **fields)
    assert answer.detail is not None
    assert next(iter(fields if "fetch" not in fields else {"similarity": 0})) in answer.detail
    await report(urls, leased, now=T0)
    assert (await task(urls, PAGE)).state is TaskState.COMPLETED


async def test_an_exhausted_domain_is_due_with_the_first_of_its_pages_and_in_14_days_at_the_latest(
    stores: Stores, place: Place
) -> None:
    """What was dropped does not count."""
    urls, control = stores.urls, stores.control
    await crawl(urls, PAGE)
    domain = await control.get_domain("a.example")
    assert domain is not None
    assert domain.next_crawl_after is not None
    assert (domain.status, int(domain.next_crawl_after.timestamp() * 1000)) == ("exhausted", await due_at(place))
    for _ in range(2):
        await refetch(urls, await due_at(place), 404)
    due = await due_at(place)
    await refetch(urls, due, 404)
    domain = await control.get_domain("a.example")
    assert domain is not None
    assert domain.next_crawl_after is not None
    assert int(domain.next_crawl_after.timestamp() * 1000) == due + 14 * DAY


async def test_a_refresh_of_many_pages_ends_however_soon_they_are_due_again(place: Place) -> None:
    """More than are reopened at once."""
    eager = msgspec.structs.replace(REFRESHING, exhausted_rest_ms=0, refresh_shortest_ms=0)
    async with await open_store(place.dsn, eager) as stores:
        await create(stores.urls, concurrency=3_000)
        await add(stores.urls, *(f"http://a.example/{number}" for number in range(2_100)))
        leases = await lease(stores.urls, slots=3_000)
        await stores.urls.report([saying(each) for each in leases], now=T0)
        assert await stores.urls.reopen("c") == 2_100
        assert (await stores.urls.counts("c")).pending == 2_100
