"""Supervising jobs beside a service, whether or not anybody else can reach that."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from outrider.control.messages import Reach
from outrider.control.supervisor import Supervisor, SupervisorOptions
from outrider.control.webhooks import WebhookDeliverer, WebhookOptions
from outrider.crawler.plan import CrawlPlan, store_dsn
from outrider.model.settings import Settings
from outrider.service.app import Service
from outrider.service.local_door import open_door
from outrider.store.dsn import SqliteDsn, parse_dsn

logger = logging.getLogger(__name__)


@asynccontextmanager
async def supervising(
    service: Service, plan: CrawlPlan, settings: Settings, *, runners: int, memory_limit: int
) -> AsyncIterator[None]:
    """Run jobs for as long as this is entered; leaving it is an orderly stop."""
    dsn = store_dsn(plan)
    async with AsyncExitStack() as stack:
        reach = Reach(store=dsn)
        if isinstance(parse_dsn(dsn), SqliteDsn):
            reach = Reach(service=await stack.enter_async_context(open_door(service, Path(plan.data))))
        options = SupervisorOptions(
            runners=runners,
            command=(sys.executable, "-m", "outrider.cli.main", "runner", "--memory-limit", str(memory_limit)),
            reach=reach,
            plan=plan,
            memory_limit=memory_limit,
        )
        supervisor = Supervisor(service.backend.stores, settings, options, service.backend.metrics)
        await stack.enter_async_context(_beside(supervisor.run))
        yield


@asynccontextmanager
async def delivering(service: Service, plan: CrawlPlan) -> AsyncIterator[None]:
    """Deliver the webhooks of jobs that end, for as long as this is entered."""
    options = WebhookOptions(allow_private=plan.allow_private)
    async with WebhookDeliverer(service.backend.stores.control, options) as deliverer, _beside(deliverer.run):
        yield


@asynccontextmanager
async def _beside(run: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Have something run beside all else; the process stops where it fails."""
    stop = asyncio.Event()
    running = asyncio.create_task(run(stop))
    running.add_done_callback(_stop_where_failed)
    try:
        yield
    finally:
        stop.set()
        await running


def _stop_where_failed(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.critical("cannot go on", exc_info=task.exception(), extra={"action": "give_up"})
        os.kill(os.getpid(), signal.SIGTERM)
