"""Domain priority: what raises a score, and that Python and both databases come to the same one."""

import random
import sqlite3
from datetime import UTC, datetime, timedelta

import asyncpg
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.model.errors import InvalidInput
from outrider.policy import domain_priority
from outrider.policy.domain_priority import Columns, Dialect, PriorityWeights, Signals

NOW = 1_750_000_000_000
DAY = 86_400_000
DEFAULTS = PriorityWeights()
COUNTS = st.integers(0, 10**7)
SIGNALS = st.builds(
    Signals,
    first_seen_at=st.integers(NOW - 4_000 * DAY, NOW + DAY),
    last_crawled_at=st.none() | st.integers(NOW - 4_000 * DAY, NOW + DAY),
    seed_rank=st.none() | st.integers(1, 10**8),
    pages_discovered=COUNTS,
    pages_crawled=COUNTS,
    images_found=COUNTS,
    images_stored=COUNTS,
    total_error_count=COUNTS,
)


def score(first_seen_at: int = NOW, **fields: int | None) -> int:
    return domain_priority.score(Signals(first_seen_at=first_seen_at, **fields), NOW, DEFAULTS)  # type: ignore[arg-type]


def test_a_domain_of_which_nothing_is_known_is_worth_nothing_and_stands_in_the_middle() -> None:
    assert score() == 0
    assert domain_priority.band_of(0) == 8


@pytest.mark.parametrize(
    ("rank", "points"), [(1, 1000), (2, 957), (10, 859), (1_000, 567), (1_000_000, 134), (10_000_000, 0), (None, 0)]
)
def test_the_best_rank_counts_most_and_falls_by_its_logarithm(rank: int | None, points: int) -> None:
    assert score(seed_rank=rank) == points


def test_images_per_page_count_a_thousand_each() -> None:
    assert score(pages_discovered=10, pages_crawled=10, images_stored=20) == 2_000


def test_a_page_full_of_images_does_not_outweigh_everything_for_ever() -> None:
    assert score(pages_crawled=1, images_stored=10**9) == 100_000


def test_pages_still_to_crawl_count_two_each_up_to_500() -> None:
    assert score(pages_discovered=30, pages_crawled=10) == 40
    assert score(pages_discovered=10**9) == 1_000
    assert score(pages_discovered=3, pages_crawled=10) == 0


def test_an_error_rate_of_a_half_costs_250_points() -> None:
    assert score(pages_crawled=10, total_error_count=10) == -250
    assert score(total_error_count=10) == -500


def test_staleness_counts_from_the_last_crawl_and_else_from_when_it_was_first_seen() -> None:
    """A domain that was never crawled does not gain the years before it was known."""
    assert score(NOW - 30 * DAY) == 150
    assert score(NOW - 30 * DAY, last_crawled_at=NOW - 2 * DAY) == 10
    assert score(0) == 365 * 5
    assert score(NOW + DAY) == 0


def test_rates_come_from_the_counters() -> None:
    known = Signals(first_seen_at=0, pages_crawled=4, images_found=6, images_stored=2, total_error_count=1)
    assert (known.image_yield_rate, known.avg_images_per_page, known.error_rate) == (0.5, 1.5, 0.2)
    unknown = Signals(first_seen_at=0)
    assert (unknown.image_yield_rate, unknown.avg_images_per_page, unknown.error_rate) == (None, None, None)


@given(SIGNALS, st.integers(1, 10**8))
def test_a_better_rank_is_never_worth_less(signals: Signals, rank: int) -> None:
    better, worse = sorted((rank, signals.seed_rank or rank))
    scores = [
        domain_priority.score(msgspec.structs.replace(signals, seed_rank=each), NOW, DEFAULTS)
        for each in (better, worse, None)
    ]
    assert scores == sorted(scores, reverse=True)


@given(SIGNALS)
def test_more_errors_never_raise_a_score(signals: Signals) -> None:
    more = msgspec.structs.replace(signals, total_error_count=signals.total_error_count * 2 + 1)
    assert domain_priority.score(more, NOW, DEFAULTS) <= domain_priority.score(signals, NOW, DEFAULTS)


@given(st.integers(-600, 110_000), st.integers(0, 1_000))
def test_a_higher_score_is_never_served_later(lower: int, difference: int) -> None:
    assert 0 <= domain_priority.band_of(lower + difference) <= domain_priority.band_of(lower) <= 15


