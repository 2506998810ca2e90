"""`outrider db`: bring a store's schema up or down, and tell where it stands."""

from typing import Annotated

import typer

from outrider.model.errors import InvalidInput

DEFAULT_STORE = "sqlite:///outrider-data/outrider.sqlite"

app = typer.Typer(no_args_is_help=True, help="Bring a store's schema up or down, and tell where it stands.")

Store = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="DSN",
        envvar="OUTRIDER_STORE",
        help="sqlite:///path/to/file.sqlite or postgresql://user@host/database.",
    ),
]


@app.command()
def upgrade(
    store: Store = DEFAULT_STORE,
    revision: Annotated[str, typer.Option(help="Where to stop; `head` is the newest.")] = "head",
) -> None:
    """Bring the schema up to this program's, keeping the data."""
    from outrider.store.sql import migrate

    before = migrate.current(store)
    after = migrate.upgrade(store, revision)
    typer.echo(f"already at {after}" if before == after else f"{before or 'empty'} -> {after}")


@app.command()
def downgrade(
    revision: Annotated[str, typer.Option(help="Where to stop; `base` removes every table of Outrider.")],
    store: Store = DEFAULT_STORE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Take the schema back, dropping the data that the older schema has no place for."""
    from outrider.store.sql import migrate

    before = migrate.current(store)
    if not yes:
        _confirm(f"Take the schema from {before or 'empty'} back to {revision} and drop what does not fit?")
    after = migrate.downgrade(store, revision)
    typer.echo(f"{before or 'empty'} -> {after or 'empty'}")


@app.command()
def current(store: Store = DEFAULT_STORE) -> None:
    """Tell which revision the schema is at."""
    from outrider.store.sql import migrate

    revision = migrate.current(store)
    if revision is None:
        typer.echo("empty: run `outrider db upgrade`")
    elif revision == migrate.HEAD:
        typer.echo(f"{revision} (head)")
    else:
        typer.echo(f"{revision} (this program's is {migrate.HEAD})")


def _confirm(question: str) -> None:
    try:
        agreed = typer.confirm(question)
    except typer.Abort as abort:
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise InvalidInput("nobody answered, so nothing was changed; --yes does it without asking") from None
    if not agreed:
        raise InvalidInput("not confirmed, so nothing was changed")
