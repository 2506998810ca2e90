"""`outrider work`: the crawler at work for a service, in processes of its own."""

import asyncio
import signal
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from outrider.cli import main
from outrider.cli.exits import ExitCode
from outrider.demo.server import DemoServer
from outrider.demo.site import SiteOptions
from outrider.model.task import CrawlLimits, CrawlRules, Discovered, DiscoveryType
from outrider.service.client import RemoteFrontier, connect
from tests.cli.commands import Command, command, free_port

PAGES = 300
FAST = CrawlLimits(delay_ms=0, concurrency=8)


class Visits:
    """Counts what a site is asked for."""

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter()
        self._changed = asyncio.Event()

    def __call__(self, _time: float, _host: str, path: str, /) -> None:
        """Count one request."""
        self.paths[path] += 1
        self._changed.set()

    async def reach(self, number: int) -> None:
        """Wait until so many requests have come."""
        async with asyncio.timeout(30):
            while self.paths.total() < number:
                self._changed.clear()
                await self._changed.wait()


def archives(folder: Path) -> list[Path]:
    return list(folder.glob("*/warc/*.warc.gz"))


async def serve(stack: AsyncExitStack, folder: Path, port: int, *more: str) -> Command:
    serving = await stack.enter_async_context(command(folder, "serve", "--allow-private", "--port", str(port), *more))
    await serving.says("serving")
    return serving


async def seed(frontier: RemoteFrontier, site: DemoServer, crawl: str = "demo") -> None:
    await frontier.create_crawl(crawl, CrawlRules(), FAST)
    await frontier.add(crawl, [Discovered(url=f"{site.base_url}/", discovery_type=DiscoveryType.SEED)])


def work(port: int, *more: str) -> tuple[str, ...]:
    return ("work", "--frontier", f"http://127.0.0.1:{port}", "--allow-private", "--concurrency", "8", *more)


async def test_workers_outlive_kills_of_the_service_and_lose_and_double_nothing(tmp_path: Path) -> None:
    """Invariant 5, Nothing lost, and Invariant 2, Exclusivity, while the service is killed with -9 twice."""
    visits, port = Visits(), free_port()
    options = SiteOptions(pages=PAGES, oddities=False)
    async with DemoServer(options, on_request=visits) as site, AsyncExitStack() as stack:
        serving = await serve(stack, tmp_path, port)
        frontier = await stack.enter_async_context(connect(f"http://127.0.0.1:{port}"))
        await seed(frontier, site)
        workers = [
            await stack.enter_async_context(
                command(tmp_path, *work(port, "--crawl", "demo", "--until-done", "--data", name))
            )
            for name in ("first", "second")
        ]
        for reached in (PAGES // 4, PAGES // 2):
            await visits.reach(reached)
            serving.process.kill()
            await serving.ends()
            serving = await serve(stack, tmp_path, port)
        assert [await worker.ends() for worker in workers] == [0, 0]
        counts = (await frontier.show_crawl("demo")).counts["page"]
    assert (counts.completed, counts.pending, counts.assigned, counts.failed) == (PAGES, 0, 0, 0)
    assert visits.paths == Counter([*site.site.page_paths(), "/robots.txt"])
    assert archives(tmp_path)


async def test_a_worker_for_any_crawl_serves_all_and_gives_back_what_it_holds_when_stopped(tmp_path: Path) -> None:
    visits, port = Visits(), free_port()
    async with (
        DemoServer(SiteOptions(pages=20, oddities=False), on_request=visits) as site,
        DemoServer(SiteOptions(pages=30, oddities=False), on_request=visits) as other,
        AsyncExitStack() as stack,
    ):
        await serve(stack, tmp_path, port)
        frontier = await stack.enter_async_context(connect(f"http://127.0.0.1:{port}"))
        await seed(frontier, site, "one")
        await seed(frontier, other, "two")
        worker = await stack.enter_async_context(command(tmp_path, *work(port, "--any", "--no-warc")))
        await visits.reach(20 + 30 + 2)
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.ends() == 0
        for crawl, pages in (("one", 20), ("two", 30)):
            counts = (await frontier.show_crawl(crawl)).counts["page"]
            assert (counts.completed + counts.pending, counts.assigned) == (pages, 0)


async def test_a_seed_that_was_not_called_one_is_followed_all_the_same(tmp_path: Path) -> None:
    port = free_port()
    async with DemoServer(SiteOptions(pages=10, oddities=False)) as site, AsyncExitStack() as stack:
        await serve(stack, tmp_path, port)
        frontier = await stack.enter_async_context(connect(f"http://127.0.0.1:{port}"))
        await frontier.create_crawl("demo", CrawlRules(), FAST)
        await frontier.add("demo", [Discovered(url=f"{site.base_url}/")])
        worker = await stack.enter_async_context(
            command(tmp_path, *work(port, "--crawl", "demo", "--until-done", "--no-warc"))
        )
        assert await worker.ends() == 0
        assert (await frontier.show_crawl("demo")).counts["page"].completed == 10
        assert await frontier.scope_roots("demo") == [f"{site.base_url}/"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--frontier", "http://127.0.0.1:9"], "--crawl NAME, or work for all with --any"),
        (["--frontier", "http://127.0.0.1:9", "--crawl", "a", "--any"], "--crawl NAME, or work for all with --any"),
        (["--frontier", "http://127.0.0.1:9", "--any", "--until-done"], "--until-done is for one crawl"),
        (["--frontier", "nowhere", "--any"], "a service's address is like"),
        (["--frontier", "http://127.0.0.1:9", "--any", "--concurrency", "0"], "--concurrency must be between"),
    ],
)
def test_what_makes_no_sense_is_told(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["outrider", "work", *arguments])
    with pytest.raises(SystemExit) as ending:
        main.main()
    assert ending.value.code == ExitCode.REFUSED
    assert told in capsys.readouterr().err


async def test_a_crawl_that_is_none_is_told_at_once(tmp_path: Path) -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        await serve(stack, tmp_path, port)
        worker = await stack.enter_async_context(command(tmp_path, *work(port, "--crawl", "none")))
        assert await worker.ends() == 4
        assert "there is no crawl named 'none'" in worker.said


async def test_a_crawl_may_be_kept_by_a_service(tmp_path: Path) -> None:
    port = free_port()
    visits = Visits()
    async with AsyncExitStack() as stack:
        await serve(stack, tmp_path, port)
        options = SiteOptions(pages=40, oddities=False)
        site = await stack.enter_async_context(DemoServer(options, on_request=visits))
        arguments = ("crawl", f"{site.base_url}/", "--delay", "0", "--per-domain", "8", "--allow-private")
        service = ("--frontier", f"http://127.0.0.1:{port}", "--crawl", "kept", "--data", "worker")
        crawling = await stack.enter_async_context(command(tmp_path, *arguments, *service))
        assert await crawling.ends() == ExitCode.OK, crawling.said
        frontier = await stack.enter_async_context(connect(f"http://127.0.0.1:{port}"))
        assert (await frontier.show_crawl("kept")).counts["page"].completed >= 40
    assert {visits.paths[path] for path in site.site.page_paths()} == {1}
    assert not (tmp_path / "worker" / "outrider.sqlite").exists(), "the service has it"


async def test_what_the_service_keeps_is_not_asked_of_a_remote_crawl(tmp_path: Path) -> None:
    refused = ("crawl", "https://example.org", "--frontier", "http://127.0.0.1:9", "--output", "pages.jsonl")
    async with command(tmp_path, *refused) as crawling:
        assert await crawling.ends() == ExitCode.REFUSED
    assert "--output is for a crawl in this process" in crawling.said
