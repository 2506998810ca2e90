"""robots.txt: fetched by a worker before the first page of a domain, kept for all crawls."""

from typing import Any

from outrider.model.artifact import Fetch
from outrider.model.gate import UNREACHABLE_ROBOTS, Robots
from outrider.model.lease import Lease, Verdict
from outrider.model.machines import TaskState
from outrider.model.task import MAX_PRIORITY, DiscoveryType, Kind
from outrider.store.protocols import ControlStore, UrlStore
from tests.conformance.acting import (
    DAY,
    DEFERRED,
    DONE,
    FAILED,
    HOUR,
    MINUTE,
    REFUSED,
    SECOND,
    T0,
    add,
    check_counts,
    create,
    gate,
    lease,
    lease_one,
    report,
    task,
    wait_for_lease,
)

DOMAIN = "a.example"
ROBOTS_URL = "http://www.a.example/robots.txt"
TEXT = "User-agent: *\nDisallow: /private\n"


async def a_minding_crawl(urls: UrlStore, name: str = "c", **limits: Any) -> None:
    """A crawl of one domain that minds robots.txt and is in no other way polite."""
    await create(urls, name, robots=True, **limits)
    await add(urls, *(f"http://www.a.example/{name}/{number}" for number in range(5)), crawl=name)


async def lease_robots(urls: UrlStore, crawl: str | None = "c", *, now: int = T0) -> Lease:
    """Lease the robots.txt that must be all that is ready."""
    (leased,) = await lease(urls, crawl, slots=9, now=now)
    assert leased.kind is Kind.ROBOTS
    return leased


async def test_robots_is_leased_before_the_first_page_of_a_domain(urls: UrlStore) -> None:
    """Invariant 7, Politeness: every request counts, robots too."""
    await a_minding_crawl(urls)
    leased = await lease_robots(urls)
    assert (leased.url, leased.domain, leased.key, leased.attempt) == (ROBOTS_URL, DOMAIN, DOMAIN, 1)
    assert (leased.priority, leased.depth, leased.discovery_type) == (MAX_PRIORITY, 0, DiscoveryType.ROBOTS)
    assert await lease(urls, slots=9, now=T0 + MINUTE) == [], "pages wait while it is in flight"
    robots = Robots(text=TEXT, expires_in_ms=DAY)
    assert (await report(urls, leased, now=T0 + MINUTE, robots=robots)).verdict is Verdict.COMPLETED
    pages = await lease(urls, slots=9, now=T0 + MINUTE)
    assert [each.kind for each in pages] == [Kind.PAGE] * 5
    version, text = await urls.robots_text(DOMAIN) or ("", "")
    assert text == TEXT
    assert {each.robots_version for each in pages} == {version} == {(await gate(urls, DOMAIN)).robots_version}
    await check_counts(urls)


async def test_robots_is_fetched_once_per_domain_over_all_crawls(urls: UrlStore) -> None:
    """Invariant 7, Politeness is global."""
    await a_minding_crawl(urls, "c")
    await a_minding_crawl(urls, "d")
    leased = await lease_robots(urls, "c")
    for crawl in ("c", "d", None):
        assert await lease(urls, crawl, slots=9) == []
    await report(urls, leased, now=T0, robots=Robots(text=TEXT, expires_in_ms=DAY))
    assert {each.kind for each in await lease(urls, "d", slots=9)} == {Kind.PAGE}
    assert (await urls.counts_by_kind("d")).keys() == {Kind.PAGE}
    await check_counts(urls, "c")


async def test_robots_passes_the_gate_like_any_request(urls: UrlStore) -> None:
    """Invariant 7, Politeness: never sooner than the delay after the last request start."""
    await a_minding_crawl(urls, delay_ms=10 * SECOND)
    leased = await lease_robots(urls)
    await report(urls, leased, now=T0 + SECOND, sent_after_ms=0, robots=Robots(text="", expires_in_ms=DAY))
    assert await lease(urls, now=T0 + 10 * SECOND - 1) == []
    assert (await lease_one(urls, now=T0 + 10 * SECOND)).kind is Kind.PAGE


async def test_a_crawl_that_does_not_mind_robots_does_not_wait_for_it(urls: UrlStore) -> None:
    """Invariant 7, Politeness: robots is an option of the crawl."""
    await a_minding_crawl(urls, "c")
    await create(urls, "d")
    await add(urls, "http://www.a.example/", crawl="d")
    await lease_robots(urls, "c")
    assert (await lease_one(urls, "d")).kind is Kind.PAGE


