"""Priorities of domains in the store: the same as the policy's, in batches, and the bands that go with them."""

import random

import pytest

from outrider.model.domain import Domain, DomainSeed
from outrider.model.gate import DEFAULT_BAND, GateSettings
from outrider.model.job import RunKind
from outrider.model.machines import DomainStatus
from outrider.model.settings import Settings
from outrider.policy.domain_priority import Signals, band_of, score, weights_of
from outrider.store.opening import Stores, open_store
from outrider.store.sql.control.rows import millis_of
from tests.conformance.acting import DAY, T0, add, create, lease, lease_one, report
from tests.conformance.backends import Place
from tests.conformance.controlling import at, execute

SMART = Settings(enable_smart_scheduling=True)
NAMES = [f"d{number:02}.org" for number in range(40)]


def signals_of(domain: Domain) -> Signals:
    return Signals(
        first_seen_at=millis_of(domain.first_seen_at) or 0,
        last_crawled_at=millis_of(domain.last_crawled_at),
        seed_rank=domain.seed_rank,
        pages_discovered=domain.pages_discovered,
        pages_crawled=domain.pages_crawled,
        images_found=domain.images_found,
        images_stored=domain.images_stored,
        total_error_count=domain.total_error_count,
    )


async def fill(stores: Stores, place: Place) -> None:
    """Make domains of which different things are known."""
    chance = random.Random(7)
    seeds = [DomainSeed(domain=name, seed_rank=chance.choice([None, 1, 9, 5_000, 10**7])) for name in NAMES]
    await stores.control.remember_domains(seeds, now=T0)
    for name in NAMES:
        known, crawled = chance.randrange(2_000), chance.choice([0, 1, 7, 333])
        await execute(
            place,
            f"UPDATE domains SET pages_discovered = {known}, pages_crawled = {crawled}, "
            f"images_stored = {chance.randrange(900)}, images_found = {chance.randrange(900)}, "
            f"total_error_count = {chance.randrange(50)} WHERE domain = '{name}'",
        )


async def recalculate(stores: Stores, now: int, limit: int = 7) -> int:
    done, after = 0, ""
    while True:
        batch = await stores.control.recalculate_priorities(after=after, limit=limit, now=now)
        done += batch.number
        if batch.after is None:
            return done
        after = batch.after


async def test_every_domain_gets_the_score_and_the_rates_of_the_policy(stores: Stores, place: Place) -> None:
    await fill(stores, place)
    now = T0 + 3 * DAY + 12_345
    assert await recalculate(stores, now) == len(NAMES)
    scores = set()
    for domain in await stores.control.list_domains():
        signals = signals_of(domain)
        assert domain.priority_score == score(signals, now, weights_of(Settings()))
        assert domain.priority_computed_at == at(now)
        assert (domain.image_yield_rate, domain.error_rate) == (signals.image_yield_rate, signals.error_rate)
        scores.add(domain.priority_score)
    assert len(scores) > 20


async def test_the_weights_are_settings(place: Place) -> None:
    heavy = Settings(priority_rank=7_000, priority_stale_day=0)
    async with await open_store(place.dsn, heavy) as stores:
        await stores.control.remember_domains([DomainSeed(domain="a.org", seed_rank=1)], now=T0)
        await recalculate(stores, T0 + 9 * DAY)
        (domain,) = await stores.control.list_domains()
        assert domain.priority_score == 7_000


async def test_a_version_does_not_grow_with_a_score_and_a_claim_stays(stores: Stores) -> None:
    await stores.control.remember_domains([DomainSeed(domain="a.org", seed_rank=1)], now=T0)
    claims = await stores.control.claim_domains("w", 1, now=T0)
    await recalculate(stores, T0 + 1)
    assert [claim is not None for claim in await stores.control.renew_claims("w", claims, now=T0 + 2)] == [True]


async def test_blocked_domains_keep_their_score(stores: Stores, place: Place) -> None:
    await stores.control.remember_domains([DomainSeed(domain="a.org", seed_rank=1)], now=T0)
    await execute(place, "UPDATE domains SET status = 'blocked', priority_score = 5")
    await recalculate(stores, T0 + 1)
    (domain,) = await stores.control.list_domains()
    assert domain.priority_score == 5


async def test_the_domains_of_a_run_are_recalculated_alone(stores: Stores) -> None:
    await create(stores.urls)
    await add(stores.urls, "https://a.org/", "https://b.org/")
    run = await stores.control.open_run("c", RunKind.CRAWL, now=T0)
    first = await lease_one(stores.urls, run_id=run.id)
    await report(stores.urls, first, now=T0 + 1)
    assert await stores.control.recalculate_run(run.id, now=T0 + 2) == 1
    computed = {each.domain: each.priority_computed_at for each in await stores.control.list_domains()}
    assert [name for name, moment in computed.items() if moment is not None] == [first.domain]


@pytest.mark.parametrize("is_smart", [False, True])
async def test_scores_move_bands_under_smart_scheduling_alone(place: Place, is_smart: bool) -> None:
    settings = Settings(enable_smart_scheduling=is_smart)
    async with await open_store(place.dsn, settings) as stores:
        seeds = [DomainSeed(domain="a.org"), DomainSeed(domain="b.org", seed_rank=1), DomainSeed(domain="own.org")]
        await stores.control.remember_domains(seeds, now=T0)
        await create(stores.urls)
        await add(stores.urls, "https://a.org/", "https://b.org/", "https://own.org/")
        await stores.urls.configure_gate("own.org", GateSettings(band=3), now=T0)
        await recalculate(stores, T0)
        bands = {queue.domain: queue.band for queue in await stores.urls.list_queues("c")}
        moved = band_of(1_000 + 2) if is_smart else DEFAULT_BAND
        assert bands == {"a.org": DEFAULT_BAND, "b.org": moved, "own.org": 3}
        gate = await stores.urls.get_gate("b.org")
        assert gate is not None
        assert gate.band == moved
        order = [page.domain for page in await lease(stores.urls, slots=3)]
        assert order == (["own.org", "b.org", "a.org"] if is_smart else ["own.org", "a.org", "b.org"])


async def test_without_tracking_nothing_is_recalculated(place: Place) -> None:
    async with await open_store(place.dsn, Settings(enable_domain_tracking=False)) as stores:
        await stores.control.remember_domains([DomainSeed(domain="a.org", seed_rank=1)], now=T0)
        await recalculate(stores, T0)
        (domain,) = await stores.control.list_domains()
        assert (domain.priority_score, domain.status) == (0, DomainStatus.PENDING)
