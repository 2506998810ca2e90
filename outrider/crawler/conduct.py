"""Conduct: how the workers of a crawl behave, kept with the crawl so that anybody may join it.

Limits and politeness are the crawl's own in any case, and the frontier sees to them. What a worker must know beside
them is where links may lead, and how to introduce itself.
"""

from collections.abc import Mapping

import msgspec

from outrider.crawler.plan import CrawlPlan
from outrider.model.errors import InvalidInput, shown
from outrider.policy.scope import ScopeRule


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """What workers of one crawl agree on."""

    scope: ScopeRule = ScopeRule.HOST
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    follow_links: bool = True
    """Whether pages and feeds lead on; what sitemaps list and where redirects lead is followed in any case."""
    sitemaps: bool = True
    ignore_nofollow: bool = False
    user_agent: str | None = None
    """None is each worker's own."""
    timeout: float = 60.0
    max_body: int = 10 * 1024 * 1024


def conduct_of(plan: CrawlPlan, kept: Mapping[str, object] | None) -> Conduct:
    """Read the conduct that was kept with a crawl; where there is none, a worker's plan says all of it."""
    if kept is None:
        return Conduct(
            scope=plan.scope,
            include=plan.include,
            exclude=plan.exclude,
            sitemaps=plan.sitemaps,
            ignore_nofollow=plan.ignore_nofollow,
            user_agent=plan.user_agent,
            timeout=plan.timeout,
            max_body=plan.max_body,
        )
    try:
        return msgspec.convert(kept, Conduct)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the conduct of the crawl cannot be read: {error}: {shown(kept)}") from None


def fetching_plan(plan: CrawlPlan, conduct: Conduct) -> CrawlPlan:
    """Give a worker's plan what a crawl's conduct says of fetching."""
    return msgspec.structs.replace(
        plan,
        user_agent=conduct.user_agent or plan.user_agent,
        timeout=conduct.timeout,
        max_body=conduct.max_body,
    )
