"""What the stores ask of an engine."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from outrider.model.errors import StoreError
from outrider.store.sql.script import Script

Answer = TypeVar("Answer")


class RowTaken(StoreError):
    """Somebody else was the first to insert a row of the same key; the transaction has changed nothing."""


class Engine(Protocol):
    """Runs scripts in transactions on one database."""

    slots: int
    """Over how many rows a count is spread, so that writers do not queue up for one."""

    async def write(self, script: Callable[[], Script[Answer]]) -> Answer:
        """Run a script in a transaction and answer after its commit.

        It is given as a function because it may have to be run again, from the start, when the
        transaction failed for a reason that passes. A script that raises has changed nothing.
        """
        ...

    async def read(self, script: Callable[[], Script[Answer]]) -> Answer:
        """Run a script that only reads."""
        ...

    def version(self) -> int | None:
        """Tell a number that every commit changes, whoever makes it; None where that costs as much as to look."""
        ...

    async def hear_of_jobs(self, timeout_s: float) -> bool:
        """Wait for the hint that there may be something to do for a job; False where the time is over first."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of the database."""
        ...
