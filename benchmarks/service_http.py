"""The service's HTTP under load: adding, leasing and reporting, and how long whoever waits has to."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count

import aiohttp
import msgspec
from service_grpc import CRAWL, DISCOVERED_BATCH, QUEUES, links
from service_process import Running
from service_results import Result, timed
from service_wire import cpu_seconds

from outrider.cli.store_bench import CALLERS, SLOTS

ADDED_PER_S = 5_000
ADDED_BATCH = 100
"""As StormCrawler sends them; a lease waits for the batch that is being stored."""
BUSY_S = 10.0
LEASE_EVERY_S = 0.02
READY_TIMES = 200
REPLICA_TIMES = 50
DUE_MS = 50
IDLE_S = 10.0
WAITERS = 100
CONCURRENCY = 64


class Client:
    """Sends bodies that are encoded already, or small ones."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        self._session = session
        self._base_url = base_url
        self._numbers = count()

    async def send(self, method: str, path: str, body: bytes) -> bytes:
        async with self._session.request(method, f"{self._base_url}{path}", data=body) as response:
            answer = await response.read()
            if response.status != 200:
                raise RuntimeError(f"{path}: {response.status} {answer[:200]!r}")
            return answer

    async def create_crawl(self) -> None:
        limits = {"delay_ms": 0, "concurrency": CONCURRENCY, "robots": False}
        await self.send("PUT", f"/v1/crawls/{CRAWL}", msgspec.json.encode({"limits": limits}))

    async def discovered(self, body: bytes) -> None:
        await self.send("POST", f"/v1/crawls/{CRAWL}/discovered", body)

    async def lease(self, *, slots: int = SLOTS, wait_ms: int = 0) -> list[str]:
        wish = {"worker": "bench", "request_id": str(next(self._numbers)), "slots": slots, "wait_ms": wait_ms}
        answer = await self.send("POST", f"/v1/crawls/{CRAWL}/lease", msgspec.json.encode(wish))
        return [lease["token"] for lease in msgspec.json.decode(answer)["leases"]]

    async def report(self, tokens: Sequence[str]) -> None:
        fetch = {"http_status": 200, "digest": "0" * 32}
        reports = [{"token": token, "outcome": "done", "fetch": fetch} for token in tokens]
        await self.send("POST", "/v1/report", msgspec.json.encode({"reports": reports}))


@asynccontextmanager
async def client_of(service: Running) -> AsyncIterator[Client]:
    """Connect to a service, and create the crawl there."""
    timeout = aiohttp.ClientTimeout(total=120)
    headers = {"content-type": "application/json"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers, connector=connector) as session:
        client = Client(session, service.base_url)
        await client.create_crawl()
        yield client


def discovered_bodies(urls: Sequence[str], batch: int = DISCOVERED_BATCH) -> Iterator[bytes]:
    for start in range(0, len(urls), batch):
        items = [{"url": url} for url in urls[start : start + batch]]
        yield msgspec.json.encode({"items": items})


