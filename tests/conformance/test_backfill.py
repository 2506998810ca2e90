"""Backfills on every store: what is missing is added, once, and nothing live is written."""

import sqlite3

import asyncpg
import msgspec
import pytest

from outrider.model.backfill import BackfillKind, BackfillStep, DomainPast, UnknownBackfill
from outrider.model.domain import Domain
from outrider.model.errors import InvalidInput
from outrider.model.machines import DomainStatus
from outrider.model.settings import Settings
from outrider.model.task import CrawlLimits, Discovered
from outrider.store.opening import Stores, open_store
from outrider.store.protocols import ControlStore
from outrider.store.sql.control_store import SqlControlStore
from outrider.store.sql.postgres import backfill as postgres_backfill
from outrider.store.sql.postgres.connection import SERVER_SETTINGS
from outrider.store.sql.sqlite import backfill as sqlite_backfill
from tests.conformance.backends import Place
from tests.conformance.controlling import DAY, NOW, at, execute
from tests.conformance.test_job_plans import RecordingEngine
from tests.everything import use_every_backfill_operation
from tests.recount import check_counts

GOOD = DomainPast(
    domain="good.example", pages_discovered=10, pages_crawled=8, images_found=20, images_stored=4, total_error_count=2,
    crawl_depth_reached=3, first_seen_at=NOW - 30 * DAY, last_crawled_at=NOW - 2 * DAY,
)  # fmt: skip
BAD = DomainPast(
    domain="bad.example", pages_discovered=3, pages_crawled=1, total_error_count=2, rate_limited_count=2,
    last_crawled_at=NOW - DAY,
)  # fmt: skip


async def begun(control: ControlStore, name: str = "b") -> str:
    await control.begin_backfill(name, "somewhere", BackfillKind.CRAWL_LOG, now=NOW)
    return name


async def domain_of(control: ControlStore, name: str) -> Domain:
    found = await control.get_domain(name)
    assert found is not None
    return found


async def test_every_statement_is_run_by_the_operations_together(stores: Stores) -> None:
    assert isinstance(stores.control, SqlControlStore)
    engine = RecordingEngine(stores.control._engine)
    await use_every_backfill_operation(Stores(urls=stores.urls, control=SqlControlStore(engine)))
    assert engine.names >= postgres_backfill.CATALOGUE.keys() == sqlite_backfill.CATALOGUE.keys()


# How many values, and how many columns in a row.
BATCHES = {
    "backfilled_domains": (1, 1), "known_domains": (0, 1), "fill_backfilled": (0, 9), "block_backfilled_gates": (0, 2),
    "begin_backfilled": (1, 9),
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHES)
async def test_domains_are_found_by_their_names_however_many_there_are(name: str, stores: Stores, place: Place) -> None:
    values, columns = BATCHES[name]
    nulls = ", ".join(["NULL"] * (values + columns))
    if place.dsn.startswith("sqlite"):
        text = sqlite_backfill.CATALOGUE[name].text.replace("{rows}", f"({', '.join(['NULL'] * columns)})")
        connection = sqlite3.connect(place.dsn.removeprefix("sqlite:///"))
        steps = connection.execute(f"EXPLAIN QUERY PLAN {text}", (None,) * values).fetchall()
        connection.close()
        scans = [
            row[3] for row in steps if row[3] in ("SCAN d", "SCAN domains", "SCAN gates", "SCAN backfilled_domains")
        ]
        assert scans == [], steps
    else:
        server = await asyncpg.connect(place.dsn, server_settings=SERVER_SETTINGS)
        await server.execute(f"PREPARE statement AS {postgres_backfill.CATALOGUE[name].text}")
        plan = [row[0] for row in await server.fetch(f"EXPLAIN EXECUTE statement ({nulls})")]
        await server.close()
        assert not [line for line in plan if "Seq Scan" in line], plan


