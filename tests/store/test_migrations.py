"""The schema up and down with data in it, and stores whose schema is not the one that this program needs."""

import asyncio
import random
import re
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

from outrider.model.api_key import ApiKey, Role
from outrider.model.artifact import Fetch
from outrider.model.errors import SchemaOutdated, SchemaTooNew, StoreNotOurs
from outrider.model.job import Job, JobEnding, JobRequest, JobSort
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.machines import JobStatus
from outrider.model.quota import JobQuota
from outrider.model.task import Crawl, CrawlLimits, Discovered
from outrider.store.dsn import SqliteDsn
from outrider.store.opening import open_store
from outrider.store.sql import migrate
from tests.everything import NOW, use_every_operation
from tests.processes import run_together, start

ROOT = Path(__file__).parent.parent.parent
FIRST = "0001"
URL_TABLES = ("crawls", "queues", "gates", "robots", "tasks", "task_metadata", "leases", "counts", "crawl_log")

Rows = list[tuple[object, ...]]


class Engine(NamedTuple):
    """How to ask one kind of database directly."""

    everything_in_it: str
    """Tables, views, types, functions and sequences."""
    query: Callable[[str, str], Rows]


def query_sqlite(dsn: str, sql: str) -> Rows:
    connection = sqlite3.connect(dsn.removeprefix("sqlite:///"))
    try:
        with connection:
            return connection.execute(sql).fetchall()
    finally:
        connection.close()


def query_postgres(dsn: str, sql: str) -> Rows:
    async def fetch() -> Rows:
        connection = await asyncpg.connect(dsn)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    return asyncio.run(fetch())


SQLITE = Engine("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'", query_sqlite)
POSTGRES = Engine(
    """SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind <> 'i'
        UNION ALL SELECT typname::text FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typtype = 'e'
        UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace""",
    query_postgres,
)


def engine_of(dsn: str) -> Engine:
    return SQLITE if dsn.startswith("sqlite:") else POSTGRES


def query(dsn: str, sql: str) -> Rows:
    return engine_of(dsn).query(dsn, sql)


def everything_in(dsn: str) -> set[object]:
    return {name for (name,) in query(dsn, engine_of(dsn).everything_in_it)}


LATER_COLUMNS = {"crawl_log": 5, "crawls": 1, "counts": 4, "gates": 4, "leases": 1}
"""How many columns of a table came after the first revision; they stand at its end."""


def url_plane(dsn: str, *, whole: bool = True) -> dict[str, list[str]]:
    """Read all rows of the URL plane, whole or as the first revision has them."""
    rows = {}
    for table in URL_TABLES:
        found = [tuple(row) for row in query(dsn, f"SELECT * FROM {table}")]
        width = len(found[0]) - (0 if whole else LATER_COLUMNS.get(table, 0)) if found else 0
        rows[table] = sorted(repr(row[:width]) for row in found)
    return rows


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The name of a store that is not there yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/outrider.sqlite"
    return str(request.getfixturevalue("postgres_database"))


async def fill(dsn: str) -> None:
    """Leave something in every state: waiting, in flight, done, with robots.txt and metadata."""
    async with await open_store(dsn) as stores:
        urls = stores.urls
        await urls.create_crawl("c", limits=CrawlLimits(delay_ms=0, concurrency=2), now=NOW)
        items = [Discovered(url=f"https://s{n % 3}.example/{n}", metadata={"n": n}) for n in range(9)]
        await urls.add("c", items, now=NOW)
        for number in range(3):
            request = LeaseRequest(worker="w", request_id=str(number), slots=4, crawl="c")
            leases = (await urls.lease(request, now=NOW + number)).leases
            reports = [
                Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200)) for lease in leases
            ]
            await urls.report(reports[: len(reports) - number], now=NOW + number)


async def check_in_use(dsn: str) -> None:
    """Check that the store goes on where it was, and can do everything."""
    async with await open_store(dsn) as stores:
        assert (await stores.urls.counts("c")).assigned > 0
        await stores.urls.add("c", [Discovered(url="https://s1.example/later")], now=NOW)
        await use_every_operation(stores.urls)


def test_the_url_plane_keeps_its_rows_while_the_control_plane_comes_and_goes(store: str) -> None:
    migrate.upgrade(store)
    asyncio.run(fill(store))
    before = url_plane(store, whole=False)
    assert all(before.values()), "there should be something of everything"

    assert migrate.downgrade(store, FIRST) == FIRST
    assert url_plane(store) == before
    assert "domains" not in everything_in(store)

    assert migrate.upgrade(store) == migrate.HEAD
    assert url_plane(store, whole=False) == before
    asyncio.run(check_in_use(store))
    # A domain is known under the id that its gate had all the time.
    orphans = "SELECT g.domain FROM gates g LEFT JOIN domains d ON d.id = g.domain_id AND d.domain = g.domain"
    assert query(store, f"{orphans} WHERE d.id IS NULL") == []
    assert query(store, "SELECT parent_domain FROM domains WHERE domain = 's1.example'") == [("s1.example",)]


