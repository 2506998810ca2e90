"""Batch mode under random operations: against a reference, from several processes, and killed with -9."""

import asyncio
import random
import signal
from collections import defaultdict
from multiprocessing.connection import Connection

from outrider.model.batch import KnownUrl, QueueChange, ServeRequest, priority_of
from outrider.model.errors import UnknownCrawl
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.task import Added, CrawlLimits, CrawlRules, Discovered, KeyRule
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from tests.conformance.backends import Place
from tests.conformance.reference_batch import ReferenceFrontier
from tests.conformance.test_processes import check_deadlocks
from tests.processes import run_together, start
from tests.recount import check_counts

START = 1_700_000_000_000
SECOND = 1000
STEPS = 60
KEYS = ("a.org", "b.org", "mixed")
LEASES = (2 * SECOND, 30 * SECOND)
BY_HOST = CrawlRules(key_rule=KeyRule.HOST)


def page(key: str, number: int) -> str:
    host = f"m{number % 2}.net" if key == "mixed" else key
    return f"https://{host}/{number}"


class Comparison:
    """A store and a reference that are told the same."""

    def __init__(self, urls: UrlStore, seed: int) -> None:
        self.urls = urls
        self.chance = random.Random(seed)
        self.now = START
        self.per_queue = self.chance.choice([1, 2, 5])
        self.reference = ReferenceFrontier(delay_ms=0)

    async def run(self) -> None:
        await self.urls.create_crawl("c", BY_HOST, CrawlLimits(delay_ms=0, robots=False), now=self.now)
        for _ in range(STEPS):
            step = self.chance.choice(
                [self.discover, self.know, self.know, self.serve, self.serve, self.serve, self.change, self.wait]
            )
            await step()
            await self.check()

    def some(self) -> list[tuple[str, str]]:
        """A few URLs of one or two queues, some of them twice."""
        keys = self.chance.choices(KEYS, k=2)
        return [
            (key, page(key, self.chance.randrange(12))) for key in self.chance.choices(keys, k=self.chance.randrange(6))
        ]

    async def discover(self) -> None:
        found = self.some()
        items = [Discovered(url=url, key=key, priority=priority_of(self.now)) for key, url in found]
        results = await self.urls.add("c", items, now=self.now)
        expected = [self.reference.discover(key, url, self.now) for key, url in found]
        assert [result.outcome is Added.NEW for result in results] == expected

    async def know(self) -> None:
        dates = [None, 5 * SECOND, 5 * SECOND, 9 * SECOND, self.now - SECOND, self.now, self.now + 2 * SECOND]
        found = [
            (key, url, self.chance.choice(dates)) for key, url in {url: (key, url) for key, url in self.some()}.values()
        ]
        items = [KnownUrl(url=url, key=key, due_at=date) for key, url, date in found]
        results = await self.urls.put_known("c", items, now=self.now)
        expected = [self.reference.know(*each) for each in found]
        assert [result.outcome is Added.NEW for result in results] == expected

    async def serve(self) -> None:
        await self.urls.reap(now=self.now)
        offers = self.reference.offers(self.now, self.per_queue)
        most, lease_ms = self.chance.choice([None, 1, 2]), self.chance.choice(LEASES)
        key = self.chance.choice([None, None, None, *KEYS])
        request = ServeRequest(
            crawl=self.chance.choice([None, "c"]), key=key, max_urls_per_queue=self.per_queue, max_queues=most,
            lease_ms=lease_ms,
        )  # fmt: skip
        served: defaultdict[str, list[str]] = defaultdict(list)
        for each in await self.urls.serve(request, now=self.now):
            served[each.key].append(each.url)
        if key is not None:
            offers = {each: urls for each, urls in offers.items() if each == key}
        assert len(served) == min(len(offers), most or len(offers))
        for queue, urls in served.items():
            assert urls == offers[queue]
            self.reference.serve(queue, urls, self.now, lease_ms)

    async def change(self) -> None:
        key = self.chance.choice(KEYS)
        change = self.chance.choice([
            QueueChange(delay_ms=self.chance.choice([None, 0, SECOND, 3 * SECOND])),
            QueueChange(blocked_until=self.chance.choice([None, 0, self.now + SECOND])),
            QueueChange(page_limit=self.chance.choice([None, None, 2])),
        ])  # fmt: skip
        await self.urls.change_queue("c", key, change, now=self.now)
        self.reference.change(key, change)

    async def wait(self) -> None:
        self.now += self.chance.choice([1, 1, 2, 3, 31]) * SECOND

    async def check(self) -> None:
        counted = (await self.urls.statistics("c", now=self.now)).counts
        in_flight = (await self.urls.statistics("c", now=self.now)).in_process
        expected = self.reference.counts(self.now)
        waiting = counted.pending + counted.assigned - in_flight
        assert (waiting, in_flight, counted.completed) == expected


