"""The desk for domains behind a service: the same methods as the local one, over HTTP.

Nothing here does harm twice, so that everything is sent again until it is answered.
"""

import ssl
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote, urlencode

import msgspec

from outrider.control.domain_desk import MOST_STEPS, DomainView
from outrider.control.domain_verify import Verification
from outrider.model.domain import ClaimOverview, Domain, DomainStep, PriorityBatch
from outrider.model.domain_view import DomainPage, DomainSort
from outrider.model.machines import DomainStatus
from outrider.service.connection import PATIENCE_S, Connection
from outrider.service.http.domain_wire import (
    BlockBody,
    DomainHistory,
    DomainList,
    DomainQuery,
    MergeBody,
    ReasonBody,
    RecalculateBody,
    ReleaseClaimsBody,
    ReleasedClaims,
    VerificationAnswer,
)
from outrider.service.http.domains import DOMAINS, NOT_DOMAINS

LONG_S: Final = 3600.0
"""How long to wait for what reads all of the log."""


class RemoteDomainDesk:
    """A `DomainDesk` behind the service at `url`; use it as a context manager, or close it."""

    def __init__(
        self, url: str, *, key: str | None = None, patience_s: float = PATIENCE_S, tls: ssl.SSLContext | None = None
    ) -> None:
        self._service = Connection(url, key=key, patience_s=patience_s, tls=tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

    async def page(
        self,
        status: DomainStatus | None = None,
        *,
        sort: DomainSort = DomainSort.CRAWLED,
        cursor: str | None = None,
        limit: int = 50,
    ) -> DomainPage:
        """List domains page by page."""
        query = msgspec.to_builtins(DomainQuery(status=status, sort=sort, cursor=cursor, limit=limit))
        return await self._service.call("GET", f"{DOMAINS}?{urlencode(query)}", DomainPage)

    async def top(self, limit: int = 20) -> list[Domain]:
        """List the domains with the most images per page."""
        return (await self._service.call("GET", f"{DOMAINS}/top?limit={limit}", DomainList)).domains

    async def show(self, domain: str) -> DomainView:
        """Show a domain, its politeness, and the last steps of its life."""
        path = f"{DOMAINS}/{domain}%2E" if domain in NOT_DOMAINS else _path(domain)
        return await self._service.call("GET", path, DomainView)

    async def history(self, domain: str, *, after: int = 0, limit: int = MOST_STEPS) -> list[DomainStep]:
        """List the steps of a domain's life after one of them, the oldest first."""
        path = f"{_path(domain)}/history?after={after}&limit={limit}"
        return (await self._service.call("GET", path, DomainHistory)).history

    async def reset(self, domain: str, reason: str | None = None) -> Domain:
        """Make a domain pending with a clean slate; raises `InvalidTransition` for one that is active."""
        return await self._service.call("POST", f"{_path(domain)}/reset", Domain, ReasonBody(reason=reason))

    async def block(self, domain: str, *, until: int | None = None, reason: str | None = None) -> Domain:
        """Close a domain to every crawl until a moment, in milliseconds, or for good; also one that is not known."""
        span = None if until is None else max(until - int(time.time() * 1000), 0)
        body = BlockBody(blocked_for_ms=span, reason=reason)
        return await self._service.call("POST", f"{_path(domain)}/block", Domain, body)

    async def unblock(self, domain: str, reason: str | None = None) -> Domain:
        """Open a domain again."""
        return await self._service.call("POST", f"{_path(domain)}/unblock", Domain, ReasonBody(reason=reason))

    async def merge(self, name: str, into: str) -> Domain:
        """Merge a domain, named exactly as it is stored, into another."""
        reply = await self._service.reply("POST", f"{_path(name)}/merge", MergeBody(into=into), wait_s=LONG_S)
        return reply.read(Domain)

    async def recalculate(self) -> AsyncIterator[PriorityBatch]:
        """Work out rates, priorities and bands of all domains, batch by batch."""
        after: str | None = ""
        while after is not None:
            batch = await self._service.call(
                "POST", f"{DOMAINS}/recalculate", PriorityBatch, RecalculateBody(after=after)
            )
            after = batch.after
            yield batch

    async def claims(self) -> ClaimOverview:
        """Tell who holds what, what is stuck, and what is free."""
        return await self._service.call("GET", f"{DOMAINS}/claims", ClaimOverview)

    async def release_claims(self, worker: str | None = None) -> int:
        """End all claims, or all of one worker; tell how many."""
        body = ReleaseClaimsBody(worker=worker)
        return (await self._service.call("POST", f"{DOMAINS}/claims/release", ReleasedClaims, body)).released

    async def verify(self) -> Verification:
        """Check that what is known of the domains is sound."""
        reply = await self._service.reply("GET", f"{DOMAINS}/verify", None, wait_s=LONG_S)
        return Verification(checks=reply.read(VerificationAnswer).checks)


def _path(domain: str) -> str:
    # A name of dots alone would be taken for a step in the path.
    return f"{DOMAINS}/{quote(domain, safe='').replace('.', '%2E') or '%20'}"
