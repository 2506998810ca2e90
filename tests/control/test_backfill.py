"""Backfills from real databases and files: the same whatever the source, whoever is killed, however often."""

import asyncio
import csv
import gzip
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from outrider.control.backfill import filling
from outrider.control.backfill.columns import Part, read_map
from outrider.control.backfill.files import MAX_LINE_BYTES
from outrider.control.backfill.filling import BackfillOutcome, fill_from_rows, fill_from_urls
from outrider.control.backfill.scrapy import ScrapyJob
from outrider.control.backfill.sources import recognise
from outrider.control.backfill.urlfrontier import UrlFrontierDump
from outrider.control.backfill.workbench import Sums, Workbench
from outrider.model.backfill import BackfillStep
from outrider.model.errors import InvalidInput, StoreError
from outrider.model.machines import DomainStatus, TaskState
from outrider.model.task import Added, TaskFilter
from outrider.store.opening import Stores, open_store
from outrider.store.sql import migrate
from tests.control.filling_process import CRAWL
from tests.control.old_crawlers import IMAGES, PAGES, Page, add_pages, postgres_log, scrapy_job, sqlite_log
from tests.servers import Databases

ROOT = Path(__file__).parent.parent.parent

EXPECTED = {
    "bad.example": (DomainStatus.BLOCKED, 3, 1, 0, 0, 2),
    "good.example": (DomainStatus.EXHAUSTED, 3, 2, 4, 2, 1),
    "pictures.example": (DomainStatus.PENDING, 0, 0, 0, 1, 0),
    "xn--mnchen-3ya.example": (DomainStatus.EXHAUSTED, 1, 0, 0, 0, 0),
}


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with await open_store(f"sqlite:///{tmp_path}/store.sqlite") as opened:
        yield opened


def silent(_: filling.BackfillProgress) -> None:
    """Nobody wants to know."""


async def fill(stores: Stores, folder: Path, text: str, *maps: str, dry_run: bool = False) -> BackfillOutcome:
    source = recognise(text, read_map(maps))
    if isinstance(source, (ScrapyJob, UrlFrontierDump)):
        return await fill_from_urls(stores, source, "b", CRAWL, silent, dry_run=dry_run)
    try:
        return await fill_from_rows(stores, source, "b", folder / "workbench.sqlite", silent, dry_run=dry_run)
    finally:
        await source.close()


def workbenches(folder: Path) -> list[Path]:
    return list(folder.glob("workbench*"))


async def told_of(stores: Stores) -> dict[str, tuple[Any, ...]]:
    return {
        each.domain: (
            each.status, each.pages_discovered, each.pages_crawled, each.images_found, each.images_stored,
            each.total_error_count,
        )
        for each in await stores.control.list_domains()
    }  # fmt: skip


async def test_a_crawl_log_in_sqlite_is_taken_over_by_canonical_domain(stores: Stores, tmp_path: Path) -> None:
    outcome = await fill(stores, tmp_path, sqlite_log(tmp_path / "old.sqlite"))
    assert (outcome.rows_read, outcome.rows_refused, outcome.source_domains) == (len(PAGES) + len(IMAGES), 0, 4)
    assert outcome.domains == BackfillStep(new=4)
    assert await told_of(stores) == EXPECTED
    good = await stores.control.get_domain("good.example")
    assert good is not None
    assert good.last_crawled_at is not None
    assert (good.first_seen_at.isoformat(), good.last_crawled_at.isoformat()) == (
        "2026-01-01T00:00:00+00:00", "2026-01-04T00:00:00+00:00",
    )  # fmt: skip
    assert workbenches(tmp_path) == []


async def test_a_crawl_log_in_postgresql_is_taken_over_alike(
    stores: Stores, tmp_path: Path, postgres_database: str
) -> None:
    outcome = await fill(stores, tmp_path, await postgres_log(postgres_database))
    assert await told_of(stores) == EXPECTED
    assert "***" in outcome.source or "@" not in outcome.source.partition("//")[2]


