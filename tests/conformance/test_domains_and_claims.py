"""Domains: remembering them, exact counts, their lives, and the claims on them."""

import asyncio
from collections import Counter
from itertools import product
from typing import Any

import pytest

from outrider.model.artifact import Fetch
from outrider.model.domain import CLAIM_MS, Claim, Domain, DomainChange, DomainSeed, UnknownDomain
from outrider.model.errors import ClaimLost, InvalidInput, InvalidTransition, LimitExceeded
from outrider.model.identifiers import new_uuid7
from outrider.model.job import RunKind, UnknownRun
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.machines import DOMAIN, DomainStatus
from outrider.model.task import Added, CrawlLimits, Discovered, Kind, Refusal
from outrider.store.opening import Stores, open_store
from outrider.store.protocols import ControlStore
from tests.conformance.backends import Place
from tests.conformance.controlling import DAY, NOW, at, check_plan, execute, plan_of
from tests.processes import run_together

PENDING, ACTIVE, EXHAUSTED, BLOCKED, UNREACHABLE = DomainStatus
PROCESSES = 8


async def remember(control: ControlStore, *domains: str) -> None:
    await control.remember_domains([DomainSeed(domain=domain) for domain in domains], now=NOW)


async def read(control: ControlStore, domain: str) -> Domain:
    found = await control.get_domain(domain)
    assert found is not None
    return found


async def step(control: ControlStore, domain: str, target: DomainStatus, now: int = NOW, **change: Any) -> Domain:
    found = await read(control, domain)
    return await control.transition_domain(
        domain,
        DomainChange(source=found.status, target=target, expected_version=found.version, **change),
        now=now,
    )


async def set_columns(place: Place, domain: str, **columns: Any) -> None:
    """Write what later parts of the system will write."""
    values = ", ".join(f"{name} = {value!r}" for name, value in columns.items())
    await execute(place, f"UPDATE domains SET {values} WHERE domain = '{domain}'")


# ------------------------------------------------------------------ remembering


async def test_a_seed_is_remembered_under_its_canonical_name(control: ControlStore) -> None:
    seed = DomainSeed(domain="https://WWW.Example.co.uk:443/x", source="tranco_20260205", seed_rank=7)
    answers = await control.remember_domains([seed], now=NOW)
    assert [answer.outcome for answer in answers] == [Added.NEW]
    found = await read(control, "example.co.uk")
    assert (found.domain, found.parent_domain) == ("example.co.uk", "example.co.uk")
    assert (found.status, found.version, found.source, found.seed_rank) == (PENDING, 0, "tranco_20260205", 7)
    assert found.first_seen_at == at(NOW)
    assert (found.max_pages_per_run, found.priority_score, found.block_count) == (1000, 0, 0)
    assert (found.claimed_by, found.next_crawl_after, found.last_crawled_at) == (None, None, None)


async def test_a_seed_has_its_gate_at_once(stores: Stores) -> None:
    await remember(stores.control, "example.com")
    assert await stores.urls.get_gate("example.com") is not None


async def test_seeding_again_fills_what_is_missing_and_overwrites_nothing(control: ControlStore) -> None:
    await remember(control, "a.org")
    await step(control, "a.org", ACTIVE)
    again = [DomainSeed(domain="a.org", source="list", seed_rank=3)]
    assert [answer.outcome for answer in await control.remember_domains(again, now=NOW + 1)] == [Added.KNOWN]
    await control.remember_domains([DomainSeed(domain="a.org", source="other", seed_rank=9)], now=NOW + 2)
    found = await read(control, "a.org")
    assert (found.status, found.version, found.first_seen_at) == (ACTIVE, 1, at(NOW))
    assert (found.source, found.seed_rank) == ("list", 3)