BEFORE_JOBS = "0004"


async def fill_jobs(dsn: str) -> str:
    """Leave a job that has run, with everything that a job can have, and a key; tell the job's id."""
    async with await open_store(dsn) as stores:
        control = stores.control
        await control.create_key("k", "d" * 64, name="laptop", role=Role.CRAWL, owner="me", now=NOW)
        await stores.urls.create_crawl("c", now=NOW)
        await stores.urls.set_conduct("c", {"sitemaps": False})
        request = JobRequest(payload={"seeds": []}, crawl="c", labels={"a": "b"}, key_id="k", webhook_url="https://h/")
        job = await control.submit_job(request, now=NOW)
        assert await control.claim_job("w", now=NOW + 1) is not None
        await control.finish_job(job.id, 1, JobEnding(outcome=JobStatus.COMPLETED), now=NOW + 2)
        await control.submit_job(JobRequest(payload={}, crawl="d"), now=NOW + 3)
        return job.id


def test_jobs_and_keys_survive_the_way_down_to_where_they_could_less(store: str) -> None:
    migrate.upgrade(store)
    job_id = asyncio.run(fill_jobs(store))

    async def found() -> tuple[Job | None, ApiKey | None, Crawl, list[str]]:
        async with await open_store(store) as stores:
            control = stores.control
            newest = await control.list_jobs(sort=JobSort.UPDATED)
            moments = [job.updated_at.isoformat(timespec="milliseconds") for job in newest.jobs]
            return await control.get_job(job_id), await control.find_key("k"), await stores.urls.get_crawl("c"), moments

    before, *_, moments = asyncio.run(found())
    assert before is not None
    assert (before.labels, before.key_id) == ({"a": "b"}, "k")
    assert migrate.downgrade(store, BEFORE_JOBS) == BEFORE_JOBS
    assert query(store, "SELECT status FROM crawl_jobs ORDER BY created_at") == [("completed",), ("pending",)]
    assert migrate.upgrade(store) == migrate.HEAD
    job, key, crawl, again = asyncio.run(found())
    assert job is not None
    assert (job.status, job.labels, job.key_id, job.reason) == (JobStatus.COMPLETED, {}, None, None)
    assert again == moments, "when a job changed last is known from the rest of its row"
    assert key is not None
    assert (key.owner, key.quota) == ("laptop", JobQuota())
    assert crawl.conduct is None
    assert query(store, "SELECT count(*) FROM job_history") == [(4,)]


def test_going_down_to_nothing_leaves_nothing_and_the_way_up_is_open_again(store: str) -> None:
    migrate.upgrade(store)
    asyncio.run(fill(store))
    assert migrate.downgrade(store, "base") is None
    assert everything_in(store) == {migrate.VERSION_TABLE}
    migrate.upgrade(store)
    asyncio.run(fill(store))
    asyncio.run(check_in_use(store))


def run_command_in(message: str, password: str | None) -> None:
    """Do what an error message says."""
    found = re.search(r"run: (outrider .*)$", message)
    assert found is not None, message
    command = found[1].replace("***", password or "")
    subprocess.run([sys.executable, "-m", "outrider.cli.main", *shlex.split(command)[1:]], check=True, cwd=ROOT)


@pytest.mark.parametrize("revision", [FIRST, None])
def test_an_older_schema_is_refused_with_the_command_that_helps(store: str, revision: str | None) -> None:
    if revision is not None:
        migrate.upgrade(store, revision)
    elif store.startswith("sqlite:"):
        migrate.upgrade(store)
        migrate.downgrade(store, "base")
    with pytest.raises(SchemaOutdated) as refused:
        asyncio.run(open_store(store))
    password = urlsplit(store).password
    assert password is None or password not in str(refused.value)
    run_command_in(str(refused.value), password)
    asyncio.run(fill(store))


def test_the_command_is_right_for_a_file_with_a_difficult_name(tmp_path: Path) -> None:
    path = tmp_path / "it's 100%25 mine" / "a b.sqlite"
    store = f"sqlite:///{quote(str(path))}"
    migrate.upgrade(store, FIRST)
    assert path.exists()
    with pytest.raises(SchemaOutdated) as refused:
        asyncio.run(open_store(store))
    run_command_in(str(refused.value), None)
    asyncio.run(fill(store))
    assert sorted(found.name for found in tmp_path.iterdir()) == [path.parent.name], "and no other file was made"


def test_a_new_file_with_a_difficult_name_is_made_where_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "100%25 mine" / "a b.sqlite"
    asyncio.run(fill(f"sqlite:///{quote(str(path))}"))
    assert path.exists()
    assert [found.name for found in tmp_path.iterdir()] == [path.parent.name]


