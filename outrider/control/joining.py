"""Joining: runners that no job needs help with the crawl that has most to do.

A helper is a worker like any other: it leases under a name of its own, and what it holds is given back when it ends.
"""

import asyncio
import logging
import time
from contextlib import suppress
from typing import Final

from outrider.control.messages import Begin
from outrider.control.runner_process import Died, RunnerProcess
from outrider.control.tenure import STOPS_WITHIN_S, Hands, lease_ms, permitted_s
from outrider.model.errors import StoreError, UnknownCrawl
from outrider.model.identifiers import new_uuid7
from outrider.model.job import JobFilter
from outrider.model.machines import JobStatus

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 2.0
MOST_JOBS_LOOKED_AT: Final = 100
WORTH_SHARING: Final = 20
"""A crawl with fewer tasks before it is not worth a helper."""
LOOKS: Final = 3
LOOK_AGAIN_S: Final = 0.05
"""Where something is ready at each of several looks, a crawl's own workers have their hands full: when sites are waited
for, what becomes ready is leased within milliseconds."""


class _Helper:
    def __init__(self, crawl: str) -> None:
        self.crawl = crawl
        self.runner: RunnerProcess | None = None
        self.is_leaving = False

    def stop(self) -> None:
        self.is_leaving = True
        if self.runner is not None:
            self.runner.stop()
            asyncio.get_running_loop().call_later(STOPS_WITHIN_S, self.runner.kill)


class Joining:
    """The helpers of one supervisor."""

    def __init__(self, hands: Hands, name: str) -> None:
        self._hands = hands
        self._name = name
        self._helpers: dict[asyncio.Task[None], _Helper] = {}
        self._looked_at = -LOOK_EVERY_S

    async def look(self, slots: int) -> None:
        """Send a runner to help, where one is idle and there is a crawl to help with."""
        if len(self._helpers) >= slots or time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = time.monotonic()
        crawl = await self._most_to_do()
        if crawl is None:
            return
        logger.info("helping with crawl %s", crawl, extra={"action": "join", "crawl": crawl})
        helper = _Helper(crawl)
        task = asyncio.create_task(self._help(helper), name=f"helper of {crawl}")
        self._helpers[task] = helper
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._helpers[task]
        if not task.cancelled() and task.exception() is not None:
            logger.error("a helper was dropped", exc_info=task.exception(), extra={"action": "helper_dropped"})

    def make_room(self, slots: int) -> None:
        """Call helpers back until there are no more than so many."""
        staying = [helper for helper in self._helpers.values() if not helper.is_leaving]
        for helper in staying[max(slots, 0) :]:
            helper.stop()

    def leave(self) -> list[asyncio.Task[None]]:
        """Call all helpers back; give what ends when they have come."""
        self.make_room(0)
        return list(self._helpers)

    def permit(self) -> None:
        """Let helpers go on: they are fenced by their leases, and only must not outlive us."""
        for helper in self._helpers.values():
            if helper.runner is not None:
                helper.runner.permit(time.monotonic() + permitted_s(self._hands.settings))

    def check_health(self, silent_limit_s: float, memory_limit: int) -> None:
        """End helpers that are frozen or too large."""
        for helper in self._helpers.values():
            runner = helper.runner
            if runner is None or not runner.is_alive:
                continue
            if runner.silent_s > silent_limit_s or runner.memory_bytes() > memory_limit:
                runner.kill()

    async def _most_to_do(self) -> str | None:
        """Name the crawl with most to do of those whose own workers cannot keep up."""
        which = JobFilter(status=JobStatus.PROCESSING)
        jobs = (await self._hands.stores.control.list_jobs(which, limit=MOST_JOBS_LOOKED_AT)).jobs
        ready = {job.crawl: 0 for job in jobs}
        for look in range(LOOKS):
            if look and ready:
                await asyncio.sleep(LOOK_AGAIN_S)
            ready = {crawl: pending for crawl in ready if (pending := await self._ready(crawl)) >= WORTH_SHARING}
        return max(ready, key=ready.__getitem__) if ready else None

    async def _ready(self, crawl: str) -> int:
        """Tell how much a crawl has before it, 0 where nothing of it is ready at this moment."""
        try:
            outlook = await self._hands.stores.urls.outlook(crawl)
        except UnknownCrawl:  # its supervisor is still preparing it
            return 0
        is_ready = outlook.next_ready_at is not None and outlook.next_ready_at <= time.time() * 1000
        return outlook.counts.pending if is_ready else 0

    async def _help(self, helper: _Helper) -> None:
        hands = self._hands
        worker = f"{self._name}-{new_uuid7()}"
        runner = helper.runner = await hands.take_runner()
        runner.begin(
            Begin(
                crawl=helper.crawl,
                worker=worker,
                plan=hands.plan,
                settings=hands.settings,
                reach=hands.reach,
                lease_ms=lease_ms(hands.settings),
                permit_until=time.monotonic() + permitted_s(hands.settings),
                joins=True,
            )
        )
        if helper.is_leaving:
            runner.stop()
        try:
            event = await runner.next_event()
            logger.info("back from crawl %s: %s", helper.crawl, event, extra={"action": "leave"})
            if isinstance(event, Died):
                with suppress(StoreError):
                    await hands.stores.urls.reap(worker=worker)
        finally:
            await runner.leave()
            if hands.settings.enable_claim_protocol:
                with suppress(StoreError):  # they expire
                    await hands.stores.control.release_all_claims(worker)
