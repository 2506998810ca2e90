"""Recrawl: when a page that was fetched should be fetched again.

A fetch is well spent if it finds a change, and soon after it happened. Both ask for the same knowledge: how long a page
stays as it is, and how far that can be relied on. A page's `History` keeps it in a few numbers.

- **Interval.** The time between two changes. It is corrected by each visit as if changes came by chance: that several
  of them between two visits look like one is part of it. Of a regular page it is the mean of its gaps.
- **Gaps and their spread.** Where a look that found nothing is followed by one that found a change, the gap to the
  change before it is measured. A page whose gaps spread little is *regular*: nothing is asked before its next change is
  expected, and then soon after. Each hit without a miss shortens the interval a little, until a look comes too early
  and the page is measured again.
- **Balance.** One setting says what a fetch is worth. A page that changes more often than `balance_ms` is visited
  nearly as often as it changes, since each visit finds something. A page that changes more seldom is visited more
  often than it changes: waits grow with the cube root of the interval, where one more fetch saves the same staleness
  on each page.
"""

from math import exp
from typing import Final

import msgspec

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS

# The constants were searched for on pages that change by the clock and on pages that change by chance, for many hits
# and little staleness with both at once; benchmarks/refresh.py shows what they reach.
_LEARNING: Final = 0.28
"""The weight of the last measurement in interval and spread."""
_FIRST_SPREAD: Final = 1.0
"""A page has to prove that it is regular."""
_REGULAR_BELOW: Final = 0.45
_MOST_ERROR: Final = 2.0
_LEAST_SPREAD: Final = 0.02
_HIT_SHRINKS: Final = 0.006
_HITS_IN_ROW: Final = 1.03
"""Each further hit without a miss shortens the interval by so many times more than the one before."""
_MOST_SHRINKS: Final = 0.5
_CREEP: Final = 0.05
"""The share of the spread by which a hit without a miss moves the next look forward."""
_BEFORE: Final = 0.7
"""Where in the time between a miss and a hit the change is taken to have been, counted back from the hit. Looks that
come a little more often than the changes miss just before one."""
_RETRY: Final = 0.35
"""After a miss in the expected window, the share of the spread after which to look again."""
_LOST: Final = 6
"""A page that has not changed for so many intervals changes less often than that, and is not regular."""
_IRREGULAR_WAIT: Final = 1.4
_ESTIMATE_GAIN: Final = 4.0
_LEAST_GAIN: Final = 0.05
_TOLD_SOONER: Final = 4
_LONGEST_INTERVAL_MS: Final = 10 * 365 * _DAY_MS

CHANGE_FREQUENCIES: Final = {
    "always": _HOUR_MS,
    "hourly": _HOUR_MS,
    "daily": _DAY_MS,
    "weekly": 7 * _DAY_MS,
    "monthly": 30 * _DAY_MS,
    "yearly": 365 * _DAY_MS,
    "never": 365 * _DAY_MS,
}
"""The `changefreq` of sitemaps as an interval; a first guess, no more."""


class RefreshSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often pages may and should be fetched again."""

    balance_ms: int = _DAY_MS
    """Where a page changes as often as it is visited; the shorter, the more fetches in all."""
    first_ms: int = _DAY_MS
    """The first interval of a page of which nothing is known."""
    shortest_ms: int = _HOUR_MS
    longest_ms: int = 14 * _DAY_MS
    jitter: float = 0.05
    """Share of a wait that is added at random, so that what was fetched together does not come back together."""
    gone_retry_ms: int = 7 * _DAY_MS
    """After a 404 or 410; doubled with each further one."""
    max_gone: int = 3
    """A page that was gone so many times in a row is dropped."""


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """What a site says of a page by itself."""

    lastmod_ms: int | None = None
    """When its sitemap says that it changed last."""
    changefreq: str | None = None
    fresh_until_ms: int | None = None
    """Until when its answer said that it stays fresh: Cache-Control or Expires."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a page's changes; moments and durations in milliseconds."""

    visited_at: int
    interval_ms: int
    """The best estimate of the time between two changes."""
    gap_ms: int | None = None
    """The mean of the gaps that were measured; None before the first."""
    spread: float = _FIRST_SPREAD
    """How far the gaps are from their mean, as a share of it."""
    changed_at: int
    """About when the last change that was seen happened, or the first visit."""
    streak: int = 0
    """Above 0 visits in a row that found a change each, below 0 visits since that found none."""
    visits: int = 0
    """Visits after the first that could be compared."""
    gone: int = 0
    """Visits in a row to which the answer was that there is no such page."""

    @property
    def is_regular(self) -> bool:
        """Whether its next change can be expected at a time."""
        return self.spread < _REGULAR_BELOW


