"""Recrawl: how a page's interval follows its changes, and when it is due again."""

import runpy
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.policy import recrawl
from outrider.policy.recrawl import Hints, History, RefreshSettings

NOW = 1_750_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR
STEADY = RefreshSettings(jitter=0.0)
VISITS = st.lists(st.tuples(st.integers(0, 90 * DAY), st.booleans()), max_size=60)


def due(history: History, hints: Hints | None = None, *, chance: float = 0.0) -> int:
    """Tell after how long a page is due, from its last visit."""
    return recrawl.next_due(history, STEADY, chance, hints) - history.visited_at


def visited(history: History, *found: bool) -> History:
    """Visit a page whenever it is due."""
    for changed in found:
        history = recrawl.after_visit(history, history.visited_at + due(history), changed=changed)
    return history


def crawled(interval: int, days: int, *, phase: float = 0.6) -> tuple[History, list[tuple[int, bool]]]:
    """Visit a page that changes at each interval, whenever it is due; tell when it was found changed."""
    history, seen, visits = recrawl.first_visit(NOW, STEADY), 0, []
    while (now := history.visited_at + due(history)) < NOW + days * DAY:
        changes = int((now - NOW) / interval + phase)
        visits.append((now, changes > seen))
        history = recrawl.after_visit(history, now, changed=changes > seen)
        seen = changes
    return history, visits


def test_a_page_of_which_nothing_is_known_is_due_within_days() -> None:
    assert DAY <= due(recrawl.first_visit(NOW, STEADY)) <= 2 * DAY


@pytest.mark.parametrize(
    ("changefreq", "sooner"), [("hourly", True), ("daily", False), ("monthly", False), ("nonsense", False)]
)
def test_a_sitemaps_frequency_is_a_first_guess(changefreq: str, sooner: bool) -> None:
    plain = due(recrawl.first_visit(NOW, STEADY))
    hinted = due(recrawl.first_visit(NOW, STEADY, Hints(changefreq=changefreq)))
    assert (hinted < plain) is sooner
    assert hinted <= STEADY.longest_ms


def test_changes_shorten_the_interval_and_their_absence_lengthens_it() -> None:
    page = visited(recrawl.first_visit(NOW, STEADY), True, False, True, False)
    assert recrawl.after_visit(page, page.visited_at + DAY, changed=True).interval_ms < page.interval_ms
    quiet = visited(recrawl.first_visit(NOW, STEADY), *[False] * 10)
    assert quiet.interval_ms > 10 * recrawl.first_visit(NOW, STEADY).interval_ms
    assert due(quiet) > due(recrawl.first_visit(NOW, STEADY))


def test_a_page_that_always_changes_ends_at_the_shortest_interval() -> None:
    assert due(visited(recrawl.first_visit(NOW, STEADY), *[True] * 200)) == STEADY.shortest_ms


def test_a_page_that_never_changes_ends_at_the_longest_interval() -> None:
    assert due(visited(recrawl.first_visit(NOW, STEADY), *[False] * 1_000)) == STEADY.longest_ms


