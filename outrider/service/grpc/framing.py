"""Messages in and out of body chunks: a byte that says whether it is compressed, four of length, the message."""

import struct
from collections.abc import Iterable
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from outrider.service.grpc.compression import IDENTITY, WORTH_BYTES, compress, decompress
from outrider.service.grpc.status import GrpcError, Status

PREFIX_BYTES = 5
_PREFIX = struct.Struct(">BI")

Request = TypeVar("Request", bound=Message)


class MessageDecoder(Generic[Request]):
    """Decodes the messages of one stream, wherever the chunks are cut."""

    def __init__(self, message_type: type[Request], *, most_bytes: int, encoding: str = IDENTITY) -> None:
        self._parse = message_type.FromString
        self._most_bytes = most_bytes
        self._encoding = encoding
        # Of all messages so far, decompressed.
        self.decoded_bytes = 0
        self._buffer = b""
        self._position = 0
        # Chunks of a message that is not there whole, kept apart: joined once, not for every chunk.
        self._parts: list[bytes] = []
        self._missing = 0

    def feed(self, chunk: bytes) -> None:
        """Take in what came."""
        if not chunk:
            return
        self._missing -= len(chunk)
        self._parts.append(chunk)
        if self._missing <= 0:
            self._buffer = b"".join([self._buffer[self._position :], *self._parts])
            self._position = 0
            self._parts.clear()

    def decode(self, messages: list[Request], *, most_messages: int, most_bytes: int) -> bool:
        """Append what is there whole to `messages`, and tell whether there may be more of it.

        Stops when the list is full or `most_bytes` are decoded, which a compressed chunk can be a thousand times over.
        Raises for what cannot be read; what came before it is in the list by then.
        """
        if self._parts:
            return False
        buffer, position, end = self._buffer, self._position, len(self._buffer)
        parse, unpack = self._parse, _PREFIX.unpack_from
        enough = self.decoded_bytes + most_bytes
        try:
            while end - position >= PREFIX_BYTES:
                compressed, length = unpack(buffer, position)
                if compressed or length > self._most_bytes:
                    self._check_prefix(compressed, length)
                stop = position + PREFIX_BYTES + length
                if stop > end:
                    self._missing = stop - end
                    return False
                if len(messages) >= most_messages or self.decoded_bytes >= enough:
                    return True
                payload = buffer[position + PREFIX_BYTES : stop]
                if compressed:
                    payload = decompress(payload, self._encoding, self._most_bytes)
                self.decoded_bytes += len(payload)
                messages.append(parse(payload))
                position = stop
        except DecodeError:
            raise GrpcError(Status.INTERNAL, "a message is not valid protobuf of its type") from None
        finally:
            self._position = position
        self._missing = PREFIX_BYTES - (end - position)
        return False

    def finish(self) -> None:
        """Check that the stream did not end in the middle of a message."""
        if self._parts or self._position < len(self._buffer):
            raise GrpcError(Status.INTERNAL, "the stream ended in the middle of a message")

    def _check_prefix(self, compressed: int, length: int) -> None:
        if compressed > 1:
            raise GrpcError(Status.INTERNAL, f"a message begins with {compressed}, which is neither 0 nor 1")
        if length > self._most_bytes:
            raise GrpcError(
                Status.RESOURCE_EXHAUSTED, f"a message of {length} bytes is larger than {self._most_bytes} bytes"
            )


def encode(messages: Iterable[Message], *, compressing: bool = False) -> bytes:
    """All messages with their prefixes, for one send."""
    parts: list[bytes] = []
    for message in messages:
        payload = message.SerializeToString()
        compressed = compressing and len(payload) >= WORTH_BYTES
        if compressed:
            payload = compress(payload)
        parts.append(_PREFIX.pack(compressed, len(payload)))
        parts.append(payload)
    return b"".join(parts)
