"""`outrider jobs submit --every`, `jobs schedules` and `jobs unschedule`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cli.job_schedules import every_ms_of
from outrider.model.errors import InvalidInput


def outrider(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "outrider.cli.main", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_a_job_is_scheduled_shown_and_unscheduled(tmp_path: Path) -> None:
    made = outrider(tmp_path, "jobs", "submit", "https://example.org", "--crawl", "news", "--every", "7d", "--json")
    assert made.returncode == 0, made.stderr
    record = json.loads(made.stdout)
    assert (record["crawl"], record["every_ms"], record["last_job_id"]) == ("news", 7 * 24 * 3_600_000, None)
    listed = outrider(tmp_path, "jobs", "schedules")
    assert record["id"] in listed.stdout
    assert " 1w " in listed.stdout
    again = outrider(tmp_path, "jobs", "submit", "https://example.org", "--crawl", "news", "--every", "1d")
    assert again.returncode != 0
    assert "'news' has a schedule already" in again.stderr
    assert outrider(tmp_path, "jobs", "unschedule", record["id"]).returncode == 0
    assert "nothing is scheduled" in outrider(tmp_path, "jobs", "schedules").stderr
    gone = outrider(tmp_path, "jobs", "unschedule", record["id"])
    assert gone.returncode == 4
    assert "there is no schedule" in gone.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["https://example.org", "--every", "soon"], "--every is a time such as 7d"),
        (["https://example.org", "--every", "7d", "--watch"], "--every is for a store"),
        (["--refresh"], "name the crawl"),
        (["--refresh", "--fresh", "--crawl", "news"], "leave out fresh"),
        (["--every", "7d", "--crawl", "news"], "name at least one seed"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(tmp_path: Path, words: list[str], reason: str) -> None:
    refused = outrider(tmp_path, "jobs", "submit", *words)
    assert (refused.returncode, refused.stdout) == (4, "")
    assert reason in refused.stderr


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "0s", "367d", "1.5h", "7 days", "١d"])
def test_times_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="--every is a time"):
        every_ms_of(text)
