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
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import aiohttp
import crawl as crawl_benchmark
import hpack
import msgspec
import psutil
from crawlers import measuring
from rich.console import Console
from rich.table import Table
from service_wire import HEADERS, SERVICE, Call, cpu_seconds, cut, frame

from outrider.cli.store_bench import CALLERS, SLOTS, bench_place
from outrider.demo.outlinks import Outlinks
from outrider.demo.site import SiteOptions
from outrider.service import urlfrontier_pb2 as messages
from outrider.service.grpc.framing import encode
from outrider.store.sql.urls.batch import FULL_AGAIN_MS

PARTS = ("grpc", "grpcio", "http", "busy", "waiting", "idle", "replicas", "work")
CRAWL = "bench"
QUEUES = 10_000
DISCOVERED_BATCH = 256
STREAM_LINKS = 50_000
"""Links of one stream; the next ones are made ready while no clock runs."""
ROUND_TRIPS = 500
GRPCIO_LINKS = 20_000
GET_SHAPES = ((100, 1), (100, 10))
"""Queues, and URLs of each, that one GetURLs asks for; the goal is about the first."""
PAUSE_S = FULL_AGAIN_MS / 1000 + 0.1
"""After it a queue that one client has had enough of is looked at again for the next."""
GET_S = 10.0
"""The longest that each of them is measured."""
ADDED_PER_S = 5_000
ADDED_BATCH = 100
"""As StormCrawler sends them; a lease waits for the batch that is being stored."""
BUSY_S = 10.0
LEASE_EVERY_S = 0.02
READY_TIMES = 200
REPLICA_TIMES = 50
DUE_MS = 50
IDLE_S = 5.0
WAITERS = 64
CONCURRENCY = 64
READY_S = 60.0
"""How long a service may take to start before the benchmark gives up."""
OURS = (sys.executable, "-m", "outrider.cli.main")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    what: str
    per_second: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    cpu_share: float | None = None
    """Of one core, by the service."""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What was to be reached, and whether it was."""

    name: str
    measured: float
    wanted: str
    reached: bool


def at_least(name: str, measured: float, least: float) -> Goal:
    return Goal(name=name, measured=round(measured, 3), wanted=f">= {least:g}", reached=measured >= least)


def at_most(name: str, measured: float, most: float) -> Goal:
    return Goal(name=name, measured=round(measured, 3), wanted=f"<= {most:g}", reached=measured <= most)


def timed(what: str, seconds: Sequence[float], *, per_second: float | None = None) -> Result:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else [*seconds] * 99
    return Result(
        what=what,
        per_second=None if per_second is None else round(per_second, 1),
        p50_ms=round(cuts[49] * 1000, 2),
        p99_ms=round(cuts[98] * 1000, 2),
    )


# ---- the service


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A service in a process of its own."""

    port: int
    process: psutil.Process

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(dsn: str) -> Iterator[Running]:
    """Run `outrider serve` on a store until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        command = [*OURS, "serve", "--port", str(port), "--store", dsn, "--allow-private"]
        process = subprocess.Popen(command, stderr=log)
        try:
            _wait_until_ready(port, process)
            yield Running(port=port, process=psutil.Process(process.pid))
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + READY_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError("the service did not start") from None
            time.sleep(0.02)


def store_figures(store: str | None, urls: int) -> dict[str, float]:
    """Let `outrider bench store` measure the store without any service."""
    command = [*OURS, "bench", "store", "--json", "--urls", str(urls), "--queues", str(min(QUEUES, urls // 2))]
    command += [] if store is None else ["--store", store]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1_800)
    return dict(json.loads(done.stdout))


# ---- gRPC


def links(urls: int) -> Iterator[list[str]]:
    """Give links until so many different URLs were among them, in parts of one stream each."""
    different = 0
    for batch in Outlinks(min(QUEUES, urls // 2)).batches(STREAM_LINKS):
        wanted = []
        for link in batch:
            if different == urls:
                break
            wanted.append(link.text)
            different += link.new
        yield wanted
        if different == urls:
            return


def put_items(urls: Sequence[str], numbers: Iterator[int]) -> Iterator[messages.URLItem]:
    for url in urls:
        info = messages.URLInfo(url=url, crawlID=CRAWL)
        yield messages.URLItem(discovered=messages.DiscoveredURLItem(info=info), ID=str(next(numbers)))


def discovered_batches(urls: Sequence[str]) -> Iterator[messages.DiscoveredBatch]:
    for start in range(0, len(urls), DISCOVERED_BATCH):
        infos = [messages.URLInfo(url=url, crawlID=CRAWL) for url in urls[start : start + DISCOVERED_BATCH]]
        yield messages.DiscoveredBatch(ID=str(start), items=infos)


class LocalCall(Call):
    """A call to the service by a name of this machine: without a key, it answers to no other."""

    def __init__(self, port: int, method: str) -> None:
        super().__init__(port, method)
        fields = [
            (":method", "POST"), (":scheme", "http"), (":path", f"/{SERVICE}/{method}"), (":authority", "127.0.0.1"),
            ("content-type", "application/grpc"), ("te", "trailers"),
        ]  # fmt: skip
        head = self.unsent.rindex(frame(HEADERS, 4, 1)[3:])
        self.unsent[head - 3 :] = frame(HEADERS, 4, 1, hpack.Encoder().encode(fields))


def exchanged(port: int, method: str, body: bytes) -> bytes:
    """Make one call with what is encoded already; give the answers as they came."""
    call = LocalCall(port, method)
    try:
        call.exchange(cut(body), end=True)
    finally:
        call.close()
    return bytes(call.body)


def decoded(body: bytes, kind: Any) -> list[Any]:
    found, position = [], 0
    while position < len(body):
        stop = position + 5 + int.from_bytes(body[position + 1 : position + 5])
        found.append(kind.FromString(body[position + 5 : stop]))
        position = stop
    return found


def stored_of(method: str, body: bytes) -> int:
    if method == "PutURLs":
        statuses = [ack.status for ack in decoded(body, messages.AckMessage)]
    else:
        statuses = [status for ack in decoded(body, messages.BatchAck) for status in ack.statuses]
    return statuses.count(messages.AckMessage.OK)


def put_all(port: int, method: str, parts: Iterator[list[str]]) -> Result:
    """Send all links in streams, as many at once as the store's bench has callers."""
    numbers = count()
    stored, seconds = 0, 0.0
    with ThreadPoolExecutor(CALLERS) as callers:
        while group := list(islice(parts, CALLERS)):
            if method == "PutURLs":
                bodies = [encode(put_items(part, numbers)) for part in group]
            else:
                bodies = [encode(discovered_batches(part)) for part in group]
            start = time.perf_counter()
            answers = list(callers.map(lambda body: exchanged(port, method, body), bodies))
            seconds += time.perf_counter() - start
            stored += sum(stored_of(method, answer) for answer in answers)
    return Result(what=f"{method}, URLs stored", per_second=round(stored / seconds, 1))


