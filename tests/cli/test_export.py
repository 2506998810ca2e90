import asyncio
import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cli.exits import ExitCode
from outrider.crawler.page_lines import PageLines
from outrider.model.artifact import Fetch
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.task import CrawlLimits, Discovered
from outrider.store.opening import open_store
from tests.cli.conftest import ROOT, CrawledSite, Outrider


def completed(outrider: Outrider, crawled: CrawledSite) -> set[str]:
    answer = outrider("urls", "--data", crawled.data, "--all", "--json", "--state", "completed", "--kind", "page")
    return {json.loads(line)["url"] for line in answer.stdout.splitlines()}


def test_pages_are_one_line_each_and_a_second_export_adds_none(
    crawled: CrawledSite, outrider: Outrider, tmp_path: Path
) -> None:
    file = tmp_path / "pages.jsonl"
    assert outrider("export", "--data", crawled.data, "--output", file).returncode == ExitCode.OK
    first = file.read_bytes()
    urls = [json.loads(line)["url"] for line in first.splitlines()]
    assert len(urls) == len(set(urls))
    assert set(urls) == completed(outrider, crawled)
    whole_lines = first.splitlines(keepends=True)
    file.write_bytes(b"".join(whole_lines[:5]) + whole_lines[5][:20])
    assert outrider("export", "--data", crawled.data, "--output", file).returncode == ExitCode.OK
    assert file.read_bytes() == first
    assert outrider("export", "--data", crawled.data, "--output", file).returncode == ExitCode.OK
    assert file.read_bytes() == first
    assert outrider("export", "--data", crawled.data).stdout.encode() == first


def test_urls_come_as_json_csv_or_text(crawled: CrawledSite, outrider: Outrider, tmp_path: Path) -> None:
    export = ("export", "--data", crawled.data, "--what", "urls")
    records = [json.loads(line) for line in outrider(*export).stdout.splitlines()]
    assert outrider(*export, "--format", "txt").stdout.split() == [record["url"] for record in records]
    file = tmp_path / "urls.csv"
    for _ in range(2):
        assert outrider(*export, "--format", "csv", "--output", file).returncode == ExitCode.OK
    with file.open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert [(row["url"], row["state"]) for row in rows] == [(record["url"], record["state"]) for record in records]
    assert {path.name for path in tmp_path.iterdir()} == {"here", file.name}


def test_metadata_are_json_in_a_table_too(outrider: Outrider, tmp_path: Path) -> None:
    async def prepare() -> None:
        async with await open_store(f"sqlite:///{tmp_path / 'outrider.sqlite'}") as stores:
            await stores.urls.create_crawl("DEFAULT")
            await stores.urls.add("DEFAULT", [Discovered(url="https://example.org/", metadata={"a": ["é", None]})])

    asyncio.run(prepare())
    export = ("export", "--data", tmp_path, "--what", "urls")
    assert json.loads(outrider(*export).stdout)["metadata"] == {"a": ["é", None]}
    (row,) = csv.DictReader(outrider(*export, "--format", "csv").stdout.splitlines())
    assert json.loads(row["metadata"]) == {"a": ["é", None]}


def test_artifacts_are_every_fetch(crawled: CrawledSite, outrider: Outrider) -> None:
    answer = outrider("export", "--data", crawled.data, "--what", "artifacts")
    records = [json.loads(line) for line in answer.stdout.splitlines()]
    broken = [each for each in records if each["url"].endswith("/odd/always/500")]
    assert [(each["attempt"], each["outcome"], each["kind"]) for each in broken] == [
        (1, "failed", "page"),
        (2, "failed", "page"),
    ]


@pytest.mark.parametrize(
    "arguments",
    [["--what", "pictures"], ["--format", "xml"], ["--format", "csv"], ["--what", "urls", "--output", "no/such/file"]],
)
def test_what_makes_no_sense_is_refused(crawled: CrawledSite, outrider: Outrider, arguments: list[str]) -> None:
    answer = outrider("export", "--data", crawled.data, *arguments)
    assert (answer.returncode, answer.stdout) == (ExitCode.REFUSED, "")
    assert answer.stderr.count("\n") == 1


