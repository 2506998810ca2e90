"""How soon a service is ready on a large frontier, and how soon it hands out its first lease.

    python benchmarks/readiness.py [--urls 10000000] [--times 5] [--folder DIR] [--json]

A process fills a SQLite file by `UrlStore.add` and is killed with -9, so that the first start finds a log to recover;
the others follow a graceful stop. Before each start the file is dropped from the system's cache, as far as the system
lets us. Measured is from the start of the process `outrider serve` to the first 200 of `/readyz`, and from there to the
answer of one lease. The file is kept for the next time with `--folder`, and otherwise removed.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from rich.console import Console
from service_http import client_of
from service_process import Running, serving
from service_results import Goal, at_most

from outrider.model.task import CrawlLimits, Discovered
from outrider.store.opening import open_store

CRAWL = "bench"
BATCH = 10_000
URLS_PER_QUEUE = 100
GOAL_S = 2.0


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start of the service."""

    after: str
    ready_s: float
    first_lease_ms: float
    leased: int


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What one run found."""

    urls: int
    file_mb: int
    starts: list[Start]
    goals: list[Goal]


def batches(urls: int) -> Iterator[list[Discovered]]:
    """Give new URLs, one queue after the other: the fastest way to fill a table that is sorted by queue."""
    for start in range(0, urls, BATCH):
        yield [
            Discovered(url=f"https://www.site-{number // URLS_PER_QUEUE:08}.example/articles/{number}")
            for number in range(start, min(start + BATCH, urls))
        ]


async def fill(path: Path, urls: int) -> None:
    """Fill a file and die, with what is not yet checkpointed in its log."""
    async with await open_store(f"sqlite:///{path}") as stores:
        await stores.urls.create_crawl(CRAWL, limits=CrawlLimits(delay_ms=0, robots=False))
        stored = 0
        start = time.monotonic()
        for batch in batches(urls):
            await stores.urls.add(CRAWL, batch)
            stored += len(batch)
            if stored % 1_000_000 == 0:
                print(f"{stored:,} URLs after {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def filled(path: Path, urls: int) -> None:
    process = subprocess.run([sys.executable, __file__, "--fill", str(path), "--urls", str(urls)], check=False)
    if process.returncode != -signal.SIGKILL:
        raise RuntimeError(f"filling ended with {process.returncode}")


def forget(path: Path) -> None:
    """Let the system read the file anew."""
    os.sync()
    for each in path.parent.glob(f"{path.name}*"):
        with each.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def first_lease(service: Running) -> tuple[float, int]:
    async with client_of(service) as client:
        start = time.perf_counter()
        tokens = await client.lease()
        return time.perf_counter() - start, len(tokens)


def started(path: Path, after: str) -> Start:
    forget(path)
    start = time.perf_counter()
    with serving(f"sqlite:///{path}") as service:
        ready_s = time.perf_counter() - start
        lease_s, leased = asyncio.run(first_lease(service))
    return Start(after=after, ready_s=round(ready_s, 3), first_lease_ms=round(lease_s * 1000, 1), leased=leased)


def measure(path: Path, urls: int, times: int, console: Console) -> Findings:
    after = "graceful stop"
    if not path.exists():
        filled(path, urls)
        after = "kill -9"
    starts = []
    for _ in range(times):
        found = started(path, after)
        after = "graceful stop"
        starts.append(found)
        console.print(
            f"after a {found.after}: ready in {found.ready_s:.2f} s, "
            f"{found.leased} leases {found.first_lease_ms:.1f} ms later",
            highlight=False,
        )
    slowest = at_most(f"ready on {urls:,} URLs, slowest, s", max(found.ready_s for found in starts), GOAL_S)
    return Findings(urls=urls, file_mb=path.stat().st_size >> 20, starts=starts, goals=[slowest])


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how soon a service is ready on a large frontier.")
    parser.add_argument("--urls", type=int, default=10_000_000)
    parser.add_argument("--times", type=int, default=5, help="how often the service is started")
    parser.add_argument("--folder", type=Path, help="where the store is made, or found from the last time, and kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--fill", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fill is not None:
        asyncio.run(fill(given.fill, given.urls))
        return
    console = Console(stderr=given.json, markup=False)
    with tempfile.TemporaryDirectory(prefix="outrider-readiness-") as folder:
        found = measure((given.folder or Path(folder)) / "readiness.sqlite", given.urls, given.times, console)
    if given.json:
        print(msgspec.json.encode(found).decode())
        return
    for goal in found.goals:
        verdict = "reached" if goal.reached else "MISSED"
        console.print(f"{goal.name}: {goal.measured:g} (goal {goal.wanted}: {verdict})", highlight=False)


if __name__ == "__main__":
    main()
