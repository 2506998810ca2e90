import gzip
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.crawler.decoding import BadEncoding, Decoded, decode

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PAGE = b"<html><p>A page, a page, a page.</p></html>" * 50
MEBIBYTE = 1024 * 1024


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "X-GZip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=1),
    "zstd": zstd.compress,
}
every_encoding = pytest.mark.parametrize("name", ENCODERS)


@every_encoding
def test_each_encoding_that_is_asked_for_is_taken_off(name: str) -> None:
    assert decode(ENCODERS[name](PAGE), name, MEBIBYTE) == Decoded(body=PAGE)


def test_deflate_without_its_envelope_is_taken_off_too() -> None:
    assert decode(raw_deflate(PAGE), "deflate", MEBIBYTE) == Decoded(body=PAGE)


@pytest.mark.parametrize("name", [None, "", "identity", " , identity"])
def test_a_body_without_encoding_stays_the_very_same(name: str | None) -> None:
    assert decode(PAGE, name, 10).body is PAGE


def test_two_layers_come_off_in_the_reverse_order() -> None:
    body = brotli.compress(gzip.compress(PAGE))
    assert decode(body, "gzip, br", MEBIBYTE) == Decoded(body=PAGE)


def test_a_third_layer_is_refused() -> None:
    with pytest.raises(BadEncoding, match="3 times"):
        decode(b"x", "gzip, gzip, gzip", MEBIBYTE)


def test_an_unknown_encoding_is_named_and_left_on() -> None:
    assert decode(gzip.compress(b"abc"), "compress, gzip", MEBIBYTE) == Decoded(body=b"abc", unknown="compress")


@every_encoding
def test_an_empty_body_is_empty_whatever_its_header_says(name: str) -> None:
    assert decode(b"", name, MEBIBYTE) == Decoded(body=b"")


@every_encoding
def test_an_encoded_nothing_is_nothing(name: str) -> None:
    assert decode(ENCODERS[name](b""), name, MEBIBYTE) == Decoded(body=b"")


@every_encoding
def test_a_body_that_is_not_what_it_says_is_refused(name: str) -> None:
    with pytest.raises(BadEncoding, match=name.lower()):
        decode(b"<!doctype html><p>plain text after all</p>", name, MEBIBYTE)


@every_encoding
def test_a_stream_that_ends_early_gives_what_it_had(name: str) -> None:
    incompressible = bytes(value * 167 % 251 for value in range(200_000)) + zlib.compress(PAGE) * 50
    encoded = ENCODERS[name](incompressible)
    decoded = decode(encoded[: len(encoded) - 20], name, MEBIBYTE)
    assert decoded.truncated
    assert decoded.body
    assert incompressible.startswith(decoded.body)


@every_encoding
def test_a_stream_that_ends_before_any_content_is_refused(name: str) -> None:
    with pytest.raises(BadEncoding):
        decode(ENCODERS[name](PAGE)[:2], name, MEBIBYTE)


@every_encoding
@pytest.mark.parametrize("less", [0, 1])
def test_the_limit_is_exact(name: str, less: int) -> None:
    limit = len(PAGE) - less
    assert decode(ENCODERS[name](PAGE), name, limit) == Decoded(body=PAGE[:limit], truncated=less > 0)


@every_encoding
def test_a_bomb_costs_no_more_memory_than_the_limit(name: str) -> None:
    bomb = ENCODERS[name](bytes(16 * MEBIBYTE))
    tracemalloc.start()
    try:
        decoded = decode(bomb, name, MEBIBYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoded == Decoded(body=bytes(MEBIBYTE), truncated=True)
    assert peak < 5 * MEBIBYTE


def test_a_bomb_in_a_bomb_ends_at_the_limit() -> None:
    bomb = gzip.compress(gzip.compress(bytes(16 * MEBIBYTE)))
    assert decode(bomb, "gzip, gzip", MEBIBYTE) == Decoded(body=bytes(MEBIBYTE), truncated=True)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_members_one_after_another_are_one_body(name: str) -> None:
    body = ENCODERS[name](b"one ") + ENCODERS[name](b"two")
    assert decode(body, name, MEBIBYTE) == Decoded(body=b"one two")
    assert decode(body, name, 5) == Decoded(body=b"one t", truncated=True)


def test_padding_after_the_end_is_dropped() -> None:
    assert decode(gzip.compress(PAGE) + b"\0" * 100, "gzip", MEBIBYTE) == Decoded(body=PAGE)


def test_a_flood_of_tiny_members_is_cut_and_not_walked_to_its_end() -> None:
    flood = gzip.compress(b"x") * 400_000
    began = time.monotonic()
    decoded = decode(flood, "gzip", 10 * MEBIBYTE)
    assert decoded.truncated
    assert time.monotonic() - began < 2


@given(data=st.binary(max_size=300), name=st.sampled_from([*ENCODERS, "gzip, br", "zstd,deflate", "what"]))
def test_no_bytes_do_anything_but_decode_or_be_refused(data: bytes, name: str) -> None:
    try:
        decoded = decode(data, name, 1000)
    except BadEncoding:
        return
    assert len(decoded.body) <= 1000
