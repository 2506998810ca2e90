"""Fair share: every domain gets its share of a small total, whatever the others have to give and how fast."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.policy.fair_share import fair_level, pages_left

HISTOGRAMS = st.dictionaries(st.integers(0, 60), st.integers(0, 20), max_size=12)


@pytest.mark.parametrize(
    ("domains_with", "remaining", "level"),
    [
        ({}, 10, 0),
        ({0: 50}, 100, 2),
        ({0: 50}, 149, 2),
        ({0: 50}, 150, 3),
        ({0: 1}, 100, 100),
        ({5: 1}, 100, 105),
        ({0: 10}, 0, 0),
        ({0: 10}, -3, 0),
        ({0: 10}, 9, 1),
        ({2: 3}, 1, 3),
        ({0: 1, 10: 1}, 5, 5),
        ({0: 1, 10: 1}, 10, 10),
        ({0: 1, 10: 1}, 12, 11),
        ({0: 0, 4: 2}, 4, 6),
    ],
)
def test_the_level_is_what_everybody_with_work_could_be_brought_to(
    domains_with: dict[int, int], remaining: int, level: int
) -> None:
    assert fair_level(domains_with, remaining) == level


@given(HISTOGRAMS, st.integers(0, 2_000))
def test_up_to_the_level_there_is_enough_for_all_and_beyond_it_there_is_not(
    domains_with: dict[int, int], remaining: int
) -> None:
    def missing(level: int) -> int:
        return sum(max(level - pages, 0) * number for pages, number in domains_with.items())

    level = fair_level(domains_with, remaining)
    fewest = min((pages for pages, number in domains_with.items() if number), default=None)
    if fewest is None or remaining == 0:
        assert level == 0
        return
    assert missing(level + 1) > remaining
    assert missing(level) <= remaining or level == fewest + 1


@given(HISTOGRAMS, st.integers(1, 2_000), st.data())
def test_a_lease_within_the_level_leaves_it_where_it_is(
    domains_with: dict[int, int], remaining: int, data: st.DataObject
) -> None:
    """So it need not be worked out again for each lease."""
    level = fair_level(domains_with, remaining)
    below = [pages for pages, number in domains_with.items() if number and pages < level]
    if len(below) == 0 or sum(max(level - p, 0) * n for p, n in domains_with.items()) > remaining:
        return
    pages = data.draw(st.sampled_from(sorted(below)))
    after = Counter(domains_with)
    after[pages] -= 1
    after[pages + 1] += 1
    assert fair_level(after, remaining - 1) in ((level, level + 1) if remaining > 1 else (0,))


@given(HISTOGRAMS, st.integers(1, 2_000), st.integers(0, 60))
def test_a_domain_that_runs_dry_never_lowers_the_level(
    domains_with: dict[int, int], remaining: int, pages: int
) -> None:
    before = Counter({each: number for each, number in domains_with.items() if number})
    with_one_more = before + Counter({pages: 1})
    if before:
        assert fair_level(before, remaining) >= fair_level(with_one_more, remaining)


@given(HISTOGRAMS, st.integers(0, 2_000))
def test_somebody_with_work_may_go_on_as_long_as_anything_remains(domains_with: dict[int, int], remaining: int) -> None:
    level = fair_level(domains_with, remaining)
    fewest = min((pages for pages, number in domains_with.items() if number), default=None)
    if fewest is not None:
        assert (pages_left(level, fewest) > 0) is (remaining > 0)


class Web:
    """Domains whose pages link to further pages of their own, crawled at different speeds."""

    def __init__(self, demands: list[int], links: list[int], total: int, chance: random.Random) -> None:
        self.demands = demands
        self.links = links
        self.total = total
        self.chance = chance
        self.known = [1] * len(demands)
        self.leased = [0] * len(demands)
        self.in_flight = [0] * len(demands)

    def has_work(self, domain: int) -> bool:
        return self.known[domain] > self.leased[domain] or self.in_flight[domain] > 0

    def level(self) -> int:
        pages = Counter(self.leased[domain] for domain in range(len(self.demands)) if self.has_work(domain))
        return fair_level(pages, self.total - sum(self.leased))

    def crawl(self) -> list[int]:
        """Lease and report in any order until nothing can be leased and nothing is in flight."""
        speeds = [self.chance.choice((1, 1, 5, 50)) for _ in self.demands]
        while True:
            level = self.level()
            may = [
                domain
                for domain in range(len(self.demands))
                if self.known[domain] > self.leased[domain] and pages_left(level, self.leased[domain])
            ]
            flying = [domain for domain, number in enumerate(self.in_flight) if number]
            if may and (not flying or self.chance.random() < 0.6):
                (domain,) = self.chance.choices(may, [speeds[each] for each in may])
                self.leased[domain] += 1
                self.in_flight[domain] += 1
                assert sum(self.leased) <= self.total
            elif flying:
                domain = self.chance.choice(flying)
                self.in_flight[domain] -= 1
                self.known[domain] = min(self.known[domain] + self.links[domain], self.demands[domain])
            else:
                return self.leased


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5)), min_size=1, max_size=20),
    st.integers(1, 200),
    st.randoms(use_true_random=False),
)
def test_shares_are_max_min_fair_whatever_the_order(
    sites: list[tuple[int, int]], total: int, chance: random.Random
) -> None:
    demands, links = [size for size, _ in sites], [number for _, number in sites]
    shares = Web(demands, links, total, chance).crawl()
    assert sum(shares) == min(total, sum(demands)), "nothing is left over that somebody could have used"
    most = max(shares)
    for share, demand in zip(shares, demands, strict=True):
        assert share >= min(demand, most - 1), "who got less had no more to give"


def test_with_fifty_seeds_and_a_hundred_pages_every_domain_gets_two() -> None:
    shares = Web([10_000] * 50, [20] * 50, 100, random.Random(1)).crawl()
    assert shares == [2] * 50


def test_what_small_domains_leave_goes_to_the_large_ones() -> None:
    shares = Web([1, 2, 3, 100, 100], [5] * 5, 46, random.Random(2)).crawl()
    assert shares == [1, 2, 3, 20, 20]


def test_the_level_only_rises_while_no_domain_is_added() -> None:
    web = Web([7, 3, 30, 12], [2] * 4, 40, random.Random(3))
    levels = []
    work_out = web.level

    def noted() -> int:
        levels.append(work_out())
        return levels[-1]

    web.level = noted  # type: ignore[method-assign]
    web.crawl()
    spending = levels[: levels.index(0)] if 0 in levels else levels
    assert all(one <= other for one, other in pairwise(spending))
