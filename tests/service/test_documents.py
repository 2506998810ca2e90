"""What the documents say is true: their commands run, and what they name exists."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from typer.core import TyperGroup

from outrider.cli.main import app
from outrider.service.http.endpoint import MAX_BODY_BYTES
from outrider.service.http.routes import ENDPOINTS
from outrider.service.http.wire import MAX_WAIT_MS
from outrider.service.problems import KINDS

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
SERVICE = HOW_TO / "service.md"
CLIENTS = HOW_TO / "urlfrontier-clients.md"
REFERENCE = ROOT / "docs" / "reference" / "http-api.md"
LONG_S = 60

needs_programs = pytest.mark.skipif(
    shutil.which("curl") is None or shutil.which("openssl") is None, reason="the documents use curl and openssl"
)

# Runs a service beside what follows, in the place of the one before, and waits until it answers.
SERVE = """
stop() { if [ -n "${SERVER:-}" ]; then kill "$SERVER"; wait "$SERVER" || true; SERVER=; fi; }
trap stop EXIT
serve() {
  stop
  outrider serve --port "$PORT" "$@" & SERVER=$!
  for _ in $(seq 200); do
    curl --insecure --output ready.txt "http://127.0.0.1:$PORT/healthz" 2> ready.log && return
    curl --insecure --output ready.txt "https://127.0.0.1:$PORT/healthz" 2> ready.log && return
    kill -0 "$SERVER"
    sleep 0.05
  done
  return 1
}
"""


def blocks(document: Path, *languages: str) -> Iterator[tuple[str, str]]:
    """The code of a document in its order, each with its language."""
    for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE):
        if language in languages:
            yield language, code


def as_script(document: Path, port: int) -> str:
    """A document as one script: its commands run in order, with services beside them instead of before them."""
    parts = ["set -euo pipefail", SERVE]
    for number, (language, code) in enumerate(blocks(document, "sh", "python")):
        if language == "python":
            parts.append(f"cat > example-{number}.py <<'END'\n{code}END\npython3 example-{number}.py")
        else:
            parts.append(re.sub(r"^outrider serve", "serve", code, flags=re.MULTILINE))
    return "\n".join(parts).replace(":7071", f":{port}").replace("0.0.0.0", "127.0.0.1")


def run_document(document: Path, folder: Path) -> str:
    """Run all commands of a document in a folder; a curl that gets a problem fails."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\nmax-time = 20\n")
    (folder / "script.sh").write_text(as_script(document, port))
    settings = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "script.sh"],
        cwd=folder,
        env=settings | {"PATH": path, "PORT": str(port), "CURL_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=LONG_S,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@needs_programs
def test_all_that_the_page_on_the_service_tells_runs(tmp_path: Path) -> None:
    output = run_document(SERVICE, tmp_path)
    assert output.count('"outcome":"new"') == 2
    assert '"verdict":"completed"' in output
    assert '"new":3,"known":0,"rejected":0' in output
    assert '"removed":3' in output


@needs_programs
def test_all_that_the_page_on_urlfrontier_tells_runs(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    definition = tmp_path / "outrider" / "service"
    definition.mkdir(parents=True)
    shutil.copy(ROOT / "outrider" / "service" / "urlfrontier.proto", definition)
    output = run_document(CLIENTS, tmp_path)
    assert "batch 1 ['OK', 'OK', 'OK']" in output
    assert output.count("of example.org") == 2
    assert "'completed': 2" in output


# ---- commands that are not run


def check_command(words: list[str]) -> None:
    """Check that a command of ours exists with all its flags."""
    command: Any = typer.main.get_command(app)
    arguments = list(words)
    while isinstance(command, TyperGroup):
        name = arguments.pop(0)
        assert name in command.commands, f"there is no command {name}: {words}"
        command = command.commands[name]
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    for flag in (word.partition("=")[0] for word in arguments if word.startswith("-")):
        assert flag in known, f"there is no {flag}: {words}"


def shown_commands(document: Path) -> Iterator[list[str]]:
    for _, code in blocks(document, "console", "sh"):
        for line in re.sub(r"\\\n", " ", code).splitlines():
            for found in re.findall(r"\boutrider ([a-z].*)", line):
                yield shlex.split(re.split(r"[|>&)]", found)[0])


@pytest.mark.parametrize("document", [SERVICE, CLIENTS], ids=lambda path: str(path.name))
def test_commands_that_are_shown_exist(document: Path) -> None:
    commands = list(shown_commands(document))
    assert commands
    for words in commands:
        check_command(words)


def environment_names() -> set[str]:
    """All variables that a command of ours reads."""
    settings = (ROOT / "docs" / "reference" / "settings.md").read_text()
    named = set(re.findall(r"`(OUTRIDER_\w+)`", settings))
    commands: list[Any] = [typer.main.get_command(app)]
    while commands:
        command = commands.pop()
        commands += command.commands.values() if isinstance(command, TyperGroup) else ()
        for parameter in command.params:
            variables = parameter.envvar or ()
            named.update((variables,) if isinstance(variables, str) else variables)
    return named


@pytest.fixture
def services() -> dict[str, Any]:
    composed = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return dict(composed["services"])


def test_the_composed_services_run_commands_that_exist(services: dict[str, Any]) -> None:
    ours = {name: service for name, service in services.items() if service["image"] == "outrider"}
    assert set(ours) == {"migrate", "frontier", "worker"}
    for service in ours.values():
        check_command(service["command"])
        assert set(service["environment"]) <= environment_names()
    assert ours["frontier"]["deploy"]["replicas"] == 2


def test_the_composed_services_wait_for_services_that_exist(services: dict[str, Any]) -> None:
    for name, service in services.items():
        for other, wait in service.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}"
            if wait["condition"] == "service_healthy":
                # What our own image checks is the service.
                assert "healthcheck" in services[other] or services[other]["command"][0] == "serve"


def test_a_worker_is_composed_without_the_store_s_password(services: dict[str, Any]) -> None:
    assert set(services["worker"]["environment"]) == {"OUTRIDER_KEY"}


def test_the_image_is_made_of_files_that_exist_and_are_sent() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for source in line.removeprefix("COPY ").split()[:-1]
    }
    assert copied == sent
    assert all((ROOT / name).exists() for name in copied)
    (default,) = (line for line in lines if line.startswith("CMD "))
    check_command(yaml.safe_load(default.removeprefix("CMD ")))
    assert any(line.startswith("USER ") and "root" not in line for line in lines)


# ---- the reference


def test_the_reference_names_every_call_with_its_role() -> None:
    told = set(re.findall(r"^\| `([A-Z]+ /\S+)` \| (\w+) \|", REFERENCE.read_text(), re.MULTILINE))
    assert told == {(f"{each.method} {each.path}", str(each.role or "none")) for each in ENDPOINTS}


def test_the_reference_names_limits_and_problems_that_exist() -> None:
    text = REFERENCE.read_text()
    assert f"{MAX_BODY_BYTES >> 20} MiB" in text
    assert f"| a wait for work | {MAX_WAIT_MS // 1000} s |" in text
    by_path = {"not-found": 404, "method-not-allowed": 405}
    known = {kind.word: kind.status for kind in KINDS.values()} | by_path
    for status, words in re.findall(r"^\| (\d{3}) \| (.*?) \|", text, re.MULTILINE):
        for word in re.findall(r"`([\w-]+)`", words):
            assert known[word] == int(status), word
