"""Opening a crawl that is there: the options that say which one, and never a new store just by looking."""

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from outrider.model.errors import InvalidInput, UnknownCrawl, shown

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.crawler.plan import CrawlPlan
    from outrider.model.job import Run
    from outrider.model.settings import Settings
    from outrider.model.task import Crawl
    from outrider.store.opening import Stores
    from outrider.store.protocols import UrlStore

Result = TypeVar("Result")

Data = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="The crawl's data folder. [default: outrider-data]")
]
Store = Annotated[
    str | None,
    typer.Option("--store", metavar="DSN", help="Another store. [default: SQLite in the data folder]"),
]
CrawlName = Annotated[str | None, typer.Option("--crawl", metavar="NAME", help="The crawl. [default: DEFAULT]")]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="Settings file. [default: outrider.toml where there is one]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]

MOST_NAMED = 10


class Opened(NamedTuple):
    """A crawl that is there, and how it was found."""

    plan: "CrawlPlan"
    stores: "Stores"
    crawl: "Crawl"

    @property
    def urls(self) -> "UrlStore":
        """The store's URL plane."""
        return self.stores.urls

    @property
    def name(self) -> str:
        """The crawl's name."""
        return self.crawl.name


def chosen_plan(
    data: str | None, store: str | None, crawl: str | None, config: str | None
) -> "tuple[CrawlPlan, Settings]":
    """Put the options together with the environment and the settings file."""
    from outrider.cli.options import load_plan

    plan, settings, _ = load_plan({"data": data, "store": store, "crawl": crawl}, config_path=config)
    return plan, settings


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run what a command does to its end."""
    import asyncio

    return asyncio.run(work)


@asynccontextmanager
async def open_crawl(plan: "CrawlPlan", settings: "Settings") -> AsyncIterator[Opened]:
    """Open the store of a plan and find its crawl; raises `InvalidInput` where either is missing."""
    from outrider.crawler.plan import store_dsn
    from outrider.store.dsn import parse_dsn
    from outrider.store.opening import open_store

    dsn = store_dsn(plan)
    if not is_there(dsn):
        place = parse_dsn(dsn).shown
        raise InvalidInput(f"there is no crawl in {place}: `outrider crawl SEED` begins one, --data names its folder")
    async with await open_store(dsn, settings) as stores:
        try:
            crawl = await stores.urls.get_crawl(plan.crawl)
        except UnknownCrawl:
            names = [each.name for each in await stores.urls.list_crawls()]
            raise InvalidInput(_no_such_crawl(plan.crawl, dsn, names)) from None
        yield Opened(plan, stores, crawl)


def is_there(dsn: str) -> bool:
    """Tell whether a store is there; to open a file that is not would create it."""
    from pathlib import Path

    from outrider.store.dsn import SqliteDsn, parse_dsn

    parsed = parse_dsn(dsn)
    if not isinstance(parsed, SqliteDsn):
        return True
    try:
        return Path(parsed.path).is_dir() or Path(parsed.path).stat().st_size > 0
    except OSError:
        return False


def _no_such_crawl(name: str, dsn: str, names: list[str]) -> str:
    from outrider.store.dsn import parse_dsn

    there = ", ".join(shown(each) for each in names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"there is no crawl named {shown(name)} in {parse_dsn(dsn).shown}; there is {there or 'none'}{more}"


class Workers(NamedTuple):
    """The crawl processes that a data folder knows of."""

    living: frozenset[str]
    killed: frozenset[str]
    """What they held is returned by the next process that begins."""


def look_for_workers(folder: "Path") -> Workers:
    """Tell which crawl processes are alive, without leaving a trace of this look.

    Each holds a lock on a file of its own, see `outrider.frontier.presence`.
    """
    import fcntl
    import os

    from outrider.frontier.presence import SUFFIX

    found: dict[bool, set[str]] = {True: set(), False: set()}
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        is_alive = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            is_alive = True
        finally:
            os.close(descriptor)
        found[is_alive].add(path.name.removesuffix(SUFFIX))
    return Workers(frozenset(found[True]), frozenset(found[False]))


def workers_of(plan: "CrawlPlan") -> Workers:
    """Look for the crawl processes of a plan's data folder."""
    from pathlib import Path

    from outrider.crawler.plan import WORKERS_FOLDER

    return look_for_workers(Path(plan.data) / WORKERS_FOLDER)


def one_of(option: str, given: str | None, choices: list[str]) -> str | None:
    """Read a word, in any letter case, that must be one of a few."""
    if given is None or given.lower() in choices:
        return None if given is None else given.lower()
    raise InvalidInput(f"{option} must be one of {', '.join(choices)}, not {shown(given)}")


def queue_key(domain: str | None, crawl: "Crawl") -> str | None:
    """Name the queue of a domain, or of a URL's domain, as people write it."""
    from outrider.model.url import locate
    from outrider.policy.admission import key_for

    if domain is None:
        return None
    return key_for(locate(domain if "://" in domain else f"http://{domain}"), crawl.rules)


def same_crawl(name: str, plan: "CrawlPlan") -> str:
    """Write a command that finds the same crawl."""
    import shlex

    from outrider.cli.options import without_password
    from outrider.crawler.plan import CrawlPlan

    defaults, words = CrawlPlan(), ["outrider", name]
    if plan.data != defaults.data:
        words += ["--data", plan.data]
    if plan.store is not None:
        words += ["--store", without_password(plan.store)]
    if plan.crawl != defaults.crawl:
        words += ["--crawl", plan.crawl]
    return shlex.join(words)


def crawl_again(plan: "CrawlPlan", last: "Run | None") -> str:
    """Write the command that goes on with a crawl, as far as its last run tells how it was begun.

    What standard input said to it is gone.
    """
    import shlex

    import msgspec

    from outrider.cli.seeds import STANDARD_INPUT
    from outrider.control.evidence import KEPT_SEEDS
    from outrider.crawler.plan import CrawlPlan

    kept = {} if last is None else dict(last.settings)
    seeds = kept.get("seeds")
    file = kept.get("seeds_file")
    if not isinstance(seeds, list) or not (seeds or file) or len(seeds) >= KEPT_SEEDS or file == STANDARD_INPUT:
        return "the same `outrider crawl` command again"
    words = [str(seed) for seed in seeds]
    defaults = msgspec.to_builtins(CrawlPlan())
    for field, default in defaults.items():
        value = kept.get(field, default)
        if value == default or field in ("seeds", "data", "store", "crawl", "fresh", "proxy"):
            continue
        flag = "--seeds" if field == "seeds_file" else f"--{field.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [part for each in (value if isinstance(value, list) else [value]) for part in (flag, str(each))]
    return f"{same_crawl('crawl', plan)} {shlex.join(words)}"
