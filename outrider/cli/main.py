"""The command line's way in: the root command, and what an error becomes.

Command groups import what they need when they run, so that `outrider --help` answers at once.
"""

import gc
import sys
from typing import Annotated

import typer

from outrider import __version__
from outrider.cli import bench, config, crawl, db, demo, explain, export, keys, retry, serve, status, urls, work
from outrider.cli.exits import ExitCode as ExitCode
from outrider.model.errors import OutriderError, StoreError

YOUNG_OBJECTS = 50_000
"""After how many new objects the collector looks for cycles among them."""

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
app.command()(status.status)
app.command()(urls.urls)
app.command("retry-failed")(retry.retry_failed)
app.command()(export.export)
app.command()(explain.explain)
app.command()(demo.demo)
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
    # A batch makes thousands of tuples, and none of them a cycle: looking for cycles whenever there are 700 more
    # took a quarter of the client's time for adding.
    gc.set_threshold(YOUNG_OBJECTS)
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
