"""Tending: the claims of a worker follow what its crawl has ready. Invariant *Claims*."""

import asyncio

import pytest

from outrider.model.domain import CLAIM_MS, REST_MS, DomainChange
from outrider.model.errors import InvalidInput, UnknownCrawl
from outrider.model.lease import Lease, LeaseRequest, Outcome, Report, Verdict
from outrider.model.machines import DomainStatus
from outrider.model.task import CrawlLimits, Discovered
from outrider.store.opening import Stores, open_store
from tests.conformance.backends import Place
from tests.conformance.controlling import NOW, execute, plan_of
from tests.processes import run_together

CRAWL = "claimed"
PROCESSES = 8
DOMAINS = 400
MISSES = 20
"""So often in a row a process finds nothing before it believes that: another may hold what it would take."""
OPEN = CrawlLimits(delay_ms=0, concurrency=10, robots=False)


async def seeded(stores: Stores, *domains: str, crawl: str = CRAWL, pages: int = 1) -> None:
    await stores.urls.create_crawl(crawl, limits=OPEN, now=NOW)
    found = [Discovered(url=f"https://{domain}/{page}") for domain in domains for page in range(pages)]
    await stores.urls.add(crawl, found, now=NOW)


async def claimed(stores: Stores, worker: str, wanted: int = 10, now: int = NOW) -> list[str]:
    return (await stores.control.tend_claims(worker, CRAWL, wanted, now=now)).claimed


async def leased(stores: Stores, worker: str, now: int = NOW, slots: int = 10) -> list[Lease]:
    request = LeaseRequest(
        worker=worker, request_id=f"{worker} {now}", slots=slots, crawl=CRAWL, lease_ms=CLAIM_MS, claims=True
    )
    return (await stores.urls.lease(request, now=now)).leases


async def report(stores: Stores, leases: list[Lease], now: int = NOW) -> list[Verdict]:
    reports = [Report(token=lease.token, outcome=Outcome.REFUSED, sent_after_ms=None) for lease in leases]
    return [answer.verdict for answer in await stores.urls.report(reports, now=now)]


async def test_a_worker_claims_domains_of_its_crawl_and_of_no_other(stores: Stores) -> None:
    await seeded(stores, "a.example", "b.example")
    await seeded(stores, "c.example", crawl="another")
    assert await claimed(stores, "w") == ["a.example", "b.example"]


async def test_no_more_are_claimed_than_wanted(stores: Stores) -> None:
    await seeded(stores, "a.example", "b.example", "c.example")
    tally = await stores.control.tend_claims("w", CRAWL, 2, now=NOW)
    assert (tally.held, len(tally.claimed), tally.released) == (2, 2, 0)
    assert (await stores.control.tend_claims("w", CRAWL, 0, now=NOW)).held == 2


async def test_active_domains_come_before_pending_ones(stores: Stores) -> None:
    await seeded(stores, "a.example", "b.example", "c.example")
    change = DomainChange(source=DomainStatus.PENDING, target=DomainStatus.ACTIVE, expected_version=0)
    await stores.control.transition_domain("c.example", change, now=NOW)
    assert await claimed(stores, "w", 1) == ["c.example"]


async def test_of_two_workers_each_domain_is_one_s_alone(stores: Stores) -> None:
    await seeded(stores, *(f"d{number}.example" for number in range(20)))
    both = await asyncio.gather(claimed(stores, "v"), claimed(stores, "w"))
    again = await asyncio.gather(claimed(stores, "v"), claimed(stores, "w"))
    every = [domain for domains in (*both, *again) for domain in domains]
    assert len(every) == len(set(every)) == 20


async def test_under_claims_a_worker_leases_only_what_it_has_claimed(stores: Stores) -> None:
    await seeded(stores, "a.example", "b.example")
    [mine] = await claimed(stores, "w", 1)
    assert [lease.domain for lease in await leased(stores, "w")] == [mine]
    assert await leased(stores, "v") == []