async def measure_http(service: Running, urls: int) -> list[Result]:
    """Add by batches, then lease and report as the store's bench does."""
    add_s: list[float] = []
    seconds = 0.0
    async with client_of(service) as client:
        for part in links(urls):
            bodies = iter(list(discovered_bodies(part)))

            async def add_in_turn(bodies: Iterator[bytes] = bodies) -> None:
                add_s.extend([await timing(client.discovered(body)) for body in bodies])

            seconds += await timing(asyncio.gather(*(add_in_turn() for _ in range(CALLERS))))
        lease_s, report_s, leased = await lease_and_report(client, calls=min(500, urls // (2 * SLOTS)))
    return [
        timed(f"HTTP discovered by {DISCOVERED_BATCH}, URLs stored", add_s, per_second=urls / seconds),
        timed(f"HTTP lease by {SLOTS}", lease_s, per_second=leased / sum(lease_s)),
        timed(f"HTTP report by {SLOTS}", report_s, per_second=leased / sum(report_s)),
    ]


async def timing(doing: Awaitable[object]) -> float:
    start = time.perf_counter()
    await doing
    return time.perf_counter() - start


async def lease_and_report(client: Client, *, calls: int, every_s: float = 0.0) -> tuple[list[float], list[float], int]:
    """Lease and report in turn; with `every_s`, not more often than that."""
    lease_s, report_s, leased = [], [], 0
    for _ in range(calls):
        start = time.perf_counter()
        tokens = await client.lease()
        lease_s.append(time.perf_counter() - start)
        report_s.append(await timing(client.report(tokens)))
        leased += len(tokens)
        await asyncio.sleep(max(0.0, every_s - (time.perf_counter() - start)))
    return lease_s, report_s, leased


async def measure_busy(service: Running, urls: int) -> Result:
    """Lease while URLs are added at a steady rate."""
    known = list(discovered_bodies([link for part in links(urls) for link in part]))
    wanted = round(BUSY_S * ADDED_PER_S)
    new = [f"https://www.busy-{number % QUEUES}.example/{number}" for number in range(wanted)]
    added = list(discovered_bodies(new, ADDED_BATCH))
    async with client_of(service) as client:
        for body in known:
            await client.discovered(body)

        async def add_steadily() -> float:
            start = time.perf_counter()
            for number, body in enumerate(added):
                await asyncio.sleep(max(0.0, start + number * ADDED_BATCH / ADDED_PER_S - time.perf_counter()))
                await client.discovered(body)
            return wanted / (time.perf_counter() - start)

        adding = asyncio.create_task(add_steadily())
        lease_s: list[float] = []
        while not adding.done():
            lease_s += (await lease_and_report(client, calls=10, every_s=LEASE_EVERY_S))[0]
        return timed(f"lease while URLs are added ({ADDED_PER_S:,}/s wanted)", lease_s, per_second=await adding)


async def measure_nothing(service: Running) -> Result:
    """Ask now and then for what costs nothing: what a busy machine adds to every time beside it."""
    seconds = []
    async with client_of(service) as client:
        for _ in range(READY_TIMES):
            await asyncio.sleep(0.02)
            seconds.append(await timing(client.send("GET", "/healthz", b"")))
    return timed("GET /healthz, now and then", seconds)


async def measure_due(service: Running) -> Result:
    """Let a long poll wait for a URL that becomes due: from that moment to the answer of the poll."""
    seconds = []
    async with client_of(service) as client:
        for number in range(READY_TIMES):
            url = f"https://www.due-{number}.example/{time.time_ns()}"
            body = msgspec.json.encode({"items": [{"url": url, "due_in_ms": DUE_MS}]})
            sent = time.perf_counter()
            await client.discovered(body)
            tokens = await client.lease(slots=1, wait_ms=20_000)
            # It was due so long after it was stored, which was after it was sent.
            seconds.append(time.perf_counter() - sent - DUE_MS / 1000)
            await client.report(tokens)
    return timed("due to leased", seconds)


async def measure_added(adds_to: Running, leases_from: Running) -> Result:
    """Let a long poll wait at one service and add a URL at the other: from its sending to the answer of the poll."""
    seconds = []
    async with client_of(adds_to) as adding, client_of(leases_from) as leasing:
        for number in range(REPLICA_TIMES + 1):
            polling = asyncio.create_task(leasing.lease(slots=1, wait_ms=20_000))
            # Long enough for the poll to wait, and never in step with the rhythm of the other process.
            await asyncio.sleep(0.05 + number % 10 / 100)
            (body,) = discovered_bodies([f"https://www.added-{number}.example/{time.time_ns()}"])
            start = time.perf_counter()
            await adding.discovered(body)
            tokens = await polling
            seconds.append(time.perf_counter() - start)
            await leasing.report(tokens)
    # The first one reads the list of public suffixes, which a service does once in its life.
    del seconds[0]
    same = "here" if adds_to is leases_from else "at another replica"
    return timed(f"added to leased {same}", seconds)


async def measure_idle(service: Running, waiters: int) -> Result:
    """Let many wait for work that does not come, or nobody, and look at what the service does meanwhile."""
    async with client_of(service) as client:
        await asyncio.gather(*(client.lease(wait_ms=10) for _ in range(waiters)))
        polls = [asyncio.create_task(client.lease(wait_ms=round((IDLE_S + 2) * 1000))) for _ in range(waiters)]
        await asyncio.sleep(1)
        before, start = cpu_seconds(service.process), time.perf_counter()
        await asyncio.sleep(IDLE_S)
        share = (cpu_seconds(service.process) - before) / (time.perf_counter() - start)
        await asyncio.gather(*polls)
    return Result(what=f"{waiters} idle long polls", cpu_share=round(share, 4))
