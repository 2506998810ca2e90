"""Domains as an operator sees and changes them: listings, orders, merges and sums."""

from itertools import islice
from typing import Any

import pytest

from outrider.model.artifact import Fetch
from outrider.model.domain import Domain, DomainChange, DomainSeed, UnknownDomain
from outrider.model.domain_view import BLOCKED_BY_OPERATOR, DomainInUse, DomainSort
from outrider.model.errors import InvalidInput, InvalidTransition
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.machines import DomainStatus
from outrider.model.task import CrawlLimits, Discovered
from outrider.store.opening import Stores
from outrider.store.protocols import ControlStore
from outrider.store.sql.control import domain_merge
from outrider.store.sql.control_store import SqlControlStore
from outrider.store.sql.postgres import domain_care
from outrider.store.sql.url_store import SqlUrlStore
from tests.conformance.backends import Place
from tests.conformance.controlling import DAY, NOW, at, execute, plan_of
from tests.conformance.test_job_plans import UUID_IN_SQLITE, Null, RecordingEngine
from tests.everything import use_every_domain_operation

PENDING, ACTIVE, EXHAUSTED, BLOCKED, UNREACHABLE = DomainStatus
FREE = CrawlLimits(delay_ms=0, concurrency=100, robots=False)
OLD_ID = "00000000-0000-7000-8000-000000000001"
LEGAL_WAY = {BLOCKED: (ACTIVE, BLOCKED), EXHAUSTED: (ACTIVE, EXHAUSTED), UNREACHABLE: (UNREACHABLE,)}


async def remember(control: ControlStore, *domains: str) -> None:
    for place, domain in enumerate(domains):
        await control.remember_domains([DomainSeed(domain=domain)], now=NOW + place)


async def read(control: ControlStore, domain: str) -> Domain:
    found = await control.get_domain(domain)
    assert found is not None
    return found


async def lead_to(control: ControlStore, domain: str, status: DomainStatus, **change: Any) -> Domain:
    """Take a pending domain to a status by the steps that there are."""
    found = await read(control, domain)
    for target in LEGAL_WAY.get(status, (status,)):
        found = await control.transition_domain(
            domain,
            DomainChange(source=found.status, target=target, expected_version=found.version, **change),
            now=NOW,
        )
    return found


async def fetched(stores: Stores, crawl: str, *urls: str, run_id: str | None = None) -> None:
    """Have pages that were fetched, each an entry of the log."""
    await stores.urls.create_crawl(crawl, limits=FREE, now=NOW)
    await stores.urls.add(crawl, [Discovered(url=url) for url in urls], now=NOW)
    request = LeaseRequest(worker="w", request_id=urls[0], slots=len(urls), crawl=crawl, run_id=run_id)
    leases = (await stores.urls.lease(request, now=NOW)).leases
    assert len(leases) == len(urls)
    done = [Report(token=each.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200)) for each in leases]
    await stores.urls.report(done, now=NOW + 1)


async def insert(place: Place, domain: str, **columns: Any) -> None:
    """Write a row past the store, as older programs did."""
    values = {
        "id": OLD_ID,
        "domain": domain,
        "parent_domain": domain,
        "first_seen_at": "2020-01-02T00:00:00.000Z",
        "updated_at": "2020-01-02T00:00:00.000Z",
        **columns,
    }
    await execute(place, f"INSERT INTO domains ({', '.join(values)}) VALUES {tuple(values.values())!r}")


# --------------------------------------------------------------------- listings


@pytest.mark.parametrize("sort", DomainSort)
@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_pages_of_any_size_have_every_domain_once_and_in_order(
    sort: DomainSort, limit: int, control: ControlStore, place: Place
) -> None:
    await remember(control, "e.example", "d.example", "c.example", "b.example", "a.example")
    await execute(
        place,
        "UPDATE domains SET priority_score = 5, image_yield_rate = 0.1 WHERE domain IN ('b.example', 'd.example')",
        "UPDATE domains SET priority_score = -7, image_yield_rate = 7 WHERE domain = 'c.example'",
        "UPDATE domains SET last_crawled_at = '2026-01-02T03:04:05.678Z' WHERE domain IN ('a.example', 'd.example')",
        "UPDATE domains SET last_crawled_at = '2026-01-02T03:04:05.679Z' WHERE domain = 'b.example'",
    )
    names: list[str] = []
    cursor: str | None = None
    while True:
        page = await control.sorted_domains(sort=sort, cursor=cursor, limit=limit)
        names += [each.domain[0] for each in page.domains]
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    expected = {
        "name": "a b c d e",
        "priority": "bd ae c",
        "yield": "c bd ae",
        "crawled": "b ad ce",
    }[sort]
    places = iter(names)
    groups = [sorted(islice(places, len(group))) for group in expected.split()]
    assert groups == [list(group) for group in expected.split()], "equals stand together, in any order"
    assert not list(places)


