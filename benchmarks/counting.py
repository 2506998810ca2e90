"""What exact counts cost: 8 PostgreSQL clients adding and reporting together, with and without counting.

    python benchmarks/counting.py --store postgresql://… [--clients 8] [--seconds 10] [--rounds 3] [--json]

Each client adds the links of pages and, between, leases pages and reports them with their links. The two ways
take turns, each time in a schema of its own, and the ratio is that of the sums.
"""

import argparse
import asyncio
import json
import multiprocessing
import time
from collections.abc import Iterator

from outrider.cli.bare_engine import bare_postgres
from outrider.demo.outlinks import Outlinks
from outrider.model.artifact import Fetch
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.task import CrawlLimits, Discovered
from outrider.store.dsn import PostgresDsn, parse_dsn
from outrider.store.sql import migrate
from outrider.store.sql.postgres import urls
from outrider.store.sql.postgres.engine import PostgresEngine
from outrider.store.sql.script import Sql
from outrider.store.sql.url_store import SqlUrlStore

CRAWL = "bench"
SITES = 2_000
PAGE_LINKS = 50
PAGES = 8
"""How many pages are leased and reported, and how many are added, in one turn of a client."""

NOT_COUNTING = {**urls.CATALOGUE, "add_counts": Sql(""), "add_run_counts": Sql("")}


async def client(dsn: PostgresDsn, number: int, counting: bool, seconds: float) -> int:
    """Work for so long; tell how many links went through."""
    engine = await PostgresEngine.open(dsn, urls.CATALOGUE if counting else NOT_COUNTING, pool_size=1)
    store = SqlUrlStore(engine)
    await store.create_crawl(CRAWL, limits=CrawlLimits(delay_ms=0, robots=False))
    pages = _pages(number)
    links = turn = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = [link for _ in range(PAGES) for link in next(pages)]
        await store.add(CRAWL, found)
        request = LeaseRequest(worker=f"client-{number}", request_id=str(turn), slots=PAGES, crawl=CRAWL)
        grant = await store.lease(request)
        reports = [
            Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200), links=next(pages))
            for lease in grant.leases
        ]
        await store.report(reports)
        links += len(found) + sum(len(report.links) for report in reports)
        turn += 1
    await store.close()
    return links


def _pages(seed: int) -> Iterator[list[Discovered]]:
    for batch in Outlinks(SITES, seed=seed).batches(PAGE_LINKS):
        yield [Discovered(url=link.text) for link in batch]


def run_client(url: str, number: int, counting: bool, seconds: float) -> int:
    """Run one client in a process of its own."""
    return asyncio.run(client(PostgresDsn(url=url), number, counting, seconds))


def measure(dsn: PostgresDsn, clients: int, counting: bool, seconds: float) -> float:
    """Let all clients work together on an empty store; tell how many links a second they did."""
    schema = "outrider_bench_counting"
    place = bare_postgres(dsn, schema)
    asyncio.run(place.prepare())
    url = f"{dsn.url}{'&' if '?' in dsn.url else '?'}search_path={schema}"
    migrate.upgrade(url)
    with multiprocessing.get_context("spawn").Pool(clients) as pool:
        done = pool.starmap(run_client, [(url, number, counting, seconds) for number in range(clients)])
    asyncio.run(place.drop())
    return sum(done) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what exact counts cost 8 PostgreSQL clients.")
    parser.add_argument("--store", required=True, metavar="DSN")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    dsn = parse_dsn(options.store)
    if not isinstance(dsn, PostgresDsn):
        parser.error("--store must name a PostgreSQL database")
    rates: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(options.rounds):
        for counting in rates:
            rates[counting].append(measure(dsn, options.clients, counting, options.seconds))
            if not options.json:
                print(f"counting {'on ' if counting else 'off'}: {rates[counting][-1]:10,.0f} links/s")
    figures = {
        "clients": options.clients,
        "counting_links_per_s": round(sum(rates[True]) / options.rounds, 1),
        "not_counting_links_per_s": round(sum(rates[False]) / options.rounds, 1),
        "counting_ratio": round(sum(rates[True]) / sum(rates[False]), 3),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
