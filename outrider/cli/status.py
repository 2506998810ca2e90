"""`outrider status`: how a crawl stands."""

from typing import TYPE_CHECKING

import msgspec
import typer

from outrider.cli.opened import (
    AsJson,
    Config,
    CrawlName,
    Data,
    Opened,
    Store,
    chosen_plan,
    crawl_again,
    open_crawl,
    run,
    same_crawl,
    workers_of,
)

if TYPE_CHECKING:
    from outrider.control.story import Fact
    from outrider.crawler.plan import CrawlPlan
    from outrider.model.job import Run
    from outrider.model.task import WaitingQueue

MOST_RUNS = 5
MOST_DOMAINS = 10
MOST_REASONS = 10
LONGEST_REASON = 100
MOST_FAILED = 20_000
"""How many failed URLs are looked at for their reasons."""
WORTH_TELLING_MS = 2_000
"""Shorter waits are the ordinary pause between two requests."""


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of the crawl."""

    started_at: str
    finished_at: str | None
    status: str
    reason: str | None
    alive: bool
    """Its process is at work in this data folder."""


class WaitingDomain(msgspec.Struct, frozen=True, kw_only=True):
    """A domain that cannot be fetched from now."""

    domain: str
    reason: str
    until: str
    in_s: float
    pending: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a crawl stands, for people and programs."""

    crawl: str
    state: str
    created_at: str
    processes: int
    """Crawl processes at work in this data folder."""
    pages: dict[str, int]
    kinds: dict[str, dict[str, int]]
    next_ready_at: str | None
    next_ready_in_s: float | None
    limit_reached: bool
    waiting: list[WaitingDomain]
    failures: dict[str, int]
    failures_cut: bool
    """There are more failed URLs than were looked at."""
    limits: dict[str, object]
    runs: list[RunStatus]
    places: dict[str, str]


def status(
    as_json: AsJson = False, data: Data = None, store: Store = None, crawl: CrawlName = None, config: Config = None
) -> None:
    """Tell how a crawl stands: what is done, what waits and why, what failed, and where everything lies.

    It can be asked at any time, also while the crawl runs.
    """
    plan, settings = chosen_plan(data, store, crawl, config)

    async def looking() -> tuple[Status, str]:
        async with open_crawl(plan, settings) as opened:
            runs = await opened.stores.control.list_runs(opened.name, limit=MOST_RUNS)
            return await _look(opened, runs), crawl_again(plan, runs[0] if runs else None)

    found, again = run(looking())
    if as_json:
        typer.echo(msgspec.json.encode(found))
        return
    from outrider.cli.tables import print_facts

    print_facts(_facts(found, plan, again))


async def _look(opened: Opened, runs: "list[Run]") -> Status:
    import time

    from outrider.crawler.page_lines import utc_text
    from outrider.model.task import Counts, Kind

    now = int(time.time() * 1000)
    kinds = await opened.urls.counts_by_kind(opened.name)
    outlook = await opened.urls.outlook(opened.name)
    living = workers_of(opened.plan).living
    failures, cut = await _failures(opened)
    pages, most_pages = kinds.get(Kind.PAGE, Counts()), opened.crawl.limits.max_pages
    return Status(
        crawl=opened.name,
        state=opened.crawl.state,
        created_at=utc_text(opened.crawl.created_at),
        processes=len(living),
        pages=msgspec.to_builtins(pages),
        kinds={kind.name.lower(): msgspec.to_builtins(counts) for kind, counts in kinds.items()},
        next_ready_at=None if outlook.next_ready_at is None else utc_text(outlook.next_ready_at),
        next_ready_in_s=None if outlook.next_ready_at is None else max(outlook.next_ready_at - now, 0) / 1000,
        limit_reached=outlook.limited or (most_pages is not None and pages.completed >= most_pages),
        waiting=await _waiting(opened, now),
        failures=failures,
        failures_cut=cut,
        limits=msgspec.to_builtins(opened.crawl.limits),
        runs=[_run(each, living) for each in runs],
        places=_places(opened.plan),
    )


def _run(each: "Run", living: frozenset[str]) -> RunStatus:
    from outrider.model.job import RunStatus as Status

    return RunStatus(
        started_at=each.started_at.isoformat(),
        finished_at=None if each.finished_at is None else each.finished_at.isoformat(),
        status=each.status,
        reason=each.reason,
        alive=each.status is Status.RUNNING and each.settings.get("worker") in living,
    )


