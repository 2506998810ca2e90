"""How a crawl is going: what one process has seen, for displays and summaries."""

from collections import Counter, deque
from enum import StrEnum
from typing import Final

import msgspec

from outrider.model.task import Counts


class CrawlEnding(StrEnum):
    """Why an execution of a crawl stopped."""

    DRAINED = "drained"
    """Nothing is left to do."""
    LIMIT = "limit"
    """A limit on pages was reached and something is left over."""
    WAITING = "waiting"
    """What is left cannot be fetched soon: sites that block, back off or fail."""
    STOPPED = "stopped"
    """The user stopped it."""
    PAUSED = "paused"
    CANCELLED = "cancelled"
    NOTHING_FETCHED = "nothing_fetched"
    """It is finished, and not one page could be fetched."""


ROBOTS_UNREACHABLE: Final = "robots.txt unreachable"
"""How the trouble of a domain begins whose robots.txt cannot be fetched."""


class DomainTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """A domain that cannot be fetched from now."""

    domain: str
    reason: str
    """For people: `429, asked for 30 s`, `blocked by an operator`, `connection refused`."""
    until: int | None
    """Milliseconds since 1970; None where that is not known."""
    waiting: int
    """How many of its tasks wait."""


class SlowDomain(msgspec.Struct, frozen=True, kw_only=True):
    """A domain and how long its answers take."""

    domain: str
    average_ms: int
    fetches: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl at one moment: counts are of the whole crawl, the rest of this process."""

    crawl: str
    elapsed_s: float
    counts: Counts
    """Pages of the crawl by state, exact at a moment within the last second or so."""
    completed_before: int
    """Pages that were completed when this process began."""
    in_flight: int
    fetched: int
    """Answers that this process has received, of any kind."""
    pages_per_s: float
    """Over the last ten seconds."""
    bytes_received: int
    failures: dict[str, int]
    """By kind: `dns`, `timeout`, `http 404` …"""
    skipped: dict[str, int]
    """Links not followed, by reason: out of scope, a trap, nofollow …"""
    slowest: list[SlowDomain]
    troubles: list[DomainTrouble]
    next_ready_in_s: float | None = None
    """Where nothing is in flight: how long until something may be."""
    max_pages: int | None = None
    """The crawl's limit, for an estimate of the end."""


RATE_WINDOW_S = 10.0
MOST_DOMAINS = 10_000


class Progress:
    """Counts what one process does. Memory is bounded: rare domains are forgotten first."""

    def __init__(self) -> None:
        self.fetched = 0
        self.bytes_received = 0
        self.failures: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self._moments: deque[tuple[float, int]] = deque()
        self._times: dict[str, tuple[int, int]] = {}

    def page_fetched(self, domain: str, elapsed_ms: int, body_bytes: int, now: float) -> None:
        """Count an answer."""
        self.fetched += 1
        self.bytes_received += body_bytes
        if not self._moments or now - self._moments[-1][0] >= 0.1:
            self._moments.append((now, self.fetched))
            while now - self._moments[0][0] > RATE_WINDOW_S:
                self._moments.popleft()
        fetches, total = self._times.pop(domain, (0, 0))
        if len(self._times) >= MOST_DOMAINS:
            del self._times[next(iter(self._times))]
        self._times[domain] = (fetches + 1, total + elapsed_ms)

    def rate(self, now: float) -> float:
        """Tell the answers per second of the last seconds."""
        while self._moments and now - self._moments[0][0] > RATE_WINDOW_S:
            self._moments.popleft()
        if not self._moments:
            return 0.0
        began, number = self._moments[0]
        return (self.fetched - number) / max(now - began, 0.1)

    def slowest(self, most: int = 5) -> list[SlowDomain]:
        """Tell which domains take longest to answer."""
        ordered = sorted(self._times.items(), key=lambda item: item[1][1] / item[1][0], reverse=True)
        return [
            SlowDomain(domain=domain, average_ms=round(total / fetches), fetches=fetches)
            for domain, (fetches, total) in ordered[:most]
        ]
