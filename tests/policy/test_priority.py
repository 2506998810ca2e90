"""Priority: the band of a queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.model.gate import BANDS, DEFAULT_BAND
from outrider.policy.priority import band_of

priorities = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.parametrize(
    ("priority", "band"),
    [
        (0, 8), (1, 7), (2, 6), (3, 6), (4, 5), (8, 4), (16, 3), (32, 2), (64, 1), (127, 1), (128, 0), (1000, 0),
        (2**31 - 1, 0), (-1, 9), (-2, 10), (-4, 11), (-32, 14), (-64, 15), (-1000, 15), (-(2**31), 15),
    ],
)  # fmt: skip
def test_each_doubling_is_a_band(priority: int, band: int) -> None:
    """Invariant 7, Politeness: which gates are visited first."""
    assert band_of(priority) == band


def test_the_default_priority_is_in_the_default_band() -> None:
    """Invariant 7, Politeness: a queue without a priority stands where one of 0 stands."""
    assert band_of(0) == DEFAULT_BAND == BANDS // 2


@given(one=priorities, other=priorities)
def test_a_higher_priority_is_never_in_a_worse_band(one: int, other: int) -> None:
    """Invariant 7, Politeness: the order of priorities is the order of bands."""
    low, high = sorted((one, other))
    assert 0 <= band_of(high) <= band_of(low) < BANDS
