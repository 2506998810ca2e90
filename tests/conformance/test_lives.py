"""The lives of domains: each event and each step, in the transaction of the lease, report or claim that causes it."""

import itertools
from typing import Any

import pytest

from outrider.model.artifact import Fetch
from outrider.model.domain import Domain, DomainChange, DomainSeed, DomainStep
from outrider.model.errors import ClaimLost, InvalidTransition
from outrider.model.gate import GateSettings, Robots
from outrider.model.job import RunKind
from outrider.model.lease import Lease, Outcome, Verdict
from outrider.model.machines import DOMAIN, DomainStatus
from outrider.model.settings import Settings
from outrider.model.task import NEVER, Kind
from outrider.policy.blocking import BlockReason
from outrider.store.opening import Stores, open_store
from outrider.store.protocols import ControlStore, UrlStore
from tests.conformance.acting import (
    DAY,
    DEFERRED,
    FAILED,
    HOUR,
    REFUSED,
    SECOND,
    T0,
    add,
    create,
    found,
    lease_one,
    report,
    saying,
)
from tests.conformance.acting import lease as leases
from tests.conformance.backends import Place
from tests.conformance.controlling import at

PENDING, ACTIVE, EXHAUSTED, BLOCKED, UNREACHABLE = DomainStatus
SITE = "https://a.org/"


async def domain(stores: Stores, name: str = "a.org") -> Domain:
    found_domain = await stores.control.get_domain(name)
    assert found_domain is not None
    return found_domain


async def status(stores: Stores, name: str = "a.org") -> DomainStatus:
    """Tell where a domain stands; its gate must say the same."""
    gate = await stores.urls.get_gate(name)
    assert gate is not None
    read = await domain(stores, name)
    assert gate.status is read.status
    return read.status


async def history(stores: Stores, name: str = "a.org") -> list[tuple[DomainStatus, DomainStatus]]:
    """Tell the steps of a domain; each must be one of the table's, and begin where the last one ended."""
    steps = await stores.control.domain_history(name)
    for step in steps:
        assert DOMAIN.allows(step.from_status, step.to_status)
    for earlier, later in itertools.pairwise(steps):
        assert earlier.to_status is later.from_status
        assert earlier.version < later.version
    return [(step.from_status, step.to_status) for step in steps]


async def last_step(stores: Stores, name: str = "a.org") -> DomainStep:
    return (await stores.control.domain_history(name))[-1]


async def trouble(
    urls: UrlStore, reason: BlockReason, times: int, *, now: int, outcome: Outcome = FAILED, apart: int = HOUR
) -> int:
    """Have so many fetches in a row fail for a reason, each sent after the one before was reported; tell the time."""
    for _ in range(times):
        page = await lease_one(urls, now=now)
        await report(urls, page, outcome, now=now + 1, block_code=reason.value, reason=f"it was {reason}")
        now += apart
    return now


async def begin(stores: Stores, pages: int = 30, **limits: Any) -> None:
    await create(stores.urls, **limits)
    await add(stores.urls, *(f"{SITE}{number}" for number in range(pages)))


# --------------------------------------------------------------------- events


async def test_a_seed_makes_a_domain_pending_with_its_source_and_rank(stores: Stores) -> None:
    await stores.control.remember_domains([DomainSeed(domain="a.org", source="list_1", seed_rank=3)], now=T0)
    read = await domain(stores)
    assert (read.status, read.source, read.seed_rank) == (PENDING, "list_1", 3)
    assert await status(stores) is PENDING


async def test_a_seed_leaves_a_known_domain_where_it_stands(stores: Stores) -> None:
    await begin(stores, pages=1)
    await report(stores.urls, await lease_one(stores.urls), now=T0 + 1)
    await stores.control.remember_domains([DomainSeed(domain="a.org")], now=T0 + 2)
    assert await status(stores) is EXHAUSTED


