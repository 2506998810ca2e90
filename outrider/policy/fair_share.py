"""Fair share: how many pages of a run each domain may have while a total for all of them lasts.

Shares are max-min fair: a domain gets less than another only if it has no more to give. How much each has to give is
not known and grows with every page, so the shares cannot be dealt out beforehand. What can be told at any time is the
**level**: the highest number of pages that every domain with work left could still be brought to.

    pages
      |        #                     a domain may have another page while it is below the level;
      |........#...........  level   what is missing below the level is reserved, so that a fast
      |   #    #         #           domain may run ahead of slow ones, but never on their account
      |   #    #    #    #
      +------------------------ domains with work

Evaluating it is cheap. A lease within the level takes as much from the rest as from what is missing, so it leaves the
level where it is; only a domain that runs dry raises it, and only a new one lowers it. A store can keep the level with
the run, compare it with a domain's pages as it does with any budget, and work it out again, from one grouped count,
when a lease finds nothing below it or when domains came or went.
"""

from collections.abc import Mapping


def fair_level(domains_with: Mapping[int, int], remaining: int) -> int:
    """Work out to how many pages of the run, done or in flight, each domain may come.

    `domains_with` tells for each number of pages how many domains have just so many, counting only domains that
    still have work: something pending that may become ready, or in flight, since that may bring more. `remaining` is
    the total for all domains less what is done or in flight. The last pages, too few for all, go to whoever of those
    with the fewest comes first.

    >>> fair_level({0: 50}, 100), fair_level({0: 49, 30: 1}, 70), fair_level({2: 3}, 1), fair_level({2: 3}, 0)
    (2, 1, 3, 0)
    """
    steps = sorted(pages for pages, number in domains_with.items() if number > 0)
    if remaining <= 0 or not steps:
        return 0
    level, below = steps[0], 0
    for pages in steps:
        missing = (pages - level) * below
        if missing > remaining:
            break
        remaining -= missing
        level, below = pages, below + domains_with[pages]
    level += remaining // below
    return max(level, steps[0] + 1)


def pages_left(level: int, pages: int) -> int:
    """Tell how many more pages a domain with so many may have now."""
    return max(level - pages, 0)