async def test_every_batch_is_what_the_reference_would_serve(place: Place) -> None:
    async with await open_store(place.dsn) as stores:
        for seed in range(12):
            try:
                await Comparison(stores.urls, seed).run()
            except AssertionError as error:
                error.add_note(f"with the seed {seed}")
                raise
            await check_counts(place)
            await place.backend.wipe(place.dsn)


# --------------------------------------------------------------- processes

PROCESSES = 6
OPERATIONS = 120
HOSTS = [f"h{number}.example" for number in range(5)]


class Busy:
    """A client of everything, with few URLs, so that it meets the others."""

    def __init__(self, urls: UrlStore, seed: int) -> None:
        self.urls = urls
        self.chance = random.Random(seed)
        self.seed = seed

    def some_urls(self) -> list[str]:
        return [
            f"https://{self.chance.choice(HOSTS)}/{self.chance.randrange(30)}"
            for _ in range(self.chance.randrange(1, 15))
        ]

    async def step(self, number: int) -> None:
        crawl, key = self.chance.choice([("one", None), ("two", None), ("two", "mixed")])
        match self.chance.randrange(12):
            case 0 | 1 | 2:
                await self.urls.add(crawl, [Discovered(url=url, key=key) for url in self.some_urls()])
            case 3 | 4 | 5:
                dates = [None, 1_000, 2_000, START * 2]
                await self.urls.put_known(
                    crawl,
                    [KnownUrl(url=url, key=key, due_at=self.chance.choice(dates)) for url in self.some_urls()],
                )
            case 6 | 7 | 8:
                request = ServeRequest(
                    crawl=self.chance.choice([None, crawl]), max_urls_per_queue=self.chance.choice([None, 3]),
                    max_queues=self.chance.choice([None, 2]), lease_ms=self.chance.choice([1, 60_000]),
                )  # fmt: skip
                await self.urls.serve(request)
            case 9:
                await self.urls.reap()
            case 10:
                await self.work("one", number)
            case 11:
                await self.rare(crawl)

    async def work(self, crawl: str, number: int) -> None:
        """Lease and report beside the batches, as workers do; from a crawl whose queues have one domain each.

        On PostgreSQL a lease wakes the tasks of a queue of several domains before it has locked their gates.
        """
        request = LeaseRequest(worker=f"w{self.seed}", request_id=str(number), slots=5, crawl=crawl, lease_ms=5)
        leases = (await self.urls.lease(request)).leases
        await self.urls.report([Report(token=lease.token, outcome=Outcome.FAILED) for lease in leases])

    async def rare(self, crawl: str) -> None:
        match self.chance.randrange(4):
            case 0:
                await self.urls.change_queue(crawl, self.chance.choice(HOSTS), QueueChange(page_limit=None))
            case 1:
                await self.urls.purge(crawl, before=START * 2, key=self.chance.choice(HOSTS))
            case 2:
                await self.urls.delete_queue(crawl, self.chance.choice(HOSTS))
            case 3:
                await self.urls.delete_crawl(crawl)
                await self.urls.create_crawl(crawl, BY_HOST, CrawlLimits(delay_ms=0, robots=False))


async def be_busy(dsn: str, seed: int) -> None:
    async with await open_store(dsn) as stores:
        client = Busy(stores.urls, seed)
        for number in range(OPERATIONS):
            try:
                await client.step(number)
            except UnknownCrawl:
                continue


async def make_crawls(place: Place, *names: str) -> None:
    async with await open_store(place.dsn) as stores:
        for name in names:
            await stores.urls.create_crawl(name, BY_HOST, CrawlLimits(delay_ms=0, robots=False))


