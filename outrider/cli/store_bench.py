"""What `outrider bench store` does."""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import TypedDict

import msgspec
import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from outrider.cli.bare_engine import BareEngine, bare_postgres, bare_sqlite, remove_sqlite
from outrider.cli.running import run_to_its_end
from outrider.demo.outlinks import Outlink, Outlinks
from outrider.model.artifact import Fetch
from outrider.model.errors import InvalidInput
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.task import CrawlLimits, CrawlRules, Discovered
from outrider.policy.admission import NEW, Candidate, admit
from outrider.store.dsn import PostgresDsn, SqliteDsn, parse_dsn
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from outrider.store.sql import migrate

CRAWL = "bench"
SLOTS = 32
"""How many tasks one lease asks for: what a worker of the default concurrency does."""
LEASES = 1_000
WARM_UP = 10
CALLERS = 2
"""How many add at the same time, as the reports of several workers do."""
SERVER_CALLERS = 4
"""How many do so to a server, which stores the batches of some while those of others are normalised or committed."""
ROUND = 20
"""How many batches are made ready before the clock runs."""


class Figures(TypedDict):
    """What the bench prints."""

    store: str
    durability: str
    urls: int
    queues: int
    batch: int
    callers: int
    links_offered: int
    add_per_s: float
    links_per_s: float
    lease_per_s: float
    report_per_s: float
    lease_p50_ms: float
    lease_p99_ms: float
    engine_add_per_s: float
    add_ratio: float
    rss_mb: float
    bytes_per_url: float


MEANINGS = {
    "add_per_s": "different URLs stored, normalising included",
    "links_per_s": "links offered, known ones included",
    "lease_per_s": f"tasks leased, {SLOTS} at a time",
    "report_per_s": f"tasks reported done, {SLOTS} at a time",
    "lease_p50_ms": "one lease, median",
    "lease_p99_ms": "one lease, 99th percentile",
    "engine_add_per_s": "rows inserted by the bare engine",
    "add_ratio": "add_per_s / engine_add_per_s",
    "rss_mb": "memory of this process at its highest",
    "bytes_per_url": "on disk, everything included",
}


def main(dsn: str | None, *, urls: int, queues: int, batch: int, as_json: bool) -> None:
    """Run the bench where it leaves nothing behind, and print what it found."""
    if queues > urls:
        raise InvalidInput(f"{queues} queues need at least as many URLs, not {urls}")
    with bench_place(dsn) as (store_dsn, engine):
        figures = run_to_its_end(measure(store_dsn, engine, urls=urls, queues=queues, batch=batch, quiet=as_json))
    if as_json:
        print(msgspec.json.encode(figures).decode())
    else:
        _print_table(figures)


@contextmanager
def bench_place(dsn: str | None) -> Iterator[tuple[str, Callable[[], BareEngine]]]:
    """Make room for the bench, and remove everything afterwards."""
    if dsn is None:
        with tempfile.TemporaryDirectory(prefix="outrider-bench-") as folder:
            path = Path(folder) / "bench.sqlite"
            yield f"sqlite:///{path}", lambda: bare_sqlite(path)
        return
    match parse_dsn(dsn):
        case SqliteDsn(path=name):
            path = Path(name)
            if path.exists():
                raise InvalidInput(f"{name} exists: name a file that the bench may create and remove")
            try:
                yield dsn, lambda: bare_sqlite(path)
            finally:
                remove_sqlite(path)
        case PostgresDsn() as postgres:
            schema = f"outrider_bench_{os.getpid()}"
            mine = f"{dsn}{'&' if '?' in dsn else '?'}search_path={schema}"
            asyncio.run(bare_postgres(postgres, schema).prepare())
            try:
                migrate.upgrade(mine)
                yield mine, lambda: bare_postgres(postgres, schema)
            finally:
                asyncio.run(bare_postgres(postgres, schema).drop())


