"""`outrider supervise`: run crawl jobs."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from outrider.crawler.plan import CrawlPlan
    from outrider.model.settings import Settings

MOST_RUNNERS = 1_000
MOST_PORT = 65_535
MEMORY_LIMIT = "2GiB"

MemoryLimit = Annotated[
    str, typer.Option(metavar="SIZE", help="A runner with more memory in use is ended, and its job tried again.")
]


def supervise(
    runners: Annotated[
        int, typer.Option(metavar="N", min=1, max=MOST_RUNNERS, help="Jobs at the same time, each in a process.")
    ] = 2,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of store and WARC files. [default: outrider-data]")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="Another store, such as postgresql://… [default: SQLite in the data folder]"),
    ] = None,
    memory_limit: MemoryLimit = MEMORY_LIMIT,
    user_agent: Annotated[
        str | None, typer.Option(metavar="TEXT", help="How to introduce ourselves, where the job does not say.")
    ] = None,
    proxy: Annotated[str | None, typer.Option(metavar="URL", help="Fetch through a proxy.")] = None,
    allow_private: Annotated[
        bool | None, typer.Option("--allow-private", help="Fetch from private addresses too.")
    ] = None,
    warc: Annotated[
        bool | None, typer.Option("--warc/--no-warc", help="Keep what was fetched in WARC files. [default: on]")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where to serve /metrics, /healthz and /readyz. [default: nowhere]"),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Settings file. [default: outrider.toml where there is one]")
    ] = None,
) -> None:
    """Claim crawl jobs and run them, until stopped; start any number of these on one PostgreSQL.

    Jobs are submitted with `outrider jobs submit`. A stop in order gives them to whoever is left; what dies is found
    by the next.
    """
    from outrider.cli.logs import log_to_standard_error
    from outrider.cli.options import load_plan
    from outrider.cli.running import run_to_its_end

    flags = {
        "data": data, "store": store, "user_agent": user_agent, "proxy": proxy, "allow_private": allow_private,
        "warc": warc,
    }  # fmt: skip
    plan, settings, _ = load_plan(flags, config_path=config)
    allowed = bytes_of(memory_limit)
    door = None if metrics is None else address_of(metrics)
    log_to_standard_error()
    run_to_its_end(_supervise(plan, settings, runners, allowed, door))


def bytes_of(memory_limit: str) -> int:
    """Read how much memory a runner may have."""
    from outrider.cli.settings import read_value, size

    return int(str(read_value("--memory-limit", size(64 << 20, 1 << 50), memory_limit, as_text=True)))


def address_of(text: str) -> tuple[str, int]:
    """Read a host and a port.

    >>> address_of("127.0.0.1:9100"), address_of("[::1]:0")
    (('127.0.0.1', 9100), ('::1', 0))
    """
    from outrider.model.errors import InvalidInput, shown

    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > MOST_PORT:
        raise InvalidInput(f"--metrics {shown(text)} is not of the form HOST:PORT")
    return host.strip("[]"), int(port)


async def _supervise(
    plan: "CrawlPlan", settings: "Settings", runners: int, memory_limit: int, door: tuple[str, int] | None
) -> None:
    import asyncio
    from contextlib import AsyncExitStack

    from outrider.cli.serve import is_loopback
    from outrider.cli.supervising import delivering, supervising
    from outrider.cli.work import stop_on_signals
    from outrider.crawler.plan import store_dsn
    from outrider.service.app import open_service
    from outrider.service.metrics_door import open_metrics_door
    from outrider.store.dsn import parse_dsn

    stop = asyncio.Event()
    stop_on_signals(stop)
    dsn = store_dsn(plan)
    async with AsyncExitStack() as stack:
        is_local = door is None or is_loopback(door[0])
        service = await stack.enter_async_context(open_service(dsn, settings, only_local=is_local))
        if door is not None:
            address = await stack.enter_async_context(open_metrics_door(service, *door))
            print(f"outrider: metrics on {address}/metrics", file=sys.stderr, flush=True)
        await stack.enter_async_context(delivering(service, plan))
        supervision = supervising(service, plan, settings, runners=runners, memory_limit=memory_limit)
        await stack.enter_async_context(supervision)
        print(f"outrider: supervising {parse_dsn(dsn).shown} with {runners} runners", file=sys.stderr, flush=True)
        await stop.wait()
