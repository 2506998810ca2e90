"""The gRPC wire alone: a service that accepts and forgets, and a client that costs next to nothing.

    python benchmarks/service_wire.py [--messages 300000] [--server outrider hypercorn uvicorn] [--json FILE]

The server runs in a process of its own. The client speaks bare HTTP/2 frames with streams that are encoded before the
clock starts, so that it is the server that is measured. Besides messages per second of the clock, each line has
messages per second of the server's processor time: what one core does when the client, or a neighbour on the machine,
is what the server waits for.
"""

import argparse
import asyncio
import json
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hpack
import msgspec
import psutil
import uvloop
from rich.console import Console
from rich.table import Table

from outrider.service.grpc.app import GrpcApp
from outrider.service.grpc.framing import encode
from outrider.service.grpc.methods import Bidirectional, CallContext, ServerStreaming, Service
from outrider.service.server import Server, ServerOptions
from outrider.service.urlfrontier_pb2 import (
    DESCRIPTOR,
    AckMessage,
    BatchAck,
    DiscoveredBatch,
    DiscoveredURLItem,
    GetParams,
    URLInfo,
    URLItem,
)  # fmt: skip

SERVERS = ("outrider", "hypercorn", "uvicorn")
SERVICE = "urlfrontier.URLFrontier"
FRAME_BYTES = 16_384
WINDOW = 16 * 1024 * 1024
TIMEOUT_S = 120.0
DISCOVERED_BATCH = 256
ROUND_TRIPS = 2_000
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM = 1
ACK = 1


class Result(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    what: str
    messages: int
    seconds: float
    server_cpu_seconds: float
    per_second: int
    per_cpu_second: int
    p50_ms: float | None = None
    p99_ms: float | None = None


# ---- the server


async def put_urls(_context: CallContext, batch: list[URLItem]) -> list[AckMessage]:
    return [AckMessage(ID=item.ID) for item in batch]


async def put_discovered(_context: CallContext, batch: list[DiscoveredBatch]) -> list[BatchAck]:
    return [BatchAck(ID=each.ID, statuses=[0] * len(each.items)) for each in batch]


async def get_urls(_context: CallContext, request: GetParams) -> AsyncIterator[list[URLInfo]]:
    for start in range(0, request.max_queues, 1_000):
        yield [
            URLInfo(url=f"https://www.example.org/articles/{number}", key="www.example.org", crawlID="DEFAULT")
            for number in range(start, min(start + 1_000, request.max_queues))
        ]


def application() -> GrpcApp:
    methods: dict[str, Any] = {
        "PutURLs": Bidirectional(request=URLItem, handle=put_urls),
        "PutDiscovered": Bidirectional(request=DiscoveredBatch, handle=put_discovered),
        "GetURLs": ServerStreaming(request=GetParams, handle=get_urls),
    }
    return GrpcApp([Service(name=SERVICE, methods=methods, file=DESCRIPTOR)])


async def serve(kind: str, port: int) -> None:
    if kind == "outrider":
        async with Server(application(), ServerOptions(port=port)):
            await asyncio.Event().wait()
    elif kind == "hypercorn":
        from hypercorn.asyncio import serve as hypercorn_serve
        from hypercorn.config import Config

        config = Config()
        config.bind = [f"127.0.0.1:{port}"]
        await hypercorn_serve(application(), config)  # type: ignore[arg-type]
    else:
        import uvicorn

        await uvicorn.Server(
            uvicorn.Config(application(), port=port, http="zttp", http2=True, log_level="error", lifespan="off")
        ).serve()


@contextmanager
def running_server(kind: str) -> Iterator[tuple[int, psutil.Process]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, __file__, "--serve", kind, str(port)])
    try:
        give_up = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > give_up or process.poll() is not None:
                    raise
                time.sleep(0.05)
        yield port, psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait(10)


# ---- the client


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">BHBBI", len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