async def test_the_first_lease_of_a_page_makes_a_domain_active(stores: Stores) -> None:
    await begin(stores)
    run = await stores.control.open_run("c", RunKind.CRAWL, now=T0)
    assert await status(stores) is PENDING
    await lease_one(stores.urls, now=T0 + 5, run_id=run.id)
    read = await domain(stores)
    assert (read.status, read.last_crawled_at, read.last_crawl_run_id) == (ACTIVE, at(T0 + 5), run.id)
    step = await last_step(stores)
    assert (step.actor, step.run_id, step.at, step.version) == ("lease", run.id, at(T0 + 5), read.version)


async def test_the_lease_of_a_robots_txt_makes_nothing_active(stores: Stores) -> None:
    await begin(stores, robots=True)
    assert (await lease_one(stores.urls)).kind is Kind.ROBOTS
    assert await status(stores) is PENDING


async def test_a_page_that_is_crawled_is_counted_with_its_images_and_depth(stores: Stores) -> None:
    await create(stores.urls)
    await add(stores.urls, found(SITE, depth=2), found(f"{SITE}b", depth=4))
    first, second = await leases(stores.urls, slots=2)
    await report(stores.urls, first, now=T0 + 1, fetch=Fetch(http_status=200, images_found=3))
    await report(
        stores.urls, second, now=T0 + 9, fetch=Fetch(http_status=200, images_found=4), links=[found(f"{SITE}c")]
    )
    read = await domain(stores)
    assert (read.pages_discovered, read.pages_crawled, read.images_found) == (3, 2, 7)
    assert (read.crawl_depth_reached, read.avg_images_per_page, read.error_rate) == (4, 3.5, 0.0)
    assert (read.status, read.frontier_size, read.frontier_updated_at) == (ACTIVE, 1, at(T0 + 9))


async def test_a_new_run_is_noted_with_its_first_page(stores: Stores) -> None:
    await begin(stores)
    first, second = [await stores.control.open_run("c", RunKind.CRAWL, now=T0 + n) for n in range(2)]
    for n, run in enumerate((first, second, second)):
        await report(stores.urls, await lease_one(stores.urls, run_id=run.id), now=T0 + 10 + n)
    read = await domain(stores)
    assert (read.last_crawl_run_id, read.last_crawled_at) == (second.id, at(T0 + 11))


async def test_a_budget_that_is_hit_leaves_a_domain_active_and_its_frontier_as_it_is(stores: Stores) -> None:
    await begin(stores, pages=5)
    await stores.control.configure_domain("a.org", max_pages_per_run=2)
    run = await stores.control.open_run("c", RunKind.CRAWL, now=T0)
    for page in await leases(stores.urls, slots=10, run_id=run.id, scheduled=True):
        await report(stores.urls, page, now=T0 + 1)
    read = await domain(stores)
    assert (read.status, read.pages_crawled, read.frontier_size) == (ACTIVE, 2, 3)
    assert not await leases(stores.urls, slots=10, run_id=run.id, scheduled=True, now=T0 + 2)
    second = await stores.control.open_run("c", RunKind.CRAWL, now=T0 + 3)
    assert len(await leases(stores.urls, slots=10, run_id=second.id, scheduled=True, now=T0 + 4)) == 2


async def test_a_plain_run_has_no_budget_but_its_own(stores: Stores) -> None:
    await begin(stores, pages=5)
    await stores.control.configure_domain("a.org", max_pages_per_run=2)
    run = await stores.control.open_run("c", RunKind.CRAWL, now=T0)
    assert len(await leases(stores.urls, slots=10, run_id=run.id)) == 5


async def test_a_domain_of_which_all_pages_are_done_is_exhausted_and_due_in_14_days(stores: Stores) -> None:
    await begin(stores, pages=2)
    first, second = await leases(stores.urls, slots=2)
    await report(stores.urls, first, now=T0 + 1)
    assert await status(stores) is ACTIVE
    await report(stores.urls, second, now=T0 + 2)
    read = await domain(stores)
    assert (read.status, read.next_crawl_after, read.frontier_size) == (EXHAUSTED, at(T0 + 2 + 14 * DAY), 0)
    assert await history(stores) == [(PENDING, ACTIVE), (ACTIVE, EXHAUSTED)]