async def test_a_bad_seed_is_refused_alone_and_with_its_reason(control: ControlStore) -> None:
    seeds = [
        DomainSeed(domain="good.org"),
        DomainSeed(domain="ftp://a.org"),
        DomainSeed(domain="http://[::1"),
        DomainSeed(domain="a\0b.org"),
        DomainSeed(domain="b.org", source="x" * 101),
        DomainSeed(domain="b.org", source="\ud800"),
        DomainSeed(domain="b.org", seed_rank=-1),
        DomainSeed(domain="b.org", seed_rank=True),
        DomainSeed(domain=17),  # type: ignore[arg-type]
        DomainSeed(domain="GOOD.org"),
        DomainSeed(domain="last.org"),
    ]
    answers = await control.remember_domains(seeds, now=NOW)
    assert [answer.outcome for answer in answers] == [Added.NEW, *[Added.REJECTED] * 8, Added.KNOWN, Added.NEW]
    assert [answer.reason for answer in answers[1:8]] == [
        Refusal.NOT_HTTP, Refusal.BAD_HOST, Refusal.BAD_TEXT, Refusal.TOO_LONG, Refusal.BAD_TEXT,
        Refusal.BAD_PRIORITY, Refusal.BAD_PRIORITY,
    ]  # fmt: skip
    assert all(answer.detail for answer in answers[1:9])
    assert [found.domain for found in await control.list_domains()] == ["good.org", "last.org"]


async def test_a_batch_that_is_too_large_is_refused_as_a_whole(control: ControlStore) -> None:
    with pytest.raises(LimitExceeded):
        await control.remember_domains([DomainSeed(domain="a.org")] * 10_001)


async def test_domains_are_listed_by_name_page_by_page(control: ControlStore) -> None:
    names = sorted(f"{letter}{number}.org" for letter in "za-0" for number in range(5) if letter != "-")
    await remember(control, *names)
    await step(control, "a1.org", ACTIVE)
    pages: list[str] = []
    while page := await control.list_domains(after=pages[-1] if pages else "", limit=4):
        pages += [found.domain for found in page]
        assert len(page) <= 4
    assert pages == names
    assert [found.domain for found in await control.list_domains(ACTIVE)] == ["a1.org"]
    assert len(await control.list_domains(PENDING)) == len(names) - 1


async def test_an_unknown_domain_is_none_and_cannot_be_changed(control: ControlStore) -> None:
    assert await control.get_domain("nowhere.org") is None
    change = DomainChange(source=PENDING, target=ACTIVE, expected_version=0)
    with pytest.raises(UnknownDomain, match=r"nowhere\.org"):
        await control.transition_domain("nowhere.org", change)
    with pytest.raises(UnknownDomain):
        await control.configure_domain("nowhere.org", max_pages_per_run=1)


# ----------------------------------------------------------------- exact counts


async def test_a_domain_counts_its_pages_exactly_at_every_commit(stores: Stores, place: Place) -> None:
    """Invariant 6, Counts: over all crawls, states and kinds, offsets included."""
    urls, control = stores.urls, stores.control
    limits = CrawlLimits(delay_ms=0, concurrency=9, robots=False, max_depth=1)
    for crawl in ("one", "two"):
        await urls.create_crawl(crawl, limits=limits, now=NOW)
    assert await control.get_domain("a.org") is None
    await urls.add("one", [Discovered(url=f"https://a.org/{n}", depth=n) for n in range(4)], now=NOW)
    await urls.add("two", [Discovered(url="https://www.a.org/", key="mixed")], now=NOW)
    await urls.add("two", [Discovered(url="https://b.org/", key="mixed")], now=NOW)
    await urls.add("two", [Discovered(url="https://a.org/x.png", kind=Kind.IMAGE)], now=NOW)
    assert await counted(control, "a.org") == (5, 0, 6, "urls:a.org")
    assert await counted(control, "b.org") == (1, 0, 1, "urls:b.org")

    request = LeaseRequest(worker="w", request_id="1", slots=9, crawl="one")
    leases = (await urls.lease(request, now=NOW)).leases
    assert len(leases) == 2
    assert await counted(control, "a.org") == (5, 0, 6, "urls:a.org")
    found = [Discovered(url="https://a.org/new", depth=1), Discovered(url="https://c.org/", depth=1)]
    reports = [
        Report(token=leases[0].token, outcome=Outcome.DONE, fetch=Fetch(http_status=200), links=found),
        Report(token=leases[1].token, outcome=Outcome.REFUSED, reason="robots"),
    ]
    await urls.report(reports, now=NOW)
    assert await counted(control, "a.org") == (6, 1, 5, "urls:a.org")
    assert await counted(control, "c.org") == (1, 0, 1, "urls:c.org")

    await set_columns(place, "a.org", pages_discovered=100, pages_crawled=40)
    assert await counted(control, "a.org") == (106, 41, 5, "urls:a.org")
    await urls.delete_crawl("one")
    await urls.delete_crawl("two")
    # The page that was crawled stays known, the others were never fetched.
    assert await counted(control, "a.org") == (101, 41, 0, None)
    assert [found.pages_crawled for found in await control.list_domains()] == [41, 0, 0]


