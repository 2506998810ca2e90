"""`outrider jobs`: submit crawls to be run, follow them, and say what is wanted of them."""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.job_desk import Config, Data, Frontier, Key, Place, Store, TlsAuthority, ask, open_desk
from outrider.cli.job_schedules import list_schedules, unschedule
from outrider.cli.job_submit import submit
from outrider.model.errors import InvalidInput

if TYPE_CHECKING:
    from outrider.cli.exits import ExitCode
    from outrider.control.desk import JobDesk, JobView
    from outrider.control.job_progress import JobProgress
    from outrider.model.job import Job

app = typer.Typer(no_args_is_help=True, help="Submit crawls as jobs, follow them, pause, resume and cancel them.")
app.command()(submit)
app.command("schedules")(list_schedules)
app.command()(unschedule)

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]

AT_ONCE = 500
DEFAULT_LIMIT = 50


@app.command("list")
def list_jobs(
    status: Annotated[
        str | None,
        typer.Option(metavar="pending|processing|paused|completed|failed|cancelled", help="Only jobs that are so."),
    ] = None,
    crawl: Annotated[str | None, typer.Option(metavar="NAME", help="Only jobs of this crawl.")] = None,
    owner: Annotated[str | None, typer.Option(metavar="NAME", help="Only jobs of this owner.")] = None,
    source: Annotated[str | None, typer.Option(metavar="ID", help="Only jobs with this source.")] = None,
    label: Annotated[str | None, typer.Option(metavar="NAME=VALUE", help="Only jobs with this label.")] = None,
    sort: Annotated[str, typer.Option(metavar="newest|oldest|priority|updated", help="What comes first.")] = "newest",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many.")] = DEFAULT_LIMIT,
    every: Annotated[bool, typer.Option("--all", help="All of them, however many.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """List jobs: how each stands, how far it is, and what it crawls."""
    from outrider.cli.job_order import label_of
    from outrider.cli.opened import one_of
    from outrider.model.job import JobFilter, JobSort
    from outrider.model.machines import JobStatus

    chosen = one_of("--status", status, [each.value for each in JobStatus])
    which = JobFilter(
        status=None if chosen is None else JobStatus(chosen),
        crawl=crawl,
        user_id=owner,
        source_id=source,
        label=label_of(label),
    )
    order = JobSort(str(one_of("--sort", sort, [each.value for each in JobSort])))
    most = None if every else limit

    async def listing(desk: "JobDesk") -> "list[Job]":
        found: list[Job] = []
        cursor: str | None = None
        while most is None or len(found) < most:
            number = AT_ONCE if most is None else min(most - len(found), AT_ONCE)
            page = await desk.list(which, sort=order, cursor=cursor, limit=number)
            found += page.jobs
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    jobs = ask(Place(data, store, frontier, key, tls_ca, config), listing)
    _print_list(jobs, most, as_json=as_json)


def _print_list(jobs: "list[Job]", most: int | None, *, as_json: bool) -> None:
    import msgspec

    from outrider.cli.job_tables import HEADINGS, NUMBERS, SPARE, job_record, row_of
    from outrider.cli.tables import Columns, print_table

    if as_json:
        for job in jobs:
            typer.echo(msgspec.json.encode(job_record(job)))
        return
    if not jobs:
        typer.echo("no job is like that", err=True)
    elif sys.stdout.isatty():
        print_table(HEADINGS, [row_of(job) for job in jobs], numbers=NUMBERS, spare=SPARE)
    else:
        Columns(HEADINGS).print([row_of(job) for job in jobs])
    if len(jobs) == most:
        typer.echo(f"the first {most:,}; --limit or --all shows more", err=True)


@app.command()
def show(
    job: JobId,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Tell all that is known of a job: what was ordered, how far it is, and what became of it step by step."""
    import msgspec

    from outrider.cli.job_tables import facts_of, job_record
    from outrider.cli.tables import print_facts

    async def looking(desk: "JobDesk") -> "tuple[JobView, JobProgress]":
        return await desk.show(job), await desk.progress(job)

    view, progress = ask(Place(data, store, frontier, key, tls_ca, config), looking)
    if as_json:
        record = {"job": job_record(view.job), "progress": progress, "history": view.history}
        typer.echo(msgspec.json.encode(record))
    else:
        print_facts(facts_of(view, progress))


@app.command()
def watch(
    job: JobId,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event.")] = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Follow a job until it has ended; the exit code tells how.

    Ctrl-C ends the watching, not the job.
    """
    from outrider.cli import job_watch
    from outrider.cli.opened import run

    async def watching() -> "ExitCode":
        async with open_desk(Place(data, store, frontier, key, tls_ca, config)) as opened:
            return await job_watch.watch(opened.desk, job, as_json=as_json)

    sys.exit(run(watching()))


@app.command()
def pause(
    job: JobId,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Pause a job: nothing new is fetched, and everything is kept."""
    _change(Place(data, store, frontier, key, tls_ca, config), lambda desk: desk.pause(job), as_json=as_json)


@app.command()
def resume(
    job: JobId,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Let a paused job go on where it was."""
    _change(Place(data, store, frontier, key, tls_ca, config), lambda desk: desk.resume(job), as_json=as_json)


@app.command()
def cancel(
    job: JobId,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """End a job for good; what it has fetched stays."""
    _change(Place(data, store, frontier, key, tls_ca, config), lambda desk: desk.cancel(job), as_json=as_json)


@app.command()
def retry(
    job: JobId,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew instead of going on where it was.")] = False,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Queue a failed job again, with all its retries."""
    place = Place(data, store, frontier, key, tls_ca, config)
    _change(place, lambda desk: desk.retry(job, fresh=fresh), as_json=as_json)


@app.command("set")
def set_job(
    job: JobId,
    priority: Annotated[int | None, typer.Option(metavar="N", help="Higher comes first.")] = None,
    max_pages: Annotated[str | None, typer.Option(metavar="N|none", help="Stop after so many pages.")] = None,
    max_pages_per_domain: Annotated[
        str | None, typer.Option(metavar="N|none", help="At most so many pages of one domain.")
    ] = None,
    max_depth: Annotated[
        str | None, typer.Option(metavar="N|none", help="Follow links at most so far from a seed.")
    ] = None,
    delay: Annotated[str | None, typer.Option(metavar="SECONDS", help="Between two requests to one domain.")] = None,
    per_domain: Annotated[
        str | None, typer.Option(metavar="N", help="Requests to one domain at the same time.")
    ] = None,
    as_json: AsJson = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Change the priority or the limits of a job that has not ended, also while it runs.

    A raised limit goes on at once with what the old one held back.
    """
    from outrider.cli.job_order import changed_limits
    from outrider.cli.job_tables import order_line

    limits = changed_limits(
        max_pages=max_pages,
        max_pages_per_domain=max_pages_per_domain,
        max_depth=max_depth,
        delay=delay,
        per_domain=per_domain,
    )
    if priority is None and limits is None:
        raise InvalidInput("say what to change, such as --priority 5 or --max-pages 1000")
    place = Place(data, store, frontier, key, tls_ca, config)
    changed = _change(place, lambda desk: desk.amend(job, priority=priority, limits=limits), as_json=as_json)
    if not as_json:
        typer.echo(f"priority {changed.priority}, {order_line(changed.payload)}")


@app.command()
def results(
    job: JobId,
    after: Annotated[int, typer.Option(metavar="ID", min=0, help="Only pages after the one with this id.")] = 0,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Print the pages that a job has so far, one JSON object per line; while it runs, too.

    The last line's `id` is what --after takes to get the rest later.
    """
    import msgspec

    async def printing(desk: "JobDesk") -> None:
        async for page in desk.results(job, after_id=after):
            typer.echo(msgspec.json.encode(page))

    ask(Place(data, store, frontier, key, tls_ca, config), printing)


def _change(place: Place, change: "Callable[[JobDesk], Awaitable[Job]]", *, as_json: bool) -> "Job":
    """Ask something of a job, and tell how it stands now."""
    import msgspec

    from outrider.cli.job_tables import job_record, status_of

    job = ask(place, change)
    typer.echo(msgspec.json.encode(job_record(job)) if as_json else f"{job.id}: {status_of(job)}")
    return job
