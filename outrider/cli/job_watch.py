"""`outrider jobs watch`: a job as it goes, and the exit code of how it ended.

A terminal shows one picture that changes, above it a line for each step; elsewhere there are lines alone.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from outrider.cli.display import WORTH_TELLING_S, printable
from outrider.cli.exits import ExitCode
from outrider.cli.job_tables import progress_line, step_line
from outrider.control.desk import JobDesk
from outrider.control.job_events import JobEvent
from outrider.control.job_progress import JobProgress
from outrider.control.wording import span
from outrider.model.job import TERMINAL, Job, JobTransition
from outrider.model.machines import JobStatus

PLAIN_EVERY_S: Final = 5.0
PACE_S: Final = 10.0
MOST_DOMAINS: Final = 8


class Watch(Protocol):
    """Shows what becomes of a job."""

    def step(self, step: JobTransition) -> None:
        """Show a step of its life."""

    def progress(self, progress: JobProgress) -> None:
        """Show how far it is."""

    def close(self) -> None:
        """Leave the terminal as it was."""


async def watch(desk: JobDesk, job_id: str, *, as_json: bool = False) -> ExitCode:
    """Follow a job until it has ended; tell how. Who interrupts this is told that the job goes on."""
    try:
        return await _follow(desk, job_id, as_json=as_json)
    except asyncio.CancelledError:
        typer.echo(f"outrider: job {job_id} goes on; only the watching ends", err=True)
        raise


async def _follow(desk: JobDesk, job_id: str, *, as_json: bool) -> ExitCode:
    if as_json:
        async for event in desk.events(job_id):
            typer.echo(msgspec.json.encode(event))
    else:
        shown, pace = _choose(), Pace()
        try:
            async for event in desk.events(job_id):
                _show(event, shown, pace)
        finally:
            shown.close()
    view, progress = await desk.show(job_id), await desk.progress(job_id)
    if not as_json:
        typer.echo(_farewell(view.job, progress))
    return exit_code_of(view.job, progress.done)


def exit_code_of(job: Job, pages_done: int) -> ExitCode:
    """Tell the exit code of a job: that of a crawl that ended so."""
    match job.status:
        case JobStatus.FAILED:
            return ExitCode.FAILED
        case JobStatus.CANCELLED:
            return ExitCode.CANCELLED
        case JobStatus.COMPLETED if job.reason == "limit":
            return ExitCode.LIMIT
        case JobStatus.COMPLETED if job.reason == "waiting":
            return ExitCode.WAITING
        case JobStatus.COMPLETED if pages_done == 0:
            return ExitCode.NOTHING_FETCHED
        case _:
            return ExitCode.OK


class Pace:
    """Tells the rate of the last seconds by what was seen; the runner's own is as old as its last beat."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def observe(self, progress: JobProgress, now: float) -> JobProgress:
        """Take in how far a job is, and give it with the rate of the last seconds, once that is known."""
        if progress.status is not JobStatus.PROCESSING:
            self._seen.clear()
            return progress
        self._seen.append((now, progress.done))
        while now - self._seen[0][0] > PACE_S:
            self._seen.popleft()
        since, done = self._seen[0]
        if now == since:
            return progress
        return msgspec.structs.replace(progress, rate=max(progress.done - done, 0) / (now - since))


def _show(event: JobEvent, shown: Watch, pace: Pace) -> None:
    if event.kind == "state":
        shown.step(msgspec.convert(event.data, JobTransition))
    else:
        shown.progress(pace.observe(msgspec.convert(event.data, JobProgress), time.monotonic()))


def _choose() -> Watch:
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        return _Picture(console)
    return _Lines(time.monotonic)


def _farewell(job: Job, progress: JobProgress) -> str:
    how = f" ({job.reason})" if job.reason else f": {job.error_message}" if job.error_message else ""
    took = "" if job.completed_at is None else f" after {span((job.completed_at - job.created_at).total_seconds())}"
    return printable(f"{job.status}{how}{took}: {progress.done:,} pages done, {progress.failed:,} failed")


class _Lines:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due = 0.0

    def step(self, step: JobTransition) -> None:
        typer.echo(printable(step_line(step)))

    def progress(self, progress: JobProgress) -> None:
        if self._clock() >= self._due and progress.status not in TERMINAL:
            self._due = self._clock() + PLAIN_EVERY_S
            typer.echo(printable(_line(progress)))

    def close(self) -> None:
        pass


def _line(progress: JobProgress) -> str:
    error = f", last error: {progress.last_error}" if progress.last_error else ""
    return f"{progress.status}: {progress_line(progress)}{error}"


class _Picture:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def step(self, step: JobTransition) -> None:
        self._console.print(Text(printable(step_line(step))))

    def progress(self, progress: JobProgress) -> None:
        self._live.update(picture(progress, time.time()), refresh=True)

    def close(self) -> None:
        self._live.stop()


def picture(progress: JobProgress, now: float) -> RenderableType:
    """Draw a job at one moment."""
    numbers = Text.assemble(
        (progress.status.value, "bold"), "  ",
        (f"{progress.rate:.1f} pages/s", "bold cyan"), "  ",
        (f"{progress.done:,}", "bold green"), " done   ",
        (f"{progress.pending:,}", "bold"), " pending   ",
        (f"{progress.in_flight:,}", "bold"), " in flight   ",
        (f"{progress.failed:,}", "bold red" if progress.failed else "bold"), " failed",
    )  # fmt: skip
    details = Table.grid(padding=(0, 2))
    details.add_column(style="bold", no_wrap=True)
    details.add_column(overflow="fold")
    if progress.domains:
        details.add_row("now at", Text(printable(", ".join(progress.domains[:MOST_DOMAINS]))))
    left = 0 if progress.waiting_until is None else progress.waiting_until.timestamp() - now
    if left >= WORTH_TELLING_S:
        details.add_row("waiting", Text(f"next page in {span(left)}", style="yellow"))
    if progress.last_error:
        details.add_row("last error", Text(printable(progress.last_error), style="red"))
    return Group(numbers, _bar(progress), *([details] if details.rows else []))


def _bar(progress: JobProgress) -> RenderableType:
    of = "of the limit" if progress.percentage_of == "limit" else "of what is known so far"
    bar = Table.grid(padding=(0, 1), expand=True)
    bar.add_column(ratio=1)
    bar.add_column(no_wrap=True)
    bar.add_row(ProgressBar(total=100, completed=progress.percentage), f"{progress.percentage} % {of}")
    return bar
