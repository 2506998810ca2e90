"""`outrider runner`: one runner of a supervisor, which starts it and speaks to it through its pipes."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.exits import ExitCode

if TYPE_CHECKING:
    from outrider.control.messages import Reach
    from outrider.frontier.protocol import Frontier
    from outrider.model.settings import Settings
    from outrider.store.opening import Stores

OPENS_WITHIN_S = 15.0
OPEN_AGAIN_S = 0.2
HARD_LIMIT = 2
"""How many times the memory that a runner may have in use it can have at all: past the first it is ended by its
supervisor, past the second the wish for more fails, and with it the page that had it."""
NEVER_USED = 1 << 30
"""Address space that threads have for their stacks counts as well, though next to nothing of it is used."""


def runner(
    memory_limit: Annotated[int, typer.Option(metavar="BYTES", min=0, help="0 is no limit.")] = 0,
) -> None:
    """Execute one job for a supervisor; not for people."""
    import signal

    from outrider.cli.logs import log_to_standard_error
    from outrider.cli.running import run_to_its_end

    # A terminal or a service manager signals all processes at once: the supervisor alone decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log_to_standard_error()
    _limit_memory(memory_limit)
    run_to_its_end(_run())
    # The thread that waits for lines holds the lock of the input, for which the interpreter would wait on its way out.
    os._exit(ExitCode.OK)


async def _run() -> None:
    import sys

    from outrider.control.runner import Permit, Pipes, Runner

    # Whatever is printed by mistake must not stand among the lines for the supervisor.
    lines_out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    await Runner(Pipes(sys.stdin.buffer, lines_out, Permit()), open_frontier).run()


@asynccontextmanager
async def open_frontier(reach: "Reach", settings: "Settings") -> "AsyncIterator[Frontier]":
    """Open the frontier that a supervisor names: its store's, or the one behind its service."""
    from outrider.crawler.worker import STORE_PATIENCE_S

    if reach.service is not None:
        from outrider.service.client import connect

        async with connect(reach.service, patience_s=STORE_PATIENCE_S) as remote:
            yield remote
        return
    from outrider.frontier.claiming import Claiming
    from outrider.frontier.local import LocalFrontier

    assert reach.store is not None
    async with (
        await _open_patiently(reach.store, settings) as stores,
        LocalFrontier(stores.urls, claiming=Claiming(stores.control, settings)) as local,
    ):
        yield local


async def _open_patiently(dsn: str, settings: "Settings") -> "Stores":
    """Open a store, and wait for one that is being restarted: that is no fault of the job, and costs it no retry."""
    import asyncio

    from outrider.model.errors import StoreUnavailable
    from outrider.store.opening import open_store

    until = time.monotonic() + OPENS_WITHIN_S
    while True:
        try:
            return await open_store(dsn, settings)
        except StoreUnavailable:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(OPEN_AGAIN_S)


def _limit_memory(allowed: int) -> None:
    if not allowed:
        return
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = HARD_LIMIT * allowed + NEVER_USED
        resource.setrlimit(resource.RLIMIT_DATA, (wanted if most < 0 else min(wanted, most), most))
