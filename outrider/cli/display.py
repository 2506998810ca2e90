"""How a running crawl looks: a live display on a terminal, plain lines or JSON lines elsewhere.

It goes to stderr, so that stdout belongs to results. Time is the snapshots' own, so that a display is
refreshed as they come, but not more often than it makes sense. What sites call themselves is shown
without control characters. A crawl never fails because nobody can read its progress any more.
"""

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol, TextIO

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from outrider.control.wording import byte_count, span
from outrider.crawler.progress import DomainTrouble, Snapshot

LIVE_EVERY_S = 0.25
PLAIN_EVERY_S = 5.0
PLAIN_FIRST_S = 1.0
JSON_EVERY_S = 1.0
_MOST_KINDS = 5
_MOST_DOMAINS = 5
_MOST_SLOW = 3
_TREND_S = 10.0
WORTH_TELLING_S = 1.0
"""Shorter waits are what a polite crawl does all the time."""


class ProgressMode(StrEnum):
    """How progress is shown."""

    AUTO = "auto"
    """Live on a terminal, plain elsewhere."""
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


class Display(Protocol):
    """Shows how a crawl is going."""

    def update(self, snapshot: Snapshot) -> None:
        """Take in a snapshot, and show it if it is time to."""

    def message(self, text: str) -> None:
        """Say something at once, on a line of its own."""

    def close(self) -> None:
        """Show the last snapshot where it counts, and leave the terminal as it was."""


def make_display(
    mode: ProgressMode, stream: TextIO | None = None, *, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
) -> Display:
    """Choose a display for a mode and a stream, by default stderr."""
    stream = stream or sys.stderr
    if mode is ProgressMode.NONE:
        return _Nothing()
    if mode is ProgressMode.JSON:
        return _JsonLines(stream)
    if mode is ProgressMode.AUTO:
        console = Console(file=stream)
        if console.is_terminal and not console.is_dumb_terminal:
            return _Live(console, now_ms)
    return _PlainLines(stream, now_ms)


def printable(text: str) -> str:
    """Give a text for a terminal: control characters and line ends become blanks."""
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


class Outlook:
    """Says when a crawl may end, and nothing that it cannot know."""

    def __init__(self) -> None:
        self._known: deque[tuple[float, int]] = deque()

    def observe(self, snapshot: Snapshot) -> None:
        """Take in how much work is known; only the last seconds count."""
        self._known.append((snapshot.elapsed_s, snapshot.counts.pending + snapshot.counts.assigned))
        while snapshot.elapsed_s - self._known[0][0] > _TREND_S:
            self._known.popleft()

    def describe(self, snapshot: Snapshot) -> str:
        """Tell what lies ahead at this moment."""
        counts, rate = snapshot.counts, snapshot.pages_per_s
        known = counts.pending + counts.assigned
        if snapshot.in_flight == 0 and (snapshot.next_ready_in_s or 0) >= WORTH_TELLING_S:
            return f"waiting, next page in {span(snapshot.next_ready_in_s or 0)}"
        missing = None if snapshot.max_pages is None else snapshot.max_pages - counts.completed
        if missing is not None and missing <= 0:
            return "limit reached"
        if rate <= 0:
            return "starting" if snapshot.fetched == 0 else "no answers at the moment"
        if missing is not None and missing <= known:
            return f"about {span(missing / rate)} left"
        if len(self._known) < 2 or known > self._known[0][1]:
            return "still discovering"
        return f"{span(known / rate)} for what is known"


