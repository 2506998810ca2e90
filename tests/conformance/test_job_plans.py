"""The plans of the statements on jobs, at 10,000 that wait, as many that run, and as many that are done."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from outrider.model.job import STALE_AFTER_MS, JobFilter, JobSort
from outrider.store.opening import Stores, open_store
from outrider.store.sql.control_store import SqlControlStore
from outrider.store.sql.engine import Engine
from outrider.store.sql.postgres import control as postgres_control
from outrider.store.sql.script import Script
from outrider.store.sql.url_store import SqlUrlStore
from tests.conformance.backends import Place
from tests.conformance.controlling import NOW, check_plan, execute, plan_of
from tests.conformance.jobbing import PENDING, claimed
from tests.everything import use_every_job_operation

Answer = TypeVar("Answer")

JOBS = 10_000
START = {
    "newest": (0, "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "oldest": (0, "00000000-0000-0000-0000-000000000000"),
    "priority": (-1_000_000, "00000000-0000-0000-0000-000000000000"),
    "updated": (NOW + 1, "ffffffff-ffff-ffff-ffff-ffffffffffff"),
}
INDEXES = {
    "newest": ("sqlite_autoindex_crawl_jobs_1", "crawl_jobs_pkey"),
    "oldest": ("sqlite_autoindex_crawl_jobs_1", "crawl_jobs_pkey"),
    "priority": ("crawl_jobs_rank", "crawl_jobs_rank"),
    "updated": ("crawl_jobs_updated", "crawl_jobs_updated"),
}
JOB_STATEMENTS = {name for name in postgres_control.CATALOGUE if "job" in name} | {
    "desired_states", "set_desired_state", "lock_leases_of_crawl",
}  # fmt: skip


class Null:
    """How PostgreSQL writes what is not there."""

    def __str__(self) -> str:
        return "NULL"


def nothing(place: Place) -> tuple[object, ...]:
    """Choose no job by anything."""
    return ((None if place.dsn.startswith("sqlite") else Null()),) * 6


def many_jobs(place: Place, status: str) -> str:
    """Write past the store so many jobs with one status."""
    columns = """id, crawl, payload, priority, status, created_at, available_at, last_heartbeat, updated_at, key_id,
                 user_id"""
    moments = ", '2026-01-02T03:04:05.678Z'" * 4
    values = f"'{status}' || n, '{{}}', n % 100, '{status}' {moments}, 'k' || n % 10, 'u' || n % 10"
    if place.dsn.startswith("sqlite"):
        return f"""
            WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {JOBS})
            INSERT INTO crawl_jobs ({columns}) SELECT {UUID_IN_SQLITE}, {values} FROM numbers"""
    return f"""
        INSERT INTO crawl_jobs ({columns}) SELECT gen_random_uuid(), {values} FROM generate_series(1, {JOBS}) n"""


UUID_IN_SQLITE = """lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-' || hex(randomblob(2)) || '-'
                          || hex(randomblob(2)) || '-' || hex(randomblob(6)))"""


@pytest.mark.parametrize("name", ["claim_job", "list_jobs_newest"])
async def test_a_store_that_has_just_filled_up_needs_no_statistics(name: str, stores: Stores, place: Place) -> None:
    """Until somebody has counted the rows, a planner may expect that next to none fit, and collect all to sort them."""
    await execute(place, many_jobs(place, "pending"))
    values = ("w", NOW) if name == "claim_job" else (*START["newest"], *nothing(place), 100)
    index = "crawl_jobs_claimable" if name == "claim_job" else INDEXES["newest"][not place.dsn.startswith("sqlite")]
    check_plan(await plan_of(name, values, place), index)


@pytest_asyncio.fixture
async def full(place: Place) -> AsyncIterator[Stores]:
    """A store with very many jobs."""
    async with await open_store(place.dsn) as stores:
        for status in ("pending", "processing", "completed"):
            await execute(place, many_jobs(place, status))
        await execute(place, "ANALYZE crawl_jobs")
        yield stores


async def test_a_claim_among_many_jobs_looks_at_one(full: Stores, place: Place) -> None:
    check_plan(await plan_of("claim_job", ("w", NOW), place), "crawl_jobs_claimable")
    check_plan(await plan_of("lock_stale_jobs", (NOW - STALE_AFTER_MS, 1), place), "crawl_jobs_beat")
    job = await full.control.claim_job("w", now=NOW)
    assert job is not None
    assert job.priority == 99


@pytest.mark.parametrize("sort", JobSort)
async def test_a_page_of_many_jobs_is_read_in_the_order_of_an_index(sort: JobSort, full: Stores, place: Place) -> None:
    plan = await plan_of(f"list_jobs_{sort}", (*START[sort], *nothing(place), 100), place)
    check_plan(plan, INDEXES[sort][not place.dsn.startswith("sqlite")])


async def test_the_quotas_of_a_key_are_counted_by_its_own_jobs(full: Stores, place: Place) -> None:
    check_plan(await plan_of("active_jobs_of_key", ("k1",), place), "crawl_jobs_live_of_key")
    check_plan(await plan_of("daily_job_of_key", ("k1", NOW - 1, 5), place), "crawl_jobs_of_key")


async def test_a_rare_kind_of_job_is_found_in_time(full: Stores) -> None:
    """Nothing fits, so that all 30,000 are looked at; a tenth of a second is far more than that takes."""
    for sort in JobSort:
        began = time.monotonic()
        page = await full.control.list_jobs(JobFilter(status=PENDING, user_id="u1", label=("a", "b")), sort=sort)
        assert page.jobs == []
        assert time.monotonic() - began < 1.0


class RecordingEngine:
    """Runs scripts on an engine and keeps the names of their statements."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.slots = engine.slots
        self.names: set[str] = set()

    async def write(self, script: Callable[[], Script[Answer]]) -> Answer:
        return await self._engine.write(lambda: self._recorded(script()))

    async def read(self, script: Callable[[], Script[Answer]]) -> Answer:
        return await self._engine.read(lambda: self._recorded(script()))

    def _recorded(self, script: Script[Answer]) -> Script[Answer]:
        try:
            call = next(script)
            while True:
                self.names.add(call.name)
                call = script.send((yield call))
        except StopIteration as end:
            answer: Answer = end.value
            return answer

    def version(self) -> int | None:
        return self._engine.version()

    async def hear_of_jobs(self, timeout_s: float) -> bool:
        return await self._engine.hear_of_jobs(timeout_s)

    async def close(self) -> None:
        await self._engine.close()


async def test_every_statement_on_jobs_is_used(stores: Stores) -> None:
    assert isinstance(stores.control, SqlControlStore)
    engine = RecordingEngine(stores.control._engine)
    await use_every_job_operation(Stores(urls=SqlUrlStore(engine), control=SqlControlStore(engine)))
    assert engine.names >= JOB_STATEMENTS


async def test_the_wishes_of_many_jobs_are_one_statement(stores: Stores) -> None:
    assert isinstance(stores.control, SqlControlStore)
    jobs: list[Any] = [await claimed(stores.control) for _ in range(5)]
    engine = RecordingEngine(stores.control._engine)
    await SqlControlStore(engine).desired_states([(job.id, job.epoch) for job in jobs])
    assert engine.names == {"desired_states"}
