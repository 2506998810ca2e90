"""`outrider keys`: who may ask the service for what."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from outrider.model.api_key import ApiKey
    from outrider.store.protocols import ControlStore

Answer = TypeVar("Answer")

JOBS = "Jobs"

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke the API keys of the service.")

Data = Annotated[
    str | None, typer.Option(metavar="DIR", help="Folder of the store. [default: outrider-data]", show_default=False)
]
Store = Annotated[
    str | None,
    typer.Option(metavar="DSN", help="Another store, such as postgresql://… [default: SQLite in the data folder]"),
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What or whom the key is for.")],
    role: Annotated[
        str, typer.Option(metavar="read|crawl|admin", help="What it may do; deletes need admin.")
    ] = "crawl",
    crawl: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Good for this crawl only; may be repeated.")
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose jobs it submits and sees. [default: its name]", rich_help_panel=JOBS),
    ] = None,
    max_active_jobs: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Jobs that have not ended.", rich_help_panel=JOBS)
    ] = None,
    max_pages_per_job: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Pages of one job.", rich_help_panel=JOBS)
    ] = None,
    max_jobs_per_day: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Jobs submitted in 24 hours.", rich_help_panel=JOBS)
    ] = None,
    data: Data = None,
    store: Store = None,
) -> None:
    """Make a key and print it, once: only a digest of it is kept."""
    from outrider.model.api_key import Role
    from outrider.model.quota import JobQuota
    from outrider.service.keys import create_key
    from outrider.store.checks import check_choice

    chosen = check_choice(role, "--role", Role)
    quota = JobQuota(
        max_active_jobs=max_active_jobs, max_pages_per_job=max_pages_per_job, max_jobs_per_day=max_jobs_per_day
    )
    made = _with_control(
        data, store, lambda control: create_key(control, name, chosen, crawl or (), owner=owner, quota=quota)
    )
    typer.echo(made.text)
    typer.echo(f"key {made.key_id} for {name}, role {chosen}; it is not shown again", err=True)


@app.command("list")
def list_keys(data: Data = None, store: Store = None) -> None:
    """List all keys, the revoked ones too; never their secrets."""
    keys = _with_control(data, store, lambda control: control.list_keys())
    for key in keys:
        crawls = ", ".join(key.crawls) or "all crawls"
        typer.echo("\t".join((key.key_id, key.role, _state(key), crawls, key.owner, _quotas(key), key.name)))
    if not keys:
        typer.echo("there are no keys: the service serves this machine only, and everybody on it", err=True)


def _state(key: "ApiKey") -> str:
    return f"since {key.created_at:%Y-%m-%d}" if key.revoked_at is None else f"revoked {key.revoked_at:%Y-%m-%d}"


def _quotas(key: "ApiKey") -> str:
    quotas = (
        (key.max_active_jobs, "active jobs"),
        (key.max_pages_per_job, "pages a job"),
        (key.max_jobs_per_day, "jobs a day"),
    )
    return ", ".join(f"{most:,} {of}" for most, of in quotas if most is not None) or "no quota"


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY", help="The id that `outrider keys list` shows.")],
    data: Data = None,
    store: Store = None,
) -> None:
    """End a key; services that run know it within seconds."""
    key = _with_control(data, store, lambda control: control.revoke_key(key_id))
    typer.echo(f"key {key.key_id} for {key.name} is revoked")


def _with_control(data: str | None, store: str | None, act: "Callable[[ControlStore], Awaitable[Answer]]") -> Answer:
    import asyncio

    from outrider.cli.options import load_plan
    from outrider.crawler.plan import store_dsn
    from outrider.store.opening import open_store

    plan, _, _ = load_plan({"data": data, "store": store})

    async def acting() -> Answer:
        async with await open_store(store_dsn(plan)) as stores:
            return await act(stores.control)

    return asyncio.run(acting())
