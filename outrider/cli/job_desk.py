"""Opening the desk for jobs: the one of a store, or the one behind a service."""

import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from outrider.cli.opened import Config as Config
from outrider.model.errors import InvalidInput

if TYPE_CHECKING:
    from outrider.control.desk import JobDesk
    from outrider.store.opening import Stores

Answer = TypeVar("Answer")

PLACE = "Where the jobs are"

Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Folder of the store. [default: outrider-data]", rich_help_panel=PLACE),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="DSN",
        help="Another store, such as postgresql://… [default: SQLite in the data folder]",
        rich_help_panel=PLACE,
    ),
]
Frontier = Annotated[
    str | None,
    typer.Option(
        "--frontier", metavar="URL", envvar="OUTRIDER_FRONTIER", help="A service instead.", rich_help_panel=PLACE
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        envvar="OUTRIDER_KEY",
        help="API key of the service; better in the variable.",
        rich_help_panel=PLACE,
    ),
]
TlsAuthority = Annotated[
    Path | None,
    typer.Option("--tls-ca", metavar="FILE", help="Trust certificates of these.", rich_help_panel=PLACE),
]


class Place(NamedTuple):
    """Where the jobs are, as it was typed."""

    data: str | None = None
    store: str | None = None
    frontier: str | None = None
    key: str | None = None
    tls_ca: Path | None = None
    config: str | None = None

    def command(self, *words: str) -> str:
        """Write a command of `outrider` that finds the same place; a key is left to its variable."""
        from outrider.cli.options import without_password

        found = ["outrider", *words]
        if self.frontier is not None:
            return shlex.join([*found, "--frontier", self.frontier])
        if self.data is not None:
            found += ["--data", self.data]
        if self.store is not None:
            found += ["--store", without_password(self.store)]
        return shlex.join(found)


class OpenDesk(NamedTuple):
    """A desk, and the store behind it where that is ours."""

    desk: "JobDesk"
    stores: "Stores | None"


@asynccontextmanager
async def open_desk(place: Place, *, may_create: bool = False, allow_private: bool = False) -> AsyncIterator[OpenDesk]:
    """Open the desk of a place; a store that is not there is created only where jobs are submitted."""
    if place.frontier is not None:
        async with _remote(place) as desk:
            yield OpenDesk(desk, None)
        return
    from outrider.cli.opened import chosen_plan, is_there
    from outrider.control.desk import LocalDesk
    from outrider.crawler.plan import store_dsn
    from outrider.store.dsn import parse_dsn
    from outrider.store.opening import open_store

    plan, settings = chosen_plan(place.data, place.store, None, place.config)
    dsn = store_dsn(plan)
    if not may_create and not is_there(dsn):
        where = parse_dsn(dsn).shown
        raise InvalidInput(
            f"there are no jobs in {where}: `outrider jobs submit SEED` makes one, --data names its folder"
        )
    async with await open_store(dsn, settings) as stores:
        yield OpenDesk(LocalDesk(stores, allow_private=allow_private), stores)


@asynccontextmanager
async def _remote(place: Place) -> "AsyncIterator[JobDesk]":
    from outrider.cli.work import trusting
    from outrider.service.job_client import RemoteDesk

    assert place.frontier is not None
    if place.store is not None:
        raise InvalidInput("--store and --frontier exclude each other: the service has a store of its own")
    async with RemoteDesk(place.frontier, key=place.key, tls=trusting(place.tls_ca)) as desk:
        yield desk


def ask(place: Place, question: "Callable[[JobDesk], Awaitable[Answer]]") -> Answer:
    """Ask the desk of a place one thing."""
    from outrider.cli.opened import run

    async def asking() -> Answer:
        async with open_desk(place) as opened:
            return await question(opened.desk)

    return run(asking())