async def _waiting(opened: Opened, now: int) -> list[WaitingDomain]:
    after = now + WORTH_TELLING_MS + opened.crawl.limits.delay_ms
    queues = await opened.urls.waiting_queues(opened.name, after=after, limit=MOST_DOMAINS + 1)
    return [await _waiting_domain(opened, queue, now) for queue in queues if queue.pending]


async def _waiting_domain(opened: Opened, queue: "WaitingQueue", now: int) -> WaitingDomain:
    from outrider.crawler.page_lines import utc_text

    until = queue.waits_until
    return WaitingDomain(
        domain=queue.domain or queue.key,
        reason=await _reason_to_wait(opened, queue, now),
        until=utc_text(until),
        in_s=(until - now) / 1000,
        pending=queue.pending,
    )


async def _reason_to_wait(opened: Opened, queue: "WaitingQueue", now: int) -> str:
    from outrider.model.machines import TaskState
    from outrider.model.task import TaskFilter

    if queue.blocked_until > now:
        return "blocked by an operator"
    if queue.robots_until > now:
        return await _unreachable_robots(opened, queue.domain or queue.key)
    page = await opened.urls.list_tasks(opened.name, TaskFilter(state=TaskState.PENDING, key=queue.key), limit=100)
    reason = next((task.reason for task in page.tasks if task.reason), None)
    if queue.backoff_until > now:
        return "backing off" if reason is None else f"backing off after {reason}"
    if (await opened.urls.counts(opened.name, queue.key)).assigned:
        return "waiting for what is in flight"
    return "its URLs are not due yet" if reason is None else f"to be tried again after {reason}"


async def _unreachable_robots(opened: Opened, domain: str) -> str:
    from outrider.crawler.robots import unreachable_because

    _, text = await opened.urls.robots_text(domain) or ("", "")
    because = unreachable_because(text)
    return "robots.txt unreachable" if because is None else f"robots.txt unreachable: {because}"


async def _failures(opened: Opened) -> tuple[dict[str, int], bool]:
    """Count failed URLs by what their reasons begin with; tell whether there are more than were counted."""
    from collections import Counter

    from outrider.cli.urls import pages_of_tasks
    from outrider.model.machines import TaskState
    from outrider.model.task import TaskFilter

    reasons: Counter[str] = Counter()
    async for tasks in pages_of_tasks(opened, TaskFilter(state=TaskState.FAILED), MOST_FAILED):
        reasons.update((task.reason or "unknown").partition(":")[0] for task in tasks)
    return dict(reasons.most_common()), reasons.total() >= MOST_FAILED


def _places(plan: "CrawlPlan") -> dict[str, str]:
    from pathlib import Path

    from outrider.control.wording import byte_count
    from outrider.crawler.plan import LOG_FILE, WARC_FOLDER, store_dsn
    from outrider.store.dsn import parse_dsn

    data = Path(plan.data)
    places = {"store": parse_dsn(store_dsn(plan)).shown}
    archive = [path for path in (data / WARC_FOLDER).glob("*") if path.is_file()]
    if archive:
        size = byte_count(sum(path.stat().st_size for path in archive))
        places["WARC files"] = f"{data / WARC_FOLDER} ({len(archive):,} file{'s' * (len(archive) != 1)}, {size})"
    if (data / LOG_FILE).exists():
        places["log"] = str(data / LOG_FILE)
    return places


def _facts(found: Status, plan: "CrawlPlan", again: str) -> "list[Fact]":
    facts = [("crawl", f"{found.crawl}, {_state(found)}"), ("now", _activity(found))]
    facts += [("pages", _counts(found.pages))]
    facts += [(f"{kind} files", _counts(counts)) for kind, counts in found.kinds.items() if kind != "page"]
    if found.failures:
        facts.append(("failed", _failed(found)))
    if found.waiting:
        facts.append(("waiting", _waiting_text(found.waiting)))
    facts.append(("limits", _limits(found)))
    if found.runs:
        facts.append(("runs", "\n".join(map(_run_text, found.runs))))
    facts += list(found.places.items())
    facts.append(("next", _next(found, plan, again)))
    return facts