@pytest.mark.parametrize("sort", DomainSort)
async def test_a_listing_by_status_has_those_alone(sort: DomainSort, control: ControlStore) -> None:
    await remember(control, "a.example", "b.example", "c.example")
    await lead_to(control, "b.example", BLOCKED, block_reason_code="forbidden")
    assert [each.domain for each in (await control.sorted_domains(BLOCKED, sort=sort)).domains] == ["b.example"]
    assert len((await control.sorted_domains(PENDING, sort=sort)).domains) == 2


@pytest.mark.parametrize(
    "cursor",
    ["x", "yield.1.0", f"priority.1.{OLD_ID}", f"yield.1e999.{OLD_ID}", f"yield.--.{OLD_ID}", f"yield.{OLD_ID}"],
)
async def test_a_cursor_of_something_else_is_refused(cursor: str, control: ControlStore) -> None:
    with pytest.raises(InvalidInput, match="no cursor of domains sorted by yield"):
        await control.sorted_domains(sort=DomainSort.YIELD, cursor=cursor)


async def test_the_top_is_ordered_by_images_stored_and_then_by_images_found(
    control: ControlStore, place: Place
) -> None:
    await remember(control, "never.example", "found.example", "stored.example", "nothing.example")
    await execute(
        place,
        "UPDATE domains SET image_yield_rate = 0, avg_images_per_page = 0 WHERE domain = 'nothing.example'",
        "UPDATE domains SET image_yield_rate = 0, avg_images_per_page = 3 WHERE domain = 'found.example'",
        "UPDATE domains SET image_yield_rate = 2, avg_images_per_page = 2 WHERE domain = 'stored.example'",
    )
    names = [each.domain for each in await control.top_domains()]
    assert names == ["stored.example", "found.example", "nothing.example"]
    assert [each.domain for each in await control.top_domains(1)] == ["stored.example"]


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("domains_by_priority", "domains_priority"),
        ("domains_by_yield", "domains_yield"),
        ("domains_by_crawled", "domains_last_crawled"),
        ("top_domains", "domains_yield"),
    ],
)
async def test_a_page_of_many_domains_is_read_in_the_order_of_an_index(
    statement: str, index: str, stores: Stores, place: Place
) -> None:
    await execute(place, many_domains(place), "ANALYZE domains")
    nothing = None if place.dsn.startswith("sqlite") else Null()
    values = (50,) if statement == "top_domains" else (nothing, NOW if "crawled" in statement else 5, OLD_ID, 50)
    plan = await plan_of(statement, values, place)
    assert index in plan, plan
    for waste in ("Seq Scan", "SCAN domains\n", "USE TEMP B-TREE FOR ORDER BY"):
        assert waste not in plan, plan


def many_domains(place: Place) -> str:
    """Write very many domains past the store."""
    columns = """id, domain, parent_domain, first_seen_at, updated_at, priority_score, image_yield_rate,
                 last_crawled_at"""
    moment = "'2026-01-02T03:04:05.678Z'"
    crawled = "'2026-01-02T03:' || (10 + n % 50) || ':05.678Z'"
    if place.dsn.startswith("sqlite"):
        values = f"'d' || n, 'd', {moment}, {moment}, n % 50, n % 50 / 10.0, {crawled}"
        return f"""
            WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10000)
            INSERT INTO domains ({columns}) SELECT {UUID_IN_SQLITE}, {values} FROM numbers"""
    values = f"'d' || n, 'd', {moment}, {moment}, n % 50, n % 50 / 10.0, CAST({crawled} AS timestamptz)"
    return f"INSERT INTO domains ({columns}) SELECT gen_random_uuid(), {values} FROM generate_series(1, 10000) n"


# ----------------------------------------------------------------------- orders


@pytest.mark.parametrize("status", [EXHAUSTED, BLOCKED, UNREACHABLE])
async def test_a_reset_makes_a_domain_pending_with_a_clean_slate(status: DomainStatus, stores: Stores) -> None:
    control = stores.control
    await remember(control, "a.example")
    before = await lead_to(control, "a.example", status, block_reason="no", next_crawl_after=NOW + 30 * DAY)
    await control.block_domain("a.example", now=NOW)
    found = await control.reset_domain("WWW.a.example", reason="looked at it", actor="key 5", now=NOW)
    assert (found.status, found.block_reason, found.block_count, found.next_crawl_after) == (PENDING, None, 0, None)
    assert found.version > before.version
    gate = await stores.urls.get_gate("a.example")
    assert gate is not None
    assert gate.blocked_until == 0
    assert (await control.reset_domain("a.example", now=NOW)).status is PENDING


