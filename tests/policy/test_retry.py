"""Retry: what a report, a silence or a release makes of a task."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.model.lease import Outcome, Report, Token, Verdict
from outrider.model.machines import TASK, TaskState
from outrider.model.settings import Settings
from outrider.policy.retry import Decision, Tally, after_expiry, after_report, put_off

NOW = 1_750_000_000_000
SETTINGS = Settings()
FRESH = Tally()


def decided(outcome: Outcome, tally: Tally = FRESH, settings: Settings = SETTINGS, **said: Any) -> Decision:
    return after_report(Report(token=Token(""), outcome=outcome, **said), tally, NOW, settings)


def test_done_completes_and_leaves_the_tally() -> None:
    """Invariant 3, Attempts."""
    tally = Tally(failures=2, deferrals=3, expiries=4)
    decision = decided(Outcome.DONE, tally)
    assert decision == Decision(state=TaskState.COMPLETED, due_at=NOW, tally=tally)
    assert decision.verdict is Verdict.COMPLETED


@pytest.mark.parametrize(("said", "kept"), [("robots", "robots"), (None, "refused")])
def test_refused_fails_at_once_uncharged_with_its_reason(said: str | None, kept: str) -> None:
    """Invariant 3, Attempts."""
    decision = decided(Outcome.REFUSED, reason=said)
    assert decision == Decision(state=TaskState.FAILED, due_at=NOW, tally=FRESH, reason=kept)
    assert decision.verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("failures", "state", "wait"),
    [(0, TaskState.PENDING, 5_000), (1, TaskState.PENDING, 10_000), (2, TaskState.FAILED, 0), (7, TaskState.FAILED, 0)],
)
def test_failures_are_charged_and_end_at_max_retries(failures: int, state: TaskState, wait: int) -> None:
    """Invariant 3, Attempts: FAILED when failures reach MAX_RETRIES."""
    decision = decided(Outcome.FAILED, Tally(failures=failures, deferrals=1))
    assert (decision.state, decision.due_at) == (state, NOW + wait)
    assert (decision.tally, decision.reason) == (Tally(failures=failures + 1, deferrals=1), "failed")


def test_the_wait_for_a_retry_doubles_up_to_its_cap() -> None:
    """Invariant 7, Politeness: what fails is left alone for longer and longer."""
    often = Settings(max_retries=100, retry_base_ms=1_000, retry_cap_ms=60_000)
    waits = [decided(Outcome.FAILED, Tally(failures=n), often).due_at - NOW for n in (0, 1, 2, 5, 6, 50, 98)]
    assert waits == [1_000, 2_000, 4_000, 32_000, 60_000, 60_000, 60_000]


def test_a_site_may_ask_for_a_longer_wait_but_not_for_a_shorter_one() -> None:
    """Invariant 7, Politeness."""
    assert decided(Outcome.FAILED, retry_after_ms=3_600_000).due_at == NOW + 3_600_000
    assert decided(Outcome.FAILED, retry_after_ms=1).due_at == NOW + 5_000


@pytest.mark.parametrize(
    ("deferrals", "state"), [(0, TaskState.PENDING), (19, TaskState.PENDING), (20, TaskState.FAILED)]
)
def test_a_task_is_deferred_at_most_twenty_times(deferrals: int, state: TaskState) -> None:
    """Invariant 3, Attempts: not charged, but not for ever."""
    decision = decided(Outcome.DEFERRED, Tally(failures=1, deferrals=deferrals), retry_after_ms=7)
    assert decision.state is state
    assert decision.tally == Tally(failures=1, deferrals=deferrals + 1)
    assert decision.due_at == (NOW + 7 if state is TaskState.PENDING else NOW)
    assert decision.reason == "deferred"


def test_a_task_that_was_given_back_is_due_when_asked() -> None:
    """Invariant 3, Attempts: an orderly stop is not charged."""
    decision = put_off(Tally(), NOW, 0, SETTINGS, "released")
    expected = Decision(state=TaskState.PENDING, due_at=NOW, tally=Tally(deferrals=1), reason="released")
    assert decision == expected
    assert decision.verdict is Verdict.RETRY_AT


@pytest.mark.parametrize(
    ("expiries", "state", "reason"),
    [(0, TaskState.PENDING, "lease_expired"), (8, TaskState.PENDING, "lease_expired"), (9, TaskState.FAILED, "poison")],
)
def test_a_task_whose_lease_expired_too_often_is_poison(expiries: int, state: TaskState, reason: str) -> None:
    """Invariant 3, Attempts: one page cannot kill workers for ever."""
    decision = after_expiry(Tally(expiries=expiries, failures=2), NOW, SETTINGS)
    assert (decision.state, decision.reason, decision.due_at) == (state, reason, NOW)
    assert decision.tally == Tally(expiries=expiries + 1, failures=2)


tallies = st.builds(Tally, failures=st.integers(0, 200), deferrals=st.integers(0, 200), expiries=st.integers(0, 200))


@given(
    outcome=st.sampled_from(Outcome),
    tally=tallies,
    retry_after_ms=st.none() | st.integers(0, 2**42),
    backs_off=st.booleans(),
)
def test_every_decision_is_a_step_of_the_machine_and_takes_nothing_back(
    outcome: Outcome, tally: Tally, retry_after_ms: int | None, backs_off: bool
) -> None:
    """Invariant 3, Attempts: a task ends or waits; nothing that was counted against it is forgotten."""
    decision = decided(outcome, tally, retry_after_ms=retry_after_ms, backs_off=backs_off)
    for each in (decision, after_expiry(tally, NOW, SETTINGS), put_off(tally, NOW, 0, SETTINGS, "released")):
        TASK.check(TaskState.ASSIGNED, each.state)
        assert each.due_at >= NOW
        counted = [each.tally.failures, each.tally.deferrals, each.tally.expiries]
        before = [tally.failures, tally.deferrals, tally.expiries]
        assert 0 <= sum(counted) - sum(before) <= 1
        assert all(now >= then for now, then in zip(counted, before, strict=True))
