"""Seeding: from a list of seeds into the domains table, and into a crawl as far as the table lets them.

Seeding twice changes nothing: a domain that is known keeps its state, and a URL that is known is discarded.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from outrider.crawler.plan import CrawlPlan
from outrider.crawler.scheduling import Scheduling
from outrider.model.domain import Domain, DomainSeed
from outrider.model.machines import DomainStatus
from outrider.model.settings import Settings
from outrider.model.task import Added, Discovered, DiscoveryType
from outrider.model.typed_url import with_scheme
from outrider.model.url import UrlRefused, canonical_domain, locate
from outrider.policy.discovery import priority_of
from outrider.policy.scope import ScopeRule
from outrider.store.opening import Stores
from outrider.store.protocols import ControlStore

logger = logging.getLogger(__name__)

SEEDS_AT_ONCE: Final = 2_000
DOMAINS_AT_ONCE: Final = 1_000
RESTING: Final = (DomainStatus.EXHAUSTED, DomainStatus.BLOCKED, DomainStatus.UNREACHABLE)


class ListedSeed(Discovered, frozen=True, kw_only=True):
    """A URL to begin with, as a list has it."""

    rank: int | None = None
    """Its place in that list; 1 is the best."""
    source: str | None = None
    """The list, with its version."""


class Seeding:
    """Seeds one crawl."""

    def __init__(self, stores: Stores, plan: CrawlPlan, settings: Settings, scheduling: Scheduling) -> None:
        self._stores = stores
        self._plan = plan
        self._remembers = settings.enable_domain_tracking
        self._scheduling = scheduling

    async def add(self, seeds: Iterable[Discovered], stop: asyncio.Event) -> None:
        """Add seeds batch by batch; those of domains that rest stay out of a run that is scheduled from the table."""
        rest = iter(seeds)
        while batch := list(islice(rest, SEEDS_AT_ONCE)):
            await self._add(await self._admitted(batch))
            if stop.is_set():
                return

    async def begin_domains(self, stop: asyncio.Event) -> int:
        """Begin the domains of the table of which nothing is to be done yet, each at its root; tell how many.

        Their order is of no matter: what is fetched first is decided by their priority.
        """
        begun, after = 0, ""
        while not stop.is_set():
            found = await self._stores.control.list_domains(DomainStatus.PENDING, after=after, limit=DOMAINS_AT_ONCE)
            roots = list(filter(None, map(_root_of, found)))
            await self._add(roots)
            begun += len(roots)
            if len(found) < DOMAINS_AT_ONCE:
                break
            after = found[-1].domain
        return begun

    async def _add(self, seeds: Sequence[Discovered]) -> None:
        if not seeds:
            return
        if self._plan.scope is not ScopeRule.ANY:
            await self._stores.urls.widen_scope(self._plan.crawl, [seed.url for seed in seeds])
        await self._stores.urls.add(self._plan.crawl, seeds)

    async def _admitted(self, seeds: list[Discovered]) -> list[Discovered]:
        """Remember the domains of seeds; give those seeds that may be crawled now."""
        if not self._remembers:
            return seeds
        control = self._stores.control
        answers = await control.remember_domains([_domain_of(seed) for seed in seeds])
        if not self._scheduling.from_domains:
            return seeds
        known = {
            canonical_domain(seed.url)
            for seed, answer in zip(seeds, answers, strict=True)
            if answer.outcome is Added.KNOWN
        }
        resting = await _resting(control, known)
        if resting:
            logger.info("%d domains of the seeds rest", len(resting), extra={"action": "seeds_rest"})
        return [seed for seed in seeds if canonical_domain(seed.url) not in resting]


def _domain_of(seed: Discovered) -> DomainSeed:
    if not isinstance(seed, ListedSeed):
        return DomainSeed(domain=seed.url)
    return DomainSeed(domain=seed.url, source=seed.source, seed_rank=seed.rank)


def _root_of(domain: Domain) -> Discovered | None:
    """Give the page at which a domain is begun that nobody has begun; None for any other."""
    if domain.frontier_size:
        return None
    with suppress(UrlRefused):
        return Discovered(
            url=locate(with_scheme(domain.domain)).url,
            priority=priority_of(DiscoveryType.SEED, rank=domain.seed_rank),
            discovery_type=DiscoveryType.SEED,
        )
    return None


async def _resting(control: ControlStore, domains: set[str]) -> set[str]:
    """Tell which domains are exhausted, blocked or unreachable, and not due yet."""
    resting = set()
    for name in sorted(domains):
        domain = await control.get_domain(name)
        if domain is not None and domain.status in RESTING:
            due = domain.next_crawl_after
            if due is None or due.timestamp() > time.time():
                resting.add(name)
    return resting
