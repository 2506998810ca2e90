"""Claiming: which worker is at work in which mode, and which domains it has to itself.

    lease(worker, claims) --> enlisted, in one mode with all others --> claims tended --> leases of claimed domains

Claims live in the store alone and are tended when their worker asks for work, so that whoever serves a worker can
serve it, and a worker that asks no more loses them by itself.
"""

import logging
import os
import socket
import time
from typing import Final

from outrider.model.domain import CLAIM_MS, REST_MS
from outrider.model.errors import InvalidInput
from outrider.model.job import WorkerIdentity, WorkerKind, WorkerMode
from outrider.model.lease import LeaseRequest
from outrider.model.settings import Settings
from outrider.store.protocols import ControlStore

logger = logging.getLogger(__name__)

BATCH: Final = 10
"""How many domains are claimed at once at most: workers that start together get about the same."""
MOST_CLAIMS: Final = 1_000
TEND_EVERY_S: Final = 0.5
"""How often claims are tended while their worker could do more."""
FORGOTTEN_S: Final = CLAIM_MS / 3000
"""A worker that has not asked for so long is taken off the roll, and its claims are free."""


class _Worker:
    """What is remembered of a worker between two requests."""

    def __init__(self, mode: WorkerMode, now: float) -> None:
        self.mode = mode
        self.heard_at = now
        self.beaten_at = now
        self.tended_at = -TEND_EVERY_S
        self.held = 0


class Claiming:
    """The roll of the workers that one process serves, and their claims."""

    def __init__(self, control: ControlStore, settings: Settings, *, claim_ms: int = CLAIM_MS) -> None:
        self._control = control
        self._settings = settings
        self._claim_ms = claim_ms
        self._workers: dict[str, _Worker] = {}

    async def enlist(self, worker: str, mode: WorkerMode, *, lock_path: str | None = None) -> None:
        """Put a worker on the roll, or say that it is still there; raises `MixedModes` where others work otherwise.

        It is registered with this machine and process, which speak to the store for it.
        """
        now, ttl_ms = time.monotonic(), self._settings.stale_after_ms
        known = self._workers.get(worker)
        if known is not None and known.mode is mode:
            known.heard_at = now
            if now - known.beaten_at < self._settings.beat_every_ms / 1000:
                return
            known.beaten_at = now
            if await self._control.beat_worker(worker, ttl_ms=ttl_ms):
                return
        identity = WorkerIdentity(
            worker_id=worker,
            kind=WorkerKind.WORKER,
            mode=mode,
            host=socket.gethostname(),
            process_id=os.getpid(),
            lock_path=lock_path,
        )
        await self._control.register_worker(identity, ttl_ms=ttl_ms)
        self._workers[worker] = _Worker(mode, now)

    async def before(self, request: LeaseRequest) -> None:
        """Enlist who asks for work; a worker that leases under claims and has none gets some first."""
        await self.enlist(request.worker, mode_of(request))
        if request.claims and not self._workers[request.worker].held:
            await self._tend(request, BATCH)

    async def after(self, request: LeaseRequest, granted: int) -> bool:
        """Claim more for a worker that could do more; tell whether it is worth asking again."""
        missing = request.slots - granted
        if not request.claims or missing <= 0:
            return False
        return await self._tend(request, min(missing, BATCH))

    async def _tend(self, request: LeaseRequest, wanted: int) -> bool:
        known, now = self._workers[request.worker], time.monotonic()
        if request.crawl is None:
            raise InvalidInput("claims are on the domains of one crawl: name the crawl to lease from")
        if now - known.tended_at < TEND_EVERY_S:
            return False
        known.tended_at = now
        tally = await self._control.tend_claims(
            request.worker,
            request.crawl,
            max(min(wanted, MOST_CLAIMS - known.held), 0),
            claim_ms=self._claim_ms,
            rest_ms=REST_MS,
        )
        known.held = tally.held
        if tally.claimed:
            logger.info("claimed %d domains for %s", len(tally.claimed), request.worker, extra={"action": "claim"})
        return bool(tally.claimed)

    async def tidy(self) -> None:
        """Forget the workers that ask no more, and free what they have claimed."""
        now = time.monotonic()
        for worker, known in list(self._workers.items()):
            if now - known.heard_at > FORGOTTEN_S:
                await self.dismiss(worker)

    async def dismiss(self, worker: str) -> None:
        """Free the claims of a worker that is done or dead, and take it off the roll."""
        self._workers.pop(worker, None)
        await self._control.release_all_claims(worker)
        await self._control.remove_worker(worker)

    async def close(self) -> None:
        """Dismiss everybody."""
        for worker in list(self._workers):
            await self.dismiss(worker)


def mode_of(request: LeaseRequest) -> WorkerMode:
    """Name the mode in which a worker asks."""
    return WorkerMode.CLAIMS if request.claims else WorkerMode.PLAIN
