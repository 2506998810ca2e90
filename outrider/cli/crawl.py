"""`outrider crawl`: the main job."""

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from outrider.cli.exits import ExitCode, exit_code_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from outrider.cli.display import Display, ProgressMode
    from outrider.cli.seeds import Seeds
    from outrider.crawler.plan import CrawlPlan
    from outrider.crawler.progress import CrawlEnding, Snapshot
    from outrider.model.settings import Settings
    from outrider.model.task import Discovered

LIMITS = "Limits"
POLITENESS = "Politeness"
FETCHING = "Fetching"
RESULTS = "Results"
REFUSALS_SHOWN = 10
LOG_FILE = "outrider.log"


def crawl(
    seeds: Annotated[list[str] | None, typer.Argument(metavar="SEED…", help="Where to begin: URLs or hosts.")] = None,
    seeds_file: Annotated[
        str | None,
        typer.Option("--seeds", metavar="FILE|-", help="More seeds: one per line, or CSV `rank,domain`."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder for the store, the WARC files and the log. [default: outrider-data]"),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="Another store, such as postgresql://… [default: SQLite in the data folder]"),
    ] = None,
    crawl: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the crawl. [default: DEFAULT]")] = None,
    scope: Annotated[
        str | None,
        typer.Option(metavar="host|domain|prefix|any", help="How far to go from the seeds. [default: host]"),
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(metavar="REGEX", help="Follow only URLs that match; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="REGEX", help="Follow no URLs that match; may be repeated.")
    ] = None,
    max_pages: Annotated[
        int | None, typer.Option(metavar="N", help="Stop after so many pages.", rich_help_panel=LIMITS)
    ] = None,
    max_pages_per_domain: Annotated[
        int | None, typer.Option(metavar="N", help="At most so many pages of one domain.", rich_help_panel=LIMITS)
    ] = None,
    max_depth: Annotated[
        int | None, typer.Option(metavar="N", help="Follow links at most so far from a seed.", rich_help_panel=LIMITS)
    ] = None,
    max_wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="End when nothing can be fetched for so long. [default: 900]",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Between two requests to one domain. [default: 1.0]", rich_help_panel=POLITENESS
        ),
    ] = None,
    per_domain: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Requests to one domain at the same time. [default: 1]", rich_help_panel=POLITENESS
        ),
    ] = None,
    robots: Annotated[
        bool | None,
        typer.Option("--robots/--no-robots", help="Obey robots.txt. [default: on]", rich_help_panel=POLITENESS),
    ] = None,
    ignore_nofollow: Annotated[
        bool | None,
        typer.Option("--ignore-nofollow", help="Follow links marked nofollow.", rich_help_panel=POLITENESS),
    ] = None,
    user_agent: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="How to introduce ourselves to sites.", rich_help_panel=POLITENESS),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(metavar="N", help="Fetches at the same time, over all. [default: 32]", rich_help_panel=FETCHING),
    ] = None,
    sitemaps: Annotated[
        bool | None,
        typer.Option(
            "--sitemaps/--no-sitemaps", help="Read the sitemaps that robots.txt names. [default: on]",
            rich_help_panel=FETCHING,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="For one whole fetch. [default: 60]", rich_help_panel=FETCHING),
    ] = None,
    max_body: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Cut longer bodies; 512k, 10MB. [default: 10MB]", rich_help_panel=FETCHING),
    ] = None,
    proxy: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Fetch through http://user:pass@host:port.", rich_help_panel=FETCHING),
    ] = None,
    allow_private: Annotated[
        bool | None,
        typer.Option("--allow-private", help="Fetch from private addresses too.", rich_help_panel=FETCHING),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(metavar="FILE|-", help="Write one JSON line per completed page.", rich_help_panel=RESULTS),
    ] = None,
    warc: Annotated[
        bool | None,
        typer.Option("--warc/--no-warc", help="Keep what was fetched in WARC files. [default: on]",
                     rich_help_panel=RESULTS),
    ] = None,
    fresh: Annotated[
        bool | None,
        typer.Option("--fresh", help="Forget the crawl's tasks first; never a site's blocks or clocks."),
    ] = None,
    progress: Annotated[
        str, typer.Option(metavar="auto|plain|json|none", help="How to show progress, on stderr.")
    ] = "auto",
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Settings file. [default: outrider.toml where there is one]")
    ] = None,
) -> None:  # fmt: skip
    """Crawl sites, politely and fast; run the same command again to go on where it stopped.

    Nothing is lost by a crash: what was done is done, what was under way is fetched again. Every option can also be
    set in the environment (OUTRIDER_MAX_PAGES) or in outrider.toml; `outrider config` shows what is in force.
    """
    flags = {name: value for name, value in locals().items() if name not in ("progress", "config")}
    from outrider.cli.display import ProgressMode
    from outrider.cli.options import load_plan
    from outrider.model.errors import InvalidInput

    if progress not in list(ProgressMode):
        raise InvalidInput(f"--progress must be one of {', '.join(ProgressMode)}, not {progress!r}")
    plan, settings, _ = load_plan(flags, config_path=config)
    sys.exit(carry_out(plan, settings, ProgressMode(progress)))


