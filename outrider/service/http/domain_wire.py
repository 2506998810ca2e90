"""The records of domains that travel over HTTP, where they are not those of the model."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from outrider.control.domain_verify import Check
from outrider.model.domain import Domain, DomainStep
from outrider.model.domain_view import DomainSort
from outrider.model.machines import DomainStatus
from outrider.service.http.wire import Name
from outrider.store.checks import MAX_TEXT_CHARACTERS, YEAR_MS

MAX_PAGE: Final = 1_000

Reason = Annotated[str, Meta(max_length=MAX_TEXT_CHARACTERS)]


class DomainQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which domains to list."""

    status: DomainStatus | None = None
    sort: DomainSort = DomainSort.CRAWLED
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 50


class TopQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many to list."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 20


class StepQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which steps to list."""

    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """The `history_id` of the last one that is known already."""
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = MAX_PAGE


class DomainList(msgspec.Struct, frozen=True, kw_only=True):
    """Some domains, the first of them first."""

    domains: list[Domain]


class DomainHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of a domain's life, the oldest first."""

    history: list[DomainStep]


class ReasonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why something is done."""

    reason: Reason | None = None


class BlockBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For how long to block a domain, and why."""

    blocked_for_ms: Annotated[int, Meta(ge=0, le=100 * YEAR_MS)] | None = None
    """For good where it is left out."""
    reason: Reason | None = None


class MergeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to merge a domain into."""

    into: Name


class RecalculateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to go on."""

    after: str = ""
    """What the batch before gave; empty for the first."""


class ReleaseClaimsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose claims to end."""

    worker: Name | None = None
    """All of them where it is left out."""


class ReleasedClaims(msgspec.Struct, frozen=True, kw_only=True):
    """How many claims were ended."""

    released: int


class VerificationAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """All that was checked, and whether nothing is wrong."""

    ok: bool
    checks: list[Check]
