"""`outrider jobs submit`: queue a crawl for whoever runs jobs."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.job_desk import Config, Data, Frontier, Key, OpenDesk, Place, Store, TlsAuthority, open_desk
from outrider.model.errors import InvalidInput

if TYPE_CHECKING:
    from outrider.cli.exits import ExitCode
    from outrider.model.job import Job

JOB = "The job"
LIMITS = "Limits"
POLITENESS = "Politeness"
FETCHING = "Fetching"
NOT_OF_THE_PLAN = (
    "refresh", "every", "strategy", "priority", "max_retries", "source", "label", "webhook", "webhook_secret",
    "idempotency_key", "watching", "as_json", "data", "store", "frontier", "key", "tls_ca", "config",
)  # fmt: skip


def submit(
    seeds: Annotated[list[str] | None, typer.Argument(metavar="SEED…", help="Where to begin: URLs or hosts.")] = None,
    seeds_file: Annotated[
        str | None,
        typer.Option("--seeds", metavar="FILE|-", help="More seeds: one per line, or CSV `rank,domain`."),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="single|sitemap|recursive", help="The seeds alone, what their sitemaps list, or all that is linked."
        ),
    ] = "recursive",
    crawl: Annotated[
        str | None, typer.Option(metavar="NAME", help="Go on with this crawl. [default: one of its own]")
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(metavar="host|domain|prefix|any", help="How far to go from the seeds. [default: host]"),
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(metavar="REGEX", help="Follow only URLs that match; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="REGEX", help="Follow no URLs that match; may be repeated.")
    ] = None,
    fresh: Annotated[
        bool | None,
        typer.Option("--fresh", help="Forget the crawl's tasks first; never a site's blocks or clocks."),
    ] = None,
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Fetch the pages of the crawl again that are due, at most --max-pages of them."),
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Submit it again and again, as in 7d, 12h or 30m; each time the crawl is refreshed, or begun --fresh.",
            rich_help_panel=JOB,
        ),
    ] = None,
    priority: Annotated[int, typer.Option(metavar="N", help="Higher comes first.", rich_help_panel=JOB)] = 0,
    max_retries: Annotated[
        int, typer.Option(metavar="N", help="Runs after the first, should one fail.", rich_help_panel=JOB)
    ] = 3,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="To find it by; may be repeated.", rich_help_panel=JOB),
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="ID", help="What it was made from, in your own terms.", rich_help_panel=JOB)
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="Tell this address when it has ended.", rich_help_panel=JOB)
    ] = None,
    webhook_secret: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            envvar="OUTRIDER_WEBHOOK_SECRET",
            help="Sign what is told; better in the variable.",
            rich_help_panel=JOB,
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Submit once, however often this is run.", rich_help_panel=JOB),
    ] = None,
    max_pages: Annotated[
        int | None, typer.Option(metavar="N", help="Stop after so many pages.", rich_help_panel=LIMITS)
    ] = None,
    max_pages_per_domain: Annotated[
        int | None, typer.Option(metavar="N", help="At most so many pages of one domain.", rich_help_panel=LIMITS)
    ] = None,
    max_depth: Annotated[
        int | None, typer.Option(metavar="N", help="Follow links at most so far from a seed.", rich_help_panel=LIMITS)
    ] = None,
    max_wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="End when nothing can be fetched for so long. [default: 900]",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Between two requests to one domain. [default: 1.0]", rich_help_panel=POLITENESS
        ),
    ] = None,
    per_domain: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Requests to one domain at the same time. [default: 1]", rich_help_panel=POLITENESS
        ),
    ] = None,
    robots: Annotated[
        bool | None,
        typer.Option("--robots/--no-robots", help="Obey robots.txt. [default: on]", rich_help_panel=POLITENESS),
    ] = None,
    ignore_nofollow: Annotated[
        bool | None,
        typer.Option("--ignore-nofollow", help="Follow links marked nofollow.", rich_help_panel=POLITENESS),
    ] = None,
    user_agent: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="How to introduce ourselves to sites.", rich_help_panel=POLITENESS),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(metavar="N", help="Fetches at the same time, over all. [default: 32]", rich_help_panel=FETCHING),
    ] = None,
    sitemaps: Annotated[
        bool | None,
        typer.Option(
            "--sitemaps/--no-sitemaps",
            help="Read the sitemaps that robots.txt names. [default: on]",
            rich_help_panel=FETCHING,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="For one whole fetch. [default: 60]", rich_help_panel=FETCHING),
    ] = None,
    max_body: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Cut longer bodies; 512k, 10MB. [default: 10MB]", rich_help_panel=FETCHING),
    ] = None,
    allow_private: Annotated[
        bool | None,
        typer.Option("--allow-private", help="Take seeds with private addresses too.", rich_help_panel=FETCHING),
    ] = None,
    watching: Annotated[bool, typer.Option("--watch", help="Follow it until it has ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the job as JSON.")] = False,
    data: Data = None,
    store: Store = None,
    frontier: Frontier = None,
    key: Key = None,
    tls_ca: TlsAuthority = None,
    config: Config = None,
) -> None:
    """Queue a crawl and print the job's id.

    `outrider supervise`, or a service with runners, takes it from there. Its crawl has the job's id as its name,
    unless you name one; the options of the crawl are those of `outrider crawl`, also from the environment and
    outrider.toml.
    """
    flags = {name: value for name, value in locals().items() if name not in NOT_OF_THE_PLAN}
    from outrider.cli.job_order import check_public, labels_of, order_of
    from outrider.cli.job_schedules import every_ms_of, print_schedules
    from outrider.cli.opened import run
    from outrider.control.schedules import schedule

    if allow_private and frontier is not None:
        raise InvalidInput("--allow-private is for a store; a service decides that itself, by its own --allow-private")
    ordered = order_of(flags, strategy, config, refresh=refresh)
    if frontier is None and not ordered.allow_private:
        check_public(ordered.order.seeds)
    labels = labels_of(label or ())
    place = Place(data, store, frontier, key, tls_ca, config)

    if every is not None:
        if frontier is not None or watching or idempotency_key is not None:
            raise InvalidInput("--every is for a store, without --frontier, --watch and --idempotency-key")

        async def scheduling() -> None:
            async with open_desk(place, may_create=True) as opened:
                assert opened.stores is not None
                made = await schedule(
                    opened.stores.control,
                    ordered.order,
                    every_ms=every_ms_of(every),
                    crawl=ordered.crawl,
                    priority=priority,
                    max_retries=max_retries,
                    source_id=source,
                    labels=labels,
                    webhook_url=webhook,
                    webhook_secret=webhook_secret,
                    allow_private=ordered.allow_private,
                )
                print_schedules([made], as_json=as_json)

        return run(scheduling())

    async def submitting() -> "ExitCode":
        async with open_desk(place, may_create=True, allow_private=ordered.allow_private) as opened:
            job = await opened.desk.submit(
                ordered.order,
                crawl=ordered.crawl,
                priority=priority,
                max_retries=max_retries,
                source_id=source,
                labels=labels,
                webhook_url=webhook,
                webhook_secret=webhook_secret,
                idempotency_key=idempotency_key,
            )
            return await _go_on(opened, job, place, watching=watching, as_json=as_json)

    sys.exit(run(submitting()))


async def _go_on(opened: OpenDesk, job: "Job", place: Place, *, watching: bool, as_json: bool) -> "ExitCode":
    """Print the job, and follow it where that was asked for."""
    import msgspec

    from outrider.cli.exits import ExitCode
    from outrider.cli.job_tables import job_record
    from outrider.cli.job_watch import watch

    typer.echo(msgspec.json.encode(job_record(job)) if as_json else job.id)
    if not as_json and not await _somebody_runs_jobs(opened):
        typer.echo(f"outrider: nobody runs jobs of this store now; start {place.command('supervise')}", err=True)
    if watching:
        return await watch(opened.desk, job.id, as_json=as_json)
    if not as_json:
        typer.echo(f"outrider: follow it with {place.command('jobs', 'watch', job.id)}", err=True)
    return ExitCode.OK


async def _somebody_runs_jobs(opened: OpenDesk) -> bool:
    """Tell whether a supervisor is registered; of a service it cannot be known."""
    from datetime import UTC, datetime

    from outrider.model.job import WorkerKind

    if opened.stores is None:
        return True
    workers = await opened.stores.control.list_workers()
    now = datetime.now(UTC)
    return any(worker.kind is WorkerKind.SUPERVISOR and worker.expires_at > now for worker in workers)
