"""Death is known, not guessed: only what dead processes held comes back before its time."""

import asyncio
import signal
from multiprocessing.connection import Connection
from pathlib import Path

from outrider.frontier.local import LocalFrontier
from outrider.frontier.presence import Presence
from outrider.model.lease import LeaseRequest
from outrider.model.task import CrawlLimits, Discovered
from outrider.store.opening import open_store
from tests.processes import start

LIMITS = CrawlLimits(delay_ms=0, concurrency=10, robots=False)


def hold(pipe: Connection, folder: Path, dsn: str) -> None:
    """Be a process that leases something and goes on for ever."""
    presence = Presence(folder)

    async def lease() -> None:
        async with await open_store(dsn) as stores:
            request = LeaseRequest(worker=presence.worker, request_id="r", slots=2, crawl="c", lease_ms=3_600_000)
            grant = await stores.urls.lease(request)
            pipe.send((presence.worker, [lease.token for lease in grant.leases]))
            signal.pause()

    asyncio.run(lease())


async def test_the_leases_of_a_killed_process_return_at_once_and_those_of_a_living_one_stay(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path / 'store.sqlite'}"
    folder = tmp_path / "workers"
    buried: list[str] = []

    async def bury(worker: str) -> None:
        buried.append(worker)

    async with await open_store(dsn) as stores:
        await stores.urls.create_crawl("c", limits=LIMITS)
        await stores.urls.add("c", [Discovered(url=f"https://a.example/{number}") for number in range(4)])
        victim, survivor = start(hold, folder, dsn), start(hold, folder, dsn)
        (dead, lost), (_, kept) = victim.receive(), survivor.receive()
        assert (len(lost), len(kept)) == (2, 2)
        frontier = LocalFrontier(stores.urls, Presence(folder), bury)

        await frontier.tidy()
        assert (await stores.urls.counts("c")).assigned == 4

        victim.kill()
        await frontier.tidy()
        counts = await stores.urls.counts("c")
        assert (counts.assigned, counts.pending) == (2, 2)
        assert [str(answer) for answer in await stores.urls.renew(lost + kept)] == ["lease_lost"] * 2 + ["ok"] * 2
        assert buried == [dead]

        await frontier.tidy()
        assert buried == [dead], "once"
        survivor.kill()


def test_a_process_knows_the_others_and_itself(tmp_path: Path) -> None:
    one, other = Presence(tmp_path), Presence(tmp_path)
    assert one.worker != other.worker
    assert one.dead() == other.dead() == []
    one.close()
    other.close()
    assert list(tmp_path.iterdir()) == []


def test_who_leaves_with_debts_is_found_by_the_next(tmp_path: Path) -> None:
    one = Presence(tmp_path)
    one.close(owes_nothing=False)
    other = Presence(tmp_path)
    assert other.dead() == [one.worker]
    other.forget(one.worker)
    assert other.dead() == []
    other.close()


def test_the_living_cannot_be_forgotten(tmp_path: Path) -> None:
    one, other = Presence(tmp_path), Presence(tmp_path)
    other.forget(one.worker)
    assert (tmp_path / f"{one.worker}.alive").exists()
    one.close()
    other.close()
