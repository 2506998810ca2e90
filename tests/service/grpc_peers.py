"""The two ends of the gRPC tests: a small service on a real port, and a client that speaks bare HTTP/2."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import h2.config
import h2.connection
import h2.events
import h2.settings
import uvloop

from outrider.service.grpc.app import GrpcApp
from outrider.service.grpc.framing import encode
from outrider.service.grpc.health import Health
from outrider.service.grpc.methods import Bidirectional, CallContext, ServerStreaming, Service, Unary
from outrider.service.grpc.reflection import reflection_services
from outrider.service.grpc.status import GrpcError, Status
from outrider.service.server import Server, ServerOptions
from outrider.service.urlfrontier_pb2 import (
    DESCRIPTOR,
    AckMessage,
    BatchAck,
    DiscoveredBatch,
    DiscoveredURLItem,
    Empty,
    GetParams,
    Local,
    StringList,
    URLInfo,
    URLItem,
    URLStatusRequest,
)  # fmt: skip

WAIT_S = 10
GOAWAY = 7
URLFRONTIER = "urlfrontier.URLFrontier"
PUT_URLS = f"/{URLFRONTIER}/PutURLs"
GET_URLS = f"/{URLFRONTIER}/GetURLs"


def item(number: int) -> URLItem:
    """A discovered URL with an ID of its own."""
    return URLItem(discovered=DiscoveredURLItem(info=URLInfo(url=f"https://example.org/{number}")), ID=str(number))


class Forgetful:
    """A URLFrontier that accepts and forgets, and notes what was asked of it."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.cancelled = threading.Event()
        self.entered = threading.Event()
        self._released = threading.Event()
        self._released.set()
        self.contexts: list[CallContext] = []

    def hold(self) -> None:
        """Let PutURLs wait, from now on, before it acknowledges."""
        self._released.clear()

    def release(self) -> None:
        self._released.set()

    @property
    def service(self) -> Service:
        return Service(
            name=URLFRONTIER,
            file=DESCRIPTOR,
            methods={
                "ListNodes": Unary(request=Empty, handle=self.list_nodes),
                "ListCrawls": Unary(request=Local, handle=self.fail),
                "GetURLStatus": Unary(request=URLStatusRequest, handle=self.wait_for_ever),
                "GetURLs": ServerStreaming(request=GetParams, handle=self.get_urls),
                "PutURLs": Bidirectional(request=URLItem, handle=self.put_urls),
                "PutDiscovered": Bidirectional(request=DiscoveredBatch, handle=self.put_discovered),
            },
        )

    async def list_nodes(self, context: CallContext, _request: Empty) -> StringList:
        self.contexts.append(context)
        return StringList(values=["here"])

    async def fail(self, _context: CallContext, request: Local) -> StringList:
        if request.local:
            raise GrpcError(Status.NOT_FOUND, "50 % of “everything”\nis missing")
        raise RuntimeError("the secret reason")

    async def wait_for_ever(self, _context: CallContext, _request: URLStatusRequest) -> URLItem:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return URLItem()

    async def get_urls(self, _context: CallContext, request: GetParams) -> AsyncIterator[list[URLInfo]]:
        """`max_queues` URLs with `max_urls_per_queue` bytes each, 1,000 at a time."""
        self.entered.set()
        padding = "x" * request.max_urls_per_queue
        try:
            for start in range(0, request.max_queues, 1_000):
                stop = min(request.max_queues, start + 1_000)
                yield [URLInfo(url=f"{number}/{padding}") for number in range(start, stop)]
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise

    async def put_urls(self, _context: CallContext, batch: list[URLItem]) -> list[AckMessage]:
        self.batches.append(len(batch))
        self.entered.set()
        if not self._released.is_set():
            await asyncio.to_thread(self._released.wait, WAIT_S)
        return [AckMessage(ID=each.ID) for each in batch]

    async def put_discovered(self, _context: CallContext, batch: list[DiscoveredBatch]) -> list[BatchAck]:
        return [BatchAck(ID=each.ID, statuses=[AckMessage.OK] * len(each.items)) for each in batch]