async def test_work_in_another_crawl_keeps_a_domain_from_being_exhausted(stores: Stores) -> None:
    for name in ("c", "d"):
        await create(stores.urls, name)
    await add(stores.urls, f"{SITE}c")
    await add(stores.urls, f"{SITE}d", crawl="d")
    await report(stores.urls, await lease_one(stores.urls), now=T0 + 1)
    assert await status(stores) is ACTIVE
    await report(stores.urls, await lease_one(stores.urls, "d"), REFUSED, now=T0 + 2)
    assert await status(stores) is EXHAUSTED


async def test_a_retry_that_waits_keeps_a_domain_from_being_exhausted(stores: Stores) -> None:
    await begin(stores, pages=1)
    await report(stores.urls, await lease_one(stores.urls), FAILED, now=T0 + 1)
    assert await status(stores) is ACTIVE


async def test_poison_that_is_the_last_of_a_domain_exhausts_it(place: Place) -> None:
    async with await open_store(place.dsn, Settings(max_lease_expiries=1)) as stores:
        await begin(stores, pages=1)
        await lease_one(stores.urls, lease_ms=1000)
        assert len(await stores.urls.reap(now=T0 + 1000)) == 1
        assert await status(stores) is EXHAUSTED


async def test_a_discovery_makes_an_exhausted_domain_active_at_its_next_lease(stores: Stores) -> None:
    await begin(stores, pages=1)
    await report(stores.urls, await lease_one(stores.urls), now=T0 + 1)
    await add(stores.urls, f"{SITE}new", now=T0 + 2)
    assert await status(stores) is EXHAUSTED
    await lease_one(stores.urls, now=T0 + 3)
    read = await domain(stores)
    assert (read.status, read.next_crawl_after) == (ACTIVE, None)


async def test_what_was_deleted_leaves_a_domain_exhausted_after_the_next_recalculation(stores: Stores) -> None:
    await begin(stores, pages=2)
    await report(stores.urls, await lease_one(stores.urls), now=T0 + 1)
    await stores.urls.delete_crawl("c")
    assert await status(stores) is ACTIVE
    assert (await stores.control.recalculate_priorities(now=T0 + 2)).number == 1
    assert await status(stores) is EXHAUSTED


# ------------------------------------------------------------------- giving up


BLOCKING = [
    (BlockReason.RATE_LIMITED, 5, BLOCKED, 7),
    (BlockReason.FORBIDDEN, 5, BLOCKED, 14),
    (BlockReason.LOGIN_REQUIRED, 3, BLOCKED, 30),
    (BlockReason.ROBOTS_DENIED, 1, BLOCKED, 90),
    (BlockReason.SERVER_ERROR, 5, BLOCKED, 1),
    (BlockReason.DNS_FAILURE, 5, UNREACHABLE, 7),
    (BlockReason.CONNECTION_REFUSED, 5, UNREACHABLE, 7),
    (BlockReason.TIMEOUT, 5, UNREACHABLE, 7),
    (BlockReason.TLS_ERROR, 5, UNREACHABLE, 7),
]


@pytest.mark.parametrize(("reason", "times", "target", "days"), BLOCKING)
async def test_so_many_errors_in_a_row_give_a_domain_up_for_so_long(
    stores: Stores, reason: BlockReason, times: int, target: DomainStatus, days: int
) -> None:
    await begin(stores)
    now = await trouble(stores.urls, reason, times - 1, now=T0)
    assert await status(stores) is (ACTIVE if times > 1 else PENDING)
    await trouble(stores.urls, reason, 1, now=now)
    read = await domain(stores)
    until = now + 1 + days * DAY
    assert (read.status, read.block_reason_code, read.block_reason) == (target, reason, f"it was {reason}")
    assert (read.next_crawl_after, read.consecutive_error_count) == (at(until), times)
    assert (read.block_count, read.total_error_count) == (1 if target is BLOCKED else 0, times)
    gate = await stores.urls.get_gate("a.org")
    assert gate is not None
    assert gate.blocked_until == until
    assert not await leases(stores.urls, now=until - 1, slots=5)
    step = await last_step(stores)
    assert (step.reason_code, step.actor, step.version) == (reason, "report", read.version)


