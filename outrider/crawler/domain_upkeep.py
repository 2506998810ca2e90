"""Upkeep of the domains table: waking what has rested, and working out priorities anew.

Any number of processes may do it at once: what one of them has done, the others find done.
"""

import asyncio
import logging
from typing import Final

from outrider.model.errors import StoreError
from outrider.model.settings import Settings
from outrider.store.protocols import ControlStore

logger = logging.getLogger(__name__)

WAKE_EVERY_S: Final = 60.0
RECALCULATE_EVERY_S: Final = 3600.0
BATCH: Final = 1_000
"""Domains in one transaction: a few milliseconds, for which nobody has to wait for long."""


class DomainUpkeep:
    """Keeps the domains table in step with the clock, where domains are tracked at all."""

    def __init__(self, control: ControlStore, settings: Settings, *, wake_every_s: float = WAKE_EVERY_S) -> None:
        self._control = control
        self._is_on = settings.enable_domain_tracking
        self._wake_every_s = wake_every_s

    async def run(self) -> None:
        """Wake domains again and again, until cancelled."""
        while True:
            try:
                await self.wake()
            except StoreError as error:
                logger.warning("domains could not be woken, will try again: %s", error)
            await asyncio.sleep(self._wake_every_s)

    async def wake(self) -> int:
        """Make pending all domains whose rest is over; tell how many."""
        woken = 0
        while self._is_on:
            number = await self._control.wake_domains(limit=BATCH)
            woken += number
            if number < BATCH:
                break
        if woken:
            logger.info("woke %d domains", woken, extra={"action": "wake_domains"})
        return woken

    async def recalculate(self) -> int:
        """Work out the priority of every domain, batch by batch; tell how many."""
        looked_at, after = 0, ""
        while self._is_on:
            batch = await self._control.recalculate_priorities(after=after, limit=BATCH)
            looked_at += batch.number
            if batch.after is None:
                break
            after = batch.after
        return looked_at
