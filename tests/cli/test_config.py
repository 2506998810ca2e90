import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cli.exits import ExitCode

ROOT = Path(__file__).parent.parent.parent
CONTENT = """
[crawl]
max-pages = 5
include = ["a", "b[c]"]
proxy = "http://me:top@secret@proxy.example:3128"
[frontier]
crash-threshold = 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outrider.toml").write_text(CONTENT)
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}
    return {**inherited, "PYTHONPATH": str(ROOT), **more}


def outrider_config(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "outrider.cli.main", "config", *arguments],
        capture_output=True, text=True, check=False, cwd=folder, env=environment(**more),
    )  # fmt: skip


def test_json_has_every_value_with_its_source_and_no_password(folder: Path) -> None:
    answer = outrider_config(
        folder, "--json", OUTRIDER_DELAY="3", OUTRIDER_STORE="postgresql://somebody:hidden@localhost/outrider"
    )
    assert answer.returncode == ExitCode.OK, answer.stderr
    told = json.loads(answer.stdout)
    assert told["crawl"]["delay"] == {"value": 3.0, "source": "OUTRIDER_DELAY"}
    assert told["crawl"]["max_pages"] == {"value": 5, "source": "outrider.toml [crawl] max_pages"}
    assert told["crawl"]["max_depth"] == {"value": None, "source": "default"}
    assert told["crawl"]["include"]["value"] == ["a", "b[c]"]
    assert told["crawl"]["proxy"]["value"] == "http://me:***@proxy.example:3128"
    assert told["crawl"]["store"]["value"] == "postgresql://somebody:***@localhost/outrider"
    assert told["frontier"]["crash_threshold"] == {"value": 5.0, "source": "outrider.toml [frontier] crash_threshold"}


def test_off_a_terminal_it_prints_plain_columns(folder: Path) -> None:
    answer = outrider_config(folder)
    assert answer.returncode == ExitCode.OK, answer.stderr
    rows = [re.split(r" {2,}", line) for line in answer.stdout.splitlines()]
    assert ["[crawl] include", "a b[c]", "outrider.toml [crawl] include"] in rows
    assert {len(row) for row in rows} == {3}
    assert all(character.isprintable() for line in answer.stdout.splitlines() for character in line)
    assert "secret" not in answer.stdout


def test_on_a_terminal_it_prints_a_table(folder: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "outrider.cli.main", "config"],
        stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, cwd=folder, env=environment(COLUMNS="90", TERM="xterm"),
    ) as process:  # fmt: skip
        os.close(theirs)
        seen = b""
        try:
            while part := os.read(ours, 65_536):
                seen += part
        except OSError:  # how Linux says that the other side is closed
            pass
    os.close(ours)
    assert process.returncode == ExitCode.OK
    assert b"[frontier]" in seen
    assert b"no limit" in seen
    assert b"secret" not in seen


def test_a_named_file_is_read(folder: Path) -> None:
    (folder / "other.toml").write_text("[crawl]\ncrawl = 'news'\n")
    answer = outrider_config(folder, "--config", "other.toml", "--json")
    assert json.loads(answer.stdout)["crawl"]["crawl"] == {"value": "news", "source": "other.toml [crawl] crawl"}


def test_a_mistake_is_one_line_and_a_refusal(folder: Path) -> None:
    answer = outrider_config(folder, OUTRIDER_MAX_PAGES="many")
    assert (answer.returncode, answer.stdout) == (ExitCode.REFUSED, "")
    assert answer.stderr == "outrider: OUTRIDER_MAX_PAGES must be a whole number, not 'many'\n"