def without_politeness(port: int) -> None:
    exchanged(port, "SetDelay", encode([messages.QueueDelayParams(crawlID=CRAWL, delay_requestable=0)]))


def get_all(port: int, queues: int, each: int) -> Result:
    """Ask for batches until nothing comes, or the time is over."""
    request = encode(
        [messages.GetParams(max_queues=queues, max_urls_per_queue=each, delay_requestable=3_600, crawlID=CRAWL)]
    )
    served = 0
    seconds: list[float] = []
    while sum(seconds) < GET_S:
        start = time.perf_counter()
        answer = exchanged(port, "GetURLs", request)
        seconds.append(time.perf_counter() - start)
        if not answer:
            break
        served += len(decoded(answer, messages.URLInfo))
    return timed(f"GetURLs, {each} of {queues:,} queues", seconds, per_second=served / sum(seconds))


def round_trips(port: int) -> Result:
    """Put URLs one by one on one stream, each sent when the last was acknowledged."""
    call, seconds, expected = LocalCall(port, "PutURLs"), [], 0
    for number in range(ROUND_TRIPS):
        item = encode(put_items([f"https://www.one-by-one.example/{number}"], iter([number])))
        expected += len(encode([messages.AckMessage(ID=str(number))]))
        start = time.perf_counter()
        call.exchange([item], until_bytes=expected, end=False)
        seconds.append(time.perf_counter() - start)
    call.close()
    return timed("PutURLs, one at a time", seconds, per_second=ROUND_TRIPS / sum(seconds))


