"""URLs that calls of this process are adding at the same moment.

Two transactions that insert the same URL wait for each other in the server, the later one to the end of the earlier.
Links found at the same time overlap much, so that two callers came to take turns. Here the later call leaves out what
the earlier one is about to store, and waits for that one's answer after its own transaction.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from outrider.policy.admission import Candidate

Committed = asyncio.Future[bool]


class Claim(NamedTuple):
    """What a call has to add, and what it need not."""

    mine: list[Candidate]
    others: list[tuple[Candidate, Committed]]
    """What another call is adding. Where that one fails, it is left to do."""


class UnderWay:
    """Who adds which URL."""

    def __init__(self) -> None:
        self._adding: defaultdict[int, dict[tuple[str, str], Committed]] = defaultdict(dict)

    @contextmanager
    def claim(self, crawl_id: int, candidates: Sequence[Candidate]) -> Iterator[Claim]:
        """Claim what nobody is adding, until the block ends: committed, unless it raises."""
        ending: Committed = asyncio.get_running_loop().create_future()
        adding = self._adding[crawl_id]
        claim = Claim([], [])
        for candidate in candidates:
            holder = adding.setdefault((candidate[0], candidate[3]), ending)
            if holder is ending:
                claim.mine.append(candidate)
            else:
                claim.others.append((candidate, holder))
        committed = False
        try:
            yield claim
            committed = True
        finally:
            for candidate in claim.mine:
                adding.pop((candidate[0], candidate[3]), None)
            ending.set_result(committed)
