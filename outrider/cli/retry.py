"""`outrider retry-failed`: give what failed a fresh start."""

import json

import typer

from outrider.cli.opened import (
    AsJson,
    Config,
    CrawlName,
    Data,
    Store,
    chosen_plan,
    crawl_again,
    open_crawl,
    run,
    workers_of,
)
from outrider.cli.urls import Domain, Filter, KindName, task_filter


def retry_failed(
    domain: Domain = None,
    text: Filter = None,
    kind: KindName = None,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    crawl: CrawlName = None,
    config: Config = None,
) -> None:
    """Make failed URLs pending again, with all their retries; the next crawl fetches them.

    Without an option, all that failed. What robots.txt forbids will be refused again, unless that has changed.
    """
    plan, settings = chosen_plan(data, store, crawl, config)

    async def retrying() -> tuple[int, str]:
        async with open_crawl(plan, settings) as opened:
            which = task_filter(opened, domain=domain, text=text, kind=kind)
            number = await opened.urls.retry_failed(opened.name, which)
            runs = await opened.stores.control.list_runs(opened.name, limit=1)
            return number, crawl_again(plan, runs[0] if runs else None)

    number, again = run(retrying())
    if as_json:
        typer.echo(json.dumps({"crawl": plan.crawl, "retried": number}))
    elif not number:
        typer.echo("nothing that failed is like that" if domain or text or kind else "nothing has failed")
    else:
        typer.echo(f"{number:,} failed URL{'s' if number > 1 else ''} of crawl {plan.crawl} will be tried again")
        typer.echo("the crawl that is running takes them" if workers_of(plan).living else f"next: {again}")
