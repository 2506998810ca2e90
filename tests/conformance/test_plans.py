"""The plans of every statement of the URL plane, at 100,000 queues.

Bands 0 to 3 wait for an hour: at `NOW` the top bands are waiting, at `LATER` all queues are ready.
"""

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest

from outrider.model.lease import LeaseRequest
from outrider.model.settings import Settings
from outrider.policy.domain_priority import PriorityWeights
from outrider.store.sql import migrate
from outrider.store.sql.postgres import lives as postgres_lives
from outrider.store.sql.postgres import urls as postgres_urls
from outrider.store.sql.postgres.arrays import prepared
from outrider.store.sql.postgres.catalogue import catalogue as postgres_catalogue
from outrider.store.sql.postgres.connection import SERVER_SETTINGS
from outrider.store.sql.script import Call, Script
from outrider.store.sql.sqlite import lives as sqlite_lives
from outrider.store.sql.sqlite import urls as sqlite_urls
from outrider.store.sql.sqlite.catalogue import catalogue as sqlite_catalogue
from outrider.store.sql.sqlite.engine import CHUNKS, run
from outrider.store.sql.url_store import SqlUrlStore
from outrider.store.sql.urls.lease import lease
from tests.everything import use_every_operation
from tests.servers import Databases

Answer = TypeVar("Answer")

SQLITE = sqlite_catalogue(PriorityWeights())
POSTGRES = postgres_catalogue(PriorityWeights())
OF_CONTROL = {"domain_history", "live_claims", "lock_refreshable", "lock_rested"}
"""Statements about the lives of domains that the URL plane alone does not come to; `test_domain_plans` has them."""

QUEUES = 100_000
IN_FLIGHT = 10_000
NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
LATER = NOW + 2 * HOUR_MS
MANY_ROWS = sum(CHUNKS)

LARGE = {"tasks", "task_metadata", "queues", "gates", "robots", "leases", "counts", "run_counts", "crawl_log",
         "domains", "revisits"}  # fmt: skip

WHOLE_CRAWL = {
    "delete_crawl_counts", "delete_crawl_leases", "delete_crawl_metadata", "delete_crawl_queues",
    "delete_crawl_revisits", "delete_crawl_scope", "delete_crawl_tasks", "keep_counts", "lock_queues_of_crawl",
    "queues_by_pages", "scope_roots", "wake_crawl",
}  # fmt: skip
"""Statements that are about everything in a crawl, or, of one with a small total, about what is ready and in flight."""

WHOLE_QUEUE = {"delete_queue_leases", "delete_queue_tasks", "delete_queue_metadata", "delete_queue_revisits"}

IN_ORDER = {"list_tasks", "list_queues", "queues_by_pages", "tasks_in_order", "retry_tasks", "is_refreshed"}
"""Statements that go through a crawl, or what is in flight of a small one, in the order of an index, up to a limit."""