async def test_no_mix_of_batches_and_workers_deadlocks_or_spoils_a_count(place: Place) -> None:
    """Invariant 6, Counts are exact; and nobody waits for somebody who waits for them."""
    await make_crawls(place, "one", "two")
    run_together(be_busy, [(place.dsn, seed) for seed in range(PROCESSES)])
    await check_deadlocks(place)
    await check_counts(place)


async def share_one_queue(dsn: str, seed: int) -> None:
    """Set and take the few tasks of one queue of several domains, over and over."""
    chance = random.Random(seed)
    async with await open_store(dsn) as stores:
        for _ in range(200):
            match chance.randrange(7):
                case 0 | 1 | 2:
                    urls = [f"https://{chance.choice(HOSTS)}/{chance.randrange(10)}" for _ in range(3)]
                    known = [KnownUrl(url=url, key="mixed", due_at=chance.choice([None, 1_000])) for url in urls]
                    await stores.urls.put_known("c", known)
                case 3 | 4 | 5:
                    limit, lease_ms = chance.choice([None, 3]), chance.choice([1, 5])
                    await stores.urls.serve(ServeRequest(crawl="c", max_urls_per_queue=limit, lease_ms=lease_ms))
                case 6:
                    await stores.urls.reap()


async def test_tasks_that_are_set_while_others_take_from_their_queue_stay_counted(place: Place) -> None:
    """Invariant 6, Counts are exact, also where a queue has several gates."""
    await make_crawls(place, "c")
    run_together(share_one_queue, [(place.dsn, seed) for seed in range(PROCESSES)])
    await check_counts(place)
    await check_deadlocks(place)


async def take_until_nothing_is_left(dsn: str, _: int) -> list[str]:
    taken: list[str] = []
    async with await open_store(dsn) as stores:
        request = ServeRequest(crawl="c", max_urls_per_queue=3, max_queues=4, lease_ms=600_000)
        while (await stores.urls.counts("c")).pending:
            batch = await stores.urls.serve(request)
            taken += [each.url for each in batch]
            await stores.urls.put_known("c", [KnownUrl(url=each.url, due_at=None) for each in batch])
    return taken


async def test_processes_that_share_a_store_are_served_each_url_once(place: Place) -> None:
    await make_crawls(place, "c")
    urls = [f"https://h{number % 20}.example/{number}" for number in range(600)]
    async with await open_store(place.dsn) as stores:
        await stores.urls.add("c", [Discovered(url=url) for url in urls])
    taken = run_together(take_until_nothing_is_left, [(place.dsn, number) for number in range(4)])
    assert sorted(url for some in taken for url in some) == sorted(urls)
    await check_counts(place)
    async with await open_store(place.dsn) as stores:
        assert (await stores.urls.counts("c")).completed == len(urls)


# ------------------------------------------------------------------- kills

KILLS = 12


def put_until_killed(pipe: Connection, dsn: str, seed: int) -> None:
    """Be a victim: tell of each batch that was acknowledged."""

    async def put() -> None:
        async with await open_store(dsn) as stores:
            for number in range(1_000):
                urls = [f"https://{host}/{seed}/{number}" for host in HOSTS]
                await stores.urls.add("c", [Discovered(url=url) for url in urls])
                pipe.send((urls, "there"))
                served = await stores.urls.serve(ServeRequest(crawl="c", max_queues=3, lease_ms=600_000))
                done = [each.url for each in served]
                await stores.urls.put_known("c", [KnownUrl(url=url, due_at=None) for url in done])
                pipe.send((done, "done"))
            signal.pause()

    asyncio.run(put())


async def test_a_process_that_is_killed_leaves_exact_counts_and_loses_nothing_that_was_acknowledged(
    place: Place,
) -> None:
    """Invariants 5, Nothing lost, and 6, Counts are exact."""
    await make_crawls(place, "c")
    there: set[str] = set()
    done: set[str] = set()
    chance = random.Random(7)
    for seed in range(KILLS):
        victim = start(put_until_killed, place.dsn, seed)
        words = [victim.receive() for _ in range(chance.randrange(1, 8))]
        victim.kill()
        for urls, state in [*words, *victim.last_words()]:
            (done if state == "done" else there).update(urls)
    await check_counts(place)
    rows = await place.backend.query(place.dsn, "SELECT url, state FROM tasks")
    assert there <= {url for url, _ in rows}
    assert done <= {url for url, state in rows if state == 3}
