"""`outrider crawl`: the main job."""

import sys
from typing import Annotated

import typer

LIMITS = "Limits"
POLITENESS = "Politeness"
FETCHING = "Fetching"
RESULTS = "Results"


def crawl(
    seeds: Annotated[list[str] | None, typer.Argument(metavar="SEED…", help="Where to begin: URLs or hosts.")] = None,
    seeds_file: Annotated[
        str | None,
        typer.Option(
            "--seeds", metavar="FILE|-|REDIS",
            help="More seeds: one per line, CSV `rank,domain`, or a sorted set redis://host/0/key.",
        ),
    ] = None,
    seeds_source: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What to call the list of the seeds. [default: as it is called]"),
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
    claims: Annotated[
        bool | None,
        typer.Option("--claims", help="Claim domains first: each is crawled by one process at a time."),
    ] = None,
    fresh: Annotated[
        bool | None,
        typer.Option("--fresh", help="Forget the crawl's tasks first; never a site's blocks or clocks."),
    ] = None,
    frontier: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="OUTRIDER_FRONTIER", help="Have a service keep the crawl, and work for it."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="OUTRIDER_KEY", help="API key of the service; better in the variable."),
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
    flags = {name: value for name, value in locals().items() if name not in ("progress", "config", "frontier", "key")}
    from outrider.cli.carrying_out import carry_out
    from outrider.cli.display import ProgressMode
    from outrider.cli.options import load_plan
    from outrider.model.errors import InvalidInput

    if progress not in list(ProgressMode):
        raise InvalidInput(f"--progress must be one of {', '.join(ProgressMode)}, not {progress!r}")
    plan, settings, _ = load_plan(flags, config_path=config)
    if frontier is None:
        sys.exit(carry_out(plan, settings, ProgressMode(progress)))
    from outrider.cli.display import make_display
    from outrider.cli.exits import ExitCode, exit_code_of
    from outrider.cli.remote_crawl import crawl_for_service
    from outrider.crawler.worker import STORE_PATIENCE_S
    from outrider.service.client import connect

    service = connect(frontier, key=key, patience_s=STORE_PATIENCE_S)
    ending = crawl_for_service(service, plan, settings, make_display(ProgressMode(progress)))
    sys.exit(ExitCode.OK if ending is None else exit_code_of(ending))
