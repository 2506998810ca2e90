"""Politeness: how a gate moves, as a function of values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.model.gate import Gate
from outrider.model.lease import Outcome, Report, Token
from outrider.model.settings import Settings
from outrider.model.task import CrawlLimits
from outrider.policy import politeness
from outrider.policy.politeness import Leased, Traffic

NOW = 1_750_000_000_000
STEADY = Settings(backoff_jitter=0.0)
LIMITS = CrawlLimits(delay_ms=1_000, concurrency=2)


def gate(**fields: Any) -> Gate:
    return Gate(domain="a.example", **fields)


def leased(*, granted_at: int = NOW, delay_ms: int = 1_000, gate_was: int = 0) -> Leased:
    return Leased(granted_at=granted_at, delay_ms=delay_ms, gate_was=gate_was)


def said(outcome: Outcome = Outcome.DONE, **fields: Any) -> Report:
    return Report(token=Token(""), outcome=outcome, **fields)


def moved(before: Gate, lease: Leased, report: Report, now: int, chance: float = 0.0, **settings: Any) -> Gate:
    return politeness.after_report(before, lease, report, now, Settings(backoff_jitter=0.0, **settings), chance)


@pytest.mark.parametrize(
    ("queue", "own", "robots", "expected"),
    [
        (None, None, None, 1_000), (None, 20, None, 20), (3, 20, None, 3), (0, 20, None, 0), (None, 0, None, 0),
        (3, 20, 500, 500), (None, None, 500, 1_000), (None, 20, 0, 20), (None, None, 9_000, 9_000),
    ],
)  # fmt: skip
def test_the_most_specific_delay_holds_but_never_under_that_of_robots(
    queue: int | None, own: int | None, robots: int | None, expected: int
) -> None:
    """Invariant 7, Politeness: queue before gate before crawl; Crawl-delay is a floor."""
    assert politeness.effective_delay(gate(delay_ms=own, robots_delay_ms=robots), LIMITS, queue) == expected


@pytest.mark.parametrize(("own", "expected"), [(None, 2), (5, 5), (1, 1), (0, 1)])
def test_the_concurrency_is_the_gates_own_else_the_crawls(own: int | None, expected: int) -> None:
    """Invariant 7, Politeness."""
    assert politeness.effective_concurrency(gate(concurrency=own), LIMITS) == expected


@pytest.mark.parametrize("clock", ["next_fetch_at", "backoff_until", "blocked_until"])
def test_a_gate_opens_when_the_last_of_its_clocks_lets_it(clock: str) -> None:
    """Invariant 7, Politeness: nothing before delay, back-off and block have all ended."""
    closed = gate(**{"next_fetch_at": NOW - 3, "backoff_until": NOW - 2, "blocked_until": NOW - 1, clock: NOW + 5})
    assert politeness.opens_at(closed) == NOW + 5
    assert politeness.free_slots(closed, Traffic(), LIMITS, 0, NOW + 4) == 0
    assert politeness.free_slots(closed, Traffic(), LIMITS, 0, NOW + 5) == 2


@pytest.mark.parametrize(
    ("in_flight", "delay_ms", "free"), [(0, 0, 2), (1, 0, 1), (2, 0, 0), (3, 0, 0), (0, 1, 1), (1, 1, 1), (2, 1, 0)]
)
def test_with_a_delay_requests_start_one_at_a_time(in_flight: int, delay_ms: int, free: int) -> None:
    """Invariant 7, Politeness: never more in flight than the concurrency."""
    assert politeness.free_slots(gate(), Traffic(requests=in_flight), LIMITS, delay_ms, NOW) == free


def test_a_full_gate_is_looked_at_again_when_a_lease_could_end() -> None:
    """Invariant 7, Politeness: a lower bound, as long as nothing is reported before."""
    closed = gate(next_fetch_at=NOW + 5)
    assert politeness.look_again_at(closed, Traffic(requests=1, first_expiry=NOW + 99), LIMITS) == NOW + 5
    assert politeness.look_again_at(closed, Traffic(requests=2, first_expiry=NOW + 99), LIMITS) == NOW + 99
    assert politeness.look_again_at(closed, Traffic(requests=2, first_expiry=NOW + 1), LIMITS) == NOW + 5


@pytest.mark.parametrize(
    ("minds", "expires_at", "needed"),
    [(True, None, True), (True, NOW, True), (True, NOW + 1, False), (False, None, False), (False, NOW - 1, False)],
)
def test_robots_is_needed_until_it_is_known_and_once_it_has_expired(
    minds: bool, expires_at: int | None, needed: bool
) -> None:
    """Invariant 7, Politeness."""
    assert politeness.needs_robots(gate(robots_expires_at=expires_at), CrawlLimits(robots=minds), NOW) is needed


def test_a_lease_closes_the_gate_for_its_delay() -> None:
    """Invariant 7, Politeness: the request is assumed to start at once."""
    assert politeness.after_lease(gate(), 1_000, NOW) == gate(next_fetch_at=NOW + 1_000)
    assert politeness.after_lease(gate(), 0, NOW) == gate()
    assert politeness.after_lease(gate(next_fetch_at=NOW + 9_000), 1_000, NOW) == gate(next_fetch_at=NOW + 9_000)


@pytest.mark.parametrize(
    ("sent_after_ms", "reported_after_ms", "opens_after_ms"),
    [(0, 500, 1_000), (400, 500, 1_400), (500, 500, 1_500), (9_999, 500, 1_500), (3_000, 60_000, 4_000)],
)
def test_the_delay_runs_from_the_start_of_the_request(
    sent_after_ms: int, reported_after_ms: int, opens_after_ms: int
) -> None:
    """Invariant 7, Politeness: a request cannot have started after its report."""
    before = gate(next_fetch_at=NOW + 1_000)
    after = moved(before, leased(), said(sent_after_ms=sent_after_ms), NOW + reported_after_ms)
    assert after == gate(next_fetch_at=NOW + opens_after_ms, quiet_until=NOW + opens_after_ms)


@pytest.mark.parametrize(
    "report",
    [
        said(Outcome.REFUSED, sent_after_ms=None),
        said(Outcome.REFUSED, backs_off=True, sent_after_ms=None),
        said(Outcome.DEFERRED, sent_after_ms=None),
    ],
)
def test_what_sent_nothing_gives_its_place_back(report: Report) -> None:
    """Invariant 7, Politeness: only request starts count."""
    before = gate(next_fetch_at=NOW + 1_000)
    assert moved(before, leased(gate_was=NOW - 7), report, NOW + 5) == gate(next_fetch_at=NOW - 7)


def test_a_place_is_not_given_back_over_what_came_later() -> None:
    """Invariant 7, Politeness: never sooner than the delay after the last request start."""
    later = gate(next_fetch_at=NOW + 2_500)
    assert politeness.give_back(later, leased(gate_was=NOW - 7)) == later
    in_place = gate(next_fetch_at=NOW + 1_000, quiet_until=NOW + 300)
    assert politeness.give_back(in_place, leased(gate_was=NOW - 7)).next_fetch_at == NOW + 300
    undelayed = gate(next_fetch_at=NOW)
    assert politeness.give_back(undelayed, leased(delay_ms=0, gate_was=5)) == undelayed


def test_silence_counts_as_a_request_just_now() -> None:
    """Invariant 7, Politeness."""
    opens_at = NOW + 121_000
    silent = politeness.after_silence(gate(), leased(), NOW + 120_000)
    assert silent == gate(next_fetch_at=opens_at, quiet_until=opens_at)
    closed = gate(next_fetch_at=NOW + 999_000)
    assert politeness.after_silence(closed, leased(), NOW).next_fetch_at == NOW + 999_000


BUSY = said(Outcome.DEFERRED, backs_off=True)


def test_each_event_doubles_the_back_off_up_to_the_cap() -> None:
    """Invariant 7, Politeness."""
    now, current, waits = NOW, gate(), []
    for _ in range(14):
        current = moved(current, leased(granted_at=now, delay_ms=0), BUSY, now)
        waits.append(current.backoff_until - now)
        now = current.backoff_until
    assert waits[:5] == [5_000, 10_000, 20_000, 40_000, 80_000]
    assert waits[-2:] == [3_600_000, 3_600_000]
    assert current.backoff_level == 14


def test_a_very_long_series_of_events_stays_at_the_cap() -> None:
    """Invariant 7, Politeness: no number of events overflows."""
    after = moved(gate(backoff_level=10_000), leased(delay_ms=0), BUSY, NOW)
    assert after.backoff_until == NOW + 3_600_000


def test_an_answer_to_a_request_from_before_the_back_off_is_the_same_event() -> None:
    """Invariant 7, Politeness: doubled once per event, not once per concurrent response."""
    first = moved(gate(), leased(delay_ms=0), BUSY, NOW + 10)
    assert moved(first, leased(delay_ms=0), BUSY, NOW + 20) == first, "also when it comes later"
    longer = said(Outcome.DEFERRED, backs_off=True, retry_after_ms=60_000)
    asked = moved(first, leased(delay_ms=0), longer, NOW + 20)
    assert (asked.backoff_level, asked.backoff_until) == (1, NOW + 60_020)
    assert moved(asked, leased(delay_ms=0), BUSY, NOW + 30) == asked


@pytest.mark.parametrize(
    ("asked", "waits"), [(None, 5_000), (0, 5_000), (4_999, 5_000), (7_000, 7_000), (10**8, 10**8)]
)
def test_retry_after_may_lengthen_a_back_off(asked: int | None, waits: int) -> None:
    """Invariant 7, Politeness: a site is left alone for at least as long as it asks."""
    report = said(Outcome.DEFERRED, backs_off=True, retry_after_ms=asked)
    assert moved(gate(), leased(delay_ms=0), report, NOW).backoff_until == NOW + waits


def test_jitter_only_ever_adds() -> None:
    """Invariant 7, Politeness: crawlers do not return together, and none returns too soon."""
    jittery = Settings(backoff_jitter=0.2)
    untils = [
        politeness.after_report(gate(), leased(delay_ms=0), BUSY, NOW, jittery, chance).backoff_until
        for chance in (0.0, 0.5, 0.999)
    ]
    assert untils == [NOW + 5_000, NOW + 5_500, NOW + 5_999]


def test_success_ends_a_series_unless_it_was_sent_before_the_back_off() -> None:
    """Invariant 7, Politeness: the level falls to zero with an answer to a request sent since."""
    backing_off = gate(backoff_level=3, backoff_began_at=NOW, backoff_until=NOW + 5)
    assert moved(backing_off, leased(granted_at=NOW - 1, delay_ms=0), said(), NOW).backoff_level == 3
    since = leased(granted_at=NOW + 5, delay_ms=0)
    assert moved(backing_off, since, said(), NOW + 6).backoff_level == 0
    assert moved(backing_off, since, said(Outcome.FAILED), NOW + 6).backoff_level == 3


moments = st.integers(NOW - 10_000, NOW + 10_000)
gates = st.builds(
    Gate,
    domain=st.just("a.example"),
    next_fetch_at=moments,
    backoff_until=moments,
    backoff_level=st.integers(0, 40),
    backoff_began_at=st.just(0) | moments,
    blocked_until=moments,
)
reports = st.builds(
    Report,
    token=st.just(Token("")),
    outcome=st.sampled_from(Outcome),
    backs_off=st.booleans(),
    retry_after_ms=st.none() | st.integers(0, 100_000),
    sent_after_ms=st.integers(0, 20_000),
)


@given(before=gates, report=reports, delay_ms=st.integers(0, 5_000), after_ms=st.integers(0, 10_000))
def test_no_report_of_a_request_opens_a_gate_sooner(before: Gate, report: Report, delay_ms: int, after_ms: int) -> None:
    """Invariant 7, Politeness: never sooner than the delay after the start, nothing before the back-off ends."""
    lease = leased(delay_ms=delay_ms, gate_was=before.next_fetch_at)
    current = politeness.after_lease(before, delay_ms, NOW)
    now = NOW + after_ms
    after = politeness.after_report(current, lease, report, now, STEADY, 0.0)
    assert after.blocked_until == before.blocked_until
    assert after.backoff_until >= before.backoff_until
    started_at = NOW + min(report.sent_after_ms or 0, after_ms)
    assert after.next_fetch_at >= max(current.next_fetch_at, started_at + delay_ms)
    if report.backs_off and report.retry_after_ms is not None:
        assert after.backoff_until >= now + report.retry_after_ms
