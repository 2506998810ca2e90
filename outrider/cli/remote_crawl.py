"""`outrider crawl --frontier`: the main job on a frontier that is served elsewhere.

The service keeps the crawl; this process adds the seeds and works for it until it is over. Any number of `outrider
work` may join.
"""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Final

from outrider.cli.carrying_out import discovered, usable_seeds
from outrider.cli.display import Display
from outrider.cli.running import run_to_its_end
from outrider.cli.seeds import read_seeds
from outrider.cli.work import stop_on_signals, work_for
from outrider.crawler.execution import limits_of
from outrider.crawler.plan import CrawlPlan
from outrider.crawler.progress import CrawlEnding
from outrider.crawler.seeding import SEEDS_AT_ONCE
from outrider.model.errors import InvalidInput
from outrider.model.settings import Settings
from outrider.model.task import CrawlRules, Discovered
from outrider.policy.scope import ScopeRule
from outrider.service.client import RemoteFrontier

LOCAL_ONLY: Final = {"store": "--store", "output": "--output", "fresh": "--fresh"}
"""What the service has in its own hands."""


def crawl_for_service(
    frontier: RemoteFrontier, plan: CrawlPlan, settings: Settings, display: Display
) -> CrawlEnding | None:
    """Have a service keep this crawl, and work for it until it is over."""
    for field, flag in LOCAL_ONLY.items():
        if getattr(plan, field):
            raise InvalidInput(f"{flag} is for a crawl in this process; with --frontier the service keeps the crawl")
    seeds = read_seeds(plan)
    usable = discovered(usable_seeds(seeds), seeds, display)
    return run_to_its_end(_crawl(frontier, plan, settings, usable))


async def _crawl(
    frontier: RemoteFrontier, plan: CrawlPlan, settings: Settings, seeds: Iterator[Discovered]
) -> CrawlEnding | None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    async with frontier:
        await frontier.create_crawl(plan.crawl, CrawlRules(), limits_of(plan))
        while batch := list(islice(seeds, SEEDS_AT_ONCE)):
            if plan.scope is not ScopeRule.ANY:
                await frontier.widen_scope(plan.crawl, [seed.url for seed in batch])
            await frontier.add(plan.crawl, batch)
        ending = await work_for(frontier, plan, settings, plan.crawl, stop, until_done=True)
    return CrawlEnding.STOPPED if ending is None else ending
