"""How the statements on the lives and priorities of domains are run: by an index each, looking at nothing in vain."""

from outrider.model.settings import Settings
from outrider.policy.domain_priority import PriorityWeights
from outrider.store.opening import Stores, open_store
from outrider.store.sql.control_store import SqlControlStore
from outrider.store.sql.postgres import priorities
from outrider.store.sql.url_store import SqlUrlStore
from tests.conformance.backends import Place
from tests.conformance.controlling import NOW, check_plan, execute, plan_of
from tests.conformance.test_domains_and_claims import remember
from tests.conformance.test_job_plans import RecordingEngine
from tests.conformance.test_plans import OF_CONTROL
from tests.everything import use_every_step_of_domains

SMART = Settings(enable_smart_scheduling=True, enable_refresh_mode=True)
FUTURE = "'2099-01-01T00:00:00.000Z'"
PAST = "'2001-01-01T00:00:00.000Z'"


async def test_every_statement_on_domains_is_used(place: Place) -> None:
    async with await open_store(place.dsn, SMART) as stores:
        assert isinstance(stores.control, SqlControlStore)
        engine = RecordingEngine(stores.control._engine)
        await use_every_step_of_domains(Stores(urls=SqlUrlStore(engine, SMART), control=SqlControlStore(engine, SMART)))
        assert engine.names >= OF_CONTROL | priorities.catalogue(PriorityWeights()).keys()


async def test_waking_looks_at_no_domain_whose_rest_lasts(stores: Stores, place: Place) -> None:
    await remember(stores.control, *(f"d{number}.org" for number in range(9_000)))
    await execute(
        place,
        f"UPDATE domains SET status = 'blocked', next_crawl_after = {FUTURE}",
        "UPDATE domains SET status = 'unreachable' WHERE domain LIKE '%3.org'",
        "UPDATE domains SET status = 'exhausted' WHERE domain LIKE '%4.org'",
        f"UPDATE domains SET next_crawl_after = {PAST} WHERE domain LIKE 'd77%'",
        "ANALYZE domains",
        "ANALYZE gates",
    )
    check_plan(await plan_of("lock_rested", (NOW, 50), place), "domains_resting")
    check_plan(await plan_of("lock_refreshable", (NOW, 50), place), "domains_refresh_candidates")
    assert await stores.control.wake_domains(limit=10, now=NOW) == 10


async def test_a_history_is_read_by_its_domain(stores: Stores, place: Place) -> None:
    await remember(stores.control, *(f"d{number}.org" for number in range(2_000)))
    await execute(
        place,
        "INSERT INTO domain_history (domain_id, from_status, to_status, actor, at, version) "
        f"SELECT id, 'pending', 'active', 'w', {PAST}, 1 FROM domains",
        "ANALYZE domains",
        "ANALYZE domain_history",
    )
    check_plan(await plan_of("domain_history", ("d7.org", 0, 50), place), "domain_history_domain")


async def test_the_next_batch_of_a_recalculation_is_found_by_id(stores: Stores, place: Place) -> None:
    await remember(stores.control, *(f"d{number}.org" for number in range(5_000)))
    await execute(place, "ANALYZE domains")
    index = "sqlite_autoindex_domains_1" if place.dsn.startswith("sqlite") else "domains_pkey"
    first = "00000000-0000-0000-0000-000000000000"
    check_plan(await plan_of("domains_by_id", (first, 100), place), index)