async def test_a_claim_that_is_a_third_over_is_prolonged(stores: Stores) -> None:
    await seeded(stores, "a.example", pages=2)
    await claimed(stores, "w")
    before = await stores.control.get_domain("a.example")
    await leased(stores, "w", slots=1)
    assert await claimed(stores, "w", now=NOW + CLAIM_MS // 3 - 1) == []
    assert before is not None
    assert before.claim_expires_at is not None
    unchanged = await stores.control.get_domain("a.example")
    assert unchanged is not None
    assert unchanged.claim_expires_at == before.claim_expires_at
    await claimed(stores, "w", now=NOW + CLAIM_MS // 3 + 1)
    prolonged = await stores.control.get_domain("a.example")
    assert prolonged is not None
    assert prolonged.claim_expires_at is not None
    assert prolonged.claim_expires_at > before.claim_expires_at


async def test_an_expired_claim_is_free_for_others_and_its_holder_is_refused(stores: Stores) -> None:
    await seeded(stores, "a.example", pages=2)
    assert await claimed(stores, "v") == ["a.example"]
    leases = await leased(stores, "v", slots=1)
    later = NOW + CLAIM_MS + 1
    assert await claimed(stores, "w", now=later) == ["a.example"]
    assert await report(stores, leases, later) == [Verdict.LEASE_LOST]
    assert await leased(stores, "v", later) == []


async def test_a_domain_of_which_nothing_is_left_is_given_back(stores: Stores) -> None:
    await seeded(stores, "a.example")
    await claimed(stores, "w")
    leases = await leased(stores, "w")
    tally = await stores.control.tend_claims("w", CRAWL, 10, now=NOW)
    assert (tally.held, tally.released) == (1, 0), "while a page is under way, the claim is needed"
    await report(stores, leases)
    for look in range(1, 20):  # a drained queue is looked at a few times before it sleeps
        moment = NOW + look * 1000
        assert await leased(stores, "w", moment) == []
        tally = await stores.control.tend_claims("w", CRAWL, 10, now=moment)
        if tally.released:
            break
    assert (tally.held, tally.claimed, tally.released) == (0, [], 1)
    assert (await stores.control.claims(now=NOW)).workers == []


async def test_a_domain_that_has_to_wait_for_long_is_given_back_and_claimed_again_when_it_is_ready(
    stores: Stores,
) -> None:
    await seeded(stores, "a.example", pages=2)
    await claimed(stores, "w")
    [lease] = await leased(stores, "w", slots=1)
    trouble = Report(token=lease.token, outcome=Outcome.DEFERRED, backs_off=True, retry_after_ms=10 * REST_MS)
    await stores.urls.report([trouble], now=NOW)
    assert await leased(stores, "w", NOW + 1) == []
    tally = await stores.control.tend_claims("w", CRAWL, 10, now=NOW + 1)
    assert (tally.held, tally.claimed, tally.released) == (0, [], 1)
    assert await claimed(stores, "v", now=NOW + 12 * REST_MS) == ["a.example"]


async def test_tending_for_a_crawl_that_is_not_there_is_refused(stores: Stores) -> None:
    with pytest.raises(UnknownCrawl):
        await stores.control.tend_claims("w", "nowhere", 1, now=NOW)


@pytest.mark.parametrize("wanted", [-1, 1_001, True, "1", None])
async def test_a_wrong_number_is_refused(stores: Stores, wanted: int) -> None:
    with pytest.raises(InvalidInput, match="wanted"):
        await stores.control.tend_claims("w", CRAWL, wanted, now=NOW)


# -------------------------------------------------------------------- its plan


async def test_tending_looks_only_at_what_is_claimed_or_ready(stores: Stores, place: Place) -> None:
    """10,000 domains that are ready, the first of them claimed by others."""
    await seeded(stores, *(f"d{number}.example" for number in range(10_000)))
    for worker in ("u", "v"):
        await stores.control.tend_claims(worker, CRAWL, 100, now=NOW)
    await execute(place, "ANALYZE domains", "ANALYZE queues", "ANALYZE leases")
    crawl_id = (await place.backend.query(place.dsn, f"SELECT crawl_id FROM crawls WHERE name = '{CRAWL}'"))[0][0]
    claim = await plan_of("claim_ready_domains", ("w", crawl_id, 10, NOW, NOW + CLAIM_MS), place)
    assert "queues_ready" in claim, claim
    release = await plan_of("release_idle_claims", ("v", crawl_id, NOW, NOW + REST_MS), place)
    assert "domains_claims" in release, release
    prolong = await plan_of("prolong_claims", ("v", NOW, NOW + CLAIM_MS, NOW + CLAIM_MS), place)
    assert "domains_claims" in prolong, prolong
    for plan in (claim, release, prolong):
        for waste in ("Seq Scan on domains", "Seq Scan on queues", "SCAN domains\n", "SCAN d\n", "SCAN q\n"):
            assert waste not in plan, plan


# ------------------------------------------------------------- many processes


async def tend_until_nothing_is_left(dsn: str, worker: str) -> list[str]:
    taken: list[str] = []
    async with await open_store(dsn) as stores:
        misses = 0
        while misses < MISSES:
            found = (await stores.control.tend_claims(worker, CRAWL, 10, now=NOW)).claimed
            taken += found
            misses = 0 if found else misses + 1
    return taken


def test_processes_that_claim_at_once_get_every_domain_once(place: Place) -> None:
    names = [f"d{number}.example" for number in range(DOMAINS)]

    async def prepare() -> None:
        async with await open_store(place.dsn) as stores:
            await seeded(stores, *names)

    async def versions() -> set[int]:
        async with await open_store(place.dsn) as stores:
            return {domain.version for domain in await stores.control.list_domains(limit=DOMAINS)}

    asyncio.run(prepare())
    arguments = [(place.dsn, f"w{number}") for number in range(PROCESSES)]
    taken = run_together(tend_until_nothing_is_left, arguments)
    assert sorted(domain for each in taken for domain in each) == sorted(names)
    assert asyncio.run(versions()) == {1}