async def test_a_new_domain_begins_as_its_past_says(stores: Stores) -> None:
    control = stores.control
    step = await control.backfill_domains(await begun(control), [GOOD, BAD, DomainPast(domain="seen.example")], now=NOW)
    assert step == BackfillStep(new=3)
    good, bad = await domain_of(control, "good.example"), await domain_of(control, "bad.example")
    assert (good.status, good.pages_discovered, good.pages_crawled) == (DomainStatus.EXHAUSTED, 10, 8)
    assert (good.images_found, good.images_stored, good.total_error_count) == (20, 4, 2)
    assert (good.image_yield_rate, good.avg_images_per_page, good.error_rate) == (0.5, 2.5, 0.2)
    assert (good.crawl_depth_reached, good.source, good.version) == (3, "backfill_crawl_log", 2)
    assert (good.first_seen_at, good.last_crawled_at) == (at(NOW - 30 * DAY), at(NOW - 2 * DAY))
    assert good.next_crawl_after == at(NOW + 12 * DAY)
    assert (bad.status, bad.block_reason_code, bad.block_count) == (DomainStatus.BLOCKED, "rate_limited", 1)
    assert bad.block_reason == "2 of 3 rows of its crawl log were errors"
    assert (bad.first_blocked_at, bad.next_crawl_after) == (at(NOW), at(NOW + 6 * DAY))
    gate = await stores.urls.get_gate("bad.example")
    assert gate is not None
    assert gate.blocked_until == NOW + 6 * DAY
    assert (await domain_of(control, "seen.example")).status is DomainStatus.PENDING
    steps = [(step.from_status, step.to_status, step.actor) for step in await control.domain_history("bad.example")]
    assert steps == [("pending", "active", "backfill"), ("active", "blocked", "backfill")]


async def test_a_blocked_domain_wakes_when_its_rest_is_over(control: ControlStore) -> None:
    await control.backfill_domains(await begun(control), [BAD], now=NOW)
    assert await control.wake_domains(now=NOW + 6 * DAY - 1) == 0
    assert await control.wake_domains(now=NOW + 6 * DAY) == 1
    assert (await domain_of(control, "bad.example")).status is DomainStatus.PENDING


async def test_where_lives_are_not_kept_a_new_domain_is_pending(place: Place) -> None:
    async with await open_store(place.dsn, Settings(enable_domain_tracking=False)) as stores:
        await stores.control.backfill_domains(await begun(stores.control), [BAD], now=NOW)
        found = await domain_of(stores.control, "bad.example")
        assert (found.status, found.pages_crawled, found.next_crawl_after) == (DomainStatus.PENDING, 1, None)


async def test_the_same_past_again_changes_nothing(control: ControlStore) -> None:
    name = await begun(control)
    await control.backfill_domains(name, [GOOD, BAD], now=NOW)
    before = await control.list_domains()
    assert await control.backfill_domains(name, [BAD, GOOD], now=NOW + DAY) == BackfillStep(unchanged=2)
    assert await control.list_domains() == before


async def test_a_source_that_has_grown_adds_the_difference_and_one_that_has_shrunk_takes_nothing_away(
    control: ControlStore,
) -> None:
    name = await begun(control)
    await control.backfill_domains(name, [GOOD], now=NOW)
    grown = msgspec.structs.replace(GOOD, pages_discovered=12, pages_crawled=7, last_crawled_at=NOW - DAY)
    assert await control.backfill_domains(name, [grown], now=NOW) == BackfillStep(added_to=1)
    found = await domain_of(control, "good.example")
    assert (found.pages_discovered, found.pages_crawled, found.last_crawled_at) == (12, 8, at(NOW - DAY))
    assert await control.backfill_domains(name, [GOOD], now=NOW) == BackfillStep(unchanged=1)


async def test_two_sources_add_up(control: ControlStore) -> None:
    await control.backfill_domains(await begun(control, "first"), [GOOD], now=NOW)
    assert await control.backfill_domains(await begun(control, "second"), [GOOD], now=NOW) == BackfillStep(added_to=1)
    assert (await domain_of(control, "good.example")).pages_crawled == 16


async def test_a_domain_that_is_crawled_keeps_its_status_and_its_counts(place: Place, stores: Stores) -> None:
    """Invariant Counts: what a domain counts itself stays in its counts, what is added is an offset."""
    await stores.urls.create_crawl("c", limits=CrawlLimits(), now=NOW)
    await stores.urls.add("c", [Discovered(url="https://bad.example/")], now=NOW)
    before = await domain_of(stores.control, "bad.example")
    await stores.control.backfill_domains(await begun(stores.control), [BAD], now=NOW)
    after = await domain_of(stores.control, "bad.example")
    assert (after.status, after.version, after.source) == (DomainStatus.PENDING, before.version, None)
    assert (after.pages_discovered, after.pages_crawled, after.frontier_size) == (4, 1, 1)
    gate = await stores.urls.get_gate("bad.example")
    assert gate is not None
    assert gate.blocked_until == 0
    await check_counts(place)