FILL = f"""
INSERT INTO crawls (name, key_rule, strip_tracking, sort_query, delay_ms, concurrency, robots, created_at)
VALUES ('big', 'domain', {{no}}, {{no}}, 0, 1, {{no}}, 0);
INSERT INTO gates (domain, domain_id, status) SELECT {{key}}, {{uuid}}, 'active' FROM {{numbers}};
INSERT INTO domains (id, domain, parent_domain, first_seen_at, updated_at)
SELECT {{uuid}}, {{key}}, {{key}}, {{moment}}, {{moment}} FROM {{numbers}} WHERE i % 4 = 0;
INSERT INTO robots (domain, version, text, fetched_at) SELECT {{key}}, 'v', '', 0 FROM {{numbers}} WHERE i % 4 = 0;
INSERT INTO queues (crawl_id, key, domain, band, tasks_due_at, gate_opens_at, created_at)
SELECT 1, {{key}}, {{key}}, i % 16, {NOW} - i, CASE WHEN i % 16 < 4 THEN {NOW + HOUR_MS} + i ELSE 0 END, 0
  FROM {{numbers}};
INSERT INTO counts (crawl_id, key, domain, kind, slot, discovered, pending, assigned, completed, failed)
SELECT 1, {{key}}, {{key}}, 0, 0, 0, 1, 0, 0, 0 FROM {{numbers}};
INSERT INTO run_counts (run_id, domain, slot, pages) SELECT {{uuid}}, {{key}}, 0, 1 FROM {{numbers}} WHERE i % 4 = 0;
INSERT INTO tasks (crawl_id, key, hash, url, kind, state, delayed, priority, depth, sequence, due_at,
                   discovered_at, discovery_type)
SELECT 1, {{key}}, {{hash}}, 'https://' || {{key}} || '/', 0, 1, {{no}}, 0, 0, i, {NOW}, 0, 0 FROM {{numbers}};
INSERT INTO tasks (crawl_id, key, hash, url, kind, state, delayed, priority, depth, sequence, due_at,
                   discovered_at, discovery_type)
SELECT 1, {{key}}, {{other_hash}}, 'https://' || {{key}} || '/', 0, i % 4 + 1, i % 4 = 0, 0, 0, i, {NOW}, 0, 0
  FROM {{numbers}} WHERE i < {4 * IN_FLIGHT};
INSERT INTO tasks (crawl_id, key, hash, url, kind, state, delayed, priority, depth, sequence, due_at,
                   discovered_at, discovery_type)
SELECT 1, {{key}}, {{third_hash}}, 'https://' || {{key}} || '/', 0, 0, {{no}}, 0, 9, i, {NOW}, 0, 0
  FROM {{numbers}} WHERE i < {IN_FLIGHT};
INSERT INTO task_metadata (crawl_id, key, hash, metadata)
SELECT 1, {{key}}, {{hash}}, '{{{{}}}}' FROM {{numbers}} WHERE i % 4 = 0;
INSERT INTO leases (token, crawl_id, key, hash, url_hash, domain, kind, worker, request_id, attempt, delay_ms,
                    gate_was, granted_at, last_heartbeat, expires_at)
SELECT {{hash}}, 1, {{key}}, {{other_hash}}, {{hash}}, {{key}}, 0, {{key}}, 'r', 0, 0, 0, {NOW}, {NOW}, {LATER} + i
  FROM {{numbers}} WHERE i < {4 * IN_FLIGHT} AND i % 4 = 1;
INSERT INTO crawl_log (crawl, key, url, url_hash, token, attempt, domain, kind, outcome, verdict, http_status,
                       images_found, discovery_type, depth, leased_at, reported_at)
SELECT 'big', {{key}}, {{key}}, {{hash}}, {{hash}}, 1, {{key}}, 0, 'done', 'completed', 200, 0, 0, 0, 0, 0
  FROM {{numbers}} WHERE i % 4 = 0;
INSERT INTO revisits (crawl_id, key, hash, domain, due_at, visited_at, interval_ms, spread, changed_at, streak, visits,
                      gone, changes)
SELECT 1, {{key}}, {{other_hash}}, {{key}}, {NOW} + i, {NOW}, 1, 1, {NOW}, 0, 0, 0, 0 FROM {{numbers}}
"""

IN_SQLITE = {
    "numbers": f"""(WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {QUEUES - 1})
                   SELECT i FROM n)""",
    "key": "printf('d%06d.example', i)",
    "uuid": "printf('00000000-0000-7000-8000-%012x', i)",
    "hash": "CAST(printf('%016d', i) AS BLOB)",
    "other_hash": "CAST(printf('b%015d', i) AS BLOB)",
    "third_hash": "CAST(printf('c%015d', i) AS BLOB)",
    "moment": "'2024-01-01T00:00:00.000Z'",
    "no": "0",
}  # fmt: skip

IN_POSTGRES = {
    "numbers": f"generate_series(0, {QUEUES - 1}) AS i",
    "key": "'d' || lpad(i::text, 6, '0') || '.example'",
    "uuid": "('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid",
    "hash": "convert_to(lpad(i::text, 16, '0'), 'UTF8')",
    "other_hash": "convert_to('b' || lpad(i::text, 15, '0'), 'UTF8')",
    "third_hash": "convert_to('c' || lpad(i::text, 15, '0'), 'UTF8')",
    "moment": "'2024-01-01'::timestamptz",
    "no": "false",
}


# ------------------------------------------------------------------- SQLite


class ExplainingConnection(sqlite3.Connection):
    """A connection that, when told to, explains statements instead of executing them."""

    plan: set[str] | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if self.plan is None:
            return super().execute(sql, parameters)
        self.plan.update(row[3] for row in super().execute(f"EXPLAIN QUERY PLAN {sql}", parameters))
        return self.cursor()


class ExplainingEngine:
    """Runs scripts, and keeps the plans of every statement of theirs under its name."""

    slots = 1

    def __init__(self, connection: ExplainingConnection) -> None:
        self._connection = connection
        self.plans: dict[str, set[str]] = {}

    async def write(self, script: Callable[[], Script[Answer]]) -> Answer:
        return run(self._connection, SQLITE, self._explained(script()))

    read = write

    def version(self) -> int | None:
        return None

    def _explained(self, script: Script[Answer]) -> Script[Answer]:
        try:
            call = next(script)
            while True:
                self._explain(call)
                call = script.send((yield call))
        except StopIteration as end:
            answer: Answer = end.value
            return answer

    def _explain(self, call: Call) -> None:
        """Explain a statement with many rows: the engine then writes it in each of its sizes."""
        if not SQLITE[call.name].text or (call.rows is not None and not call.rows):
            return
        if call.rows:
            call = call._replace(rows=(list(call.rows) * MANY_ROWS)[:MANY_ROWS])
        self._connection.plan = self.plans.setdefault(call.name, set())
        run(self._connection, SQLITE, _only(call))
        self._connection.plan = None

    async def hear_of_jobs(self, timeout_s: float) -> bool:
        return False

    async def close(self) -> None:
        self._connection.close()


