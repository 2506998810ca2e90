"""Streams frame by frame: batches, flow control in both directions, and what happens when one end goes."""

from collections.abc import Iterator

import h2.events
import pytest

from outrider.service.grpc.framing import encode
from outrider.service.grpc.http2 import MAX_STREAMS, STREAM_WINDOW
from outrider.service.urlfrontier_pb2 import AckMessage, Empty, GetParams, URLInfo, URLItem, URLStatusRequest
from tests.service.grpc_peers import (
    GET_URLS,
    PUT_URLS,
    URLFRONTIER,
    WAIT_S,
    RawClient,
    RunningService,
    item,
    messages_of,
    raw_client,
    until,
)  # fmt: skip

LIST_NODES = f"/{URLFRONTIER}/ListNodes"
GET_STATUS = f"/{URLFRONTIER}/GetURLStatus"


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningService]:
    with RunningService() as running:
        yield running


@pytest.fixture
def service(shared: RunningService) -> Iterator[RunningService]:
    shared.frontier.batches.clear()
    shared.frontier.cancelled.clear()
    shared.frontier.entered.clear()
    yield shared
    shared.frontier.release()


@pytest.fixture
def client(service: RunningService) -> Iterator[RawClient]:
    with raw_client(service.port) as made:
        yield made


def acks_of(body: bytes) -> list[str]:
    return [ack.ID for ack in messages_of(body, AckMessage)]


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def read_acks(client: RawClient, stream: int, count: int) -> list[str]:
    """Read until so many acks have come, without waiting for the end of the stream."""
    body = b""
    while len(acks_of(body)) < count:
        body += granted(client, stream)
        if len(acks_of(body)) < count:
            assert client.read()
    return acks_of(body)


def granted(client: RawClient, stream: int) -> bytes:
    """The data that has come, for which the server now may send more."""
    data = b""
    for event in client.take(stream):
        if isinstance(event, h2.events.DataReceived):
            data += event.data
            client.http2.acknowledge_received_data(event.flow_controlled_length, stream)
    client.flush()
    return data


def write_until_stopped(client: RawClient, stream: int, data: bytes) -> int:
    """Send all that the server lets in, granting it no window, and return how much that was.

    Whenever the window is closed the server is asked for something else, on another stream, a few times: when that is
    answered it has seen all that was sent, and a window that is still closed stays so.
    """
    sent = 0
    while sent < len(data):
        asked = 0
        while not (room := client.http2.local_flow_control_window(stream)):
            asked += 1
            if asked > 20:
                return sent
            assert list_nodes(client)["grpc-status"] == "0"
        size = min(room, 16_384, len(data) - sent)
        client.http2.send_data(stream, data[sent : sent + size])
        client.flush()
        sent += size
    return sent


def finish(client: RawClient, stream: int, data: bytes) -> tuple[dict[str, str], bytes]:
    """Send the rest while reading the answers."""
    body = b""
    while data:
        body += granted(client, stream)
        size = min(client.http2.local_flow_control_window(stream), 16_384, len(data))
        if size:
            client.http2.send_data(stream, data[:size], end_stream=size == len(data))
            client.flush()
            data = data[size:]
        else:
            assert client.read()
    fields, rest = client.answer(stream)
    return fields, body + rest


def list_nodes(client: RawClient) -> dict[str, str]:
    stream = client.request(LIST_NODES)
    client.write(stream, encode([Empty()]), end=True)
    return client.answer(stream)[0]


def test_the_messages_of_one_chunk_are_one_batch_and_one_answer(service: RunningService, client: RawClient) -> None:
    stream = client.request(PUT_URLS)
    client.put(stream, range(100))
    assert read_acks(client, stream, 100) == numbers(100)
    assert service.frontier.batches == [100]
    client.put(stream, range(100, 101), end=True)
    fields, body = client.answer(stream)
    assert acks_of(body) == ["100"]
    assert fields["grpc-status"] == "0"