class Call:
    """One call on a connection of its own."""

    def __init__(self, port: int, method: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.body = bytearray()
        self.ended = False
        self.connection_window = self.stream_window = 65_535
        self.initial_window = 65_535
        self.unsent = bytearray(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.unsent += frame(SETTINGS, 0, 0, struct.pack(">HI", 4, WINDOW))
        self.unsent += frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW))
        fields = [
            # Without keys, a service answers only to names of this machine.
            (":method", "POST"), (":scheme", "http"), (":path", f"/{SERVICE}/{method}"), (":authority", "127.0.0.1"),
            ("content-type", "application/grpc"), ("te", "trailers"),
        ]  # fmt: skip
        self.unsent += frame(HEADERS, 4, 1, hpack.Encoder().encode(fields))
        self._received = b""
        self._consumed = 0

    def exchange(self, chunks: list[bytes], until_bytes: int | None = None, *, end: bool) -> None:
        """Send frames of DATA with the chunks, and read until the end of the stream, or so many bytes of body."""
        give_up = time.monotonic() + TIMEOUT_S
        position = 0
        while not self.ended and (until_bytes is None or len(self.body) < until_bytes or position < len(chunks)):
            while position < len(chunks) and len(self.unsent) < 262_144:
                size = len(chunks[position])
                if size > self.connection_window or size > self.stream_window:
                    break
                self.connection_window -= size
                self.stream_window -= size
                position += 1
                flags = END_STREAM if end and position == len(chunks) else 0
                self.unsent += frame(DATA, flags, 1, chunks[position - 1])
            readable, writable, _ = select.select([self.socket], [self.socket] if self.unsent else [], [], 5)
            if writable:
                del self.unsent[: self.socket.send(self.unsent)]
            if readable:
                self._read()
            if time.monotonic() > give_up:
                raise TimeoutError(f"no end after {TIMEOUT_S:.0f} s with {len(self.body)} bytes of answers")

    def close(self) -> None:
        self.socket.close()

    def _read(self) -> None:
        data = self.socket.recv(1_048_576)
        if not data:
            raise ConnectionError("the server closed the connection")
        received = self._received + data
        position = 0
        while len(received) - position >= 9:
            high, low, kind, flags, _stream = struct.unpack_from(">BHBBI", received, position)
            stop = position + 9 + (high << 16 | low)
            if stop > len(received):
                break
            self._frame(kind, flags, _stream & 0x7FFFFFFF, received[position + 9 : stop])
            position = stop
        self._received = received[position:]

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == DATA:
            self.body += payload
            self._consumed += len(payload)
            if self._consumed > WINDOW // 4:
                for number in (0, 1):
                    self.unsent += frame(WINDOW_UPDATE, 0, number, struct.pack(">I", self._consumed))
                self._consumed = 0
        elif kind == WINDOW_UPDATE:
            (increment,) = struct.unpack(">I", payload)
            if stream:
                self.stream_window += increment
            else:
                self.connection_window += increment
        elif kind == SETTINGS and not flags & ACK:
            for position in range(0, len(payload), 6):
                code, value = struct.unpack_from(">HI", payload, position)
                if code == 4:
                    self.stream_window += value - self.initial_window
                    self.initial_window = value
            self.unsent += frame(SETTINGS, ACK, 0)
        elif kind == PING and not flags & ACK:
            self.unsent += frame(PING, ACK, 0, payload)
        elif kind in (RST_STREAM, GOAWAY):
            raise ConnectionError(f"the server gave up: frame {kind}, {payload!r}")
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            self.ended = True


def count_messages(body: bytes | bytearray) -> int:
    count = position = 0
    while position < len(body):
        position += 5 + int.from_bytes(body[position + 1 : position + 5])
        count += 1
    return count


# ---- what is measured


def items(count: int) -> list[URLItem]:
    return [
        URLItem(
            discovered=DiscoveredURLItem(
                info=URLInfo(url=f"https://www.example.org/articles/{number}", key="www.example.org", crawlID="DEFAULT")
            ),
            ID=str(number),
        )
        for number in range(count)
    ]