async def test_a_reset_of_an_active_or_unknown_domain_is_refused_and_changes_nothing(stores: Stores) -> None:
    control = stores.control
    await remember(control, "a.example")
    await lead_to(control, "a.example", ACTIVE)
    blocked = await control.block_domain("a.example", reason="wait", now=NOW)
    with pytest.raises(InvalidTransition, match="active"):
        await control.reset_domain("a.example", now=NOW)
    assert await read(control, "a.example") == blocked
    for order in (control.reset_domain, control.unblock_domain):
        with pytest.raises(UnknownDomain):
            await order("b.example", now=NOW)
    assert await control.get_domain("b.example") is None


async def test_a_block_closes_the_gate_to_every_crawl_also_before_the_first_url(stores: Stores) -> None:
    control, urls = stores.control, stores.urls
    blocked = await control.block_domain("https://www.a.example/", reason="they asked us to", now=NOW)
    assert (blocked.domain, blocked.status) == ("a.example", PENDING)
    assert (blocked.block_reason, blocked.block_reason_code) == ("they asked us to", BLOCKED_BY_OPERATOR)
    await urls.create_crawl("c", limits=FREE, now=NOW)
    await urls.add("c", [Discovered(url="https://a.example/")], now=NOW)
    request = LeaseRequest(worker="w", request_id="1", slots=1, crawl="c")
    assert not (await urls.lease(request, now=NOW + 10_000 * DAY)).leases
    freed = await control.unblock_domain("a.example", now=NOW)
    assert (freed.block_reason, freed.block_reason_code) == (None, None)
    assert len((await urls.lease(LeaseRequest(worker="w", request_id="2", slots=1, crawl="c"), now=NOW)).leases) == 1


async def test_a_block_until_a_moment_ends_by_itself(stores: Stores) -> None:
    urls = stores.urls
    await stores.control.block_domain("a.example", until=NOW + DAY, now=NOW)
    await urls.create_crawl("c", limits=FREE, now=NOW)
    await urls.add("c", [Discovered(url="https://a.example/")], now=NOW)
    assert not (await urls.lease(LeaseRequest(worker="w", request_id="1", slots=1), now=NOW + DAY - 1)).leases
    assert (await urls.lease(LeaseRequest(worker="w", request_id="2", slots=1), now=NOW + DAY)).leases


@pytest.mark.parametrize(("status", "after"), [(BLOCKED, ACTIVE), (UNREACHABLE, PENDING), (EXHAUSTED, EXHAUSTED)])
async def test_an_unblocked_domain_is_taken_back(
    status: DomainStatus, after: DomainStatus, control: ControlStore
) -> None:
    await remember(control, "a.example")
    before = await lead_to(control, "a.example", status, block_reason_code="forbidden", next_crawl_after=NOW + DAY)
    found = await control.unblock_domain("a.example", reason="sorted out", now=NOW)
    assert (found.status, found.block_reason_code, found.block_count) == (after, None, before.block_count)
    assert found.next_crawl_after == (at(NOW + DAY) if after is EXHAUSTED else None)


async def test_who_holds_a_claim_loses_it_by_an_order(control: ControlStore) -> None:
    await remember(control, "a.example")
    for order in (control.block_domain, control.unblock_domain, control.reset_domain):
        claims = await control.claim_domains("w", 1, now=NOW)
        assert len(claims) == 1
        await order("a.example", now=NOW)
        assert await control.renew_claims("w", claims, now=NOW) == [None]


# ------------------------------------------------------------------------ merge


