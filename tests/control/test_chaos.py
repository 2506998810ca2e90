"""Chaos: processes are killed, stopped and woken, jobs paused, resumed and cancelled, the server is restarted.

Afterwards every job is where it belongs, no page is lost or counted twice, and no job ever had two runners.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from outrider.model.errors import JobConflict
from outrider.model.job import TERMINAL, Job
from outrider.model.machines import DesiredState, JobStatus
from outrider.store.sql import migrate
from tests.cli.commands import Command, command
from tests.conformance.backends import Place, PostgresBackend
from tests.control.supervised import ENVIRONMENT, Watched, runners_of, wait_until, watched
from tests.recount import check_counts
from tests.servers import PostgresServer

STALE_S = 3.0
PATIENT = {**ENVIRONMENT, "OUTRIDER_MAX_LEASE_EXPIRIES": "1000", "OUTRIDER_MAX_RETRIES": "1000"}
"""Whoever is killed all the time must not be blamed for the pages that it held."""


class Extent(NamedTuple):
    """How much chaos."""

    supervisors: int
    jobs: int
    pages: int
    seconds: float
    cancelled: int
    settles_s: float


SHORT = Extent(supervisors=3, jobs=6, pages=60, seconds=15, cancelled=1, settles_s=90)
ALONE = Extent(supervisors=1, jobs=3, pages=60, seconds=10, cancelled=1, settles_s=90)
LONG = Extent(supervisors=3, jobs=20, pages=200, seconds=120, cancelled=3, settles_s=300)


class Chaos:
    """Everything that can happen to the processes and jobs of one store."""

    def __init__(self, at: Watched, folder: Path, extent: Extent, stack: AsyncExitStack, seed: int) -> None:
        self._at = at
        self._folder = folder
        self._extent = extent
        self._stack = stack
        self._random = random.Random(seed)
        self._supervisors: list[Command] = []
        self._stopped: set[psutil.Process] = set()
        self._waking: set[asyncio.Task[None]] = set()
        self.jobs: list[Job] = []
        self.cancelled: set[str] = set()

    async def begin(self) -> None:
        """Submit the jobs and start the supervisors."""
        for base_url in self._at.site.base_urls:
            self.jobs.append(
                await self._at.submit(
                    seeds=(f"{base_url}/",), max_retries=1000, delay=0.02, concurrency=4, robots=False
                )
            )
        for _ in range(self._extent.supervisors):
            await self._start()

    async def _start(self) -> None:
        arguments = ("supervise", "--runners", "2", "--allow-private", "--no-warc", "--store", self._at.place.dsn)
        log = self._folder / f"supervisor-{len(list(self._folder.glob('*.log')))}.log"
        self._supervisors.append(
            await self._stack.enter_async_context(command(self._folder, *arguments, environment=PATIENT, log=log))
        )

    async def do_something(self) -> None:
        """Let one thing happen."""
        await self._random.choice(
            [self._kill_supervisor, self._kill_runner, self._stop_process, self._pause, self._resume, self._cancel]
        )()

    async def _kill_supervisor(self) -> None:
        victim = self._supervisors.pop(self._random.randrange(len(self._supervisors)))
        with suppress(ProcessLookupError):  # one that was started while the server was away has ended by itself
            victim.process.kill()
        await victim.process.wait()
        await self._start()

    async def _kill_runner(self) -> None:
        if runner := self._any_runner():
            with suppress(psutil.Error):
                runner.kill()

    async def _stop_process(self) -> None:
        """Stop a runner or a supervisor until its job is stale, and wake it again."""
        supervisor = psutil.Process(self._random.choice(self._supervisors).process.pid)
        process = self._random.choice([supervisor, self._any_runner()]) or supervisor
        with suppress(psutil.Error):
            process.suspend()
            self._stopped.add(process)
            waking = asyncio.create_task(self._wake_later(process))
            self._waking.add(waking)
            waking.add_done_callback(self._waking.discard)

    async def _wake_later(self, process: psutil.Process) -> None:
        await asyncio.sleep(STALE_S * 1.5)
        self._wake(process)

    def _wake(self, process: psutil.Process) -> None:
        self._stopped.discard(process)
        with suppress(psutil.Error):
            process.resume()

    def _any_runner(self) -> psutil.Process | None:
        found = []
        for supervisor in self._supervisors:
            with suppress(psutil.Error):
                found += runners_of(supervisor.process.pid)
        return self._random.choice(found) if found else None

    async def _pause(self) -> None:
        await self._wish(DesiredState.PAUSE)

    async def _resume(self) -> None:
        await self._wish(DesiredState.RUN)

    async def _cancel(self) -> None:
        if len(self.cancelled) < self._extent.cancelled and (job := await self._wish(DesiredState.CANCEL)):
            self.cancelled.add(job.id)

    async def _wish(self, desired: DesiredState) -> Job | None:
        job = self._random.choice(self.jobs)
        with suppress(JobConflict):  # it has ended
            return await self._at.stores.control.set_desired_state(job.id, desired)
        return None

    async def settle(self) -> None:
        """Wake whoever is stopped, resume every job, and wait until all have ended."""
        for task in list(self._waking):
            task.cancel()
        for process in list(self._stopped):
            self._wake(process)
        for job in self.jobs:
            with suppress(JobConflict):
                await self._at.stores.control.set_desired_state(job.id, DesiredState.RUN)
        await wait_until(self._all_have_ended, "all jobs have ended", self._extent.settles_s)

    async def _all_have_ended(self) -> bool:
        return all([(await self._at.job(job)).status in TERMINAL for job in self.jobs])


async def endure(at: Watched, folder: Path, extent: Extent, restart: Callable[[], object] | None) -> None:
    """Go through it all, and look at what is left."""
    seed = int(os.environ.get("OUTRIDER_TEST_CHAOS", "0")) or random.randrange(1, 1 << 30)
    print(f"OUTRIDER_TEST_CHAOS={seed}")
    async with AsyncExitStack() as stack:
        chaos = Chaos(at, folder, extent, stack, seed)
        await chaos.begin()
        async with asyncio.timeout(extent.seconds * 3):
            until = asyncio.get_running_loop().time() + extent.seconds
            is_due = restart is not None
            while (now := asyncio.get_running_loop().time()) < until:
                await chaos.do_something()
                if is_due and until - now < extent.seconds / 2:
                    is_due = False
                    assert restart is not None
                    await asyncio.to_thread(restart)
                await asyncio.sleep(0.5)
        await chaos.settle()
    for job in chaos.jobs:
        await check_job(at, job, extent.pages, is_cancelled=job.id in chaos.cancelled)
    await check_counts(at.place)


async def check_job(at: Watched, job: Job, pages: int, *, is_cancelled: bool) -> None:
    """Check that a job ended as it was to end, with every page once."""
    ended = await at.job(job)
    assert ended.status is (JobStatus.CANCELLED if is_cancelled else JobStatus.COMPLETED), ended
    await check_history(at, job)
    if ended.run_id is None:
        return  # cancelled before it began
    counts = await at.pages(job)
    assert counts.assigned == 0
    if not is_cancelled:
        assert (counts.completed, counts.pending, counts.failed) == (pages, 0, 0), ended
    artifacts = await at.stores.urls.artifacts(job.crawl, limit=10_000)
    done = Counter(artifact.url for artifact in artifacts if artifact.fetch.http_status == 200)
    assert (len(done), set(done.values()) or {1}) == (counts.completed, {1}), "each page was counted once"


async def check_history(at: Watched, job: Job) -> None:
    """Invariant 9, Jobs: never two live runners. Each epoch begins once, after the one before has ended."""
    running: int | None = None
    last = 0
    for step in await at.stores.control.job_history(job.id):
        if step.to_status is JobStatus.PROCESSING:
            assert running is None, "a second runner"
            assert step.epoch == last + 1, "an epoch was used twice or left out"
            running = last = step.epoch
        else:
            assert running in (None, step.epoch), "somebody of before has changed it"
            running = None


def hosts(number: int) -> list[str]:
    return [f"127.0.1.{host}" for host in range(1, number + 1)]


class OwnServer(NamedTuple):
    """A server that may be restarted, with an empty store on it."""

    server: PostgresServer
    place: Place


@pytest.fixture
def own_server(private_postgres: Callable[..., PostgresServer], request: pytest.FixtureRequest) -> OwnServer:
    server = private_postgres()
    dsn = server.create_database()
    migrate.upgrade(dsn)
    return OwnServer(server, Place(PostgresBackend(request), dsn))


async def test_jobs_on_postgresql_outlive_everything(own_server: OwnServer, tmp_path: Path) -> None:
    async with watched(own_server.place, pages=SHORT.pages, hosts=hosts(SHORT.jobs)) as at:
        await endure(at, tmp_path, SHORT, own_server.server.restart)


@pytest.mark.soak
async def test_jobs_on_postgresql_outlive_everything_for_minutes(own_server: OwnServer, tmp_path: Path) -> None:
    async with watched(own_server.place, pages=LONG.pages, hosts=hosts(LONG.jobs)) as at:
        await endure(at, tmp_path, LONG, own_server.server.restart)


async def test_jobs_on_sqlite_outlive_everything_that_happens_to_one_supervisor(
    sqlite_place: Place, tmp_path: Path
) -> None:
    async with watched(sqlite_place, pages=ALONE.pages, hosts=hosts(ALONE.jobs)) as at:
        await endure(at, tmp_path, ALONE, None)
