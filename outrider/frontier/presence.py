"""Presence: how processes of one machine know which of them are dead.

Each holds a lock on a file of its own for as long as it lives. The kernel lets go of the lock when the
process ends, however it ends, so a file that nobody holds stands for a process that is gone: its leases
can be returned at once, and no others.
"""

import fcntl
import os
from pathlib import Path

from outrider.model.identifiers import new_uuid7

SUFFIX = ".alive"
BEGINNING = ".beginning"


class Presence:
    """This process among those that share a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.worker = new_uuid7()
        """The name under which this process leases; never used before, so nobody else's death is ours."""
        self.path = folder / f"{self.worker}{SUFFIX}"
        """The file that this process keeps locked while it lives."""
        self._descriptor = self._hold()

    def _hold(self) -> int:
        # Nobody may see the file before it is locked: it would stand for a process that is dead.
        beginning = self.path.with_suffix(BEGINNING)
        descriptor = os.open(beginning, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        beginning.rename(self.path)
        return descriptor

    def dead(self) -> list[str]:
        """Name the workers whose processes are gone; `forget` them when their leases are returned."""
        return [name for name in self._others() if not self._is_held(name)]

    def living(self) -> list[str]:
        """Name the workers of other processes that live."""
        return [name for name in self._others() if self._is_held(name)]

    def _others(self) -> list[str]:
        names = (path.name.removesuffix(SUFFIX) for path in self._folder.glob(f"*{SUFFIX}"))
        return sorted(name for name in names if name != self.worker)

    def _is_held(self, worker: str) -> bool:
        try:
            descriptor = os.open(self._folder / f"{worker}{SUFFIX}", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def forget(self, worker: str) -> None:
        """Remove the trace of a dead worker."""
        if not self._is_held(worker):
            (self._folder / f"{worker}{SUFFIX}").unlink(missing_ok=True)

    def close(self, *, owes_nothing: bool = True) -> None:
        """Leave; where leases could not be given back, the file stays for the next process that looks."""
        if owes_nothing:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)
