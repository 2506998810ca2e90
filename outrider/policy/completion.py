"""Completion: when nothing more will come of a crawl within the time that one is ready to wait."""

from enum import StrEnum

from outrider.model.task import Outlook


class Completion(StrEnum):
    """Why a crawl is complete."""

    DRAINED = "drained"
    """Nothing is left to fetch."""
    LIMIT = "limit"
    """What is left is past a limit on pages."""
    WAITING = "waiting"
    """What is left cannot be fetched for a long time."""


def completion_of(outlook: Outlook, *, pages_allowed: int | None, now: int, max_wait_ms: int) -> Completion | None:
    """Tell why a crawl is complete, None while it is not.

    >>> from outrider.model.task import Counts
    >>> waiting = Outlook(counts=Counts(pending=1), next_ready_at=5_000, limited=False)
    >>> completion_of(waiting, pages_allowed=None, now=0, max_wait_ms=5_000)
    >>> completion_of(waiting, pages_allowed=None, now=0, max_wait_ms=4_999)
    <Completion.WAITING: 'waiting'>
    >>> completion_of(waiting, pages_allowed=0, now=0, max_wait_ms=5_000)
    <Completion.LIMIT: 'limit'>
    """
    if outlook.counts.assigned:
        return None
    if not outlook.counts.pending:
        return Completion.DRAINED
    if pages_allowed is not None and pages_allowed <= 0:
        return Completion.LIMIT
    if outlook.next_ready_at is not None and outlook.next_ready_at <= now + max_wait_ms:
        return None
    return Completion.LIMIT if outlook.limited else Completion.WAITING
