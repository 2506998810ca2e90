"""What a control plane must be able to do for backfills.

A backfill is known by an id that its reader makes of the source's name. What a source has brought for a domain is in
the ledger, and only what is missing there is added: whoever offers the same past again changes nothing.
"""

from collections.abc import Sequence
from typing import Protocol

from outrider.model.backfill import Backfill, BackfillFigures, BackfillKind, BackfillStep, DomainPast


class BackfillStore(Protocol):
    """Backfills: what domains were before this store knew them."""

    async def begin_backfill(
        self, backfill_id: str, source: str, kind: BackfillKind, *, now: int | None = None
    ) -> Backfill:
        """Open the ledger's entry of a source, or go on with it; one that had come to its end begins anew."""
        ...

    async def get_backfill(self, backfill_id: str) -> Backfill | None:
        """Read an entry of the ledger."""
        ...

    async def list_backfills(self) -> list[Backfill]:
        """List the ledger, the oldest entry first."""
        ...

    async def backfill_domains(
        self, backfill_id: str, pasts: Sequence[DomainPast], *, now: int | None = None
    ) -> BackfillStep:
        """Add what is missing of the pasts of some domains, in one transaction with the ledger.

        Domains that are new begin their lives as their past says; others keep their status and what they count
        themselves. Raises `UnknownBackfill`.
        """
        ...

    async def preview_backfill(self, backfill_id: str, pasts: Sequence[DomainPast]) -> BackfillStep:
        """Tell what `backfill_domains` would do, and do nothing; the backfill need not have begun."""
        ...

    async def note_backfill(
        self,
        backfill_id: str,
        *,
        position: str | None,
        rows_read: int,
        rows_refused: int,
        finished: bool = False,
        now: int | None = None,
    ) -> Backfill:
        """Write down how far a backfill has come; raises `UnknownBackfill`."""
        ...

    async def backfill_figures(self) -> BackfillFigures:
        """Sum up what backfills have brought."""
        ...