async def counted(control: ControlStore, domain: str) -> tuple[int, int, int, str | None]:
    found = await read(control, domain)
    [listed] = [each for each in await control.list_domains() if each.domain == domain]
    assert listed == found
    return found.pages_discovered, found.pages_crawled, found.frontier_size, found.frontier_checkpoint_id


# ------------------------------------------------------------------ transitions


async def test_a_domain_goes_only_where_its_table_says(control: ControlStore, place: Place) -> None:
    await remember(control, "a.org")
    for source, target in product(DomainStatus, DomainStatus):
        await set_columns(place, "a.org", status=source.value)
        before = await read(control, "a.org")
        if DOMAIN.allows(source, target):
            after = await step(control, "a.org", target)
            assert (after.status, after.version) == (target, before.version + 1)
            assert await read(control, "a.org") == after
        else:
            with pytest.raises(InvalidTransition, match=f"from {source} to {target}"):
                await step(control, "a.org", target)
            assert await read(control, "a.org") == before


async def test_a_step_from_another_status_or_version_changes_nothing(control: ControlStore) -> None:
    await remember(control, "a.org")
    await step(control, "a.org", ACTIVE)
    before = await read(control, "a.org")
    for source, version in ((PENDING, 1), (ACTIVE, 0), (ACTIVE, 2)):
        change = DomainChange(source=source, target=UNREACHABLE, expected_version=version)
        with pytest.raises(ClaimLost, match="it is active with version 1"):
            await control.transition_domain("a.org", change, now=NOW)
    assert await read(control, "a.org") == before


async def test_what_a_domain_remembers_of_its_life(control: ControlStore, stores: Stores, place: Place) -> None:
    await stores.urls.create_crawl("c", now=NOW)
    run = await control.open_run("c", RunKind.CRAWL, now=NOW)
    await remember(control, "a.org")
    active = await step(control, "a.org", ACTIVE, run_id=run.id)
    assert (active.last_crawled_at, active.last_crawl_run_id) == (at(NOW), run.id)
    await execute(place, "UPDATE gates SET errors_in_row = 5 WHERE domain = 'a.org'")

    cooldown = NOW + 7 * DAY
    why = {"block_reason": "429 again and again", "block_reason_code": "rate_limited", "next_crawl_after": cooldown}
    blocked = await step(control, "a.org", BLOCKED, NOW + 1, **why)
    assert (blocked.block_reason, blocked.block_reason_code) == ("429 again and again", "rate_limited")
    assert (blocked.first_blocked_at, blocked.block_count) == (at(NOW + 1), 1)
    assert (blocked.next_crawl_after, blocked.consecutive_error_count) == (at(cooldown), 5)

    retried = await step(control, "a.org", PENDING, cooldown)
    assert (retried.block_reason, retried.next_crawl_after, retried.consecutive_error_count) == (None, None, 0)
    await step(control, "a.org", ACTIVE, cooldown)
    again = await step(control, "a.org", BLOCKED, cooldown + 5, **why)
    assert (again.first_blocked_at, again.block_count) == (at(NOW + 1), 2)
    assert again.last_crawled_at == at(cooldown)
    assert again.last_crawl_run_id == run.id


async def test_a_step_by_a_run_that_does_not_exist_is_refused(control: ControlStore) -> None:
    await remember(control, "a.org")
    for run_id in (new_uuid7(), "nonsense"):
        with pytest.raises(UnknownRun):
            await step(control, "a.org", ACTIVE, run_id=run_id)


async def test_a_senseless_change_is_refused_before_it_reaches_the_store(control: ControlStore) -> None:
    await remember(control, "a.org")
    senseless: list[dict[str, Any]] = [
        {"worker": ""},
        {"worker": "w\0"},
        {"block_reason": "\ud800"},
        {"block_reason_code": "x" * 51},
        {"next_crawl_after": -1},
        {"next_crawl_after": 1 << 62},
        {"expected_version": 1 << 40},
        {"target": "gone"},
    ]
    for change in senseless:
        with pytest.raises(InvalidInput):
            await control.transition_domain(
                "a.org", DomainChange(**{"source": PENDING, "target": ACTIVE, "expected_version": 0, **change})
            )


