"""Discovery: how soon a URL that was just found should be fetched.

A priority lies in 0..1000, higher first, and orders the tasks of one queue. It is a sum of what is known:

| what                                 | points                                                        |
|--------------------------------------|---------------------------------------------------------------|
| a seed                               | 1000 for rank 1, falling by the logarithm to 900; 950 unranked |
| a redirect's target                  | 750, since something asked for it                             |
| an entry of a sitemap                | 450 to 750 by its own priority, 600 where it has none         |
| an entry of a feed                   | 640                                                           |
| a link                               | 500 to 700 by its kind, see `LinkKind`                        |
| what changed lately                  | up to 40 more, halved after 30 days                           |
| the rank of the seed it came from    | up to 50 more                                                 |
| its region of the page               | 20 more in the main text, up to 60 less in a footer           |
| its place among the page's links     | up to 60 less                                                 |
| depth                                | up to 400 less; most of it in the first steps                 |

More depth, a later place, a worse rank or an older change never raise a priority.
"""

from enum import StrEnum
from math import log10
from typing import Final

from outrider.model.task import DiscoveryType

TOP_PRIORITY: Final = 1000


class LinkKind(StrEnum):
    """What a link of a page is for."""

    ANCHOR = "anchor"
    AREA = "area"
    NEXT = "next"
    CANONICAL = "canonical"
    ALTERNATE = "alternate"
    FEED = "feed"
    FRAME = "frame"
    REFRESH = "refresh"


class Region(StrEnum):
    """The part of a page that a link stands in, as far as its markup says."""

    BODY = "body"
    """Anywhere that says nothing of itself."""
    MAIN = "main"
    NAVIGATION = "navigation"
    ASIDE = "aside"
    FOOTER = "footer"


_UNRANKED_SEED = 950
_LOWEST_SEED = 900
_WORST_RANK = 10_000_000
_BASE = {
    DiscoveryType.REDIRECT: 750,
    DiscoveryType.ROBOTS: TOP_PRIORITY,
    DiscoveryType.FEED: 640,
    DiscoveryType.LINK: 600,
    DiscoveryType.REFRESH: 600,
    DiscoveryType.IMPORT: 600,
}
_LINK = {
    LinkKind.REFRESH: 700,
    LinkKind.CANONICAL: 690,
    LinkKind.NEXT: 650,
    LinkKind.FEED: 620,
    LinkKind.ANCHOR: 600,
    LinkKind.AREA: 580,
    LinkKind.ALTERNATE: 540,
    LinkKind.FRAME: 500,
}
_REGION = {
    Region.MAIN: 20,
    Region.BODY: 0,
    Region.NAVIGATION: -10,
    Region.ASIDE: -30,
    Region.FOOTER: -60,
}
_SITEMAP_LOWEST, _SITEMAP_SPAN, _SITEMAP_DEFAULT = 450, 300, 0.5
_FRESH = 40
_FRESH_HALVES_AFTER_MS = 30 * 24 * 3_600_000
_RANK = 50
_PLACE, _PLACE_HALF = 60, 40
_DEPTH, _DEPTH_HALF = 400, 4


def _rising_to(most: int, half: int, steps: int) -> tuple[int, ...]:
    """Tabulate a cost that rises to `most` and has half of it after `half` steps."""
    return tuple(most * step // (step + half) for step in range(steps))


# Tables, since this runs for every link found: 1 µs.
_DEPTH_COST = _rising_to(_DEPTH, _DEPTH_HALF, 1_000)
_PLACE_COST = _rising_to(_PLACE, _PLACE_HALF, 1_000)


def priority_of(
    discovery_type: DiscoveryType,
    *,
    depth: int = 0,
    link: LinkKind | None = None,
    region: Region = Region.BODY,
    place: int = 0,
    rank: int | None = None,
    sitemap_priority: float | None = None,
    changed_ago_ms: int | None = None,
) -> int:
    """Give the priority of a discovery; what does not apply to its type is left out.

    `rank` is that of the seed from which the discovery descends, 1 being the best.

    >>> priority_of(DiscoveryType.SEED, rank=1), priority_of(DiscoveryType.LINK, depth=1, link=LinkKind.ANCHOR)
    (1000, 520)
    """
    if discovery_type is DiscoveryType.SEED:
        return _UNRANKED_SEED if rank is None else _by_rank(rank, _LOWEST_SEED, TOP_PRIORITY)
    if link is not None:
        points = _LINK[link] + _REGION[region] - _cost(_PLACE_COST, place)
    elif discovery_type is DiscoveryType.SITEMAP:
        share = _SITEMAP_DEFAULT if sitemap_priority is None else min(max(sitemap_priority, 0.0), 1.0)
        points = _SITEMAP_LOWEST + int(_SITEMAP_SPAN * share)
    else:
        points = _BASE[discovery_type]
    if changed_ago_ms is not None:
        points += _FRESH * _FRESH_HALVES_AFTER_MS // (_FRESH_HALVES_AFTER_MS + max(changed_ago_ms, 0))
    if rank is not None:
        points += _by_rank(rank, 0, _RANK)
    points -= _cost(_DEPTH_COST, depth)
    return min(max(points, 0), TOP_PRIORITY)


def _by_rank(rank: int, lowest: int, highest: int) -> int:
    """Scale a rank by its logarithm, so that the step from 1 to 10 weighs as much as that from 1,000 to 10,000."""
    share = 1 - log10(min(max(rank, 1), _WORST_RANK)) / log10(_WORST_RANK)
    return lowest + int((highest - lowest) * share)


def _cost(table: tuple[int, ...], step: int) -> int:
    return table[min(max(step, 0), len(table) - 1)]
