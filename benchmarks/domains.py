"""Claims and priorities at 1,000,000 domains: `python benchmarks/domains.py [DSN] [--domains N]`.

Fills a store with domains, the best 200,000 of which are cooling down, then measures how long a claim of ten takes and
how long it takes to recalculate them all, while somebody claims beside it. Without a DSN it works on a temporary
SQLite file; a PostgreSQL database must be empty and have the schema.
"""

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

import asyncpg

from outrider.model.domain import DomainSeed
from outrider.store.opening import open_store
from outrider.store.protocols import ControlStore

SEEDED_AT_ONCE = 10_000
CLAIMED = 10
CLAIMS = 1_000
FUTURE = "'2099-01-01T00:00:00.000Z'"


async def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--domains", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dsn = given.dsn or f"sqlite:///{folder}/domains.sqlite"
        async with await open_store(dsn) as stores:
            await seed(stores.control, given.domains)
            await cool_down(dsn, given.domains // 5)
            figures = {"store": dsn.partition(":")[0], "domains": given.domains}
            alone = await claims(stores.control, CLAIMS)
            figures |= {"claim_p50_ms": middle(alone), "claim_p99_ms": last_hundredth(alone)}
            recalculating = asyncio.create_task(recalculate(stores.control))
            beside: list[float] = []
            while not recalculating.done():
                beside += await claims(stores.control, 1)
            figures |= {"recalculation_s": round(await recalculating, 1)}
            figures |= {"claim_p99_ms_meanwhile": last_hundredth(beside), "claims_meanwhile": len(beside)}
    print(json.dumps(figures))


async def seed(control: ControlStore, number: int) -> None:
    """Remember so many domains, each with a rank."""
    for start in range(0, number, SEEDED_AT_ONCE):
        await control.remember_domains(
            [
                DomainSeed(domain=f"d{n}.example", seed_rank=n + 1)
                for n in range(start, min(start + SEEDED_AT_ONCE, number))
            ]
        )


async def cool_down(dsn: str, number: int) -> None:
    """Give all a score by their rank, and have the best so many wait, past the store."""
    statements = (
        "UPDATE domains SET priority_score = 2000000 - seed_rank",
        f"UPDATE domains SET next_crawl_after = {FUTURE} WHERE seed_rank <= {number}",
        "ANALYZE",
    )
    if dsn.startswith("sqlite"):
        connection = sqlite3.connect(Path(dsn.removeprefix("sqlite:///")), timeout=60, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()
        return
    server = await asyncpg.connect(dsn)
    for statement in (*statements, "VACUUM ANALYZE domains"):
        await server.execute(statement)
    await server.close()


async def claims(control: ControlStore, number: int) -> list[float]:
    """Claim ten domains so many times, releasing them at once; tell how long each claim took, in milliseconds."""
    taken: list[float] = []
    for _ in range(number):
        began = time.perf_counter()
        held = await control.claim_domains("bench", CLAIMED)
        taken.append((time.perf_counter() - began) * 1000)
        if len(held) != CLAIMED:
            raise AssertionError(f"claimed {len(held)} domains, not {CLAIMED}")
        await control.release_claims("bench", held)
    return taken


async def recalculate(control: ControlStore) -> float:
    """Recalculate all domains; tell how many seconds it took."""
    began, after = time.perf_counter(), ""
    while True:
        batch = await control.recalculate_priorities(after=after)
        if batch.after is None:
            return time.perf_counter() - began
        after = batch.after


def middle(taken: list[float]) -> float:
    """Give the median, to the hundredth."""
    return round(statistics.median(taken), 2)


def last_hundredth(taken: list[float]) -> float:
    """Give what 99 of 100 stay below, to the hundredth."""
    return round(sorted(taken)[int(len(taken) * 0.99)], 2)


if __name__ == "__main__":
    asyncio.run(main())
