"""How domains are printed: rows with their reasons below, all that is known of one, claims, and what was verified."""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.cli.display import printable
from outrider.cli.tables import Columns, print_facts
from outrider.control.domain_desk import DomainView
from outrider.control.domain_verify import Check, Verification
from outrider.control.story import Fact
from outrider.control.wording import moment_and_distance
from outrider.model.domain import ClaimOverview, Domain, DomainStep
from outrider.model.domain_view import BLOCKED_BY_OPERATOR
from outrider.model.gate import Gate
from outrider.model.machines import DomainStatus
from outrider.model.task import NEVER

HEADINGS: Final = ("DOMAIN", "STATUS", "PAGES", "IMAGES", "YIELD", "LAST CRAWLED")
WIDTHS: Final = (30, 11, 8, 8, 6, 16)
"""At least: rows are printed as they come, and later ones may be wider."""
COLOURS: Final = {
    DomainStatus.PENDING: "cyan",
    DomainStatus.ACTIVE: "green",
    DomainStatus.EXHAUSTED: "blue",
    DomainStatus.BLOCKED: "red",
    DomainStatus.UNREACHABLE: "yellow",
}
VERDICTS: Final = {True: ("ok", "green"), False: ("wrong", "bold red"), None: ("", "")}
MINUTE: Final = "%Y-%m-%d %H:%M"


class DomainTable:
    """Prints domains as they come: a row each, and below it why the domain is left alone."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._console = Console(highlight=False)
        self._widths = list(WIDTHS)
        self.printed = 0

    def print(self, domains: Sequence[Domain]) -> None:
        """Print some more."""
        if self._as_json:
            for domain in domains:
                typer.echo(msgspec.json.encode(domain))
        elif domains:
            self._print_rows(domains)
        self.printed += len(domains)

    def _print_rows(self, domains: Sequence[Domain]) -> None:
        rows = [row_of(domain) for domain in domains]
        for row in rows:
            self._widths = [max(wide, len(cell)) for wide, cell in zip(self._widths, row, strict=True)]
        if self.printed == 0:
            heading = self._aligned(HEADINGS)
            self._write(Text(heading, style="bold"))
            self._write(Text("─" * len(heading)))
        for domain, row in zip(domains, rows, strict=True):
            line = Text(self._aligned(row))
            start = self._widths[0] + 2
            line.stylize(COLOURS[domain.status], start, start + len(row[1]))
            self._write(line)
            reason = reason_of(domain)
            if reason:
                self._write(Text(f"  └─ reason: {reason}", style="dim"))

    def _aligned(self, row: Sequence[str]) -> str:
        return "  ".join(f"{cell:{wide}}" for cell, wide in zip(row, self._widths, strict=True)).rstrip()

    def _write(self, line: Text) -> None:
        if self._console.is_terminal:
            self._console.print(line, soft_wrap=True)
        else:
            typer.echo(line.plain)


def row_of(domain: Domain) -> tuple[str, ...]:
    """Write a domain as a row of a list."""
    images_per_page = yield_of(domain)
    return (
        printable(domain.domain),
        domain.status.value,
        f"{domain.pages_crawled}/{domain.pages_discovered}",
        str(domain.images_stored or domain.images_found),
        "-" if images_per_page is None else f"{images_per_page:.3g}",
        "-" if domain.last_crawled_at is None else f"{domain.last_crawled_at:{MINUTE}}",
    )


def yield_of(domain: Domain) -> float | None:
    """Tell images per page: those stored, or those found where none is stored; None before the first page."""
    if domain.pages_crawled == 0:
        return None
    return (domain.images_stored or domain.images_found) / domain.pages_crawled


def reason_of(domain: Domain) -> str:
    """Say why a domain is left alone, and until when; empty where it is not."""
    is_given_up = domain.status in (DomainStatus.BLOCKED, DomainStatus.UNREACHABLE)
    if not is_given_up and domain.block_reason_code != BLOCKED_BY_OPERATOR:
        return ""
    said = ": ".join(printable(each) for each in (domain.block_reason_code, domain.block_reason) if each)
    if not is_given_up:
        return said
    until = "for good" if domain.next_crawl_after is None else f"until {domain.next_crawl_after:{MINUTE}}"
    return f"{said or 'none given'} ({until})"


def facts_of(view: DomainView) -> list[Fact]:
    """Say all that is known of a domain; what is empty is left out."""
    domain = view.domain
    facts = [
        ("domain", domain.domain),
        ("part of", domain.parent_domain if domain.parent_domain != domain.domain else ""),
        ("status", domain.status.value),
        ("reason", reason_of(domain)),
        ("given up", f"{domain.block_count} times, first {_at(domain.first_blocked_at)}" if domain.block_count else ""),
        ("pages", f"{domain.pages_crawled:,} crawled of {domain.pages_discovered:,} known"),
        ("frontier", _frontier(domain)),
        ("images", f"{domain.images_found:,} found, {domain.images_stored:,} stored"),
        ("yield", _rates(domain)),
        ("errors", f"{domain.total_error_count:,}, {domain.consecutive_error_count:,} of them in a row"),
        ("depth", f"{domain.crawl_depth_reached}"),
        ("budget", "none" if domain.max_pages_per_run is None else f"{domain.max_pages_per_run:,} pages a run"),
        ("priority", f"{domain.priority_score}" + _since(", worked out", domain.priority_computed_at)),
        ("seed", _seed(domain)),
        ("claim", _claim(domain)),
        ("gate", _gate(view.gate)),
        ("first seen", _at(domain.first_seen_at)),
        ("last crawled", _at(domain.last_crawled_at)),
        ("next crawl", _at(domain.next_crawl_after)),
        ("last run", domain.last_crawl_run_id or ""),
        ("version", str(domain.version)),
        ("history", "\n".join(map(step_line, view.history))),
    ]
    return [(name, text) for name, text in facts if text]


def _frontier(domain: Domain) -> str:
    return f"{domain.frontier_size:,} URLs to do" + _since(", changed", domain.frontier_updated_at)


def _rates(domain: Domain) -> str:
    images_per_page = yield_of(domain)
    if images_per_page is None:
        return ""
    errors = "" if domain.error_rate is None else f", {domain.error_rate:.0%} errors"
    return f"{images_per_page:.3g} images a page{errors}"


def _seed(domain: Domain) -> str:
    rank = "" if domain.seed_rank is None else f"rank {domain.seed_rank:,}"
    return ", ".join(each for each in (domain.source or "", rank) if each)


def _claim(domain: Domain) -> str:
    if domain.claimed_by is None:
        return ""
    return f"{domain.claimed_by}, until {_at(domain.claim_expires_at)}"


def _gate(gate: Gate | None) -> str:
    if gate is None:
        return ""
    now = int(time.time() * 1000)
    parts = [f"band {gate.band}"]
    if gate.delay_ms is not None:
        parts.append(f"delay {gate.delay_ms / 1000:g} s")
    if gate.robots_delay_ms is not None:
        parts.append(f"robots.txt asks for {gate.robots_delay_ms / 1000:g} s")
    if gate.concurrency is not None:
        parts.append(f"{gate.concurrency} at a time")
    if gate.blocked_until >= NEVER - 1:
        parts.append("closed for good")
    elif gate.blocked_until > now:
        parts.append(f"closed until {moment_and_distance(gate.blocked_until, now)}")
    if gate.backoff_until > now:
        parts.append(f"backs off until {moment_and_distance(gate.backoff_until, now)}")
    return ", ".join(parts)


def step_line(step: DomainStep) -> str:
    """Write a step of a domain's life in one line."""
    said = ": ".join(printable(each) for each in (step.reason_code, step.reason) if each)
    reason = f" ({said})" if said else ""
    return f"{step.at:%Y-%m-%d %H:%M:%S} UTC  {step.from_status} → {step.to_status}, by {printable(step.actor)}{reason}"


