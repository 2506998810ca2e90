"""Outlinks as a crawl finds them: batches of link texts, some of them messy, many of them known.

Of the 50 links on a page, 35 lead to its own site and 15 to others. Sites are popular by a power law,
and about a third of all links lead to where some link led before.
"""

import bisect
import random
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

OWN_LINKS = 35
OTHER_LINKS = 15
KNOWN_SHARE = 1 / 3
SKEW = 0.8
"""The exponent of the power law: site number n is n ** SKEW times less popular than the first."""

_WORDS = (
    "about", "archive", "article", "blog", "catalog", "docs", "events", "forum", "gallery", "guide", "help",
    "history", "journal", "library", "market", "media", "news", "notes", "photos", "press", "products", "recipes",
    "research", "reviews", "science", "shop", "sports", "stories", "support", "travel", "video", "wiki",
)  # fmt: skip


class Outlink(NamedTuple):
    """A link as it stands on a page."""

    text: str
    new: bool
    """No link before it led there."""


class Outlinks:
    """An endless page stream over a fixed number of sites; the same seed gives the same stream."""

    def __init__(self, sites: int, *, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._popularity = list(accumulate((site + 1) ** -SKEW for site in range(sites)))
        self._pages = [0] * sites
        self._unseen = sites - 1

    def batches(self, size: int) -> Iterator[list[Outlink]]:
        """Yield batches of exactly `size` links, page after page."""
        batch: list[Outlink] = []
        while True:
            own = self._popular_site()
            for number in range(OWN_LINKS + OTHER_LINKS):
                site = own if number < OWN_LINKS else self._other_site(number)
                batch.append(self._link_to(site))
                if len(batch) == size:
                    yield batch
                    batch = []

    def _popular_site(self) -> int:
        return bisect.bisect(self._popularity, self._random.random() * self._popularity[-1])

    def _other_site(self, number: int) -> int:
        """Lead to some popular site, and now and then to one that nobody led to before."""
        if number % 6 == 0 and self._unseen >= 0:
            site = self._unseen
            self._unseen -= 1
            if self._pages[site] == 0:
                return site
        return self._popular_site()

    def _link_to(self, site: int) -> Outlink:
        pages = self._pages[site]
        new = pages == 0 or self._random.random() >= KNOWN_SHARE
        page = pages if new else self._random.randrange(pages)
        if new:
            self._pages[site] += 1
        return Outlink(self._text(site, page), new)

    def _text(self, site: int, page: int) -> str:
        """Write the address of a page, one time in eight in a way that needs normalising."""
        mix = (site * 2654435761 + page * 40503) & 0xFFFFFFFF
        section, slug = _WORDS[mix & 31], _WORDS[mix >> 5 & 31]
        host = f"www.site-{site}.example" if site % 3 == 0 else f"{_WORDS[site % 32]}.site-{site}.example"
        path = f"/{section}/{mix >> 10 & 0xFFF}/{slug}-{page}"
        if page % 10 == 0:
            path += f"?id={page}&view=full"
        spelling = self._random.randrange(40)
        if spelling == 0:
            return f"https://{host.upper()}{path}"
        if spelling == 1:
            return f"https://{host}:443{path}"
        if spelling == 2:
            return f"https://{host}/x/..{path}"
        if spelling <= 4:
            return f"https://{host}{path}#section-{page % 7}"
        return f"https://{host}{path}"