async def test_a_budget_is_a_setting_and_counts_as_a_change(control: ControlStore) -> None:
    await remember(control, "a.org")
    changed = await control.configure_domain("a.org", max_pages_per_run=50)
    assert (changed.max_pages_per_run, changed.version) == (50, 1)
    unlimited = await control.configure_domain("a.org", max_pages_per_run=None)
    assert (unlimited.max_pages_per_run, unlimited.version) == (None, 2)
    with pytest.raises(InvalidInput):
        await control.configure_domain("a.org", max_pages_per_run=-1)


async def test_milliseconds_come_back_as_they_went_in(control: ControlStore) -> None:
    await remember(control, "a.org")
    # The last one is a year before the year 10000: what is due later is a moment too.
    for odd in (0, 1, 999, 1_000_000_000_001, NOW + 1, 4_102_444_799_999, 253_370_678_399_999):
        found = await step(control, "a.org", ACTIVE, now=odd, next_crawl_after=odd)
        assert (found.next_crawl_after, found.last_crawled_at) == (at(odd), at(odd))


# ----------------------------------------------------------------------- claims


async def test_a_claim_takes_domains_in_one_order_and_for_a_time(control: ControlStore, place: Place) -> None:
    await remember(control, *(f"{name}.org" for name in "abcdefg"))
    await set_columns(place, "a.org", priority_score=5)
    await set_columns(place, "b.org", priority_score=9)
    for name in "cd":
        await step(control, f"{name}.org", ACTIVE, NOW - (1 if name == "d" else 0))
    await set_columns(place, "e.org", priority_score=5, last_crawled_at="2026-01-01T00:00:00.000Z")
    for name in "fg":
        await set_columns(place, f"{name}.org", status="exhausted" if name == "f" else "blocked")

    first = await control.claim_domains("w1", 3, now=NOW)
    rest = await control.claim_domains("w2", 9, claim_ms=60_000, now=NOW)
    assert [claim.domain for claim in first + rest] == ["d.org", "c.org", "b.org", "a.org", "e.org"]
    assert {claim.expires_at for claim in first} == {at(NOW + CLAIM_MS)}
    assert {claim.expires_at for claim in rest} == {at(NOW + 60_000)}
    found = await read(control, "b.org")
    assert (found.claimed_by, found.claim_expires_at, found.version) == ("w1", at(NOW + CLAIM_MS), 1)
    assert (first[2].domain_id, first[2].version) == (found.id, 1)
    assert await control.claim_domains("w3", 9, now=NOW) == []


async def test_among_equals_the_first_seeded_is_the_first_claimed(control: ControlStore) -> None:
    names = [f"{number * 7919 % 100}.org" for number in range(50)]
    await remember(control, *names)
    assert [claim.domain for claim in await control.claim_domains("w", 50, now=NOW)] == names


async def test_a_domain_is_not_claimed_while_it_cools_down(control: ControlStore) -> None:
    await remember(control, "a.org")
    await step(control, "a.org", ACTIVE, next_crawl_after=NOW + DAY)
    assert await control.claim_domains("w", 1, now=NOW + DAY - 1) == []
    assert len(await control.claim_domains("w", 1, now=NOW + DAY)) == 1


async def test_a_new_pause_holds_back_a_domain_that_had_cooled_down(control: ControlStore) -> None:
    await remember(control, "a.org", "b.org")
    for domain in ("a.org", "b.org"):
        await step(control, domain, ACTIVE, next_crawl_after=NOW + 10)
    [taken] = await control.claim_domains("w", 1, now=NOW + 10)
    [free] = {"a.org", "b.org"} - {taken.domain}
    await step(control, free, ACTIVE, now=NOW + 11, next_crawl_after=NOW + 20)
    assert await control.claim_domains("w", 1, now=NOW + 19) == []
    assert [claim.domain for claim in await control.claim_domains("w", 1, now=NOW + 20)] == [free]


async def test_an_expired_claim_passes_to_the_next_worker(control: ControlStore) -> None:
    """Invariant 8, Claims: at most one live claim; the version only grows; a lost claim writes nothing."""
    await remember(control, "a.org")
    [old] = await control.claim_domains("dead", 1, now=NOW)
    assert await control.claim_domains("w", 1, now=NOW + CLAIM_MS - 1) == []
    later = NOW + CLAIM_MS
    [new] = await control.claim_domains("w", 1, now=later)
    assert (old.version, new.version) == (1, 2)
    assert await control.renew_claims("dead", [old], now=later) == [None]
    assert await control.release_claims("dead", [old], now=later) == [False]
    for version in (old.version, new.version):
        change = DomainChange(source=PENDING, target=ACTIVE, expected_version=version, worker="dead")
        with pytest.raises(ClaimLost, match="claimed by w"):
            await control.transition_domain("a.org", change, now=later)
    assert (await read(control, "a.org")).claimed_by == "w"


