"""Compression of single messages, as negotiated by `grpc-encoding` and `grpc-accept-encoding`."""

import gzip
import zlib

from outrider.service.grpc.status import GrpcError, Status

IDENTITY = "identity"
# The window bits of zlib, which also choose between the formats.
_WINDOW_BITS = {"gzip": 31, "deflate": 15}
ACCEPTED = ", ".join([IDENTITY, *sorted(_WINDOW_BITS)])
# Smaller messages grow, or hardly shrink.
WORTH_BYTES = 1_024
_LEVEL = 1


def check_encoding(name: str) -> None:
    """Refuse an encoding that is not offered, as gRPC wants it: UNIMPLEMENTED, with those that are."""
    if name != IDENTITY and name not in _WINDOW_BITS:
        raise GrpcError(Status.UNIMPLEMENTED, f"messages compressed with {name!r} cannot be read; use {ACCEPTED}")


def decompress(data: bytes, encoding: str, most: int) -> bytes:
    """Expand one message, and stop as soon as it is larger than `most` bytes."""
    if encoding not in _WINDOW_BITS:
        raise GrpcError(Status.INTERNAL, "a message is marked as compressed, but the call has no grpc-encoding")
    expansion = zlib.decompressobj(wbits=_WINDOW_BITS[encoding])
    try:
        message = expansion.decompress(data, most + 1)
    except zlib.error as error:
        raise GrpcError(Status.INTERNAL, f"a message is not valid {encoding}: {error}") from None
    if len(message) > most:
        raise GrpcError(Status.RESOURCE_EXHAUSTED, f"a message is larger than {most} bytes when decompressed")
    if not expansion.eof:
        raise GrpcError(Status.INTERNAL, f"a message ends in the middle of its {encoding} data")
    return message


def compress(data: bytes) -> bytes:
    """Compress one message with gzip, for speed."""
    return gzip.compress(data, compresslevel=_LEVEL, mtime=0)
