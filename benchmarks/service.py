"""What the service costs: load over real sockets on `outrider serve`, and the bare store beside it in the same run.

    python benchmarks/service.py [--urls 100000] [--store DSN] [--only PART …] [--pages 5000] [--json]

The service is the command itself, in a process of its own. gRPC streams are encoded before the clock starts and sent
as bare frames (`service_wire`), so that it is not the client that is measured; grpcio does the same beside it, for what
a normal client sees. The links are those of `outrider bench store`, which runs before and after on the same kind of
store: ratios are to the mean of both. Everything stays on this machine and is removed afterwards.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import crawl as crawl_benchmark
import msgspec
from crawlers import measuring
from rich.console import Console
from rich.table import Table
from service_grpc import CRAWL, QUEUES, measure_grpc, measure_grpcio
from service_http import (
    ADDED_PER_S,
    CONCURRENCY,
    WAITERS,
    client_of,
    measure_added,
    measure_busy,
    measure_due,
    measure_http,
    measure_idle,
    measure_nothing,
)
from service_process import OURS, Running, serving
from service_results import Goal, Result, at_least, at_most

from outrider.cli.store_bench import bench_place
from outrider.demo.site import SiteOptions

PARTS = ("grpc", "grpcio", "http", "busy", "waiting", "idle", "replicas", "work")


class Run:
    """What one run of the benchmark found."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.results: list[Result] = []
        self.goals: list[Goal] = []

    def note(self, *results: Result) -> Result:
        for result in results:
            self.console.print(shown(result), style="dim")
        self.results += results
        return results[-1]


def shown(result: Result) -> str:
    told = [f"{result.per_second:,.0f}/s"] if result.per_second is not None else []
    if result.p50_ms is not None:
        told.append(f"p50 {result.p50_ms:.2f} ms, p99 {result.p99_ms:.2f} ms")
    if result.cpu_share is not None:
        told.append(f"{result.cpu_share:.2%} of a core")
    return f"{result.what}: {'; '.join(told)}"


def measure_all(run: Run, store: str | None, urls: int, pages: int, only: Sequence[str]) -> None:
    if "grpc" in only:
        measure_ratios(run, store, urls)
    if "grpcio" in only:
        run.note(*measure_grpcio(store))
    with bench_place(store) as (dsn, _), serving(dsn) as service:
        run.note(asyncio.run(measure_nothing(service)))
        if "waiting" in only:
            run.note(asyncio.run(measure_added(service, service)))
            found = run.note(asyncio.run(measure_due(service)))
            run.goals.append(at_most("due to leased, p50 ms", found.p50_ms or 0.0, 5))
            run.goals.append(at_most("due to leased, p99 ms", found.p99_ms or 0.0, 5))
        if "replicas" in only:
            with serving(dsn) as other:
                found = run.note(asyncio.run(measure_added(service, other)))
            run.goals.append(at_most("added to leased at another replica, p99 ms", found.p99_ms or 0.0, 150))
        if "idle" in only:
            run.note(asyncio.run(measure_idle(service, 0)))
            found = run.note(asyncio.run(measure_idle(service, WAITERS)))
            run.goals.append(at_most("idle long polls, share of a core", found.cpu_share or 0.0, 0.01))
    if "http" in only:
        with bench_place(store) as (dsn, _), serving(dsn) as service:
            run.note(*asyncio.run(measure_http(service, urls)))
    if "busy" in only:
        with bench_place(store) as (dsn, _), serving(dsn) as service:
            found = run.note(asyncio.run(measure_busy(service, urls)))
        run.goals.append(at_least("URLs/s added meanwhile", found.per_second or 0.0, 0.99 * ADDED_PER_S))
        run.goals.append(at_most("lease meanwhile, p99 ms", found.p99_ms or 0.0, 20))
    if "work" in only:
        results, goal = measure_work(store, pages)
        run.note(*results)
        run.goals.append(goal)


