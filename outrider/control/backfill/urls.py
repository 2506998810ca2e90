"""Sources of URLs: what another crawler still has to fetch, or has fetched."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from outrider.model.backfill import BackfillKind
from outrider.model.task import Restored


class UrlRecord(NamedTuple):
    """One URL, or why it could not be read."""

    place: str
    """Where it stands, for people."""
    found: Restored | str
    position: str
    """Where to go on after it."""


class UrlSource(Protocol):
    """Somewhere to read URLs from."""

    name: str
    kind: BackfillKind

    @property
    def identity(self) -> str:
        """What tells whether positions of an earlier reading still hold."""
        ...

    def records(self, position: str | None) -> Iterator[UrlRecord]:
        """Read URLs from a position on, None for the beginning."""
        ...

    def remarks(self) -> list[str]:
        """Say what else there is to know of the source."""
        ...
