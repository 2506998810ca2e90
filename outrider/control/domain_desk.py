"""The desk for domains: where people look at them, and say what is to become of them.

`DomainDesk` is what a command line needs, whether the store is here (`LocalDomainDesk`) or behind a service
(`outrider.service.domain_client.RemoteDomainDesk`).
"""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from outrider.control.domain_verify import Verification, verify
from outrider.model.domain import ClaimOverview, Domain, DomainStep, PriorityBatch, UnknownDomain
from outrider.model.domain_view import DomainPage, DomainSort
from outrider.model.gate import Gate
from outrider.model.machines import DomainStatus
from outrider.model.url import canonical_domain
from outrider.store.opening import Stores

OPERATOR: Final = "operator"
"""Who is named in a domain's history for what is done with the store itself."""
LATEST_STEPS: Final = 10
"""How many steps are shown with a domain."""
MOST_STEPS: Final = 1_000
RECALCULATED_AT_ONCE: Final = 5_000


class DomainView(msgspec.Struct, frozen=True, kw_only=True):
    """A domain, its politeness, and the last steps of its life."""

    domain: Domain
    gate: Gate | None
    history: list[DomainStep]


class DomainDesk(Protocol):
    """Where domains are looked after. Every method on one domain raises `UnknownDomain` where there is none."""

    async def page(
        self,
        status: DomainStatus | None = None,
        *,
        sort: DomainSort = DomainSort.CRAWLED,
        cursor: str | None = None,
        limit: int = 50,
    ) -> DomainPage:
        """List domains page by page."""
        ...

    async def top(self, limit: int = 20) -> list[Domain]:
        """List the domains with the most images per page."""
        ...

    async def show(self, domain: str) -> DomainView:
        """Show a domain, its politeness, and the last steps of its life."""
        ...

    async def history(self, domain: str, *, after: int = 0, limit: int = MOST_STEPS) -> list[DomainStep]:
        """List the steps of a domain's life after one of them, the oldest first."""
        ...

    async def reset(self, domain: str, reason: str | None = None) -> Domain:
        """Make a domain pending with a clean slate; raises `InvalidTransition` for one that is active."""
        ...

    async def block(self, domain: str, *, until: int | None = None, reason: str | None = None) -> Domain:
        """Close a domain to every crawl until a moment, in milliseconds, or for good; also one that is not known."""
        ...

    async def unblock(self, domain: str, reason: str | None = None) -> Domain:
        """Open a domain again."""
        ...

    async def merge(self, name: str, into: str) -> Domain:
        """Merge a domain, named exactly as it is stored, into another."""
        ...

    def recalculate(self) -> AsyncIterator[PriorityBatch]:
        """Work out rates, priorities and bands of all domains, batch by batch."""
        ...

    async def claims(self) -> ClaimOverview:
        """Tell who holds what, what is stuck, and what is free."""
        ...

    async def release_claims(self, worker: str | None = None) -> int:
        """End all claims, or all of one worker; tell how many."""
        ...

    async def verify(self) -> Verification:
        """Check that what is known of the domains is sound."""
        ...

    async def close(self) -> None:
        """Let go of what is open."""
        ...


class LocalDomainDesk:
    """A `DomainDesk` over a store that is open; it belongs to whoever opened it."""

    def __init__(self, stores: Stores, actor: str = OPERATOR) -> None:
        self._stores = stores
        self._control = stores.control
        self._actor = actor

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Do nothing: the store is not the desk's."""

    async def page(
        self,
        status: DomainStatus | None = None,
        *,
        sort: DomainSort = DomainSort.CRAWLED,
        cursor: str | None = None,
        limit: int = 50,
    ) -> DomainPage:
        """List domains page by page."""
        return await self._control.sorted_domains(status, sort=sort, cursor=cursor, limit=limit)

    async def top(self, limit: int = 20) -> list[Domain]:
        """List the domains with the most images per page."""
        return await self._control.top_domains(limit)

    async def show(self, domain: str) -> DomainView:
        """Show a domain, its politeness, and the last steps of its life."""
        found = await self._control.get_domain(domain)
        if found is None:
            raise UnknownDomain(canonical_domain(domain))
        gate = await self._stores.urls.get_gate(found.domain)
        return DomainView(domain=found, gate=gate, history=await self._latest(found.domain))

    async def _latest(self, domain: str) -> list[DomainStep]:
        """Read the last steps of a life, however long it is."""
        latest: list[DomainStep] = []
        while True:
            after = latest[-1].history_id if latest else 0
            steps = await self._control.domain_history(domain, after=after, limit=MOST_STEPS)
            latest = [*latest, *steps][-LATEST_STEPS:]
            if len(steps) < MOST_STEPS:
                return latest

    async def history(self, domain: str, *, after: int = 0, limit: int = MOST_STEPS) -> list[DomainStep]:
        """List the steps of a domain's life after one of them, the oldest first."""
        return await self._control.domain_history(domain, after=after, limit=limit)

    async def reset(self, domain: str, reason: str | None = None) -> Domain:
        """Make a domain pending with a clean slate; raises `InvalidTransition` for one that is active."""
        return await self._control.reset_domain(domain, reason=reason, actor=self._actor)

    async def block(self, domain: str, *, until: int | None = None, reason: str | None = None) -> Domain:
        """Close a domain to every crawl until a moment, in milliseconds, or for good; also one that is not known."""
        return await self._control.block_domain(domain, until=until, reason=reason)

    async def unblock(self, domain: str, reason: str | None = None) -> Domain:
        """Open a domain again."""
        return await self._control.unblock_domain(domain, reason=reason, actor=self._actor)

    async def merge(self, name: str, into: str) -> Domain:
        """Merge a domain, named exactly as it is stored, into another."""
        return await self._control.merge_domain(name, into)

    async def recalculate(self) -> AsyncIterator[PriorityBatch]:
        """Work out rates, priorities and bands of all domains, batch by batch."""
        after: str | None = ""
        while after is not None:
            batch = await self.recalculate_batch(after)
            after = batch.after
            yield batch

    async def recalculate_batch(self, after: str) -> PriorityBatch:
        """Work out the same for one batch."""
        return await self._control.recalculate_priorities(after=after, limit=RECALCULATED_AT_ONCE)

    async def claims(self) -> ClaimOverview:
        """Tell who holds what, what is stuck, and what is free."""
        return await self._control.claims()

    async def release_claims(self, worker: str | None = None) -> int:
        """End all claims, or all of one worker; tell how many."""
        return await self._control.release_all_claims(worker)

    async def verify(self) -> Verification:
        """Check that what is known of the domains is sound."""
        return await verify(self._stores)
