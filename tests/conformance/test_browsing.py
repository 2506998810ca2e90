"""Browsing: listings that stay in order, and the removal of what is no longer wanted."""

from typing import Any

import pytest

from outrider.model.errors import UnknownCrawl
from outrider.model.lease import Renewal, Verdict
from outrider.model.machines import TaskState
from outrider.model.task import Counts, CrawlRules, KeyRule, Kind, QueueSettings, TaskFilter
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from tests.conformance.acting import (
    HOUR,
    KNOWN,
    NEW,
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
    task,
    tasks,
)
from tests.conformance.backends import Place
from tests.conformance.conftest import STEADY


async def pages_of(urls: UrlStore, size: int, **which: Any) -> list[list[str]]:
    """Read a listing in pages of a size; returns the URLs of each."""
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        page = await urls.list_tasks("c", TaskFilter(**which), cursor=cursor, limit=size)
        pages.append([row.url for row in page.tasks])
        if page.next_cursor is None:
            return pages
        cursor = page.next_cursor


async def test_a_listing_comes_in_pages_that_together_are_everything_once(urls: UrlStore) -> None:
    """Invariant 1, Identity: each task is listed once."""
    await create(urls)
    await add(urls, *(f"http://{number % 4}.example/{number}" for number in range(50)))
    (whole,) = await pages_of(urls, 100)
    assert len(set(whole)) == 50
    for size in (1, 7, 49, 50, 51):
        pages = await pages_of(urls, size)
        assert [url for page in pages for url in page] == whole
        assert {len(page) for page in pages[:-1]} <= {size}


async def test_paging_is_stable_while_tasks_change_and_come_and_go(urls: UrlStore) -> None:
    """Invariant 1, Identity: whatever happens to a task, it keeps its place."""
    await create(urls)
    await add(urls, *(f"http://{number % 3}.example/{number}" for number in range(30)))
    before = [row.url for row in await tasks(urls)]
    seen: list[str] = []
    cursor: str | None = None
    for turn in range(100):
        page = await urls.list_tasks("c", cursor=cursor, limit=5)
        seen += [row.url for row in page.tasks]
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
        await add(urls, *(f"http://{letter}.example/{turn}" for letter in "012z"))
        for leased in await lease(urls, slots=4, now=T0 + turn):
            await report(urls, leased, REFUSED, now=T0 + turn)
    assert len(seen) == len(set(seen))
    assert [url for url in seen if url in set(before)] == before


