import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.exits import ExitCode
from tests.cli.conftest import ROOT, CrawledSite, Outrider


def listed(outrider: Outrider, crawled: CrawledSite, *arguments: str) -> list[dict[str, Any]]:
    answer = outrider("urls", "--data", crawled.data, "--json", *arguments)
    assert (answer.returncode, answer.stderr) == (ExitCode.OK, "")
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_all_lists_every_url_once(crawled: CrawledSite, outrider: Outrider) -> None:
    urls = [each["url"] for each in listed(outrider, crawled, "--all")]
    assert len(urls) == len(set(urls)) > 50
    assert f"{crawled.address}/" in urls


def test_it_is_filtered_by_state_text_kind_and_domain(crawled: CrawledSite, outrider: Outrider) -> None:
    failed = listed(outrider, crawled, "--state", "FAILED", "--all")
    assert {each["state"] for each in failed} == {"failed"}
    assert f"{crawled.address}/odd/always/500" in [each["url"] for each in failed]
    redirects = listed(outrider, crawled, "--filter", "/odd/redirect/", "--all")
    assert all("/odd/redirect/" in each["url"] for each in redirects)
    assert [each["kind"] for each in listed(outrider, crawled, "--kind", "robots")] == ["robots"]
    host = crawled.address.removeprefix("http://")
    assert len(listed(outrider, crawled, "--domain", host, "--limit", "3")) == 3
    assert listed(outrider, crawled, "--domain", "example.org") == []


def test_people_get_aligned_columns_and_hear_when_there_is_more(crawled: CrawledSite, outrider: Outrider) -> None:
    answer = outrider("urls", "--data", crawled.data, "--limit", "4")
    heading, *rows = answer.stdout.splitlines()
    place = heading.index("URL")
    assert len(rows) == 4
    assert all(row[place:].startswith("http://") for row in rows)
    assert answer.stderr == "the first 4; --limit or --all shows more\n"
    nothing = outrider("urls", "--data", crawled.data, "--filter", "nothing like it")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (ExitCode.OK, "", "no URL is like that\n")


@pytest.mark.parametrize(
    "arguments", [["--state", "done"], ["--kind", "film"], ["--domain", "http://"], ["--domain", "a b"]]
)
def test_a_filter_that_makes_no_sense_is_refused(
    crawled: CrawledSite, outrider: Outrider, arguments: list[str]
) -> None:
    answer = outrider("urls", "--data", crawled.data, *arguments)
    assert (answer.returncode, answer.stdout) == (ExitCode.REFUSED, "")
    assert answer.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_traceback(crawled: CrawledSite, tmp_path: Path) -> None:
    command = f"{sys.executable} -m outrider.cli.main urls --data {crawled.data} --all --json | head -1"
    answer = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert answer.stdout.count("\n") == 1
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("columns", ["80", "120"])
def test_on_a_terminal_it_is_a_table_that_fits(crawled: CrawledSite, outrider: Outrider, columns: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "outrider.cli.main", "urls", "--data", str(crawled.data), "--limit", "5"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": columns, "NO_COLOR": "1", "TERM": "xterm"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        shown = b""
        while part := _read(ours):
            shown += part
    os.close(ours)
    lines = re.sub(r"\x1b\[[0-9;]*m|\r", "", shown.decode()).splitlines()
    heading = next(line for line in lines if "URL" in line)
    assert any("─" in line for line in lines)
    assert max(map(len, lines)) <= int(columns)
    # Long URLs are folded, not cut.
    folded = "".join(line[heading.index("URL") :].strip() for line in lines)
    for each in listed(outrider, crawled, "--limit", "5"):
        assert each["url"] in folded
    assert "\x1b[3" not in shown.decode()  # no colours


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux says so where the other end is closed
        return b""