def write_csv(path: Path, pages: Sequence[Page]) -> str:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["domain", "status", "images_found", "crawled_at"])
        writer.writerows(pages)
    return str(path)


def write_json_lines(path: Path, pages: Sequence[Page]) -> str:
    names = ("domain", "status", "images_found", "crawled_at")
    path.write_text("".join(json.dumps(dict(zip(names, page, strict=True))) + "\n" for page in pages))
    return str(path)


def write_gzip(path: Path, pages: Sequence[Page]) -> str:
    write_json_lines(path, pages)
    path.write_bytes(gzip.compress(path.read_bytes()))
    return str(path)


@pytest.mark.parametrize("write", [write_csv, write_json_lines, write_gzip])
async def test_a_crawl_log_in_a_file_is_taken_over_alike(
    write: Callable[[Path, Sequence[Page]], str], stores: Stores, tmp_path: Path
) -> None:
    await fill(stores, tmp_path, write(tmp_path / "log", PAGES))
    without_images = {name: (*told[:4], 0, told[5]) for name, told in EXPECTED.items() if name != "pictures.example"}
    assert await told_of(stores) == without_images


async def test_a_line_without_end_is_refused_and_the_next_is_read(stores: Stores, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = '{"domain": "a.example", "status": 200}\n'
    path.write_text(good + '{"domain": "' + "x" * 3 * MAX_LINE_BYTES + '"}\n[]\n{\n' + good)
    outcome = await fill(stores, tmp_path, str(path))
    assert (outcome.rows_read, outcome.rows_refused) == (5, 3)
    assert outcome.refusals[0].example == f"line 2: the line has {MAX_LINE_BYTES} bytes or more"
    assert (await told_of(stores))["a.example"][1] == 2


async def test_a_store_of_outrider_is_taken_over_only_where_that_is_said(stores: Stores, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.sqlite"
    await (await open_store(other)).close()
    with pytest.raises(InvalidInput, match="is a store of Outrider"):
        await fill(stores, tmp_path, other)
    assert (await fill(stores, tmp_path, other, "crawl_log=crawl_log", "crawl_log.url=url")).rows_read == 0


async def test_provenance_in_a_file_of_its_own_adds_the_images(stores: Stores, tmp_path: Path) -> None:
    await fill(stores, tmp_path, write_csv(tmp_path / "log.csv", PAGES))
    path = tmp_path / "provenance.csv"
    path.write_text("image_id,source_domain\n" + "".join(f"{image},{domain}\n" for image, domain in IMAGES))
    await fill(stores, tmp_path, str(path))
    assert await told_of(stores) == EXPECTED


async def test_other_names_of_tables_and_columns_are_mapped(
    stores: Stores, tmp_path: Path, postgres_database: str
) -> None:
    server = await asyncpg.connect(postgres_database)
    await server.execute("CREATE SCHEMA old")
    await server.execute(
        'CREATE TABLE old.visits ("key" uuid PRIMARY KEY DEFAULT gen_random_uuid(), site text, "Code" text)'
    )
    await server.execute("INSERT INTO old.visits (site, \"Code\") SELECT 'a.example', '200' FROM generate_series(1, 5)")
    await server.close()
    maps = ["crawl_log=old.visits", "crawl_log.id=key", "crawl_log.domain=site", "crawl_log.status=Code"]
    await fill(stores, tmp_path, postgres_database, *maps)
    assert await told_of(stores) == {"a.example": (DomainStatus.EXHAUSTED, 5, 5, 0, 0, 0)}


async def test_repeated_it_changes_nothing_and_grown_it_adds_what_is_new(stores: Stores, tmp_path: Path) -> None:
    dsn = sqlite_log(tmp_path / "old.sqlite")
    await fill(stores, tmp_path, dsn)
    before = await stores.control.list_domains()
    assert (await fill(stores, tmp_path, dsn)).domains == BackfillStep(unchanged=4)
    assert await stores.control.list_domains() == before
    connection = sqlite3.connect(tmp_path / "old.sqlite")
    with connection:
        add_pages(connection, [("good.example", 200, 5, None), ("new.example", 200, 0, None)])
    connection.close()
    assert (await fill(stores, tmp_path, dsn)).domains == BackfillStep(new=1, added_to=1, unchanged=3)
    told = await told_of(stores)
    assert told["good.example"] == (DomainStatus.EXHAUSTED, 4, 3, 9, 2, 1)


async def test_a_workbench_left_behind_at_the_very_end_hides_nothing(stores: Stores, tmp_path: Path) -> None:
    dsn = sqlite_log(tmp_path / "old.sqlite")
    await fill(stores, tmp_path, dsn)
    left = Workbench(tmp_path / "workbench.sqlite", str(tmp_path / "old.sqlite"))
    for part in Part:
        left.keep(part, Sums(), "7", finished=True)
    left.close()
    connection = sqlite3.connect(tmp_path / "old.sqlite")
    with connection:
        add_pages(connection, [("new.example", 200, 0, None)])
    connection.close()
    await fill(stores, tmp_path, dsn)
    assert "new.example" in await told_of(stores)


async def test_a_dry_run_tells_the_same_and_changes_nothing(stores: Stores, tmp_path: Path) -> None:
    dsn = sqlite_log(tmp_path / "old.sqlite")
    outcome = await fill(stores, tmp_path, dsn, dry_run=True)
    assert (outcome.domains, outcome.source_domains, outcome.figures) == (BackfillStep(new=4), 4, None)
    assert await stores.control.list_domains() == []
    assert await stores.control.list_backfills() == []


async def test_rows_that_cannot_be_read_are_refused_one_by_one_and_their_reasons_counted(
    stores: Stores, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(
        b"domain,status,images_found,crawled_at,depth\n"
        b"a.example,200,1,2026-01-01,0\n"
        b",200,,,\n"
        b"not a domain,200,,,\n"
        b"a.example,two hundred,,,\n"
        b"a.example,-1,,,\n"
        b"a.example,200,many,,\n"
        b"a.example,200,,yesterday,\n"
        b"a.example,200,,,deep\n"
        b"a.example,200\n"
        b"caf\xe9.example,200,,,\n"
        b"\n"
        b"a.example,500,,1767225600,7\n"
    )
    outcome = await fill(stores, tmp_path, str(path))
    assert (outcome.rows_read, outcome.rows_refused) == (11, 9)
    assert {each.reason: each.number for each in outcome.refusals} == {
        "bad status": 2, "no domain": 1, "bad domain: bad_host": 1, "bad images_found": 1, "bad crawled_at": 1,
        "bad depth": 1, "unreadable": 1, "bad domain: bad_text": 1,
    }  # fmt: skip
    examples = {each.reason: each.example for each in outcome.refusals}
    assert examples["bad status"] == "line 5: status 'two hundred' is not a whole number from 0 to 999"
    assert examples["unreadable"] == "line 10: the row has 2 values, the line of names 5"
    assert await told_of(stores) == {"a.example": (DomainStatus.EXHAUSTED, 2, 1, 1, 0, 1)}


async def test_rows_of_an_untyped_table_are_refused_one_by_one_too(stores: Stores, tmp_path: Path) -> None:
    pages: list[Page] = [("a.example", "x", 0, None), ("a.example", 200, 0, "never"), ("a.example", "200", 0, None)]
    outcome = await fill(stores, tmp_path, sqlite_log(tmp_path / "old.sqlite", pages, [(None, "a.example")]))
    assert {each.reason: each.number for each in outcome.refusals} == {
        "bad status": 1, "bad crawled_at": 1, "no image_id": 1,
    }  # fmt: skip
    assert (await told_of(stores))["a.example"][1] == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("domain,seen\na.example,1\n", "neither a crawl log nor provenance"),
        ('{"status": 200}\n', "no column for domain or url"),
        ("", "is empty"),
        ("PK\x03\x04", "a ZIP archive"),
    ],
)
async def test_a_file_that_cannot_be_understood_is_refused_with_what_to_do(
    content: str, complaint: str, stores: Stores, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=complaint):
        await fill(stores, tmp_path, str(path))
    assert await stores.control.list_backfills() == []


async def test_a_table_without_a_unique_key_is_refused(stores: Stores, tmp_path: Path, postgres_database: str) -> None:
    server = await asyncpg.connect(postgres_database)
    await server.execute("CREATE TABLE crawl_log (id integer, domain text, status integer)")
    await server.close()
    with pytest.raises(InvalidInput, match=r"no unique index on 'id'.*--map crawl_log\.id=COLUMN"):
        await fill(stores, tmp_path, postgres_database)


async def test_a_database_without_the_table_is_refused(stores: Stores, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "empty.sqlite").close()
    with pytest.raises(InvalidInput, match="there is no table crawl_log in"):
        await fill(stores, tmp_path, f"sqlite:///{tmp_path}/empty.sqlite")


async def test_two_processes_do_not_share_a_workbench(stores: Stores, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "log.csv", PAGES)
    held = Workbench(tmp_path / "workbench.sqlite", "another")
    with pytest.raises(StoreError, match="another process is at work on this backfill"):
        await fill(stores, tmp_path, path)
    held.close()
    await fill(stores, tmp_path, path)


# ------------------------------------------------------------------ kill -9


async def killed_again_and_again(dsn: str, folder: Path, text: str, *deaths: int) -> list[list[int]]:
    """Run a backfill in processes that die at such a word, the last of which comes to its end; give what each said."""
    said = []
    for death in (*deaths, 0):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.control.filling_process", dsn, str(folder), text, str(death),
            cwd=ROOT, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await asyncio.wait_for(process.communicate(), 60)
        said.append([int(line) for line in output.split()])
        assert process.returncode == (-9 if death else 0)
    return said


async def test_killed_at_every_step_it_goes_on_and_comes_to_the_same(tmp_path: Path) -> None:
    """Invariants Nothing lost and Counts."""
    pages: list[Page] = [(f"site{n % 5}.example", 200 if n % 3 else 500, n, None) for n in range(150)]
    dsn = sqlite_log(tmp_path / "old.sqlite", pages, [(f"image{n % 7}", f"site{n % 5}.example") for n in range(50)])
    async with await open_store(f"sqlite:///{tmp_path}/whole.sqlite") as stores:
        await fill(stores, tmp_path, dsn)
        expected = await told_of(stores)
    broken = f"sqlite:///{tmp_path}/broken.sqlite"
    said = await killed_again_and_again(broken, tmp_path, dsn, 2, 3, 2)
    async with await open_store(broken) as stores:
        assert await told_of(stores) == expected
        (entry,) = await stores.control.list_backfills()
    assert (entry.rows_read, entry.domains_new) == (200, 5)
    assert entry.finished_at is not None
    assert said == [[40, 80], [120, 150, 190], [200, 200], [200, 200]], "each goes on where the one before had come"


async def test_killed_by_somebody_at_any_moment_it_comes_to_the_same_on_postgresql(
    postgres_server: Databases, postgres_database: str, tmp_path: Path
) -> None:
    """The process dies in the middle of whatever follows its first word."""
    pages: list[Page] = [(f"site{n % 9}.example", 200 if n % 3 else 500, n, None) for n in range(150)]
    source = await postgres_log(postgres_database, pages)
    store = postgres_server.create_database()
    await asyncio.to_thread(migrate.upgrade, store)
    for is_last in (*[False] * 5, True):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.control.filling_process", store, str(tmp_path), source, "0",
            cwd=ROOT, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), 60)
        if not is_last:
            with suppress(ProcessLookupError):
                process.kill()
        await asyncio.wait_for(process.communicate(), 60)
    async with await open_store(f"sqlite:///{tmp_path}/whole.sqlite") as stores:
        await fill(stores, tmp_path / "whole", source)
        expected = await told_of(stores)
    async with await open_store(store) as stores:
        assert await told_of(stores) == expected
    postgres_server.drop_database(store)