def first_visit(now: int, settings: RefreshSettings, hints: Hints | None = None) -> History:
    """Begin the history of a page that was fetched for the first time."""
    said = CHANGE_FREQUENCIES.get(hints.changefreq or "") if hints else None
    interval_ms = min(max(said or settings.first_ms, settings.shortest_ms), settings.longest_ms)
    return History(visited_at=now, interval_ms=interval_ms, changed_at=now)


def after_visit(history: History, now: int, *, changed: bool) -> History:
    """Take in a visit to a page that is there: whether its text is another than at the visit before."""
    elapsed = max(now - history.visited_at, 1)
    if not changed:
        learnt = _after_miss(history, now, elapsed)
    elif history.streak < 0:
        learnt = _after_measured_hit(history, now, elapsed)
    else:
        learnt = _after_hit(history, now, elapsed)
    return msgspec.structs.replace(learnt, visited_at=now, visits=history.visits + 1, gone=0)


def after_gone(history: History, now: int, settings: RefreshSettings) -> History | None:
    """Take in that there is no such page (404, 410); None where it should be dropped."""
    gone = history.gone + 1
    return None if gone >= settings.max_gone else msgspec.structs.replace(history, visited_at=now, gone=gone)


def next_due(history: History, settings: RefreshSettings, chance: float, hints: Hints | None = None) -> int:
    """Tell when to fetch a page again. `chance` in [0, 1) is the draw for the jitter.

    Hints move a visit, within limits, since many are wrong. A sitemap that says that the page has changed since the
    last visit makes it due after a quarter of the wait. What an answer promised of its freshness puts a visit off,
    but to no later than a whole interval.
    """
    if history.gone:
        wait = min(settings.gone_retry_ms << min(history.gone - 1, 20), 10 * settings.gone_retry_ms)
        return history.visited_at + int(wait * (1 + settings.jitter * chance))
    wait_ms = _regular_wait(history, settings) if history.is_regular else _irregular_wait(history, settings)
    if hints is not None:
        wait_ms = _hinted(wait_ms, history, hints)
    wait_ms = min(max(wait_ms, settings.shortest_ms), settings.longest_ms / (1 + settings.jitter))
    return history.visited_at + int(wait_ms * (1 + settings.jitter * chance))


def _hinted(wait_ms: float, history: History, hints: Hints) -> float:
    if hints.lastmod_ms is not None and hints.lastmod_ms > history.visited_at:
        return wait_ms / _TOLD_SOONER
    if hints.fresh_until_ms is not None:
        return max(wait_ms, min(hints.fresh_until_ms - history.visited_at, history.interval_ms))
    return wait_ms


# ------------------------------------------------------------------ learning


def _after_miss(history: History, now: int, elapsed: int) -> History:
    interval_ms, spread = history.interval_ms, history.spread
    since = now - history.changed_at
    if not history.is_regular:
        interval_ms = _estimated(history, elapsed, changed=False)
    elif since > _LOST * interval_ms:
        interval_ms, spread = since, _FIRST_SPREAD
    return msgspec.structs.replace(history, interval_ms=interval_ms, spread=spread, streak=min(history.streak, 0) - 1)