async def test_a_domain_that_is_given_up_waits_in_every_crawl(stores: Stores) -> None:
    await begin(stores)
    await create(stores.urls, "other")
    await add(stores.urls, f"{SITE}other", crawl="other")
    await trouble(stores.urls, BlockReason.ROBOTS_DENIED, 1, now=T0)
    assert not await leases(stores.urls, "other", now=T0 + DAY)


async def test_requests_that_fail_together_are_one_event(stores: Stores) -> None:
    await begin(stores)
    together = await leases(stores.urls, slots=8)
    reports = [saying(page, FAILED, block_code="timeout", sent_after_ms=1) for page in together]
    await stores.urls.report(reports[:4], now=T0 + 10)
    await stores.urls.report(reports[4:], now=T0 + 20)
    read = await domain(stores)
    assert (read.consecutive_error_count, read.total_error_count, read.status) == (1, 8, ACTIVE)


async def test_plain_refusals_count_each(stores: Stores) -> None:
    await begin(stores)
    together = await leases(stores.urls, slots=8)
    reports = [saying(page, block_code="forbidden", fetch=Fetch(http_status=403), sent_after_ms=1) for page in together]
    await stores.urls.report(reports[:4], now=T0 + 10)
    assert await status(stores) is ACTIVE
    await stores.urls.report(reports[4:], now=T0 + 20)
    read = await domain(stores)
    assert (read.status, read.total_error_count, read.block_count) == (BLOCKED, 8, 1)


async def test_a_good_answer_ends_the_row(stores: Stores) -> None:
    await begin(stores)
    now = await trouble(stores.urls, BlockReason.TIMEOUT, 4, now=T0)
    await report(stores.urls, await lease_one(stores.urls, now=now), now=now + 1)
    assert (await domain(stores)).consecutive_error_count == 0
    await trouble(stores.urls, BlockReason.TIMEOUT, 4, now=now + HOUR)
    assert await status(stores) is ACTIVE


async def test_a_good_answer_to_a_request_of_before_ends_no_row(stores: Stores) -> None:
    await begin(stores)
    early = await lease_one(stores.urls)
    await trouble(stores.urls, BlockReason.TIMEOUT, 1, now=T0 + 5)
    await report(stores.urls, early, now=T0 + 10)
    assert (await domain(stores)).consecutive_error_count == 1


async def test_trouble_that_says_nothing_of_a_domain_is_not_counted(stores: Stores) -> None:
    await begin(stores)
    await report(stores.urls, await lease_one(stores.urls), FAILED, now=T0 + 1, reason="local")
    await report(stores.urls, await lease_one(stores.urls), fetch=Fetch(http_status=404), now=T0 + 2)
    read = await domain(stores)
    assert (read.consecutive_error_count, read.total_error_count) == (0, 0)


async def test_a_robots_txt_that_cannot_be_fetched_makes_a_pending_domain_unreachable(stores: Stores) -> None:
    await begin(stores, robots=True)
    now = T0
    for _ in range(5):
        robots = await lease_one(stores.urls, now=now)
        away = Robots(text="# dns", expires_in_ms=HOUR, unreachable=True)
        await report(stores.urls, robots, REFUSED, now=now + 1, robots=away, reason="dns")
        now += 2 * HOUR
    read = await domain(stores)
    assert (read.status, read.block_reason_code) == (UNREACHABLE, "dns_failure")
    assert await history(stores) == [(PENDING, UNREACHABLE)]


