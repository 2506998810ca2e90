"""A runner: the process that executes one job, or helps with one, for a supervisor at the other end of its pipes.

It works under a permit, which the supervisor prolongs whenever it has beaten for the job. A thread ends the process
when the permit has run out, even where the event loop is stuck, so that nobody works for a job that was given to
another.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime
from typing import IO, Final

from outrider.control.errors import judged
from outrider.control.messages import (
    PERMIT_OVER,
    STOPPED,
    Begin,
    FromRunner,
    Reach,
    RunnerProgress,
    Stop,
    ToRunner,
    line_of,
    read_to_runner,
)
from outrider.crawler.crew import Crew
from outrider.crawler.progress import CrawlEnding
from outrider.crawler.scheduling import Scheduling
from outrider.frontier.protocol import Frontier
from outrider.model.errors import OutriderError
from outrider.model.settings import Settings

logger = logging.getLogger(__name__)

OpenFrontier = Callable[[Reach, Settings], AbstractAsyncContextManager[Frontier]]

TELL_EVERY_S: Final = 1.0
PERMIT_LOOK_S: Final = 0.1
GO_ON_AFTER_S: Final = 1.0
"""A crawl that looked complete and was not is looked at again after this long."""
ORPHAN_S: Final = 5.0
"""How long a runner that lost its supervisor may take to give back what it holds."""
MOST_DOMAINS: Final = 10
MAX_ERROR: Final = 500


class Permit:
    """Until when this process may work; ends it when that is over."""

    def __init__(self) -> None:
        self._until = float("inf")
        threading.Thread(target=self._watch, name="permit", daemon=True).start()

    def set(self, until: float) -> None:
        """Work until then, on the monotonic clock, and no longer."""
        self._until = until

    def shorten(self, until: float) -> None:
        """Work until then at most."""
        self._until = min(self._until, until)

    def _watch(self) -> None:
        while time.monotonic() < self._until:
            time.sleep(PERMIT_LOOK_S)
        os._exit(PERMIT_OVER)


class Pipes:
    """The lines from and to the supervisor; read in a thread, so that permits arrive whatever the loop does."""

    def __init__(self, lines_in: IO[bytes], lines_out: IO[bytes], permit: Permit) -> None:
        self._in = lines_in
        self._out = lines_out
        self._permit = permit
        self._loop = asyncio.get_running_loop()
        self._heard: asyncio.Queue[ToRunner | None] = asyncio.Queue()
        threading.Thread(target=self._read, name="supervisor's lines", daemon=True).start()

    def say(self, message: FromRunner) -> None:
        """Send a line. Where nobody reads any more, the end of the input says the same."""
        with suppress(OSError, ValueError):
            self._out.write(line_of(message))
            self._out.flush()

    async def hear(self) -> ToRunner | None:
        """Wait for the next line that is not about the permit; None where there will be none."""
        return await self._heard.get()

    def _read(self) -> None:
        try:
            for line in self._in:
                message = read_to_runner(line)
                if message.begin is not None:
                    self._permit.set(message.begin.permit_until)
                if message.permit_until is not None:
                    self._permit.set(message.permit_until)
                else:
                    self._pass_on(message)
        finally:
            self._permit.shorten(time.monotonic() + ORPHAN_S)
            self._pass_on(None)

    def _pass_on(self, message: ToRunner | None) -> None:
        with suppress(RuntimeError):  # the loop may be closed by now
            self._loop.call_soon_threadsafe(self._heard.put_nowait, message)


class Runner:
    """Does what its supervisor says, once."""

    def __init__(self, pipes: Pipes, open_frontier: OpenFrontier) -> None:
        self._pipes = pipes
        self._open_frontier = open_frontier
        self._crew: Crew | None = None
        self._is_working = False

    async def run(self) -> None:
        """Wait to be told what to do, do it, and tell how it went."""
        telling = asyncio.create_task(self._tell())
        try:
            message = await self._pipes.hear()
            if message is not None and message.begin is not None:
                await self._carry_out(message.begin)
        except Exception as error:  # whatever it is, the supervisor decides what becomes of the job
            logger.warning("the runner cannot go on: %s", error, exc_info=not isinstance(error, OutriderError))
            self._pipes.say(FromRunner(error=judged(error)))
        finally:
            telling.cancel()

    async def _carry_out(self, begin: Begin) -> None:
        async with (
            self._open_frontier(begin.reach, begin.settings) as frontier,
            Crew(
                frontier,
                begin.plan,
                lease_ms=begin.lease_ms,
                name=begin.worker,
                run_id=begin.run_id,
                scheduling=Scheduling.of(begin.settings),
                remembers=begin.settings.enable_refresh_mode,
            ) as self._crew,
        ):
            while True:
                self._is_working = True
                ending = await self._work(begin, self._crew)
                self._is_working = False
                if ending is None:
                    return
                self._pipes.say(FromRunner(progress=self._progress()))
                self._pipes.say(FromRunner(ended=ending))
                answer = await self._pipes.hear()
                if answer is None or not answer.go_on:
                    return
                await asyncio.sleep(GO_ON_AFTER_S)

    async def _work(self, begin: Begin, crew: Crew) -> str | None:
        """Work until the crawl looks complete or somebody says stop; None where there is nobody to tell."""
        stop = asyncio.Event()
        working = asyncio.create_task(crew.work(begin.crawl, stop, until_done=True, outlasts_pauses=not begin.joins))
        hearing = asyncio.create_task(self._pipes.hear())
        try:
            await asyncio.wait((working, hearing), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                message = hearing.result()
                if message is None or message.stop == Stop(at_once=True):
                    stop.set()
                    working.cancel()  # what is held is given back on the way out
                    with suppress(asyncio.CancelledError):
                        await working
                    return None if message is None else STOPPED
                stop.set()
            return _told(await working)
        finally:
            hearing.cancel()
            working.cancel()

    async def _tell(self) -> None:
        """Say every second how it goes, unless nothing does: who is silent is taken for frozen."""
        while True:
            if not self._is_stuck():
                self._pipes.say(FromRunner(progress=self._progress()))
            await asyncio.sleep(TELL_EVERY_S)

    def _is_stuck(self) -> bool:
        return self._is_working and self._crew is not None and self._crew.is_stuck

    def _progress(self) -> RunnerProgress:
        crew = self._crew
        if crew is None:
            return RunnerProgress()
        seen, last_error = crew.progress, crew.last_error
        return RunnerProgress(
            fetched=seen.fetched,
            failed=seen.failures.total(),
            in_flight=crew.in_flight,
            rate=round(seen.rate(time.monotonic()), 3),
            bytes=seen.bytes_received,
            domains=crew.domains[:MOST_DOMAINS],
            last_error=None if last_error is None else last_error[:MAX_ERROR],
            waiting_until=None if crew.in_flight else _moment_of(crew.waiting_until),
        )


def _moment_of(milliseconds: int | None) -> datetime | None:
    with suppress(OverflowError, ValueError, OSError):  # what waits for no clock
        return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
    return None


def _told(ending: CrawlEnding | None) -> str:
    is_complete = ending in (CrawlEnding.DRAINED, CrawlEnding.LIMIT, CrawlEnding.WAITING)
    return ending.value if ending is not None and is_complete else STOPPED
