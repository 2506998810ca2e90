"""Blocking: what trouble means, and when a domain is given up for how long."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.crawler.exchange import FailureKind
from outrider.model.machines import DOMAIN, DomainStatus
from outrider.model.task import NEVER
from outrider.policy import blocking
from outrider.policy.blocking import DAY_MS, Blocking, BlockReason, BlockSettings, Standing

NOW = 1_750_000_000_000
DEFAULTS = BlockSettings()
REASONS = st.sampled_from(BlockReason)


def standing(status: str = "active", errors_in_row: int = 5, block_count: int = 0) -> Standing:
    return Standing(status=DomainStatus(status), errors_in_row=errors_in_row, block_count=block_count)


def decided(reason: str, where: Standing | None = None) -> Blocking | None:
    return blocking.decide(where or standing(), BlockReason(reason), NOW, DEFAULTS)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (200, None), (204, None), (301, None), (304, None), (400, None), (404, None), (410, None), (418, None),
        (401, "login_required"), (511, "login_required"), (403, "forbidden"), (451, "forbidden"),
        (408, "server_error"), (429, "rate_limited"),
        (500, "server_error"), (502, "server_error"), (503, "server_error"), (520, "server_error"),
    ],
)  # fmt: skip
def test_what_an_answer_means(status: int, reason: str | None) -> None:
    assert blocking.reason_of_status(status) == reason


@pytest.mark.parametrize("status", [200, 302, 403])
def test_a_login_wall_is_one_whatever_its_status(status: int) -> None:
    assert blocking.reason_of_status(status, login_wall=True) is BlockReason.LOGIN_REQUIRED


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FailureKind.DNS, "dns_failure"),
        (FailureKind.CONNECT, "connection_refused"),
        (FailureKind.CONNECT_TIMEOUT, "timeout"),
        (FailureKind.TLS, "tls_error"),
        (FailureKind.FIRST_BYTE_TIMEOUT, "timeout"),
        (FailureKind.TIMEOUT, "timeout"),
        (FailureKind.DISCONNECTED, "connection_reset"),
        (FailureKind.BAD_RESPONSE, "server_error"),
        (FailureKind.BAD_ENCODING, None),
        (FailureKind.BAD_REQUEST, None),
        (FailureKind.PRIVATE_ADDRESS, None),
        (FailureKind.PROXY, None),
        (FailureKind.LOCAL, None),
    ],
)
def test_what_a_failure_means(kind: FailureKind, reason: str | None) -> None:
    assert blocking.reason_of_failure(kind) == reason


def test_every_word_of_the_classification_is_one_that_workers_use() -> None:
    assert blocking._REASON_OF_FAILURE.keys() <= set(FailureKind)


@pytest.mark.parametrize(
    ("reason", "becomes", "days"),
    [
        ("login_required", "blocked", 30),
        ("rate_limited", "blocked", 7),
        ("forbidden", "blocked", 14),
        ("robots_denied", "blocked", 90),
        ("server_error", "blocked", 1),
        ("dns_failure", "unreachable", 7),
        ("connection_refused", "unreachable", 7),
        ("connection_reset", "unreachable", 7),
        ("timeout", "unreachable", 7),
        ("tls_error", "unreachable", 7),
    ],
)
def test_what_becomes_of_a_domain_and_for_how_long(reason: str, becomes: str, days: int) -> None:
    given_up = decided(reason)
    assert given_up is not None
    assert given_up.steps == (becomes,)
    assert given_up.next_crawl_after == NOW + days * DAY_MS
    assert given_up.blocked_until == NOW + days * DAY_MS
    assert not given_up.permanent


@pytest.mark.parametrize(
    ("reason", "errors"), [("forbidden", 5), ("dns_failure", 5), ("login_required", 3), ("robots_denied", 1)]
)
def test_a_domain_is_given_up_at_its_threshold_and_not_before(reason: str, errors: int) -> None:
    assert decided(reason, standing(errors_in_row=errors - 1)) is None
    assert decided(reason, standing(errors_in_row=errors)) is not None


def test_a_lower_threshold_is_one_for_login_walls_too() -> None:
    assert BlockSettings(max_domain_errors=2).errors_allowed(BlockReason.LOGIN_REQUIRED) == 2


def test_a_blocked_domain_is_tried_three_times_more_before_it_stays_blocked() -> None:
    for block_count in range(3):
        given_up = decided("rate_limited", standing(block_count=block_count))
        assert given_up is not None
        assert given_up.next_crawl_after == NOW + 7 * DAY_MS
    last = decided("rate_limited", standing(block_count=3))
    assert last is not None
    assert last.permanent
    assert (last.next_crawl_after, last.blocked_until) == (None, NEVER)


def test_an_unreachable_domain_is_tried_for_ever() -> None:
    given_up = decided("dns_failure", standing(block_count=99))
    assert given_up is not None
    assert given_up.next_crawl_after == NOW + 7 * DAY_MS


@pytest.mark.parametrize("status", ["blocked", "unreachable"])
def test_what_was_under_way_does_not_prolong_the_rest_of_a_domain(status: str) -> None:
    assert decided("forbidden", standing(status, errors_in_row=99)) is None
    assert decided("timeout", standing(status, errors_in_row=99)) is None


def test_requests_that_fail_together_are_one_error() -> None:
    errors = blocking.errors_after(0, BlockReason.CONNECTION_RESET, began_back_off=True)
    for _ in range(9):
        errors = blocking.errors_after(errors, BlockReason.CONNECTION_RESET, began_back_off=False)
    assert errors == 1


@pytest.mark.parametrize("reason", ["forbidden", "login_required", "robots_denied"])
def test_a_plain_refusal_counts_each_time(reason: str) -> None:
    assert blocking.errors_after(4, BlockReason(reason), began_back_off=False) == 5
    assert blocking.errors_after(4, BlockReason(reason), began_back_off=True) == 5


@given(st.sampled_from(DomainStatus), st.integers(0, 20), st.integers(0, 9), REASONS, st.integers(1, 9))
def test_every_decision_can_be_carried_out(
    status: DomainStatus, errors_in_row: int, block_count: int, reason: BlockReason, most: int
) -> None:
    """Only steps of the machine, into a status that rests, never sooner than now."""
    where = Standing(status=status, errors_in_row=errors_in_row, block_count=block_count)
    given_up = blocking.decide(where, reason, NOW, BlockSettings(max_domain_errors=most))
    if given_up is None:
        return
    assert all(DOMAIN.allows(one, next_one) for one, next_one in pairwise((status, *given_up.steps)))
    assert given_up.steps[-1] is reason.status
    assert given_up.blocked_until > NOW


@given(REASONS)
def test_codes_fit_their_column(reason: BlockReason) -> None:
    assert len(reason) <= 50