def test_a_newer_schema_is_refused(store: str) -> None:
    migrate.upgrade(store)
    query(store, f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(SchemaTooNew, match=r"9999.*upgrade Outrider"):
        asyncio.run(open_store(store))


def test_a_database_with_tables_of_somebody_else_is_refused_and_left_alone(postgres_database: str) -> None:
    query(postgres_database, "CREATE TABLE tasks (theirs int)")
    with pytest.raises(StoreNotOurs, match="did not create"):
        asyncio.run(open_store(postgres_database))
    assert everything_in(postgres_database) == {"tasks"}


@pytest.mark.parametrize("change", [migrate.upgrade, lambda dsn: migrate.downgrade(dsn, "base")])
def test_the_file_of_another_program_is_not_migrated(tmp_path: Path, change: Callable[[str], object]) -> None:
    file = tmp_path / "theirs.sqlite"
    dsn = f"sqlite:///{file}"
    query(dsn, "CREATE TABLE notes (theirs int)")
    before = file.read_bytes()
    with pytest.raises(StoreNotOurs, match="not one of Outrider's"):
        change(dsn)
    assert file.read_bytes() == before


# ------------------------------------------- files that are just being made


async def create_and_use(dsn: str, number: int) -> None:
    async with await open_store(dsn) as stores:
        await stores.urls.create_crawl("c", now=NOW)
        await stores.urls.add("c", [Discovered(url=f"https://s{number}.example/")], now=NOW)


@pytest.mark.parametrize("attempt", range(3))
def test_processes_that_create_the_same_file_at_once_all_succeed(tmp_path: Path, attempt: int) -> None:
    dsn = f"sqlite:///{tmp_path}/new/folder/outrider.sqlite"
    run_together(create_and_use, [(dsn, number) for number in range(4)])
    assert query(dsn, "SELECT count(*) FROM tasks") == [(4,)]


def upgrade_and_tell(pipe: Connection, dsn: str) -> None:
    pipe.send("begins")
    migrate.upgrade(dsn)
    pipe.send("done")


def test_a_migration_that_is_killed_leaves_nothing_half_written(tmp_path: Path) -> None:
    whole = f"sqlite:///{tmp_path}/whole.sqlite"
    child = start(upgrade_and_tell, whole)
    assert child.receive() == "begins"
    began = time.monotonic()
    assert child.receive() == "done"
    length_s = time.monotonic() - began
    child.process.join()

    chance = random.Random(3)
    unfinished = 0
    for number in range(10):
        dsn = f"sqlite:///{tmp_path}/{number}.sqlite"
        child = start(upgrade_and_tell, dsn)
        assert child.receive() == "begins"
        child.pipe.poll(length_s * chance.uniform(0, 1))
        child.kill()
        there = everything_in(dsn) if (tmp_path / f"{number}.sqlite").exists() else set()
        assert there in (set(), everything_in(whole))
        unfinished += not there
        asyncio.run(fill(dsn))
    assert unfinished, "the kills came too late to show anything"


def spill_and_wait(pipe: Connection, path: str) -> None:
    """Write so much in one transaction that it runs over from memory into the file."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA cache_size = 2")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE some (thing)")
    connection.executemany("INSERT INTO some VALUES (?)", [("x" * 1000,)] * 1000)
    pipe.send("written")
    time.sleep(600)


def test_a_file_whose_creation_was_cut_off_in_its_last_write_is_created_anew(tmp_path: Path) -> None:
    path = tmp_path / "outrider.sqlite"
    child = start(spill_and_wait, str(path))
    assert child.receive() == "written"
    child.kill()
    assert path.stat().st_size > 0
    assert Path(f"{path}-journal").exists()
    asyncio.run(fill(f"sqlite:///{path}"))


def test_an_empty_file_is_taken_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "empty.sqlite").touch()
    asyncio.run(fill(f"sqlite:///{tmp_path}/empty.sqlite"))


def schema_of(path: Path) -> set[tuple[str, str, str | None]]:
    connection = sqlite3.connect(path)
    found = set(connection.execute("SELECT type, name, sql FROM sqlite_schema"))
    found |= {("row", row[0], str(row[1])) for row in connection.execute("SELECT name, value FROM sequences")}
    found |= {("row", *row, None) for row in connection.execute(f"SELECT version_num FROM {migrate.VERSION_TABLE}")}
    found |= {("application id", str(row[0]), None) for row in connection.execute("PRAGMA application_id")}
    connection.close()
    return found


def test_a_fresh_file_is_what_the_migrations_would_have_made_of_it(tmp_path: Path) -> None:
    """Where this fails after a new migration: `python -m outrider.store.sql.migrate` writes the schema anew."""
    fresh, migrated = tmp_path / "fresh.sqlite", tmp_path / "migrated.sqlite"
    migrate.create_sqlite(SqliteDsn(path=str(fresh)))
    migrate.upgrade(f"sqlite:///{migrated}")
    assert schema_of(fresh) == schema_of(migrated)
