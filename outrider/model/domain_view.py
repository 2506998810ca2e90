"""Domains as those see them who look after them: listings, sums over all, and what was found wrong."""

from enum import StrEnum
from typing import Final

import msgspec

from outrider.model.domain import Domain
from outrider.model.errors import OutriderError
from outrider.model.machines import DomainStatus

BLOCKED_BY_OPERATOR: Final = "operator"
"""The `block_reason_code` of a domain whose gate an operator has closed."""


class DomainInUse(OutriderError):
    """A domain has URLs of its own and so cannot be merged into another."""

    def __init__(self, domain: str, tasks: int) -> None:
        super().__init__(
            f"{domain!r} cannot be merged: the frontier has URLs of it ({tasks:,}), whose domain it is and stays"
        )
        self.domain = domain


class DomainSort(StrEnum):
    """In which order domains are listed."""

    NAME = "name"
    PRIORITY = "priority"
    """The highest score first."""
    YIELD = "yield"
    """The most images per page first, as it was last worked out; those never worked out come last."""
    CRAWLED = "crawled"
    """The most recently crawled first; those never crawled come last."""


class DomainPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a listing, and where the next one starts."""

    domains: list[Domain]
    next_cursor: str | None


class DomainCensus(msgspec.Struct, frozen=True, kw_only=True):
    """All domains in numbers."""

    by_status: dict[DomainStatus, int]
    blocked_by_code: dict[str, int]
    """Those that are blocked or unreachable, by reason; an empty word where none was given."""
    live_claims: int
    expired_claims: int
    """Claims that nobody renewed, released or took over."""


class StepTally(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of domains' lives of one kind."""

    from_status: DomainStatus
    to_status: DomainStatus
    reason_code: str | None
    number: int


class StepsTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that were taken since another such look."""

    tallies: list[StepTally]
    last_id: int
    """Where the next look begins."""


class LoggedPages(msgspec.Struct, frozen=True, kw_only=True):
    """What a range of the log says of one domain."""

    domain: str
    completed: int
    """Pages that were completed for the first time."""
    refreshed: int
    """Fetches of pages that were known."""


class DomainAudit(msgspec.Struct, frozen=True, kw_only=True):
    """What does not fit together, counted over all domains; all of it is 0 in a sound store."""

    without_gate: int
    gates_of_another_status: int
    """Gates that believe their domain to be in another status than it is."""
    gates_open_too_soon: int
    """Gates of resting domains that open before the rest is over."""
    counted_without_domain: int
    """Domains that have URLs and no row."""
    exhausted_for_ever: int
    """Exhausted domains without a time at which they are due again."""
    claims_of_nobody: int
    """Live claims of workers that are not registered, or no longer."""
    fetched_twice: int
    """Pages that one run completed twice, among the last fetches."""
    illegal_steps: int
    """Steps in the history that no domain may take."""