async def test_an_expired_claim_is_lost_even_while_nobody_took_it_over(control: ControlStore) -> None:
    """Invariant 8, Claims."""
    await remember(control, "a.org")
    [claim] = await control.claim_domains("w", 1, now=NOW)
    later = NOW + CLAIM_MS
    assert await control.renew_claims("w", [claim], now=later) == [None]
    assert await control.release_claims("w", [claim], now=later) == [False]
    change = DomainChange(source=PENDING, target=ACTIVE, expected_version=1, worker="w")
    with pytest.raises(ClaimLost):
        await control.transition_domain("a.org", change, now=later)
    assert (await read(control, "a.org")).version == 1


async def test_renewal_prolongs_a_claim_and_keeps_its_version(control: ControlStore) -> None:
    await remember(control, "a.org", "b.org")
    claims = await control.claim_domains("w", 2, now=NOW)
    soon = NOW + CLAIM_MS - 1
    renewed = await control.renew_claims("w", claims, now=soon)
    assert [(each.domain, each.version, each.expires_at) for each in renewed if each] == [
        (claim.domain, 1, at(soon + CLAIM_MS)) for claim in claims
    ]
    assert await control.claim_domains("x", 2, now=NOW + CLAIM_MS) == []


async def test_an_old_version_of_the_same_worker_is_no_claim(control: ControlStore) -> None:
    """Invariant 8, Claims: the version is the epoch, whoever comes back under the old name."""
    await remember(control, "a.org")
    [old] = await control.claim_domains("w", 1, now=NOW)
    [new] = await control.claim_domains("w", 1, now=NOW + CLAIM_MS)
    assert await control.renew_claims("w", [old, new], now=NOW + CLAIM_MS) != [None, None]
    assert (await control.renew_claims("w", [old], now=NOW + CLAIM_MS)) == [None]
    assert await control.release_claims("w", [old], now=NOW + CLAIM_MS) == [False]


async def test_the_holder_of_a_claim_goes_on_with_the_version_that_it_made(control: ControlStore) -> None:
    await remember(control, "a.org")
    [claim] = await control.claim_domains("w", 1, now=NOW)
    change = DomainChange(source=PENDING, target=ACTIVE, expected_version=claim.version, worker="w")
    after = await control.transition_domain("a.org", change, now=NOW)
    assert (after.version, after.claimed_by) == (2, "w")
    held = Claim(domain="a.org", domain_id=claim.domain_id, version=2, expires_at=claim.expires_at)
    assert await control.renew_claims("w", [claim], now=NOW) == [None]
    assert await control.release_claims("w", [held], now=NOW) == [True]
    released = await read(control, "a.org")
    assert (released.version, released.claimed_by, released.claim_expires_at) == (3, None, None)
    assert len(await control.claim_domains("x", 1, now=NOW)) == 1


async def test_whoever_changes_a_domain_without_its_claim_takes_the_claim_away(control: ControlStore) -> None:
    """Invariant 8, Claims: the holder learns of it at its next word."""
    await remember(control, "a.org", "b.org")
    claims = await control.claim_domains("w", 2, now=NOW)
    await step(control, "a.org", UNREACHABLE)
    await control.configure_domain("b.org", max_pages_per_run=1)
    assert await control.renew_claims("w", claims, now=NOW) == [None, None]
    assert [found.claimed_by for found in await control.list_domains()] == [None, None]


async def test_what_cannot_be_a_claim_is_lost(control: ControlStore) -> None:
    senseless: list[Any] = [("a\0", 1), ("a", 1 << 40), ("a", -1), ("\ud800", 1), (1, 1), ("a", "1")]
    claims = [Claim(domain=domain, domain_id="", version=version, expires_at=at(NOW)) for domain, version in senseless]
    assert await control.renew_claims("w", claims, now=NOW) == [None] * len(claims)
    assert await control.release_claims("w", claims, now=NOW) == [False] * len(claims)
    for worker, number in (("", 1), ("w", 0), ("w" * 256, 1), ("w", 1_001)):
        with pytest.raises(InvalidInput):
            await control.claim_domains(worker, number)


