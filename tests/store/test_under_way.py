"""Calls of one process that add the same URLs at the same time."""

import asyncio

import pytest

from outrider.model.errors import StoreError
from outrider.model.task import CrawlLimits, CrawlRules, Discovered
from outrider.policy.admission import KNOWN, NEW, Candidate, admit
from outrider.store.opening import open_store
from outrider.store.sql import migrate
from outrider.store.sql.under_way import UnderWay


def candidates(*urls: str) -> list[Candidate]:
    return admit([Discovered(url=url) for url in urls], CrawlRules()).candidates


async def test_the_later_call_leaves_out_what_the_earlier_one_adds() -> None:
    under_way = UnderWay()
    first, second, third = candidates("http://a.example/1", "http://a.example/2", "http://a.example/3")
    with under_way.claim(1, [first, second, first]) as earlier, under_way.claim(1, [second, third]) as later:
        assert earlier.mine == [first, second, first]
        assert later.mine == [third]
        assert [candidate for candidate, _ in later.others] == [second]
    assert await later.others[0][1]
    with under_way.claim(1, [first, second, third]) as afterwards:
        assert afterwards.mine == [first, second, third]


async def test_what_a_failing_call_did_not_add_is_left_to_do() -> None:
    under_way = UnderWay()
    (only,) = candidates("http://a.example/1")
    with pytest.raises(StoreError), under_way.claim(1, [only]), under_way.claim(1, [only]) as later:
        raise StoreError
    assert not await later.others[0][1]


async def test_another_crawl_or_key_is_another_task() -> None:
    under_way = UnderWay()
    (only,) = candidates("http://a.example/1")
    with under_way.claim(1, [only]), under_way.claim(2, [only]) as other_crawl:
        assert other_crawl.mine == [only]
    keyed = only._replace(key="mine")
    with under_way.claim(1, [only]), under_way.claim(1, [keyed]) as other_key:
        assert other_key.mine == [keyed]


async def test_one_of_many_calls_for_the_same_urls_finds_them_new(postgres_database: str) -> None:
    await asyncio.to_thread(migrate.upgrade, postgres_database)
    async with await open_store(postgres_database) as stores:
        await stores.urls.create_crawl("c", limits=CrawlLimits())
        batches = [[Discovered(url=f"http://{site}.example/{page}") for site in "abc"] for page in range(50)]
        offered = [item for batch in batches for item in batch]
        answers = await asyncio.gather(*(stores.urls.add("c", offered) for _ in range(8)))
        for results in zip(*answers, strict=True):
            assert sorted(results, key=lambda result: result is NEW) == [KNOWN] * 7 + [NEW]
        assert (await stores.urls.counts("c")).pending == len(offered)
