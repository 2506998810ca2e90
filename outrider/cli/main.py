"""The command line's way in: the root command, and what an error becomes.

Command groups import what they need when they run, so that `outrider --help` answers at once.
"""

import sys
from typing import Annotated

import typer

from outrider import __version__
from outrider.cli import bench, config, crawl, db, keys, serve, work
from outrider.cli.exits import ExitCode as ExitCode
from outrider.model.errors import OutriderError, StoreError

app = typer.Typer(
    name="outrider",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(db.app, name="db")
app.add_typer(bench.app, name="bench")
app.command()(crawl.crawl)
app.command()(config.config)
app.command()(serve.serve)
app.command()(work.work)
app.add_typer(keys.app, name="keys")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"outrider {__version__}")
        raise typer.Exit


@app.callback()
def outrider(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """A durable crawl frontier: every URL once, every domain politely, nothing lost."""


def main() -> None:
    """Run the command line; an expected error becomes one line on stderr and an exit code."""
    try:
        app(prog_name="outrider")
    except OutriderError as error:
        _fail(str(error), ExitCode.STORE if isinstance(error, StoreError) else ExitCode.REFUSED)
    except KeyboardInterrupt:
        _fail("interrupted", ExitCode.INTERRUPTED)
    except SystemExit as ending:
        # Typer turns an interrupt inside a command into this exit, without a word to the user.
        if ending.code == ExitCode.INTERRUPTED:
            _fail("interrupted", ExitCode.INTERRUPTED)
        raise


def _fail(message: str, code: ExitCode) -> None:
    print(f"outrider: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
