"""What adaptive intervals are worth: the same number of fetches spent by `policy/recrawl.py` and at a fixed interval.

    python benchmarks/refresh.py [--pages 2000] [--days 30] [--seed 1] [--json]

Pages have change intervals that are log-uniform from 1 hour to 60 days. In the first world each changes by the clock,
every gap within a tenth of its interval. In the second changes come by chance (Poisson), where nothing can be foreseen
but how often: there nobody can reach twice the share of a fixed interval, however long that is. All pages are fetched
at the start; time is simulated.

- share: fetches that found a change, of all fetches
- bound: the highest share that anybody could reach with so many fetches who knew every page's interval from the start
  (and, in the first world, the moment of every change)
- staleness: time since the oldest change not yet seen, averaged over pages and time
"""

import argparse
import heapq
import json
import math
import random
import time
from collections.abc import Callable

from outrider.policy import recrawl
from outrider.policy.recrawl import History, RefreshSettings

HOUR = 3_600_000
DAY = 24 * HOUR
SHORTEST, LONGEST = HOUR, 60 * DAY
SETTINGS = RefreshSettings(
    balance_ms=6 * HOUR, first_ms=6 * HOUR, shortest_ms=HOUR // 2, longest_ms=14 * DAY, jitter=0.02
)

Changes = list[int]
Gap = Callable[[random.Random, float], float]


def by_the_clock(chance: random.Random, interval: float) -> float:
    return interval * chance.uniform(0.9, 1.1)


def by_chance(chance: random.Random, interval: float) -> float:
    return chance.expovariate(1 / interval)


def make_pages(number: int, until: int, gap: Gap, chance: random.Random) -> tuple[list[Changes], float]:
    """Give the moments of change of each page, and how many changes a page has in a millisecond on average."""
    pages, rate = [], 0.0
    for _ in range(number):
        interval = math.exp(chance.uniform(math.log(SHORTEST), math.log(LONGEST)))
        rate += 1 / interval
        moment = interval * chance.random() if gap is by_the_clock else gap(chance, interval)
        changes = []
        while moment < until:
            changes.append(int(moment))
            moment += gap(chance, interval)
        pages.append(changes)
    return pages, rate / number


class Crawl:
    """Visits pages in the order in which they are due, and keeps count."""

    def __init__(self, pages: list[Changes], until: int) -> None:
        self.pages = pages
        self.until = until
        self.seen = [0] * len(pages)
        """How many changes of each page were seen, or skipped."""
        self.fetches = self.hits = 0
        self.stale = 0.0

    def run(self, due: list[int], after: Callable[[int, int, bool], int]) -> None:
        """Visit until the end; `after` tells when a page that was just visited is due again."""
        queue = [(moment, page) for page, moment in enumerate(due)]
        heapq.heapify(queue)
        while queue[0][0] < self.until:
            now, page = queue[0]
            changed = self._look(page, now)
            self.fetches += 1
            self.hits += changed
            heapq.heapreplace(queue, (max(after(page, now, changed), now + 1), page))
        for page in range(len(self.pages)):
            self._look(page, self.until)

    def _look(self, page: int, now: int) -> bool:
        changes, seen = self.pages[page], self.seen[page]
        if seen == len(changes) or changes[seen] > now:
            return False
        self.stale += (now - changes[seen]) ** 2 / 2
        while seen < len(changes) and changes[seen] <= now:
            seen += 1
        self.seen[page] = seen
        return True

    def figures(self) -> dict[str, float]:
        return {
            "fetches": self.fetches,
            "share": round(self.hits / self.fetches, 4),
            "staleness_hours": round(self.stale / self.until / len(self.pages) / HOUR, 3),
        }


def adaptive(pages: list[Changes], until: int, chance: random.Random) -> Crawl:
    histories: list[History] = [recrawl.first_visit(0, SETTINGS) for _ in pages]

    def after(page: int, now: int, changed: bool) -> int:
        histories[page] = recrawl.after_visit(histories[page], now, changed=changed)
        return recrawl.next_due(histories[page], SETTINGS, chance.random())

    crawl = Crawl(pages, until)
    crawl.run([recrawl.next_due(history, SETTINGS, chance.random()) for history in histories], after)
    return crawl


def fixed(pages: list[Changes], until: int, fetches: int, chance: random.Random) -> Crawl:
    interval = until * len(pages) / fetches
    crawl = Crawl(pages, until)
    crawl.run([int(interval * chance.random()) for _ in pages], lambda page, now, changed: round(now + interval))
    return crawl


def compare(number: int, days: int, seed: int, gap: Gap) -> dict[str, object]:
    chance = random.Random(seed)
    until = days * DAY
    pages, rate = make_pages(number, until, gap, chance)
    started = time.perf_counter()
    ours = adaptive(pages, until, chance)
    seconds = time.perf_counter() - started
    theirs = fixed(pages, until, ours.fetches, chance)
    changes_per_fetch = rate * until * number / ours.fetches
    bound = min(changes_per_fetch, 1.0) if gap is by_the_clock else 1 - math.exp(-changes_per_fetch)
    one, other = ours.figures(), theirs.figures()
    return {
        "adaptive": one,
        "fixed": other | {"interval_hours": round(days * 24 * number / ours.fetches, 2)},
        "share_ratio": round(one["share"] / other["share"], 3),
        "staleness_ratio": round(one["staleness_hours"] / other["staleness_hours"], 3),
        "share_bound": round(bound, 4),
        "bound_ratio": round(bound / other["share"], 3),
        "microseconds_per_visit": round(seconds / ours.fetches * 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare adaptive intervals with a fixed one on a simulated clock.")
    parser.add_argument("--pages", type=int, default=2_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print nothing but the JSON line")
    options = parser.parse_args()
    worlds: dict[str, Gap] = {"by the clock": by_the_clock, "by chance": by_chance}
    figures = {name: compare(options.pages, options.days, options.seed, gap) for name, gap in worlds.items()}
    if not options.json:
        print(f"{'changes':<13} {'policy':<9} {'fetches':>8} {'share':>7} {'bound':>7} {'staleness':>10}")
        for name, world in figures.items():
            for policy in ("fixed", "adaptive"):
                row = world[policy]
                assert isinstance(row, dict)
                print(
                    f"{name:<13} {policy:<9} {row['fetches']:>8,} {row['share']:>7.3f} {world['share_bound']:>7.3f}"
                    f" {row['staleness_hours']:>8.3f} h"
                )
            share, bound, staleness = world["share_ratio"], world["bound_ratio"], world["staleness_ratio"]
            print(f"{'':<13} {'ratio':<9} {'':>8} {share:>7.3f} {bound:>7.3f} {staleness:>8.3f}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