def measure_grpc(store: str | None, urls: int) -> Iterator[Result]:
    for method in ("PutURLs", "PutDiscovered"):
        with bench_place(store) as (dsn, _), serving(dsn) as service:
            yield put_all(service.port, method, links(urls))
            if method == "PutURLs":
                yield round_trips(service.port)
                continue
            without_politeness(service.port)
            first, *others = GET_SHAPES
            yield get_all(service.port, *first)
            for shape in others:
                time.sleep(PAUSE_S)
                yield get_all(service.port, *shape)


def measure_grpcio(store: str | None) -> Iterator[Result]:
    """The same calls by the usual client, which is what they wait for."""
    import grpc  # type: ignore[import-untyped]

    some = next(links(GRPCIO_LINKS))
    puts = list(put_items(some, count()))
    with bench_place(store) as (dsn, _), serving(dsn) as service:
        channel = grpc.insecure_channel(f"127.0.0.1:{service.port}")
        put = channel.stream_stream(
            f"/{SERVICE}/PutURLs", messages.URLItem.SerializeToString, messages.AckMessage.FromString
        )
        start = time.perf_counter()
        acknowledged = sum(1 for _ in put(iter(puts), timeout=120))
        yield Result(
            what="grpcio: PutURLs, messages", per_second=round(acknowledged / (time.perf_counter() - start), 1)
        )
        without_politeness(service.port)
        get = channel.unary_stream(
            f"/{SERVICE}/GetURLs", messages.GetParams.SerializeToString, messages.URLInfo.FromString
        )
        start = time.perf_counter()
        asked = messages.GetParams(max_queues=QUEUES, max_urls_per_queue=10, crawlID=CRAWL)
        served = sum(1 for _ in get(asked, timeout=120))
        yield Result(what="grpcio: GetURLs, messages", per_second=round(served / (time.perf_counter() - start), 1))
        channel.close()


# ---- HTTP


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
        for number in range(REPLICA_TIMES):
            polling = asyncio.create_task(leasing.lease(slots=1, wait_ms=20_000))
            # Long enough for the poll to wait, and never in step with the rhythm of the other process.
            await asyncio.sleep(0.05 + number % 10 / 100)
            (body,) = discovered_bodies([f"https://www.added-{number}.example/{time.time_ns()}"])
            start = time.perf_counter()
            await adding.discovered(body)
            tokens = await polling
            seconds.append(time.perf_counter() - start)
            await leasing.report(tokens)
    same = "here" if adds_to is leases_from else "at another replica"
    return timed(f"added to leased {same}", seconds)


async def measure_idle(service: Running) -> Result:
    """Let many wait for work that does not come, and look at what the service does meanwhile."""
    async with client_of(service) as client:
        await asyncio.gather(*(client.lease(wait_ms=10) for _ in range(WAITERS)))
        polls = [asyncio.create_task(client.lease(wait_ms=round((IDLE_S + 2) * 1000))) for _ in range(WAITERS)]
        await asyncio.sleep(1)
        before, start = cpu_seconds(service.process), time.perf_counter()
        await asyncio.sleep(IDLE_S)
        share = (cpu_seconds(service.process) - before) / (time.perf_counter() - start)
        await asyncio.gather(*polls)
    return Result(what=f"{WAITERS} idle long polls", cpu_share=round(share, 4))


# ---- a crawl over the service


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


# ---- all of it


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
            found = run.note(asyncio.run(measure_idle(service)))
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
