"""Runners that wait for work: one is kept warm, so that a job does not wait for a process to start."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from outrider.control.runner_process import RunnerProcess

WARM_AFTER_S: Final = 1.0
"""A spare is started this long after the last one was taken, so as not to compete with its first fetches."""


class RunnerPool:
    """Starts runners ahead of need."""

    def __init__(self, command: Sequence[str], silent_limit_s: float) -> None:
        self._command = command
        self._silent_limit_s = silent_limit_s
        self._spare: asyncio.Task[RunnerProcess] | None = None
        self._warming: asyncio.TimerHandle | None = None

    def warm(self) -> None:
        """Start a spare, where there is none."""
        if self._spare is None:
            self._spare = asyncio.create_task(RunnerProcess.start(self._command), name="spare runner")

    async def take(self) -> RunnerProcess:
        """Give a runner that waits for work, and see to the next."""
        self.warm()
        assert self._spare is not None
        spare, self._spare = self._spare, None
        if self._warming is not None:
            self._warming.cancel()
        self._warming = asyncio.get_running_loop().call_later(WARM_AFTER_S, self.warm)
        runner = await spare
        if runner.is_alive and runner.silent_s < self._silent_limit_s:
            return runner
        runner.kill()
        await runner.leave()
        return await RunnerProcess.start(self._command)

    async def close(self) -> None:
        """End the spare."""
        if self._warming is not None:
            self._warming.cancel()
        if self._spare is not None:
            self._spare.cancel()
            with suppress(asyncio.CancelledError):
                runner = await self._spare
                runner.kill()
                await runner.leave()
