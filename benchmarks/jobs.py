"""Jobs that wait in thousands: `python benchmarks/jobs.py [DSN] [--jobs N]`.

Queues jobs, then measures how long it takes to claim one, to beat for it, and to list them in every order. Without a
DSN it works on a temporary SQLite file; a PostgreSQL database must be empty and have the schema.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial

from outrider.model.job import JobRequest, JobSort
from outrider.store.opening import Stores, open_store

AT_ONCE = 32
CLAIMS = 1_000
LISTINGS = 50


async def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--jobs", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dsn = given.dsn or f"sqlite:///{folder}/jobs.sqlite"
        async with await open_store(dsn) as stores:
            await queue(stores, given.jobs)
            figures = {"store": dsn.partition(":")[0], "jobs": given.jobs, **await listings(stores)}
            figures |= await claims(stores)
    print(json.dumps(figures))


async def queue(stores: Stores, number: int) -> None:
    """Submit so many jobs, some more urgent than others."""
    waiting = iter(range(number))

    async def submit() -> None:
        for n in waiting:
            await stores.control.submit_job(JobRequest(payload={"seeds": [f"https://{n}.example/"]}, priority=n % 10))

    await asyncio.gather(*(submit() for _ in range(AT_ONCE)))


async def listings(stores: Stores) -> dict[str, float]:
    """List the first hundred in every order, again and again."""
    figures = {}
    for sort in JobSort:
        taken = [await timed(partial(stores.control.list_jobs, sort=sort)) for _ in range(LISTINGS)]
        figures[f"list_{sort}_p50_ms"] = round(statistics.median(taken), 2)
        figures[f"list_{sort}_max_ms"] = round(max(taken), 2)
    return figures


async def claims(stores: Stores) -> dict[str, float]:
    """Claim jobs one by one, and beat for each once."""
    claimed, beaten = [], []
    for number in range(CLAIMS):
        claimed.append(await timed(partial(stores.control.claim_job, f"worker-{number}")))
        [job] = (await stores.control.list_jobs(sort=JobSort.UPDATED, limit=1)).jobs
        beaten.append(await timed(partial(stores.control.beat_job, job.id, job.epoch, progress={})))
    return {
        "claim_p50_ms": round(statistics.median(claimed), 2),
        "claim_p99_ms": round(statistics.quantiles(claimed, n=100)[98], 2),
        "beat_p50_ms": round(statistics.median(beaten), 2),
        "beat_p99_ms": round(statistics.quantiles(beaten, n=100)[98], 2),
    }


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    """Tell how many milliseconds a call takes."""
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    asyncio.run(main())