async def test_urls_that_are_taken_over_survive_kills_too(tmp_path: Path) -> None:
    urls = [f"https://site{n % 5}.example/{n}" for n in range(70)]
    broken = f"sqlite:///{tmp_path}/broken.sqlite"
    said = await killed_again_and_again(broken, tmp_path, scrapy_job(tmp_path / "job", urls), 2, 1)
    assert said == [[20, 40], [60], [70]]
    async with await open_store(broken) as stores:
        assert (await stores.urls.counts(CRAWL)).pending == 70
        assert len(await stores.control.list_domains()) == 5


# --------------------------------------------------------------------- URLs


async def test_the_requests_of_a_scrapy_job_become_tasks(stores: Stores, tmp_path: Path) -> None:
    urls = ["https://a.example/1", "https://www.a.example/2", "ftp://a.example/"]
    outcome = await fill(stores, tmp_path, scrapy_job(tmp_path / "job", urls))
    assert (outcome.rows_read, outcome.rows_refused, outcome.urls) == (3, 1, {Added.NEW: 2, Added.KNOWN: 0})
    assert outcome.remarks == ["requests.seen has 3 fingerprints, from which no URL can be told"]
    tasks = (await stores.urls.list_tasks(CRAWL)).tasks
    assert {(task.url, task.depth, task.state) for task in tasks} == {
        (url, 2, TaskState.PENDING) for url in urls[:2]
    }  # fmt: skip
    (domain,) = await stores.control.list_domains()
    assert (domain.domain, domain.status, domain.source) == ("a.example", DomainStatus.PENDING, "backfill_scrapy")
    again = await fill(stores, tmp_path, str(tmp_path / "job" / "requests.queue"))
    assert (again.urls, again.domains) == ({Added.NEW: 0, Added.KNOWN: 2}, BackfillStep(unchanged=1))