def cut(data: bytes) -> list[bytes]:
    return [data[start : start + FRAME_BYTES] for start in range(0, len(data), FRAME_BYTES)]


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(kind: str, what: str, method: str, chunks: list[bytes], messages: int, answers: int) -> Result:
    with running_server(kind) as (port, process):
        warm_up = Call(port, "PutURLs")
        warm_up.exchange([encode(items(100))], end=True)
        warm_up.close()
        call = Call(port, method)
        before, start = cpu_seconds(process), time.perf_counter()
        call.exchange(chunks, end=True)
        seconds = time.perf_counter() - start
        cpu = cpu_seconds(process) - before
        call.close()
    if count_messages(call.body) != answers:
        raise RuntimeError(f"{what} on {kind}: {count_messages(call.body)} answers instead of {answers}")
    return Result(
        server=kind, what=what, messages=messages, seconds=round(seconds, 3), server_cpu_seconds=round(cpu, 3),
        per_second=round(messages / seconds), per_cpu_second=round(messages / max(cpu, 1e-3)),
    )  # fmt: skip


def measure_round_trips(kind: str) -> Result:
    """One message at a time, each sent when the answer to the last has come."""
    chunks = [encode([item]) for item in items(ROUND_TRIPS)]
    acks = [len(encode([AckMessage(ID=str(number))])) for number in range(ROUND_TRIPS)]
    took = []
    with running_server(kind) as (port, process):
        call = Call(port, "PutURLs")
        expected = 0
        before = cpu_seconds(process)
        for chunk, ack in zip(chunks, acks, strict=True):
            expected += ack
            start = time.perf_counter()
            call.exchange([chunk], until_bytes=expected, end=False)
            took.append((time.perf_counter() - start) * 1000)
        cpu = cpu_seconds(process) - before
        call.close()
    cuts = statistics.quantiles(took, n=100)
    return Result(
        server=kind, what="PutURLs, one by one", messages=ROUND_TRIPS, seconds=round(sum(took) / 1000, 3),
        server_cpu_seconds=round(cpu, 3), per_second=round(ROUND_TRIPS / sum(took) * 1000),
        per_cpu_second=round(ROUND_TRIPS / max(cpu, 1e-3)), p50_ms=round(cuts[49], 3), p99_ms=round(cuts[98], 3),
    )  # fmt: skip


def measure_all(kind: str, messages: int) -> Iterator[Result]:
    puts = items(messages)
    encoded = cut(encode(puts))
    yield measure(kind, "PutURLs, frames of 16 KiB", "PutURLs", encoded, messages, messages)
    small = [encode([item]) for item in puts]
    yield measure(kind, "PutURLs, a frame each", "PutURLs", small, messages, messages)
    infos = [item.discovered.info for item in puts]
    batches = [
        DiscoveredBatch(ID=str(start), items=infos[start : start + DISCOVERED_BATCH])
        for start in range(0, messages, DISCOVERED_BATCH)
    ]
    yield measure(
        kind,
        f"PutDiscovered by {DISCOVERED_BATCH} (URLs)",
        "PutDiscovered",
        cut(encode(batches)),
        messages,
        len(batches),
    )
    request = [encode([GetParams(max_queues=messages)])]
    yield measure(kind, "GetURLs", "GetURLs", request, messages, messages)
    yield measure_round_trips(kind)


def show(results: list[Result]) -> None:
    table = Table("server", "what", "messages/s", "per server CPU s", "p50 ms", "p99 ms")
    for result in results:
        latencies = [f"{value:.2f}" if value is not None else "" for value in (result.p50_ms, result.p99_ms)]
        table.add_row(result.server, result.what, f"{result.per_second:,}", f"{result.per_cpu_second:,}", *latencies)
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the gRPC wire alone.")
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--server", nargs="+", choices=SERVERS, default=["outrider"])
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--serve", nargs=2, metavar=("SERVER", "PORT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        uvloop.run(serve(given.serve[0], int(given.serve[1])))
        return
    results = []
    for kind in given.server:
        try:
            results.extend(measure_all(kind, given.messages))
        except (OSError, RuntimeError) as error:
            print(f"{kind}: {error}", file=sys.stderr)
    show(results)
    if given.json:
        machine = {"cores": os.cpu_count(), "python": sys.version.split()[0]}
        given.json.write_text(json.dumps({"machine": machine, "results": msgspec.to_builtins(results)}, indent=2))


if __name__ == "__main__":
    main()
