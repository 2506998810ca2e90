"""Freshness: what headers promise, and what they do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.policy.freshness import MOST_FRESH_MS, fresh_until

NOW = 1_750_000_000_000
SOON = "Sun, 15 Jun 2025 15:07:40 GMT"
"""A minute later."""


@pytest.mark.parametrize(
    ("cache_control", "expires", "seconds"),
    [
        (None, None, None),
        ("max-age=60", None, 60),
        ("public,max-age=60", None, 60),
        ("MAX-AGE = 60", None, 60),
        ('max-age="60"', None, 60),
        ("max-age=600, s-maxage=60", None, 60),
        ("max-age=0", None, None),
        ("max-age=-1", None, None),
        ("max-age=soon", None, None),
        ("no-store, max-age=60", None, None),
        ("no-cache=\"set-cookie\", max-age=60", None, None),
        ("x-no-cache-please, max-age=60", None, 60),
        ("public", SOON, 60),
        ("max-age=0", SOON, None),
        (None, SOON, 60),
        (None, "Thu, 01 Jan 1970 00:00:00 GMT", None),
        (None, "0", None),
        (None, "-1", None),
        ("", "", None),
        ("max-age=999999999999", None, MOST_FRESH_MS // 1000),
    ],
)  # fmt: skip
def test_what_headers_promise(cache_control: str | None, expires: str | None, seconds: int | None) -> None:
    expected = None if seconds is None else NOW + seconds * 1000
    assert fresh_until(cache_control, expires, now_ms=NOW) == expected


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_header_raises_and_no_promise_is_past_or_endless(cache_control: str, expires: str) -> None:
    moment = fresh_until(cache_control, expires, now_ms=NOW)
    assert moment is None or NOW < moment <= NOW + MOST_FRESH_MS