async def test_a_deferred_task_of_a_domain_that_is_given_up_is_not_put_off_for_as_long(stores: Stores) -> None:
    await begin(stores, pages=1)
    page = await lease_one(stores.urls)
    answer = await report(stores.urls, page, DEFERRED, now=T0 + 1, block_code="robots_denied")
    assert (answer.verdict, answer.retry_at) == (Verdict.RETRY_AT, T0 + 1)
    await stores.urls.configure_gate("a.org", GateSettings(blocked_until=0), now=T0 + 2)
    await lease_one(stores.urls, now=T0 + 3)
    assert await history(stores) == [(PENDING, ACTIVE), (ACTIVE, BLOCKED), (BLOCKED, ACTIVE)]


async def test_an_operators_longer_block_outlasts_the_rest(stores: Stores) -> None:
    await begin(stores)
    page = await lease_one(stores.urls)
    await stores.urls.configure_gate("a.org", GateSettings(blocked_until=T0 + 1000 * DAY), now=T0)
    await report(stores.urls, page, FAILED, now=T0 + 1, block_code="robots_denied")
    gate = await stores.urls.get_gate("a.org")
    assert gate is not None
    assert gate.blocked_until == T0 + 1000 * DAY


# ------------------------------------------------------------------ coming back


async def test_a_lease_after_the_rest_begins_anew_with_the_row_of_errors_forgotten(stores: Stores) -> None:
    await begin(stores)
    now = await trouble(stores.urls, BlockReason.FORBIDDEN, 5, now=T0)
    await lease_one(stores.urls, now=now + 15 * DAY)
    read = await domain(stores)
    assert (read.status, read.consecutive_error_count, read.block_count) == (ACTIVE, 0, 1)
    assert (read.block_reason, read.block_reason_code, read.next_crawl_after) == (None, None, None)
    assert await history(stores) == [(PENDING, ACTIVE), (ACTIVE, BLOCKED), (BLOCKED, PENDING), (PENDING, ACTIVE)]


async def test_waking_makes_domains_pending_whose_rest_is_over(stores: Stores) -> None:
    await begin(stores)
    await trouble(stores.urls, BlockReason.ROBOTS_DENIED, 1, now=T0)
    assert await stores.control.wake_domains(now=T0 + 90 * DAY) == 0
    assert await stores.control.wake_domains(now=T0 + 1 + 90 * DAY) == 1
    assert await status(stores) is PENDING
    assert (await domain(stores)).consecutive_error_count == 0


async def test_a_claim_finds_a_domain_whose_rest_is_over(stores: Stores) -> None:
    await begin(stores)
    now = await trouble(stores.urls, BlockReason.DNS_FAILURE, 5, now=T0)
    assert await stores.control.claim_domains("w", 1, now=now) == []
    (claim,) = await stores.control.claim_domains("w", 1, now=now + 8 * DAY)
    assert claim.domain == "a.org"
    assert await status(stores) is PENDING


async def test_exhausted_domains_come_up_again_in_refresh_mode_alone(place: Place) -> None:
    for refresh, number in ((False, 0), (True, 1)):
        async with await open_store(place.dsn, Settings(enable_refresh_mode=refresh)) as stores:
            if not refresh:
                await begin(stores, pages=1)
                await report(stores.urls, await lease_one(stores.urls), now=T0 + 1)
            assert await stores.control.wake_domains(now=T0 + 15 * DAY) == number
            assert await status(stores) is (PENDING if refresh else EXHAUSTED)


async def test_a_domain_that_was_blocked_and_retried_three_times_stays_blocked(stores: Stores) -> None:
    await begin(stores)
    now = T0
    for number in range(1, 5):
        await trouble(stores.urls, BlockReason.ROBOTS_DENIED, 1, now=now)
        read = await domain(stores)
        assert (read.status, read.block_count, read.next_crawl_after is None) == (BLOCKED, number, number == 4)
        now += 100 * DAY
    gate = await stores.urls.get_gate("a.org")
    assert gate is not None
    assert gate.blocked_until == NEVER
    assert not await leases(stores.urls, now=now + 10_000 * DAY)
    assert await stores.control.wake_domains(now=now + 10_000 * DAY) == 0


