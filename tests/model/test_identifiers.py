"""Identifiers: UUIDv7, which sort by time and never repeat."""

import time
from types import SimpleNamespace
from uuid import RFC_4122, UUID

import pytest

from outrider.model import identifiers
from outrider.model.identifiers import new_uuid7, new_uuid7_bytes
from outrider.model.task import MAX_BATCH

MOMENT = 1_750_000_000_123


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still until it is moved."""
    clock = SimpleNamespace(now_ms=MOMENT)
    monkeypatch.setattr(identifiers, "time", SimpleNamespace(time_ns=lambda: clock.now_ms * 1_000_000))
    return clock


@pytest.mark.parametrize("ordinal", [0, 1, 4_095, 4_096, MAX_BATCH, 65_535, 65_536, 10**9])
def test_every_identifier_is_a_uuid_of_version_seven(frozen: SimpleNamespace, ordinal: int) -> None:
    """Invariant 2, Exclusivity: tokens are UUIDs."""
    made = UUID(bytes=new_uuid7_bytes(ordinal))
    assert (made.version, made.variant) == (7, RFC_4122)
    assert made.int >> 80 == frozen.now_ms


def test_as_text_it_has_the_form_that_people_see() -> None:
    before = time.time_ns() // 1_000_000
    text = new_uuid7()
    after = time.time_ns() // 1_000_000
    assert text == str(UUID(text))
    assert before <= UUID(text).int >> 80 <= after


def test_a_later_millisecond_sorts_later(frozen: SimpleNamespace) -> None:
    early = new_uuid7_bytes(65_535)
    frozen.now_ms += 1
    assert early < new_uuid7_bytes(0)


def test_growing_ordinals_sort_in_their_order_within_a_millisecond(frozen: SimpleNamespace) -> None:
    """Invariant 5, Nothing lost: a request asked again gives its leases in the same order."""
    assert frozen.now_ms == MOMENT
    made = [new_uuid7_bytes(ordinal) for ordinal in range(2 * MAX_BATCH)]
    assert made == sorted(made)


def test_none_is_made_twice_even_within_a_millisecond(frozen: SimpleNamespace) -> None:
    """Invariant 2, Exclusivity: a token is never used twice."""
    assert frozen.now_ms == MOMENT
    assert len({new_uuid7_bytes(ordinal % 3) for ordinal in range(10_000)}) == 10_000