def _left(found: Status, *states: str) -> int:
    """Count what is in one of these states, whatever the kind: sitemaps lead to pages too."""
    return sum(counts[state] for counts in found.kinds.values() for state in states)


def _state(found: Status) -> str:
    """Tell the state as people see it: to the store, a crawl that may go on is running."""
    is_over = found.state == "running" and not found.processes and not _left(found, "pending", "assigned")
    return "finished" if is_over else found.state


def _activity(found: Status) -> str:
    from outrider.control.wording import span

    if found.processes:
        plural = "es are" if found.processes > 1 else " is"
        return f"{found.processes} crawl process{plural} at work"
    if not _left(found, "pending", "assigned"):
        return "no process is at work, and nothing is left to do"
    if held := _left(found, "assigned"):
        which = f"{held:,} URL{' is' if held == 1 else 's are'} leased to one that was killed or is elsewhere"
        return f"no process is at work here; {which}: a new crawl knows which"
    if found.limit_reached:
        return "no process is at work; a limit on pages is reached"
    if found.next_ready_in_s:
        return f"no process is at work; something can be fetched in {span(found.next_ready_in_s)}"
    return "no process is at work; something can be fetched at once"


def _counts(counts: dict[str, int]) -> str:
    words = {"completed": "done", "pending": "pending", "assigned": "in flight", "failed": "failed"}
    parts = [f"{counts[state]:,} {word}" for state, word in words.items() if counts[state] or state == "completed"]
    if counts["discovered"]:
        parts.append(f"{counts['discovered']:,} past a limit")
    return ", ".join(parts)


def _failed(found: Status) -> str:
    ordered = list(found.failures.items())
    lines = [f"{number:>7,}  {_trimmed(reason)}" for reason, number in ordered[:MOST_REASONS]]
    if len(ordered) > MOST_REASONS:
        lines.append(f"{sum(number for _, number in ordered[MOST_REASONS:]):>7,}  for other reasons")
    if found.failures_cut:
        lines.append(f"         counted over the first {MOST_FAILED:,} only")
    return "\n".join(lines)


def _trimmed(reason: str) -> str:
    """Cut what sites and exceptions say to a line's length; `--json` has all of it."""
    reason = " ".join(reason.split())
    return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…"


def _waiting_text(waiting: list[WaitingDomain]) -> str:
    from outrider.control.wording import span

    lines = [
        f"{each.domain}: {_trimmed(each.reason)}, {span(each.in_s)} left, {each.pending:,} waiting"
        for each in waiting[:MOST_DOMAINS]
    ]
    if len(waiting) > MOST_DOMAINS:
        lines.append("and more domains")
    return "\n".join(lines)


def _limits(found: Status) -> str:
    limits = found.limits
    names = {"max_pages": "pages", "max_pages_per_domain": "pages per domain and run", "max_depth": "depth"}
    parts = [f"{words} {limits[name]:,}" for name, words in names.items() if limits[name] is not None]
    delay = limits["delay_ms"]
    assert isinstance(delay, int)
    parts.append(f"delay {delay / 1000:g} s")
    parts.append(f"{limits['concurrency']} at a time per domain")
    parts.append("robots.txt obeyed" if limits["robots"] else "robots.txt not asked")
    return ", ".join(parts)


def _run_text(each: RunStatus) -> str:
    from datetime import datetime

    from outrider.control.wording import span

    started = datetime.fromisoformat(each.started_at)
    text = started.strftime("%Y-%m-%d %H:%M:%S UTC")
    if each.finished_at is not None:
        took = (datetime.fromisoformat(each.finished_at) - started).total_seconds()
        return f"{text}, {span(took)}, {each.status}: {_trimmed(each.reason or 'no reason given')}"
    return f"{text}, {'running' if each.alive else 'not closed: killed, or running on another machine'}"


def _next(found: Status, plan: "CrawlPlan", again: str) -> str:
    steps = []
    if not found.processes and _left(found, "pending", "assigned"):
        steps.append(again)
    if found.failures:
        steps.append(f"{same_crawl('urls', plan)} --state failed")
    steps.append(f"{same_crawl('explain', plan)} URL")
    return "\n".join(steps)