async def test_a_merge_keeps_the_earlier_row_adds_the_counters_and_moves_what_refers_to_it(
    stores: Stores, place: Place
) -> None:
    control = stores.control
    await fetched(stores, "c", "https://a.example/1", "https://a.example/2")
    await insert(
        place, "www.a.example", pages_discovered=10, pages_crawled=7, images_found=3, total_error_count=2, seed_rank=5,
        source="old", crawl_depth_reached=9,
    )  # fmt: skip
    await execute(place, "UPDATE crawl_log SET domain = 'www.a.example' WHERE url LIKE '%/1'")
    before = await read(control, "a.example")
    merged = await control.merge_domain("www.a.example", "a.example")
    assert (merged.id, merged.domain) == (OLD_ID, "a.example")
    assert (merged.pages_discovered, merged.pages_crawled) == (12, 9)
    assert merged.images_found == before.images_found + 3
    assert merged.total_error_count == before.total_error_count + 2
    assert (merged.seed_rank, merged.source, merged.crawl_depth_reached) == (5, "old", 9)
    assert merged.status is before.status
    assert merged.version > before.version
    log = await place.backend.query(place.dsn, "SELECT DISTINCT domain, CAST(domain_id AS text) FROM crawl_log")
    assert log == [("a.example", OLD_ID)]
    steps = await place.backend.query(place.dsn, "SELECT DISTINCT CAST(domain_id AS text) FROM domain_history")
    assert steps == [(OLD_ID,)]
    assert await place.backend.query(place.dsn, "SELECT count(*) FROM domains") == [(1,)]
    gates = await place.backend.query(place.dsn, "SELECT domain, CAST(domain_id AS text) FROM gates")
    assert gates == [("a.example", OLD_ID)]
    audit = await control.audit_domains()
    assert (audit.without_gate, audit.gates_of_another_status) == (0, 0)


async def test_a_merge_into_an_older_row_keeps_that(stores: Stores, place: Place) -> None:
    control = stores.control
    await remember(control, "a.example")
    before = await read(control, "a.example")
    await insert(place, "www.a.example", first_seen_at="2030-01-02T00:00:00.000Z", pages_crawled=1)
    merged = await control.merge_domain("www.a.example", "a.example")
    assert (merged.id, merged.pages_crawled, merged.first_seen_at) == (before.id, 1, before.first_seen_at)


