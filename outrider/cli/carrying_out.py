"""Carrying out a plan for a person: the display, the signals, the summary."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from outrider.cli.display import Display, ProgressMode, make_display
from outrider.cli.exits import ExitCode, exit_code_of
from outrider.cli.running import run_to_its_end
from outrider.cli.seeds import MOST_RANK, Seed, Seeds, read_seeds
from outrider.cli.summary import print_summary, summarise
from outrider.crawler.execution import Execution
from outrider.crawler.file_lock import told
from outrider.crawler.page_lines import STANDARD_OUTPUT, PageLines
from outrider.crawler.plan import LOG_FILE, CrawlPlan
from outrider.crawler.progress import CrawlEnding, Snapshot
from outrider.crawler.refreshing import RefreshWish
from outrider.crawler.scheduling import Scheduling
from outrider.crawler.seeding import ListedSeed
from outrider.model.errors import InvalidInput
from outrider.model.settings import Settings
from outrider.model.task import Discovered, DiscoveryType
from outrider.policy.discovery import priority_of

REFUSALS_SHOWN: Final = 10


def carry_out(plan: CrawlPlan, settings: Settings, mode: ProgressMode, refresh: RefreshWish | None = None) -> ExitCode:
    """Execute a plan with a display and a summary, or refresh its crawl; tell the exit code."""
    is_seeded = bool(plan.seeds) or plan.seeds_file is not None
    if refresh is None and not is_seeded and not Scheduling.of(settings, claims=plan.claims).from_domains:
        raise InvalidInput("name at least one seed: outrider crawl https://example.org, or --seeds FILE")
    if mode is ProgressMode.AUTO and plan.output == "-" and sys.stdout.isatty():
        mode = ProgressMode.PLAIN  # a picture that is drawn anew and lines of results do not go together
    seeds = read_seeds(plan)
    # Without seeds, the domains table has the work, or the pages that are refreshed are it.
    usable = usable_seeds(seeds) if refresh is None and is_seeded else iter(())
    check_output(plan)
    _allow_many_connections()
    display = make_display(mode)
    try:
        ended = run_to_its_end(_execute(plan, settings, usable, seeds, display, refresh))
    finally:
        display.close()
    if refresh is not None and ended.was_finished:
        if mode is not ProgressMode.NONE:
            print(f"outrider: nothing of crawl {plan.crawl} is due", file=sys.stderr)
    elif ended.was_finished and mode is not ProgressMode.NONE:
        done = f"{ended.snapshot.counts.completed:,} pages"
        print(f"outrider: crawl {plan.crawl} is finished, with {done}; --fresh begins anew", file=sys.stderr)
    elif not ended.was_finished:
        print_summary(summarise(ended.snapshot, ended.ending, plan), mode)
    return exit_code_of(ended.ending)


class Ended(NamedTuple):
    """How an execution ended."""

    ending: CrawlEnding
    snapshot: Snapshot
    was_finished: bool


def usable_seeds(seeds: Seeds) -> Iterator[Seed]:
    """Give the seeds, of which the first is read now: without any, a crawl is not even opened."""
    found = iter(seeds)
    first = next(found, None)
    if first is not None:
        return chain([first], found)
    if not seeds.refusals:
        raise InvalidInput("no usable seed: there is none at all; write one URL or host per line, or CSV `rank,domain`")
    more = f" ({seeds.refused - 1:,} more are refused)" if seeds.refused > 1 else ""
    raise InvalidInput(f"no usable seed: {seeds.refusals[0]}{more}")


def check_output(plan: CrawlPlan) -> None:
    """Refuse an output that cannot be written, before anything of a crawl is made."""
    if plan.output is None or plan.output == STANDARD_OUTPUT:
        return
    path = Path(plan.output)
    folder = path.parent
    with told(path):
        if path.is_dir():
            raise InvalidInput(f"cannot write {path}: it is a folder")
        if path.is_file():
            if (lines := PageLines.try_open(path)) is not None:
                lines.close()
        elif not path.exists():
            is_made_by_the_crawl = folder.resolve() == Path(plan.data).resolve()
            if not folder.is_dir() and not is_made_by_the_crawl:
                raise InvalidInput(f"cannot write {path}: there is no folder {folder}")
            if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
                raise InvalidInput(f"cannot write {path}: the folder {folder} may not be written to")


async def _execute(
    plan: CrawlPlan,
    settings: Settings,
    usable: Iterator[Seed],
    seeds: Seeds,
    display: Display,
    refresh: RefreshWish | None,
) -> Ended:
    stop = asyncio.Event()
    _stop_on_signals(stop, display)
    async with Execution(plan, settings, refresh) as execution:
        _log_to(Path(plan.data) / LOG_FILE)
        display.message(f"crawl {plan.crawl} in {plan.data}")
        ending = await execution.run(discovered(usable, seeds, display), stop, display.update)
        return Ended(ending, await execution.snapshot(), execution.was_finished)


def discovered(usable: Iterator[Seed], seeds: Seeds, display: Display) -> Iterator[Discovered]:
    """Give the seeds as discoveries, and tell of those that are none."""
    for seed in usable:
        yield ListedSeed(
            url=seed.url,
            priority=priority_of(DiscoveryType.SEED, rank=seed.rank),
            discovery_type=DiscoveryType.SEED,
            rank=None if seed.rank is None or seed.rank > MOST_RANK else seed.rank,
            source=seeds.source,
        )
    for refusal in seeds.refusals[:REFUSALS_SHOWN]:
        display.message(f"seed refused: {refusal}")
    if seeds.refused > REFUSALS_SHOWN:
        display.message(f"{seeds.refused - REFUSALS_SHOWN:,} more seeds refused")


def _stop_on_signals(stop: asyncio.Event, display: Display) -> None:
    """Stop in order at the first signal, at once at the second."""

    def on_signal() -> None:
        if stop.is_set():
            # What is held is given back by the next process that sees this one gone.
            display.close()
            print("outrider: interrupted", file=sys.stderr, flush=True)
            os._exit(ExitCode.INTERRUPTED)
        display.message("stopping: what is under way is finished or given back; once more to stop at once")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)


def _allow_many_connections() -> None:
    """Have as many open files as the system lets us: a crawl of many sites keeps a connection to each for a while."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _log_to(path: Path) -> None:
    with told(path):
        logging.basicConfig(
            filename=path, level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
        )