def _after_measured_hit(history: History, now: int, elapsed: int) -> History:
    """Learn from a change that happened between the last look, which found none, and this one."""
    changed_at = now - int(_BEFORE * elapsed)
    gap = max(changed_at - history.changed_at, 1)
    if history.gap_ms is None:
        interval_ms = gap_ms = gap
        spread = history.spread
    else:
        error = min(abs(gap - history.gap_ms) / history.gap_ms, _MOST_ERROR)
        spread = max(_blend(history.spread, error), _LEAST_SPREAD)
        gap_ms = max(int(_blend(history.gap_ms, gap)), 1)
        interval_ms = gap_ms if spread < _REGULAR_BELOW else _estimated(history, elapsed, changed=True)
    return msgspec.structs.replace(
        history, interval_ms=interval_ms, gap_ms=gap_ms, spread=spread, changed_at=changed_at, streak=0
    )


def _after_hit(history: History, now: int, elapsed: int) -> History:
    """Learn from a hit after a hit: the page may change more often than it is looked at."""
    gap_ms = history.gap_ms
    if history.is_regular:
        expected = min(max(history.changed_at + history.interval_ms, now - elapsed), now)
        shrunk = history.interval_ms * max(1 - _HIT_SHRINKS * _in_row(history), _MOST_SHRINKS)
        interval_ms = gap_ms = max(int(shrunk), 1)
        changed_at = expected - int(_CREEP * history.spread * interval_ms)
    else:
        interval_ms = _estimated(history, elapsed, changed=True)
        changed_at = now
    return msgspec.structs.replace(
        history, interval_ms=interval_ms, gap_ms=gap_ms, changed_at=changed_at, streak=max(history.streak, 0) + 1
    )


def _estimated(history: History, elapsed: int, *, changed: bool) -> int:
    """Correct the interval by how surprising a visit was, if changes come by chance at its rate.

    It is the gradient of the likelihood, with steps that shrink as visits add up, and grow where nothing but hits is
    seen. That several changes between two visits look like one is part of it.
    """
    unlikely = exp(-elapsed / history.interval_ms)
    gain = max(_ESTIMATE_GAIN / (history.visits + 1), _LEAST_GAIN)
    if changed:
        interval_ms = history.interval_ms * max(exp(-gain * _in_row(history) * unlikely), _MOST_SHRINKS)
    else:
        since = history.visited_at + elapsed - history.changed_at
        interval_ms = max(history.interval_ms * exp(gain * (1 - unlikely)), since / _LOST)
    return min(max(int(interval_ms), 1), _LONGEST_INTERVAL_MS)


def _in_row(history: History) -> float:
    """Tell how much more a further hit says after so many without a miss."""
    return _HITS_IN_ROW ** min(max(history.streak, 0), 50)


def _blend(before: float, measured: float) -> float:
    return before + _LEARNING * (measured - before)


# ------------------------------------------------------------------- waiting


def _irregular_wait(history: History, settings: RefreshSettings) -> float:
    return _IRREGULAR_WAIT * min(history.interval_ms, _step(history.interval_ms, settings))


def _regular_wait(history: History, settings: RefreshSettings) -> float:
    """Wait for the window in which the next change is expected, and look through it in steps."""
    spread_ms = history.spread * history.interval_ms
    window = 2 * spread_ms
    due_at = history.changed_at + history.interval_ms
    if history.streak >= 0:
        return due_at - spread_ms + min(_step(window, settings), window) - history.visited_at
    late = max(history.visited_at - due_at, 0)
    return min(_step(window + 2 * late, settings), _RETRY * spread_ms + late)


def _step(window: float, settings: RefreshSettings) -> float:
    """Tell how far apart to look for a change that is somewhere in a window.

    Looks cost their number, finding late costs the square of the delay: the sum is least at the cube root.
    """
    return float((settings.balance_ms * settings.balance_ms * window) ** (1 / 3))
