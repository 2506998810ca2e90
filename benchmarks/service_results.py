"""What the benchmarks of the service tell: lines of a table, and goals."""

import statistics
from collections.abc import Sequence

import msgspec


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    what: str
    per_second: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    cpu_share: float | None = None
    """Of one core, by the service."""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What was to be reached, and whether it was."""

    name: str
    measured: float
    wanted: str
    reached: bool


def at_least(name: str, measured: float, least: float) -> Goal:
    return Goal(name=name, measured=round(measured, 3), wanted=f">= {least:g}", reached=measured >= least)


def at_most(name: str, measured: float, most: float) -> Goal:
    return Goal(name=name, measured=round(measured, 3), wanted=f"<= {most:g}", reached=measured <= most)


def timed(what: str, seconds: Sequence[float], *, per_second: float | None = None) -> Result:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else [*seconds] * 99
    return Result(
        what=what,
        per_second=None if per_second is None else round(per_second, 1),
        p50_ms=round(cuts[49] * 1000, 2),
        p99_ms=round(cuts[98] * 1000, 2),
    )
