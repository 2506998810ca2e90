"""Whatever is sent: no 500, no hang, no growth of memory, and the next client is served."""

import gc
import logging
import random
import resource
import socket
import struct
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.service.grpc.compression import compress
from outrider.service.grpc.framing import encode
from outrider.service.urlfrontier_pb2 import Empty, StringList
from tests.service.grpc_peers import (
    GET_URLS,
    PUT_URLS,
    URLFRONTIER,
    WAIT_S,
    RawClient,
    RunningService,
    item,
    raw_client,
)  # fmt: skip

LIST_NODES = f"/{URLFRONTIER}/ListNodes"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
IDLE_CONNECTIONS = 1_000


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with RunningService() as running:
        yield running


@pytest.fixture
def client(service: RunningService) -> Iterator[RawClient]:
    with raw_client(service.port) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_fails_inside(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What a client sends may be refused, but nothing of it may surprise the service."""
    yield
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def is_served(port: int) -> bool:
    with raw_client(port) as client:
        stream = client.request(LIST_NODES)
        client.write(stream, encode([Empty()]), end=True)
        return client.answer(stream)[0].get("grpc-status") == "0"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack(">BHBBI", size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def throw(port: int, data: bytes) -> bytes:
    """Send bytes, say that no more come, and read until the server is done with us."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as plain:
        answer = b""
        try:
            plain.sendall(data)
            plain.shutdown(socket.SHUT_WR)
            while more := plain.recv(65_536):
                answer += more
        except (ConnectionResetError, BrokenPipeError):
            pass
        return answer


BODIES = {
    "nothing": b"",
    "a part of a prefix": b"\0\0\0",
    "a prefix alone": b"\0\0\0\0\x05",
    "a part of a message": encode([item(1)])[:-3],
    "an oversized message": b"\0\xff\xff\xff\xff",
    "not protobuf": b"\0\0\0\0\x03\xff\xff\xff",
    "a wrong wire type": b"\0\0\0\0\x02\x0d\x01",
    "a wrong flag": b"\x07\0\0\0\0",
    "compressed without an encoding": b"\1\0\0\0\1x",
    "another type": encode([StringList(values=["x"] * 100)]),
    "text that is not UTF-8": b"\0\0\0\0\x04\x1a\x02\xff\xfe",
    "many": encode([item(1)]) * 1_000,
}


@pytest.mark.parametrize("path", [PUT_URLS, GET_URLS, LIST_NODES])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_every_body_has_a_grpc_status(client: RawClient, path: str, body: bytes) -> None:
    stream = client.request(path)
    client.write(stream, body, end=True)
    fields, _ = client.answer(stream)
    assert fields[":status"] == "200"
    assert fields["grpc-status"] in {"0", "8", "13"}


@given(body=st.binary(max_size=300), path=st.sampled_from([PUT_URLS, GET_URLS, LIST_NODES]))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bodies_have_a_grpc_status(client: RawClient, body: bytes, path: str) -> None:
    stream = client.request(path, {"grpc-encoding": "gzip"})
    client.write(stream, body, end=True)
    fields, _ = client.answer(stream)
    assert (fields[":status"], fields["grpc-status"] in {"0", "8", "13"}) == ("200", True)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"content-type": "application/json"}, {":status": "415"}),
        ({"content-type": "application/grpc-web"}, {":status": "415"}),
        ({"content-type": "application/grpc+json"}, {":status": "415"}),
        ({"content-type": "application/grpc+proto"}, {":status": "200"}),
        ({":method": "GET"}, {":status": "405", "allow": "POST"}),
        ({"grpc-encoding": "snappy"}, {"grpc-status": "12", "grpc-accept-encoding": "identity, deflate, gzip"}),
        ({"grpc-timeout": "soon"}, {"grpc-status": "13"}),
        ({"grpc-timeout": "0n"}, {"grpc-status": "4"}),
        ({":path": "/"}, {"grpc-status": "12"}),
        ({":path": "*"}, {"grpc-status": "12"}),
        ({":path": "/urlfrontier.URLFrontier/ListNodes/"}, {"grpc-status": "12"}),
        ({":path": "/%zz/\u00ff"}, {"grpc-status": "12"}),
        ({"x-binary": "\u00ff\u00fe"}, {"grpc-status": "0"}),
    ],
)
def test_wrong_fields_have_their_answer(client: RawClient, fields: dict[str, str], expected: dict[str, str]) -> None:
    stream = client.request(fields.get(":path", LIST_NODES), {**fields})
    client.write(stream, encode([Empty()]), end=True)
    answer, _ = client.answer(stream)
    assert {name: answer.get(name) for name in expected} == expected


