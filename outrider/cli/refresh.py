"""`outrider refresh`: fetch known pages again."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.opened import Config, CrawlName, Data, Store, chosen_plan, open_crawl, run
from outrider.model.errors import InvalidInput

if TYPE_CHECKING:
    from outrider.crawler.plan import CrawlPlan
    from outrider.model.settings import Settings

RUNS_LOOKED_AT = 100


def refresh(
    domain: Annotated[
        list[str] | None,
        typer.Option(metavar="DOMAIN", help="All known pages of this domain, due or not; may be repeated."),
    ] = None,
    due_only: Annotated[bool, typer.Option("--due-only", help="Of these domains, only what is due.")] = False,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Fetch at most so many pages again.")] = None,
    enrol: Annotated[
        bool, typer.Option("--enrol", help="Look for pages that were crawled while refreshing was off.")
    ] = False,
    data: Data = None,
    store: Store = None,
    crawl: CrawlName = None,
    progress: Annotated[
        str, typer.Option(metavar="auto|plain|json|none", help="How to show progress, on stderr.")
    ] = "auto",
    config: Config = None,
) -> None:
    """Fetch the pages of a crawl again that are due, and follow the new links on them.

    Without an option these are the pages of the domains of which everything was crawled and whose time has come. How
    the crawl was begun, it is gone on with: its limits, its scope and its manners.
    """
    from outrider.cli.carrying_out import carry_out
    from outrider.cli.display import ProgressMode
    from outrider.crawler.refreshing import RefreshWish, check_mode

    if progress not in list(ProgressMode):
        raise InvalidInput(f"--progress must be one of {', '.join(ProgressMode)}, not {progress!r}")
    plan, settings = chosen_plan(data, store, crawl, config)
    check_mode(settings)
    if due_only and not domain:
        raise InvalidInput("--due-only is for domains that are named: without --domain, only what is due comes up")
    wish = RefreshWish(domains=tuple(domain or ()), due_only=due_only, limit=limit, enrol=enrol)
    sys.exit(carry_out(run(_plan_as_begun(plan, settings)), settings, ProgressMode(progress), wish))


async def _plan_as_begun(plan: "CrawlPlan", settings: "Settings") -> "CrawlPlan":
    """Give the plan that a crawl was last executed with; where to find it is as it was said now."""
    import msgspec

    from outrider.crawler.plan import CrawlPlan
    from outrider.model.job import RunKind

    async with open_crawl(plan, settings) as opened:
        if opened.crawl.conduct is not None:
            raise InvalidInput(
                f"crawl {opened.name} is run as a job: outrider jobs submit --refresh --crawl {opened.name}"
            )
        runs = await opened.stores.control.list_runs(opened.name, limit=RUNS_LOOKED_AT)
    begun = next((each.settings for each in runs if each.kind in (RunKind.CRAWL, RunKind.REFRESH)), {})
    own = {"seeds", "seeds_file", "data", "store", "crawl", "proxy", "output", "fresh"}
    kept = {name: begun[name] for name in CrawlPlan.__struct_fields__ if name in begun and name not in own}
    found = msgspec.to_builtins(plan) | kept | {"seeds": (), "seeds_file": None, "output": None, "fresh": False}
    try:
        return msgspec.convert(found, CrawlPlan)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"how crawl {plan.crawl} was begun cannot be read: {error}") from None