def test_every_band_can_be_reached() -> None:
    assert {domain_priority.band_of(each) for each in range(-600, 20_000)} == set(range(16))


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"stale_day": -1}, "stale_day is negative: -1"), ({"image_yield": 10**8}, "add up to 10000004325 points")],
)
def test_weights_that_cannot_be_meant_are_refused(fields: dict[str, int], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        PriorityWeights(**fields)


# ---------------------------------------------------------------------- SQL

OTHERS = PriorityWeights(rank=777, image_yield=31, remaining_page=3, error_rate=1234, stale_day=7, most_stale_days=9)
FIELDS = Signals.__struct_fields__


def random_rows(number: int) -> list[Signals]:
    chance = random.Random(20_260_207)

    def count() -> int:
        return chance.choice((0, 1, 2, chance.randrange(100), chance.randrange(10**6), chance.randrange(2**40)))

    def moment() -> int:
        return NOW - chance.choice((0, -DAY, chance.randrange(DAY), chance.randrange(400 * DAY), NOW - 1))

    return [
        Signals(
            first_seen_at=moment(),
            last_crawled_at=chance.choice((None, moment())),
            seed_rank=chance.choice((None, 0, 2 ** chance.randrange(26), int(10 ** chance.uniform(0, 7.5)))),
            pages_discovered=count(),
            pages_crawled=count(),
            images_found=count(),
            images_stored=count(),
            total_error_count=count(),
        )
        for _ in range(number)
    ]


def moment_of(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def statement(dialect: Dialect, weights: PriorityWeights, now: str) -> str:
    columns = Columns(seed_rank="d.seed_rank", pages_crawled="(d.pages_crawled + 0)")
    expression = domain_priority.score_sql(dialect, weights, now=now, columns=columns)
    rates = f"{columns.image_yield_rate}, {columns.avg_images_per_page}, {columns.error_rate}"
    return f"""
        WITH s (number, score, image_yield, average, errors) AS (SELECT number, {expression}, {rates} FROM domains d)
        SELECT score, {domain_priority.band_sql("score")}, image_yield, average, errors FROM s ORDER BY number"""


def expected(rows: list[Signals], weights: PriorityWeights) -> list[tuple[object, ...]]:
    scores = [domain_priority.score(row, NOW, weights) for row in rows]
    return [
        (score, domain_priority.band_of(score), row.image_yield_rate, row.avg_images_per_page, row.error_rate)
        for row, score in zip(rows, scores, strict=True)
    ]


@pytest.mark.parametrize("weights", [DEFAULTS, OTHERS], ids=["defaults", "others"])
def test_sqlite_comes_to_the_same_scores(weights: PriorityWeights) -> None:
    rows = random_rows(3_000)
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE domains (number, {', '.join(FIELDS)})")

    def written(milliseconds: int | None) -> str | None:
        moment = moment_of(milliseconds)
        return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    connection.executemany(
        f"INSERT INTO domains VALUES ({', '.join('?' * (len(FIELDS) + 1))})",
        [
            (number, written(row.first_seen_at), written(row.last_crawled_at), *msgspec.structs.astuple(row)[2:])
            for number, row in enumerate(rows)
        ],
    )
    found = connection.execute(statement(Dialect.SQLITE, weights, "?1"), (NOW,)).fetchall()
    connection.close()
    assert found == expected(rows, weights)


@pytest.mark.parametrize("weights", [DEFAULTS, OTHERS], ids=["defaults", "others"])
async def test_postgresql_comes_to_the_same_scores(postgres_database: str, weights: PriorityWeights) -> None:
    rows = random_rows(3_000)
    connection = await asyncpg.connect(postgres_database)
    try:
        await connection.execute(
            "CREATE TABLE domains (number integer, first_seen_at timestamptz, last_crawled_at timestamptz,"
            " seed_rank integer, pages_discovered bigint, pages_crawled bigint, images_found bigint,"
            " images_stored bigint, total_error_count bigint)"
        )
        await connection.copy_records_to_table(
            "domains",
            records=[
                (
                    number,
                    moment_of(row.first_seen_at),
                    moment_of(row.last_crawled_at),
                    *msgspec.structs.astuple(row)[2:],
                )
                for number, row in enumerate(rows)
            ],
        )
        found = await connection.fetch(statement(Dialect.POSTGRES, weights, "$1::bigint"), NOW)
    finally:
        await connection.close()
    assert [tuple(row) for row in found] == expected(rows, weights)
