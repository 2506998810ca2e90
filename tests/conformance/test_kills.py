"""Processes killed with -9 in the middle of reports."""

import asyncio
import random
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

from outrider.model.artifact import Fetch
from outrider.model.lease import LeaseRequest, Outcome, Report, Token, Verdict
from outrider.model.task import CrawlLimits, Discovered
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from tests.conformance.backends import Place
from tests.processes import Child, start
from tests.recount import COMPLETED, PENDING, check_counts

KILLS = 200
BATCHES = 5
"""What a victim would report if it were left alone."""
BATCH = 3
"""Reports in one transaction."""
LINKS = 8
"""Links found on each page, and on no other."""

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000


class Page(NamedTuple):
    """A page that is leased."""

    token: Token
    number: int

    def report(self) -> Report:
        links = [Discovered(url=link(self.number, place), depth=1) for place in range(LINKS)]
        return Report(token=self.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200), links=links)


def page(number: int) -> str:
    return f"https://s{number % 50}.example/{number}"


def link(number: int, place: int) -> str:
    return f"https://s{(number + place) % 60}.example/{number}/{place}"


def report_until_killed(pipe: Connection, dsn: str, batches: Sequence[Sequence[Page]]) -> None:
    """Be a victim: say what is about to be reported, report it, say that it was acknowledged."""

    async def report() -> None:
        async with await open_store(dsn) as stores:
            for batch in batches:
                pipe.send([each.number for each in batch])
                answers = await stores.urls.report([each.report() for each in batch], now=NOW + 1)
                assert {answer.verdict for answer in answers} == {Verdict.COMPLETED}
                pipe.send(None)
            signal.pause()

    asyncio.run(report())


class Killings:
    """Victims one after the other, and what they said before they died."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.in_progress: list[list[int]] = []
        """Batches whose reports were cut off: nobody can say yet whether they came through."""
        self._chance = random.Random(5)
        self._batch_s = 0.01
        """How long a victim takes for its first batch, by experience."""

    def kill(self, victim: Child) -> None:
        """Kill a victim somewhere in its first batch, or soon after."""
        last: list[int] | None = victim.receive()
        began = time.monotonic()
        length_s = self._batch_s * self._chance.uniform(0, 1.5)
        acknowledged = False
        while (left_s := began + length_s - time.monotonic()) > 0 and victim.pipe.poll(left_s):
            last = self._hear(last, victim.pipe.recv())
            if not acknowledged:
                acknowledged = True
                self._batch_s = 0.8 * self._batch_s + 0.2 * (time.monotonic() - began)
        if not acknowledged and length_s > self._batch_s:
            self._batch_s = length_s
        victim.kill()
        for said in victim.last_words():
            last = self._hear(last, said)
        if last is not None:
            self.in_progress.append(last)

    def _hear(self, last: list[int] | None, said: list[int] | None) -> list[int] | None:
        if said is None:
            assert last is not None
            self.acknowledged.update(last)
        return said


async def lease_pages(urls: UrlStore, number: int) -> list[Page]:
    await urls.create_crawl("c", limits=CrawlLimits(delay_ms=0, concurrency=number, robots=False), now=NOW)
    await urls.add("c", [Discovered(url=page(n)) for n in range(number)], now=NOW)
    request = LeaseRequest(worker="w", request_id="r", slots=number, crawl="c", lease_ms=HOUR_MS)
    leases = (await urls.lease(request, now=NOW)).leases
    return [Page(lease.token, int(lease.url.rsplit("/", 1)[1])) for lease in leases]


async def states_and_links(place: Place) -> tuple[dict[int, int], dict[int, set[int]]]:
    """Read the state of each page, and which of its links are there."""
    states: dict[int, int] = {}
    links: defaultdict[int, set[int]] = defaultdict(set)
    for url, state in await place.backend.query(place.dsn, "SELECT url, state FROM tasks"):
        number, *found = (int(part) for part in str(url).split("/")[3:])
        if found:
            links[number].update(found)
        else:
            states[number] = int(str(state))
    return states, links


async def test_a_process_killed_in_the_middle_of_reports_leaves_no_outcome_without_its_links(
    place: Place,
) -> None:
    """Invariant 5, Nothing lost: what was acknowledged is there, and a report is there as a whole or not at all."""
    async with await open_store(place.dsn) as stores:
        pages = await lease_pages(stores.urls, KILLS * BATCHES * BATCH)
    assert len(pages) == KILLS * BATCHES * BATCH

    killings = Killings()
    for number in range(KILLS):
        mine = pages[number * BATCHES * BATCH :]
        batches = [mine[place * BATCH :][:BATCH] for place in range(BATCHES)]
        killings.kill(start(report_until_killed, place.dsn, batches))

    states, links = await states_and_links(place)
    completed = {number for number, state in states.items() if state == COMPLETED}
    for number in states:
        assert links[number] == (set(range(LINKS)) if number in completed else set()), f"page {number}"
    assert killings.acknowledged <= completed
    cut_off = {number for batch in killings.in_progress for number in batch}
    assert completed <= killings.acknowledged | cut_off
    assert all(len(completed.intersection(batch)) in (0, BATCH) for batch in killings.in_progress)
    # Otherwise the kills have missed what they were for.
    assert len(killings.in_progress) > KILLS // 2
    assert killings.acknowledged
    assert not cut_off <= completed
    await check_counts(place)
    await finish(place, set(states) - completed)
    await check_counts(place)


async def finish(place: Place, left: set[int]) -> None:
    """Reap what the dead had leased, and crawl it after all."""
    later = NOW + HOUR_MS
    async with await open_store(place.dsn) as stores:
        reaped = await stores.urls.reap(most=len(left) + 1, now=later)
        assert len(reaped) == len(left)
        states, _ = await states_and_links(place)
        assert {states[number] for number in left} == {PENDING}
        done = 0
        while leases := (
            await stores.urls.lease(
                LeaseRequest(worker="w", request_id=f"again{done}", slots=10_000, crawl="c"), now=later
            )
        ).leases:
            done += len(leases)
            await stores.urls.report(
                [Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200)) for lease in leases],
                now=later + 1,
            )
        counts = await stores.urls.counts("c")
        assert counts.completed == counts.total
