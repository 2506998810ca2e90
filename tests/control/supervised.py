"""Jobs under real supervisors and runners, on a real site of this machine."""

import asyncio
import os
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any, Final, TypeVar

import msgspec
import psutil

from outrider.control.messages import Reach
from outrider.control.supervisor import Supervisor, SupervisorOptions
from outrider.crawler.plan import CrawlPlan
from outrider.demo.server import DemoServer
from outrider.demo.site import SiteOptions
from outrider.model.job import Job, JobRequest
from outrider.model.machines import JobStatus
from outrider.model.order import JobOrder
from outrider.model.settings import Settings
from outrider.model.task import Counts, Kind
from outrider.store.opening import Stores, open_store
from tests.conformance.backends import Place
from tests.recount import check_counts

Found = TypeVar("Found")

QUICK: Final = Settings(
    beat_every_ms=500,
    stale_after_ms=3_000,
    watchdog_every_ms=1_000,
    retry_base_ms=100,
    crash_threshold_ms=60_000,
)
ENVIRONMENT: Final = {
    "OUTRIDER_BEAT_EVERY": "0.5",
    "OUTRIDER_STALE_AFTER": "3",
    "OUTRIDER_WATCHDOG_EVERY": "1",
    "OUTRIDER_RETRY_BASE_MS": "100",
}
"""The same for a process."""
LONG_S: Final = 40.0
"""Nothing here takes so long, unless it hangs."""
RUNNER: Final = (sys.executable, "-m", "outrider.cli.main", "runner")


async def wait_until(what: Callable[[], Awaitable[Found]], told: str, deadline_s: float = LONG_S) -> Found:
    """Ask again and again until the answer is true."""
    until = time.monotonic() + deadline_s
    while not (found := await what()):
        assert time.monotonic() < until, f"{told}: not within {deadline_s:g} s"
        await asyncio.sleep(0.02)
    return found


async def wait_for(what: Callable[[], Found | None], told: str, deadline_s: float = LONG_S) -> Found:
    """Ask again and again until the answer is true, of what need not be waited for."""

    async def ask() -> Found | None:
        return what()

    found = await wait_until(ask, told, deadline_s)
    assert found is not None
    return found


class Visits:
    """What a site was asked for, and when."""

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter()
        self.first_at: dict[str, float] = {}

    def __call__(self, at: float, _host: str, path: str, /) -> None:
        """Count one request."""
        self.paths[path] += 1
        self.first_at.setdefault(path, at)

    async def reach(self, number: int) -> None:
        """Wait until so many requests have come."""
        await wait_for(lambda: self.paths.total() >= number, f"{number} requests, of which came {self.paths.total()}")


class Watched:
    """A store with jobs, and the site that they crawl."""

    def __init__(self, place: Place, stores: Stores, site: DemoServer, visits: Visits) -> None:
        self.place = place
        self.stores = stores
        self.site = site
        self.visits = visits

    async def submit(self, *, max_retries: int = 3, priority: int = 0, **order: Any) -> Job:
        """Submit a job that is in no hurry to be polite."""
        wanted: dict[str, Any] = {"seeds": (f"{self.site.base_url}/",), "delay": 0.0, "per_domain": 4, "timeout": 5.0}
        payload = msgspec.to_builtins(JobOrder(**wanted | order))
        request = JobRequest(payload=payload, max_retries=max_retries, priority=priority)
        return await self.stores.control.submit_job(request)

    async def job(self, job: Job) -> Job:
        """Read a job as it is now."""
        found = await self.stores.control.get_job(job.id)
        assert found is not None
        return found

    async def becomes(self, job: Job, *statuses: JobStatus) -> Job:
        """Wait until a job has one of these states."""
        seen = job

        async def is_there() -> Job | None:
            nonlocal seen
            seen = await self.job(job)
            return seen if seen.status in statuses else None

        try:
            found = await wait_until(is_there, f"job is {' or '.join(statuses)}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {seen}") from None
        assert found is not None
        return found

    async def pages(self, job: Job) -> Counts:
        """Count the pages of a job's crawl."""
        return (await self.stores.urls.counts_by_kind(job.crawl)).get(Kind.PAGE, Counts())

    async def steps(self, job: Job) -> list[tuple[str, int]]:
        """The states through which a job went, each with its epoch."""
        return [(step.to_status.value, step.epoch) for step in await self.stores.control.job_history(job.id)]

    async def check_whole(self, job: Job, pages: int) -> None:
        """Check that every page was completed, none is in flight, and every count is right."""
        counts = await self.pages(job)
        assert (counts.completed, counts.pending, counts.assigned, counts.failed) == (pages, 0, 0, 0)
        await check_counts(self.place)

    @asynccontextmanager
    async def supervised(
        self, runners: int = 1, settings: Settings = QUICK, *, memory_limit: int = 2 << 30, is_warm: bool = False
    ) -> AsyncIterator[Supervisor]:
        """Have a supervisor in this process, with runners in others; leaving is an orderly stop."""
        options = SupervisorOptions(
            runners=runners,
            command=RUNNER,
            reach=Reach(store=self.place.dsn),
            plan=CrawlPlan(warc=False, allow_private=True),
            memory_limit=memory_limit,
        )
        stop = asyncio.Event()
        async with await open_store(self.place.dsn, settings) as stores:
            supervisor = Supervisor(stores, settings, options)
            running = asyncio.create_task(supervisor.run(stop))
            try:
                if is_warm:
                    spare = await wait_for(lambda: supervisor._pool._spare, "a spare runner")
                    await wait_for(spare.done, "a warm one")
                yield supervisor
            finally:
                stop.set()
                await running


@asynccontextmanager
async def watched(place: Place, *, pages: int = 60, hosts: Sequence[str] = ("127.0.0.1",)) -> AsyncIterator[Watched]:
    """Open an empty store, and serve a site."""
    visits = Visits()
    async with AsyncExitStack() as stack:
        options = SiteOptions(pages=pages, oddities=False)
        site = await stack.enter_async_context(DemoServer(options, hosts=hosts, on_request=visits))
        stores = await stack.enter_async_context(await open_store(place.dsn, QUICK))
        yield Watched(place, stores, site, visits)


def runners_of(process_id: int) -> list[psutil.Process]:
    """List the runners that a supervisor's process has, those at work first."""
    found = []
    for child in psutil.Process(process_id).children():
        try:
            if "runner" in child.cmdline():
                found.append(child)
        except psutil.Error:
            continue
    return sorted(found, key=lambda child: child.create_time())


async def runner_of(supervisor: Supervisor) -> int:
    """Wait until a job has a runner; give the number of its process."""

    def find() -> int:
        runners = [tenure.runner for tenure in supervisor._tenures.values() if tenure.runner is not None]
        return runners[0].process_id if runners else 0

    return await wait_for(find, "a runner")


async def freeze(process_id: int, place: Place) -> None:
    """Stop a process in its tracks, but not while it has a file to itself: then nobody else could work either."""
    file = place.dsn.removeprefix("sqlite:///") if place.dsn.startswith("sqlite") else None

    def is_frozen() -> bool:
        send(process_id, signal.SIGSTOP)
        if file is None:
            return True
        try:
            with closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as database:
                database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            send(process_id, signal.SIGCONT)
            return False
        return True

    await wait_for(is_frozen, "it is frozen")


def send(process_id: int, number: signal.Signals) -> None:
    """Send a signal."""
    os.kill(process_id, number)