def _only(call: Call) -> Script[None]:
    yield call


@pytest.fixture(scope="session")
def big_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "big.sqlite"
    migrate.upgrade(f"sqlite:///{path}")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    for statement in FILL.format(**IN_SQLITE).split(";"):
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


@pytest.fixture
def big_connection(big_file: Path) -> Iterator[ExplainingConnection]:
    connection = sqlite3.connect(big_file, isolation_level=None, factory=ExplainingConnection)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.execute("ROLLBACK")
    connection.close()


@pytest.fixture(scope="session")
def sqlite_plans(big_file: Path) -> dict[str, set[str]]:
    """What SQLite does for each statement, with the numbers of rows that the engine really sends."""
    connection = sqlite3.connect(big_file, isolation_level=None, factory=ExplainingConnection)
    connection.execute("BEGIN")
    connection.execute("UPDATE crawls SET state = 'paused'")
    engine = ExplainingEngine(connection)
    asyncio.run(use_every_operation(SqlUrlStore(engine, Settings(enable_refresh_mode=True))))
    connection.execute("ROLLBACK")
    connection.close()
    return engine.plans


SMALL = re.compile(r"SCAN (c|crawls|sequences|json_each|(\d+ )?CONSTANT ROWS?)(?!\w)")
"""What may be read from end to end: lists that came with the call, the bands, crawls and sequences."""

WALK = re.compile(r"SEARCH (?!c |crawls )\w+ USING .*\(crawl_id=\?\)")
"""Going through a whole crawl."""

QUEUE_WALK = re.compile(r"SEARCH (t|d|h|m|tasks|task_metadata) USING PRIMARY KEY \(crawl_id=\? AND key=\?\)")
"""Going through all tasks of a queue, whatever their state."""

SQLITE_STATEMENTS = {
    name for name in (*sqlite_urls.CATALOGUE, *sqlite_lives.CATALOGUE) if SQLITE[name].text and name not in OF_CONTROL
}


def test_every_statement_of_sqlite_was_explained(sqlite_plans: dict[str, set[str]]) -> None:
    assert sqlite_plans.keys() == SQLITE_STATEMENTS


@pytest.mark.parametrize("name", sorted(SQLITE_STATEMENTS - WHOLE_CRAWL))
def test_sqlite_finds_rows_by_an_index(sqlite_plans: dict[str, set[str]], name: str) -> None:
    plan = sqlite_plans[name]
    # A subquery with few rows, made before, may be read from end to end.
    made = {f"SCAN {line.split(' ', 1)[1]}" for line in plan if line.startswith(("CO-ROUTINE", "MATERIALIZE"))}
    scans = [line for line in plan - made if line.startswith("SCAN") and not SMALL.match(line)]
    assert not scans, plan
    if name not in IN_ORDER:
        assert not [line for line in plan if WALK.match(line)], plan
    if name not in WHOLE_QUEUE:
        assert not [line for line in plan if QUEUE_WALK.match(line)], plan


def test_sqlite_sorts_no_queues_to_find_the_ready_ones(sqlite_plans: dict[str, set[str]]) -> None:
    assert not [line for line in sqlite_plans["ready_queues"] if "TEMP B-TREE" in line]


