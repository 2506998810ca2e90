"""`outrider supervise` and `outrider serve --with-runners` as processes: what they leave behind, however they end."""

import asyncio
import signal
import urllib.error
import urllib.request
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest

from outrider.demo.server import DemoServer
from outrider.demo.site import SiteOptions
from outrider.model.machines import JobStatus
from outrider.model.order import JobOrder
from outrider.service.job_client import RemoteDesk
from tests.cli.commands import Command, command, free_port
from tests.conformance.backends import Place
from tests.control.supervised import ENVIRONMENT, Visits, Watched, runners_of, send, wait_for, watched
from tests.crawler.crawling import wait_for as wait_for_line

PAGES = 60


async def supervise(stack: AsyncExitStack, at: Watched, folder: Path, name: str, *more: str) -> Command:
    """Start a supervisor in a process of its own."""
    arguments = ("supervise", "--runners", "1", "--allow-private", "--no-warc", "--store", at.place.dsn, "--data", name)
    started = await stack.enter_async_context(command(folder, *arguments, *more, environment=ENVIRONMENT))
    await started.says("supervising")
    return started


async def runner_at_work(at: Watched, supervising: Command, reached: int) -> psutil.Process:
    """Wait until a job is well under way; give the runner that does it."""
    await at.visits.reach(reached)
    runners = runners_of(supervising.process.pid)
    assert runners
    return runners[0]


def _metrics_of(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/jobs", timeout=10)
    return text


async def is_gone(process: psutil.Process) -> None:
    await wait_for(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "the process is gone")


async def test_a_runner_whose_supervisor_is_killed_stops_itself_and_another_supervisor_goes_on(
    place: Place, tmp_path: Path
) -> None:
    """Invariant 5, Nothing lost; Invariant 9, Jobs: at most one live runner."""
    async with watched(place, pages=PAGES) as at, AsyncExitStack() as stack:
        first = await supervise(stack, at, tmp_path, "first")
        job = await at.submit(delay=0.05, per_domain=1)
        runner = await runner_at_work(at, first, 5)
        first.process.kill()
        await is_gone(runner)
        assert (await at.job(job)).status is JobStatus.PROCESSING, "nobody could say so"
        port = free_port()
        second = await supervise(stack, at, tmp_path, "second", "--metrics", f"127.0.0.1:{port}")
        assert f"Recovering stale job {job.id} (Retry 1/3)" in await second.says("Recovering")
        ended = await at.becomes(job, JobStatus.COMPLETED)
        assert (ended.epoch, ended.retry_count) == (2, 1)
        await at.check_whole(job, PAGES)
        left = 'outrider_jobs_left_total{status="completed"} 1.0'
        await asyncio.to_thread(wait_for_line, lambda: left in _metrics_of(port))
        assert 'outrider_jobs_recovered_total{status="pending"} 1.0' in _metrics_of(port)


async def test_a_supervisor_that_was_stopped_for_too_long_can_change_nothing_when_it_goes_on(
    postgres_place: Place, tmp_path: Path
) -> None:
    """Invariant 9, Jobs: fenced by the epoch."""
    async with watched(postgres_place, pages=PAGES) as at, AsyncExitStack() as stack:
        first = await supervise(stack, at, tmp_path, "first")
        job = await at.submit(delay=0.05, per_domain=1)
        runner = await runner_at_work(at, first, 5)
        send(first.process.pid, signal.SIGSTOP)
        await is_gone(runner)  # before the job is stale
        second = await supervise(stack, at, tmp_path, "second")
        await at.becomes(job, JobStatus.PENDING, JobStatus.COMPLETED)
        await wait_for(lambda: len(runners_of(second.process.pid)) > 0, "a runner of the second")
        send(first.process.pid, signal.SIGCONT)
        await first.says("no longer ours")
        ended = await at.becomes(job, JobStatus.COMPLETED)
        assert (ended.epoch, ended.retry_count) == (2, 1)
        await at.check_whole(job, PAGES)


async def test_a_runner_that_wakes_up_after_its_job_went_to_another_can_change_nothing(
    postgres_place: Place, tmp_path: Path
) -> None:
    """Invariant 2, Exclusivity, and Invariant 9, Jobs."""
    async with watched(postgres_place, pages=PAGES) as at, AsyncExitStack() as stack:
        first = await supervise(stack, at, tmp_path, "first")
        job = await at.submit(delay=0.05, per_domain=1)
        runner = await runner_at_work(at, first, 5)
        runner.suspend()
        stack.callback(runner.kill)
        first.process.kill()
        await supervise(stack, at, tmp_path, "second")
        await at.becomes(job, JobStatus.COMPLETED)
        await at.check_whole(job, PAGES)
        seen, history = at.visits.paths.copy(), await at.steps(job)
        runner.resume()
        await is_gone(runner)
        await at.check_whole(job, PAGES)
        assert await at.steps(job) == history
    assert at.visits.paths == seen, "it did not even ask"


async def test_a_service_with_runners_on_sqlite_does_it_all(tmp_path: Path) -> None:
    visits = Visits()
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(DemoServer(SiteOptions(pages=40, oddities=False), on_request=visits))
        arguments = ("serve", "--port", "0", "--allow-private", "--with-runners", "2")
        serving = await stack.enter_async_context(command(tmp_path, *arguments, environment=ENVIRONMENT))
        base_url = (await serving.says("serving")).split(" on ")[1].split(",")[0]
        door = tmp_path / "outrider-data" / "service.sock"
        assert not door.exists() or door.stat().st_mode & 0o777 == 0o600
        desk = await stack.enter_async_context(RemoteDesk(base_url))
        order = JobOrder(seeds=(f"{site.base_url}/",), delay=0.0, per_domain=4)
        jobs = [await desk.submit(order) for _ in range(3)]
        for job in jobs:
            assert [event.kind async for event in desk.events(job.id)][-1] == "state"
            view = await desk.show(job.id)
            assert (view.job.status, view.job.reason) == (JobStatus.COMPLETED, "drained")
            assert (await desk.progress(job.id)).done == 40
        serving.process.send_signal(signal.SIGTERM)
        assert await serving.ends() == 0, serving.said
    assert {visits.paths[path] for path in site.site.page_paths()} == {3}
    assert list((tmp_path / "outrider-data" / "warc").glob("*.warc.gz"))
    assert not door.exists()


async def test_an_orderly_stop_of_the_command_ends_its_runners_and_gives_the_job_back(
    sqlite_place: Place, tmp_path: Path
) -> None:
    async with watched(sqlite_place, pages=PAGES) as at, AsyncExitStack() as stack:
        first = await supervise(stack, at, tmp_path, "first")
        job = await at.submit(delay=0.1, per_domain=1)
        runner = await runner_at_work(at, first, 5)
        first.process.terminate()
        assert await first.ends() == 0, first.said
        await is_gone(runner)
        left = await at.job(job)
        assert (left.status, left.retry_count) == (JobStatus.PENDING, 0)
