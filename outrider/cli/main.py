"""The command line's way in: the root command, and what an error becomes.

Command groups import what they need when they run, so that `outrider --help` answers at once.
"""

import errno
import gc
import os
import sys
from contextlib import suppress
from typing import Annotated, Never

import typer

from outrider import __version__
from outrider.cli import (
    backfill,
    bench,
    config,
    crawl,
    db,
    demo,
    domain,
    explain,
    export,
    jobs,
    keys,
    refresh,
    retry,
    runner,
    serve,
    status,
    supervise,
    urls,
    work,
)
from outrider.cli.exits import ExitCode as ExitCode
from outrider.cli.exits import exit_code_of_error
from outrider.model.errors import OutriderError

YOUNG_OBJECTS = 50_000
"""After how many new objects the collector looks for cycles among them."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What writing to standard output fails with, where it is a file on a full or broken disk."""

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
app.command()(refresh.refresh)
app.command("retry-failed")(retry.retry_failed)
app.command()(export.export)
app.command()(explain.explain)
app.command()(backfill.backfill)
app.command()(demo.demo)
app.command()(serve.serve)
app.command()(work.work)
app.command()(supervise.supervise)
app.command(hidden=True)(runner.runner)
app.add_typer(jobs.app, name="jobs")
app.add_typer(domain.app, name="domain")
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
    _open_closed_streams()
    # A batch makes thousands of tuples, and none of them a cycle: looking for cycles whenever there are 700 more
    # took a quarter of the client's time for adding.
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        _run()
    except OutriderError as error:
        _fail(str(error), exit_code_of_error(error))
    except KeyboardInterrupt:
        _fail("interrupted", ExitCode.INTERRUPTED)
    except SystemExit as ending:
        # Typer turns an interrupt inside a command into this exit, without a word to the user.
        if ending.code == ExitCode.INTERRUPTED:
            _fail("interrupted", ExitCode.INTERRUPTED)
        raise
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader has what it wanted, as in `… | head`
            _give_up_output()
            sys.exit(ExitCode.UNEXPECTED)
        if error.errno not in NO_ROOM or error.filename is not None:
            raise
        _give_up_output()
        _fail(f"cannot write to standard output: {error.strerror}", ExitCode.STORE)


def _run() -> None:
    """Run the command, and write out what it printed while errors of that can still be told."""
    try:
        app(prog_name="outrider")
    except SystemExit:
        sys.stdout.flush()
        raise


def _open_closed_streams() -> None:
    """Put the null device in the place of standard streams that the caller has closed.

    Whatever is opened next would get their numbers; an event loop that does aborts the process.
    """
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def _give_up_output() -> None:
    """Let what is left in the buffer go nowhere: the interpreter would fail once more on its way out."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _fail(message: str, code: ExitCode) -> Never:
    with suppress(OSError):  # stderr may be on the same full disk
        print(f"outrider: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