async def test_a_merge_that_is_broken_off_goes_on_when_it_is_asked_for_again(
    stores: Stores, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fetched(stores, "c", *(f"https://a.example/{n}" for n in range(5)))
    await insert(place, "www.a.example", pages_crawled=1)
    await execute(place, "UPDATE crawl_log SET domain = 'www.a.example'")
    control = stores.control
    assert isinstance(control, SqlControlStore)
    monkeypatch.setattr(domain_merge, "MOVED_AT_ONCE", 2)
    move = control._move_log
    calls = 0

    async def breaks(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ConnectionError
        await move(*arguments)

    monkeypatch.setattr(control, "_move_log", breaks)
    with pytest.raises(ConnectionError):
        await control.merge_domain("www.a.example", "a.example")
    both = {each.domain: each.pages_crawled for each in await control.list_domains()}
    assert both == {"a.example": 5, "www.a.example": 1}
    merged = await control.merge_domain("www.a.example", "a.example")
    assert merged.pages_crawled == 6
    log = await place.backend.query(place.dsn, "SELECT DISTINCT domain, CAST(domain_id AS text) FROM crawl_log")
    assert log == [("a.example", OLD_ID)]


async def test_what_is_fetched_during_a_merge_is_moved_too(
    stores: Stores, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fetched(stores, "c", "https://a.example/1")
    await insert(place, "www.a.example")
    control = stores.control
    assert isinstance(control, SqlControlStore)
    move = control._move_log

    async def fetches_meanwhile(*arguments: Any) -> None:
        await move(*arguments)
        await fetched(stores, "c", "https://a.example/2")

    monkeypatch.setattr(control, "_move_log", fetches_meanwhile)
    assert (await control.merge_domain("www.a.example", "a.example")).pages_crawled == 2
    log = await place.backend.query(place.dsn, "SELECT CAST(domain_id AS text) FROM crawl_log")
    assert log == [(OLD_ID,)] * 2


async def test_a_domain_that_has_urls_is_not_merged(stores: Stores) -> None:
    await fetched(stores, "c", "https://a.example/")
    await remember(stores.control, "b.example")
    with pytest.raises(DomainInUse, match=r"URLs of it \(1\)"):
        await stores.control.merge_domain("a.example", "b.example")
    assert len(await stores.control.list_domains()) == 2


async def test_what_cannot_be_merged_is_refused(control: ControlStore) -> None:
    await remember(control, "a.example")
    with pytest.raises(InvalidInput, match="into itself"):
        await control.merge_domain("a.example", "a.example")
    with pytest.raises(InvalidInput, match="its name would be"):
        await control.merge_domain("b.example", "www.a.example")
    for pair in (("b.example", "a.example"), ("a.example", "b.example")):
        with pytest.raises(UnknownDomain):
            await control.merge_domain(*pair)


# --------------------------------------------------------------------- in numbers


async def test_the_census_counts_domains_reasons_and_claims(control: ControlStore) -> None:
    await remember(control, *(f"{name}.example" for name in "abcdef"))
    await lead_to(control, "a.example", BLOCKED, block_reason_code="forbidden")
    await lead_to(control, "b.example", UNREACHABLE, block_reason_code="dns_failure")
    await lead_to(control, "c.example", UNREACHABLE)
    await control.claim_domains("w", 1, claim_ms=1, now=NOW)
    await control.claim_domains("w", 1, claim_ms=DAY, now=NOW)
    census = await control.domain_census(now=NOW + 1000)
    assert census.by_status == {PENDING: 3, ACTIVE: 0, EXHAUSTED: 0, BLOCKED: 1, UNREACHABLE: 2}
    assert census.blocked_by_code == {"forbidden": 1, "dns_failure": 1, "": 1}
    assert (census.live_claims, census.expired_claims) == (1, 1)


async def test_logged_pages_are_counted_by_domain_and_range(stores: Stores) -> None:
    await fetched(stores, "c", "https://a.example/1", "https://a.example/2", "https://b.example/")
    last = (await stores.urls.artifact_horizon()).last_id
    pages = await stores.control.logged_pages(after=0, until=last)
    assert {each.domain: each.completed for each in pages} == {"a.example": 2, "b.example": 1}
    assert await stores.control.logged_pages(after=last, until=last + 10) == []


async def test_an_audit_finds_what_does_not_fit_together(stores: Stores, place: Place) -> None:
    control = stores.control
    run_id = "0190163d-8694-739b-aea5-966c26f8ad91"
    await fetched(stores, "c", "https://a.example/1", "https://a.example/2", run_id=run_id)
    await remember(control, "b.example", "d.example")
    sound = await control.audit_domains(now=NOW)
    assert [getattr(sound, each) for each in sound.__struct_fields__] == [0] * len(sound.__struct_fields__)
    await insert(place, "e.example", claimed_by="nobody", claim_expires_at="2090-01-01T00:00:00.000Z")
    await execute(
        place,
        "UPDATE gates SET status = 'exhausted' WHERE domain = 'b.example'",
        "UPDATE domains SET status = 'exhausted' WHERE domain = 'a.example'",
        """UPDATE domains SET status = 'blocked', next_crawl_after = '2090-01-01T00:00:00.000Z'
            WHERE domain = 'd.example'""",
        "DELETE FROM domains WHERE domain = 'a.example'",
        "UPDATE domains SET status = 'exhausted' WHERE domain = 'e.example'",
        "UPDATE crawl_log SET url_hash = (SELECT min(url_hash) FROM crawl_log)"
        if place.dsn.startswith("sqlite")
        else "UPDATE crawl_log SET url_hash = (SELECT url_hash FROM crawl_log LIMIT 1)",
        f"""INSERT INTO domain_history (domain_id, from_status, to_status, actor, at, version)
            VALUES ('{OLD_ID}', 'pending', 'blocked', 'x', '2026-01-02T00:00:00.000Z', 1)""",
    )
    audit = await control.audit_domains(now=NOW)
    found = {each: getattr(audit, each) for each in audit.__struct_fields__}
    assert found == dict.fromkeys(audit.__struct_fields__, 1)


async def test_steps_are_counted_once_when_they_are_settled(control: ControlStore, place: Place) -> None:
    await remember(control, "a.example")
    found = await read(control, "a.example")
    step = f"""INSERT INTO domain_history (domain_id, from_status, to_status, reason_code, actor, at, version)
               VALUES ('{found.id}', 'active', 'blocked', 'forbidden', 'report', '2026-01-02T03:04:05.678Z', 1)"""
    began = (await control.domain_steps_since(None)).last_id
    await execute(place, step, step)
    assert (await control.domain_steps_since(began, now=NOW)).tallies == []
    taken = await control.domain_steps_since(began, now=NOW + 60_000)
    [tally] = taken.tallies
    assert (tally.from_status, tally.to_status, tally.reason_code, tally.number) == (ACTIVE, BLOCKED, "forbidden", 2)
    assert (await control.domain_steps_since(taken.last_id, now=NOW + 60_000)).tallies == []


async def test_every_statement_of_those_who_look_after_domains_is_used(stores: Stores) -> None:
    assert isinstance(stores.control, SqlControlStore)
    engine = RecordingEngine(stores.control._engine)
    await use_every_domain_operation(Stores(urls=SqlUrlStore(engine), control=SqlControlStore(engine)))
    assert engine.names >= set(domain_care.CATALOGUE)
