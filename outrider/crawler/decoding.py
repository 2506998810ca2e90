"""Content decoding with a limit on what comes out, for bodies that nobody vouches for.

A kilobyte can expand to gigabytes. Every decoder here stops at the limit, so that a body costs at most
its own size and the limit in memory, whatever it claims to be.
"""

import sys
import zlib
from collections.abc import Callable
from typing import Final, Protocol

import brotli  # type: ignore[import-untyped]
import msgspec

from outrider.model.errors import OutriderError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ACCEPT_ENCODING: Final = "gzip, deflate, br, zstd"
MAX_LAYERS: Final = 2

_MAX_MEMBERS: Final = 256
"""Each member copies what follows it: a body of nothing but empty members would take hours."""
_ZSTD_OPTIONS: Final[dict[int, int]] = {zstd.DecompressionParameter.window_log_max: 23}
"""A window of 8 MiB, the most that RFC 9659 lets a server ask for."""


class BadEncoding(OutriderError):
    """A body is not what its Content-Encoding says."""


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """A body without its content encodings."""

    body: bytes
    truncated: bool = False
    """Cut at the limit, or the encoded stream ends early; what came before is here."""
    unknown: str | None = None
    """The encoding at which decoding stopped; the body is still encoded with it."""


def decode(body: bytes, content_encoding: str | None, limit: int) -> Decoded:
    """Take off every layer that a Content-Encoding header names, or raise `BadEncoding`.

    >>> decode(zlib.compress(b"abcdef"), "deflate", limit=4)
    Decoded(body=b'abcd', truncated=True, unknown=None)
    """
    if not content_encoding or not body:
        return Decoded(body=body)
    named = (name.strip().lower() for name in content_encoding.split(","))
    layers = [name for name in named if name not in ("", "identity")]
    if len(layers) > MAX_LAYERS:
        raise BadEncoding(f"encoded {len(layers)} times over, more than {MAX_LAYERS}")
    truncated = False
    for name in reversed(layers):
        decoder = _DECODERS.get(name)
        if decoder is None:
            return Decoded(body=body, truncated=truncated, unknown=name)
        try:
            body, cut = decoder(body, limit)
        except (zlib.error, brotli.error, zstd.ZstdError) as error:
            raise BadEncoding(f"not valid {name}: {error}") from error
        if cut and not body:
            raise BadEncoding(f"the {name} ends before its first byte of content")
        truncated = truncated or cut
    return Decoded(body=body, truncated=truncated)


class _Stream(Protocol):
    """One gzip member or one zstd frame; the two libraries agree on these names."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int) -> bytes: ...


def _gunzip(data: bytes, limit: int) -> tuple[bytes, bool]:
    return _join_members(data, limit, lambda: zlib.decompressobj(wbits=31), b"\x1f\x8b")


def _unzstd(data: bytes, limit: int) -> tuple[bytes, bool]:
    return _join_members(data, limit, lambda: zstd.ZstdDecompressor(options=_ZSTD_OPTIONS), b"\x28\xb5\x2f\xfd")


def _join_members(data: bytes, limit: int, open_stream: Callable[[], _Stream], magic: bytes) -> tuple[bytes, bool]:
    """Decode streams that stand one after another; what follows the last one is padding, which browsers drop too."""
    pieces: list[bytes] = []
    size = 0
    for _ in range(_MAX_MEMBERS):
        stream = open_stream()
        # One byte more than is wanted tells "cut" from "ended here".
        piece = stream.decompress(data, max_length=limit - size + 1)
        size += len(piece)
        pieces.append(piece)
        if size > limit or not stream.eof:
            break
        data = stream.unused_data
        if not data.startswith(magic):
            return _joined(pieces), False
    return _joined(pieces)[:limit], True


def _joined(pieces: list[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _inflate(data: bytes, limit: int) -> tuple[bytes, bool]:
    """Decode `deflate`, which is a zlib stream by the book and a bare one from some servers."""
    try:
        return _inflate_as(data, limit, zlib.MAX_WBITS)
    except zlib.error:
        return _inflate_as(data, limit, -zlib.MAX_WBITS)


def _inflate_as(data: bytes, limit: int, window_bits: int) -> tuple[bytes, bool]:
    stream = zlib.decompressobj(wbits=window_bits)
    output = stream.decompress(data, limit + 1)
    return output[:limit], len(output) > limit or not stream.eof


def _unbrotli(data: bytes, limit: int) -> tuple[bytes, bool]:
    stream = brotli.Decompressor()
    # The library fills the block that crosses its limit, so that more than was asked for may come.
    output: bytes = stream.process(data, output_buffer_limit=limit + 1)
    return output[:limit], len(output) > limit or not stream.is_finished()


_DECODERS: Final[dict[str, Callable[[bytes, int], tuple[bytes, bool]]]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
