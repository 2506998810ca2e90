"""The small parts of the wire: prefixes, compression, deadlines, statuses, joined frames."""

import doctest
import gzip
import itertools
import struct
import zlib
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.service.grpc import deadlines, status
from outrider.service.grpc.compression import compress, decompress
from outrider.service.grpc.deadlines import timeout_seconds
from outrider.service.grpc.framing import MessageDecoder, encode
from outrider.service.grpc.small_frames import FrameJoiner
from outrider.service.grpc.status import GrpcError, Status
from outrider.service.urlfrontier_pb2 import StringList

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MOST = 1_000


def decoder(encoding: str = "identity") -> MessageDecoder[StringList]:
    return MessageDecoder(StringList, most_bytes=MOST, encoding=encoding)


def decode_all(decoding: MessageDecoder[StringList], data: bytes) -> list[StringList]:
    messages: list[StringList] = []
    decoding.feed(data)
    while decoding.decode(messages, most_messages=len(messages) + 1, most_bytes=MOST):
        pass
    return messages


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in cuts)})
    return [data[start:stop] for start, stop in itertools.pairwise(places)]


def refused(data: bytes, encoding: str = "identity") -> Status:
    with pytest.raises(GrpcError) as refusal:
        decode_all(decoder(encoding), data)
    return refusal.value.status


@pytest.mark.parametrize("module", [deadlines, status], ids=lambda module: module.__name__)
def test_the_examples_hold(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert (outcome.failed, outcome.attempted > 0) == (0, True)


@given(values=st.lists(st.text(max_size=40), max_size=20), cuts=st.lists(st.integers(min_value=0), max_size=30))
def test_messages_are_the_same_wherever_the_chunks_are_cut(values: list[str], cuts: list[int]) -> None:
    sent = [StringList(values=[value]) for value in values]
    decoding = decoder()
    came = [message for chunk in cut(encode(sent), cuts) for message in decode_all(decoding, chunk)]
    decoding.finish()
    assert came == sent


def test_a_large_message_in_many_small_chunks_is_joined_once() -> None:
    decoding = MessageDecoder(StringList, most_bytes=4_000_000)
    data = encode([StringList(values=["x" * 3_000_000])])
    messages: list[StringList] = []
    for start in range(0, len(data), 100):
        decoding.feed(data[start : start + 100])
        decoding.decode(messages, most_messages=10, most_bytes=MOST)
    assert [len(message.values[0]) for message in messages] == [3_000_000]


def test_decoding_stops_when_the_list_is_full_and_goes_on_later() -> None:
    decoding = decoder()
    decoding.feed(encode(StringList(values=[str(number)]) for number in range(5)))
    first: list[StringList] = []
    second: list[StringList] = []
    assert decoding.decode(first, most_messages=3, most_bytes=MOST)
    assert not decoding.decode(second, most_messages=3, most_bytes=MOST)
    assert [message.values[0] for message in first + second] == ["0", "1", "2", "3", "4"]


def test_decoding_stops_when_compressed_messages_have_grown_to_the_limit() -> None:
    decoding = decoder("gzip")
    message = compress(StringList(values=["x" * 900]).SerializeToString())
    decoding.feed((b"\1" + struct.pack(">I", len(message)) + message) * 100)
    messages: list[StringList] = []
    assert decoding.decode(messages, most_messages=1_000, most_bytes=2_000)
    assert len(messages) == 3


def test_what_came_before_a_broken_message_is_decoded() -> None:
    decoding = decoder()
    decoding.feed(encode([StringList(values=["good"])]) + b"\0\0\0\0\2\xff\xff")
    messages: list[StringList] = []
    with pytest.raises(GrpcError):
        decoding.decode(messages, most_messages=10, most_bytes=MOST)
    assert messages == [StringList(values=["good"])]


def test_what_cannot_be_a_message_is_refused_with_the_status_of_grpc() -> None:
    assert refused(b"\0" + struct.pack(">I", MOST + 1)) == Status.RESOURCE_EXHAUSTED
    assert refused(b"\2" + struct.pack(">I", 0)) == Status.INTERNAL
    assert refused(b"\0\0\0\0\2\xff\xff") == Status.INTERNAL
    assert refused(b"\1\0\0\0\1x") == Status.INTERNAL
    assert refused(b"\1\0\0\0\1x", "gzip") == Status.INTERNAL


def test_a_stream_that_ends_in_the_middle_of_a_message_is_refused() -> None:
    for size in (1, 4, 5, 7):
        decoding = decoder()
        decode_all(decoding, encode([StringList(values=["abc"])])[:size])
        with pytest.raises(GrpcError):
            decoding.finish()


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_bomb_is_refused_after_the_limit_and_not_after_its_explosion(encoding: str, pack: object) -> None:
    assert callable(pack)
    bomb = pack(bytes(50_000_000))
    with pytest.raises(GrpcError) as refusal:
        decompress(bomb, encoding, MOST)
    assert refusal.value.status == Status.RESOURCE_EXHAUSTED
    assert decompress(pack(b"x" * MOST), encoding, MOST) == b"x" * MOST
    with pytest.raises(GrpcError):
        decompress(pack(b"words" * 10)[:-4], encoding, MOST)


def test_only_messages_that_shrink_are_compressed() -> None:
    assert encode([StringList(values=["small"])], compressing=True)[0] == 0
    large = encode([StringList(values=["x" * 2_000])], compressing=True)
    assert (large[0], len(large) < 200) == (1, True)


@pytest.mark.parametrize("field", ["", "1", "S", "-1S", "1.5S", "123456789S", "1s", "1 S", "٣S"])
def test_a_timeout_of_another_form_is_refused(field: str) -> None:
    with pytest.raises(GrpcError):
        timeout_seconds(field)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">BHBBI", len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def parsed(data: bytes) -> list[tuple[int, int, int, bytes]]:
    frames = []
    while data:
        high, low, kind, flags, stream = struct.unpack_from(">BHBBI", data)
        length = high << 16 | low
        frames.append((kind, flags, stream, data[9 : 9 + length]))
        data = data[9 + length :]
    return frames


frames_of_all_kinds = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 8]), st.sampled_from([0, 0, 0, 1, 8]), st.sampled_from([1, 3]),
        st.binary(max_size=30) | st.just(b"x" * 9_000),
    ),
    max_size=20,
)  # fmt: skip


