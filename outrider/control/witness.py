"""Who counts what the watch does, for metrics."""

from collections.abc import Sequence
from typing import Protocol

from outrider.model.job import Job


class Witness(Protocol):
    """Counts what happens to jobs and their runners."""

    def recovered(self, jobs: Sequence[Job], /) -> None:
        """Count what a watchdog has taken from silent runners."""
        ...

    def left(self, status: str, /) -> None:
        """Count a job that is out of hand, by its status; `lost` where it was taken away."""
        ...

    def runner_failed(self, kind: str, /) -> None:
        """Count a runner that was no good, by what was wrong: `runner_died`, `runner_frozen`, or `out_of_memory`."""
        ...


class Nobody:
    """Counts nothing."""

    def recovered(self, jobs: Sequence[Job], /) -> None:
        """Count nothing."""

    def left(self, status: str, /) -> None:
        """Count nothing."""

    def runner_failed(self, kind: str, /) -> None:
        """Count nothing."""
