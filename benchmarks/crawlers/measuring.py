"""Runs a command under a time limit and measures it, with all the processes that it starts."""

import json
import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil

SAMPLE_S = 0.05
KILLED = -1_000
"""The exit code of what was killed at its limit."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What a command used, and what it said."""

    wall_s: float
    cpu_s: float
    peak_rss_mb: float
    answer: dict[str, Any]
    """The JSON object of its last line, or nothing."""
    trouble: str
    """Why it is not to be believed; empty if it is."""


def run(command: Sequence[str | Path], folder: Path, limit_s: float) -> Measured:
    """Run a command to its end, or kill it and its children at the limit."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=errors, cwd=folder, start_new_session=True)
        try:
            usage, peak = _watch(process, began + limit_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        return Measured(
            wall_s=time.monotonic() - began,
            # The kernel adds to a process what the children it waited for have used.
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_rss_mb=peak / 1_000_000,
            answer=_last_object(_text(output)),
            trouble=_trouble(process.returncode, limit_s, _text(errors)),
        )


def _watch(process: subprocess.Popen[bytes], until: float) -> tuple[resource.struct_rusage, int]:
    """Wait for the end, killing it if need be; tells what was used, and the highest memory in bytes."""
    tree = psutil.Process(process.pid)
    peak, late = 0, False
    while True:
        peak = max(peak, _memory(tree))
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            # Only wait4 tells the usage; Popen must learn that the process is gone.
            process.returncode = KILLED if late else os.waitstatus_to_exitcode(status)
            return usage, peak
        if time.monotonic() > until and not late:
            os.killpg(process.pid, signal.SIGKILL)
            late = True
        time.sleep(SAMPLE_S)


def _memory(tree: psutil.Process) -> int:
    """What all processes hold now, or the most that the first has ever held, whichever is more."""
    total = 0
    with suppress(psutil.Error):
        for process in (tree, *tree.children(recursive=True)):
            with suppress(psutil.Error):
                total += process.memory_info().rss
    return max(total, _high_water_mark(tree.pid))


def _high_water_mark(pid: int) -> int:
    """The most that a process has held, where the system tells: no sample misses it."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode("utf-8", "replace"))


def _last_object(output: str) -> dict[str, Any]:
    with suppress(ValueError, IndexError):
        answer = json.loads(output.strip().splitlines()[-1])
        if isinstance(answer, dict):
            return answer
    return {}


def _trouble(code: int, limit_s: float, errors: str) -> str:
    if code == 0:
        return ""
    if code == KILLED:
        return f"stopped after {limit_s:g} s"
    # Frames and rules around a message say nothing.
    said = [line for line in errors.splitlines() if any(letter.isalpha() for letter in line)]
    return f"exit code {code}: {said[-1].strip()[:200] if said else 'without a word'}"