@given(frames=frames_of_all_kinds, cuts=st.lists(st.integers(min_value=0), max_size=20))
def test_joining_frames_changes_neither_their_order_nor_their_bytes(
    frames: list[tuple[int, int, int, bytes]], cuts: list[int]
) -> None:
    data = PREFACE + b"".join(frame(*each) for each in frames)
    joiner = FrameJoiner(most_bytes=65_536)
    joined = b"".join(joiner.join(chunk) for chunk in cut(data, cuts))
    assert joined.startswith(PREFACE)

    def merged(frames: list[tuple[int, int, int, bytes]]) -> list[tuple[int, int, int, bytes]]:
        result: list[tuple[int, int, int, bytes]] = []
        for kind, flags, stream, payload in frames:
            if result and (kind, flags) == (0, 0) == result[-1][:2] and stream == result[-1][2]:
                result[-1] = (0, 0, stream, result[-1][3] + payload)
            else:
                result.append((kind, flags, stream, payload))
        return result

    assert merged(parsed(joined[len(PREFACE) :])) == merged(frames)


def test_small_frames_of_one_read_become_one() -> None:
    joiner = FrameJoiner(most_bytes=65_536)
    joined = joiner.join(PREFACE + frame(0, 0, 1, b"abc") * 100)
    assert parsed(joined[len(PREFACE) :]) == [(0, 0, 1, b"abc" * 100)]


def test_a_frame_that_is_too_large_is_not_waited_for() -> None:
    joiner = FrameJoiner(most_bytes=65_536)
    head = frame(0, 0, 1, bytes(70_000))[:20]
    assert joiner.join(PREFACE + frame(8, 0, 0, b"1234") + head) == PREFACE + frame(8, 0, 0, b"1234") + head