def test_a_message_that_comes_byte_by_byte_comes_whole(client: RawClient) -> None:
    stream = client.request(PUT_URLS)
    for byte in encode([item(7), item(8)]):
        client.write(stream, bytes([byte]))
    client.write(stream, b"", end=True)
    fields, body = client.answer(stream)
    assert acks_of(body) == ["7", "8"]
    assert fields["grpc-status"] == "0"


def test_what_comes_while_a_batch_is_handled_is_the_next_batch(service: RunningService, client: RawClient) -> None:
    service.frontier.hold()
    stream = client.request(PUT_URLS)
    client.put(stream, range(1))
    assert service.frontier.entered.wait(WAIT_S)
    for number in range(1, 50):
        client.put(stream, range(number, number + 1))
    # The connection is read in order: when this answer is here, so are the messages before it.
    assert list_nodes(client)["grpc-status"] == "0"
    service.frontier.release()
    assert read_acks(client, stream, 50) == numbers(50)
    assert service.frontier.batches == [1, 49]


def test_a_client_that_sends_faster_than_is_stored_is_slowed_down(service: RunningService, client: RawClient) -> None:
    service.frontier.hold()
    stream = client.request(PUT_URLS)
    data = encode(item(number) for number in range(40_000))
    sent = write_until_stopped(client, stream, data)
    assert sent < len(data)
    service.frontier.release()
    fields, body = finish(client, stream, data[sent:])
    assert (acks_of(body), fields["grpc-status"]) == (numbers(40_000), "0")
    assert max(service.frontier.batches) <= 4_096


def test_large_messages_are_counted_by_their_bytes(service: RunningService, client: RawClient) -> None:
    service.frontier.hold()
    stream = client.request(PUT_URLS)
    data = encode([URLItem(ID="x" * 50_000)]) * 200
    # One batch is held, one is read ahead, and the rest of what came waits in the window.
    assert write_until_stopped(client, stream, data) < 3_500_000
    service.frontier.release()


def test_a_client_that_reads_no_acks_is_not_read_from(service: RunningService) -> None:
    with raw_client(service.port, window=1_000) as client:
        stream = client.request(PUT_URLS)
        data = encode(item(number) for number in range(40_000))
        sent = write_until_stopped(client, stream, data)
        # Acks of 1,000 bytes, a batch that waits to be acked, what is read ahead of it, and the windows.
        assert sent < STREAM_WINDOW + 4 * 4_096 * 50
        # A second stream of the same connection does not care.
        assert list_nodes(client)["grpc-status"] == "0"


def test_a_client_that_reads_late_loses_nothing(service: RunningService, client: RawClient) -> None:
    stream = client.request(PUT_URLS)
    data = encode(item(number) for number in range(40_000))
    sent = write_until_stopped(client, stream, data)
    assert sent < len(data)
    fields, body = finish(client, stream, data[sent:])
    assert (acks_of(body), fields["grpc-status"]) == (numbers(40_000), "0")


def test_urls_that_nobody_reads_are_not_taken_from_the_frontier(service: RunningService) -> None:
    with raw_client(service.port, window=100_000) as client:
        stream = client.request(GET_URLS)
        client.write(stream, encode([GetParams(max_queues=10_000_000, max_urls_per_queue=100)]), end=True)
        # The window is used up: 100,000 bytes have come, and no more do.
        came = 0
        while came < 100_000:
            assert client.read()
            came = sum(len(event.data) for event in client.events if isinstance(event, h2.events.DataReceived))
        client.events.clear()
        assert list_nodes(client)["grpc-status"] == "0"
        assert came == 100_000
        client.http2.reset_stream(stream)
        client.flush()
        assert service.frontier.cancelled.wait(WAIT_S)


@pytest.mark.parametrize("going", ["reset", "close"])
def test_a_client_that_goes_cancels_what_runs_for_it(service: RunningService, going: str) -> None:
    with raw_client(service.port) as client:
        stream = client.request(GET_STATUS)
        client.write(stream, encode([URLStatusRequest()]), end=True)
        assert service.frontier.entered.wait(WAIT_S)
        if going == "reset":
            client.http2.reset_stream(stream)
            client.flush()
        else:
            client.close()
        assert service.frontier.cancelled.wait(WAIT_S)


