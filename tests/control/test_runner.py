"""A runner as a process: what it does at the ends of its pipes."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from outrider.control.messages import PERMIT_OVER, Begin, Reach
from outrider.control.runner_process import Died, Ended, Failed, RunnerProcess
from outrider.crawler.plan import CrawlPlan
from outrider.demo.server import DemoServer
from outrider.demo.site import SiteOptions
from outrider.model.settings import Settings
from outrider.model.task import CrawlLimits, CrawlRules, Discovered, DiscoveryType
from outrider.store.opening import open_store
from outrider.store.sql import migrate
from tests.control.supervised import RUNNER, Visits, wait_for
from tests.servers import PostgresServer

SLOW = CrawlLimits(delay_ms=200, robots=False)
FAST = CrawlLimits(delay_ms=0, concurrency=4, robots=False)


def begin(dsn: str, permit_s: float = 60.0, *, joins: bool = False) -> Begin:
    return Begin(
        crawl="c",
        worker="runner",
        plan=CrawlPlan(warc=False, allow_private=True),
        settings=Settings(),
        reach=Reach(store=dsn),
        lease_ms=60_000,
        permit_until=time.monotonic() + permit_s,
        joins=joins,
    )


@pytest.fixture
async def dsn(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.sqlite"


async def seeded(dsn: str, site: DemoServer, limits: CrawlLimits) -> None:
    async with await open_store(dsn) as stores:
        await stores.urls.create_crawl("c", CrawlRules(), limits)
        await stores.urls.widen_scope("c", [f"{site.base_url}/"])
        await stores.urls.add("c", [Discovered(url=f"{site.base_url}/", discovery_type=DiscoveryType.SEED)])


async def assigned(dsn: str) -> int:
    async with await open_store(dsn) as stores:
        return (await stores.urls.counts("c")).assigned


async def next_event(runner: RunnerProcess) -> Ended | Failed | Died:
    async with asyncio.timeout(30):
        return await runner.next_event()


async def test_it_tells_how_its_crawl_ended_and_waits_for_what_is_said_to_that(dsn: str) -> None:
    async with DemoServer(SiteOptions(pages=5, oddities=False)) as site:
        await seeded(dsn, site, FAST)
        runner = await RunnerProcess.start(RUNNER)
        runner.begin(begin(dsn))
        assert await next_event(runner) == Ended("drained")
        assert (runner.progress.fetched, runner.progress.in_flight, runner.is_alive) == (5, 0, True)
        runner.go_on()
        assert await next_event(runner) == Ended("drained")
        runner.stop()
        assert await next_event(runner) == Died(0)
        await runner.leave()


async def test_it_stops_when_told_to_and_has_nothing_in_flight_then(dsn: str) -> None:
    visits = Visits()
    async with DemoServer(SiteOptions(pages=50, oddities=False), on_request=visits) as site:
        await seeded(dsn, site, SLOW)
        runner = await RunnerProcess.start(RUNNER)
        runner.begin(begin(dsn))
        await visits.reach(2)
        runner.stop()
        assert await next_event(runner) == Ended("stopped")
        assert await assigned(dsn) == 0
        await runner.leave()


async def test_without_a_supervisor_it_gives_back_what_it_holds_and_ends(dsn: str) -> None:
    visits = Visits()
    async with DemoServer(SiteOptions(pages=50, oddities=False), on_request=visits) as site:
        await seeded(dsn, site, SLOW)
        runner = await RunnerProcess.start(RUNNER)
        runner.begin(begin(dsn))
        await visits.reach(2)
        await runner.leave()  # closes our end of the pipe
        assert await next_event(runner) == Died(0)
        assert await assigned(dsn) == 0


async def test_it_ends_when_its_permit_has_run_out(dsn: str) -> None:
    async with DemoServer(SiteOptions(pages=50, oddities=False)) as site:
        await seeded(dsn, site, SLOW)
        runner = await RunnerProcess.start(RUNNER)
        began = time.monotonic()
        runner.begin(begin(dsn, permit_s=0.5))
        runner.permit(began + 1.0)
        assert await next_event(runner) == Died(PERMIT_OVER)
        assert time.monotonic() - began >= 1.0
        await runner.leave()


async def test_a_permit_that_came_while_it_was_stopped_is_worth_what_is_left_of_it(dsn: str) -> None:
    async with DemoServer(SiteOptions(pages=50, oddities=False)) as site:
        await seeded(dsn, site, SLOW)
        runner = await RunnerProcess.start(RUNNER)
        runner.begin(begin(dsn, permit_s=20))
        await wait_for(lambda: runner.progress.fetched, "a page")
        os.kill(runner.process_id, signal.SIGSTOP)
        runner.permit(time.monotonic() + 0.3)
        await asyncio.sleep(0.4)
        os.kill(runner.process_id, signal.SIGCONT)
        resumed = time.monotonic()
        assert await next_event(runner) == Died(PERMIT_OVER)
        assert time.monotonic() - resumed < 5
        await runner.leave()


async def test_what_keeps_it_from_working_is_told_with_whether_it_may_pass(dsn: str) -> None:
    runner = await RunnerProcess.start(RUNNER)
    runner.begin(begin(dsn))
    event = await next_event(runner)
    assert isinstance(event, Failed)
    assert (event.error.kind, event.error.transient) == ("unknown_crawl", False)
    await runner.leave()
    runner = await RunnerProcess.start(RUNNER)
    runner.begin(msgspec.structs.replace(begin(dsn), reach=Reach(store=f"{dsn}/in/a/file")))
    event = await next_event(runner)
    assert isinstance(event, Failed)
    assert event.error.transient, event
    await runner.leave()


async def test_signals_of_a_terminal_are_left_to_the_supervisor() -> None:
    runner = await RunnerProcess.start(RUNNER)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(runner.process_id, number)
    heard_at = runner._heard_at
    await wait_for(lambda: runner._heard_at > heard_at, "another line")
    assert runner.is_alive
    await runner.leave()


async def test_one_that_is_frozen_while_it_starts_is_ended() -> None:
    runner = await RunnerProcess.start(("sh", "-c", "kill -STOP $$"), within_s=0.2)
    assert await next_event(runner) == Died(-signal.SIGKILL)
    assert not runner.is_alive


async def test_it_waits_for_a_store_that_is_being_restarted(private_postgres: Callable[..., PostgresServer]) -> None:
    async with DemoServer(SiteOptions(pages=3, oddities=False)) as site:
        server = private_postgres()
        dsn = server.create_database()
        await asyncio.to_thread(migrate.upgrade, dsn)
        await seeded(dsn, site, FAST)
        server.stop()
        runner = await RunnerProcess.start(RUNNER)
        runner.begin(begin(dsn))
        heard_at = runner._heard_at
        await wait_for(lambda: runner._heard_at > heard_at, "another line")
        server.start()
        assert await next_event(runner) == Ended("drained")
        await runner.leave()
