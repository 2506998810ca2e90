"""Sources of rows: tables of a database, CSV, JSON lines. Each is read batch by batch, from a position on."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple, Protocol

from outrider.control.backfill.columns import Part


class RowBatch(NamedTuple):
    """Some rows, and where to go on after them."""

    rows: list[tuple[str, Mapping[str, Any] | str]]
    """Where each stands, for people, with its values by field; or why it could not even be read."""
    position: str


class RowSource(Protocol):
    """Somewhere to read rows from."""

    name: str
    """For people: without a password."""

    @property
    def identity(self) -> str:
        """What tells whether this is still what an earlier reading had begun with."""
        ...

    async def parts(self) -> list[Part]:
        """Find out what it has, or raise `InvalidInput` where that cannot be read."""
        ...

    def batches(self, part: Part, position: str | None, size: int) -> AsyncIterator[RowBatch]:
        """Read rows from a position on, None for the beginning."""
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...
