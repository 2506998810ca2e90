"""`outrider work`: crawl for a frontier that is served elsewhere."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.exits import ExitCode, exit_code_of
from outrider.cli.logs import log_to_standard_error

if TYPE_CHECKING:
    import asyncio
    import ssl

    from outrider.crawler.plan import CrawlPlan
    from outrider.crawler.progress import CrawlEnding
    from outrider.model.settings import Settings
    from outrider.service.client import RemoteFrontier

SERVICE = "Service"
FETCHING = "Fetching"
RESULTS = "Results"


def work(
    frontier: Annotated[
        str, typer.Option(metavar="URL", envvar="OUTRIDER_FRONTIER", help="The service.", rich_help_panel=SERVICE)
    ],
    crawl: Annotated[str | None, typer.Option(metavar="NAME", help="Work for this crawl.")] = None,
    every: Annotated[bool, typer.Option("--any", help="Work for all crawls of the service, in rotation.")] = False,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="End when the crawl is done, instead of waiting for more.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", envvar="OUTRIDER_KEY", help="API key; better in the variable.", rich_help_panel=SERVICE
        ),
    ] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Trust certificates of these.", rich_help_panel=SERVICE)
    ] = None,
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
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Fetches at the same time. [default: 32]", rich_help_panel=FETCHING)
    ] = None,
    sitemaps: Annotated[
        bool | None,
        typer.Option("--sitemaps/--no-sitemaps", help="Read sitemaps. [default: on]", rich_help_panel=FETCHING),
    ] = None,
    ignore_nofollow: Annotated[
        bool | None,
        typer.Option("--ignore-nofollow", help="Follow links marked nofollow.", rich_help_panel=FETCHING),
    ] = None,
    user_agent: Annotated[
        str | None, typer.Option(metavar="TEXT", help="How to introduce ourselves.", rich_help_panel=FETCHING)
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="For one whole fetch. [default: 60]", rich_help_panel=FETCHING),
    ] = None,
    max_body: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Cut longer bodies. [default: 10MB]", rich_help_panel=FETCHING)
    ] = None,
    proxy: Annotated[
        str | None, typer.Option(metavar="URL", help="Fetch through a proxy.", rich_help_panel=FETCHING)
    ] = None,
    allow_private: Annotated[
        bool | None,
        typer.Option("--allow-private", help="Fetch from private addresses too.", rich_help_panel=FETCHING),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder for WARC files. [default: outrider-data]", rich_help_panel=RESULTS),
    ] = None,
    warc: Annotated[
        bool | None,
        typer.Option(
            "--warc/--no-warc", help="Keep what was fetched in WARC files. [default: on]", rich_help_panel=RESULTS
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Settings file. [default: outrider.toml where there is one]")
    ] = None,
) -> None:
    """Fetch what a service hands out and report what became of it; start as many of these as you like.

    How polite to be, how far to go and whether to obey robots.txt is the crawl's own, set at the service. A worker
    outlives restarts of the service; one that is stopped gives back what it holds.
    """
    plan_flags = {
        name: value
        for name, value in locals().items()
        if name not in ("frontier", "every", "until_done", "key", "tls_ca", "config")
    }

    from outrider.cli.options import load_plan
    from outrider.cli.running import run_to_its_end
    from outrider.crawler.worker import STORE_PATIENCE_S
    from outrider.model.errors import InvalidInput
    from outrider.service.client import connect

    if (crawl is None) != every:
        raise InvalidInput("name one crawl with --crawl NAME, or work for all with --any")
    if every and until_done:
        raise InvalidInput("--until-done is for one crawl: with --any there may always be another")
    plan, settings, _ = load_plan(plan_flags, config_path=config)
    log_to_standard_error()
    # In the middle of a visit a call has no other patience than this.
    service = connect(frontier, key=key, tls=trusting(tls_ca), patience_s=STORE_PATIENCE_S)
    ending = run_to_its_end(_work(service, plan, settings, None if every else plan.crawl, until_done=until_done))
    sys.exit(ExitCode.OK if ending is None else exit_code_of(ending))


def trusting(authority: Path | None) -> "ssl.SSLContext | None":
    """Trust the certificates that these authorities have signed; None is the system's own choice."""
    if authority is None:
        return None
    import ssl

    from outrider.model.errors import InvalidInput

    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise InvalidInput(f"--tls-ca {authority} cannot be used: {error}") from None


async def _work(
    frontier: "RemoteFrontier", plan: "CrawlPlan", settings: "Settings", crawl: str | None, *, until_done: bool
) -> "CrawlEnding | None":
    import asyncio

    stop = asyncio.Event()
    stop_on_signals(stop)
    async with frontier:
        return await work_for(frontier, plan, settings, crawl, stop, until_done=until_done)


async def work_for(
    frontier: "RemoteFrontier",
    plan: "CrawlPlan",
    settings: "Settings",
    crawl: str | None,
    stop: "asyncio.Event",
    *,
    until_done: bool,
) -> "CrawlEnding | None":
    """Work for an open frontier until stopped, or until the crawl is done; tell how it ended."""
    import socket

    from outrider.crawler.crew import Crew
    from outrider.crawler.scheduling import Scheduling
    from outrider.model.identifiers import new_uuid7

    # Never used before: leases of a process that had the same name are not ours.
    name = f"{socket.gethostname()[:150]}-{os.getpid()}-{new_uuid7()}"
    lease_ms, remembers = settings.crash_threshold_ms, settings.enable_refresh_mode
    scheduling = Scheduling.of(settings, claims=plan.claims)
    async with Crew(frontier, plan, lease_ms=lease_ms, name=name, remembers=remembers, scheduling=scheduling) as crew:
        _tell(f"working for {crawl or 'all crawls'} at {frontier.base}")
        ending = await crew.work(crawl, stop, until_done=until_done)
        progress = crew.progress
    _tell(f"{progress.fetched:,} answers, {progress.bytes_received:,} bytes" + (f"; {ending}" if ending else ""))
    return ending


def _tell(message: str) -> None:
    print(f"outrider: {message}", file=sys.stderr, flush=True)


def stop_on_signals(stop: "asyncio.Event") -> None:
    """Stop in order at the first signal, at once at the second."""
    import asyncio
    import signal

    def on_signal() -> None:
        if stop.is_set():
            os._exit(ExitCode.INTERRUPTED)  # what is held comes back when its leases end
        _tell("stopping: what is under way is finished or given back; once more to stop at once")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