class _Nothing:
    def update(self, snapshot: Snapshot) -> None:
        pass

    def message(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class _Lines:
    """Writes lines to a stream, until nobody reads it any more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream

    def _write(self, line: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # the latter where the stream is closed, or cannot say it
            self._stream = None


class _PlainLines(_Lines):
    def __init__(self, stream: TextIO, now_ms: Callable[[], int]) -> None:
        super().__init__(stream)
        self._now_ms = now_ms
        self._outlook = Outlook()
        self._due_s = PLAIN_FIRST_S
        self._unshown: Snapshot | None = None

    def update(self, snapshot: Snapshot) -> None:
        self._outlook.observe(snapshot)
        self._unshown = snapshot
        if snapshot.elapsed_s >= self._due_s:
            self._due_s = snapshot.elapsed_s + PLAIN_EVERY_S
            self._show(snapshot)

    def message(self, text: str) -> None:
        self._write(printable(text))

    def close(self) -> None:
        if self._unshown is not None:
            self._show(self._unshown)

    def _show(self, snapshot: Snapshot) -> None:
        self._unshown = None
        counts = snapshot.counts
        parts = [
            f"{span(snapshot.elapsed_s)}: {snapshot.pages_per_s:.1f} pages/s",
            f"{counts.completed:,} done",
            f"{counts.pending:,} pending",
            f"{snapshot.in_flight:,} in flight",
            f"{counts.failed:,} failed",
            byte_count(snapshot.bytes_received),
            self._outlook.describe(snapshot),
        ]
        if snapshot.failures:
            parts.append(f"errors: {kinds(snapshot.failures, 3)}")
        if snapshot.troubles:
            first = snapshot.troubles[0]
            more = f" and {len(snapshot.troubles) - 1} more" if len(snapshot.troubles) > 1 else ""
            parts.append(f"waiting on {_short(first.domain)} ({_trouble(first, self._now_ms())}){more}")
        self._write(printable(", ".join(parts)))


class _JsonLines(_Lines):
    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._due_s = 0.0
        self._unshown: Snapshot | None = None

    def update(self, snapshot: Snapshot) -> None:
        self._unshown = snapshot
        if snapshot.elapsed_s >= self._due_s:
            self._due_s = snapshot.elapsed_s + JSON_EVERY_S
            self._show(snapshot)

    def message(self, text: str) -> None:
        self._write(json.dumps({"event": "message", "text": text}))

    def close(self) -> None:
        if self._unshown is not None:
            self._show(self._unshown)

    def _show(self, snapshot: Snapshot) -> None:
        self._unshown = None
        self._write(json.dumps({"event": "progress", **msgspec.to_builtins(snapshot)}))


class _Live:
    def __init__(self, console: Console, now_ms: Callable[[], int]) -> None:
        self._console = console
        self._now_ms = now_ms
        self._outlook = Outlook()
        self._due_s = 0.0
        # Standard output is not touched: results may go there.
        self._live: Live | None = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._guarded(self._live.start)

    def update(self, snapshot: Snapshot) -> None:
        self._outlook.observe(snapshot)
        if self._live is None or snapshot.elapsed_s < self._due_s:
            return
        self._due_s = snapshot.elapsed_s + LIVE_EVERY_S
        picture = live_picture(snapshot, self._outlook.describe(snapshot), self._now_ms())
        live = self._live
        self._guarded(lambda: live.update(picture, refresh=True))

    def message(self, text: str) -> None:
        self._guarded(lambda: self._console.print(Text(printable(text))))

    def close(self) -> None:
        if self._live is not None:
            self._guarded(self._live.stop)
        self._live = None

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (OSError, ValueError):
            self._live = None


def live_picture(snapshot: Snapshot, outlook: str, now_ms: int) -> RenderableType:
    """Draw a crawl at one moment; it fits 60 columns and uses all that there are."""
    parts: list[RenderableType] = [_heading(snapshot, outlook)]
    if snapshot.max_pages is not None:
        parts.append(_limit_bar(snapshot.counts.completed, snapshot.max_pages))
    details = Table.grid(padding=(0, 2))
    details.add_column(style="bold", no_wrap=True)
    details.add_column(overflow="fold")
    if snapshot.failures:
        details.add_row("errors", Text(kinds(snapshot.failures, _MOST_KINDS), style="red"))
    if snapshot.slowest:
        details.add_row("slowest", _slowest(snapshot))
    if snapshot.troubles:
        details.add_row("waiting", _troubles(snapshot.troubles, now_ms))
    if details.rows:
        parts.append(details)
    return Group(*parts)


def _heading(snapshot: Snapshot, outlook: str) -> RenderableType:
    counts = snapshot.counts
    first = Text.assemble(
        (_short(snapshot.crawl), "bold"), f"  {span(snapshot.elapsed_s)}  ",
        (f"{snapshot.pages_per_s:.1f} pages/s", "bold cyan"), f"  {byte_count(snapshot.bytes_received)}  ",
        (outlook, "italic"),
    )  # fmt: skip
    numbers = Text.assemble(
        (f"{counts.completed:,}", "bold green"), " done   ",
        (f"{counts.pending:,}", "bold"), " pending   ",
        (f"{snapshot.in_flight:,}", "bold"), " in flight   ",
        (f"{counts.failed:,}", "bold red" if counts.failed else "bold"), " failed",
    )  # fmt: skip
    return Group(first, numbers)


def _limit_bar(done: int, limit: int) -> RenderableType:
    bar = Table.grid(padding=(0, 1), expand=True)
    bar.add_column(ratio=1)
    bar.add_column(no_wrap=True)
    bar.add_row(ProgressBar(total=limit, completed=min(done, limit)), f"{done:,} of {limit:,}")
    return bar


def _slowest(snapshot: Snapshot) -> Text:
    lines = [
        f"{_short(slow.domain)}: {slow.average_ms / 1000:.1f} s on average of {slow.fetches:,}"
        for slow in snapshot.slowest[:_MOST_SLOW]
    ]
    return Text("\n".join(lines))


def _troubles(troubles: list[DomainTrouble], now_ms: int) -> Text:
    lines = [f"{_short(trouble.domain)}: {_trouble(trouble, now_ms)}" for trouble in troubles[:_MOST_DOMAINS]]
    if len(troubles) > _MOST_DOMAINS:
        lines.append(f"and {len(troubles) - _MOST_DOMAINS} more")
    return Text("\n".join(lines), style="yellow")


def _short(text: str, most: int = 36) -> str:
    return printable(text if len(text) <= most else f"{text[: most - 1]}…")


def _trouble(trouble: DomainTrouble, now_ms: int) -> str:
    left = "no end known" if trouble.until is None else f"{span(max(trouble.until - now_ms, 0) / 1000)} left"
    return f"{_short(trouble.reason, 60)}, {left}, {trouble.waiting:,} waiting"


def kinds(numbers: Mapping[str, int], most: int) -> str:
    """Write numbers by kind in one line, the largest first.

    >>> kinds({"dns": 1, "timeout": 3, "tls": 1}, 2)
    'timeout (3), dns (1), others (1)'
    """
    ordered = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{_short(kind)} ({number:,})" for kind, number in ordered[:most]]
    rest = sum(number for _, number in ordered[most:])
    return ", ".join([*parts, f"others ({rest:,})"] if rest else parts)
