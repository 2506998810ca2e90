"""A runner as its supervisor sees it: a process, what it says, and how long it has been silent."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
import psutil

from outrider.control.messages import (
    Begin,
    FromRunner,
    RunnerError,
    RunnerProgress,
    Stop,
    ToRunner,
    line_of,
    read_from_runner,
)

logger = logging.getLogger(__name__)

LONGEST_LINE: Final = 1 << 20
STARTS_WITHIN_S: Final = 30.0
"""How long a runner may take to load what it needs: one that is frozen meanwhile would hold up its job for ever."""
LEAVES_WITHIN_S: Final = 5.0
"""How long a runner that has nothing more to do may take to end."""


class Ended(NamedTuple):
    """The runner takes its crawl for complete, or has stopped, and waits for an answer."""

    reason: str


class Failed(NamedTuple):
    """The runner could not go on."""

    error: RunnerError


class Died(NamedTuple):
    """The process is gone."""

    code: int

    @property
    def told(self) -> str:
        """How it went, for people."""
        return f"killed by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"


RunnerEvent = Ended | Failed | Died


class RunnerProcess:
    """A runner that was started here; it ends when our end of its pipe is closed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.progress = RunnerProgress()
        self._heard_at = time.monotonic()
        self._is_ready = asyncio.Event()
        self._events: asyncio.Queue[RunnerEvent] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read(), name=f"lines of runner {process.pid}")

    @classmethod
    async def start(cls, command: Sequence[str], *, within_s: float = STARTS_WITHIN_S) -> "RunnerProcess":
        """Start a runner and wait until it has loaded all that it needs, or has died of it; too late, it is ended."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
        )
        runner = cls(process)
        try:
            async with asyncio.timeout(within_s):
                await runner._is_ready.wait()
        except TimeoutError:
            logger.warning("runner %d was not ready within %g s", process.pid, within_s)
            runner.kill()
            await runner.leave()
        except asyncio.CancelledError:
            runner.kill()
            await runner.leave()
            raise
        return runner

    @property
    def process_id(self) -> int:
        """The number of its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is there."""
        return self._process.returncode is None

    @property
    def silent_s(self) -> float:
        """How long it has said nothing."""
        return time.monotonic() - self._heard_at

    def memory_bytes(self) -> int:
        """Tell how much memory it has in use."""
        try:
            return int(psutil.Process(self._process.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def begin(self, begin: Begin) -> None:
        """Tell it what to do."""
        self._heard_at = time.monotonic()
        self._send(ToRunner(begin=begin))

    def permit(self, until: float) -> None:
        """Let it work until then, on the monotonic clock."""
        self._send(ToRunner(permit_until=until))

    def go_on(self) -> None:
        """Have it look once more: the crawl was not complete."""
        self._send(ToRunner(go_on=True))

    def stop(self, *, at_once: bool = False) -> None:
        """Ask it to stop."""
        self._send(ToRunner(stop=Stop(at_once=at_once)))

    def kill(self) -> None:
        """End the process, also where it is stopped; `Died` follows."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def next_event(self) -> RunnerEvent:
        """Wait for the next thing that somebody has to decide about."""
        return await self._events.get()

    async def leave(self) -> None:
        """Let go of a runner that is done; one that does not end is ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(LEAVES_WITHIN_S):
                await self._process.wait()
        except TimeoutError:
            logger.warning("runner %d does not end by itself", self._process.pid)
        finally:
            self.kill()
            await self._reading

    def _send(self, message: ToRunner) -> None:
        assert self._process.stdin is not None
        with suppress(ConnectionError, RuntimeError):  # it is gone, which its end says
            self._process.stdin.write(line_of(message))

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                self._heard_at = time.monotonic()
                self._is_ready.set()
                self._take(read_from_runner(line))
        except (msgspec.DecodeError, ValueError) as error:
            logger.error("runner %d says what is none of a runner's lines: %s", self._process.pid, error)
            self.kill()
        code = await self._process.wait()
        self._is_ready.set()
        self._events.put_nowait(Died(code))

    def _take(self, message: FromRunner) -> None:
        if message.progress is not None:
            self.progress = message.progress
        if message.ended is not None:
            self._events.put_nowait(Ended(message.ended))
        if message.error is not None:
            self._events.put_nowait(Failed(message.error))
