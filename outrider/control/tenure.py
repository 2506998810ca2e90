"""A tenure: one epoch of a job in a supervisor's hands, from the claim to the end.

Whatever happens to the job or to its runner arrives as an event, one after the other, and each is answered by going
on, by stopping the runner, or by the ending with which the job is given out of hand. Before that the runner has
stopped working or is dead, so that there are never two.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

import msgspec

from outrider.control.errors import judged
from outrider.control.job_progress import percentage_of
from outrider.control.messages import PERMIT_OVER, STOPPED, Begin, Reach, RunnerError
from outrider.control.preparing import order_of, plan_of, prepare
from outrider.control.runner_process import Died, Ended, Failed, RunnerEvent, RunnerProcess
from outrider.control.witness import Witness
from outrider.crawler.execution import GRACE_S
from outrider.crawler.plan import CrawlPlan
from outrider.model.errors import JobConflict, JobUnfinished, OutriderError, StoreError
from outrider.model.job import Job, JobEnding, runner_name
from outrider.model.machines import DesiredState, JobStatus
from outrider.model.order import JobOrder
from outrider.model.settings import Settings
from outrider.model.task import Counts, Kind
from outrider.store.opening import Stores

logger = logging.getLogger(__name__)

STOPS_WITHIN_S: Final = GRACE_S + 2.0
"""A runner that was asked to stop has so long; then it is killed, and what it held is given back for it."""
STORE_AGAIN_S: Final = 0.5
PERMITTED: Final = 0.75
"""The share of the time until a job counts as stale for which its runner may work after a beat."""


class Silent(NamedTuple):
    """The runner has said nothing for too long."""

    seconds: float


class TooLarge(NamedTuple):
    """The runner has more memory in use than it may."""

    bytes: int
    allowed: int


class Wish(NamedTuple):
    """What the user asks for."""

    desired: DesiredState


class Lost(NamedTuple):
    """The job is no longer ours."""


class Leaving(NamedTuple):
    """The supervisor stops."""


class Overdue(NamedTuple):
    """The runner did not stop in time."""


Event = RunnerEvent | Silent | TooLarge | Wish | Lost | Leaving | Overdue


class Hands(Protocol):
    """What a tenure needs of its supervisor."""

    stores: Stores
    settings: Settings
    plan: CrawlPlan
    reach: Reach
    witness: Witness

    async def take_runner(self) -> RunnerProcess:
        """Give a runner that waits for work."""
        ...


class Tenure:
    """One epoch of a job."""

    def __init__(self, hands: Hands, job: Job, claimed_at: float) -> None:
        self.job = job
        self._hands = hands
        self._permit_until = claimed_at + permitted_s(hands.settings)
        """`claimed_at` is of before the claim was asked for, on the monotonic clock."""
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self.runner: RunnerProcess | None = None
        self._order: JobOrder | None = None
        self._is_stopping = False
        self._desired = job.desired_state

    # --------------------------------------------------------- for the supervisor

    def tell(self, event: Event) -> None:
        """Say that something has happened."""
        if isinstance(event, Wish):
            if event.desired is self._desired:
                return
            self._desired = event.desired
        self._events.put_nowait(event)

    async def beat(self) -> None:
        """Say that the job is run, with its progress, and let the runner go on for as long as that is good for."""
        sent_at = time.monotonic()
        control, runner = self._hands.stores.control, self.runner
        progress = None if runner is None else msgspec.to_builtins(runner.progress)
        percentage = None if runner is None else await self._percentage()
        desired = await control.beat_job(self.job.id, self.job.epoch, percentage=percentage, progress=progress)
        if desired is None:
            self.tell(Lost())
            return
        self._permit_until = sent_at + permitted_s(self._hands.settings)
        if self.runner is not None:
            self.runner.permit(self._permit_until)
        self.tell(Wish(desired))

    async def _percentage(self) -> int | None:
        """Tell how far it is, of the limit that the crawl has now: it may have been amended since the claim."""
        urls, crawl = self._hands.stores.urls, self.job.crawl
        with suppress(OutriderError):
            pages = (await urls.counts_by_kind(crawl)).get(Kind.PAGE, Counts())
            return percentage_of(JobStatus.PROCESSING, pages, (await urls.get_crawl(crawl)).limits.max_pages)
        return None

    # --------------------------------------------------------------- from the claim

    async def run(self) -> Job | None:
        """See the job through; give it as it was left, or None where it was lost."""
        try:
            try:
                await self._begin()
            except Exception as error:  # whatever it is, the job must not wait to be found stale
                logger.warning(
                    "job %s cannot begin: %s", self.job.id, error,
                    exc_info=not isinstance(error, OutriderError), extra={"action": "job_refused"},
                )  # fmt: skip
                return await self._finish(self._after_error(judged(error)))
            return await self._watch()
        finally:
            if self.runner is not None:
                await self.runner.leave()
            await self._free_claims()

    async def _free_claims(self) -> None:
        """Free what the runner has claimed; a killed one did not."""
        if self._hands.settings.enable_claim_protocol:
            with suppress(StoreError):  # they expire
                await self._hands.stores.control.release_all_claims(runner_name(self.job.id, self.job.epoch))

    async def _begin(self) -> None:
        hands, job = self._hands, self.job
        self._order = order = order_of(job)
        run = await prepare(hands.stores, job, order, hands.settings)
        self.runner = await hands.take_runner()
        self.runner.begin(
            Begin(
                crawl=job.crawl,
                worker=runner_name(job.id, job.epoch),
                run_id=run.id,
                plan=plan_of(order, hands.plan),
                settings=hands.settings,
                reach=hands.reach,
                lease_ms=lease_ms(hands.settings),
                permit_until=self._permit_until,
            )
        )

    async def _watch(self) -> Job | None:
        assert self.runner is not None
        listening = asyncio.create_task(self._listen(self.runner))
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, Lost):
                    logger.warning("job %s is no longer ours", self.job.id, extra={"action": "job_lost"})
                    await self._kill()
                    return None
                ending = await self._answer(event)
                if ending is None:
                    continue
                try:
                    return await self._finish(ending)
                except JobUnfinished:
                    self.runner.go_on()
        finally:
            listening.cancel()

    async def _listen(self, runner: RunnerProcess) -> None:
        while True:
            event = await runner.next_event()
            self.tell(event)
            if isinstance(event, Died):
                return

    async def _answer(self, event: Event) -> JobEnding | None:
        """Decide what to do about an event: an ending, or None to go on."""
        match event:
            case Ended(reason):
                return self._after_end(reason)
            case Failed(error):
                await self._kill()
                return self._after_error(error)
            case Died(code):
                if self._is_stopping or code == PERMIT_OVER:
                    return JobEnding(outcome=JobStatus.PAUSED)
                return self._transient("runner_died", f"the runner died: {event.told}")
            case Silent(seconds):
                await self._kill()
                return self._transient("runner_frozen", f"the runner said nothing for {seconds:.1f} s")
            case TooLarge(used, allowed):
                await self._kill()
                message = f"the runner used {used >> 20:,} MiB of memory, of which it may have {allowed >> 20:,}"
                return self._transient("out_of_memory", message)
            case Wish(desired):
                self._stop(at_once=desired is DesiredState.CANCEL, wanted=desired is not DesiredState.RUN)
            case Leaving():
                self._stop(at_once=False, wanted=True)
            case Overdue():
                logger.warning("the runner of job %s does not stop", self.job.id, extra={"action": "runner_overdue"})
                await self._kill()
                return JobEnding(outcome=JobStatus.PAUSED)
            case Lost():
                pass
        return None

    def _stop(self, *, at_once: bool, wanted: bool) -> None:
        """Ask the runner to stop; one that is stopping stops, whatever is wished for then."""
        if not wanted or self.runner is None:
            return
        self.runner.stop(at_once=at_once)
        if not self._is_stopping:
            self._is_stopping = True
            asyncio.get_running_loop().call_later(STOPS_WITHIN_S, self.tell, Overdue())

    async def _kill(self) -> None:
        """End the runner, and wait until it is gone."""
        if self.runner is not None:
            self.runner.kill()
            await self.runner.leave()

    # ------------------------------------------------------------------- to the end

    def _after_end(self, reason: str) -> JobEnding:
        if reason == STOPPED or self._order is None:
            return JobEnding(outcome=JobStatus.PAUSED)
        max_wait_ms = round(self._order.max_wait * 1000)
        return JobEnding(outcome=JobStatus.COMPLETED, reason=reason, max_wait_ms=max_wait_ms)

    def _after_error(self, error: RunnerError) -> JobEnding:
        if error.transient:
            return self._transient(error.kind, error.message)
        return JobEnding(outcome=JobStatus.FAILED, error_kind=error.kind, error_message=error.message)

    def _transient(self, kind: str, message: str) -> JobEnding:
        self._hands.witness.runner_failed(kind)
        settings = self._hands.settings
        wait_ms = min(settings.retry_base_ms << min(self.job.retry_count, 30), settings.retry_cap_ms)
        return JobEnding(outcome=JobStatus.PENDING, error_kind=kind, error_message=message, retry_in_ms=wait_ms)

    async def _finish(self, ending: JobEnding) -> Job | None:
        """Write down how the epoch ended, as often as it takes; raises `JobUnfinished`."""
        job, control = self.job, self._hands.stores.control
        if self.runner is not None:
            with suppress(StoreError):
                await self.beat()  # the last that is known of its progress
        try:
            left = await _until_the_store_answers(lambda: control.finish_job(job.id, job.epoch, ending))
        except JobConflict as error:
            logger.warning("job %s is no longer ours: %s", job.id, error, extra={"action": "job_lost"})
            return None
        logger.info(
            "job %s is %s: %s", job.id, left.status, ending.error_message or ending.reason or ending.outcome,
            extra={"action": "job_left", "job_id": job.id, "status": left.status.value},
        )  # fmt: skip
        if left.run_id is not None and self._hands.settings.enable_domain_tracking:
            with suppress(StoreError):  # within the hour it is done for all
                await control.recalculate_run(left.run_id)
        return left


def permitted_s(settings: Settings) -> float:
    """Tell how long a runner may work after its supervisor began to beat."""
    return PERMITTED * settings.stale_after_ms / 1000


def lease_ms(settings: Settings) -> int:
    """Tell how long the leases of a runner last: no longer than its job would be waited for."""
    return min(settings.crash_threshold_ms, settings.stale_after_ms)


async def _until_the_store_answers(call: Callable[[], Awaitable[Job]]) -> Job:
    while True:
        try:
            return await call()
        except (JobConflict, JobUnfinished):
            raise
        except StoreError as error:
            logger.warning("the store does not answer, trying again: %s", error, extra={"action": "store_away"})
            await asyncio.sleep(STORE_AGAIN_S)