def store_figures(store: str | None, urls: int) -> dict[str, float]:
    """Let `outrider bench store` measure the store without any service."""
    command = [*OURS, "bench", "store", "--json", "--urls", str(urls), "--queues", str(min(QUEUES, urls // 2))]
    command += [] if store is None else ["--store", store]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1_800)
    return dict(json.loads(done.stdout))


def measure_ratios(run: Run, store: str | None, urls: int) -> None:
    """Measure gRPC between two measures of the bare store."""
    before = store_figures(store, urls)
    per_second: dict[str, float] = {}
    for result in map(run.note, measure_grpc(store, urls)):
        per_second.setdefault(result.what.partition(",")[0], result.per_second or 0.0)
    after = store_figures(store, urls)
    bare = {name: (before[name] + after[name]) / 2 for name in ("add_per_s", "lease_per_s")}
    for name in bare:
        told = Result(what=f"bench store: {name}, before and after", per_second=round(bare[name], 1))
        run.note(told)
        run.console.print(f"  {before[name]:,.0f}/s and {after[name]:,.0f}/s", style="dim")
    for method, name in (("PutURLs", "add_per_s"), ("PutDiscovered", "add_per_s"), ("GetURLs", "lease_per_s")):
        run.goals.append(at_least(f"{method} / {name}", per_second[method] / bare[name], 0.6))


def measure_work(store: str | None, pages: int) -> tuple[list[Result], Goal]:
    """Crawl the demo site in process, and over a service."""
    site = SiteOptions(pages=pages, links_per_page=20, oddities=False)
    plan = crawl_benchmark.Plan(site=site, concurrency=CONCURRENCY, limit_s=600, tools=Path(sys.executable))
    alone = crawl_benchmark.measure(plan, "outrider")
    over = work_over_service(store, plan)
    results = [
        Result(what="outrider crawl, pages", per_second=round(alone.pages_per_s, 1)),
        Result(what="outrider work, pages", per_second=round(over, 1)),
    ]
    return results, at_least("work / crawl", over / alone.pages_per_s if alone.pages else 0.0, 0.6)


def work_over_service(store: str | None, plan: crawl_benchmark.Plan) -> float:
    """Pages per second of `outrider work`, from its start to its end."""
    folder = Path(tempfile.mkdtemp(prefix="outrider-benchmark-work-"))
    try:
        with (
            bench_place(store) as (dsn, _),
            serving(dsn) as service,
            crawl_benchmark.served(plan.site, folder / "requests.log") as url,
        ):
            asyncio.run(_seed(service, url))
            command = [
                *OURS, "work", "--frontier", service.base_url, "--crawl", CRAWL, "--until-done", "--allow-private",
                "--concurrency", str(plan.concurrency), "--data", str(folder / "data"),
            ]  # fmt: skip
            measured = measuring.run(command, folder, plan.limit_s)
        asked = [line.split(" ")[2] for line in (folder / "requests.log").read_text("latin-1").splitlines()]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    pages = [path for path in asked if path != "/robots.txt"]
    if measured.trouble or len(pages) != len(set(pages)) or len(pages) != plan.site.pages:
        raise RuntimeError(f"work: {len(set(pages)):,} pages by {len(pages):,} requests; {measured.trouble}")
    return len(pages) / measured.wall_s


async def _seed(service: Running, url: str) -> None:
    async with client_of(service) as client:
        limits = {"delay_ms": 0, "concurrency": CONCURRENCY, "robots": True}
        await client.send("PUT", f"/v1/crawls/{CRAWL}", msgspec.json.encode({"limits": limits}))
        await client.discovered(msgspec.json.encode({"items": [{"url": url, "discovery_type": "seed"}]}))


def show(run: Run) -> None:
    table = Table("what", "per second", "p50 ms", "p99 ms", "share of a core")
    for result in run.results:
        table.add_row(
            result.what,
            "" if result.per_second is None else f"{result.per_second:,.0f}",
            *("" if value is None else f"{value:.2f}" for value in (result.p50_ms, result.p99_ms)),
            "" if result.cpu_share is None else f"{result.cpu_share:.2%}",
        )
    run.console.print(table)
    for goal in run.goals:
        verdict = "reached" if goal.reached else "MISSED"
        run.console.print(f"{goal.name}: {goal.measured:g} (goal {goal.wanted}: {verdict})")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the service over real sockets.")
    parser.add_argument("--urls", type=int, default=100_000)
    parser.add_argument("--store", metavar="DSN", help="a PostgreSQL database, or a SQLite file to make and remove")
    parser.add_argument("--pages", type=int, default=5_000, help="of the site that is crawled")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    given = parser.parse_args()
    run = Run(Console(stderr=given.json, markup=False, width=None if sys.stdout.isatty() else 120))
    measure_all(run, given.store, given.urls, given.pages, given.only)
    if not given.json:
        show(run)
        return
    found = {"urls": given.urls, "cores": os.cpu_count(), "results": run.results, "goals": run.goals}
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