async def test_tasks_are_found_by_state_queue_kind_and_text(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: a listing shows the rows that are counted."""
    await create(urls)
    await add(urls, "http://a.example/one", "http://a.example/two", "http://b.example/one")
    await add(urls, found("http://b.example/map", kind=Kind.SITEMAP, key="a.example"))
    await report(urls, await lease_one(urls), now=T0)

    async def listed(**which: Any) -> set[str]:
        return {url.removeprefix("http://") for page in await pages_of(urls, 2, **which) for url in page}

    assert await listed(key="a.example") == {"a.example/one", "a.example/two", "b.example/map"}
    assert await listed(kind=Kind.SITEMAP) == {"b.example/map"}
    assert await listed(url_contains="/one") == {"a.example/one", "b.example/one"}
    assert await listed(key="a.example", kind=Kind.PAGE, url_contains="one") == {"a.example/one"}
    (done,) = await listed(state=TaskState.COMPLETED)
    assert await listed(state=TaskState.PENDING) == await listed() - {done}
    assert await listed(state=TaskState.FAILED) == await listed(key="c.example") == set()


async def test_reading_is_literal_and_minds_case(urls: UrlStore) -> None:
    """Invariant 1, Identity: what differs in one character is something else."""
    await create(urls)
    await create(urls, "C")
    names = ["100%25_done", "100%25xdone", "Case", "case", "a'b", "a\\b".replace("\\", "%5C")]
    await add(urls, *(found(f"http://a.example/{name}", key="Key") for name in names))

    async def listed(text: str) -> list[str]:
        return sorted(row.url.removeprefix("http://a.example/") for row in await tasks(urls, url_contains=text))

    assert await listed("%25_d") == ["100%25_done"]
    assert await listed("%") == ["100%25_done", "100%25xdone", "a%5Cb"]
    assert await listed("_") == ["100%25_done"]
    assert await listed("Case") == ["Case"]
    assert await listed("a'b") == ["a'b"]
    assert await listed("") == sorted(names)
    assert await tasks(urls, key="key") == []
    assert (await urls.counts("c", "key")).total == 0
    assert await urls.find_task("c", "http://a.example/case", "KEY") is None
    assert await tasks(urls, "C") == []
    assert [crawl.name for crawl in await urls.list_crawls()] == ["C", "c"]


async def test_queues_are_listed_by_key_page_by_page(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: each queue is shown with its own."""
    await create(urls)
    keys = ["a.example", "b.example", "Z", "é", "zz", "\N{WHALE}"]
    await add(urls, *(found("http://a.example/", key=key) for key in keys), found("http://a.example/2", key="zz"))
    await urls.configure_queue("c", "later", QueueSettings(delay_ms=3, page_limit=4, priority=-5), now=T0)
    listed, after = [], ""
    while page := await urls.list_queues("c", after=after, limit=2):
        listed += page
        after = page[-1].key
    assert [queue.key for queue in listed] == sorted([*keys, "later"])
    by_key = {queue.key: queue for queue in listed}
    assert by_key["zz"].counts == Counts(pending=2)
    later = by_key["later"]
    assert (later.crawl, later.domain, later.counts, later.last_served_at) == ("c", None, Counts(), None)
    assert later.settings == QueueSettings(delay_ms=3, page_limit=4, priority=-5)
    assert by_key["Z"].domain == "a.example"
    leased = await lease_one(urls, now=T0 + 5)
    (served,) = [queue for queue in await urls.list_queues("c") if queue.last_served_at is not None]
    assert (served.key, served.last_served_at) == (leased.key, T0 + 5)


async def test_artifacts_are_listed_in_the_order_of_their_reports(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost."""
    for crawl in ("c", "d"):
        await create(urls, crawl)
        await add(urls, *(f"http://{crawl}.example/{number}" for number in range(7)), crawl=crawl)
    expected = []
    for turn, leased in enumerate(await lease(urls, "c", slots=7) + await lease(urls, "d", slots=7)):
        await report(urls, leased, now=T0 + turn)
        expected.append(leased.token)
    listed, after_id = [], 0
    while page := await urls.artifacts("c", after_id=after_id, limit=3):
        listed += [artifact.token for artifact in page]
        after_id = page[-1].artifact_id
    assert listed == expected[:7]
    assert [artifact.token for artifact in await urls.artifacts("d")] == expected[7:]
    assert await urls.artifacts("nowhere") == []


async def test_a_purge_removes_what_is_old_and_not_in_flight(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact, purges included."""
    await create(urls)
    await add(urls, *(found(f"http://{letter}.example/old", metadata={"m": 1}) for letter in "abc"))
    held, done, _ = await lease(urls, slots=3)
    await report(urls, done, now=T0)
    await urls.release([_.token], now=T0)
    await add(urls, "http://a.example/new", "http://d.example/new", now=T0 + SECOND)
    assert await urls.purge("c", before=T0) == 0
    assert await urls.purge("c", before=T0 + SECOND, key=held.key) == 0
    assert await urls.purge("c", before=T0 + SECOND, key="d.example") == 0
    assert await urls.purge("c", before=T0 + SECOND) == 2
    left = {row.url for row in await tasks(urls)}
    assert left == {held.url, "http://a.example/new", "http://d.example/new"}
    await check_counts(urls)
    assert (await report(urls, held, now=T0 + SECOND)).verdict is Verdict.COMPLETED
    assert await add(urls, done.url, held.url, now=T0 + 2 * SECOND) == [NEW, KNOWN]
    anew = {each.url: each.metadata for each in await lease(urls, slots=9, now=T0 + 2 * SECOND)}
    assert anew[done.url] is None
    assert len(await urls.artifacts("c")) == 2
    await check_counts(urls)


async def test_a_purge_of_one_queue_leaves_the_others(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact."""
    await create(urls)
    await add(urls, *(f"http://{letter}.example/{number}" for letter in "ab" for number in range(3)))
    assert await urls.purge("c", before=T0 + 1, key="a.example") == 3
    assert {row.key for row in await tasks(urls)} == {"b.example"}
    assert (await check_counts(urls)).total == 3


async def test_a_large_purge_goes_on_to_the_end(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact, over more than one chunk."""
    await create(urls)
    await add(urls, *(f"http://{number % 9}.example/{number}" for number in range(4_500)))
    held = await lease(urls, slots=20)
    assert await urls.purge("c", before=T0 + 1) == 4_480
    assert {row.url for row in await tasks(urls)} == {each.url for each in held}
    assert await check_counts(urls) == Counts(assigned=20)


async def test_a_deleted_queue_is_gone_with_its_tasks_and_leases(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: its leases are lost. Invariant 6, Counts are exact."""
    await create(urls)
    await add(urls, *(f"http://{letter}.example/{number}" for letter in "ab" for number in range(4)))
    leases = await lease(urls, slots=8)
    held, done = [each for each in leases if each.key == "a.example"][:2]
    kept = next(each for each in leases if each.key == "b.example")
    await report(urls, done, now=T0)
    assert await urls.delete_queue("c", "a.example") == 4
    assert await urls.delete_queue("c", "a.example") == 0
    assert [queue.key for queue in await urls.list_queues("c")] == ["b.example"]
    assert await urls.renew([held.token, kept.token], now=T0) == [Renewal.LEASE_LOST, Renewal.OK]
    assert (await report(urls, held, now=T0)).verdict is Verdict.LEASE_LOST
    assert len(await urls.artifacts("c")) == 1
    assert (await check_counts(urls)).total == 4
    assert await add(urls, "http://a.example/1") == [NEW]
    await check_counts(urls)


async def test_a_deleted_crawl_is_gone_but_for_its_artifacts(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: its leases are lost. Invariant 5, Nothing lost: its artifacts stay."""
    await create(urls, "c")
    await create(urls, "d")
    for crawl in ("c", "d"):
        await add(urls, *(f"http://{crawl}{number}.example/" for number in range(5)), crawl=crawl)
    done, held = await lease(urls, "c", slots=2)
    await report(urls, done, now=T0)
    assert await urls.delete_crawl("c") == 5
    with pytest.raises(UnknownCrawl):
        await urls.delete_crawl("c")
    for call in (urls.counts("c"), urls.list_tasks("c"), urls.list_queues("c"), urls.find_task("c", held.url)):
        with pytest.raises(UnknownCrawl):
            await call
    assert [artifact.token for artifact in await urls.artifacts("c")] == [done.token]
    assert (await report(urls, held, now=T0)).verdict is Verdict.LEASE_LOST
    assert (await report(urls, done, now=T0)).verdict is Verdict.COMPLETED, "an old answer stays what it was"
    assert [crawl.name for crawl in await urls.list_crawls()] == ["d"]
    assert (await check_counts(urls, "d")).pending == 5


async def test_a_crawl_made_anew_is_another_also_for_those_who_knew_the_old_one(place: Place) -> None:
    """Invariant 1, Identity: nobody adds by the rules of a crawl that is gone."""
    async with await open_store(place.dsn, STEADY) as mine, await open_store(place.dsn, STEADY) as theirs:
        await create(mine.urls)
        await add(mine.urls, "http://www.a.example/?utm_source=x")
        await theirs.urls.delete_crawl("c")
        with pytest.raises(UnknownCrawl):
            await add(mine.urls, "http://www.a.example/")
        await create(theirs.urls, rules=CrawlRules(key_rule=KeyRule.HOST, strip_tracking=True))
        answered = await add(mine.urls, "http://www.a.example/?utm_source=x", "http://www.a.example/")
        assert answered == [NEW, KNOWN]
        assert (await task(mine.urls, "http://www.a.example/")).key == "www.a.example"
        leased = await lease_one(mine.urls)
        links = [found("http://www.b.example/?utm_source=x"), found("http://www.b.example/")]
        await mine.urls.report([saying(leased, links=links)], now=T0)
        assert (await check_counts(theirs.urls)).total == 2


async def test_a_task_is_found_by_any_spelling_of_a_url(urls: UrlStore) -> None:
    """Invariant 1, Identity."""
    await create(urls)
    await add(urls, found("http://a.example/x"), found("http://a.example/x", key="k", depth=3), now=T0 + HOUR)
    assert await task(urls, "HTTP://A.example:80/./x#y") == await task(urls, "http://a.example/x", key="a.example")
    assert (await task(urls, "http://a.example/x", key="k")).depth == 3
    assert await urls.find_task("c", "http://a.example/y") is None
