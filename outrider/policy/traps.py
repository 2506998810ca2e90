"""Traps: URLs of sites that make ever more of them.

What a URL says of itself is judged by `trap_in`, which remembers nothing. That one path has endless queries
shows only over many URLs, which is what `QueryVariants` is for.
"""

import re
from collections import OrderedDict
from enum import StrEnum
from typing import Final

MAX_SEGMENTS: Final = 20
MAX_IN_A_ROW: Final = 2
"""How often one segment, or one sequence of them, may follow itself: `/a/a/` is fine, `/a/a/a/` is not."""
MAX_REPETITIONS: Final = 4
"""How often one segment may stand in a path, wherever."""
MAX_PARAMETERS: Final = 20
YEARS_AHEAD: Final = 2
FIRST_CALENDAR_YEAR: Final = 1990


class Trap(StrEnum):
    """Why a URL looks like one of endlessly many."""

    REPEATED_PATH = "trap_repeated_path"
    DEEP_PATH = "trap_deep_path"
    CALENDAR = "trap_calendar"
    MANY_PARAMETERS = "trap_many_parameters"
    SESSION_ID = "trap_session_id"
    QUERY_VARIANTS = "trap_query_variants"


# With fewer slashes than this, those of `https://` included, nothing can be repeated too often.
_ORIGIN_SLASHES = 3
_FEWEST_SLASHES = _ORIGIN_SLASHES + MAX_IN_A_ROW
_DATE = re.compile(r"[/=_-](\d{4})[/_-](?:0?[1-9]|1[0-2])(?!\d)|year=(\d{4})(?!\d)")
_CALENDAR = re.compile(r"calend|event|agenda|month|week|day|date|year", re.IGNORECASE)
_SESSION = re.compile(
    r"[?&;/](?:jsessionid|phpsessid|aspsessionid[a-z]*|session_?id|cftoken|zenid|oscsid)=[^&;]"
    r"|[?&;]s(?:ess)?id=[0-9a-z-]{16}"
    r"|/\(s\([0-9a-z]{16,}\)\)",
    re.IGNORECASE,
)


def trap_in(url: str, *, year: int) -> Trap | None:
    """Tell what makes a normalised URL look like a trap; `year` is the current one.

    Dates more than two years ahead are a calendar that goes on for ever. Dates of the past are history,
    unless a word beside them says calendar and they lie before 1990.

    >>> trap_in("https://example.org/a/b/a/b/a/b/", year=2026), trap_in("https://example.org/a/b", year=2026)
    (<Trap.REPEATED_PATH: 'trap_repeated_path'>, None)
    """
    # Ordinary URLs pass in 0.5 µs, of which the search for a date is the half.
    if url.count("/") >= _FEWEST_SLASHES and (trap := _trap_in_path(url)):
        return trap
    if "=" in url or "(" in url:
        if url.count("&") >= MAX_PARAMETERS:
            return Trap.MANY_PARAMETERS
        if _SESSION.search(url):
            return Trap.SESSION_ID
    if (date := _DATE.search(url)) and _is_endless(url, int(date[1] or date[2]), year):
        return Trap.CALENDAR
    return None


def _trap_in_path(url: str) -> Trap | None:
    segments = url.partition("?")[0].split("/")[_ORIGIN_SLASHES:]
    if not segments[-1]:
        segments.pop()
    if len(segments) > MAX_SEGMENTS:
        return Trap.DEEP_PATH
    if len(set(segments)) == len(segments):
        return None
    if max(map(segments.count, segments)) > MAX_REPETITIONS or _repeats(segments):
        return Trap.REPEATED_PATH
    return None


def _repeats(segments: list[str]) -> bool:
    """Tell whether any sequence of segments follows itself too often."""
    times = MAX_IN_A_ROW + 1
    for length in range(1, len(segments) // times + 1):
        # A run of positions that equal the one `length` further on is a sequence that repeats.
        run = 0
        for position in range(len(segments) - length):
            run = run + 1 if segments[position] == segments[position + length] else 0
            if run == length * MAX_IN_A_ROW:
                return True
    return False


def _is_endless(url: str, written: int, year: int) -> bool:
    if written > year + YEARS_AHEAD:
        return True
    return written < FIRST_CALENDAR_YEAR and _CALENDAR.search(url) is not None


class QueryVariants:
    """Counts the distinct queries of each path, in bounded memory.

    It lives in one process and forgets the path that was longest not asked for, so that the limit is
    approximate: a path may get more queries than the limit after a restart, or when very many paths have
    queries at the same time. It never lets fewer through.
    """

    def __init__(self, limit: int = 1_000, *, remembered: int = 100_000) -> None:
        self._limit = limit
        self._remembered = remembered
        self._count = 0
        self._paths: OrderedDict[str, set[int]] = OrderedDict()

    def allows(self, url: str) -> bool:
        """Tell whether a normalised URL is within the limit of its path, and count it if it is new."""
        path, mark, query = url.partition("?")
        if not mark:
            return True
        queries = self._paths.get(path)
        if queries is None:
            queries = self._paths[path] = set()
        else:
            self._paths.move_to_end(path)
        # A hash of 64 bits takes a tenth of the memory of a query.
        variant = hash(query)
        if variant in queries:
            return True
        if len(queries) >= self._limit:
            return False
        queries.add(variant)
        self._count += 1
        while self._count > self._remembered and len(self._paths) > 1:
            _, forgotten = self._paths.popitem(last=False)
            self._count -= len(forgotten)
        return True
