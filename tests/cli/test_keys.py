"""`outrider keys`: made once, listed without secrets, revoked."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from outrider.cli import main


class Said(NamedTuple):
    """How a command ended and what it said."""

    returncode: int | str | None
    stdout: str
    stderr: str


Keys = Callable[..., Said]


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Keys:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["outrider", "keys", *arguments])
        with pytest.raises(SystemExit) as ending:
            main.main()
        return Said(ending.value.code, *capsys.readouterr())

    return run


def test_a_key_is_shown_once_and_never_again(keys: Keys) -> None:
    made = keys("create", "the crawler", "--role", "crawl", "--crawl", "news", "--crawl", "a/b")
    text = made.stdout.strip()
    assert (made.returncode, text.startswith("outrider_")) == (0, True)
    assert "not shown again" in made.stderr
    listed = keys("list").stdout
    key_id = text.split("_")[1]
    assert listed.startswith(f"{key_id}\tcrawl\tsince ")
    assert listed.endswith("\ta/b, news\tthe crawler\tno quota\tthe crawler\n")
    assert text.rpartition("_")[2] not in listed + made.stderr


def test_a_key_has_an_owner_and_quotas(keys: Keys) -> None:
    quotas = ("--max-active-jobs", "3", "--max-pages-per-job", "10000", "--max-jobs-per-day", "20")
    assert keys("create", "crawler 7", "--owner", "ada", *quotas).returncode == 0
    listed = keys("list").stdout
    assert listed.endswith("\tall crawls\tada\t3 active jobs, 10,000 pages a job, 20 jobs a day\tcrawler 7\n")
    wrong = keys("create", "mine", "--max-pages-per-job", "0")
    assert (wrong.returncode, "max-pages-per-job" in wrong.stderr) == (2, True)


def test_a_key_is_revoked_by_its_id(keys: Keys) -> None:
    key_id = keys("create", "mine").stdout.split("_")[1]
    assert keys("revoke", key_id).returncode == 0
    assert "\trevoked " in keys("list").stdout


def test_what_makes_no_sense_is_told(keys: Keys) -> None:
    wrong_role = keys("create", "mine", "--role", "king")
    assert (wrong_role.returncode, "read, crawl, admin" in wrong_role.stderr) == (4, True)
    unknown = keys("revoke", "none")
    assert (unknown.returncode, "there is no API key 'none'" in unknown.stderr) == (4, True)


def test_an_empty_list_says_what_that_means(keys: Keys) -> None:
    answer = keys("list")
    assert (answer.returncode, answer.stdout) == (0, "")
    assert "this machine only" in answer.stderr
