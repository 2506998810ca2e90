"""Discovery: important pages come first."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.model.task import DiscoveryType
from outrider.policy.discovery import TOP_PRIORITY, LinkKind, Region, priority_of

DAY_MS = 24 * 3_600_000
LINK = DiscoveryType.LINK

anything = st.fixed_dictionaries(
    {
        "depth": st.integers(0, 5_000),
        "link": st.none() | st.sampled_from(LinkKind),
        "region": st.sampled_from(Region),
        "place": st.integers(0, 20_000),
        "rank": st.none() | st.integers(1, 20_000_000),
        "sitemap_priority": st.none() | st.floats(0, 1),
        "changed_ago_ms": st.none() | st.integers(0, 10_000 * DAY_MS),
    }
)


def link(kind: LinkKind = LinkKind.ANCHOR, **what: Any) -> int:
    return priority_of(LINK, link=kind, **{"depth": 1, **what})


def falls(priorities: list[int]) -> bool:
    return all(first > second for first, second in pairwise(priorities))


def test_important_pages_come_first() -> None:
    """What is found when a crawl of two ranked sites has begun, in the order in which it is wanted."""
    assert falls(
        [
            priority_of(DiscoveryType.SEED, rank=1),
            priority_of(DiscoveryType.SEED, rank=1_000),
            priority_of(DiscoveryType.REDIRECT),
            priority_of(DiscoveryType.SITEMAP, depth=1, sitemap_priority=1.0, changed_ago_ms=DAY_MS),
            link(LinkKind.CANONICAL),
            link(LinkKind.NEXT),
            link(region=Region.MAIN),
            link(region=Region.NAVIGATION),
            link(region=Region.MAIN, place=60),
            link(region=Region.MAIN, depth=3),
            link(region=Region.FOOTER, place=60),
            priority_of(DiscoveryType.SITEMAP, depth=1, sitemap_priority=0.0, changed_ago_ms=3_000 * DAY_MS),
            link(region=Region.FOOTER, place=60, depth=4),
        ]
    )


def test_seeds_come_in_the_order_of_their_ranks() -> None:
    assert falls([priority_of(DiscoveryType.SEED, rank=10**power) for power in range(8)])


def test_shallow_links_come_before_deep_ones() -> None:
    assert falls([link(depth=depth) for depth in range(20)])


def test_pages_of_a_listing_come_in_their_order() -> None:
    assert falls([link(LinkKind.NEXT, depth=depth) for depth in range(20)])


def test_links_come_in_the_order_of_their_regions_and_places() -> None:
    assert falls([link(region=region) for region in Region if region is not Region.BODY])
    assert falls([link(place=place) for place in (0, 10, 30, 100, 1_000)])


def test_a_sitemap_says_what_matters_to_its_site() -> None:
    assert falls([priority_of(DiscoveryType.SITEMAP, sitemap_priority=share / 10) for share in range(10, -1, -1)])
    assert falls([priority_of(DiscoveryType.SITEMAP, changed_ago_ms=days * DAY_MS) for days in (0, 7, 30, 365)])


@given(st.sampled_from(DiscoveryType), anything)
def test_a_priority_lies_within_its_bounds(kind: DiscoveryType, what: dict[str, Any]) -> None:
    assert 0 <= priority_of(kind, **what) <= TOP_PRIORITY


@pytest.mark.parametrize("field", ["depth", "place", "rank", "changed_ago_ms"])
@given(kind=st.sampled_from(DiscoveryType), what=anything, first=st.integers(1, 10**7), second=st.integers(1, 10**7))
def test_more_depth_place_rank_or_age_never_raises_a_priority(
    field: str, kind: DiscoveryType, what: dict[str, Any], first: int, second: int
) -> None:
    near, far = sorted((first, second))
    assert priority_of(kind, **{**what, field: near}) >= priority_of(kind, **{**what, field: far})