async def test_the_overview_tells_who_holds_what_and_what_is_stuck(control: ControlStore) -> None:
    await remember(control, *(f"{name}.org" for name in "abcdef"))
    await step(control, "f.org", ACTIVE)
    await control.claim_domains("w1", 2, now=NOW)
    await control.claim_domains("w2", 1, claim_ms=1_000, now=NOW)
    await control.claim_domains("w1", 1, claim_ms=5_000, now=NOW)
    overview = await control.claims(now=NOW)
    assert [(each.worker, each.number, each.earliest_expiry) for each in overview.workers] == [
        ("w1", 3, at(NOW + 5_000)),
        ("w2", 1, at(NOW + 1_000)),
    ]
    assert (overview.expired, overview.unclaimed) == (0, {PENDING: 2})
    later = await control.claims(now=NOW + 5_000)
    assert [(each.worker, each.number) for each in later.workers] == [("w1", 2)]
    assert (later.expired, later.unclaimed) == (2, {PENDING: 4})


async def test_a_rollback_releases_every_claim(control: ControlStore) -> None:
    await remember(control, *(f"d{number}.org" for number in range(30)))
    mine = await control.claim_domains("w1", 10, now=NOW)
    await control.claim_domains("w2", 15, now=NOW)
    assert await control.release_all_claims("w2") == 15
    assert await control.release_all_claims() == 10
    assert await control.release_all_claims() == 0
    assert await control.renew_claims("w1", mine, now=NOW) == [None] * 10
    assert Counter(found.version for found in await control.list_domains()) == {0: 5, 2: 25}


async def claim_until_nothing_is_left(dsn: str, worker: str) -> list[Claim]:
    async with await open_store(dsn) as stores:
        claims: list[Claim] = []
        while taken := await stores.control.claim_domains(worker, 20, now=NOW):
            claims += taken
        return claims


def test_eight_processes_claim_every_domain_exactly_once(place: Place) -> None:
    """Invariant 8, Claims: at most one live claim per domain, and versions strictly grow."""
    names = [f"d{number}.org" for number in range(1_000)]

    async def prepare() -> None:
        async with await open_store(place.dsn) as stores:
            await remember(stores.control, *names)

    async def outcome() -> list[Domain]:
        async with await open_store(place.dsn) as stores:
            return await stores.control.list_domains(limit=10_000)

    asyncio.run(prepare())
    for expected_version, now_worker in ((1, "early"), (2, "late")):
        workers = [f"{now_worker}{number}" for number in range(PROCESSES)]
        taken = run_together(claim_until_nothing_is_left, [(place.dsn, worker) for worker in workers])
        claims = [
            (claim.domain, worker, claim.version) for worker, each in zip(workers, taken, strict=True) for claim in each
        ]
        assert sorted(domain for domain, _, _ in claims) == sorted(names), "each exactly once"
        assert {version for _, _, version in claims} == {expected_version}
        found = asyncio.run(outcome())
        assert sorted((each.domain, each.claimed_by, each.version) for each in found) == sorted(claims)
        asyncio.run(execute(place, "UPDATE domains SET claim_expires_at = NULL, claimed_by = NULL"))


# -------------------------------------------------------------------- its plan


async def test_a_claim_looks_at_no_domain_that_it_does_not_take(stores: Stores, place: Place) -> None:
    """20,000 domains, the best 10,000 of them cooling down."""
    seeds = [DomainSeed(domain=f"d{number}.org") for number in range(20_000)]
    for start in (0, 10_000):
        await stores.control.remember_domains(seeds[start : start + 10_000], now=NOW)
    future = "'2099-01-01T00:00:00.000Z'"
    await execute(
        place,
        "UPDATE domains SET priority_score = length(domain) * 100",
        f"UPDATE domains SET next_crawl_after = {future}, priority_score = 5000 WHERE domain > 'd4'",
        "UPDATE domains SET status = 'active' WHERE domain LIKE '%7.org'",
        "ANALYZE domains",
    )
    check_plan(await plan_of("claim_domains", ("w", 10, NOW, NOW + CLAIM_MS), place), "domains_claimable")
    check_plan(await plan_of("wake_domains", (NOW, 50), place), "domains_cooling")
    assert len(await stores.control.claim_domains("w", 10, now=NOW)) == 10
