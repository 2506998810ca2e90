"""The worker: what it holds it keeps or gives back, and what it found is stored before it is done."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from outrider.crawler.exchange import FetchLimits
from outrider.crawler.fetch import Fetcher
from outrider.crawler.links import Links
from outrider.crawler.progress import Progress
from outrider.crawler.visit import Visitor
from outrider.crawler.warc import WarcWriter
from outrider.crawler.worker import LINKS_AT_ONCE, Worker
from outrider.frontier.local import LocalFrontier
from outrider.model.errors import StoreError
from outrider.model.lease import Lease, LeaseGrant, Report, ReportAnswer, Verdict
from outrider.model.machines import TaskState
from outrider.model.task import CrawlLimits, CrawlRules, Discovered, DiscoveryType, Task
from outrider.policy.scope import scope_of
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from tests.crawler.raw_server import Answer, Exchange, RawServer, page, serving

HTML = "Content-Type: text/html"
LIMITS = CrawlLimits(delay_ms=0, concurrency=8, robots=False)


class Bench(NamedTuple):
    """A worker with all that it needs, and a site."""

    server: RawServer
    urls: UrlStore
    frontier: LocalFrontier
    worker: Worker
    stop: asyncio.Event

    async def task(self, path: str = "/") -> Task:
        task = await self.urls.find_task("c", self.server.url(path))
        assert task is not None
        return task

    async def run(self, grace_s: float = 0.0) -> None:
        """Work until nothing is left."""

        async def is_over(grant: LeaseGrant) -> bool:
            counts = await self.urls.counts("c")
            return not counts.pending and not counts.assigned

        async with asyncio.timeout(20):
            await self.worker.run(self.stop, is_over, grace_s=grace_s)


@asynccontextmanager
async def bench(
    folder: Path,
    answers: Mapping[str, Answer],
    *,
    lease_ms: int = 60_000,
    archive: WarcWriter | None = None,
    visitors: type[Visitor] = Visitor,
    frontiers: type[LocalFrontier] = LocalFrontier,
) -> AsyncIterator[Bench]:
    fetcher = Fetcher(
        user_agent="Test/1", concurrency=8, allow_private=True, limits=FetchLimits(first_byte_s=10, total_s=10)
    )
    async with (
        serving(answers) as server,
        await open_store(f"sqlite:///{folder / 'store.sqlite'}") as stores,
        frontiers(stores.urls) as frontier,
        fetcher,
    ):
        await stores.urls.create_crawl("c", limits=LIMITS)
        await stores.urls.add("c", [Discovered(url=server.url("/"), discovery_type=DiscoveryType.SEED)])
        progress = Progress()
        links = Links(scope_of([server.url("/")]), CrawlRules(), progress, ignore_nofollow=False, sitemaps=False)
        visitor = visitors(
            frontier=frontier, fetcher=fetcher, links=links, progress=progress, agent="test", archive=archive
        )
        worker = Worker(frontier, visitor, name="w", crawl="c", slots=8, lease_ms=lease_ms)
        yield Bench(server, stores.urls, frontier, worker, asyncio.Event())


async def test_it_works_through_a_site_until_nothing_is_left(tmp_path: Path) -> None:
    answers = {f"/{number}": page(f'<a href="/{number + 1}">x</a>'.encode(), HTML) for number in range(20)}
    answers |= {"/": page(b'<a href="/0">x</a>', HTML), "/20": page()}
    async with bench(tmp_path, answers) as at:
        await at.run()
        assert (await at.urls.counts("c")).completed == 22
        assert len(at.server.heads) == 22
        assert at.worker.in_flight == 0


async def test_a_page_with_more_links_than_one_report_takes_keeps_them_all(tmp_path: Path) -> None:
    number = 2 * LINKS_AT_ONCE + 10
    markup = "".join(f'<a href="/{each}">x</a>' for each in range(number))
    async with bench(tmp_path, {"/": page(markup.encode(), HTML)}) as at:
        await at.urls.set_crawl_limits("c", CrawlLimits(delay_ms=0, robots=False, max_depth=0))
        await at.run()
        counts = await at.urls.counts("c")
        assert (counts.completed, counts.discovered) == (1, number)


async def test_the_lease_of_a_long_download_is_renewed(tmp_path: Path) -> None:
    async def slow(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        before = await lease_ends_at()
        while await lease_ends_at() == before:
            await exchange.send(b"x")

    async with bench(tmp_path, {"/": slow}, lease_ms=1_000) as at:

        async def lease_ends_at() -> int:
            holder = await at.urls.find_holder("c", at.server.url("/"))
            assert holder is not None
            return holder.expires_at

        await at.run()
        task = await at.task()
        assert (task.state, task.attempt_count) == (TaskState.COMPLETED, 1)


async def test_a_fetch_whose_lease_is_lost_is_stopped(tmp_path: Path) -> None:
    hung_up = asyncio.Event()

    async def silent(exchange: Exchange) -> None:
        await exchange.until_hung_up()
        hung_up.set()

    async with bench(tmp_path, {"/": silent}, lease_ms=400) as at:
        work = asyncio.create_task(at.run())
        await at.server.request_came.wait()
        await at.urls.delete_queue("c", f"127.0.0.1:{at.server.port}")
        async with asyncio.timeout(5):
            await hung_up.wait()
        await work
        assert (await at.urls.counts("c")).total == 0


async def test_what_is_under_way_at_the_end_of_the_grace_is_given_back(tmp_path: Path) -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.until_hung_up()

    async with bench(tmp_path, {"/": silent}) as at:
        work = asyncio.create_task(at.run(grace_s=0.05))
        await at.server.request_came.wait()
        at.stop.set()
        await work
        task = await at.task()
        assert (task.state, task.failures, task.deferrals) == (TaskState.PENDING, 0, 1)


async def test_what_finishes_within_the_grace_is_reported(tmp_path: Path) -> None:
    stopped = asyncio.Event()

    async def late(exchange: Exchange) -> None:
        await stopped.wait()
        await exchange.send(page(b'<a href="/next">x</a>', HTML, "Connection: close"))

    async with bench(tmp_path, {"/": late}) as at:
        work = asyncio.create_task(at.run(grace_s=10))
        await at.server.request_came.wait()
        at.stop.set()
        stopped.set()
        await work
        assert (await at.task()).state is TaskState.COMPLETED
        assert (await at.task("/next")).state is TaskState.PENDING


class Garbling(Visitor):
    """A visitor whose reports no store can keep."""

    async def visit(self, lease: Lease, asked_at: float) -> Report:
        report = await super().visit(lease, asked_at)
        return msgspec.structs.replace(report, fetch=msgspec.structs.replace(report.fetch, title="a\0b\ud800"))


class Breaking(Visitor):
    """A visitor that breaks, with words that no store can keep."""

    async def visit(self, lease: Lease, asked_at: float) -> Report:
        await super().visit(lease, asked_at)
        raise RuntimeError("a\0b\ud800" + "c" * 600)


class Deaf(LocalFrontier):
    """A frontier that refuses every report."""

    async def report(self, reports: Sequence[Report]) -> list[ReportAnswer]:
        return [ReportAnswer(verdict=Verdict.REJECTED, detail="a\0b\ud800") for _ in reports]


async def work_while_something_is_ready(at: Bench) -> None:
    async def is_over(grant: LeaseGrant) -> bool:
        return True

    async with asyncio.timeout(20):
        await at.worker.run(at.stop, is_over, grace_s=0)


@pytest.mark.parametrize(
    ("visitors", "reason"),
    [
        (Garbling, "internal: report refused: title 'a\\x00b\\ud800' is not a text"),
        (Breaking, "internal: RuntimeError: ab?ccc"),
    ],
)
async def test_what_cannot_be_reported_is_charged_and_not_fetched_again_at_once(
    tmp_path: Path, visitors: type[Visitor], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    # The half of a character in the error cannot be sent from one process of pytest to another.
    caplog.set_level(logging.CRITICAL, logger="outrider.crawler.worker")
    async with bench(tmp_path, {"/": page()}, visitors=visitors) as at:
        await work_while_something_is_ready(at)
        task = await at.task()
        assert (task.state, task.failures, task.deferrals) == (TaskState.PENDING, 1, 0)
        assert (task.reason or "").startswith(reason)
        assert len(task.reason or "") <= 500
        assert len(at.server.heads) == 1


async def test_a_lease_of_which_no_report_is_accepted_is_given_back(tmp_path: Path) -> None:
    async with bench(tmp_path, {"/": page()}, frontiers=Deaf) as at:
        await work_while_something_is_ready(at)
        task = await at.task()
        assert task.deferrals > 0
        assert (await at.urls.counts("c")).assigned == 0


async def test_an_archive_that_cannot_be_written_ends_the_work_and_gives_everything_back(tmp_path: Path) -> None:
    folder = tmp_path / "warc"
    folder.write_text("this is no folder")
    archive = WarcWriter(folder, prefix="test", software="test")
    async with bench(tmp_path, {"/": page()}, archive=archive) as at:
        with pytest.raises(StoreError, match="warc"):
            await at.run()
        assert (await at.task()).state is TaskState.PENDING
