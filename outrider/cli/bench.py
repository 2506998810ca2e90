"""`outrider bench`: measure a store on this machine."""

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Measure a store on this machine.")


@app.callback()
def bench() -> None:
    """Measure a store on this machine."""


@app.command()
def store(
    dsn: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="DSN",
            help="A SQLite file that does not exist yet, or a PostgreSQL database, in which the bench works "
            "in a schema of its own. Default: a temporary SQLite file.",
        ),
    ] = None,
    urls: Annotated[int, typer.Option(min=1_000, help="How many different URLs to store.")] = 100_000,
    queues: Annotated[int, typer.Option(min=1, help="Over how many sites they spread.")] = 5_000,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="How many links to add at once.")] = 2_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Measure adding, leasing and reporting, and the bare engine beside them.

    Links come as text, 50 to a page, 35 of them to the page's own site and 15 to others; about a third
    are known already. Adding includes normalising them. The bare engine then inserts the same
    different rows, each batch sorted beforehand, into the same table with the same indexes and the
    same durability.
    """
    from outrider.cli.store_bench import main

    main(dsn, urls=urls, queues=queues, batch=batch, as_json=as_json)
