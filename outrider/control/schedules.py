"""Schedules: jobs that supervisors submit again and again."""

import logging
from collections.abc import Mapping

import msgspec

from outrider.control import orders
from outrider.model.job import JobRequest
from outrider.model.order import JobOrder
from outrider.model.schedule import Schedule
from outrider.store.protocols import ControlStore

logger = logging.getLogger(__name__)

NO_LABELS: Mapping[str, str] = {}


async def schedule(
    control: ControlStore,
    order: JobOrder,
    *,
    every_ms: int,
    crawl: str | None = None,
    priority: int = 0,
    max_retries: int = 3,
    source_id: str | None = None,
    labels: Mapping[str, str] = NO_LABELS,
    webhook_url: str | None = None,
    webhook_secret: str | None = None,
    allow_private: bool = False,
) -> Schedule:
    """Have an order placed at once, and again and again after so long, always for the same crawl.

    A page is fetched once in the life of a crawl, so the order has to begin it afresh each time or to refresh it: one
    that says neither is taken to refresh.
    """
    if not order.fresh:
        order = msgspec.structs.replace(order, refresh=True)
    order = orders.checked_order(order, allow_private=allow_private)
    orders.check_crawl(order, crawl)
    orders.check_labels(labels)
    orders.check_webhook(webhook_url, webhook_secret, allow_private=allow_private)
    request = JobRequest(
        payload=msgspec.to_builtins(order),
        crawl=crawl,
        priority=priority,
        max_retries=max_retries,
        source_id=source_id,
        labels=labels,
        webhook_url=webhook_url,
        webhook_secret=webhook_secret,
    )
    return await control.put_schedule(request, every_ms=every_ms)


async def submit_due(control: ControlStore) -> None:
    """Submit what is due; of many supervisors that look, one submits it."""
    for job in await control.submit_due():
        logger.info(
            "the schedule of crawl %s has job %s submitted", job.crawl, job.id,
            extra={"action": "job_scheduled", "job_id": job.id, "crawl": job.crawl},
        )  # fmt: skip