def test_a_half_closed_stream_is_answered_to_its_end(service: RunningService, client: RawClient) -> None:
    service.frontier.hold()
    stream = client.request(PUT_URLS)
    client.put(stream, range(10), end=True)
    assert service.frontier.entered.wait(WAIT_S)
    service.frontier.release()
    fields, body = client.answer(stream)
    assert (len(acks_of(body)), fields["grpc-status"]) == (10, "0")


def test_an_immediate_error_is_one_frame(client: RawClient) -> None:
    stream = client.request(f"/{URLFRONTIER}/Unheard", end=True)
    fields, body = client.answer(stream)
    assert (fields[":status"], fields["grpc-status"], body) == ("200", "12", b"")
    assert "Unheard" in fields["grpc-message"]


def test_trailers_follow_the_messages(client: RawClient) -> None:
    stream = client.request(GET_URLS)
    client.write(stream, encode([GetParams(max_queues=2)]), end=True)
    while not any(isinstance(event, h2.events.StreamEnded) for event in client.events):
        assert client.read()
    kinds = [type(event) for event in client.events if getattr(event, "stream_id", None) == stream]
    wanted = [h2.events.ResponseReceived, h2.events.DataReceived, h2.events.TrailersReceived, h2.events.StreamEnded]
    assert [kind for kind in kinds if kind in wanted] == wanted


def test_what_came_before_a_broken_message_is_acknowledged(client: RawClient) -> None:
    stream = client.request(PUT_URLS)
    client.write(stream, encode([item(1), item(2)]) + b"\0\0\0\0\2\xff\xff")
    fields, body = client.answer(stream)
    assert acks_of(body) == ["1", "2"]
    assert fields["grpc-status"] == "13"


def test_a_stream_that_is_answered_early_may_stop_sending(client: RawClient) -> None:
    stream = client.request(f"/{URLFRONTIER}/Unheard")
    while not any(isinstance(event, h2.events.StreamReset) for event in client.events):
        assert client.read()
    (reset,) = [event for event in client.events if isinstance(event, h2.events.StreamReset)]
    assert (reset.stream_id, reset.error_code) == (stream, 0)


def test_the_deadline_is_counted_by_the_server_too(client: RawClient) -> None:
    stream = client.request(GET_STATUS, {"grpc-timeout": "50m"})
    client.write(stream, encode([URLStatusRequest()]), end=True)
    assert client.answer(stream)[0]["grpc-status"] == "4"


def test_a_client_that_opens_and_resets_streams_gains_nothing(service: RunningService, client: RawClient) -> None:
    for _ in range(20 * MAX_STREAMS):
        stream = client.http2.get_next_available_stream_id()
        client.http2.send_headers(stream, [
            (":method", "POST"), (":scheme", "http"), (":path", PUT_URLS), (":authority", "test"),
            ("content-type", "application/grpc"), ("te", "trailers"),
        ])  # fmt: skip
        client.http2.reset_stream(stream)
    client.flush()
    # Some may be refused while the tasks of those before are being cleaned up.
    until(lambda: list_nodes(client).get("grpc-status") == "0")
    until(lambda: not service.app._streams)


def test_a_response_compressed_by_gzip_says_so(client: RawClient) -> None:
    fields = {"grpc-encoding": "gzip", "grpc-accept-encoding": "identity,gzip"}
    stream = client.request(GET_URLS, fields)
    client.write(stream, encode([GetParams(max_queues=1, max_urls_per_queue=100_000)]), end=True)
    head, body = client.answer(stream)
    assert (head["grpc-encoding"], body[0], len(body) < 10_000) == ("gzip", 1, True)
    stream = client.request(GET_URLS)
    client.write(stream, encode([GetParams(max_queues=1, max_urls_per_queue=10_000)]), end=True)
    head, body = client.answer(stream)
    assert ("grpc-encoding" in head, len(messages_of(body, URLInfo))) == (False, 1)
    assert "gzip" in head["grpc-accept-encoding"]
