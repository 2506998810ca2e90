"""What is said at the end of a crawl: what was fetched, what was not and why, and what can be done next."""

import json
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.cli.display import ProgressMode, kinds, printable
from outrider.cli.exits import exit_code_of
from outrider.cli.options import without_password
from outrider.control.wording import byte_count, span
from outrider.crawler.plan import DATABASE, WARC_FOLDER, CrawlPlan
from outrider.crawler.progress import ROBOTS_UNREACHABLE, CrawlEnding, Snapshot

_MOST_KINDS = 8
_MOST_DOMAINS = 5
_DEFAULTS = CrawlPlan()


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one execution of a crawl, for people and programs."""

    crawl: str
    ending: CrawlEnding
    exit_code: int
    seconds: float
    completed: int
    """Pages of the whole crawl."""
    completed_now: int
    """Pages of this execution."""
    failed: int
    pending: int
    left_over: int
    """Known, but past a limit of depth or pages."""
    requests: int
    bytes_received: int
    failures: dict[str, int]
    """Tries of this execution that failed, by reason; a page that is tried again counts each time."""
    skipped: dict[str, int]
    waiting_on: list[str]
    results: dict[str, str]
    next_steps: list[str]


def summarise(snapshot: Snapshot, ending: CrawlEnding, plan: CrawlPlan) -> Summary:
    """Sum up an execution from its last snapshot."""
    counts = snapshot.counts
    return Summary(
        crawl=snapshot.crawl,
        ending=ending,
        exit_code=exit_code_of(ending),
        seconds=round(snapshot.elapsed_s, 3),
        completed=counts.completed,
        completed_now=max(counts.completed - snapshot.completed_before, 0),
        failed=counts.failed,
        pending=counts.pending + counts.assigned,
        left_over=counts.discovered,
        requests=snapshot.fetched,
        bytes_received=snapshot.bytes_received,
        failures=snapshot.failures,
        skipped=snapshot.skipped,
        waiting_on=[f"{each.domain}: {each.reason} ({each.waiting:,} waiting)" for each in snapshot.troubles],
        results=_results(plan),
        next_steps=_next_steps(snapshot, ending, plan),
    )


def print_summary(summary: Summary, mode: ProgressMode, stream: TextIO | None = None) -> None:
    """Print a summary as the progress was: a table on a terminal, else columns or one JSON line, or nothing."""
    # A crawl that went well does not fail because nobody reads this.
    with suppress(OSError, ValueError):
        _print(summary, mode, stream or sys.stderr)


def _print(summary: Summary, mode: ProgressMode, stream: TextIO) -> None:
    if mode is ProgressMode.NONE:
        return
    if mode is ProgressMode.JSON:
        print(json.dumps({"event": "summary", **msgspec.to_builtins(summary)}), file=stream, flush=True)
        return
    rows = [(name, printable(text)) for name, texts in _rows(summary) for name, text in _named_once(name, texts)]
    console = Console(file=stream)
    if mode is ProgressMode.PLAIN or not console.is_terminal:
        # At full length: Rich would fold what is wider than the 80 columns that it assumes.
        wide = max(len(name) for name, _ in rows)
        print(*(f"{name:{wide}}  {text}" for name, text in rows), sep="\n", file=stream, flush=True)
        return
    table = Table(
        box=box.ROUNDED, show_header=False, title=Text(f"crawl {printable(summary.crawl)}"), title_justify="left"
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, Text(text))
    console.print(table)


def _named_once(name: str, texts: list[str]) -> list[tuple[str, str]]:
    return [(name if number == 0 else "", text) for number, text in enumerate(texts)]


def _rows(summary: Summary) -> list[tuple[str, list[str]]]:
    before = summary.completed - summary.completed_now
    rate = summary.completed_now / summary.seconds if summary.seconds > 0 else 0.0
    rows = [
        ("ended", [_ENDINGS[summary.ending]]),
        ("pages", [f"{summary.completed_now:,}" + (f", and {before:,} before" if before else "")]),
        ("failed", [f"{summary.failed:,}"]),
        ("left over", [_left_over(summary)]),
        ("received", [f"{byte_count(summary.bytes_received)} in {summary.requests:,} answers"]),
        ("time", [f"{span(summary.seconds)}, {rate:.1f} pages/s"]),
    ]
    if summary.failures:
        rows.append(("failed tries", [kinds(summary.failures, _MOST_KINDS)]))
    if summary.skipped:
        rows.append(("links skipped", [kinds(summary.skipped, _MOST_KINDS)]))
    if summary.waiting_on:
        more = len(summary.waiting_on) - _MOST_DOMAINS
        rows.append(
            ("waiting on", summary.waiting_on[:_MOST_DOMAINS] + ([f"and {more:,} more domains"] if more > 0 else []))
        )
    rows += [(name, [place]) for name, place in summary.results.items()]
    rows.append(("next", summary.next_steps))
    return rows


_ENDINGS = {
    CrawlEnding.DRAINED: "finished: nothing is left to fetch",
    CrawlEnding.LIMIT: "a limit on pages is reached",
    CrawlEnding.WAITING: "what is left cannot be fetched soon",
    CrawlEnding.STOPPED: "stopped by you; nothing is lost",
    CrawlEnding.PAUSED: "the crawl is paused",
    CrawlEnding.CANCELLED: "the crawl is cancelled",
    CrawlEnding.NOTHING_FETCHED: "finished, and not one page could be fetched",
}


def _left_over(summary: Summary) -> str:
    parts = [f"{summary.pending:,} pending"] if summary.pending else []
    if summary.left_over:
        parts.append(f"{summary.left_over:,} past a limit of depth or pages")
    return ", ".join(parts) or "nothing"


def _results(plan: CrawlPlan) -> dict[str, str]:
    places = {}
    if plan.warc:
        places["WARC files"] = str(Path(plan.data) / WARC_FOLDER)
    if plan.output is not None:
        places["JSON lines"] = "standard output" if plan.output == "-" else plan.output
    places["store"] = str(Path(plan.data) / DATABASE) if plan.store is None else without_password(plan.store)
    return places


def _next_steps(snapshot: Snapshot, ending: CrawlEnding, plan: CrawlPlan) -> list[str]:
    """Say what can be done, the most likely wish first."""
    steps = []
    match ending:
        case CrawlEnding.STOPPED:
            steps.append("run the same command again to resume")
        case CrawlEnding.PAUSED:
            steps.append("run the same command again once the crawl is no longer paused")
        case CrawlEnding.LIMIT:
            steps.append(f"raise {' or '.join(_limits(plan))} to go on")
        case CrawlEnding.WAITING:
            in_time = "" if snapshot.next_ready_in_s is None else f" in {span(snapshot.next_ready_in_s)}"
            steps.append(f"run the same command again{in_time}, or with a higher --max-wait")
        case CrawlEnding.CANCELLED:
            steps.append("--fresh begins it anew")
        case CrawlEnding.NOTHING_FETCHED:
            steps.append(f"{_command('explain', plan)} {shlex.quote(plan.seeds[0]) if plan.seeds else 'URL'}  # why")
        case CrawlEnding.DRAINED:
            pass
    if snapshot.counts.discovered and ending is not CrawlEnding.LIMIT:
        steps.append(f"raise {' or '.join(_limits(plan))} to fetch what is left over")
    if snapshot.counts.failed:
        steps.append(f"{_command('urls', plan)} --state failed  # what failed and why")
        steps.append(f"{_command('retry-failed', plan)}  # then run the same command again")
    elif any(trouble.reason.startswith(ROBOTS_UNREACHABLE) for trouble in snapshot.troubles):
        steps.append(f"{_command('retry-failed', plan)}  # asks for robots.txt again, with the same command after it")
    if ending is not CrawlEnding.NOTHING_FETCHED:
        steps.append(f"{_command('explain', plan)} URL  # why a URL was or was not fetched")
    return steps


def _limits(plan: CrawlPlan) -> list[str]:
    set_by_plan = [
        flag
        for flag, limit in (
            ("--max-pages", plan.max_pages),
            ("--max-pages-per-domain", plan.max_pages_per_domain),
            ("--max-depth", plan.max_depth),
        )
        if limit is not None
    ]
    return set_by_plan or ["the limits"]


def _command(name: str, plan: CrawlPlan) -> str:
    """Name a command that finds the same crawl."""
    words = ["outrider", name]
    if plan.store is not None:
        words += ["--store", without_password(plan.store)]
    elif plan.data != _DEFAULTS.data:
        words += ["--data", plan.data]
    if plan.crawl != _DEFAULTS.crawl:
        words += ["--crawl", plan.crawl]
    return shlex.join(words)