async def test_an_answer_that_comes_after_all_makes_an_unreachable_domain_active(stores: Stores) -> None:
    await begin(stores)
    late = await lease_one(stores.urls, lease_ms=DAY)
    await trouble(stores.urls, BlockReason.TIMEOUT, 5, now=T0)
    assert await status(stores) is UNREACHABLE
    await report(stores.urls, late, now=T0 + 6 * HOUR, sent_after_ms=6 * HOUR - 1)
    assert await status(stores) is ACTIVE
    assert (await domain(stores)).consecutive_error_count == 0
    await lease_one(stores.urls, now=T0 + 7 * HOUR)


async def test_late_trouble_does_not_prolong_a_rest(stores: Stores) -> None:
    await begin(stores)
    late = await lease_one(stores.urls, lease_ms=DAY)
    await trouble(stores.urls, BlockReason.ROBOTS_DENIED, 1, now=T0)
    before = await domain(stores)
    await report(stores.urls, late, FAILED, now=T0 + HOUR, block_code="robots_denied")
    after = await domain(stores)
    assert (after.next_crawl_after, after.version, after.block_count) == (before.next_crawl_after, before.version, 1)


# ------------------------------------------------------------------ transitions


@pytest.mark.parametrize(("source", "target"), list(itertools.product(DomainStatus, DomainStatus)))
async def test_each_step_is_taken_if_the_table_has_it_and_refused_if_not(
    stores: Stores, source: DomainStatus, target: DomainStatus
) -> None:
    await stores.control.remember_domains([DomainSeed(domain="a.org")], now=T0)
    ways: dict[DomainStatus, list[DomainStatus]] = {
        PENDING: [], ACTIVE: [ACTIVE], EXHAUSTED: [ACTIVE, EXHAUSTED], BLOCKED: [ACTIVE, BLOCKED],
        UNREACHABLE: [UNREACHABLE],
    }  # fmt: skip
    for each in [*ways[source], target]:
        now = await domain(stores)
        change = DomainChange(source=now.status, target=each, expected_version=now.version)
        if DOMAIN.allows(now.status, each):
            moved = await stores.control.transition_domain("a.org", change, now=T0)
            assert (moved.status, moved.version) == (each, now.version + 1)
            continue
        with pytest.raises(InvalidTransition):
            await stores.control.transition_domain("a.org", change, now=T0)
        assert await domain(stores) == now
    await status(stores)
    await history(stores)


async def test_a_step_names_who_took_it_and_why(stores: Stores) -> None:
    await begin(stores)
    await lease_one(stores.urls)
    read = await domain(stores)
    change = DomainChange(
        source=ACTIVE, target=BLOCKED, expected_version=read.version, actor="anna", block_reason="asked us to",
        block_reason_code="forbidden",
    )  # fmt: skip
    await stores.control.transition_domain("a.org", change, now=T0 + 1)
    step = await last_step(stores)
    assert (step.actor, step.reason, step.reason_code, step.domain) == ("anna", "asked us to", "forbidden", "a.org")


# ----------------------------------------------------------------------- claims


async def test_a_lease_under_claims_takes_from_claimed_domains_alone(stores: Stores) -> None:
    await create(stores.urls)
    await add(stores.urls, *(f"https://{name}.org/{n}" for name in "abc" for n in range(2)))
    (claim,) = await stores.control.claim_domains("w", 1, now=T0)
    granted = await leases(stores.urls, slots=10, claims=True)
    assert {lease.domain for lease in granted} == {claim.domain}
    assert len(granted) == 2
    assert not await leases(stores.urls, slots=10, claims=True, worker="other")