def print_claims(overview: ClaimOverview) -> None:
    """Print who holds what, what is stuck, and what is free."""
    if overview.workers:
        columns = Columns(("WORKER", "CLAIMS", "EARLIEST EXPIRY"))
        columns.print([(each.worker, f"{each.number:,}", _at(each.earliest_expiry)) for each in overview.workers])
        typer.echo("")
    free = ", ".join(f"{number:,} {status}" for status, number in overview.unclaimed.items())
    print_facts(
        [
            ("live", f"{sum(each.number for each in overview.workers):,}"),
            ("expired", f"{overview.expired:,}"),
            ("unclaimed", free or "0"),
        ]
    )


def print_checks(verification: Verification) -> None:
    """Print what was checked as a table, and the verdict below."""
    console = Console(highlight=False)
    if console.is_terminal:
        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
        for heading in ("step", "checked", "verdict", "found"):
            table.add_column(heading, overflow="fold")
        for check in verification.checks:
            word, style = VERDICTS[check.ok]
            table.add_row(check.step, check.what, Text(word, style=style), Text(printable(check.found)))
        console.print(table)
    else:
        Columns(("STEP", "CHECKED", "VERDICT", "FOUND")).print([_check_row(check) for check in verification.checks])
    wrong = sum(check.ok is False for check in verification.checks)
    checked = sum(check.ok is not None for check in verification.checks)
    typer.echo(f"{checked} checks, {wrong} wrong" if wrong else f"{checked} checks, all well")


def _check_row(check: Check) -> tuple[str, ...]:
    return check.step, check.what, VERDICTS[check.ok][0], printable(check.found)


def _since(text: str, moment: datetime | None) -> str:
    return "" if moment is None else f"{text} {_at(moment)}"


def _at(moment: datetime | None) -> str:
    return "" if moment is None else moment_and_distance(int(moment.timestamp() * 1000), int(time.time() * 1000))
