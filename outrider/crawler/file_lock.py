"""A file that grows at its end and belongs to one process at a time.

The lock is the kernel's (`flock`): it ends with the process that holds it, however that process ends.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from outrider.model.errors import OutriderError, StoreError, StoreFull, StoreReadOnly

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_ONLY = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@contextmanager
def told(path: Path | str) -> Iterator[None]:
    """Raise our errors for those of the operating system, with the file's name."""
    try:
        yield
    except OSError as error:
        raise _translated(error, path) from error


def _translated(error: OSError, path: Path | str) -> OutriderError:
    if error.errno in _FULL:
        return StoreFull(
            f"no room left for {path} ({error.strerror}): nothing of this was written; make room and resume"
        )
    if error.errno in _READ_ONLY:
        return StoreReadOnly(
            f"no access to {path} ({error.strerror}): check the permissions of the file and its folder"
        )
    return StoreError(f"reading or writing {path} failed: {error.strerror or error}")


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`: one call of the system, more only where that one falls short."""
    written = os.pwrite(descriptor, data, offset)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], offset + written)


class LockedFile:
    """An open file that no other process has open through this class.

    What `append` is given lies in the file whole, or not at all: only a kill can leave a part of it, at the very end.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    @classmethod
    def try_open(cls, path: Path, flags: int = 0) -> Self | None:
        """Open and lock, or answer None where another process has the file.

        `flags` are those of `os.open`, such as `O_CREAT`. None also means that the file of this name became another
        one while we waited, as happens when its owner has just renamed or removed it.
        """
        descriptor = os.open(path, os.O_RDWR | flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return cls(path, descriptor)
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def append(self, data: bytes) -> int:
        """Write at the end and return the offset of what was written; where that fails, the file is as it was."""
        offset = self.size
        with told(self.path):
            try:
                _write_all(self.descriptor, data, offset)
            except BaseException:
                os.ftruncate(self.descriptor, offset)
                raise
        self.size = offset + len(data)
        return offset

    def cut(self, size: int) -> None:
        """Drop all that lies beyond `size`."""
        with told(self.path):
            os.ftruncate(self.descriptor, size)
        self.size = size

    def sync(self) -> None:
        """Wait until what was written would outlast a loss of power."""
        if self.descriptor >= 0:
            with told(self.path):
                os.fsync(self.descriptor)

    def close(self) -> None:
        """Give up the file and its lock; closing again does nothing."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)