def carry_out(plan: "CrawlPlan", settings: "Settings", mode: "ProgressMode") -> ExitCode:
    """Execute a plan with a display and a summary; tell the exit code."""
    from outrider.cli.display import ProgressMode, make_display
    from outrider.cli.seeds import read_seeds
    from outrider.cli.summary import print_summary, summarise
    from outrider.model.errors import InvalidInput

    if not plan.seeds and plan.seeds_file is None:
        raise InvalidInput("name at least one seed: outrider crawl https://example.org, or --seeds FILE")
    if mode is ProgressMode.AUTO and plan.output == "-" and sys.stdout.isatty():
        mode = ProgressMode.PLAIN  # a picture that is drawn anew and lines of results do not go together
    seeds = read_seeds(plan)
    _allow_many_connections()
    display = make_display(mode)
    try:
        ended = run_to_its_end(_execute(plan, settings, seeds, display))
    finally:
        display.close()
    if ended.was_finished and mode is not ProgressMode.NONE:
        done = f"{ended.snapshot.counts.completed:,} pages"
        print(f"outrider: crawl {plan.crawl} is finished, with {done}; --fresh begins anew", file=sys.stderr)
    elif not ended.was_finished:
        print_summary(summarise(ended.snapshot, ended.ending, plan), mode)
    return exit_code_of(ended.ending)


class Ended(NamedTuple):
    """How an execution ended."""

    ending: "CrawlEnding"
    snapshot: "Snapshot"
    was_finished: bool


def run_to_its_end(work: "Coroutine[Any, Any, Ended]") -> Ended:
    """Run on the fast event loop, where there is one."""
    # The thread that writes to SQLite lets go of the interpreter with every statement, and waits this long to have it
    # back while fetches keep it busy: with the default of 5 ms a transaction of 20 statements took 100 ms.
    sys.setswitchinterval(0.0002)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


async def _execute(plan: "CrawlPlan", settings: "Settings", seeds: "Seeds", display: "Display") -> Ended:
    from outrider.crawler.execution import Execution

    stop = asyncio.Event()
    _stop_on_signals(stop, display)
    async with Execution(plan, settings) as execution:
        _log_to(Path(plan.data) / LOG_FILE)
        display.message(f"crawl {plan.crawl} in {plan.data}")
        ending = await execution.run(_discovered(seeds, display), stop, display.update)
        return Ended(ending, await execution.snapshot(), execution.was_finished)


def _discovered(seeds: "Seeds", display: "Display") -> "Iterator[Discovered]":
    """Give the seeds as discoveries, and tell of those that are none."""
    from outrider.model.task import Discovered, DiscoveryType
    from outrider.policy.discovery import priority_of

    for seed in seeds:
        priority = priority_of(DiscoveryType.SEED, rank=seed.rank)
        yield Discovered(url=seed.url, priority=priority, discovery_type=DiscoveryType.SEED)
    for refusal in seeds.refusals[:REFUSALS_SHOWN]:
        display.message(f"seed refused: {refusal}")
    if seeds.refused > REFUSALS_SHOWN:
        display.message(f"{seeds.refused - REFUSALS_SHOWN:,} more seeds refused")


def _stop_on_signals(stop: asyncio.Event, display: "Display") -> None:
    """Stop in order at the first signal, at once at the second."""

    def on_signal() -> None:
        if stop.is_set():
            # What is held is given back by the next process that sees this one gone.
            display.close()
            print("outrider: interrupted", file=sys.stderr, flush=True)
            os._exit(ExitCode.INTERRUPTED)
        display.message("stopping: what is under way is finished or given back; once more to stop at once")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)


def _allow_many_connections() -> None:
    """Have as many open files as the system lets us: a crawl of many sites keeps a connection to each for a while."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _log_to(path: Path) -> None:
    logging.basicConfig(
        filename=path, level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
    )
