"""Restoring what an export told of."""

import asyncio
from typing import Any

import msgspec
import pytest

from outrider.model.errors import LimitExceeded, UnknownCrawl
from outrider.model.lease import LeaseRequest
from outrider.model.machines import TaskState
from outrider.model.task import Added, CrawlLimits, Discovered, Kind, Refusal, Restored
from outrider.store.opening import Stores
from outrider.store.protocols import UrlStore
from tests.conformance.backends import Place
from tests.recount import check_counts

NOW = 1_700_000_000_000
PAST = Restored(
    url="https://a.org/", state=TaskState.COMPLETED, http_status=200, depth=2, priority=7, due_at=NOW - 5,
    discovered_at=NOW - 9, attempt_count=3, failures=1, deferrals=2, reason="“once”", metadata={"a": [1]},
)  # fmt: skip


@pytest.fixture
async def urls(stores: Stores) -> UrlStore:
    await stores.urls.create_crawl("c", limits=CrawlLimits(delay_ms=0, concurrency=9, robots=False, max_depth=5))
    return stores.urls


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.FAILED, TaskState.PENDING])
async def test_a_task_comes_back_as_it_was(place: Place, urls: UrlStore, state: TaskState) -> None:
    (result,) = await urls.restore("c", [msgspec.structs.replace(PAST, state=state)], now=NOW)
    assert result.outcome is Added.NEW
    task = await urls.find_task("c", PAST.url)
    assert task is not None
    for field in ("depth", "priority", "due_at", "discovered_at", "attempt_count", "failures", "deferrals",
                  "http_status", "reason", "metadata"):  # fmt: skip
        assert getattr(task, field) == getattr(PAST, field), field
    assert task.state is state
    await check_counts(place)


async def test_what_is_there_stays_as_it_is(place: Place, urls: UrlStore) -> None:
    await urls.add("c", [Discovered(url=PAST.url)], now=NOW)
    before = await urls.find_task("c", PAST.url)
    (result,) = await urls.restore("c", [PAST], now=NOW + 1)
    assert result.outcome is Added.KNOWN
    assert await urls.find_task("c", PAST.url) == before
    await check_counts(place)


async def test_of_two_items_for_one_url_the_first_holds(place: Place, urls: UrlStore) -> None:
    other = msgspec.structs.replace(PAST, url="HTTPS://A.org:443/#top", state=TaskState.FAILED)
    results = await urls.restore("c", [PAST, other], now=NOW)
    assert [result.outcome for result in results] == [Added.NEW, Added.KNOWN]
    task = await urls.find_task("c", PAST.url)
    assert task is not None
    assert task.state is TaskState.COMPLETED
    await check_counts(place)


async def test_only_what_is_pending_and_due_is_leased(place: Place, urls: UrlStore) -> None:
    states = {"done": TaskState.COMPLETED, "failed": TaskState.FAILED, "held": TaskState.ASSIGNED}
    items = [msgspec.structs.replace(PAST, url=f"https://{name}.org/", state=each) for name, each in states.items()]
    items.append(msgspec.structs.replace(PAST, url="https://later.org/", state=TaskState.PENDING, due_at=NOW + 50))
    items.append(msgspec.structs.replace(PAST, url="https://deep.org/", state=TaskState.PENDING, depth=6))
    await urls.restore("c", items, now=NOW)
    request = LeaseRequest(worker="w", request_id="1", slots=9, crawl="c")
    grant = await urls.lease(request, now=NOW)
    assert [(lease.url, lease.attempt) for lease in grant.leases] == [("https://held.org/", 4)]
    assert grant.next_ready_at == NOW + 50
    later = await urls.lease(msgspec.structs.replace(request, request_id="2"), now=NOW + 50)
    assert [lease.url for lease in later.leases] == ["https://later.org/"]
    assert (await urls.counts("c")).discovered == 1
    await check_counts(place)


async def test_a_restored_robots_task_is_fetched_anew_before_its_site(place: Place, urls: UrlStore) -> None:
    await urls.create_crawl("r", limits=CrawlLimits(delay_ms=0))
    robots = msgspec.structs.replace(PAST, url="https://a.org/robots.txt", kind=Kind.ROBOTS)
    await urls.restore("r", [robots, Restored(url="https://a.org/1")], now=NOW)
    grant = await urls.lease(LeaseRequest(worker="w", request_id="1", slots=9, crawl="r"), now=NOW)
    assert [lease.url for lease in grant.leases] == ["https://a.org/robots.txt"]
    await check_counts(place)


async def test_each_bad_item_is_refused_by_itself(place: Place, urls: UrlStore) -> None:
    bad: list[dict[str, Any]] = [
        {"state": "completed"}, {"attempt_count": -1}, {"failures": 2**31}, {"deferrals": True}, {"http_status": 1000},
        {"due_at": -1}, {"discovered_at": 2**60}, {"reason": "\0"}, {"reason": 5},
    ]  # fmt: skip
    items = [msgspec.structs.replace(PAST, **fields) for fields in bad]
    results = await urls.restore("c", [*items, msgspec.structs.replace(PAST, url="mailto:me"), PAST], now=NOW)
    assert [result.reason for result in results] == [*[Refusal.BAD_HISTORY] * len(bad), Refusal.NOT_HTTP, None]
    for fields, result in zip(bad, results, strict=False):
        assert next(iter(fields)) in str(result.detail)
    await check_counts(place)


async def test_batches_have_a_limit_and_crawls_a_name(urls: UrlStore) -> None:
    with pytest.raises(LimitExceeded):
        await urls.restore("c", [PAST] * 10_001, now=NOW)
    with pytest.raises(UnknownCrawl):
        await urls.restore("none", [PAST], now=NOW)
    assert await urls.restore("c", [], now=NOW) == []


async def test_two_imports_at_the_same_time_make_each_task_once(place: Place, urls: UrlStore) -> None:
    items = [msgspec.structs.replace(PAST, url=f"https://a.org/{number}") for number in range(300)]
    both = await asyncio.gather(urls.restore("c", items), urls.restore("c", items[::-1]))
    assert sum(result.outcome is Added.NEW for results in both for result in results) == 300
    assert (await urls.counts("c")).completed == 300
    await check_counts(place)
