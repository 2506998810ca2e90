"""The frontier in this process: nobody waits longer than there is reason to."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from outrider.frontier.local import POLL_S, LocalFrontier
from outrider.frontier.protocol import Work
from outrider.model.artifact import Fetch
from outrider.model.errors import LimitExceeded
from outrider.model.identifiers import new_uuid7
from outrider.model.lease import Lease, LeaseGrant, LeaseRequest, NoWork, Outcome, Report
from outrider.model.task import MAX_BATCH, Added, AddResult, CrawlLimits, CrawlState, Discovered
from outrider.model.url import locate
from outrider.store.opening import Stores, open_store
from outrider.store.protocols import UrlStore
from tests.crawler.crawling import machine_is_overloaded

AT_ONCE_S = 0.08
"""Below the time between two polls, and enough for a busy machine."""
LONG_S = 10.0
LIMITS = CrawlLimits(delay_ms=0, concurrency=1, robots=False)


@pytest.fixture(scope="module", autouse=True)
def public_suffixes() -> None:
    """Have the first name of a process looked up before anything is timed: it takes 40 ms."""
    locate("https://a.example/")


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with await open_store(f"sqlite:///{tmp_path / 'store.sqlite'}") as stores:
        await stores.urls.create_crawl("c", limits=LIMITS)
        yield stores


@pytest.fixture
async def frontier(stores: Stores) -> AsyncIterator[LocalFrontier]:
    async with LocalFrontier(stores.urls) as frontier:
        yield frontier


def request(crawl: str = "c") -> LeaseRequest:
    return LeaseRequest(worker="w", request_id=new_uuid7(), slots=1, crawl=crawl)


def done(lease: Lease) -> Report:
    return Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200))


async def add(frontier: LocalFrontier, *urls: str, crawl: str = "c") -> None:
    await frontier.add(crawl, [Discovered(url=url) for url in urls])


async def wait(frontier: LocalFrontier) -> "asyncio.Task[tuple[Work, float]]":
    """Begin to wait for work; the answer comes with its time."""

    async def waiting() -> tuple[Work, float]:
        work = await frontier.lease(request(), wait_s=LONG_S)
        return work, time.monotonic()

    task = asyncio.create_task(waiting())
    # Its first look, which finds nothing, is behind it.
    await frontier.lease(request(), wait_s=2 * POLL_S / 3)
    return task


async def test_who_waits_is_served_as_soon_as_something_is_added(frontier: LocalFrontier) -> None:
    waiting = await wait(frontier)
    began = time.monotonic()
    await add(frontier, "https://a.example/")
    work, at = await waiting
    assert len(work.grant.leases) == 1
    assert at - began < AT_ONCE_S or machine_is_overloaded()


async def test_who_waits_for_a_busy_domain_is_served_as_soon_as_its_request_is_reported(
    frontier: LocalFrontier,
) -> None:
    await add(frontier, "https://a.example/1", "https://a.example/2")
    [lease] = (await frontier.lease(request())).grant.leases
    waiting = await wait(frontier)
    began = time.monotonic()
    await frontier.report([done(lease)])
    work, at = await waiting
    assert [lease.url for lease in work.grant.leases] == ["https://a.example/2"]
    assert at - began < AT_ONCE_S or machine_is_overloaded()


async def test_who_waits_is_served_as_soon_as_something_is_given_back(frontier: LocalFrontier) -> None:
    await add(frontier, "https://a.example/")
    [lease] = (await frontier.lease(request())).grant.leases
    waiting = await wait(frontier)
    began = time.monotonic()
    assert await frontier.release([lease.token]) == [lease.token]
    _, at = await waiting
    assert at - began < AT_ONCE_S or machine_is_overloaded()


async def test_who_waits_for_a_delay_is_served_when_it_is_over(stores: Stores, frontier: LocalFrontier) -> None:
    await stores.urls.set_crawl_limits("c", CrawlLimits(delay_ms=350, concurrency=1, robots=False))
    await add(frontier, "https://a.example/1", "https://a.example/2")
    first = await frontier.lease(request())
    await frontier.report([done(first.grant.leases[0])])
    work = await frontier.lease(request(), wait_s=LONG_S)
    assert len(work.grant.leases) == 1
    assert 0.345 <= work.asked_at - first.asked_at <= 0.35 + AT_ONCE_S


async def test_what_another_process_adds_is_found_at_the_next_poll(tmp_path: Path, frontier: LocalFrontier) -> None:
    waiting = await wait(frontier)
    async with await open_store(f"sqlite:///{tmp_path / 'store.sqlite'}") as others:
        began = time.monotonic()
        await others.urls.add("c", [Discovered(url="https://a.example/")])
        _, at = await waiting
    assert at - began < POLL_S + AT_ONCE_S or machine_is_overloaded()


class Counting:
    """A store that counts how often it is asked for work, and of how many URLs it was given each batch."""

    def __init__(self, urls: UrlStore) -> None:
        self._urls = urls
        self.looks = 0
        self.batches: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._urls, name)

    async def lease(self, request: LeaseRequest) -> LeaseGrant:
        self.looks += 1
        return await self._urls.lease(request)

    async def add(self, crawl: str, items: Sequence[Discovered]) -> list[AddResult]:
        self.batches.append(len(items))
        return await self._urls.add(crawl, items)


async def test_who_waits_while_nothing_changes_does_not_look_again_before_the_end(stores: Stores) -> None:
    counting = Counting(stores.urls)
    await LocalFrontier(cast(UrlStore, counting)).lease(request(), wait_s=6 * POLL_S)
    assert counting.looks == 2


async def test_a_large_batch_is_added_in_parts_while_somebody_leases(stores: Stores) -> None:
    counting = Counting(stores.urls)
    frontier = LocalFrontier(cast(UrlStore, counting))
    pages = [Discovered(url=f"https://a.example/{number}") for number in range(600)]
    await frontier.add("c", pages[:500])
    assert counting.batches == [500]
    await frontier.lease(request())
    results = await frontier.add("c", [*pages, pages[0]])
    assert [result.outcome for result in results] == [Added.KNOWN] * 500 + [Added.NEW] * 100 + [Added.KNOWN]
    assert counting.batches == [500, 201, 201, 199]
    assert await frontier.add("c", []) == []
    with pytest.raises(LimitExceeded, match="10001 URLs"):
        await frontier.add("c", pages[:1] * (MAX_BATCH + 1))


async def test_a_version_changes_with_every_commit_of_anybody_and_not_by_looking(
    tmp_path: Path, stores: Stores
) -> None:
    version = stores.urls.version()
    await stores.urls.lease(request())
    await stores.urls.reap()
    assert stores.urls.version() == version is not None
    await stores.urls.add("c", [Discovered(url="https://a.example/")])
    ours = stores.urls.version()
    async with await open_store(f"sqlite:///{tmp_path / 'store.sqlite'}") as others:
        await others.urls.add("c", [Discovered(url="https://b.example/")])
    assert len({version, ours, stores.urls.version()}) == 3


async def test_who_has_waited_long_enough_is_told_that_there_is_nothing(frontier: LocalFrontier) -> None:
    began = time.monotonic()
    work = await frontier.lease(request(), wait_s=0.15)
    assert (work.grant.leases, work.grant.no_work) == ([], NoWork.WAITING)
    assert 0.15 <= time.monotonic() - began < 0.15 + AT_ONCE_S


async def test_who_does_not_want_to_wait_is_not_held_up_by_who_does(frontier: LocalFrontier) -> None:
    waiting = await wait(frontier)
    began = time.monotonic()
    assert (await frontier.lease(request())).grant.leases == []
    assert time.monotonic() - began < AT_ONCE_S or machine_is_overloaded()
    waiting.cancel()


async def test_of_many_who_wait_each_gets_something_of_its_own(frontier: LocalFrontier) -> None:
    waiting = [asyncio.create_task(frontier.lease(request(), wait_s=LONG_S)) for _ in range(20)]
    await add(frontier, *(f"https://s{number}.example/" for number in range(20)))
    grants = [(await each).grant for each in waiting]
    assert len({lease.url for grant in grants for lease in grant.leases}) == 20


async def test_a_crawl_that_is_paused_says_so(stores: Stores, frontier: LocalFrontier) -> None:
    await add(frontier, "https://a.example/")
    await stores.urls.set_crawl_state("c", CrawlState.PAUSED)
    assert (await frontier.lease(request(), wait_s=0.01)).grant.no_work is NoWork.PAUSED
