"""A door for runners: the service on a socket of this machine that only its own user can open.

Where the store is one file, runners go through the process that writes it: many writers on one SQLite file keep each
other waiting for seconds.
"""

import asyncio
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from outrider.service.app import Service
from outrider.service.keys import ANYBODY, Keys, Principal
from outrider.service.server import Server, ServerOptions

SOCKET: Final = "service.sock"
LONGEST_PATH: Final = 90
"""Of the 108 bytes that systems have for the path of a socket, some are for the name under which it is made."""


class _NoKeys(Keys):
    """Takes whoever asks: the file system has checked who that is."""

    async def principal(self, authorization: str | None, host: str = "") -> Principal:
        """Take anybody."""
        return ANYBODY


@asynccontextmanager
async def open_door(service: Service, folder: Path) -> AsyncIterator[str]:
    """Serve on a socket in a folder; give the address. Runners report what they found as it is, and fetch as told."""
    backend = service.backend._replace(
        keys=_NoKeys(service.backend.stores.control, open_without_keys=True),
        stopping=asyncio.Event(),
        allow_private=True,
    )
    behind = Service(backend)
    with _place_for_socket(folder) as path:
        async with Server(behind, ServerOptions(socket_path=path), on_stop=[behind.stop]) as server:
            yield server.base_url


@contextmanager
def _place_for_socket(folder: Path) -> Iterator[Path]:
    """Find a place: in the folder, unless its path is too long for a socket or another service lives there."""
    path = folder.resolve() / SOCKET
    if len(str(path).encode()) <= LONGEST_PATH and not _is_served(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
        return
    private = tempfile.mkdtemp(prefix="outrider-")
    try:
        yield Path(private) / SOCKET
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
