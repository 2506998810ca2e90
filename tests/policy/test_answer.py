"""What the answers of servers make of tasks."""

import pytest

from outrider.model.lease import Outcome
from outrider.policy.answer import (
    DOWN_AFTER,
    MOST_RETRY_AFTER_MS,
    judge_robots_status,
    judge_status,
    judge_trouble,
    parse_retry_after,
)

NOW_MS = 1_700_000_000_000
"""2023-11-14 22:13:20 UTC."""


@pytest.mark.parametrize("status", [200, 204, 301, 304, 400, 401, 403, 404, 410, 451])
def test_an_answer_that_will_not_change_completes_its_task(status: int) -> None:
    judgement = judge_status(status, retry_after_ms=None, failures_in_row=0, attempt=1)
    assert (judgement.outcome, judgement.reason, judgement.backs_off) == (Outcome.DONE, None, False)


@pytest.mark.parametrize("status", [429, 503])
def test_a_site_that_is_asked_too_much_is_left_alone_as_a_whole(status: int) -> None:
    judgement = judge_status(status, retry_after_ms=7_000, failures_in_row=1, attempt=1)
    assert judgement == (Outcome.DEFERRED, f"http {status}", True, 7_000)


@pytest.mark.parametrize("status", [408, 425])
def test_a_page_that_was_not_in_time_is_put_off_for_longer_each_time(status: int) -> None:
    waits = [
        judge_status(status, retry_after_ms=None, failures_in_row=0, attempt=attempt).retry_after_ms
        for attempt in (1, 2, 3, 100)
    ]
    assert waits == [5_000, 10_000, 20_000, 600_000]


def test_what_a_site_asks_for_counts_where_it_is_longer() -> None:
    judgement = judge_status(408, retry_after_ms=60_000, failures_in_row=0, attempt=1)
    assert judgement.retry_after_ms == 60_000


@pytest.mark.parametrize("status", [500, 502, 504, 599])
def test_a_server_error_is_charged_to_the_page_until_the_whole_site_seems_to_be_down(status: int) -> None:
    alone = judge_status(status, retry_after_ms=None, failures_in_row=DOWN_AFTER - 1, attempt=1)
    in_row = judge_status(status, retry_after_ms=None, failures_in_row=DOWN_AFTER, attempt=1)
    assert (alone.outcome, alone.backs_off) == (Outcome.FAILED, False)
    assert (in_row.outcome, in_row.backs_off) == (Outcome.DEFERRED, True)


def test_a_page_that_never_works_is_charged_in_the_end_whatever_its_site_does() -> None:
    judgement = judge_trouble("timeout", failures_in_row=100, attempt=7)
    assert (judgement.outcome, judgement.reason) == (Outcome.FAILED, "timeout")


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_robots_txt_that_cannot_be_read_now_is_waited_for(status: int) -> None:
    judgement = judge_robots_status(status, retry_after_ms=1_000)
    assert judgement == (Outcome.DEFERRED, f"http {status}", True, 1_000)


@pytest.mark.parametrize("status", [200, 301, 401, 403, 404, 410])
def test_any_other_answer_to_robots_txt_is_one(status: int) -> None:
    assert judge_robots_status(status, retry_after_ms=None).outcome is Outcome.DONE


@pytest.mark.parametrize(
    ("written", "wait_ms"),
    [
        ("0", 0),
        ("120", 120_000),
        (" 5 ", 5_000),
        ("9" * 400, MOST_RETRY_AFTER_MS),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30_000),
        ("Tuesday, 14-Nov-23 22:13:50 GMT", 30_000),
        ("Tue, 14 Nov 2023 22:13:50", 30_000),
        ("Tue, 14 Nov 2023 22:13:50 -0100", 3_630_000),
        ("Mon, 13 Nov 2023 00:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MOST_RETRY_AFTER_MS),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("Tue, 99 Nov 2023 99:99:99 GMT", None),
        ("Tue, 14 Nov 99999999999999999999 22:13:50 GMT", None),
        (None, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date_and_nonsense_says_nothing(
    written: str | None, wait_ms: int | None
) -> None:
    assert parse_retry_after(written, now_ms=NOW_MS) == wait_ms
