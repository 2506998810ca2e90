"""`outrider urls`: the URLs that a crawl has seen, and how each stands."""

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.opened import (
    Config,
    CrawlName,
    Data,
    Opened,
    Store,
    chosen_plan,
    one_of,
    open_crawl,
    queue_key,
    run,
)

if TYPE_CHECKING:
    from outrider.model.task import Task, TaskFilter

State = Annotated[
    str | None,
    typer.Option(metavar="discovered|pending|assigned|completed|failed", help="Only URLs in this state."),
]
Domain = Annotated[str | None, typer.Option(metavar="DOMAIN", help="Only URLs of this domain.")]
Filter = Annotated[str | None, typer.Option("--filter", metavar="TEXT", help="Only URLs that contain this text.")]
KindName = Annotated[str | None, typer.Option(metavar="page|robots|sitemap", help="Only URLs of this kind.")]

AT_ONCE = 1_000
DEFAULT_LIMIT = 50
LONGEST_WHY = 60
"""What is longer is cut for people; JSON has all of it."""
HEADINGS = ("state", "status", "depth", "priority", "attempts", "why", "URL")
NUMBERS = ("status", "depth", "priority", "attempts")
SPARE = ("priority", "attempts")


def urls(
    state: State = None,
    domain: Domain = None,
    text: Filter = None,
    kind: KindName = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many.")] = DEFAULT_LIMIT,
    every: Annotated[bool, typer.Option("--all", help="All of them, however many.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    data: Data = None,
    store: Store = None,
    crawl: CrawlName = None,
    config: Config = None,
) -> None:
    """List the URLs that a crawl has seen, with their state and why they stand there.

    The order is that of the store and stays the same whatever happens to the URLs. What failed goes back with
    `outrider retry-failed`; `outrider explain URL` says more of one.
    """
    plan, settings = chosen_plan(data, store, crawl, config)

    async def listing() -> None:
        async with open_crawl(plan, settings) as opened:
            which = task_filter(opened, state=state, domain=domain, text=text, kind=kind)
            await _print(opened, which, None if every else limit, as_json=as_json)

    run(listing())


def task_filter(
    opened: Opened, *, state: str | None = None, domain: str | None, text: str | None, kind: str | None
) -> "TaskFilter":
    """Make a filter of what was typed, or raise `InvalidInput`."""
    from outrider.model.machines import TaskState
    from outrider.model.task import Kind, TaskFilter

    chosen_state = one_of("--state", state, [each.lower() for each in TaskState])
    chosen_kind = one_of("--kind", kind, [each.name.lower() for each in Kind])
    return TaskFilter(
        state=None if chosen_state is None else TaskState(chosen_state.upper()),
        key=queue_key(domain, opened.crawl),
        kind=None if chosen_kind is None else Kind[chosen_kind.upper()],
        url_contains=text,
    )


async def pages_of_tasks(opened: Opened, which: "TaskFilter", most: int | None = None) -> "AsyncIterator[list[Task]]":
    """Read tasks in short ranges, so that a crawl beside this is not held up."""
    cursor: str | None = None
    left = most
    while left is None or left > 0:
        page = await opened.urls.list_tasks(
            opened.name, which, cursor=cursor, limit=AT_ONCE if left is None else min(left, AT_ONCE)
        )
        if page.tasks:
            yield page.tasks
        if page.next_cursor is None:
            return
        cursor = page.next_cursor
        left = None if left is None else left - len(page.tasks)


async def _print(opened: Opened, which: "TaskFilter", most: int | None, *, as_json: bool) -> None:
    import sys
    import time

    from outrider.cli.tables import Columns, print_table

    columns = Columns(HEADINGS)
    number = 0
    async for tasks in pages_of_tasks(opened, which, most):
        now = int(time.time() * 1000)
        if as_json:
            typer.echo("\n".join(json.dumps(task_record(task), ensure_ascii=False) for task in tasks))
        elif number == 0 and len(tasks) < AT_ONCE and sys.stdout.isatty():
            print_table(HEADINGS, [_row(task, now) for task in tasks], numbers=NUMBERS, spare=SPARE)
        else:
            columns.print([_row(task, now) for task in tasks])
        number += len(tasks)
    if as_json:
        return
    if number == 0:
        typer.echo("no URL is like that", err=True)
    elif number == most:
        typer.echo(f"the first {number:,}; --limit or --all shows more", err=True)


def _row(task: "Task", now: int) -> tuple[str, ...]:
    return (
        task.state.lower(),
        str(task.http_status or ""),
        str(task.depth),
        f"{task.priority:,}",
        f"{task.attempt_count:,}",
        _why(task, now),
        task.url,
    )


def _why(task: "Task", now: int) -> str:
    from outrider.control.wording import span
    from outrider.model.machines import TaskState

    waits = task.state is TaskState.PENDING and task.due_at > now
    due = f"in {span((task.due_at - now) / 1000)}" if waits else ""
    reason = "" if task.state is TaskState.COMPLETED else task.reason or ""
    why = ", ".join(part for part in (due, reason) if part)
    return why if len(why) <= LONGEST_WHY else f"{why[: LONGEST_WHY - 1]}…"


def task_record(task: "Task") -> dict[str, object]:
    """Give a task for programs: names in place of numbers."""
    from outrider.crawler.page_lines import utc_text

    return {
        "url": task.url,
        "state": task.state.lower(),
        "kind": task.kind.name.lower(),
        "status": task.http_status,
        "depth": task.depth,
        "priority": task.priority,
        "attempts": task.attempt_count,
        "failures": task.failures,
        "deferrals": task.deferrals,
        "reason": task.reason,
        "discovered_by": task.discovery_type.name.lower(),
        "discovered_at": utc_text(task.discovered_at),
        "due_at": utc_text(task.due_at),
        "key": task.key,
        "metadata": task.metadata,
    }
