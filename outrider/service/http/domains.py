"""The endpoints of domains: look at them, and say what is to become of them.

What is known of domains binds all crawls, so that keys which are bound to some may not change it.
"""

from typing import Final

from outrider.control.domain_desk import OPERATOR, DomainView, LocalDomainDesk
from outrider.model.api_key import Role
from outrider.model.domain import ClaimOverview, Domain, PriorityBatch
from outrider.model.domain_view import DomainPage
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
    StepQuery,
    TopQuery,
    VerificationAnswer,
)
from outrider.service.http.endpoint import Call, Endpoint
from outrider.service.http.translation import now_ms

ALL_CRAWLS: Final = "what binds all crawls"


def _desk(call: Call) -> LocalDomainDesk:
    key_id = call.principal.key_id
    return LocalDomainDesk(call.backend.stores, OPERATOR if key_id is None else f"key {key_id}")


def _changing(call: Call) -> LocalDomainDesk:
    call.principal.check_unbound(ALL_CRAWLS)
    return _desk(call)


def _domain(call: Call) -> str:
    return str(call.request.path_params["domain"])


async def list_domains(call: Call) -> DomainPage:
    """List domains."""
    query = call.query(DomainQuery)
    return await _desk(call).page(query.status, sort=query.sort, cursor=query.cursor, limit=query.limit)


async def top_domains(call: Call) -> DomainList:
    """List the domains with the most images per page."""
    return DomainList(domains=await _desk(call).top(call.query(TopQuery).limit))


async def show_domain(call: Call) -> DomainView:
    """Show a domain."""
    return await _desk(call).show(_domain(call))


async def domain_history(call: Call) -> DomainHistory:
    """List the steps of a domain's life."""
    query = call.query(StepQuery)
    return DomainHistory(history=await _desk(call).history(_domain(call), after=query.after, limit=query.limit))


async def reset_domain(call: Call) -> Domain:
    """Make a domain pending with a clean slate."""
    body: ReasonBody = call.body
    changed = await _changing(call).reset(_domain(call), body.reason)
    call.backend.frontier.tell()
    return changed


async def block_domain(call: Call) -> Domain:
    """Close a domain to every crawl."""
    body: BlockBody = call.body
    until = None if body.blocked_for_ms is None else now_ms() + body.blocked_for_ms
    return await _changing(call).block(_domain(call), until=until, reason=body.reason)


async def unblock_domain(call: Call) -> Domain:
    """Open a domain again."""
    body: ReasonBody = call.body
    changed = await _changing(call).unblock(_domain(call), body.reason)
    call.backend.frontier.tell()
    return changed


async def merge_domain(call: Call) -> Domain:
    """Merge a domain into another."""
    body: MergeBody = call.body
    return await _changing(call).merge(_domain(call), body.into)


async def recalculate_priorities(call: Call) -> PriorityBatch:
    """Work out rates, priorities and bands of one batch of domains."""
    body: RecalculateBody = call.body
    return await _changing(call).recalculate_batch(body.after)


async def list_claims(call: Call) -> ClaimOverview:
    """Tell who holds what."""
    return await _desk(call).claims()


async def release_claims(call: Call) -> ReleasedClaims:
    """End claims."""
    body: ReleaseClaimsBody = call.body
    return ReleasedClaims(released=await _changing(call).release_claims(body.worker))


async def verify_domains(call: Call) -> VerificationAnswer:
    """Check that what is known of the domains is sound."""
    verification = await _desk(call).verify()
    return VerificationAnswer(ok=verification.ok, checks=verification.checks)


DOMAINS: Final = "/v1/domains"
DOMAIN: Final = f"{DOMAINS}/{{domain}}"
NOT_DOMAINS: Final = frozenset({"top", "claims", "verify"})
"""What stands in the place of a domain; a host of that name is asked for with a dot at its end."""

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path=DOMAINS,
        summary="Domains by status, in one of four orders, by cursor; their counts are exact.",
        handler=list_domains,
        query=DomainQuery,
        gives=DomainPage,
    ),
    Endpoint(
        method="GET",
        path=f"{DOMAINS}/top",
        summary="The domains with the most images per page.",
        handler=top_domains,
        query=TopQuery,
        gives=DomainList,
    ),
    Endpoint(
        method="GET",
        path=f"{DOMAINS}/claims",
        summary="Who holds claims, how many have expired, and how many domains are free.",
        handler=list_claims,
        gives=ClaimOverview,
    ),
    Endpoint(
        method="POST",
        path=f"{DOMAINS}/claims/release",
        summary="End all claims, or all of one worker.",
        handler=release_claims,
        role=Role.ADMIN,
        takes=ReleaseClaimsBody,
        gives=ReleasedClaims,
    ),
    Endpoint(
        method="GET",
        path=f"{DOMAINS}/verify",
        summary="Check that what is known of the domains is sound; reads all of it, in short ranges.",
        handler=verify_domains,
        role=Role.ADMIN,
        gives=VerificationAnswer,
    ),
    Endpoint(
        method="POST",
        path=f"{DOMAINS}/recalculate",
        summary="Work out rates, priorities and bands of one batch of domains, and tell where the next begins.",
        handler=recalculate_priorities,
        role=Role.ADMIN,
        takes=RecalculateBody,
        gives=PriorityBatch,
    ),
    Endpoint(
        method="GET",
        path=DOMAIN,
        summary="All that is known of a domain: its life, counts, claim, politeness, and its last steps.",
        handler=show_domain,
        gives=DomainView,
    ),
    Endpoint(
        method="GET",
        path=f"{DOMAIN}/history",
        summary="The steps of a domain's life, the oldest first.",
        handler=domain_history,
        query=StepQuery,
        gives=DomainHistory,
    ),
    Endpoint(
        method="POST",
        path=f"{DOMAIN}/reset",
        summary="Make an exhausted, blocked or unreachable domain pending, with a clean slate.",
        handler=reset_domain,
        role=Role.ADMIN,
        takes=ReasonBody,
        gives=Domain,
    ),
    Endpoint(
        method="POST",
        path=f"{DOMAIN}/block",
        summary="Close a domain to every crawl, for a time or for good, also before its first URL.",
        handler=block_domain,
        role=Role.ADMIN,
        takes=BlockBody,
        gives=Domain,
    ),
    Endpoint(
        method="POST",
        path=f"{DOMAIN}/unblock",
        summary="Open a domain again; a blocked one is active, an unreachable one pending.",
        handler=unblock_domain,
        role=Role.ADMIN,
        takes=ReasonBody,
        gives=Domain,
    ),
    Endpoint(
        method="POST",
        path=f"{DOMAIN}/merge",
        summary="Merge a domain, named exactly as it is stored, into another; the older row is kept.",
        handler=merge_domain,
        role=Role.ADMIN,
        takes=MergeBody,
        gives=Domain,
    ),
)
