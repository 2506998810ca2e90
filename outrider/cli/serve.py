"""`outrider serve`: the frontier as a service."""

import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from outrider.cli.supervise import MEMORY_LIMIT, MOST_RUNNERS, bytes_of

if TYPE_CHECKING:
    from outrider.crawler.plan import CrawlPlan
    from outrider.model.settings import Settings
    from outrider.service.server import Server, ServerOptions

PORT = 7071
SECURITY = "Security"
JOBS = "Jobs"


def serve(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; elsewhere than here it needs a key.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0 takes a free one.")] = PORT,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the store. [default: outrider-data]")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="Another store, such as postgresql://… [default: SQLite in the data folder]"),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate, in PEM.", rich_help_panel=SECURITY)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its private key, in PEM.", rich_help_panel=SECURITY)
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take only clients with a certificate of these.", rich_help_panel=SECURITY),
    ] = None,
    rate_limit: Annotated[
        float, typer.Option(metavar="N", min=1, help="Requests per second of one key.", rich_help_panel=SECURITY)
    ] = 2_000,
    allow_private: Annotated[
        bool | None,
        typer.Option("--allow-private", help="Take URLs of private addresses too.", rich_help_panel=SECURITY),
    ] = None,
    with_runners: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=MOST_RUNNERS, help="Run jobs too, so many at once.", rich_help_panel=JOBS),
    ] = 0,
    memory_limit: Annotated[
        str,
        typer.Option(metavar="SIZE", help="A runner with more in use is ended.", rich_help_panel=JOBS),
    ] = MEMORY_LIMIT,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Settings file. [default: outrider.toml where there is one]")
    ] = None,
) -> None:
    """Serve the frontier over HTTP and gRPC on one port, to crawlers of any kind.

    Several services may share one PostgreSQL. Without a key in the store, nobody but this machine is served:
    `outrider keys create NAME` makes one.
    """
    from outrider.cli.logs import log_to_standard_error
    from outrider.cli.options import load_plan
    from outrider.cli.running import run_to_its_end
    from outrider.service.server import ServerOptions, Tls

    plan, settings, _ = load_plan({"data": data, "store": store, "allow_private": allow_private}, config_path=config)
    tls = None
    if tls_cert is not None and tls_key is not None:
        tls = Tls(certificate=tls_cert, key=tls_key, client_authority=tls_client_ca)
    elif tls_cert is not None or tls_key is not None or tls_client_ca is not None:
        from outrider.model.errors import InvalidInput

        raise InvalidInput("TLS needs both --tls-cert and --tls-key")
    log_to_standard_error()
    options = ServerOptions(host=host, port=port, tls=tls)
    jobs = Jobs(with_runners, bytes_of(memory_limit))
    run_to_its_end(_serve(plan, settings, options, rate_limit, jobs))


class Jobs(NamedTuple):
    """How jobs are run beside the service."""

    runners: int
    """None are where this is 0."""
    memory_limit: int


async def _serve(plan: "CrawlPlan", settings: "Settings", options: "ServerOptions", rate: float, jobs: Jobs) -> None:
    from outrider.cli.supervising import delivering, supervising
    from outrider.crawler.plan import store_dsn
    from outrider.service.app import open_service
    from outrider.service.server import serve as serve_until_stopped
    from outrider.store.dsn import parse_dsn

    only_local = is_loopback(options.host)
    dsn = store_dsn(plan)
    async with open_service(
        dsn, settings, only_local=only_local, rate=rate, allow_private=plan.allow_private
    ) as service:
        has_keys = any(key.revoked_at is None for key in await service.backend.stores.control.list_keys())
        if not only_local and not has_keys:
            _refuse_without_key(plan, options.host)

        def tell(server: "Server") -> None:
            print(f"outrider: serving {parse_dsn(dsn).shown} on {server.base_url}, see /docs", file=sys.stderr)
            if not has_keys:
                print(
                    "outrider: there are no API keys, so only this machine is served; to serve others, make one with "
                    "`outrider keys create NAME` and give --host 0.0.0.0",
                    file=sys.stderr,
                )
            elif not only_local and options.tls is None:
                print("outrider: without --tls-cert, keys travel readable for all on the way", file=sys.stderr)
            sys.stderr.flush()

        async with AsyncExitStack() as stack:
            await stack.enter_async_context(delivering(service, plan))
            if jobs.runners:
                await stack.enter_async_context(
                    supervising(service, plan, settings, runners=jobs.runners, memory_limit=jobs.memory_limit)
                )
            await serve_until_stopped(service, options, on_ready=tell, on_stop=[service.stop])


def _refuse_without_key(plan: "CrawlPlan", host: str) -> None:
    from outrider.cli.options import without_password
    from outrider.model.errors import InvalidInput

    where = f"--store {without_password(plan.store)}" if plan.store else f"--data {plan.data}"
    raise InvalidInput(
        f"{host} can be reached from other machines, and there is no API key: make one with "
        f"`outrider keys create NAME {where}`, or serve this machine only with --host 127.0.0.1"
    )


def is_loopback(host: str) -> bool:
    """Tell whether an address can be reached from this machine only."""
    from ipaddress import ip_address

    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
