import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cli.exits import ExitCode
from outrider.crawler.page_lines import PageLines
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
    file.write_text("something older\n")
    assert outrider(*export, "--format", "csv", "--output", file).returncode == ExitCode.OK
    with file.open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert [(row["url"], row["state"]) for row in rows] == [(record["url"], record["state"]) for record in records]
    assert {path.name for path in tmp_path.iterdir()} == {"here", file.name}


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


def test_a_reader_that_goes_away_is_no_error_message(crawled: CrawledSite) -> None:
    command = f"{sys.executable} -m outrider.cli.main export --data {crawled.data} | head -c 10"
    answer = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert (answer.stdout, answer.stderr) == ('{"id":3,"u', "")