async def measure(
    dsn: str, engine: Callable[[], BareEngine], *, urls: int, queues: int, batch: int, quiet: bool
) -> Figures:
    """Add, lease and report, then let the bare engine insert the same rows."""
    with _progress(quiet) as step:
        async with await open_store(dsn) as stores:
            store = stores.urls
            await store.create_crawl(CRAWL, limits=CrawlLimits(delay_ms=0, robots=False))
            callers = SERVER_CALLERS if isinstance(parse_dsn(dsn), PostgresDsn) else CALLERS
            offered, stored, add_s = await _add(store, urls, queues, batch, callers, step("adding", urls))
            leases = min(LEASES, urls // (2 * SLOTS)) + WARM_UP
            lease_s, leased, report_s = await _lease_and_report(store, leases, step("leasing", leases))
            rss = psutil.Process().memory_info().rss
        bare = engine()
        size = await bare.size_on_disk()
        engine_s, rows = await _insert_bare(bare, urls, queues, batch, step("bare engine", urls))
        durability = await bare.durability()
    add_per_s, engine_add_per_s = stored / add_s, rows / engine_s
    return Figures(
        store=parse_dsn(dsn).shown,
        durability=durability,
        urls=stored,
        queues=queues,
        batch=batch,
        callers=callers,
        links_offered=offered,
        add_per_s=round(add_per_s, 1),
        links_per_s=round(offered / add_s, 1),
        lease_per_s=round(leased / sum(lease_s), 1),
        report_per_s=round(leased / report_s, 1),
        lease_p50_ms=round(statistics.median(lease_s) * 1000, 3),
        lease_p99_ms=round(_percentile(lease_s, 99) * 1000, 3),
        engine_add_per_s=round(engine_add_per_s, 1),
        add_ratio=round(add_per_s / engine_add_per_s, 3),
        rss_mb=round(rss / 2**20, 1),
        bytes_per_url=round(size / stored, 1),
    )


def _batches(urls: int, queues: int, batch: int) -> Iterator[list[Outlink]]:
    """Give whole batches until so many different URLs were in them."""
    different = 0
    for links in Outlinks(queues).batches(batch):
        yield links
        different += sum(link.new for link in links)
        if different >= urls:
            return


async def _add(
    store: UrlStore, urls: int, queues: int, batch: int, callers: int, advance: Callable[[int], None]
) -> tuple[int, int, float]:
    """Add all batches, as many at a time as there are callers; the time to think them up does not count."""
    offered = stored = 0
    seconds = 0.0
    batches = _batches(urls, queues, batch)
    while group := list(islice(batches, ROUND)):
        waiting = iter([[link.text for link in links] for links in group])

        async def add_in_turn(waiting: Iterator[list[str]] = waiting) -> int:
            new = 0
            for texts in waiting:
                results = await store.add(CRAWL, [Discovered(url=text) for text in texts])
                new += sum(result is NEW for result in results)
            return new

        start = time.perf_counter()
        new = sum(await asyncio.gather(*(add_in_turn() for _ in range(callers))))
        seconds += time.perf_counter() - start
        offered += sum(map(len, group))
        stored += new
        advance(new)
    return offered, stored, seconds


async def _lease_and_report(
    store: UrlStore, leases: int, advance: Callable[[int], None]
) -> tuple[list[float], int, float]:
    lease_s: list[float] = []
    report_s = 0.0
    leased = 0
    for number in range(leases):
        request = LeaseRequest(worker="bench", request_id=str(number), slots=SLOTS, crawl=CRAWL)
        start = time.perf_counter()
        grant = await store.lease(request)
        middle = time.perf_counter()
        reports = [
            Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200, digest="0" * 32))
            for lease in grant.leases
        ]
        await store.report(reports)
        end = time.perf_counter()
        advance(1)
        if number >= WARM_UP:
            lease_s.append(middle - start)
            report_s += end - middle
            leased += len(grant.leases)
    return lease_s, leased, report_s


async def _insert_bare(
    bare: BareEngine, urls: int, queues: int, batch: int, advance: Callable[[int], None]
) -> tuple[float, int]:
    """Insert the rows that `add` stored, with everything but the insertion done beforehand."""
    await bare.create_table()
    seconds, rows = 0.0, 0
    sequence = count()
    now = int(time.time() * 1000)
    batches = _batches(urls, queues, batch)
    # As many back to back as with `add`: a server catches up while nobody asks it for anything.
    while group := list(islice(batches, ROUND)):
        prepared = []
        for links in group:
            items = [Discovered(url=link.text) for link in links if link.new]
            candidates = sorted(admit(items, CrawlRules()).candidates)
            prepared.append([_row(candidate, next(sequence), now) for candidate in candidates])
        for each in prepared:
            seconds += await bare.insert(each)
            rows += len(each)
            advance(len(each))
    await bare.close()
    return seconds, rows


def _row(candidate: Candidate, sequence: int, now: int) -> tuple[object, ...]:
    return (
        1, candidate.key, candidate.hash, candidate.url, 0, 1, False, 0, candidate.depth, sequence, now, 1, now,
    )  # fmt: skip


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """Show a bar for each step on a terminal, one line for each elsewhere, nothing where JSON is wanted."""
    columns = (TextColumn("{task.description:>12}"), BarColumn(), TaskProgressColumn(), MofNCompleteColumn())
    console = Console(stderr=True, quiet=quiet)
    with Progress(*columns, console=console, disable=quiet or not sys.stderr.isatty()) as progress:

        def step(name: str, total: int) -> Callable[[int], None]:
            if not sys.stderr.isatty():
                console.print(f"{name}: {total:,}")
            task = progress.add_task(name, total=total)
            return lambda number: progress.advance(task, number)

        yield step


def _print_table(figures: Figures) -> None:
    table = Table(title=f"{figures['store']}, {figures['durability']}", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    values: dict[str, object] = dict(figures)
    for name in ("urls", "queues", "batch", "callers", "links_offered", *MEANINGS):
        table.add_row(name, f"{values[name]:,}", MEANINGS.get(name, ""))
    Console().print(table)
