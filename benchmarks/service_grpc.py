"""The service's gRPC under load: streams of bare frames, and the usual client beside them."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from typing import Any

from service_process import serving
from service_results import Result, timed
from service_wire import SERVICE, Call, cut

from outrider.cli.store_bench import CALLERS, bench_place
from outrider.demo.outlinks import Outlinks
from outrider.service import urlfrontier_pb2 as messages
from outrider.service.grpc.framing import encode
from outrider.store.sql.urls.batch import FULL_AGAIN_MS

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


def exchanged(port: int, method: str, body: bytes) -> bytes:
    """Make one call with what is encoded already; give the answers as they came."""
    call = Call(port, method)
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
    call, seconds, expected = Call(port, "PutURLs"), [], 0
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
