"""The commands that go on running, as real processes."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

READY_S = 30.0
"""Nothing here takes so long to start, unless it hangs."""


def free_port() -> int:
    """Find a port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Command:
    """A command that runs, and what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = ""

    async def says(self, text: str) -> str:
        """Wait until it has said a text on stderr; give the line."""
        assert self.process.stderr is not None
        async with asyncio.timeout(READY_S):
            while True:
                line = (await self.process.stderr.readline()).decode()
                self.said += line
                if text in line:
                    return line
                assert line, f"it ended without saying {text!r}: {self.said}"

    async def ends(self) -> int:
        """Wait until it has ended; give its exit code."""
        async with asyncio.timeout(60):
            _, rest = await self.process.communicate()
        self.said += rest.decode()
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def command(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None, log: Path | None = None
) -> AsyncIterator[Command]:
    """Run a command of `outrider` in a folder; kill it where the test leaves it running.

    What it says goes to the log, where there is one: who says much and is not listened to would have to wait.
    """
    with log.open("w") if log else nullcontext(asyncio.subprocess.PIPE) as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "outrider.cli.main", *arguments,
            cwd=folder,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