async def test_a_dump_of_a_urlfrontier_becomes_tasks(stores: Stores, tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    lines = [
        '{"known":{"info":{"url":"https://a.example/done","key":"a.example","crawlID":"DEFAULT"}}}',
        '{"known":{"info":{"url":"https://a.example/due","metadata":{"n":{"values":["1"]}}},'
        '"refetchableFromDate":"1767225600"},"creationDate":"1700000000"}',
        '{"discovered":{"info":{"url":"https://b.example/"}}}',
        "https://c.example/;1767225600",
        "https://d.example/",
        '{"known":{}}',
        "{}",
        "nonsense",
    ]
    path.write_text("\n".join(lines))
    outcome = await fill(stores, tmp_path, str(path))
    assert (outcome.rows_read, outcome.rows_refused, outcome.source_domains) == (8, 3, 4)
    tasks = {task.url: task for task in (await stores.urls.list_tasks(CRAWL, TaskFilter())).tasks}
    assert tasks["https://a.example/done"].state is TaskState.COMPLETED
    due = tasks["https://a.example/due"]
    assert (due.state, due.due_at, due.discovered_at) == (TaskState.PENDING, 1_767_225_600_000, 1_700_000_000_000)
    assert due.metadata == {"n": ["1"]}
    assert tasks["https://c.example/"].due_at == 1_767_225_600_000
    done = await stores.control.get_domain("a.example")
    assert done is not None
    assert (done.pages_discovered, done.pages_crawled) == (2, 1)


async def test_a_dry_run_of_urls_changes_nothing(stores: Stores, tmp_path: Path) -> None:
    outcome = await fill(stores, tmp_path, scrapy_job(tmp_path / "job", ["https://a.example/"]), dry_run=True)
    assert (outcome.rows_read, outcome.domains) == (1, BackfillStep(new=1))
    assert await stores.urls.list_crawls() == []
