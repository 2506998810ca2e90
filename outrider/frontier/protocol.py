"""What a worker may ask of a frontier, wherever the frontier is."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from outrider.model.lease import LeaseGrant, LeaseRequest, Renewal, Report, ReportAnswer, Token
from outrider.model.task import AddResult, Crawl, Discovered, Outlook


class Work(NamedTuple):
    """What was leased, and since when the worker's clock for it runs."""

    grant: LeaseGrant
    asked_at: float
    """`time.monotonic()` of just before the grant: no lease of it began earlier."""


class Frontier(Protocol):
    """The brain: hands out work and takes reports. A worker cannot tell a local one from a remote one."""

    async def add(self, crawl: str, items: Sequence[Discovered]) -> list[AddResult]:
        """Store what is new; one answer for each item, in order."""
        ...

    async def lease(self, request: LeaseRequest, *, wait_s: float = 0.0) -> Work:
        """Hand out ready tasks; where none is ready, wait for one, at most for so long."""
        ...

    async def renew(self, tokens: Sequence[Token]) -> list[Renewal]:
        """Prolong leases that are live; one answer for each token, in order."""
        ...

    async def report(self, reports: Sequence[Report]) -> list[ReportAnswer]:
        """End leases with what was found; one answer for each report, in order."""
        ...

    async def release(self, tokens: Sequence[Token]) -> list[Token]:
        """Give leases back uncharged; tell which were live."""
        ...

    async def show_crawl(self, name: str) -> Crawl:
        """Show a crawl with its rules, limits and conduct; raises `UnknownCrawl`."""
        ...

    async def outlook(self, crawl: str) -> Outlook:
        """Tell what a crawl has before it, all of one moment."""
        ...

    async def robots_text(self, domain: str) -> tuple[str, str] | None:
        """Read the version and text of a domain's robots.txt."""
        ...

    async def widen_scope(self, crawl: str, roots: Sequence[str]) -> None:
        """Remember addresses that widen a crawl's scope."""
        ...

    async def scope_roots(self, crawl: str) -> list[str]:
        """List the addresses that widen a crawl's scope."""
        ...
