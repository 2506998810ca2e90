"""The virtual environment of the other crawlers, made on first use."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
INSTALL_LIMIT_S = 900


def default_folder() -> Path:
    """Where it is kept unless told otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outrider" / "benchmark-tools"


def python_with_tools(folder: Path, say: Callable[[str], None]) -> tuple[Path, dict[str, str]]:
    """The interpreter that has the other crawlers, and why those are missing that it has not, by name."""
    requirements = REQUIREMENTS.read_text(encoding="utf-8")
    name = hashlib.sha256(f"{sys.version}\n{requirements}".encode()).hexdigest()[:16]
    environment = folder.absolute() / name
    python = environment / "bin" / "python"
    lines = [line for line in requirements.splitlines() if line and not line.startswith("#")]
    wanted = {line.partition("==")[0].partition("[")[0]: line for line in lines}
    if not all(_has(python, tool) for tool in wanted):
        say(f"installing {', '.join(lines)} into {environment}")
        trouble = _run(sys.executable, "-m", "venv", str(environment)) or _install(python, *lines)
        if trouble:
            # One may be had where all cannot.
            troubles = {tool: _install(python, line) for tool, line in wanted.items()}
            return python, {tool: said for tool, said in troubles.items() if said}
    return python, {tool: "installed, but cannot be imported" for tool in wanted if not _has(python, tool)}


def _has(python: Path, tool: str) -> bool:
    return python.exists() and not _run(str(python), "-c", f"import {tool}")


def _install(python: Path, *requirements: str) -> str:
    return _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)


def _run(*command: str) -> str:
    """Run a command; tell what went wrong, if anything did."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if ran.returncode == 0 else (ran.stderr.strip().splitlines() or ["it failed without a word"])[-1]