class RunningService:
    """The service on a port of its own, in a thread of its own, with what the tests want to look at."""

    def __init__(self, options: ServerOptions | None = None, **application: Any) -> None:
        self.frontier = Forgetful()
        self.options = options or ServerOptions(port=0, drain_s=2)
        self.application = application
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()), daemon=True)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def on_loop(self, act: Any, *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(act, *arguments)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(WAIT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.frontier.release()
        self.stop()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.health = Health([URLFRONTIER])
        services = [self.frontier.service, self.health.service]
        self.app = GrpcApp([*services, *reflection_services(services)], **self.application)
        async with Server(self.app, self.options, on_stop=[self.health.stop, self.app.drain]) as server:
            self.port = server.port
            self._ready.set()
            await self._stop.wait()


class RawClient:
    """One HTTP/2 connection, frame by frame, that reads and grants windows only when it is told to."""

    def __init__(self, port: int, *, window: int = 65_535, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        # Headers and data go one by one: without this, each call waits 40 ms for an acknowledgement.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = tls.wrap_socket(plain, server_hostname="localhost") if tls else plain
        self.http2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, validate_outbound_headers=False)
        )
        self.http2.local_settings = h2.settings.Settings(
            client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
        )
        self.http2.initiate_connection()
        self.http2.increment_flow_control_window(2**24)
        self.events: list[h2.events.Event] = []
        self.dismissed = False
        self._received = b""
        self.flush()
        while not any(isinstance(event, h2.events.RemoteSettingsChanged) for event in self.events):
            if not self.read():
                raise ConnectionError("the server closed the connection without a word")

    def request(self, path: str, fields: Mapping[str, str] | None = None, *, end: bool = False) -> int:
        stream = self.http2.get_next_available_stream_id()
        given = {
            ":method": "POST", ":scheme": "http", ":path": path, ":authority": "test",
            "content-type": "application/grpc", "te": "trailers",
        } | dict(fields or {})  # fmt: skip
        self.http2.send_headers(stream, list(given.items()), end_stream=end)
        self.flush()
        return stream

    def write(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send as much as fits the server's windows at once; reads on to get more."""
        rest = memoryview(data)
        while True:
            size = min(len(rest), self.http2.local_flow_control_window(stream), self.http2.max_outbound_frame_size)
            self.http2.send_data(stream, bytes(rest[:size]), end_stream=end and size == len(rest))
            self.flush()
            rest = rest[size:]
            if not rest:
                return
            if self.http2.local_flow_control_window(stream) == 0 and not self.read():
                raise ConnectionError("the server closed the connection")

    def put(self, stream: int, numbers: range, *, end: bool = False) -> None:
        self.write(stream, encode(item(number) for number in numbers), end=end)

    def flush(self) -> None:
        self.socket.sendall(self.http2.data_to_send())

    def read(self) -> bool:
        """Read once, waiting for it; False at the end of the connection."""
        data = self.socket.recv(65_536)
        if not data:
            return False
        self._received += data
        while len(self._received) >= 9 + (length := int.from_bytes(self._received[:3])):
            frame, self._received = self._received[: 9 + length], self._received[9 + length :]
            # h2 believes that all is over with a GOAWAY, but streams that run are still answered.
            if frame[3] == GOAWAY:
                self.dismissed = True
            else:
                self.events += self.http2.receive_data(frame)
        self.flush()
        return True

    def answer(self, stream: int) -> tuple[dict[str, str], bytes]:
        """The fields and the body of a response, when it is complete; grants windows on the way."""
        fields: dict[str, str] = {}
        body = bytearray()
        while True:
            events = self.take(stream)
            for event in events:
                if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                    fields |= {_text(name): _text(value) for name, value in event.headers}
                elif isinstance(event, h2.events.DataReceived):
                    body += event.data
                    self.http2.acknowledge_received_data(event.flow_controlled_length, stream)
                elif isinstance(event, h2.events.StreamReset):
                    fields["reset"] = str(int(event.error_code))
            self.flush()
            if any(isinstance(event, h2.events.StreamEnded | h2.events.StreamReset) for event in events):
                return fields, bytes(body)
            if not self.read():
                return fields | {"closed": "yes"}, bytes(body)

    def take(self, stream: int) -> list[h2.events.Event]:
        """The events of one stream; those of others stay."""
        events, self.events = self.events, []
        taken: list[h2.events.Event] = []
        for event in events:
            (taken if getattr(event, "stream_id", None) == stream else self.events).append(event)
        return taken

    def close(self) -> None:
        self.socket.close()


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


@contextmanager
def raw_client(port: int, **options: Any) -> Iterator[RawClient]:
    client = RawClient(port, **options)
    try:
        yield client
    finally:
        client.close()


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    give_up = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.002)


def messages_of(body: bytes, kind: Any) -> list[Any]:
    """Decode the messages of a response's body."""
    found = []
    position = 0
    while position < len(body):
        stop = position + 5 + int.from_bytes(body[position + 1 : position + 5])
        found.append(kind.FromString(body[position + 5 : stop]))
        position = stop
    return found
