"""Opening the desk for domains, of a store or behind a service; and moments as people type them."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from outrider.cli.job_desk import Place
from outrider.model.errors import InvalidInput, shown

if TYPE_CHECKING:
    from outrider.control.domain_desk import DomainDesk

Answer = TypeVar("Answer")

_SPAN = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@asynccontextmanager
async def open_domain_desk(place: Place) -> "AsyncIterator[DomainDesk]":
    """Open the desk of a place; a store that is not there is not created."""
    if place.frontier is not None:
        async with _remote(place) as desk:
            yield desk
        return
    from outrider.cli.opened import chosen_plan, is_there
    from outrider.control.domain_desk import LocalDomainDesk
    from outrider.crawler.plan import store_dsn
    from outrider.store.dsn import parse_dsn
    from outrider.store.opening import open_store

    plan, settings = chosen_plan(place.data, place.store, None, place.config)
    dsn = store_dsn(plan)
    if not is_there(dsn):
        where = parse_dsn(dsn).shown
        raise InvalidInput(f"there is no domain in {where}: `outrider crawl SEED` finds some, --data names its folder")
    async with await open_store(dsn, settings) as stores:
        yield LocalDomainDesk(stores)


@asynccontextmanager
async def _remote(place: Place) -> "AsyncIterator[DomainDesk]":
    from outrider.cli.work import trusting
    from outrider.service.domain_client import RemoteDomainDesk

    assert place.frontier is not None
    if place.store is not None:
        raise InvalidInput("--store and --frontier exclude each other: the service has a store of its own")
    async with RemoteDomainDesk(place.frontier, key=place.key, tls=trusting(place.tls_ca)) as desk:
        yield desk


def ask(place: Place, question: "Callable[[DomainDesk], Awaitable[Answer]]") -> Answer:
    """Ask the desk of a place one thing."""
    from outrider.cli.opened import run

    async def asking() -> Answer:
        async with open_domain_desk(place) as desk:
            return await question(desk)

    return run(asking())


def moment_of(text: str) -> int:
    """Read a span from now, or a date in UTC, as a moment in milliseconds.

    >>> moment_of("2927-01-31"), moment_of("2927-01-31T12:00")
    (30202588800000, 30202632000000)
    """
    import time
    from datetime import UTC, datetime

    now_s = time.time()
    span = _SPAN.fullmatch(text.strip())
    if span is not None:
        return int((now_s + int(span[1]) * _UNITS[span[2]]) * 1000)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        wanted = "a span such as 7d or 12h, or a date such as 2027-01-31"
        raise InvalidInput(f"--until is {wanted}, not {shown(text)}") from None
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if seconds <= now_s:
        raise InvalidInput(f"--until lies in the past: {shown(text)}")
    return int(seconds * 1000)
