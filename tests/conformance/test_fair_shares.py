"""A small total over many domains: every domain gets its share, and what one cannot use goes to the others."""

from collections import Counter

from outrider.model.lease import NoWork
from outrider.model.settings import Settings
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from tests.conformance.acting import T0, add, ask, create, lease, report
from tests.conformance.backends import Place


async def crawl_fairly(urls: UrlStore, slots: int, *, fair: bool = True) -> Counter[str]:
    """Fetch until the limit is reached; tell how many pages each domain had."""
    pages: Counter[str] = Counter()
    now = T0
    for _ in range(400):
        grant = await ask(urls, now=now, slots=slots, fair=fair)
        for page in grant.leases:
            await report(urls, page, now=now + 1)
            pages[page.domain] += 1
        if grant.no_work is NoWork.LIMIT:
            return pages
        now += 100
    raise AssertionError("the crawl does not come to its end")


async def fill(urls: UrlStore, sizes: dict[str, int], total: int) -> None:
    await create(urls, max_pages=total)
    for domain, size in sizes.items():
        await add(urls, *(f"https://{domain}/{number}" for number in range(size)))


async def test_fifty_seeds_share_a_hundred_pages(urls: UrlStore) -> None:
    await fill(urls, {f"d{number}.org": 20 for number in range(50)}, total=100)
    pages = await crawl_fairly(urls, slots=32)
    assert set(pages.values()) == {2}
    assert len(pages) == 50


async def test_what_small_domains_leave_goes_to_the_large_ones(urls: UrlStore) -> None:
    await fill(urls, {"large.org": 90, "huge.org": 90, "tiny.org": 1, "small.org": 3}, total=24)
    assert await crawl_fairly(urls, slots=8) == {"large.org": 10, "huge.org": 10, "tiny.org": 1, "small.org": 3}


async def test_the_last_pages_that_are_too_few_for_all_are_not_left(urls: UrlStore) -> None:
    await fill(urls, {"a.org": 9, "b.org": 9, "c.org": 9}, total=10)
    assert sorted((await crawl_fairly(urls, slots=4)).values()) == [3, 3, 4]


async def test_a_total_is_not_shared_where_nobody_asks_for_it(urls: UrlStore) -> None:
    await fill(urls, {"a.org": 20, "b.org": 20}, total=20)
    assert len({page.domain for page in await lease(urls, slots=20, max_per_queue=20)}) == 1


async def test_a_total_is_not_shared_without_budgets(place: Place) -> None:
    async with await open_store(place.dsn, Settings(enable_per_domain_budget=False)) as stores:
        await fill(stores.urls, {"a.org": 20, "b.org": 20}, total=20)
        assert len({page.domain for page in await lease(stores.urls, slots=20, fair=True)}) == 1
