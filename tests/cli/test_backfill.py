"""`outrider backfill` as people use it."""

import json
import sqlite3
from pathlib import Path

import pytest

from outrider.cli.exits import ExitCode
from outrider.store.sql import migrate
from tests.cli.conftest import Outrider
from tests.control.old_crawlers import scrapy_job, sqlite_log


def test_it_says_what_it_read_added_and_refused_and_the_figures_that_validate_it(
    outrider: Outrider, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "domain,status,crawled_at\nA.example,200,2026-01-01\nwww.a.example,200,\nb.example,500,\nx y,200,\n"
    )
    ended = outrider("backfill", "--from", path)
    assert ended.returncode == ExitCode.OK
    assert [line.split(maxsplit=1)[1] for line in ended.stdout.splitlines()][1:] == [
        "4 read, 1 refused",
        "2 in the source: 2 new, 0 added to, 0 taken over before",
        "1 for bad domain: bad_host: line 5: the host is not a name or address that can exist: 'http://x y'",
        "there is no provenance, so that no images count as stored",
        "2 of 2 domains came by backfills",
        "1 domain, on average 0.0 pages crawled, no page",
        "1 domain, on average 2.0 pages crawled, 0.00 images stored per page",
    ]
    assert [path.name for path in Path("outrider-data/backfill").iterdir()] == []


def test_json_has_all_of_it_and_a_second_time_nothing_is_left_to_do(outrider: Outrider, tmp_path: Path) -> None:
    dsn = sqlite_log(tmp_path / "old.sqlite")
    first = json.loads(outrider("backfill", "--from", dsn, "--json").stdout)
    assert (first["rows_read"], first["source_domains"], first["domains"]["new"]) == (11, 4, 4)
    assert first["figures"]["backfilled_domains"] == 4
    second = json.loads(outrider("backfill", "--from", tmp_path / "old.sqlite", "--json").stdout)
    assert second["domains"] == {"new": 0, "added_to": 0, "unchanged": 4}
    assert second["figures"] == first["figures"]


def test_a_dry_run_creates_nothing(outrider: Outrider, tmp_path: Path) -> None:
    ended = outrider("backfill", "--from", sqlite_log(tmp_path / "old.sqlite"), "--dry-run")
    assert "4 in the source: 4 would be new" in ended.stdout
    assert list(Path().iterdir()) == []


def test_urls_go_into_the_named_crawl(outrider: Outrider, tmp_path: Path) -> None:
    job = scrapy_job(tmp_path / "job", ["https://a.example/1", "https://a.example/2"])
    assert "2 new, 0 known" in outrider("backfill", "--from", job, "--crawl", "old").stdout
    listed = outrider("urls", "--crawl", "old", "--json").stdout.splitlines()
    assert sorted(json.loads(line)["url"] for line in listed) == ["https://a.example/1", "https://a.example/2"]


def test_a_store_on_postgresql_is_filled_alike(outrider: Outrider, tmp_path: Path, postgres_database: str) -> None:
    migrate.upgrade(postgres_database)
    dsn = sqlite_log(tmp_path / "old.sqlite")
    for new in (4, 0):
        ended = outrider("backfill", "--from", dsn, "--store", postgres_database, "--json")
        assert json.loads(ended.stdout)["domains"]["new"] == new


def test_columns_of_other_names_are_mapped(outrider: Outrider, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("site\tcode\na.example\t200\n")
    ended = outrider("backfill", "--from", path, "--map", "crawl_log.domain=site", "--map", "crawl_log.status=code")
    assert "1 read, 0 refused" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--from", "nowhere.csv"], "there is no nowhere.csv"),
        (["--from", "."], "is no folder of a Scrapy job"),
        (["--from", "mysql://a/b"], "cannot read the store name"),
        (["--from", "sqlite:///nowhere.sqlite"], "there is no file nowhere.sqlite"),
        (["--from", "log.csv", "--map", "nonsense"], "--map 'nonsense' is neither TABLE=NAME nor"),
        (["--from", "log.csv", "--map", "crawl_log.colour=x"], "--map 'crawl_log.colour=x' is neither"),
        (["--from", "log.csv", "--map", "crawl_log.status=code"], "has no column 'code', which --map names"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_leaves_nothing_behind(
    arguments: list[str], complaint: str, outrider: Outrider
) -> None:
    Path("log.csv").write_text("domain,status\n")
    ended = outrider("backfill", *arguments)
    assert (ended.returncode, ended.stdout) == (ExitCode.REFUSED, "")
    assert complaint in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_store_itself_is_no_source(outrider: Outrider) -> None:
    outrider("db", "upgrade")
    ended = outrider("backfill", "--from", "outrider-data/outrider.sqlite")
    assert ended.returncode == ExitCode.REFUSED
    assert "is a store of Outrider, which has counted its own crawl_log" in ended.stderr
    connection = sqlite3.connect("outrider-data/outrider.sqlite")
    assert connection.execute("SELECT count(*) FROM backfills").fetchone() == (0,)
    connection.close()