async def test_steps_by_the_holder_of_a_claim_leave_it_its_claim(control: ControlStore, stores: Stores) -> None:
    await begin(stores, pages=2)
    claims = await control.claim_domains("w", 1, now=T0)
    for page in await leases(stores.urls, slots=2, claims=True):
        assert (await report(stores.urls, page, now=T0 + 1)).verdict is Verdict.COMPLETED
    assert await status(stores) is EXHAUSTED
    (renewed,) = await control.renew_claims("w", claims, now=T0 + 2)
    assert renewed is not None
    assert await control.release_claims("w", [renewed], now=T0 + 3) == [True]
    versions = [step.version for step in await control.domain_history("a.org")]
    assert versions == sorted(set(versions))


async def _leased_under_a_claim(stores: Stores) -> Lease:
    await begin(stores)
    await stores.control.claim_domains("w", 1, claim_ms=10 * SECOND, now=T0)
    return await lease_one(stores.urls, claims=True)


@pytest.mark.parametrize("how", ["expired", "taken over", "released", "configured"])
async def test_a_report_of_a_worker_with_a_lost_claim_changes_nothing(stores: Stores, how: str) -> None:
    page = await _leased_under_a_claim(stores)
    now = T0 + 1
    if how in ("expired", "taken over"):
        now = T0 + 10 * SECOND
    if how == "taken over":
        assert await stores.control.claim_domains("other", 1, now=now)
    if how == "released":
        await stores.control.release_all_claims()
    if how == "configured":
        await stores.control.configure_domain("a.org", max_pages_per_run=5)
    before = await domain(stores)
    assert (await report(stores.urls, page, now=now, block_code="robots_denied")).verdict is Verdict.LEASE_LOST
    assert await domain(stores) == before
    if how == "taken over":
        assert {lease.domain for lease in await leases(stores.urls, claims=True, worker="other", now=now)} == {"a.org"}


async def test_a_claim_of_the_same_worker_anew_does_not_make_its_old_leases_good(stores: Stores) -> None:
    page = await _leased_under_a_claim(stores)
    now = T0 + 10 * SECOND
    assert await stores.control.claim_domains("w", 1, now=now)
    assert (await report(stores.urls, page, now=now)).verdict is Verdict.LEASE_LOST


async def test_a_transition_by_somebody_without_the_claim_ends_it(stores: Stores) -> None:
    page = await _leased_under_a_claim(stores)
    read = await domain(stores)
    change = DomainChange(source=ACTIVE, target=BLOCKED, expected_version=read.version, worker="other")
    with pytest.raises(ClaimLost):
        await stores.control.transition_domain("a.org", change, now=T0)
    await stores.control.transition_domain(
        "a.org", DomainChange(source=ACTIVE, target=BLOCKED, expected_version=read.version), now=T0
    )
    assert (await report(stores.urls, page, now=T0 + 1)).verdict is Verdict.LEASE_LOST


# ------------------------------------------------------------------------ flags


async def test_without_tracking_nothing_is_kept_of_lives_and_politeness_stays(place: Place) -> None:
    async with await open_store(place.dsn, Settings(enable_domain_tracking=False, backoff_jitter=0.0)) as stores:
        await begin(stores, pages=1)
        page = await lease_one(stores.urls)
        trouble_report = saying(page, DEFERRED, block_code="robots_denied", backs_off=True, retry_after_ms=HOUR)
        await stores.urls.report([trouble_report], now=T0 + 1)
        read = await domain(stores)
        assert (read.status, read.total_error_count, read.consecutive_error_count) == (PENDING, 0, 0)
        assert await history(stores) == []
        assert not await leases(stores.urls, now=T0 + HOUR)
        await report(stores.urls, await lease_one(stores.urls, now=T0 + 1 + HOUR), now=T0 + 2 + HOUR)
        assert await status(stores) is PENDING


async def test_without_budgets_a_scheduled_run_takes_all(place: Place) -> None:
    async with await open_store(place.dsn, Settings(enable_per_domain_budget=False)) as stores:
        await begin(stores, pages=5)
        await stores.control.configure_domain("a.org", max_pages_per_run=2)
        run = await stores.control.open_run("c", RunKind.CRAWL, now=T0)
        assert len(await leases(stores.urls, slots=10, run_id=run.id, scheduled=True)) == 5
