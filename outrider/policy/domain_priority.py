"""Domain priority: how much a domain is worth crawling next, as a score and as one of 16 bands.

The score is a sum of what is known, in points by `PriorityWeights`:

| what | points |
|---|---|
| place in a list of seeds | 1000 for the first, about 43 less with each doubling, none from rank 8,388,608 on |
| images stored per page | 1000 for each, up to 100 images |
| pages known but not crawled | 2 for each of the first 500 |
| errors among all answers | up to 500 less |
| days since the last crawl, else since it was first seen | 5 for each, up to 365 days |

A score is worked out for one domain in Python and for a million rows in SQL, and both come to the same integer:
each does the same operations on doubles in the same order. That is why the logarithm of the rank is made of straight
pieces between the powers of two, which needs no function that a build of SQLite may lack.
"""

from enum import StrEnum
from typing import Final

import msgspec

from outrider.model.errors import InvalidInput
from outrider.model.gate import BANDS
from outrider.model.settings import Settings

_RANK_DOUBLINGS: Final = 23
_DAY_S: Final = 86_400
_HIGHEST_SCORE: Final = 2**31 - 1

LOWEST_SCORES: Final = (16_000, 8_000, 4_000, 2_000, 1_000, 500, 250, 125, 0, -64, -128, -192, -256, -320, -384)
"""The lowest score of each band but the last. A domain of which nothing is known has 0 and is in the middle."""
assert len(LOWEST_SCORES) == BANDS - 1


class PriorityWeights(msgspec.Struct, frozen=True, kw_only=True):
    """What each thing known of a domain counts, in points, and up to where."""

    rank: int = 1000
    image_yield: int = 1000
    remaining_page: int = 2
    error_rate: int = 500
    """Taken off."""
    stale_day: int = 5
    most_yield: int = 100
    most_remaining: int = 500
    most_stale_days: int = 365

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 0:
                raise InvalidInput(f"the priority weight {name} is negative: {getattr(self, name)}")
        pages, days = self.remaining_page * self.most_remaining, self.stale_day * self.most_stale_days
        highest = self.rank + self.image_yield * self.most_yield + pages + days + self.error_rate
        if highest > _HIGHEST_SCORE:
            raise InvalidInput(f"the priority weights add up to {highest} points, more than {_HIGHEST_SCORE}")


