import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from outrider.cli.exits import ExitCode
from tests.cli.conftest import ROOT, Outrider


def test_a_demo_ends_by_itself_and_a_second_one_begins_anew(outrider: Outrider, tmp_path: Path) -> None:
    port = free_port()
    demo = ("demo", "--pages", "20", "--no-oddities", "--port", port, "--progress", "plain", "--data", tmp_path / "d")
    for answer in (first := outrider(*demo), outrider(*demo)):
        assert answer.returncode == ExitCode.OK, answer.stderr
        assert re.search(r"^pages +20$", answer.stderr, re.MULTILINE)
    command = re.search(r"^  outrider (explain .*)$", first.stderr, re.MULTILINE)
    assert command is not None
    told = json.loads(outrider(*command[1].split(), "--json").stdout)
    assert (told["verdict"], told["url"]) == ("done", f"http://127.0.0.1:{port}/")


def test_with_everything_wrong_on_the_web_it_ends_and_what_it_recommends_is_as_it_says(
    outrider: Outrider, tmp_path: Path
) -> None:
    """Takes as long as the time-outs of the site's silent pages."""
    answer = outrider("demo", "--pages", "50", "--port", free_port(), "--progress", "plain", "--data", tmp_path / "d")
    assert answer.returncode == ExitCode.OK, answer.stderr
    commands = re.findall(r"^  outrider (explain .*)$", answer.stderr, re.MULTILINE)
    answers = [outrider(*shlex.split(command, comments=True), "--json").stdout for command in commands]
    assert [json.loads(told)["verdict"] for told in answers] == ["robots", "failed", "done", "too_deep"]


def test_a_demo_that_was_stopped_goes_on_where_it_stopped(outrider: Outrider, tmp_path: Path) -> None:
    demo = ["demo", "--pages", "3000", "--no-oddities", "--port", free_port(), "--data", str(tmp_path / "d")]
    command = [sys.executable, "-m", "outrider.cli.main", *demo, "--progress", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if json.loads(line).get("counts", {}).get("completed"):
                process.send_signal(signal.SIGINT)
                break
        process.stderr.read()
    assert process.returncode == ExitCode.STOPPED
    answer = outrider(*demo, "--progress", "plain")
    assert answer.returncode == ExitCode.OK
    assert re.search(r"^pages +[\d,]+, and [\d,]+ before$", answer.stderr, re.MULTILINE)
    told = json.loads(outrider("status", "--data", tmp_path / "d", "--json").stdout)
    assert told["pages"]["completed"] == 3_000


def test_serve_prints_the_address_and_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "outrider.cli.main", "demo", "--serve", "--port", "0", "--pages", "5"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{address}/robots.txt", timeout=10) as answer:
            assert b"User-agent: *" in answer.read()
        process.send_signal(signal.SIGINT)
    assert process.returncode == ExitCode.OK


def test_a_port_that_is_taken_is_refused_where_it_was_asked_for(outrider: Outrider) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for more in ([], ["--serve"]):
            answer = outrider("demo", "--port", port, *more)
            assert answer.returncode == ExitCode.REFUSED
            assert f"cannot serve on port {port} of 127.0.0.1: Address already in use" in answer.stderr


@pytest.mark.parametrize("pages", ["0", "-1"])
def test_a_site_of_no_pages_is_refused(outrider: Outrider, pages: str) -> None:
    answer = outrider("demo", "--pages", pages)
    assert answer.returncode == ExitCode.REFUSED
    assert "pages must be between 1 and" in answer.stderr


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
