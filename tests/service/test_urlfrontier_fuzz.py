"""Whatever a client of URLFrontier sends to a real service on a real store: an answer, and never a mistake of ours."""

import gc
import logging
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import psutil
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from outrider.service import urlfrontier_pb2 as messages
from tests.service.grpc_peers import URLFRONTIER, RawClient, messages_of, raw_client
from tests.service.serving import served_by_a_thread

SERVICE = messages.DESCRIPTOR.services_by_name["URLFrontier"]
METHODS = [method.name for method in SERVICE.methods]
ANSWERS = {"0": "OK", "3": "INVALID_ARGUMENT", "5": "NOT_FOUND", "8": "RESOURCE_EXHAUSTED", "9": "FAILED_PRECONDITION"}
UNREADABLE = "13"
"""INTERNAL, with which a message is answered that is none."""
TEXTS = st.sampled_from(
    ["", "DEFAULT", "a.example", "http://a.example/", "http://a.example/1", "\0", "é/?#", "x" * 300, "*", "-1"]
) | st.text(max_size=20)
NUMBERS = {
    FieldDescriptor.TYPE_UINT32: st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1]) | st.integers(0, 100),
    FieldDescriptor.TYPE_UINT64: st.sampled_from([0, 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(0, 100),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: TEXTS,
}
QUICK = settings(
    max_examples=12,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with served_by_a_thread(tmp_path_factory.mktemp("fuzzed")) as server:
        yield server.port


@pytest.fixture
def client(port: int) -> Iterator[RawClient]:
    with raw_client(port) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_fails_inside(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    # A client may set how much is logged: nothing of it may silence the mistakes that are looked for here.
    logging.getLogger("outrider").setLevel(logging.NOTSET)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@cache
def values_of(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return fields_of(field.message_type)
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    return NUMBERS[field.type]


@cache
def fields_of(message: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    """Fields for any message of the definition, some of them left out."""
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in message.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            optional[field.name] = st.dictionaries(TEXTS, values_of(value), max_size=3)
        elif field.is_repeated:
            optional[field.name] = st.lists(values_of(field), max_size=3)
        else:
            optional[field.name] = values_of(field)
    return st.fixed_dictionaries({}, optional=optional)


def frames_of(method: str) -> st.SearchStrategy[bytes]:
    """Up to three messages that a method takes, each in its frame."""
    kind = getattr(messages, SERVICE.methods_by_name[method].input_type.name)
    encoded = fields_of(kind.DESCRIPTOR).map(lambda fields: _framed(_made(kind, fields).SerializeToString()))
    return st.lists(encoded, min_size=1, max_size=3 if method.startswith("Put") else 1).map(b"".join)


def _made(kind: Any, fields: dict[str, Any]) -> Any:
    try:
        return kind(**fields)
    except UnicodeEncodeError:
        return kind()


def _framed(message: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(message)) + message


def opened(client: RawClient, method: str) -> int:
    """Begin a call; a service without keys is asked under this machine's own name only."""
    return client.request(f"/{URLFRONTIER}/{method}", {":authority": "127.0.0.1"})


def answer_to(client: RawClient, method: str, body: bytes) -> dict[str, str]:
    stream = opened(client, method)
    client.write(stream, body, end=True)
    return client.answer(stream)[0]


@pytest.mark.parametrize("method", METHODS)
def test_any_values_are_answered_or_refused(client: RawClient, method: str) -> None:
    @given(body=frames_of(method))
    @QUICK
    def try_it(body: bytes) -> None:
        fields = answer_to(client, method, body)
        assert fields.get("grpc-status") in ANSWERS, fields

    try_it()


@pytest.mark.parametrize("method", METHODS)
def test_damaged_messages_are_answered_or_refused(client: RawClient, method: str) -> None:
    @given(body=frames_of(method), place=st.integers(0, 2_000), by=st.integers(1, 255), cut=st.integers(0, 3))
    @QUICK
    def try_it(body: bytes, place: int, by: int, cut: int) -> None:
        damaged = bytearray(body[: len(body) - cut])
        if len(damaged) > 5:
            damaged[5 + place % (len(damaged) - 5)] ^= by
        fields = answer_to(client, method, bytes(damaged))
        assert fields.get("grpc-status") in {*ANSWERS, UNREADABLE}, fields

    try_it()


def test_unknown_fields_are_passed_over(client: RawClient) -> None:
    known = messages.URLItem(discovered={"info": {"url": "http://u.example/"}}, ID="1").SerializeToString()
    unknown = b"\xfa\x3f\x03abc" + b"\xf8\x3f\x07" + b"\xfd\x3f\0\0\0\0"  # a text, a number and four bytes
    stream = opened(client, "PutURLs")
    client.write(stream, _framed(unknown + known + unknown), end=True)
    fields, body = client.answer(stream)
    (ack,) = messages_of(body, messages.AckMessage)
    assert (fields["grpc-status"], ack.ID, ack.status) == ("0", "1", messages.AckMessage.OK)


def test_streams_that_are_left_half_closed_or_open_cost_nothing(port: int) -> None:
    body = _framed(messages.URLItem(discovered={"info": {"url": "http://h.example/"}}).SerializeToString())

    def leave(connections: int) -> None:
        for _ in range(connections):
            with raw_client(port) as client:
                for number in range(100):
                    stream = opened(client, "PutURLs")
                    # A half has said its last word and reads no answer; the other half may still go on, and does not.
                    client.write(stream, body, end=bool(number % 2))

    leave(3)
    gc.collect()
    before = psutil.Process().memory_info().rss
    leave(15)
    gc.collect()
    assert psutil.Process().memory_info().rss - before < 8_000_000
    with raw_client(port) as client:
        assert answer_to(client, "ListNodes", _framed(b""))["grpc-status"] == "0"