def weights_of(settings: Settings) -> PriorityWeights:
    """Take the weights from the settings of the installation, where their names begin with `priority_`."""
    return PriorityWeights(
        **{name: getattr(settings, f"priority_{name}") for name in PriorityWeights.__struct_fields__}
    )


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a domain, as its counters say it; moments in milliseconds."""

    first_seen_at: int
    last_crawled_at: int | None = None
    seed_rank: int | None = None
    """Its place in a list, 1 for the best."""
    pages_discovered: int = 0
    pages_crawled: int = 0
    images_found: int = 0
    images_stored: int = 0
    total_error_count: int = 0

    @property
    def image_yield_rate(self) -> float | None:
        """Images stored per page; None before the first page."""
        return self.images_stored / self.pages_crawled if self.pages_crawled else None

    @property
    def avg_images_per_page(self) -> float | None:
        """Images found per page; None before the first page."""
        return self.images_found / self.pages_crawled if self.pages_crawled else None

    @property
    def error_rate(self) -> float | None:
        """The share of errors in all that was asked for; None before the first answer."""
        asked = self.pages_crawled + self.total_error_count
        return self.total_error_count / asked if asked else None


def score(signals: Signals, now: int, weights: PriorityWeights) -> int:
    """Work out the priority of one domain.

    >>> score(Signals(first_seen_at=0, seed_rank=1), 0, PriorityWeights())
    1000
    >>> score(Signals(first_seen_at=0, pages_crawled=10, images_stored=20, total_error_count=10), 0, PriorityWeights())
    1750
    """
    remaining = min(max(signals.pages_discovered - signals.pages_crawled, 0), weights.most_remaining)
    since = signals.first_seen_at if signals.last_crawled_at is None else signals.last_crawled_at
    stale_s = min(max(now // 1000 - since // 1000, 0), weights.most_stale_days * _DAY_S)
    total = (
        _rank_points(signals.seed_rank, weights)
        + weights.image_yield * min(signals.image_yield_rate or 0.0, float(weights.most_yield))
        + weights.remaining_page * remaining
        - weights.error_rate * (signals.error_rate or 0.0)
        + weights.stale_day * (stale_s / _DAY_S)
    )
    # Made positive first: to cut off the fraction of a positive number means the same everywhere.
    return int(total + (weights.error_rate + 0.5)) - weights.error_rate


def band_of(domain_score: int) -> int:
    """Map a score to the band of the domain's gate; band 0 is served first.

    >>> [band_of(score) for score in (99_999, 1_000, 125, 0, -1, -999)]
    [0, 4, 7, 8, 9, 15]
    """
    return next((band for band, lowest in enumerate(LOWEST_SCORES) if domain_score >= lowest), BANDS - 1)


def _rank_points(rank: int | None, weights: PriorityWeights) -> float:
    if rank is None or rank >= 2**_RANK_DOUBLINGS:
        return 0.0
    place = max(rank, 1)
    whole = place.bit_length() - 1
    return weights.rank * (1 - (whole - 1 + place / (1 << whole)) / _RANK_DOUBLINGS)


class Dialect(StrEnum):
    """Whose SQL it is."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """The SQL for each signal, for statements that name columns in another way or sum them up."""

    first_seen_at: str = "first_seen_at"
    last_crawled_at: str = "last_crawled_at"
    seed_rank: str = "seed_rank"
    pages_discovered: str = "pages_discovered"
    pages_crawled: str = "pages_crawled"
    images_found: str = "images_found"
    images_stored: str = "images_stored"
    total_error_count: str = "total_error_count"

    @property
    def image_yield_rate(self) -> str:
        """The SQL for the signal of this name; the same in both dialects, like the next two."""
        return _ratio(self.images_stored, self.pages_crawled)

    @property
    def avg_images_per_page(self) -> str:
        """See `image_yield_rate`."""
        return _ratio(self.images_found, self.pages_crawled)

    @property
    def error_rate(self) -> str:
        """See `image_yield_rate`."""
        return _ratio(self.total_error_count, f"({self.pages_crawled} + {self.total_error_count})")


def score_sql(dialect: Dialect, weights: PriorityWeights, *, now: str, columns: Columns | None = None) -> str:
    """Write `score` as an SQL expression; `now` is the SQL for the time, a whole number of milliseconds."""
    of = columns or Columns()
    least, greatest = ("min", "max") if dialect is Dialect.SQLITE else ("least", "greatest")
    since = _seconds_sql(dialect, f"coalesce({of.last_crawled_at}, {of.first_seen_at})")
    remaining = f"{least}({greatest}({of.pages_discovered} - {of.pages_crawled}, 0), {weights.most_remaining})"
    stale_s = f"{least}({greatest}({now} / 1000 - {since}, 0), {weights.most_stale_days * _DAY_S})"
    total = (
        f"{_rank_sql(of.seed_rank, weights)}"
        f" + {weights.image_yield} * {least}(coalesce({of.image_yield_rate}, 0), {_double(weights.most_yield)})"
        f" + {weights.remaining_page} * {remaining}"
        f" - {weights.error_rate} * coalesce({of.error_rate}, 0)"
        f" + {weights.stale_day} * ({_double(stale_s)} / {_DAY_S})"
    )
    positive = f"{total} + {_double(weights.error_rate + 0.5)}"
    # PostgreSQL rounds where it casts, SQLite cuts off.
    whole = positive if dialect is Dialect.SQLITE else f"floor({positive})"
    return f"(CAST({whole} AS integer) - {weights.error_rate})"


def band_sql(domain_score: str) -> str:
    """Write `band_of` as an SQL expression; the same in both dialects."""
    arms = " ".join(f"WHEN {domain_score} >= {lowest} THEN {band}" for band, lowest in enumerate(LOWEST_SCORES))
    return f"(CASE {arms} ELSE {BANDS - 1} END)"


def _rank_sql(rank: str, weights: PriorityWeights) -> str:
    full = f"WHEN {rank} < 2 THEN {_double(weights.rank)}"
    pieces = " ".join(
        f"WHEN {rank} < {2 ** (whole + 1)} THEN "
        f"{weights.rank} * (1 - ({whole - 1} + {_double(rank)} / {2**whole}) / {_RANK_DOUBLINGS})"
        for whole in range(1, _RANK_DOUBLINGS)
    )
    return f"(CASE {full} {pieces} ELSE {_double(0)} END)"


def _seconds_sql(dialect: Dialect, moment: str) -> str:
    if dialect is Dialect.SQLITE:
        return f"CAST(strftime('%s', {moment}) AS integer)"
    return f"CAST(floor(extract(epoch FROM {moment})) AS bigint)"


def _ratio(part: str, whole: str) -> str:
    return f"({_double(part)} / nullif({whole}, 0))"


def _double(number: str | float) -> str:
    return f"CAST({number} AS double precision)"
