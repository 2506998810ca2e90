"""Identifiers: UUIDv7, which sort by time and never repeat."""

import os
import time
from uuid import UUID


def new_uuid7_bytes(ordinal: int = 0) -> bytes:
    """Make a UUIDv7 as 16 bytes: milliseconds, 16 bits of `ordinal`, then 58 random bits.

    Those made one after the other with growing ordinals sort in that order, up to 65,536 of them.
    """
    milliseconds = time.time_ns() // 1_000_000
    high, low = divmod(ordinal & 0xFFFF, 16)
    raw = bytearray(milliseconds.to_bytes(6, "big") + (0x7000 | high).to_bytes(2, "big") + os.urandom(8))
    raw[8] = 0x80 | low << 2 | raw[8] & 0x03
    return bytes(raw)


def new_uuid7() -> str:
    """Make a UUIDv7 in the form that people see."""
    return str(UUID(bytes=new_uuid7_bytes()))
