"""`outrider jobs schedules` and `unschedule`: what is submitted again and again."""

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from outrider.cli.job_desk import Config, Data, Place, Store, open_desk
from outrider.model.errors import InvalidInput, shown

if TYPE_CHECKING:
    from outrider.model.schedule import Schedule
    from outrider.store.protocols import ControlStore

UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 24 * 3_600_000, "w": 7 * 24 * 3_600_000}
_EVERY = re.compile(r"\s*([0-9]{1,6})\s*([smhdw])\s*", re.ASCII | re.IGNORECASE)


def every_ms_of(text: str) -> int:
    """Read how often something is to be done.

    >>> every_ms_of("7d"), every_ms_of("30m")
    (604800000, 1800000)
    """
    from outrider.model.schedule import LONGEST_EVERY_MS, SHORTEST_EVERY_MS

    found = _EVERY.fullmatch(text)
    every_ms = int(found[1]) * UNITS_MS[found[2].lower()] if found else 0
    if not SHORTEST_EVERY_MS <= every_ms <= LONGEST_EVERY_MS:
        raise InvalidInput(f"--every is a time such as 7d, 12h or 30m, from 1s to 366d, not {shown(text)}")
    return every_ms


def list_schedules(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    data: Data = None,
    store: Store = None,
    config: Config = None,
) -> None:
    """List what is submitted again and again, and when next."""
    from outrider.cli.opened import run

    async def listing() -> "list[Schedule]":
        async with open_desk(Place(data, store, config=config)) as opened:
            return await _control(opened.stores).list_schedules()

    print_schedules(run(listing()), as_json=as_json)


def unschedule(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="The schedule's id.")],
    data: Data = None,
    store: Store = None,
    config: Config = None,
) -> None:
    """Submit something no more; the job that it submitted last goes on."""
    from outrider.cli.opened import run

    async def removing() -> None:
        async with open_desk(Place(data, store, config=config)) as opened:
            await _control(opened.stores).remove_schedule(schedule)

    run(removing())


def _control(stores: object) -> "ControlStore":
    from outrider.store.opening import Stores

    assert isinstance(stores, Stores), "a schedule is kept by a store"
    return stores.control


def print_schedules(schedules: "list[Schedule]", *, as_json: bool) -> None:
    """Print schedules, one per line."""
    import json

    from outrider.cli.tables import Columns

    if as_json:
        for each in schedules:
            record = {
                "id": each.id, "crawl": each.crawl, "every_ms": each.every_ms, "due_at": each.due_at.isoformat(),
                "last_job_id": each.last_job_id,
            }  # fmt: skip
            typer.echo(json.dumps(record))
        return
    if not schedules:
        typer.echo("nothing is scheduled", err=True)
        return
    rows = [
        (each.id, each.crawl, _every(each.every_ms), f"{each.due_at:%Y-%m-%d %H:%M}", each.last_job_id or "-")
        for each in schedules
    ]
    Columns(("SCHEDULE", "CRAWL", "EVERY", "NEXT", "LAST JOB")).print(rows)


def _every(every_ms: int) -> str:
    """Write a time as short as it can be.

    >>> _every(7 * 24 * 3_600_000), _every(90_000)
    ('1w', '90s')
    """
    unit = next(unit for unit in "wdhms" if every_ms % UNITS_MS[unit] == 0 or unit == "s")
    return f"{every_ms // UNITS_MS[unit]}{unit}"
