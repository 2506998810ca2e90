"""What a control plane must be able to do for those who look after domains."""

from typing import Protocol

from outrider.model.domain import Domain
from outrider.model.domain_view import DomainAudit, DomainCensus, DomainPage, DomainSort, LoggedPages, StepsTaken
from outrider.model.machines import DomainStatus


class DomainCare(Protocol):
    """Domains as an operator sees and changes them."""

    async def sorted_domains(
        self,
        status: DomainStatus | None = None,
        *,
        sort: DomainSort = ...,
        cursor: str | None = None,
        limit: int = ...,
    ) -> DomainPage:
        """List domains page by page; a cursor is good for the order that it came from."""
        ...

    async def top_domains(self, limit: int = ...) -> list[Domain]:
        """List the domains with the most images per page: stored first, and among equals found."""
        ...

    async def reset_domain(
        self, domain: str, *, reason: str | None = None, actor: str = ..., now: int | None = None
    ) -> Domain:
        """Make a domain pending with a clean slate and open its gate.

        Raises `UnknownDomain`, and `InvalidTransition` for one that is active. Whoever holds a claim on it loses it,
        as with the next two.
        """
        ...

    async def block_domain(
        self, domain: str, *, until: int | None = None, reason: str | None = None, now: int | None = None
    ) -> Domain:
        """Close a domain's gate to every crawl until a moment or for good, also before its first URL."""
        ...

    async def unblock_domain(
        self, domain: str, *, reason: str | None = None, actor: str = ..., now: int | None = None
    ) -> Domain:
        """Open a domain's gate; a blocked one is active again, an unreachable one pending. Raises `UnknownDomain`."""
        ...

    async def merge_domain(self, name: str, into: str) -> Domain:
        """Merge a domain, named exactly as it is stored, into another: the row that is older is kept.

        Counters are added up, artifacts and history moved. Broken off, it is simply asked again. Raises
        `UnknownDomain`, and `DomainInUse` where the frontier has URLs of the first.
        """
        ...

    async def domain_census(self, *, now: int | None = None) -> DomainCensus:
        """Count domains by status and reason, and claims."""
        ...

    async def domain_steps_since(self, after: int | None, *, now: int | None = None) -> StepsTaken:
        """Count the steps of all domains' lives since another such look, a few seconds late; None begins now."""
        ...

    async def audit_domains(self, *, now: int | None = None) -> DomainAudit:
        """Count what does not fit together."""
        ...

    async def logged_pages(self, *, after: int, until: int) -> list[LoggedPages]:
        """Count pages by domain in a range of the log, the first number excluded."""
        ...
