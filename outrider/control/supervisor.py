"""The supervisor: claims jobs while it has runners to spare, beats for them, hears what users wish, and watches.

Any number of supervisors work on one store, on any number of machines. Runners that no job needs help with the crawl
that has most to do.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec

from outrider.control import schedules
from outrider.control.joining import Joining
from outrider.control.messages import Reach
from outrider.control.runner_pool import RunnerPool
from outrider.control.runner_process import RunnerProcess
from outrider.control.tenure import Leaving, Lost, Silent, Tenure, TooLarge, Wish
from outrider.control.watchdog import Watchdog
from outrider.control.witness import Nobody, Witness
from outrider.crawler.domain_upkeep import RECALCULATE_EVERY_S, WAKE_EVERY_S, DomainUpkeep
from outrider.crawler.plan import CrawlPlan
from outrider.crawler.scheduling import Scheduling
from outrider.model.errors import StoreError
from outrider.model.identifiers import new_uuid7
from outrider.model.job import WorkerIdentity, WorkerKind
from outrider.model.settings import Settings
from outrider.store.opening import Stores

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
"""How often to look for jobs and wishes; news make it sooner."""
HEALTH_EVERY_S: Final = 0.25
STORE_AGAIN_S: Final = 0.5
SCHEDULES_EVERY_S: Final = 1.0
MEMORY_LIMIT: Final = 2 << 30
LEAVES_WITHIN_S: Final = 15.0


class SupervisorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a supervisor runs jobs."""

    runners: int
    command: tuple[str, ...]
    """Starts a runner."""
    reach: Reach
    plan: CrawlPlan
    """What runners keep and fetch through; the rest is the job's own."""
    memory_limit: int = MEMORY_LIMIT


