"""`outrider bench`: measure a store on this machine."""

import typer

app = typer.Typer(no_args_is_help=True, help="Measure a store on this machine.")


@app.callback()
def bench() -> None:
    """Measure a store on this machine."""
