"""Two replicas on one PostgreSQL and many workers: each page once, each domain politely, whoever is killed.

The workers are `outrider work` and the replicas `outrider serve`, all of them processes; what was asked for, and when,
is told by the site that they crawl.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from outrider.model.task import CrawlLimits, CrawlRules, Discovered, DiscoveryType
from outrider.service.client import connect
from tests.cli.commands import Command, command, free_port
from tests.conformance.backends import Place, PostgresBackend
from tests.crawler.crawling import Seen, ServedSite, machine_is_overloaded, serving_site
from tests.recount import check_counts

CRAWL = "shared"
PROCESSES = 4
WORKERS_EACH = 16
HOSTS = [f"127.0.0.{number}" for number in range(1, PROCESSES * WORKERS_EACH + 1)]
"""As many domains as workers, so that all can be busy although each domain takes one request at a time."""
MILLISECOND_S = 0.001
TOLERANCE_S = 0.05
"""How late a busy site may take a request, which makes the next gap shorter than it was."""


class Trial(NamedTuple):
    """What is crawled, and how often a replica is killed with -9 on the way, the two in turn."""

    pages: int
    """Of each domain."""
    delay_s: float
    kills: int
    limit_s: float


class Replica:
    """A service that can be killed and started again on its port."""

    def __init__(self, folder: Path, dsn: str, stack: AsyncExitStack) -> None:
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._arguments = ("serve", "--allow-private", "--port", str(self.port), "--store", dsn)
        self._stack = stack
        self._command: Command | None = None

    async def start(self) -> None:
        self._command = await self._stack.enter_async_context(command(self._folder, *self._arguments))
        await self._command.says("serving")

    async def kill(self) -> None:
        assert self._command is not None
        self._command.process.kill()
        await self._command.ends()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    backend = PostgresBackend(request)
    dsn = backend.create()
    yield Place(backend, dsn)
    backend.drop(dsn)


async def requests_reach(site: ServedSite, number: int, limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        while site.count() < number:  # noqa: ASYNC110 - the site is another process
            await asyncio.sleep(0.01)


def gaps_of(requests: list[Seen]) -> list[float]:
    times: defaultdict[str, list[float]] = defaultdict(list)
    for request in requests:
        times[request.host].append(request.at_s)
    return [later - earlier for each in times.values() for earlier, later in pairwise(sorted(each))]


async def gaps_sent(place: Place) -> list[float]:
    """The same gaps by the workers' own account."""
    rows = await place.backend.query(place.dsn, "SELECT domain, fetched_at FROM crawl_log WHERE fetched_at > 0")
    return gaps_of([Seen(int(str(at_ms)) / 1000, str(domain), "") for domain, at_ms in rows])


async def seed(replica: Replica, site: ServedSite, delay_s: float) -> None:
    async with connect(replica.base_url) as frontier:
        limits = CrawlLimits(delay_ms=round(delay_s * 1000), concurrency=1)
        await frontier.create_crawl(CRAWL, CrawlRules(), limits)
        seeds = [Discovered(url=site.url("/", host), discovery_type=DiscoveryType.SEED) for host in HOSTS]
        await frontier.add(CRAWL, seeds)


async def crawled(folder: Path, dsn: str, site: ServedSite, trial: Trial) -> None:
    """Let all workers crawl the site to its end, while replicas are killed and started again."""
    async with AsyncExitStack() as stack:
        replicas = [Replica(folder, dsn, stack) for _ in range(2)]
        await asyncio.gather(*(replica.start() for replica in replicas))
        await seed(replicas[0], site, trial.delay_s)
        workers = [
            await stack.enter_async_context(
                command(
                    folder, "work", "--frontier", replicas[number % 2].base_url, "--crawl", CRAWL, "--until-done",
                    "--concurrency", str(WORKERS_EACH), "--allow-private", "--no-warc",
                )
            )
            for number in range(PROCESSES)
        ]  # fmt: skip
        for number in range(trial.kills):
            share = (number + 1) / (trial.kills + 1)
            await requests_reach(site, round(share * trial.pages * len(HOSTS)), trial.limit_s)
            await replicas[number % 2].kill()
            await replicas[number % 2].start()
        endings = await asyncio.gather(*(worker.ends() for worker in workers))
        assert endings == [0] * PROCESSES, [worker.said for worker in workers]
        async with connect(replicas[1].base_url) as frontier:
            counts = (await frontier.show_crawl(CRAWL)).counts["page"]
        assert (counts.completed, counts.pending, counts.assigned, counts.failed) == (
            trial.pages * len(HOSTS), 0, 0, 0,
        )  # fmt: skip


async def check(folder: Path, place: Place, trial: Trial) -> None:
    """Crawl, then compare what the site has seen with what the store says."""
    listen = [argument for host in HOSTS for argument in ("--host", host)]
    with serving_site(folder, *listen, "--pages", trial.pages, "--no-oddities") as site:
        began = time.monotonic()
        await crawled(folder, place.dsn, site, trial)
        took_s = time.monotonic() - began
        requests = site.requests()
    seen = Counter((request.host.partition(":")[0], request.path) for request in requests)
    assert {asked: times for asked, times in seen.items() if times > 1} == {}
    assert seen.total() == (trial.pages + 1) * len(HOSTS), "every page and every robots.txt"
    await check_counts(place)
    sent, measured = await gaps_sent(place), gaps_of(requests)
    print(f"{seen.total()} requests in {took_s:.1f} s; gaps {min(sent):.3f} s sent, {min(measured):.3f} s seen")
    assert min(sent) >= trial.delay_s - MILLISECOND_S
    assert min(measured) >= trial.delay_s - TOLERANCE_S or machine_is_overloaded()


async def test_64_workers_on_two_replicas_that_are_killed_fetch_each_page_once_and_politely(
    tmp_path: Path, place: Place
) -> None:
    """Invariants Exclusivity, Nothing lost, Counts and Politeness, over two services and four processes of workers."""
    await check(tmp_path, place, Trial(pages=20, delay_s=0.25, kills=4, limit_s=30))


@pytest.mark.soak
async def test_64_workers_fetch_12800_pages_once_and_politely_while_replicas_are_killed_12_times(
    tmp_path: Path, place: Place
) -> None:
    await check(tmp_path, place, Trial(pages=200, delay_s=0.25, kills=12, limit_s=300))