class Supervisor:
    """Runs jobs until it is stopped."""

    def __init__(
        self, stores: Stores, settings: Settings, options: SupervisorOptions, witness: Witness | None = None
    ) -> None:
        self.stores = stores
        self.settings = settings
        self.plan = options.plan
        self.reach = options.reach
        self.name = f"{socket.gethostname()[:150]}-{os.getpid()}-{new_uuid7()}"
        self.witness = witness or Nobody()
        self._watchdog = Watchdog(stores.control, settings, self.witness)
        self._domains = DomainUpkeep(stores.control, settings)
        self._options = options
        self._silent_limit_s = silent_limit_s(settings)
        self._pool = RunnerPool(options.command, self._silent_limit_s)
        self._tenures: dict[asyncio.Task[None], Tenure] = {}
        self._joining = Joining(self, self.name)
        self._slot_is_free = asyncio.Event()

    @property
    def running(self) -> int:
        """How many jobs it has in hand."""
        return len(self._tenures)

    async def run(self, stop: asyncio.Event) -> None:
        """Run jobs until `stop` is set; then runners stop, and their jobs wait for others, uncharged."""
        self._pool.warm()
        duties = [
            asyncio.create_task(duty)
            for duty in (
                self._repeatedly(self._register, self.settings.beat_every_ms / 1000),
                self._repeatedly(self._beat, self.settings.beat_every_ms / 1000),
                self._repeatedly(self._check_health, HEALTH_EVERY_S),
                self._repeatedly(self._submit_due, SCHEDULES_EVERY_S),
                self._repeatedly(self._watchdog.look, self.settings.watchdog_every_ms / 1000),
                self._repeatedly(self._domains.wake, WAKE_EVERY_S),
                self._repeatedly(self._domains.recalculate, RECALCULATE_EVERY_S),
            )
        ]
        looking = asyncio.create_task(self._repeatedly(self._look, 0.0))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((stopped, looking, *duties), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            looking.cancel()
            try:
                await self._leave()
            finally:
                for duty in duties:
                    duty.cancel()
                outcomes = await asyncio.gather(looking, *duties, return_exceptions=True)
                await self._pool.close()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _submit_due(self) -> None:
        await schedules.submit_due(self.stores.control)

    async def take_runner(self) -> RunnerProcess:
        """Give a runner that waits for work."""
        return await self._pool.take()

    # ------------------------------------------------------------------- claiming

    async def _look(self) -> None:
        """Hear wishes, claim what there is to claim, and wait for a moment or for news."""
        await self._hear_wishes()
        await self._claim()
        if len(self._tenures) < self._options.runners:
            await self._joining.look(self._options.runners - len(self._tenures))
        self._slot_is_free.clear()
        news = asyncio.create_task(self.stores.control.job_news(LOOK_EVERY_S))
        freed = asyncio.create_task(self._slot_is_free.wait())
        try:
            await asyncio.wait((news, freed), timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (news, freed):
                task.cancel()
            outcome, _ = await asyncio.gather(news, freed, return_exceptions=True)
        if isinstance(outcome, Exception):
            raise outcome

    async def _claim(self) -> None:
        while len(self._tenures) < self._options.runners:
            claimed_at = time.monotonic()
            job = await self.stores.control.claim_job(self.name)
            if job is None:
                return
            logger.info(
                "job %s is ours, epoch %d", job.id, job.epoch,
                extra={"action": "job_claimed", "job_id": job.id, "epoch": job.epoch},
            )  # fmt: skip
            tenure = Tenure(self, job, claimed_at)
            task = asyncio.create_task(self._see_through(tenure), name=f"job {job.id}")
            self._tenures[task] = tenure
            task.add_done_callback(self._forget)
            self._joining.make_room(self._options.runners - len(self._tenures))

    async def _see_through(self, tenure: Tenure) -> None:
        left = await tenure.run()
        self.witness.left("lost" if left is None else left.status)

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._tenures[task]
        self._slot_is_free.set()
        if not task.cancelled() and task.exception() is not None:
            # Its job is found by a watchdog.
            logger.error("a job was dropped", exc_info=task.exception(), extra={"action": "job_dropped"})

    # ------------------------------------------------------------------- watching

    async def _register(self) -> None:
        ttl_ms = self.settings.stale_after_ms
        if not await self.stores.control.beat_worker(self.name, ttl_ms=ttl_ms):
            identity = WorkerIdentity(
                worker_id=self.name,
                kind=WorkerKind.SUPERVISOR,
                mode=Scheduling.of(self.settings).mode,
                host=socket.gethostname(),
                process_id=os.getpid(),
            )
            await self.stores.control.register_worker(identity, ttl_ms=ttl_ms)

    async def _beat(self) -> None:
        self._joining.permit()
        answers = await asyncio.gather(*(tenure.beat() for tenure in self._tenures.values()), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _hear_wishes(self) -> None:
        tenures = list(self._tenures.values())
        if not tenures:
            return
        wishes = await self.stores.control.desired_states([(each.job.id, each.job.epoch) for each in tenures])
        for tenure in tenures:
            desired = wishes.get(tenure.job.id)
            tenure.tell(Lost() if desired is None else Wish(desired))

    async def _check_health(self) -> None:
        for tenure in list(self._tenures.values()):
            runner = tenure.runner
            if runner is None or not runner.is_alive:
                continue
            if runner.silent_s > self._silent_limit_s:
                tenure.tell(Silent(runner.silent_s))
            elif (used := runner.memory_bytes()) > self._options.memory_limit:
                tenure.tell(TooLarge(used, self._options.memory_limit))
        self._joining.check_health(self._silent_limit_s, self._options.memory_limit)

    async def _repeatedly(self, duty: Callable[[], Awaitable[object]], every_s: float) -> None:
        while True:
            try:
                await duty()
            except StoreError as error:
                logger.warning("the store does not answer: %s", error, extra={"action": "store_away"})
                await asyncio.sleep(STORE_AGAIN_S)
            await asyncio.sleep(every_s)

    async def _leave(self) -> None:
        """Stop all runners, give their jobs back, and be forgotten."""
        for tenure in self._tenures.values():
            tenure.tell(Leaving())
        tasks = [*self._tenures, *self._joining.leave()]
        if tasks:
            await asyncio.wait(tasks, timeout=LEAVES_WITHIN_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(StoreError):
            await self.stores.control.remove_worker(self.name)


def silent_limit_s(settings: Settings) -> float:
    """Tell for how long a runner that lives may say nothing.

    >>> silent_limit_s(Settings())
    30.0
    """
    return max(3.0, min(30.0, settings.stale_after_ms / 3000))