async def test_robots_is_leased_again_when_it_has_expired(urls: UrlStore) -> None:
    """Invariant 7, Politeness: workers judge by a text that is current."""
    await a_minding_crawl(urls)
    first = await lease_robots(urls)
    await report(urls, first, now=T0, robots=Robots(text=TEXT, expires_in_ms=HOUR))
    old = (await gate(urls, DOMAIN)).robots_version
    page = await lease_one(urls, now=T0 + HOUR - 1)
    assert (page.kind, page.robots_version) == (Kind.PAGE, old)
    second = await lease_robots(urls, now=T0 + HOUR)
    assert (second.attempt, second.token != first.token) == (2, True)
    assert await task(urls, ROBOTS_URL) == await task(urls, second.url)
    await report(urls, second, now=T0 + HOUR, robots=Robots(text="", expires_in_ms=HOUR))
    page = await lease_one(urls, now=T0 + HOUR)
    assert page.kind is Kind.PAGE
    assert page.robots_version not in (None, old)
    assert await urls.robots_text(DOMAIN) == (page.robots_version, "")
    await check_counts(urls)


async def test_the_same_text_fetched_again_has_the_same_version(urls: UrlStore) -> None:
    """Invariant 7, Politeness: a worker parses a text once per version."""
    await a_minding_crawl(urls)
    versions = []
    for turn in range(2):
        leased = await lease_robots(urls, now=T0 + turn * HOUR)
        await report(urls, leased, now=T0 + turn * HOUR, robots=Robots(text=TEXT, expires_in_ms=HOUR))
        versions.append((await gate(urls, DOMAIN)).robots_version)
    assert versions[0] == versions[1]


async def test_the_crawl_delay_of_robots_is_a_floor_under_every_other(urls: UrlStore) -> None:
    """Invariant 7, Politeness: what the site asks for holds against every setting of ours."""
    await a_minding_crawl(urls)
    robots = Robots(text=TEXT, expires_in_ms=DAY, crawl_delay_ms=30 * SECOND)
    await report(urls, await lease_robots(urls), now=T0, robots=robots)
    assert (await gate(urls, DOMAIN)).robots_delay_ms == 30 * SECOND
    page = await lease_one(urls, now=T0)
    await report(urls, page, now=T0)
    assert await lease(urls, now=T0 + 30 * SECOND - 1) == []
    await lease_one(urls, now=T0 + 30 * SECOND)


async def test_a_robots_task_done_without_a_text_allows_everything_for_a_day(urls: UrlStore) -> None:
    """Invariant 7, Politeness: a site without robots.txt is asked for it once a day."""
    await a_minding_crawl(urls)
    answer = await report(urls, await lease_robots(urls), DONE, now=T0, fetch=Fetch(http_status=404))
    assert answer.verdict is Verdict.COMPLETED
    assert (await urls.robots_text(DOMAIN) or ("", None))[1] == ""
    assert (await lease_one(urls, now=T0 + DAY - 1)).kind is Kind.PAGE
    assert (await lease_one(urls, now=T0 + DAY)).kind is Kind.ROBOTS


async def test_a_robots_task_that_fails_is_tried_again_and_pages_wait(urls: UrlStore) -> None:
    """Invariant 7, Politeness: what could not be read has everything wait until it can be."""
    await a_minding_crawl(urls)
    now = T0
    for failures in range(1, 4):
        leased, now = await wait_for_lease(urls, now=now)
        assert (leased.kind, leased.attempt) == (Kind.ROBOTS, failures)
        await report(urls, leased, FAILED, now=now)
    assert (await task(urls, ROBOTS_URL)).state is TaskState.FAILED
    version, text = await urls.robots_text(DOMAIN) or ("", "")
    assert (version, text.splitlines()) == (UNREACHABLE_ROBOTS, ["User-agent: *", "Disallow: /"])
    assert await lease(urls, slots=9, now=now + HOUR - 1) == []
    (waiting,) = await urls.waiting_queues("c", after=now)
    assert waiting.robots_until == waiting.waits_until == now + HOUR
    again = await lease_robots(urls, now=now + HOUR)
    assert again.attempt == 4
    await report(urls, again, now=now + HOUR, robots=Robots(text=TEXT, expires_in_ms=DAY))
    assert (await lease_one(urls, now=now + HOUR)).kind is Kind.PAGE
    await check_counts(urls)


async def fail_robots(urls: UrlStore, *, now: int = T0) -> int:
    """Report that robots.txt cannot be reached, until that is believed; tell when that was."""
    out_of_reach = Robots(text="# unreachable: dns", expires_in_ms=HOUR, unreachable=True)
    for _ in range(3):
        leased, now = await wait_for_lease(urls, now=now)
        await report(urls, leased, FAILED, now=now, robots=out_of_reach)
    return now


async def test_a_crawl_that_does_not_mind_robots_does_not_wait_for_one_out_of_reach(urls: UrlStore) -> None:
    """Invariant 7, Politeness: robots is an option of the crawl."""
    await a_minding_crawl(urls, "c")
    now = await fail_robots(urls)
    await create(urls, "d")
    await add(urls, "http://www.a.example/", crawl="d")
    assert await lease(urls, slots=9, now=now + SECOND) == []
    assert (await lease_one(urls, "d", now=now + SECOND)).kind is Kind.PAGE


