"""Limits: pages per crawl, per domain and run, per queue; and the overrides of single queues."""

from uuid import uuid4

from outrider.model.lease import NoWork, Verdict
from outrider.model.machines import TaskState
from outrider.model.task import CrawlLimits, CrawlRules, KeyRule, Kind, QueueSettings
from outrider.store.protocols import UrlStore
from tests.conformance.acting import (
    DAY,
    FAILED,
    HOUR,
    KNOWN,
    MINUTE,
    NEW,
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
    wait_for_lease,
)


def freely(**limits: int) -> CrawlLimits:
    """Limits without politeness."""
    return CrawlLimits(delay_ms=0, concurrency=100, robots=False, **limits)


async def test_a_crawl_never_has_more_pages_done_and_in_flight_than_its_limit(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: done + in flight < limit, decided in `lease`."""
    await create(urls, max_pages=3)
    await add(urls, *(f"http://{letter}.example/{n}" for letter in "abcd" for n in range(2)))
    first, second = await lease(urls, slots=2)
    grant = await ask(urls, slots=10)
    assert (len(grant.leases), grant.no_work) == (1, NoWork.LIMIT)
    assert (await ask(urls)).no_work is NoWork.LIMIT
    await report(urls, first, now=T0)
    assert (await ask(urls)).no_work is NoWork.LIMIT
    await report(urls, second, REFUSED, now=T0)
    assert len(await lease(urls, slots=10)) == 1, "a page that did not come about leaves room for another"
    assert await lease(urls, slots=10) == []


async def test_only_pages_count_towards_the_limit_of_a_crawl(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact, by kind."""
    await create(urls, max_pages=1)
    await add(
        urls,
        found("http://a.example/s", kind=Kind.SITEMAP, priority=2),
        found("http://a.example/i", kind=Kind.IMAGE, priority=1),
        "http://a.example/p",
        "http://a.example/q",
    )
    kinds = [(await lease_one(urls)).kind for _ in range(3)]
    assert kinds == [Kind.SITEMAP, Kind.IMAGE, Kind.PAGE]
    assert (await ask(urls)).no_work is NoWork.LIMIT


async def test_a_raised_page_limit_holds_at_once(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact."""
    await create(urls, max_pages=0)
    await add(urls, *(f"http://a.example/{n}" for n in range(5)))
    assert (await ask(urls, slots=9)).no_work is NoWork.LIMIT
    await urls.set_crawl_limits("c", freely(max_pages=2))
    assert len(await lease(urls, slots=9)) == 2
    await urls.set_crawl_limits("c", freely())
    assert len(await lease(urls, slots=9)) == 3


async def test_a_crawl_at_its_limit_does_not_keep_others_from_work(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: each crawl has its own."""
    await create(urls, "full", max_pages=0)
    await create(urls, "open")
    for crawl in ("full", "open"):
        await add(urls, f"http://{crawl}.example/", crawl=crawl)
    assert [each.crawl for each in await lease(urls, None, slots=5)] == ["open"]


async def test_a_run_has_a_budget_of_pages_for_each_domain(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: done + in flight < limit, for one domain in one run."""
    await create(urls, max_pages_per_domain=2)
    await add(urls, *(f"http://{letter}.example/{n}" for letter in "ab" for n in range(5)))
    run = str(uuid4())
    first = await lease(urls, slots=20, run_id=run)
    assert sorted(each.domain[0] for each in first) == ["a", "a", "b", "b"]
    assert await lease(urls, slots=20, run_id=run) == []
    await report(urls, first[0], now=T0)
    await report(urls, first[1], FAILED, now=T0)
    (replacement,) = await lease(urls, slots=20, run_id=run)
    assert replacement.domain == first[1].domain
    await urls.report([saying(each) for each in (*first[2:], replacement)], now=T0)
    assert await lease(urls, slots=20, run_id=run, now=T0 + HOUR) == []


async def test_a_later_run_has_a_budget_of_its_own(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: what one run's budget left undone the next run finds."""
    await create(urls, max_pages_per_domain=1)
    await add(urls, *(f"http://{letter}.example/{n}" for letter in "ab" for n in range(4)))
    for _ in range(4):
        run = str(uuid4())
        done = [await lease_one(urls, run_id=run), await lease_one(urls, run_id=run)]
        assert await lease(urls, slots=9, run_id=run) == []
        await urls.report([saying(each) for each in done], now=T0)
        assert await lease(urls, slots=9, run_id=run) == [], "the run has looked everywhere once more"
    assert (await check_counts(urls)).completed == 8


async def test_a_request_without_a_run_has_no_budget_to_keep(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: what a run's budget left undone others find, in this crawl or in any."""
    await create(urls, max_pages_per_domain=1)
    await add(urls, *(f"http://a.example/{n}" for n in range(5)))
    for crawl in ("c", None):
        run = str(uuid4())
        await lease_one(urls, crawl, run_id=run)
        assert await lease(urls, crawl, slots=9, run_id=run) == []
        await lease_one(urls, crawl)
    assert len(await lease(urls, slots=9)) == 1


async def test_two_runs_at_once_have_a_budget_each(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact, for each run."""
    await create(urls, max_pages_per_domain=1)
    await add(urls, *(f"http://a.example/{n}" for n in range(4)))
    one, other = str(uuid4()), str(uuid4())
    assert len(await lease(urls, slots=9, run_id=one)) == 1
    assert await lease(urls, slots=9, run_id=one) == []
    assert len(await lease(urls, slots=9, run_id=other)) == 1
    assert await lease(urls, slots=9, run_id=one) == []
    assert await lease(urls, slots=9, run_id=other) == []


async def test_a_budget_binds_the_domains_of_a_queue_of_several(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: the budget is the domain's, whatever key a client gives its tasks."""
    await create(urls, max_pages_per_domain=1)
    await add(urls, *(found(f"http://{letter}.example/{n}", key="k") for n in range(3) for letter in "ab"))
    run = str(uuid4())
    leased = await lease(urls, slots=9, run_id=run)
    assert sorted(each.domain for each in leased) == ["a.example", "b.example"]
    assert await lease(urls, slots=9, run_id=run, now=T0 + MINUTE) == []


async def test_a_budget_binds_the_queues_that_share_a_domain(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: the budget is the domain's, however many queues it has."""
    await create(urls, rules=CrawlRules(key_rule=KeyRule.HOST), max_pages_per_domain=1)
    await add(urls, "http://a.example/", "http://www.a.example/", "https://a.example/")
    run = str(uuid4())
    assert len(await lease(urls, slots=9, run_id=run)) == 1
    assert await lease(urls, slots=9, run_id=run, now=T0 + MINUTE) == []


async def test_a_raised_budget_wakes_the_queues_that_had_used_it_up(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: what was left waiting is found again."""
    await create(urls, max_pages_per_domain=1)
    await add(urls, *(f"http://{letter}.example/{n}" for letter in "ab" for n in range(3)))
    run = str(uuid4())
    assert len(await lease(urls, slots=9, run_id=run)) == 2
    grant = await ask(urls, slots=9, run_id=run)
    assert (grant.leases, grant.next_ready_at) == ([], None)
    await urls.set_crawl_limits("c", freely(max_pages_per_domain=2))
    assert len(await lease(urls, slots=9, run_id=run)) == 2


async def test_a_queue_may_have_a_page_limit_that_can_be_raised(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: done + in flight < limit, for one queue."""
    await create(urls)
    await add(urls, *(f"http://a.example/{n}" for n in range(5)), "http://b.example/")
    await urls.configure_queue("c", "a.example", QueueSettings(page_limit=2), now=T0)
    leased = [each for each in await lease(urls, slots=9) if each.key == "a.example"]
    assert len(leased) == 2
    grant = await ask(urls, slots=9)
    assert (grant.leases, grant.no_work) == ([], NoWork.WAITING)
    await report(urls, leased[0], now=T0)
    assert await lease(urls, slots=9) == []
    await report(urls, leased[1], REFUSED, now=T0)
    assert len(await lease(urls, slots=9)) == 1
    await urls.configure_queue("c", "a.example", QueueSettings(page_limit=3), now=T0)
    assert len(await lease(urls, slots=9)) == 1
    await urls.configure_queue("c", "a.example", QueueSettings(), now=T0)
    assert len(await lease(urls, slots=9)) == 1
    await check_counts(urls)


async def test_a_page_limit_of_a_queue_of_several_domains_frees_what_failed(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: a queue at its limit is woken when a page in flight does not come about."""
    await create(urls)
    await urls.configure_queue("c", "k", QueueSettings(page_limit=1), now=T0)
    await add(urls, found("http://a.example/", key="k"), found("http://b.example/", key="k"))
    leased = await lease_one(urls, slots=9)
    assert await lease(urls, slots=9) == []
    assert (await report(urls, leased, REFUSED, now=T0)).verdict is Verdict.FAILED
    other, at = await wait_for_lease(urls, now=T0)
    assert other.domain == "b.example"
    assert at <= T0 + SECOND


async def test_overrides_hold_that_were_set_before_the_first_url_of_a_queue(urls: UrlStore) -> None:
    """Invariant 7, Politeness: per-queue overrides may be set before the queue's first URL."""
    await create(urls)
    settings = {
        "slow.example": QueueSettings(delay_ms=30 * SECOND),
        "shut.example": QueueSettings(blocked_until=T0 + HOUR),
        "small.example": QueueSettings(page_limit=1),
        "urgent.example": QueueSettings(priority=1_000),
    }
    for key, chosen in settings.items():
        await urls.configure_queue("c", key, chosen, now=T0)
    assert await lease(urls) == []
    await add(urls, *(f"http://{key}/{n}" for key in sorted(settings) for n in range(2)))
    assert {queue.key: queue.settings for queue in await urls.list_queues("c")} == settings
    assert {queue.key: queue.domain for queue in await urls.list_queues("c")} == {key: key for key in settings}
    assert (await lease_one(urls)).key == "urgent.example"
    served = sorted(each.key for each in await lease(urls, slots=20))
    assert served == ["slow.example", "small.example", "urgent.example"]
    assert [each.key for each in await lease(urls, slots=20, now=T0 + 30 * SECOND)] == ["slow.example"]
    assert await lease(urls, slots=20, now=T0 + HOUR - 1) == []
    assert [each.key for each in await lease(urls, slots=20, now=T0 + HOUR)] == ["shut.example"] * 2


async def test_a_queue_can_be_blocked_and_unblocked(urls: UrlStore) -> None:
    """Invariant 7, Politeness: nothing is served before a block ends."""
    await create(urls)
    await add(urls, "http://a.example/1", "http://a.example/2")
    await urls.configure_queue("c", "a.example", QueueSettings(blocked_until=T0 + DAY), now=T0)
    grant = await ask(urls)
    assert (grant.leases, grant.next_ready_at) == ([], T0 + DAY)
    await urls.configure_queue("c", "a.example", QueueSettings(), now=T0)
    assert len(await lease(urls, slots=5)) == 2


async def test_a_deleted_queue_frees_its_urls_and_forgets_its_settings(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: a lease that is lost keeps nobody else from its URL."""
    await create(urls, "c")
    await create(urls, "d")
    await urls.configure_queue("c", "a.example", QueueSettings(page_limit=1), now=T0)
    for crawl in ("c", "d"):
        await add(urls, "http://a.example/", crawl=crawl)
    held = await lease_one(urls, "c")
    assert await lease(urls, "d") == []
    assert await urls.delete_queue("c", "a.example") == 1
    leased, _ = await wait_for_lease(urls, "d", now=T0)
    assert leased.url == "http://a.example/"
    assert (await report(urls, held, now=T0)).verdict is Verdict.LEASE_LOST
    assert await state(urls, "http://a.example/", "d") is TaskState.ASSIGNED
    assert await add(urls, "http://a.example/", crawl="c") == [NEW]
    assert await add(urls, "http://a.example/", crawl="d") == [KNOWN]
    assert [queue.settings for queue in await urls.list_queues("c")] == [QueueSettings()]
    await check_counts(urls, "c")
