"""What `ControlStore` on SQL does for backfills: checks what comes in, and has an engine run the scripts."""

from collections.abc import Sequence

from outrider.model.backfill import COUNTERS, Backfill, BackfillFigures, BackfillKind, BackfillStep, DomainPast
from outrider.model.errors import InvalidInput, shown
from outrider.model.settings import Settings
from outrider.model.url import UrlRefused, canonical_domain
from outrider.store.checks import (
    LARGEST,
    check_batch,
    check_choice,
    check_moment,
    check_name,
    check_number,
    check_record,
    check_text,
)
from outrider.store.sql.control import backfill
from outrider.store.sql.engine import Engine

MOST = 2**53
"""Of a counter: what every reader of JSON can still tell exactly."""


class SqlBackfillStore:
    """Backfills on an SQL engine."""

    _engine: Engine
    _settings: Settings

    async def begin_backfill(
        self, backfill_id: str, source: str, kind: BackfillKind, *, now: int | None = None
    ) -> Backfill:
        """Open the ledger's entry of a source, or go on with it."""
        check_name(backfill_id, "backfill_id")
        check_name(source[:1] if isinstance(source, str) else source, "source")
        check_text(source, "source")
        chosen = check_choice(kind, "kind", BackfillKind)
        return await self._engine.write(lambda: backfill.begin(backfill_id, source, chosen, now))

    async def get_backfill(self, backfill_id: str) -> Backfill | None:
        """Read an entry of the ledger."""
        check_name(backfill_id, "backfill_id")
        return await self._engine.read(lambda: backfill.find(backfill_id))

    async def list_backfills(self) -> list[Backfill]:
        """List the ledger, the oldest entry first."""
        return await self._engine.read(backfill.listed)

    async def backfill_domains(
        self, backfill_id: str, pasts: Sequence[DomainPast], *, now: int | None = None
    ) -> BackfillStep:
        """Add what is missing of the pasts of some domains."""
        check_name(backfill_id, "backfill_id")
        check_pasts(pasts)
        return await self._engine.write(lambda: backfill.add(backfill_id, pasts, self._settings, now))

    async def preview_backfill(self, backfill_id: str, pasts: Sequence[DomainPast]) -> BackfillStep:
        """Tell what `backfill_domains` would do."""
        check_name(backfill_id, "backfill_id")
        check_pasts(pasts)
        return await self._engine.read(lambda: backfill.preview(backfill_id, pasts))

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
        """Write down how far a backfill has come."""
        check_name(backfill_id, "backfill_id")
        check_text(position, "position")
        check_number(rows_read, "rows_read", 0, MOST)
        check_number(rows_refused, "rows_refused", 0, MOST)
        if not isinstance(finished, bool):
            raise InvalidInput(f"finished must be true or false, not {shown(finished)}")
        return await self._engine.write(
            lambda: backfill.note(backfill_id, position, rows_read, rows_refused, finished, now)
        )

    async def backfill_figures(self) -> BackfillFigures:
        """Sum up what backfills have brought."""
        return await self._engine.read(backfill.figures)


def check_pasts(pasts: Sequence[DomainPast]) -> None:
    """Check a batch of pasts: canonical names, each once, and numbers that can be."""
    check_batch(pasts, "pasts")
    names = set()
    for past in pasts:
        check_record(past, "past", DomainPast)
        try:
            is_canonical = canonical_domain(past.domain) == past.domain
        except UrlRefused as refused:
            raise InvalidInput(str(refused)) from None
        if not is_canonical:
            raise InvalidInput(f"domain {shown(past.domain)} is not in its canonical form")
        if past.domain in names:
            raise InvalidInput(f"domain {shown(past.domain)} is there twice")
        names.add(past.domain)
        for counter in (*COUNTERS, "rate_limited_count", "server_error_count"):
            check_number(getattr(past, counter), counter, 0, MOST)
        check_number(past.crawl_depth_reached, "crawl_depth_reached", 0, LARGEST)
        for field in ("first_seen_at", "last_crawled_at"):
            if getattr(past, field) is not None:
                check_moment(getattr(past, field), field)
