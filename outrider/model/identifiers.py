"""Identifiers: UUIDv7, which sort by time and never repeat."""

import os
import time
from uuid import UUID


def new_uuid7_bytes(ordinal: int = 0) -> bytes:
    """Make a UUIDv7 as 16 bytes: milliseconds, 12 bits of `ordinal`, then 62 random bits.

    Those made one after the other with growing ordinals sort in that order.
    """
    ordinal &= 0x0FFF
    milliseconds = time.time_ns() // 1_000_000
    raw = bytearray(milliseconds.to_bytes(6, "big") + ordinal.to_bytes(2, "big") + os.urandom(8))
    raw[6] |= 0x70
    raw[8] = 0x80 | raw[8] & 0x3F
    return bytes(raw)


def new_uuid7() -> str:
    """Make a UUIDv7 in the form that people see."""
    return str(UUID(bytes=new_uuid7_bytes()))
