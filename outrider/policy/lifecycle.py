"""Lifecycle: which event takes a domain from which status to which.

The events are those that somebody can observe: a worker's report, a lease, a clock, an operator. An event that
means nothing where a domain stands leaves it there; late reports of a domain that is blocked by now are an example.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from outrider.model.machines import DOMAIN, DomainStatus

_PENDING, _ACTIVE, _EXHAUSTED = DomainStatus.PENDING, DomainStatus.ACTIVE, DomainStatus.EXHAUSTED
_BLOCKED, _UNREACHABLE = DomainStatus.BLOCKED, DomainStatus.UNREACHABLE


class DomainEvent(StrEnum):
    """What happens to a domain."""

    SEEDED = "seeded"
    """A list of seeds names it. A domain that is known already stays what it is."""
    CRAWL_STARTS = "crawl_starts"
    """The first of its tasks is leased."""
    PAGE_CRAWLED = "page_crawled"
    IMAGE_STORED = "image_stored"
    BUDGET_HIT = "budget_hit"
    ALL_DONE = "all_done"
    """None of its tasks is pending or assigned."""
    ERRORS_EXCEED = "errors_exceed"
    CONNECTION_FAILS = "connection_fails"
    COOLDOWN_EXPIRES = "cooldown_expires"
    REFRESH_DUE = "refresh_due"
    NEW_WORK = "new_work"
    """A task was added to a domain that had none left."""
    UNBLOCKED = "unblocked"
    """An operator says that it may be asked again."""


STEPS: Final[Mapping[DomainEvent, Mapping[DomainStatus, DomainStatus]]] = {
    DomainEvent.SEEDED: {},
    DomainEvent.CRAWL_STARTS: {_PENDING: _ACTIVE},
    # An answer to a request that was sent before the domain was given up is as good as any.
    DomainEvent.PAGE_CRAWLED: {_ACTIVE: _ACTIVE, _UNREACHABLE: _ACTIVE},
    DomainEvent.IMAGE_STORED: {_ACTIVE: _ACTIVE},
    DomainEvent.BUDGET_HIT: {_ACTIVE: _ACTIVE},
    DomainEvent.ALL_DONE: {_ACTIVE: _EXHAUSTED},
    DomainEvent.ERRORS_EXCEED: {_ACTIVE: _BLOCKED},
    DomainEvent.CONNECTION_FAILS: {_ACTIVE: _UNREACHABLE, _PENDING: _UNREACHABLE},
    DomainEvent.COOLDOWN_EXPIRES: {_BLOCKED: _PENDING, _UNREACHABLE: _PENDING},
    DomainEvent.REFRESH_DUE: {_EXHAUSTED: _PENDING},
    DomainEvent.NEW_WORK: {_EXHAUSTED: _ACTIVE},
    DomainEvent.UNBLOCKED: {_BLOCKED: _ACTIVE, _UNREACHABLE: _ACTIVE},
}
"""What each event makes of each status that it means something to."""


def after(event: DomainEvent, status: DomainStatus) -> DomainStatus:
    """Tell what an event makes of a domain; where it means nothing, the status stays.

    >>> after(DomainEvent.COOLDOWN_EXPIRES, DomainStatus.BLOCKED)
    <DomainStatus.PENDING: 'pending'>
    >>> after(DomainEvent.ALL_DONE, DomainStatus.BLOCKED)
    <DomainStatus.BLOCKED: 'blocked'>
    """
    return STEPS[event].get(status, status)


def path(source: DomainStatus, target: DomainStatus) -> tuple[DomainStatus, ...]:
    """Give the statuses to go through, `target` last: by way of active where the table has no direct step.

    A domain whose first answers are refusals becomes blocked while its crawl has not been noted to have started;
    it is then active in between, within one transaction.

    >>> [status.value for status in path(DomainStatus.PENDING, DomainStatus.BLOCKED)]
    ['active', 'blocked']
    """
    if DOMAIN.allows(source, target):
        return (target,)
    DOMAIN.check(source, _ACTIVE)
    DOMAIN.check(_ACTIVE, target)
    return (_ACTIVE, target)
