"""`outrider demo`: a first crawl that needs no internet."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.exits import ExitCode
from outrider.model.errors import InvalidInput

if TYPE_CHECKING:
    from outrider.crawler.plan import CrawlPlan
    from outrider.demo.site import SiteOptions
    from outrider.model.settings import Settings

DEFAULT_PORT = 8807
PORTS_TRIED = 50
FOLDER = "outrider-demo"
PAGES = 300
SERVED_PAGES = 2_000
HOST = "127.0.0.1"


def demo(
    serve: Annotated[bool, typer.Option("--serve", help="Only serve the site, until Ctrl-C.")] = False,
    port: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=65535, help=f"Its port. [default: {DEFAULT_PORT}, or the next free one]"),
    ] = None,
    pages: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"How many ordinary pages it has. [default: {PAGES}; served: {SERVED_PAGES:,}]"),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Another number makes another site.")] = 1,
    oddities: Annotated[
        bool, typer.Option("--oddities/--no-oddities", help="Traps, errors, redirects, slow and broken pages.")
    ] = True,
    data: Annotated[str, typer.Option(metavar="DIR", help="Folder for the crawl.")] = FOLDER,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew even where the last demo was stopped.")] = False,
    progress: Annotated[
        str, typer.Option(metavar="auto|plain|json|none", help="How to show progress, on stderr.")
    ] = "auto",
) -> None:
    """Crawl a made-up site on this machine, with everything that goes wrong on the web.

    One that was stopped goes on where it stopped; one that was finished begins anew.
    """
    from outrider.demo.site import SiteOptions

    default = SERVED_PAGES if serve else PAGES
    try:
        options = SiteOptions(pages=default if pages is None else pages, seed=seed, oddities=oddities)
    except ValueError as problem:
        raise InvalidInput(str(problem)) from None
    if serve:
        _serve(options, port)
    else:
        sys.exit(_crawl(options, port, data, fresh=fresh, progress=progress))


def _serve(options: "SiteOptions", port: int | None) -> None:
    import asyncio

    from outrider.demo.server import serve

    chosen = _free_port(port)
    typer.echo("serving a made-up site until Ctrl-C; try: outrider crawl ADDRESS --delay 0 --max-pages 1000", err=True)
    try:
        asyncio.run(serve(options, [HOST], chosen, None))
    except OSError as error:
        raise _cannot_serve(chosen, error) from None


def _crawl(options: "SiteOptions", port: int | None, data: str, *, fresh: bool, progress: str) -> int:
    import msgspec

    from outrider.cli.carrying_out import carry_out
    from outrider.cli.display import ProgressMode
    from outrider.cli.opened import one_of, run
    from outrider.crawler.plan import CrawlPlan
    from outrider.model.settings import Settings

    # Small enough for a demonstration: the limits are met all the same.
    options = msgspec.structs.replace(options, many_links=200, slow_s=0.5)
    mode = ProgressMode(one_of("--progress", progress, list(ProgressMode)) or "auto")
    # A site with so much wrong, all on one host, would be left alone for hours by the usual patience.
    settings = Settings(max_retries=3, max_deferrals=3, retry_base_ms=500, backoff_base_ms=500, backoff_cap_ms=1_000)
    stopped = None if fresh else run(_stopped_demo(data, settings))
    if stopped is not None and port in (None, stopped) and _is_free(stopped):
        port, begins_anew = stopped, False
    else:
        port, begins_anew = _free_port(port), True
    with _served(options, port) as address:
        plan = CrawlPlan(
            seeds=(f"{address}/",), data=data, delay=0.0, per_domain=16, max_depth=4, timeout=1.5, max_body=2**20,
            allow_private=True, max_wait=30.0, fresh=begins_anew,
        )  # fmt: skip
        code = carry_out(plan, settings, mode)
    if code == ExitCode.OK and mode in (ProgressMode.AUTO, ProgressMode.PLAIN):
        typer.echo(_what_next(plan, address, with_oddities=options.oddities), err=True)
    return code


async def _stopped_demo(data: str, settings: "Settings") -> int | None:
    """Find a demo in the folder that did not come to its end, and tell its port."""
    from urllib.parse import urlsplit

    from outrider.cli.opened import open_crawl
    from outrider.crawler.plan import CrawlPlan
    from outrider.model.job import RunStatus

    try:
        async with open_crawl(CrawlPlan(data=data), settings) as opened:
            runs = await opened.stores.control.list_runs(opened.name, limit=1)
    except InvalidInput:
        return None
    seeds = runs[0].settings.get("seeds") if runs else None
    if not runs or runs[0].status is RunStatus.COMPLETED or not isinstance(seeds, list) or len(seeds) != 1:
        return None
    return urlsplit(str(seeds[0])).port


@contextmanager
def _served(options: "SiteOptions", port: int) -> Iterator[str]:
    """Serve the site from a thread of its own, so that the crawl has the main one and its signals."""
    import asyncio
    import threading

    from outrider.demo.server import DemoServer

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="demo site", daemon=True)
    thread.start()
    server = DemoServer(options, hosts=[HOST], port=port)
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
        try:
            yield server.base_url
        finally:
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
    except OSError as error:
        raise _cannot_serve(port, error) from None
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _cannot_serve(port: int, error: OSError) -> InvalidInput:
    import os

    problem = os.strerror(error.errno) if error.errno else str(error)
    return InvalidInput(f"cannot serve on port {port} of {HOST}: {problem}; --port names another")


def _free_port(wanted: int | None) -> int:
    """Take the port that was asked for, or the first free one from the usual on: URLs then stay the same."""
    if wanted is not None:
        return wanted
    return next((port for port in range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TRIED) if _is_free(port)), 0)


def _is_free(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _what_next(plan: "CrawlPlan", address: str, *, with_oddities: bool) -> str:
    from outrider.cli.opened import same_crawl

    explain = f"{same_crawl('explain', plan)} {address}"
    lines = ["", "The site is gone, its crawl is kept. Try:", f"  {same_crawl('status', plan)}"]
    if with_oddities:
        lines += [
            f"  {same_crawl('urls', plan)} --state failed",
            f"  {explain}/odd/private/1  # forbidden",
            f"  {explain}/odd/always/500  # broken",
            f"  {explain}/odd/chain/0  # redirected to",
            f"  {same_crawl('explain', plan)} '{address}/odd/variants?sort=1&size=3&size=1'  # too deep",
        ]
    else:
        lines.append(f"  {explain}/")
    lines += [f"  {same_crawl('export', plan)} --output pages.jsonl", "  outrider demo --serve"]
    return "\n".join(lines)
