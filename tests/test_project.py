import ast
import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from outrider.cli.settings import IN_SECONDS, variable_of
from outrider.model.settings import Settings

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FRONTIER_ROOMS = ("model", "policy", "store", "frontier")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def tracked_files() -> list[Path]:
    listing = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listing.returncode == 0:
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:  # an unpacked archive: everything but what tools leave behind
        left_behind = {"__pycache__", "build", "dist"}
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(part in left_behind or part.startswith(".") for part in path.relative_to(ROOT).parts)
        ]
    return [path for path in paths if path.is_file()]


def normalised(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def pins() -> dict[str, str]:
    lines = text_of("constraints.txt").splitlines()
    return {normalised(name): version for name, version in (line.split("==") for line in lines)}


def test_continuous_integration_runs_the_test_command_of_the_readme() -> None:
    commands = re.findall(r"^python3 -m venv .*pytest$", text_of("README.md"), re.MULTILINE)
    assert len(commands) == 1
    assert commands[0] in text_of(".ci/run").splitlines()


def test_the_readme_has_the_two_commands_that_do_all_the_set_up() -> None:
    set_up = "python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt"
    commands = [line for line in text_of("README.md").splitlines() if line.startswith(set_up)]
    assert commands == [
        f"{set_up} . && .venv/bin/outrider demo",
        f"{set_up} -e '.[test]' && .venv/bin/pytest",
    ]


def test_constraints_are_plain_pins() -> None:
    for line in text_of("constraints.txt").splitlines():
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+]+", line), line


def test_every_requirement_is_pinned() -> None:
    project = PROJECT["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    assert {normalised(each) for each in required} <= pins().keys()


def test_the_build_uses_the_pinned_backend() -> None:
    for requirement in PROJECT["build-system"]["requires"]:
        name, _, version = requirement.partition("==")
        assert pins()[normalised(name)] == version


def test_no_file_names_a_package_registry() -> None:
    # Put together here, so that this file does not name them either.
    names = ["pypi" + r"\.org", "python" + "hosted", "index" + "-url", "find" + "-links"]
    hosts = re.compile("|".join(names), re.IGNORECASE)
    naming = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if hosts.search(path.read_bytes().decode("utf-8", "replace"))
    ]
    assert naming == []


def test_the_import_contracts_hold() -> None:
    answer = run(Path(sys.executable).parent / "lint-imports", "--no-cache")
    assert answer.returncode == 0, answer.stdout


def test_every_room_is_in_the_import_contract() -> None:
    layers = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    assert set(layers) == {path.parent.name for path in ROOT.glob("outrider/*/__init__.py")}


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", FRONTIER_ROOMS)
def test_the_frontier_stays_a_frontier(room: str) -> None:
    """Import-linter sees `urllib` as one; its half that fetches is looked for here."""
    for path in (ROOT / "outrider" / room).rglob("*.py"):
        for module in imported_modules(path):
            assert not re.match(r"urllib\.(request|robotparser)\b", module), path


def test_the_drawings_are_current() -> None:
    answer = subprocess.run(
        [sys.executable, "docs/draw.py", "--check"],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_drawing_that_is_missing_or_not_current_is_found() -> None:
    draw = runpy.run_path(str(ROOT / "docs/draw.py"))
    page = text_of("docs/architecture.md")
    assert draw["problems"](page) == []
    assert draw["problems"](page.replace("drawing: job", "drawing of job")) != []
    stale = page.replace("PENDING --> ASSIGNED: leased", "PENDING --> ASSIGNED: given")
    assert draw["problems"](stale) != []
    assert draw["redraw"](stale) == page


def test_every_setting_is_documented_with_its_default() -> None:
    rows = dict(
        re.findall(
            r"^\| `(OUTRIDER_\w+)` \| ([\d.]+|true|false) \|", text_of("docs/reference/settings.md"), re.MULTILINE
        )
    )
    defaults = msgspec.structs.asdict(Settings())
    for field in IN_SECONDS:
        defaults[field] //= 1000
    assert rows == {variable_of(field): str(default).lower() for field, default in defaults.items()}


def test_links_between_pages_lead_somewhere() -> None:
    for page in tracked_files():
        if page.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http://", "https://", "#", "mailto:")):
                assert (page.parent / target.partition("#")[0]).exists(), f"{page.name} -> {target}"
