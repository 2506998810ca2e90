"""`outrider explain`: why a URL was or was not fetched."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.exits import ExitCode
from outrider.cli.opened import AsJson, Config, CrawlName, Data, Store, chosen_plan, open_crawl, run, workers_of

if TYPE_CHECKING:
    from outrider.control.evidence import Evidence


def explain(
    url: Annotated[str, typer.Argument(metavar="URL", help="The URL, in any spelling.")],
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    crawl: CrawlName = None,
    config: Config = None,
) -> None:
    """Say why a URL was or was not fetched, what became of it, and what can be done.

    With --json the field `verdict` names the cause by a word that stays the same.
    """
    from outrider.control.evidence import gather, read_url
    from outrider.model.url import UrlRefused
    from outrider.policy.explaining import Cause

    plan, settings = chosen_plan(data, store, crawl, config)

    async def looking() -> "Evidence":
        async with open_crawl(plan, settings) as opened:
            workers = workers_of(plan)
            return await gather(opened.stores, opened.crawl, url, killed=workers.killed, processes=len(workers.living))

    try:
        read_url(url)
    except UrlRefused as refusal:
        if not as_json:
            raise
        typer.echo(json.dumps({"url": url, "verdict": Cause.REFUSED, "detail": str(refusal)}))
        sys.exit(ExitCode.REFUSED)
    evidence = run(looking())
    from outrider.cli.story import as_record, facts_of
    from outrider.cli.tables import print_facts

    if as_json:
        typer.echo(json.dumps(as_record(evidence, plan), ensure_ascii=False))
    else:
        print_facts(facts_of(evidence, plan))