@pytest.mark.parametrize("hours", [60, 120])
def test_a_page_that_changes_by_the_clock_is_visited_shortly_after_its_changes(hours: int) -> None:
    history, visits = crawled(hours * HOUR, 100 * hours // 24)
    assert history.is_regular
    assert history.interval_ms == pytest.approx(hours * HOUR, rel=0.15)
    late = [found for _, found in visits[-40:]]
    assert sum(late) / len(late) > 0.6, "most visits find a change"
    delays = [((now - NOW) / (hours * HOUR) + 0.6) % 1 for now, found in visits[-40:] if found]
    assert sum(delays) / len(delays) < 0.25, "and that one soon"


@pytest.mark.parametrize("hours", [2, 6, 12])
def test_a_page_that_changes_often_is_visited_about_as_often_as_it_changes(hours: int) -> None:
    _, visits = crawled(hours * HOUR, 100)
    late = [found for _, found in visits[len(visits) // 2 :]]
    assert sum(late) / len(late) > 0.85, "nearly every visit finds a change"
    assert 0.6 < len(late) / (50 * 24 / hours) < 1.4


def test_a_regular_page_that_stops_changing_is_soon_looked_at_as_any_other() -> None:
    history, _ = crawled(60 * HOUR, 200)
    assert history.is_regular
    stopped = visited(history, *[False] * 60)
    assert not stopped.is_regular
    assert due(stopped) > 2 * DAY


@pytest.mark.parametrize(("world", "times_the_share"), [("by_the_clock", 2.0), ("by_chance", 1.4)])
def test_the_same_fetches_find_more_and_sooner_than_at_a_fixed_interval(world: str, times_the_share: float) -> None:
    benchmark = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "refresh.py"))
    figures = benchmark["compare"](400, 30, 2, benchmark[world])
    assert figures["share_ratio"] >= times_the_share
    assert figures["staleness_ratio"] < 1


def test_a_slower_page_is_visited_less_often_but_more_often_than_it_changes() -> None:
    waits = [
        due(History(visited_at=NOW, changed_at=NOW, interval_ms=days * DAY, visits=9)) / DAY for days in (1, 8, 64)
    ]
    assert waits == sorted(waits)
    assert waits[0] >= 1
    assert waits[1] < 8
    assert waits[2] < 64 / 4


def test_a_longer_balance_means_fewer_visits() -> None:
    page = History(visited_at=NOW, changed_at=NOW, interval_ms=30 * DAY, visits=9)
    rare = msgspec.structs.replace(STEADY, balance_ms=2 * STEADY.balance_ms)
    assert recrawl.next_due(page, rare, 0.0) > recrawl.next_due(page, STEADY, 0.0)


def test_a_sitemap_that_says_changed_makes_a_page_due_sooner() -> None:
    page = visited(recrawl.first_visit(NOW, STEADY), *[False] * 3)
    assert due(page, Hints(lastmod_ms=page.visited_at + 1)) == pytest.approx(due(page) / 4, abs=1)
    assert due(page, Hints(lastmod_ms=page.visited_at - 1)) == due(page)


def test_freshness_puts_a_visit_off_by_no_more_than_the_pages_interval() -> None:
    page = visited(recrawl.first_visit(NOW, STEADY), True, False, True, False, True)
    wait = due(page)
    assert due(page, Hints(fresh_until_ms=page.visited_at)) == wait
    assert due(page, Hints(fresh_until_ms=page.visited_at + wait + 7)) <= max(wait + 7, page.interval_ms)
    assert due(page, Hints(fresh_until_ms=page.visited_at + 365 * DAY)) == max(wait, page.interval_ms)


def test_a_page_that_is_gone_is_tried_again_after_long_and_then_dropped() -> None:
    once = recrawl.after_gone(recrawl.first_visit(NOW, STEADY), NOW + DAY, STEADY)
    assert once is not None
    assert due(once) == 7 * DAY
    twice = recrawl.after_gone(once, once.visited_at + due(once), STEADY)
    assert twice is not None
    assert due(twice) == 14 * DAY
    assert recrawl.after_gone(twice, twice.visited_at + due(twice), STEADY) is None


def test_a_page_that_comes_back_is_no_longer_gone() -> None:
    gone = recrawl.after_gone(recrawl.first_visit(NOW, STEADY), NOW + DAY, STEADY)
    assert gone is not None
    back = recrawl.after_visit(gone, NOW + 8 * DAY, changed=True)
    assert back.gone == 0


def test_jitter_only_ever_adds() -> None:
    page = recrawl.first_visit(NOW, STEADY)
    jittery = msgspec.structs.replace(STEADY, jitter=0.1)
    waits = [recrawl.next_due(page, jittery, chance) - NOW for chance in (0.0, 0.5, 0.999)]
    assert waits[0] == due(page)
    assert waits == sorted(set(waits))
    assert waits[2] <= 1.1 * waits[0]


@given(VISITS)
def test_whatever_was_seen_a_page_is_due_within_the_bounds(visits: list[tuple[int, bool]]) -> None:
    jittery = RefreshSettings(jitter=0.5)
    history = recrawl.first_visit(NOW, STEADY)
    for elapsed, changed in visits:
        history = recrawl.after_visit(history, history.visited_at + elapsed, changed=changed)
        assert STEADY.shortest_ms <= due(history) <= STEADY.longest_ms
        assert recrawl.next_due(history, jittery, 0.999) - history.visited_at <= jittery.longest_ms
        assert history.interval_ms > 0


@given(VISITS)
def test_a_history_fits_the_columns_of_a_row(visits: list[tuple[int, bool]]) -> None:
    history = recrawl.first_visit(NOW, STEADY)
    for elapsed, changed in visits:
        history = recrawl.after_visit(history, history.visited_at + elapsed, changed=changed)
    numbers = msgspec.structs.asdict(history)
    assert 0 < numbers.pop("spread") <= 2
    assert all(number is None or -(2**63) <= number < 2**63 for number in numbers.values())


@given(VISITS, st.booleans())
def test_a_clock_that_goes_back_does_no_harm(visits: list[tuple[int, bool]], changed: bool) -> None:
    history = recrawl.first_visit(NOW, STEADY)
    for elapsed, found in visits:
        history = recrawl.after_visit(history, history.visited_at - elapsed, changed=found)
    history = recrawl.after_visit(history, NOW, changed=changed)
    assert STEADY.shortest_ms <= due(history) <= STEADY.longest_ms
