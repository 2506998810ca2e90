"""The frontier protocol: the same tests for the frontier in process and for the one behind HTTP."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from outrider.frontier.local import LocalFrontier
from outrider.frontier.protocol import Frontier, Work
from outrider.model.artifact import Fetch
from outrider.model.errors import InvalidInput, UnknownCrawl
from outrider.model.gate import Robots
from outrider.model.lease import LeaseRequest, NoWork, Outcome, Renewal, Report, Token, Verdict
from outrider.model.task import Added, AddResult, CrawlLimits, CrawlRules, CrawlState, Discovered, DiscoveryType, Kind
from outrider.model.url import UrlRefused
from outrider.service.client import connect
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from tests.service.serving import Port, open_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

FREE = CrawlLimits(delay_ms=0, concurrency=100, robots=False)


class OverStore(NamedTuple):
    """A frontier, and the store that it is over."""

    frontier: Frontier
    urls: UrlStore


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[Port]:
    async with open_port() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module", params=["local", "remote"])
async def tested(request: pytest.FixtureRequest, port: Port, tmp_path: Path) -> AsyncIterator[OverStore]:
    if request.param == "local":
        async with (
            await open_store(f"sqlite:///{tmp_path}/outrider.sqlite") as stores,
            LocalFrontier(stores.urls) as local,
        ):
            await stores.urls.create_crawl("news", CrawlRules(), FREE)
            yield OverStore(local, stores.urls)
    else:
        async with port.serving(tmp_path) as served, connect(served.base_url) as remote:
            urls = served.service.backend.stores.urls
            await urls.create_crawl("news", CrawlRules(), FREE)
            yield OverStore(remote, urls)


def wish(
    request_id: str = "r", *, slots: int = 10, crawl: str | None = "news", lease_ms: int | None = None
) -> LeaseRequest:
    return LeaseRequest(worker="w", request_id=request_id, slots=slots, crawl=crawl, lease_ms=lease_ms)


def done(token: Token, *links: str) -> Report:
    found = [Discovered(url=url, depth=1) for url in links]
    return Report(token=token, outcome=Outcome.DONE, fetch=Fetch(http_status=200), links=found)


async def test_each_discovery_has_its_answer(tested: OverStore) -> None:
    items = [Discovered(url="http://a.example/"), Discovered(url="nope"), Discovered(url="http://A.example/#top")]
    results = await tested.frontier.add("news", items)
    assert [result.outcome for result in results] == [Added.NEW, Added.REJECTED, Added.KNOWN]
    assert all(isinstance(result, AddResult) for result in results)
    assert await tested.frontier.add("news", []) == []


async def test_a_discovery_keeps_all_that_was_said_of_it(tested: OverStore) -> None:
    item = Discovered(
        url="http://a.example/map", depth=3, priority=7, key="own", kind=Kind.SITEMAP,
        discovery_type=DiscoveryType.FEED, metadata={"a": [1, "zwei", None]},
    )  # fmt: skip
    await tested.frontier.add("news", [item])
    (lease,) = (await tested.frontier.lease(wish())).grant.leases
    assert (lease.url, lease.depth, lease.priority, lease.key) == (item.url, 3, 7, "own")
    assert (lease.kind, lease.discovery_type, lease.metadata) == (Kind.SITEMAP, DiscoveryType.FEED, item.metadata)
    assert type(lease.kind) is Kind
    assert type(lease.discovery_type) is DiscoveryType


async def test_a_due_date_is_kept(tested: OverStore) -> None:
    await tested.frontier.add("news", [Discovered(url="http://a.example/", due_in_ms=60_000)])
    work = await tested.frontier.lease(wish())
    assert work.grant.leases == []
    assert work.grant.no_work is NoWork.WAITING
    assert work.grant.next_ready_at is not None
    assert abs(work.grant.next_ready_at - (time.time() * 1000 + 60_000)) < 5_000
    assert work.grant.next_ready_at == pytest.approx((await tested.frontier.outlook("news")).next_ready_at, abs=1_000)


async def test_the_same_request_gives_the_same_leases(tested: OverStore) -> None:
    """Invariant 2, Exclusivity."""
    await tested.frontier.add("news", [Discovered(url=f"http://a.example/{number}") for number in range(4)])
    first = await tested.frontier.lease(wish("one", slots=3))
    again = await tested.frontier.lease(wish("one", slots=3))
    assert [lease.token for lease in first.grant.leases] == [lease.token for lease in again.grant.leases]
    assert len((await tested.frontier.lease(wish("two"))).grant.leases) == 1


async def test_a_lease_is_for_as_long_as_was_asked(tested: OverStore) -> None:
    await tested.frontier.add("news", [Discovered(url="http://a.example/")])
    (lease,) = (await tested.frontier.lease(wish(lease_ms=5_000))).grant.leases
    assert lease.lease_ms == 5_000
    holder = await tested.urls.find_holder("news", lease.url)
    assert holder is not None
    assert holder.expires_at - holder.granted_at == 5_000


async def test_work_of_any_crawl_is_asked_for_by_naming_none(tested: OverStore) -> None:
    await tested.urls.create_crawl("sports", CrawlRules(), FREE)
    await tested.frontier.add("news", [Discovered(url="http://a.example/")])
    await tested.frontier.add("sports", [Discovered(url="http://b.example/")])
    work = await tested.frontier.lease(wish(crawl=None))
    assert {lease.crawl for lease in work.grant.leases} == {"news", "sports"}


async def test_a_report_ends_a_lease_with_its_links(tested: OverStore) -> None:
    """Invariant 5, Nothing lost."""
    await tested.frontier.add("news", [Discovered(url="http://a.example/")])
    (lease,) = (await tested.frontier.lease(wish())).grant.leases
    answers = await tested.frontier.report([done(lease.token, "http://a.example/1", "http://a.example/2")])
    assert [answer.verdict for answer in answers] == [Verdict.COMPLETED]
    assert await tested.frontier.report([done(lease.token)]) == answers
    counts = (await tested.frontier.outlook("news")).counts
    assert (counts.completed, counts.pending, counts.assigned) == (1, 2, 0)


async def test_a_report_keeps_all_that_was_measured(tested: OverStore) -> None:
    await tested.frontier.add("news", [Discovered(url="http://a.example/")])
    (lease,) = (await tested.frontier.lease(wish())).grant.leases
    fetch = Fetch(
        http_status=200, fetched_at=1_700_000_000_123, elapsed_ms=12, content_type="text/html", body_bytes=99,
        images_found=3, digest="sha256:0", etag='"x"', last_modified="Mon", content_location="f:0:1", title="Tïtle",
        links_found=7, noindex=True, redirects=("http://b.example/",),
    )  # fmt: skip
    await tested.frontier.report([Report(token=lease.token, outcome=Outcome.DONE, fetch=fetch)])
    (artifact,) = await tested.urls.artifacts("news")
    assert artifact.fetch == fetch


async def test_a_retry_has_its_moment_on_this_clock(tested: OverStore) -> None:
    await tested.frontier.add("news", [Discovered(url="http://a.example/")])
    (lease,) = (await tested.frontier.lease(wish())).grant.leases
    report = Report(token=lease.token, outcome=Outcome.DEFERRED, retry_after_ms=60_000, reason="later")
    (answer,) = await tested.frontier.report([report])
    assert answer.verdict is Verdict.RETRY_AT
    assert answer.retry_at is not None
    assert abs(answer.retry_at - (time.time() * 1000 + 60_000)) < 5_000


async def test_a_lost_lease_is_told_and_changes_nothing(tested: OverStore) -> None:
    await tested.frontier.add("news", [Discovered(url="http://a.example/")])
    (lease,) = (await tested.frontier.lease(wish())).grant.leases
    tokens = [lease.token, Token("0" * 32), Token("no token")]
    assert await tested.frontier.renew(tokens) == [Renewal.OK, Renewal.LEASE_LOST, Renewal.LEASE_LOST]
    assert await tested.frontier.release(tokens) == [lease.token]
    assert await tested.frontier.release(tokens) == []
    (answer,) = await tested.frontier.report([done(lease.token, "http://a.example/1")])
    assert answer.verdict is Verdict.LEASE_LOST
    assert (await tested.frontier.outlook("news")).counts.total == 1


async def test_waiting_ends_with_work_and_tells_since_when_its_clock_runs(tested: OverStore) -> None:
    began = time.monotonic()
    waiting = asyncio.create_task(tested.frontier.lease(wish(), wait_s=10))
    await asyncio.sleep(0.3)  # not to wait for anything: this is how long the wait shall have lasted
    added = time.monotonic()
    await tested.frontier.add("news", [Discovered(url="http://a.example/")])
    work: Work = await asyncio.wait_for(waiting, 5)
    ended = time.monotonic()
    assert len(work.grant.leases) == 1
    assert ended - added < 3
    holder = await tested.urls.find_holder("news", "http://a.example/")
    assert holder is not None
    granted = holder.granted_at / 1000 - time.time() + time.monotonic()
    # No later than the grant, or a worker would believe that it has more time than it has …
    assert work.asked_at <= granted + 0.01
    # … and not when it began to wait, or every site would have to wait as long as the worker did.
    assert work.asked_at > began + 0.15


async def test_waiting_is_no_longer_than_was_asked(tested: OverStore) -> None:
    began = time.monotonic()
    work = await tested.frontier.lease(wish(), wait_s=0.2)
    assert (work.grant.leases, work.grant.next_ready_at) == ([], None)
    assert 0.15 < time.monotonic() - began < 5


async def test_why_there_is_no_work_is_told(tested: OverStore) -> None:
    await tested.frontier.add("news", [Discovered(url="http://a.example/")])
    for state, reason in ((CrawlState.PAUSED, NoWork.PAUSED), (CrawlState.CANCELLED, NoWork.CANCELLED)):
        await tested.urls.set_crawl_state("news", state)
        assert (await tested.frontier.lease(wish())).grant.no_work is reason


async def test_robots_are_read_as_they_were_reported(tested: OverStore) -> None:
    assert await tested.frontier.robots_text("a.example") is None
    await tested.urls.create_crawl("polite", CrawlRules(), CrawlLimits(delay_ms=0))
    await tested.frontier.add("polite", [Discovered(url="http://a.example/")])
    (lease,) = (await tested.frontier.lease(wish(crawl="polite"))).grant.leases
    text = "User-agent: *\nDisallow: /ä\n"
    report = Report(
        token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200),
        robots=Robots(text=text, expires_in_ms=60_000, crawl_delay_ms=5),
    )  # fmt: skip
    await tested.frontier.report([report])
    found = await tested.frontier.robots_text("a.example")
    assert found is not None
    assert found[1] == text


async def test_the_scope_is_widened(tested: OverStore) -> None:
    await tested.frontier.widen_scope("news", ["http://a.example/x", "http://b.example"])
    await tested.frontier.widen_scope("news", ["http://b.example/"])
    assert await tested.frontier.scope_roots("news") == ["http://a.example/x", "http://b.example/"]


async def test_errors_are_the_same(tested: OverStore) -> None:
    for call in (
        lambda: tested.frontier.add("none", [Discovered(url="http://a.example/")]),
        lambda: tested.frontier.lease(wish(crawl="none")),
        lambda: tested.frontier.outlook("none"),
        lambda: tested.frontier.scope_roots("none"),
        lambda: tested.frontier.widen_scope("none", ["http://a.example/"]),
    ):
        with pytest.raises(UnknownCrawl) as unknown:
            await call()
        assert unknown.value.name == "none"
    with pytest.raises(InvalidInput, match="slots"):
        await tested.frontier.lease(wish(slots=0))
    with pytest.raises(UrlRefused):
        await tested.frontier.widen_scope("news", ["mailto:x"])