def test_a_file_that_another_process_writes_is_left_to_it(
    crawled: CrawledSite, outrider: Outrider, tmp_path: Path
) -> None:
    file = tmp_path / "pages.jsonl"
    held = PageLines.try_open(file)
    assert held is not None
    answer = outrider("export", "--data", crawled.data, "--output", file)
    held.close()
    assert answer.returncode == ExitCode.REFUSED
    assert "another process is writing" in answer.stderr


def test_a_file_of_something_else_is_not_touched(crawled: CrawledSite, outrider: Outrider, tmp_path: Path) -> None:
    file = tmp_path / "diary.txt"
    file.write_text("dear diary\n")
    answer = outrider("export", "--data", crawled.data, "--output", file)
    assert answer.returncode == ExitCode.STORE
    assert file.read_text() == "dear diary\n"


@pytest.mark.parametrize(
    "arguments", [["--what", "artifacts"], ["--what", "urls"], ["--what", "urls", "--format", "csv"]]
)
def test_an_earlier_export_of_the_same_kind_is_replaced(
    crawled: CrawledSite, outrider: Outrider, tmp_path: Path, arguments: list[str]
) -> None:
    file = tmp_path / "exported"
    export = ("export", "--data", crawled.data, *arguments, "--output", file)
    assert outrider(*export).returncode == ExitCode.OK
    whole = file.read_bytes()
    file.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert outrider(*export).returncode == ExitCode.OK
    assert file.read_bytes() == whole


@pytest.mark.parametrize(
    "arguments",
    [["--what", "artifacts"], *(["--what", "urls", "--format", form] for form in ("json", "csv", "txt"))],
)
def test_a_file_that_is_no_earlier_export_is_not_replaced(
    crawled: CrawledSite, outrider: Outrider, tmp_path: Path, arguments: list[str]
) -> None:
    pages, diary, seeds = (tmp_path / name for name in ("pages.jsonl", "diary.txt", "seeds.txt"))
    outrider("export", "--data", crawled.data, "--output", pages)
    diary.write_text("dear diary\n")
    seeds.write_text("https://example.org/\n")
    for file in (crawled.data / "outrider.sqlite", pages, diary, seeds):
        before = file.read_bytes()
        answer = outrider("export", "--data", crawled.data, *arguments, "--output", file)
        assert answer.returncode == ExitCode.REFUSED
        assert answer.stderr.startswith(f"outrider: {file} is there already")
        assert "name another file" in answer.stderr
        assert file.read_bytes() == before


def test_what_was_fetched_before_a_crawl_was_begun_anew_is_not_exported(outrider: Outrider, tmp_path: Path) -> None:
    async def begin_twice() -> None:
        async with await open_store(f"sqlite:///{tmp_path / 'outrider.sqlite'}") as stores:
            for now in (1_000_000, 2_000_000):
                if now > 1_000_000:
                    await stores.urls.delete_crawl("DEFAULT")
                await stores.urls.create_crawl("DEFAULT", limits=CrawlLimits(robots=False), now=now)
                await stores.urls.add("DEFAULT", [Discovered(url="https://example.org/")], now=now)
                request = LeaseRequest(worker="w", request_id=str(now), slots=1, crawl="DEFAULT")
                (lease,) = (await stores.urls.lease(request, now=now)).leases
                done = Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200))
                await stores.urls.report([done], now=now)

    asyncio.run(begin_twice())
    for what in ("pages", "artifacts"):
        lines = outrider("export", "--data", tmp_path, "--what", what).stdout.splitlines()
        assert [json.loads(line)["url"] for line in lines] == ["https://example.org/"]


def test_a_reader_that_goes_away_is_no_error_message(crawled: CrawledSite) -> None:
    command = f"{sys.executable} -m outrider.cli.main export --data {crawled.data} | head -c 10"
    answer = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    # Which number the first page has depends on when the sitemap was done.
    assert (answer.stdout[:6], len(answer.stdout), answer.stderr) == ('{"id":', 10, "")
