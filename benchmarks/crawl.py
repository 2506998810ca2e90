"""How fast Outrider crawls beside others: the same pages, the same concurrency, no delay, in one run.

    python benchmarks/crawl.py [--pages 5000] [--links 20] [--concurrency 64] [--only NAME …] [--rounds 1] [--json]

Every crawler is a process of its own and crawls the plain pages of the demo site, which is served by another
process. Outrider runs as its command, with robots.txt, WARC and JSONL; Scrapy and Crawlee obey robots.txt and keep
a line or a row for each page; the bare loop does nothing but fetch and parse. What was fetched is counted by the
server. Time, CPU and memory are those of the whole command, start and end included.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from crawlers import measuring, tools
from rich.console import Console
from rich.table import Table

from outrider.demo.site import Site, SiteOptions

SCRIPTS = Path(__file__).parent.absolute() / "crawlers"
OURS = Path(sys.executable)
CRAWLERS = ("outrider", "scrapy_jobdir", "scrapy_memory", "crawlee_memory", "crawlee_sql", "bare")
GOALS = {
    "outrider/scrapy_jobdir": ("outrider", "scrapy_jobdir", 5.0),
    "outrider/crawlee_memory": ("outrider", "crawlee_memory", 3.0),
    "outrider/bare": ("outrider", "bare", 0.5),
}
MOST_RSS_MB = 150


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one crawler did in one round, or in all."""

    crawler: str
    pages: int = 0
    """Different pages that the server was asked for."""
    requests: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    crawl_s: float = 0.0
    """From the first request to the last."""
    peak_rss_mb: float = 0.0
    troubles: tuple[str, ...] = ()

    @property
    def pages_per_s(self) -> float:
        return self.pages / self.wall_s if self.wall_s else 0.0

    @property
    def crawl_pages_per_s(self) -> float:
        return self.pages / self.crawl_s if self.crawl_s else 0.0

    @property
    def cpu_ms_per_page(self) -> float:
        return self.cpu_s * 1_000 / self.pages if self.pages else 0.0

    def figures(self) -> dict[str, object]:
        return {
            "pages_per_s": round(self.pages_per_s, 1),
            "crawl_pages_per_s": round(self.crawl_pages_per_s, 1),
            "cpu_ms_per_page": round(self.cpu_ms_per_page, 3),
            "peak_rss_mb": round(self.peak_rss_mb, 1),
            "wall_s": round(self.wall_s, 2),
            "pages": self.pages,
            "requests": self.requests,
            "troubles": list(self.troubles),
        }


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What all crawlers have in common."""

    site: SiteOptions
    concurrency: int
    limit_s: float
    tools: Path

    def command(self, crawler: str, url: str, folder: Path) -> list[str | Path]:
        """The command that crawls the site and prints how many pages it has, as JSON."""
        kind, _, variant = crawler.partition("_")
        if kind != "outrider":
            python = OURS if kind == "bare" else self.tools
            return [python, SCRIPTS / f"{kind}_crawl.py", url, str(self.concurrency), folder, variant]
        many = str(self.concurrency)
        return [
            OURS, "-m", "outrider.cli.main", "crawl", url, "--data", folder / "data", "--delay", "0",
            "--per-domain", many, "--concurrency", many, "--allow-private", "--output", folder / "pages.jsonl",
            "--progress", "none",
        ]  # fmt: skip


@contextmanager
def served(options: SiteOptions, log: Path) -> Iterator[str]:
    """Serve the plain pages from a process of their own; gives the address of the front page."""
    command: list[str | Path] = [
        OURS, "-m", "outrider.demo.server", "--no-oddities", "--log", log, "--pages", str(options.pages),
        "--links", str(options.links_per_page), "--page-bytes", str(options.page_bytes),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            base_url = server.stdout.readline().strip()
            if not base_url:
                raise RuntimeError("the demo server did not start")
            yield f"{base_url}/"
        finally:
            server.terminate()


def measure(plan: Plan, crawler: str) -> Row:
    """Let one crawler crawl the whole site once."""
    folder = Path(tempfile.mkdtemp(prefix=f"outrider-benchmark-{crawler}-"))
    log = folder / "requests.log"
    try:
        with served(plan.site, log) as url:
            measured = measuring.run(plan.command(crawler, url, folder), folder, plan.limit_s)
        asked = [line.split(" ") for line in log.read_text(encoding="latin-1").splitlines()] if log.exists() else []
        kept = _lines(folder / "pages.jsonl") if crawler == "outrider" else measured.answer.get("pages")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    times = [int(line[0]) for line in asked]
    pages = [line[2] for line in asked if line[2] != "/robots.txt"]
    expected = set(Site(plan.site).page_paths())
    return Row(
        crawler=crawler,
        pages=len(expected.intersection(pages)),
        requests=len(asked),
        wall_s=measured.wall_s,
        cpu_s=measured.cpu_s,
        crawl_s=(times[-1] - times[0]) / 1e9 if times else 0.0,
        peak_rss_mb=measured.peak_rss_mb,
        troubles=tuple(_troubles(measured.trouble, expected, pages, kept)),
    )


def _lines(path: Path) -> int | None:
    if not path.exists():
        return None
    with path.open("rb") as lines:
        return sum(1 for _ in lines)


def _troubles(trouble: str, expected: set[str], pages: Sequence[str], kept: int | None) -> Iterator[str]:
    if trouble:
        yield trouble
    missing, again = len(expected.difference(pages)), len(pages) - len(set(pages))
    if missing:
        yield f"{missing:,} of {len(expected):,} pages were never asked for"
    if again:
        yield f"{again:,} were asked for more than once"
    if others := len(set(pages) - expected):
        yield f"{others:,} other addresses were asked for"
    if kept != len(expected):
        yield f"says that it kept {kept if kept is not None else 'nothing'}, expected {len(expected):,}"


def combined(rows: Sequence[Row]) -> Row:
    """All rounds of a crawler as one: sums, and the highest memory."""
    return Row(
        crawler=rows[0].crawler,
        pages=sum(row.pages for row in rows),
        requests=sum(row.requests for row in rows),
        wall_s=sum(row.wall_s for row in rows),
        cpu_s=sum(row.cpu_s for row in rows),
        crawl_s=sum(row.crawl_s for row in rows),
        peak_rss_mb=max(row.peak_rss_mb for row in rows),
        troubles=tuple(dict.fromkeys(trouble for row in rows for trouble in row.troubles)),
    )


def goals(rows: dict[str, Row]) -> dict[str, dict[str, object]]:
    """What was to be reached and whether it was; nothing is, with a crawler that had trouble."""
    measured: dict[str, dict[str, object]] = {}
    for name, (ours, theirs, least) in GOALS.items():
        if ours in rows and theirs in rows:
            ratio = rows[ours].pages_per_s / rows[theirs].pages_per_s if rows[theirs].pages else 0.0
            reached = ratio >= least and not rows[ours].troubles and not rows[theirs].troubles
            measured[name] = {"measured": round(ratio, 2), "goal": f">= {least:g}", "reached": reached}
    if "outrider" in rows:
        peak = rows["outrider"].peak_rss_mb
        reached = peak <= MOST_RSS_MB and not rows["outrider"].troubles
        measured["outrider RSS MB"] = {"measured": round(peak, 1), "goal": f"<= {MOST_RSS_MB}", "reached": reached}
    return measured


def show(console: Console, plan: Plan, rows: dict[str, Row], left_out: dict[str, str]) -> None:
    """Print the tables for people."""
    site = plan.site
    table = Table(title=f"{site.pages:,} pages × {site.links_per_page} links, concurrency {plan.concurrency}")
    table.add_column("crawler")
    for heading in ("pages/s", "pages/s while crawling", "CPU ms/page", "peak RSS MB", "wall s", "pages"):
        table.add_column(heading, justify="right")
    table.add_column("trouble")
    for row in rows.values():
        table.add_row(
            row.crawler, f"{row.pages_per_s:,.0f}", f"{row.crawl_pages_per_s:,.0f}", f"{row.cpu_ms_per_page:.2f}",
            f"{row.peak_rss_mb:.0f}", f"{row.wall_s:.1f}", f"{row.pages:,}", "; ".join(row.troubles),
        )  # fmt: skip
    console.print(table)
    for name, goal in goals(rows).items():
        console.print(f"{name}: {goal['measured']} (goal {goal['goal']}: {'reached' if goal['reached'] else 'MISSED'})")
    for name, reason in left_out.items():
        console.print(f"left out: {name}: {reason}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure crawlers on the plain pages of the demo site.")
    parser.add_argument("--pages", type=int, default=5_000)
    parser.add_argument("--links", type=int, default=20)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument(
        "--only", nargs="+", choices=CRAWLERS, default=CRAWLERS, metavar="NAME", help=", ".join(CRAWLERS)
    )
    parser.add_argument("--rounds", type=int, default=1, help="all crawlers take turns; figures are those of the sums")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="for each crawler and round")
    parser.add_argument("--tools", type=Path, default=tools.default_folder(), metavar="DIR", help="for other crawlers")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    return parser.parse_args()


def main() -> None:
    options = _options()
    console = Console(stderr=options.json, markup=False, width=None if sys.stdout.isatty() else 160)
    others = [name for name in options.only if name not in ("outrider", "bare")]
    python, missing = tools.python_with_tools(options.tools, console.print) if others else (OURS, {})
    left_out = {name: missing[kind] for name in others if (kind := name.partition("_")[0]) in missing}
    site = SiteOptions(pages=options.pages, links_per_page=options.links, oddities=False)
    plan = Plan(site=site, concurrency=options.concurrency, limit_s=options.limit, tools=python)
    measured: dict[str, list[Row]] = {name: [] for name in options.only if name not in left_out}
    for number in range(options.rounds):
        for name, rounds in measured.items():
            rounds.append(measure(plan, name))
            console.print(f"round {number + 1}: {name}: {rounds[-1].pages_per_s:,.0f} pages/s", style="dim")
    rows = {name: combined(rounds) for name, rounds in measured.items() if rounds}
    if not options.json:
        show(console, plan, rows, left_out)
        return
    figures = {
        "pages": options.pages,
        "links": options.links,
        "concurrency": options.concurrency,
        "rounds": options.rounds,
        "crawlers": {name: row.figures() for name, row in rows.items()},
        "goals": goals(rows),
        "left_out": left_out,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