async def test_an_operator_may_have_a_robots_out_of_reach_tried_again_at_once(urls: UrlStore) -> None:
    """Invariant 7, Politeness: what a retry reopens is asked for before any page."""
    await a_minding_crawl(urls)
    now = await fail_robots(urls) + MINUTE
    assert await lease(urls, slots=9, now=now) == []
    assert await urls.retry_failed("c", now=now) == 1
    again = await lease_robots(urls, now=now)
    await report(urls, again, now=now, robots=Robots(text=TEXT, expires_in_ms=DAY))
    assert (await lease_one(urls, now=now)).kind is Kind.PAGE
    await check_counts(urls)


async def test_every_try_at_a_robots_out_of_reach_counts_towards_the_domain_being_unreachable(
    urls: UrlStore, control: ControlStore
) -> None:
    """Invariant 6, Counts are exact: those of a domain's errors too."""
    await a_minding_crawl(urls)
    now = await fail_robots(urls) + HOUR
    domain = await control.get_domain(DOMAIN)
    assert domain is not None
    assert (domain.consecutive_error_count, domain.total_error_count) == (3, 3)
    busy = Robots(text="# unreachable: http 429", expires_in_ms=HOUR, unreachable=True)
    leased = await lease_robots(urls, now=now)
    await report(urls, leased, DEFERRED, now=now, robots=busy, fetch=Fetch(http_status=429))
    domain = await control.get_domain(DOMAIN)
    assert domain is not None
    assert domain.consecutive_error_count == 3, "a site that is busy has been reached"
    leased, now = await wait_for_lease(urls, now=now)
    await report(urls, leased, now=now, robots=Robots(text=TEXT, expires_in_ms=DAY))
    domain = await control.get_domain(DOMAIN)
    assert domain is not None
    assert (domain.consecutive_error_count, domain.total_error_count) == (0, 3)


async def test_a_deferred_robots_task_keeps_pages_waiting(urls: UrlStore) -> None:
    """Invariant 7, Politeness: a site that is busy is left alone, robots and pages."""
    await a_minding_crawl(urls)
    leased = await lease_robots(urls)
    await report(urls, leased, DEFERRED, now=T0, backs_off=True, retry_after_ms=HOUR)
    assert await urls.robots_text(DOMAIN) is None
    assert await lease(urls, slots=9, now=T0 + HOUR - 1) == []
    assert (await lease_robots(urls, now=T0 + HOUR)).attempt == 2


async def test_a_refused_robots_task_leaves_the_pages_to_the_workers(urls: UrlStore) -> None:
    """Invariant 7, Politeness: where nothing may be sent, each page is refused as well."""
    await a_minding_crawl(urls)
    await report(urls, await lease_robots(urls), REFUSED, now=T0, reason="private_address")
    assert (await lease_one(urls)).kind is Kind.PAGE


async def test_a_robots_task_whose_worker_fell_silent_is_leased_again(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity, and Invariant 7, Politeness."""
    await a_minding_crawl(urls)
    first = await lease_robots(urls)
    await urls.reap(now=T0 + 2 * MINUTE)
    second = await lease_robots(urls, now=T0 + 2 * MINUTE)
    assert (second.url, second.attempt) == (first.url, 2)
    assert (await report(urls, first, now=T0 + 2 * MINUTE)).verdict is Verdict.LEASE_LOST


async def test_a_robots_task_that_is_poison_forbids_everything_for_a_while(urls: UrlStore) -> None:
    """Invariant 7, Politeness: not even robots.txt may kill workers for ever."""
    await a_minding_crawl(urls)
    now = T0
    for _ in range(10):
        await lease_robots(urls, now=now)
        now += 2 * MINUTE
        await urls.reap(now=now)
    poisoned = await task(urls, ROBOTS_URL)
    assert (poisoned.state, poisoned.reason) == (TaskState.FAILED, "poison")
    assert "Disallow: /" in (await urls.robots_text(DOMAIN) or ("", ""))[1]
    assert await lease(urls, slots=9, now=now + HOUR - 1) == []
    assert (await lease_one(urls, now=now + HOUR)).kind is Kind.ROBOTS


async def test_robots_that_somebody_added_as_a_page_is_still_one_task(urls: UrlStore) -> None:
    """Invariant 1, Identity, and Invariant 6, Counts are exact, by kind."""
    await create(urls, robots=True)
    await add(urls, ROBOTS_URL, "http://www.a.example/1", "http://www.a.example/2")
    leased = await lease_robots(urls)
    await check_counts(urls)
    await report(urls, leased, now=T0, robots=Robots(text=TEXT, expires_in_ms=HOUR))
    assert (await lease_one(urls)).url == "http://www.a.example/1"
    assert (await check_counts(urls)).total == 3
    assert (await lease_one(urls, now=T0 + HOUR)).kind is Kind.ROBOTS
    assert (await check_counts(urls)).total == 3