def steps(connection: sqlite3.Connection, work: Callable[[], object]) -> int:
    """Count the steps of SQLite's virtual machine, in tens."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    connection.set_progress_handler(count, 10)
    work()
    connection.set_progress_handler(None, 10)
    return taken


@pytest.mark.parametrize("now", [pytest.param(NOW, id="top bands waiting"), pytest.param(LATER, id="all ready")])
def test_sqlite_takes_the_ready_queues_in_few_steps(big_connection: ExplainingConnection, now: int) -> None:
    found: list[Any] = []
    statement = SQLITE["ready_queues"].text
    taken = steps(big_connection, lambda: found.extend(big_connection.execute(statement, (1, now, 100, "[]"))))
    assert [int(row[0][1:7]) % 16 for row in found] == [0 if now == LATER else 4] * 100
    assert taken < 500


@pytest.mark.parametrize("now", [pytest.param(NOW, id="top bands waiting"), pytest.param(LATER, id="all ready")])
def test_a_whole_lease_costs_sqlite_few_steps(big_connection: ExplainingConnection, now: int) -> None:
    granted: list[Any] = []
    request = LeaseRequest(worker="w", request_id="r", slots=100, crawl="big")

    def work() -> None:
        script = lease(request, now, Settings(), 0)
        granted.extend(run(big_connection, SQLITE, script).leases)

    taken = steps(big_connection, work)
    assert len(granted) == 100
    assert taken < 10_000


# --------------------------------------------------------------- PostgreSQL


POSTGRES_STATEMENTS = {
    name
    for name in (*postgres_urls.CATALOGUE, *postgres_lives.CATALOGUE)
    if POSTGRES[name].text and name not in OF_CONTROL
}


async def fill_postgres(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(FILL.format(**IN_POSTGRES))
    await connection.execute("ANALYZE")
    await connection.close()


async def explain_all(dsn: str) -> dict[str, Any]:
    """Explain each statement as the engine has it planned: without regard to its values."""
    connection = await asyncpg.connect(dsn, server_settings=SERVER_SETTINGS)
    plans = {}
    for name in POSTGRES_STATEMENTS:
        text = prepared(POSTGRES[name].text).text
        await connection.execute(f"PREPARE {name} AS {text}")
        number = max((int(found) for found in re.findall(r"\$(\d+)", text)), default=0)
        arguments = f"({', '.join(['NULL'] * number)})" if number else ""
        plans[name] = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE {name}{arguments}")
    await connection.close()
    return {name: json.loads(plan)[0]["Plan"] for name, plan in plans.items()}


@pytest.fixture(scope="session")
def big_database(postgres_server: Databases) -> Iterator[str]:
    dsn = postgres_server.create_database()
    migrate.upgrade(dsn)
    asyncio.run(fill_postgres(dsn))
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture(scope="session")
def postgres_plans(big_database: str) -> dict[str, Any]:
    return asyncio.run(explain_all(big_database))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


@pytest.mark.parametrize("name", sorted(POSTGRES_STATEMENTS - WHOLE_CRAWL))
def test_postgres_finds_rows_by_an_index(postgres_plans: dict[str, Any], name: str) -> None:
    for node in nodes(postgres_plans[name]):
        condition = node.get("Index Cond", "")
        if node.get("Relation Name") in LARGE and node["Node Type"].endswith("Scan"):
            assert node["Node Type"] != "Seq Scan", node
            assert condition or node["Node Type"] == "Bitmap Heap Scan", node
        if name not in IN_ORDER:
            assert not re.fullmatch(r"\(crawl_id = [^()]*\)", condition) or node.get("Relation Name") == "crawls", node


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("number", [300, 400, 2000])
async def test_postgres_looks_up_a_queue_by_its_key_however_few_there_seem_to_be(
    postgres_database: str, number: int, analyzed: bool
) -> None:
    """Adders plan while others have not committed their first batch, and so do those who take statistics."""
    await asyncio.to_thread(migrate.upgrade, postgres_database)
    adder, observer = await asyncpg.connect(postgres_database), await asyncpg.connect(postgres_database)
    async with adder.transaction():
        await adder.execute(f"""
            INSERT INTO queues (crawl_id, key, domain, band, tasks_due_at, created_at)
            SELECT 1, 'site' || n || '.example', 'site' || n || '.example', 8, 0, 0
              FROM generate_series(1, {number}) n""")
        if analyzed:
            await observer.execute("ANALYZE queues")
    await adder.close()
    await observer.close()
    plans = await explain_all(postgres_database)
    walks = {
        name: node
        for name, plan in plans.items()
        for node in nodes(plan)
        if node.get("Relation Name") == "queues" and re.search(r"\bkey = ", node.get("Filter", ""))
    }
    assert not walks


async def buffers_of(dsn: str, name: str, arguments: str) -> tuple[int, int]:
    """Run a statement and undo it; tell how many rows it gave and how many pages it read for that."""
    connection = await asyncpg.connect(dsn, server_settings=SERVER_SETTINGS)
    try:
        await connection.execute("BEGIN")
        await connection.execute(f"PREPARE {name} AS {prepared(POSTGRES[name].text).text}")
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {name}{arguments}"
        plan = json.loads(await connection.fetchval(explain))[0]["Plan"]
        return int(plan["Actual Rows"]), plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    finally:
        await connection.close()


@pytest.mark.parametrize("now", [pytest.param(NOW, id="top bands waiting"), pytest.param(LATER, id="all ready")])
async def test_postgres_takes_the_ready_queues_from_few_pages(big_database: str, now: int) -> None:
    rows, buffers = await buffers_of(big_database, "ready_queues", f"(1, {now}, 100, '{{}}')")
    assert rows == 100
    assert buffers < 300
