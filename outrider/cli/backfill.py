"""`outrider backfill`: take over what other crawlers knew of domains and URLs."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.opened import AsJson, Config, CrawlName, Data, Store, chosen_plan, is_there, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.control.backfill.columns import ColumnMap
    from outrider.control.backfill.filling import BackfillOutcome, BackfillProgress
    from outrider.crawler.plan import CrawlPlan
    from outrider.model.backfill import BackfillFigures
    from outrider.model.settings import Settings

TOLD_EVERY_S = 5.0
FOLDER = "backfill"
"""Where workbenches lie in the data folder."""


def backfill(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="DSN|FILE",
            help="sqlite:///… or postgresql://… with a crawl log; CSV or JSON lines of one; the JOBDIR of a Scrapy "
            "job; the dump of a URLFrontier.",
        ),
    ],
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="TABLE=NAME",
            help="Another table (crawl_log=old.log) or column (crawl_log.status=code); may be repeated.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, and change nothing.")] = False,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    crawl: CrawlName = None,
    config: Config = None,
) -> None:
    """Take over what other crawlers knew: pages and images by domain, and URLs that are yet to be fetched.

    Adds what is missing and changes nothing that was counted here. Stopped or killed, the same command goes on;
    repeated, it finds nothing left to do. Rows that cannot be read are refused one by one, their reasons counted.
    """
    from outrider.control.backfill.columns import read_map

    plan, settings = chosen_plan(data, store, crawl, config)
    outcome = run(_fill(plan, settings, source, read_map(mapping or []), dry_run, _teller()))
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(outcome))
    else:
        _print(outcome)


def _teller() -> "Callable[[BackfillProgress], None]":
    """Tell of the progress now and then."""
    last = time.monotonic()

    def tell(progress: "BackfillProgress") -> None:
        nonlocal last
        if time.monotonic() - last >= TOLD_EVERY_S:
            last = time.monotonic()
            domains = f", {progress.domains:,} domains taken over" if progress.domains else ""
            typer.echo(f"{progress.rows_read:,} rows read, {progress.rows_refused:,} refused{domains}", err=True)

    return tell


async def _fill(
    plan: "CrawlPlan",
    settings: "Settings",
    text: str,
    mapping: "ColumnMap",
    dry_run: bool,
    tell: "Callable[[BackfillProgress], None]",
) -> "BackfillOutcome":
    import tempfile
    from contextlib import AsyncExitStack
    from pathlib import Path

    from outrider.control.backfill.filling import backfill_id, fill_from_rows, fill_from_urls
    from outrider.control.backfill.scrapy import ScrapyJob
    from outrider.control.backfill.sources import recognise
    from outrider.control.backfill.urlfrontier import UrlFrontierDump
    from outrider.crawler.plan import store_dsn
    from outrider.store.opening import open_store

    dsn = store_dsn(plan)
    source = recognise(text, mapping)
    async with AsyncExitStack() as stack:
        folder = Path(plan.data) / FOLDER
        if dry_run:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outrider-backfill-")))
            dsn = dsn if is_there(dsn) else f"sqlite:///{folder}/empty.sqlite"
        stores = await stack.enter_async_context(await open_store(dsn, settings))
        if isinstance(source, (ScrapyJob, UrlFrontierDump)):
            name = backfill_id(source, plan.crawl)
            return await fill_from_urls(stores, source, name, plan.crawl, tell, dry_run=dry_run)
        stack.push_async_callback(source.close)
        name = backfill_id(source, mapping.described())
        return await fill_from_rows(stores, source, name, folder / f"{name}.sqlite", tell, dry_run=dry_run)
    raise AssertionError("the stack lets no error pass")


def _print(outcome: "BackfillOutcome") -> None:
    from outrider.cli.tables import print_facts
    from outrider.model.task import Added

    would, step = "would be " if outcome.dry_run else "", outcome.domains
    counted = f"{step.new:,} {would}new, {step.added_to:,} {would}added to, {step.unchanged:,} taken over before"
    facts = [
        ("source", f"{outcome.source} ({outcome.kind})"),
        ("rows", f"{outcome.rows_read:,} read, {outcome.rows_refused:,} refused"),
        ("domains", f"{outcome.source_domains:,} in the source: {counted}"),
    ]
    if outcome.urls is not None and not outcome.dry_run:
        facts.append(("URLs", f"{outcome.urls[Added.NEW]:,} new, {outcome.urls[Added.KNOWN]:,} known"))
    facts += [("refused", f"{each.number:,} for {each.reason}: {each.example}") for each in outcome.refusals]
    facts += [("note", remark) for remark in outcome.remarks]
    if outcome.figures is not None:
        facts += _figures(outcome.figures)
    print_facts(facts)


def _figures(figures: "BackfillFigures") -> list[tuple[str, str]]:
    facts = [("store", f"{figures.backfilled_domains:,} of {figures.total_domains:,} domains came by backfills")]
    for each in figures.by_status:
        images = "no page" if each.average_yield is None else f"{each.average_yield:.2f} images stored per page"
        domains = f"{each.domains:,} domain{'s' if each.domains != 1 else ''}"
        text = f"{domains}, on average {each.average_pages:,.1f} pages crawled, {images}"
        facts.append((each.status.value, text))
    return facts
