"""`outrider domain`: look at domains, and say what is to become of them."""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.domain_desk import ask, open_domain_desk
from outrider.cli.job_desk import Config, Data, Frontier, Key, Place, Store, TlsAuthority
from outrider.model.errors import InvalidInput

if TYPE_CHECKING:
    from outrider.control.domain_desk import DomainDesk
    from outrider.control.domain_verify import Verification
    from outrider.model.domain import ClaimOverview, Domain, DomainStep

app = typer.Typer(no_args_is_help=True, help="Look at domains, reset, block, merge and verify them.")
claims_app = typer.Typer(help="Show who holds claims on domains, and end them.")
app.add_typer(claims_app, name="claims")

DomainName = Annotated[str, typer.Argument(metavar="DOMAIN", help="The domain, or a URL of it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the history.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")]

AT_ONCE = 500
STATUS_LIMIT = 50
TOP_LIMIT = 20
STEPS_LIMIT = 50


@app.command()
def status(
    only: Annotated[
        str | None,
        typer.Option("--status", metavar="pending|active|exhausted|blocked|unreachable", help="Only those that are."),
    ] = None,
    sort: Annotated[str, typer.Option(metavar="crawled|priority|yield|name", help="What comes first.")] = "crawled",
    limit: Limit = STATUS_LIMIT,
    every: Annotated[bool, typer.Option("--all", help="All of them, however many.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """List domains: how each stands, pages and images so far, and why some are left alone."""
    from outrider.cli.domain_tables import DomainTable
    from outrider.cli.opened import one_of
    from outrider.model.domain_view import DomainSort
    from outrider.model.machines import DomainStatus

    chosen = one_of("--status", only, [each.value for each in DomainStatus])
    which = None if chosen is None else DomainStatus(chosen)
    order = DomainSort(str(one_of("--sort", sort, [each.value for each in DomainSort])))
    table, most = DomainTable(as_json=as_json), None if every else limit

    async def printing(desk: "DomainDesk") -> str | None:
        cursor: str | None = None
        while most is None or table.printed < most:
            number = AT_ONCE if most is None else min(most - table.printed, AT_ONCE)
            page = await desk.page(which, sort=order, cursor=cursor, limit=number)
            table.print(page.domains)
            cursor = page.next_cursor
            if cursor is None:
                break
        return cursor

    more = ask(Place(data, store, frontier, key, tls_ca, config), printing)
    if table.printed == 0:
        typer.echo("no domain is like that", err=True)
    elif more is not None:
        typer.echo(f"the first {most:,}; --limit or --all shows more", err=True)


@app.command()
def top(
    limit: Limit = TOP_LIMIT,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """List the domains with the most images per page, as it was last worked out."""
    from outrider.cli.domain_tables import DomainTable

    found = ask(Place(data, store, frontier, key, tls_ca, config), lambda desk: desk.top(limit))
    DomainTable(as_json=as_json).print(found)
    if not found:
        typer.echo("no yield is worked out yet: it takes crawled pages, and `outrider domain recalculate`", err=True)


@app.command()
def info(
    domain: DomainName,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Tell all that is known of a domain."""
    import msgspec

    from outrider.cli.domain_tables import facts_of
    from outrider.cli.tables import print_facts

    view = ask(Place(data, store, frontier, key, tls_ca, config), lambda desk: desk.show(domain))
    if as_json:
        typer.echo(msgspec.json.encode(view))
    else:
        print_facts(facts_of(view))


@app.command()
def history(
    domain: DomainName,
    after: Annotated[int, typer.Option(metavar="ID", min=0, help="Only steps after the one with this id.")] = 0,
    limit: Limit = STEPS_LIMIT,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """List the steps of a domain's life, the oldest first."""
    import msgspec

    from outrider.cli.domain_tables import step_line

    async def looking(desk: "DomainDesk") -> "list[DomainStep]":
        found: list[DomainStep] = []
        position = after
        while len(found) < limit:
            number = min(limit - len(found), AT_ONCE)
            steps = await desk.history(domain, after=position, limit=number)
            found += steps
            if len(steps) < number:
                break
            position = steps[-1].history_id
        return found

    steps = ask(Place(data, store, frontier, key, tls_ca, config), looking)
    for step in steps:
        typer.echo(msgspec.json.encode(step) if as_json else step_line(step))
    if not steps:
        typer.echo("nothing has become of it yet", err=True)
    elif len(steps) == limit:
        typer.echo(f"--after {steps[-1].history_id} shows what came then", err=True)


@app.command()
def reset(
    domain: DomainName,
    reason: Reason = None,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Make an exhausted, blocked or unreachable domain pending, with a clean slate."""
    place = Place(data, store, frontier, key, tls_ca, config)
    _change(place, lambda desk: desk.reset(domain, reason), as_json=as_json)


@app.command()
def block(
    domain: DomainName,
    until: Annotated[
        str | None, typer.Option(metavar="SPAN|DATE", help="7d, 12h, or 2027-01-31. [default: for good]")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, to be shown with it.")] = None,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Close a domain to every crawl, also before its first URL."""
    from outrider.cli.domain_desk import moment_of

    closed_until = None if until is None else moment_of(until)
    place = Place(data, store, frontier, key, tls_ca, config)
    _change(place, lambda desk: desk.block(domain, until=closed_until, reason=reason), as_json=as_json)


@app.command()
def unblock(
    domain: DomainName,
    reason: Reason = None,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Open a domain again; a blocked one is active, an unreachable one pending."""
    place = Place(data, store, frontier, key, tls_ca, config)
    _change(place, lambda desk: desk.unblock(domain, reason), as_json=as_json)


@app.command()
def merge(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to merge, exactly as it is stored.")],
    into: Annotated[str, typer.Argument(metavar="DOMAIN", help="What to merge it into.")],
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Merge two rows for what is one domain: the older is kept, counters are added up.

    A domain of which the frontier has URLs is not merged: they say whose they are.
    """
    place = Place(data, store, frontier, key, tls_ca, config)
    _change(place, lambda desk: desk.merge(name, into), as_json=as_json)


@app.command()
def recalculate(
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Work out rates and priorities of all domains, in short batches."""
    import msgspec

    async def working(desk: "DomainDesk") -> int:
        number = 0
        async for batch in desk.recalculate():
            number += batch.number
            if sys.stderr.isatty() and batch.after is not None:
                typer.echo(f"\rdomains so far: {number:,}", nl=False, err=True)
        return number

    number = ask(Place(data, store, frontier, key, tls_ca, config), working)
    if sys.stderr.isatty():
        typer.echo("\r", nl=False, err=True)
    typer.echo(msgspec.json.encode({"domains": number}) if as_json else f"domains worked out: {number:,}")


@app.command()
def verify(
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Check that what is known of the domains is sound; exit code 17 where something is wrong."""
    import msgspec

    from outrider.cli.domain_tables import print_checks
    from outrider.cli.exits import ExitCode

    async def checking(desk: "DomainDesk") -> "Verification":
        return await desk.verify()

    verification = ask(Place(data, store, frontier, key, tls_ca, config), checking)
    if as_json:
        typer.echo(msgspec.json.encode({"ok": verification.ok, "checks": verification.checks}))
    else:
        print_checks(verification)
    sys.exit(ExitCode.OK if verification.ok else ExitCode.UNSOUND)


@claims_app.callback(invoke_without_command=True)
def claims(
    context: typer.Context,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Show who holds claims on domains, which are stuck, and how many domains are free."""
    if context.invoked_subcommand is not None:
        return
    import msgspec

    from outrider.cli.domain_tables import print_claims

    async def looking(desk: "DomainDesk") -> "ClaimOverview":
        return await desk.claims()

    overview = ask(Place(data, store, frontier, key, tls_ca, config), looking)
    if as_json:
        typer.echo(msgspec.json.encode(overview))
    else:
        print_claims(overview)


@claims_app.command()
def release(
    worker: Annotated[str | None, typer.Argument(metavar="WORKER", help="Whose claims to end.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All claims of everybody, as for a rollback.")] = False,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """End the claims of a worker, or all; who holds one finds out with its next write."""
    import msgspec

    if (worker is None) is not every:
        raise InvalidInput("name a worker whose claims are to end, or say --all")
    place = Place(data, store, frontier, key, tls_ca, config)
    number = ask(place, lambda desk: desk.release_claims(worker))
    typer.echo(msgspec.json.encode({"released": number}) if as_json else f"claims ended: {number:,}")


def _change(place: Place, change: "Callable[[DomainDesk], Awaitable[Domain]]", *, as_json: bool) -> None:
    """Ask something of a domain, and tell how it stands now."""
    from outrider.cli.domain_tables import DomainTable
    from outrider.cli.opened import run

    async def changing() -> "Domain":
        async with open_domain_desk(place) as desk:
            return await change(desk)

    DomainTable(as_json=as_json).print([run(changing())])
