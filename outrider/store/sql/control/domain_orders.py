"""What an operator orders for a domain: a clean slate, a block, the end of one.

Each is one transaction over the gate and the domain, in the order of all locks: the gate first. Asked twice, it leaves
what asking once does.
"""

from outrider.model.domain import Domain, DomainChange, UnknownDomain
from outrider.model.domain_view import BLOCKED_BY_OPERATOR
from outrider.model.gate import GateSettings
from outrider.model.machines import DomainStatus
from outrider.model.task import NEVER
from outrider.store.sql.control import domains
from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import gates

FOR_GOOD = NEVER - 1
"""The last moment that a gate may be closed until."""
AFTER_UNBLOCKING = {
    DomainStatus.BLOCKED: DomainStatus.ACTIVE,
    DomainStatus.UNREACHABLE: DomainStatus.PENDING,
}


def reset(domain: str, reason: str | None, actor: str, now: int | None) -> Script[Domain]:
    """Make a domain pending with a clean slate, and open its gate."""
    found = yield from _opened(domain, now)
    if found.status is not DomainStatus.PENDING:
        yield from _step(found, DomainStatus.PENDING, reason, actor, now)
    yield Call("forgive_domain", (domain, True))
    return (yield from _existing(domain))


def unblock(domain: str, reason: str | None, actor: str, now: int | None) -> Script[Domain]:
    """Open a domain's gate, and take it back into the crawl where it was given up."""
    found = yield from _opened(domain, now)
    target = AFTER_UNBLOCKING.get(found.status)
    if target is not None:
        yield from _step(found, target, reason, actor, now)
    yield Call("forgive_domain", (domain, False))
    return (yield from _existing(domain))


def block(domain: str, until: int | None, reason: str | None, now: int | None) -> Script[Domain]:
    """Close a domain's gate, also before its first URL, and write down why."""
    closed = GateSettings(blocked_until=FOR_GOOD if until is None else until)
    yield from gates.configure(domain, closed, now)
    yield Call("lock_domains", (), [(domain,)])
    yield Call("note_block", (domain, reason, BLOCKED_BY_OPERATOR))
    return (yield from _existing(domain))


def _opened(domain: str, now: int | None) -> Script[Domain]:
    """Open the gate of a domain that is there, and lock both."""
    yield from _existing(domain)  # first: to set a gate would make the domain
    yield from gates.configure(domain, GateSettings(blocked_until=0), now)
    yield Call("lock_domains", (), [(domain,)])
    yield Call("forgive_gate", (domain,))
    return (yield from _existing(domain))


def _step(found: Domain, target: DomainStatus, reason: str | None, actor: str, now: int | None) -> Script[Domain]:
    change = DomainChange(
        source=found.status, target=target, expected_version=found.version, block_reason=reason, actor=actor
    )
    return (yield from domains.transition(found.domain, change, now, []))


def _existing(domain: str) -> Script[Domain]:
    found = yield from domains.find(domain)
    if found is None:
        raise UnknownDomain(domain)
    return found
