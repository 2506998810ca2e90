import pytest

from outrider.model.backfill import DomainPast
from outrider.model.machines import DomainStatus
from outrider.model.settings import DAY_MS, Settings
from outrider.policy.blocking import BlockReason
from outrider.policy.past import beginning_of

NOW = 1_767_323_045_678


@pytest.mark.parametrize(
    ("rows", "errors", "status"),
    [
        (0, 0, DomainStatus.PENDING),
        (1, 0, DomainStatus.EXHAUSTED),
        (2, 1, DomainStatus.EXHAUSTED),
        (3, 2, DomainStatus.BLOCKED),
        (1, 1, DomainStatus.BLOCKED),
    ],
)
def test_more_than_half_errors_block_and_exactly_half_do_not(rows: int, errors: int, status: DomainStatus) -> None:
    past = DomainPast(domain="a.example", pages_discovered=rows, total_error_count=errors)
    assert beginning_of(past, Settings(), NOW).status is status


@pytest.mark.parametrize(
    ("server_errors", "too_many", "reason", "days"),
    [
        (3, 1, BlockReason.SERVER_ERROR, 1),
        (1, 3, BlockReason.RATE_LIMITED, 7),
        (2, 2, BlockReason.FORBIDDEN, 14),
        (0, 0, BlockReason.FORBIDDEN, 14),
    ],
)
def test_what_most_errors_have_in_common_is_the_reason_and_says_how_long_it_rests(
    server_errors: int, too_many: int, reason: BlockReason, days: int
) -> None:
    past = DomainPast(
        domain="a.example", pages_discovered=4, total_error_count=4, server_error_count=server_errors,
        rate_limited_count=too_many, last_crawled_at=NOW - DAY_MS,
    )  # fmt: skip
    life = beginning_of(past, Settings(), NOW)
    assert (life.reason_code, life.next_crawl_after) == (reason, NOW + (days - 1) * DAY_MS)


def test_a_rest_counts_from_the_last_crawl_but_never_from_the_future() -> None:
    past = DomainPast(domain="a.example", pages_discovered=1, last_crawled_at=NOW + DAY_MS)
    assert beginning_of(past, Settings(), NOW).next_crawl_after == NOW + 14 * DAY_MS


def test_where_lives_are_not_kept_nothing_is_decided() -> None:
    past = DomainPast(domain="a.example", pages_discovered=1, total_error_count=1)
    assert beginning_of(past, Settings(enable_domain_tracking=False), NOW).status is DomainStatus.PENDING