def test_bombs_do_not_explode(client: RawClient) -> None:
    bomb = compress(bytes(100_000_000))
    before = psutil.Process().memory_info().rss
    for _ in range(5):
        stream = client.request(PUT_URLS, {"grpc-encoding": "gzip"})
        client.write(stream, b"\1" + struct.pack(">I", len(bomb)) + bomb, end=True)
        assert client.answer(stream)[0]["grpc-status"] == "8"
    assert psutil.Process().memory_info().rss - before < 50_000_000


CONVERSATIONS = {
    "nothing": b"",
    "a part of the preface": PREFACE[:10],
    "the preface alone": PREFACE,
    "no HTTP at all": b"\x16\x03\x01\x02\x00" + b"\0" * 200,
    "a frame that is too large": PREFACE + frame(4, 0, 0) + frame(0, 0, 1, b"x" * 100, length=2**24 - 1),
    "data on a stream that is not open": PREFACE + frame(4, 0, 0) + frame(0, 0, 1, b"x"),
    "headers that are not HPACK": PREFACE + frame(4, 0, 0) + frame(1, 4, 1, b"\xff" * 40),
    "no end of headers": PREFACE + frame(4, 0, 0) + frame(1, 0, 1, b"\x82") + frame(9, 0, 1, b"\x86") * 5_000,
    "a window that overflows": PREFACE + frame(4, 0, 0) + frame(8, 0, 0, struct.pack(">I", 2**31 - 1)) * 2,
    "settings of a wrong length": PREFACE + frame(4, 0, 0, b"12345"),
    "an unknown kind of frame": PREFACE + frame(4, 0, 0) + frame(99, 0, 0, b"x" * 50),
    "a flood of pings": PREFACE + frame(4, 0, 0) + frame(6, 0, 0, b"12345678") * 5_000,
    "a farewell": PREFACE + frame(4, 0, 0) + frame(7, 0, 0, bytes(8)),
}


@pytest.mark.parametrize("data", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
def test_a_broken_conversation_ends_and_others_go_on(service: RunningService, data: bytes) -> None:
    throw(service.port, data)
    assert is_served(service.port)


def test_random_bytes_end_a_conversation(service: RunningService) -> None:
    generator = random.Random(1)
    for number in range(100):
        noise = generator.randbytes(generator.randrange(1, 400))
        throw(service.port, noise if number % 2 else PREFACE + frame(4, 0, 0) + noise)
    assert is_served(service.port)


def test_headers_beyond_the_limit_are_refused(service: RunningService) -> None:
    with raw_client(service.port) as client:
        stream = client.request(LIST_NODES, {f"x-{number}": "y" * 1_000 for number in range(40)})
        assert "grpc-status" not in client.answer(stream)[0]
    assert is_served(service.port)


def test_memory_does_not_grow_with_broken_calls(service: RunningService) -> None:
    def break_it_often(rounds: int) -> None:
        for number in range(rounds):
            with raw_client(service.port) as client:
                for body in BODIES.values():
                    client.write(client.request(PUT_URLS), body[:2_000])
                if number % 2:
                    stream = client.request(PUT_URLS)
                    client.http2.reset_stream(stream)
                    client.flush()

    break_it_often(20)
    gc.collect()
    before = psutil.Process().memory_info().rss
    break_it_often(100)
    gc.collect()
    assert psutil.Process().memory_info().rss - before < 8_000_000
    assert is_served(service.port)


def test_a_thousand_idle_connections_disturb_nobody(service: RunningService) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * IDLE_CONNECTIONS + 200
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    idle: list[socket.socket] = []
    try:
        for number in range(IDLE_CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", service.port), timeout=WAIT_S)
            idle.append(connection)
            # A third says nothing, a third has greeted, a third has also been heard of since.
            if number % 3:
                connection.sendall(PREFACE + frame(4, 0, 0))
            if number % 3 == 2:
                connection.sendall(frame(6, 0, 0, b"12345678"))
        assert is_served(service.port)
        assert sum(bool(each.recv(100)) for each in idle[1::3]) == len(idle[1::3])
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert is_served(service.port)