async def test_a_domain_that_was_merged_into_another_is_not_brought_again(place: Place, control: ControlStore) -> None:
    name = await begun(control)
    await control.backfill_domains(name, [GOOD], now=NOW)
    await execute(place, "DELETE FROM domain_history", "DELETE FROM domains WHERE domain = 'good.example'")
    assert await control.backfill_domains(name, [GOOD], now=NOW) == BackfillStep(unchanged=1)
    assert await control.get_domain("good.example") is None


async def test_a_preview_tells_what_would_be_done_and_does_nothing(control: ControlStore) -> None:
    await control.backfill_domains(await begun(control), [GOOD], now=NOW)
    assert await control.preview_backfill("b", [GOOD, BAD]) == BackfillStep(new=1, unchanged=1)
    assert await control.preview_backfill("never begun", [GOOD]) == BackfillStep(added_to=1)
    assert await control.get_domain("bad.example") is None
    assert await control.get_backfill("never begun") is None


async def test_the_ledger_tells_which_source_how_far_and_what_it_brought(control: ControlStore) -> None:
    name = await begun(control)
    await control.backfill_domains(name, [GOOD, BAD], now=NOW)
    noted = await control.note_backfill(name, position="7", rows_read=13, rows_refused=1, finished=True, now=NOW + 5)
    assert (noted.source, noted.position, noted.rows_read, noted.rows_refused) == ("somewhere", "7", 13, 1)
    assert (noted.domains_new, noted.started_at, noted.finished_at) == (2, at(NOW), at(NOW + 5))
    assert await control.list_backfills() == [noted]
    again = await control.begin_backfill(name, "somewhere", BackfillKind.CRAWL_LOG, now=NOW + DAY)
    assert (again.finished_at, again.position, again.rows_read, again.domains_new) == (None, None, 0, 2)
    await control.note_backfill(name, position="3", rows_read=3, rows_refused=0, now=NOW + DAY)
    broken_off = await control.begin_backfill(name, "somewhere", BackfillKind.CRAWL_LOG, now=NOW + 2 * DAY)
    assert (broken_off.position, broken_off.rows_read, broken_off.started_at) == ("3", 3, at(NOW + DAY))


async def test_the_figures_are_those_of_what_was_backfilled(control: ControlStore) -> None:
    await control.backfill_domains(await begun(control), [GOOD, BAD], now=NOW)
    figures = await control.backfill_figures()
    assert (figures.backfilled_domains, figures.total_domains) == (2, 2)
    told = {each.status: (each.domains, each.average_yield, each.average_pages) for each in figures.by_status}
    assert told == {DomainStatus.EXHAUSTED: (1, 0.5, 8.0), DomainStatus.BLOCKED: (1, 0.0, 1.0)}


@pytest.mark.parametrize(
    ("past", "complaint"),
    [
        (DomainPast(domain="WWW.Good.example"), "not in its canonical form"),
        (DomainPast(domain=""), "no host"),
        (DomainPast(domain="a.example", pages_crawled=-1), "pages_crawled must be"),
        (DomainPast(domain="a.example", first_seen_at=2**60), "first_seen_at must be"),
    ],
)
async def test_a_past_that_cannot_be_is_refused(control: ControlStore, past: DomainPast, complaint: str) -> None:
    name = await begun(control)
    with pytest.raises(InvalidInput, match=complaint):
        await control.backfill_domains(name, [GOOD, past], now=NOW)
    assert await control.list_domains() == []


async def test_a_backfill_that_has_not_begun_is_refused(control: ControlStore) -> None:
    with pytest.raises(UnknownBackfill):
        await control.backfill_domains("b", [GOOD], now=NOW)
    with pytest.raises(UnknownBackfill):
        await control.note_backfill("b", position=None, rows_read=0, rows_refused=0)
