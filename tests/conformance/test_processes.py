"""Several processes on one store."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from outrider.model.artifact import Fetch
from outrider.model.errors import UnknownCrawl
from outrider.model.gate import GateSettings, Robots
from outrider.model.lease import Lease, LeaseRequest, Outcome, Renewal, Report, Token, Verdict
from outrider.model.settings import Settings
from outrider.model.task import Added, CrawlLimits, CrawlState, Discovered, Kind, QueueSettings
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from tests.conformance.backends import Place
from tests.processes import run_together
from tests.recount import COMPLETED, FAILED, check_counts

PROCESSES = 8
OPEN = CrawlLimits(delay_ms=0, concurrency=2, robots=False)
HOUR_MS = 3_600_000
EAGER = Settings(retry_base_ms=1, retry_cap_ms=1)
NOW = 1_700_000_000_000

PAGES = 2_000
SEEDS = 400


class Held(NamedTuple):
    """A time in which a worker held a URL; `time.monotonic_ns` is the same clock in all processes."""

    url: str
    token: Token
    since: int
    until: int


def page(number: int) -> str:
    return f"https://site{number % 40}.example/page/{number}"


def number_of(url: str) -> int:
    return int(url.rsplit("/", 1)[1])


def links_of(number: int) -> list[Discovered]:
    """Each seed finds four pages of its own and two that other seeds find as well."""
    if number >= SEEDS:
        return []
    own = [SEEDS + 4 * number + place for place in range(4)]
    shared = [SEEDS + 4 * ((number + step) % SEEDS) for step in (1, 2)]
    return [Discovered(url=page(found), depth=1) for found in own + shared]


def is_broken(number: int) -> bool:
    return number >= SEEDS and number % 50 == 0


def attempts_of(number: int) -> int:
    """Every seventh page fails once; some that are no seeds always do."""
    return EAGER.max_retries if is_broken(number) else 2 if number % 7 == 0 else 1


def report_on(lease: Lease) -> Report:
    number = number_of(lease.url)
    if is_broken(number) or lease.attempt < attempts_of(number):
        return Report(token=lease.token, outcome=Outcome.FAILED, reason="timeout")
    return Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200), links=links_of(number))


async def crawl_until_nothing_is_left(dsn: str, worker: int) -> tuple[int, list[Held]]:
    """Add some seeds, which another process adds as well, then lease and report; tell what was held."""
    held: list[Held] = []
    async with await open_store(dsn, EAGER) as stores:
        share = range(SEEDS // PROCESSES * 2)
        seeds = [(worker * SEEDS // PROCESSES + place) % SEEDS for place in share]
        added = await stores.urls.add("c", [Discovered(url=page(seed)) for seed in seeds])
        new = sum(result.outcome is Added.NEW for result in added)
        requests = 0
        while True:
            requests += 1
            request = LeaseRequest(worker=f"w{worker}", request_id=str(requests), slots=10, crawl="c", lease_ms=HOUR_MS)
            leases = (await stores.urls.lease(request)).leases
            since = time.monotonic_ns()
            if not leases:
                counts = await stores.urls.counts("c")
                if not counts.pending and not counts.assigned:
                    return new, held
                continue
            await asyncio.sleep(0)
            until = time.monotonic_ns()
            answers = await stores.urls.report([report_on(lease) for lease in leases])
            assert Verdict.LEASE_LOST not in [answer.verdict for answer in answers]
            held += [Held(lease.url, lease.token, since, until) for lease in leases]


def check_exclusive(held: Iterable[Held]) -> None:
    """Check that no two leases of one URL overlap in time."""
    by_url: defaultdict[str, list[Held]] = defaultdict(list)
    for each in held:
        by_url[each.url].append(each)
    for url, times in by_url.items():
        times.sort(key=lambda each: each.since)
        for first, second in pairwise(times):
            assert first.until <= second.since, f"{url} was leased twice at once"


async def check_deadlocks(place: Place) -> None:
    """Check that PostgreSQL had to break no deadlock; its count is whole once the other sessions are gone."""
    if not place.dsn.startswith("postgresql:"):
        return
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    async with asyncio.timeout(30):
        while (await place.backend.query(place.dsn, others))[0][0]:
            pass
    counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert (await place.backend.query(place.dsn, counted))[0][0] == 0


async def make_crawls(place: Place, *names: str, limits: CrawlLimits = OPEN) -> None:
    async with await open_store(place.dsn) as stores:
        for name in names:
            await stores.urls.create_crawl(name, limits=limits, now=NOW)


async def test_eight_processes_lease_no_url_twice_and_all_counts_are_exact(place: Place) -> None:
    """Invariants 1 Identity, 2 Exclusivity, 3 Attempts and 6 Counts are exact."""
    await make_crawls(place, "c")
    done = run_together(crawl_until_nothing_is_left, [(place.dsn, worker) for worker in range(PROCESSES)])

    assert sum(new for new, _ in done) == SEEDS, "each seed is NEW for one of those who added it"
    held = [each for _, ones in done for each in ones]
    assert len({each.token for each in held}) == len(held)
    assert Counter(each.url for each in held) == {page(n): attempts_of(n) for n in range(PAGES)}
    check_exclusive(held)
    rows = await place.backend.query(place.dsn, "SELECT url, state, attempt_count FROM tasks")
    assert sorted(rows) == sorted(
        (page(n), FAILED if is_broken(n) else COMPLETED, attempts_of(n)) for n in range(PAGES)
    )
    await check_counts(place)
    await check_deadlocks(place)
    async with await open_store(place.dsn) as stores:
        counts = await stores.urls.counts("c")
        broken = sum(map(is_broken, range(PAGES)))
        assert (counts.completed, counts.failed, counts.total) == (PAGES - broken, broken, PAGES)
        assert await stores.urls.counts_by_kind("c") == {Kind.PAGE: counts}
        queues = await stores.urls.list_queues("c")
        assert len(queues) == 40
        assert sum(queue.counts.total for queue in queues) == PAGES


async def lease_all(urls: UrlStore, number: int) -> list[Token]:
    """Give a crawl so many pages of as many domains, and lease them all until `NOW + 1000`."""
    await urls.add("c", [Discovered(url=f"https://s{n}.example/") for n in range(number)], now=NOW)
    request = LeaseRequest(worker="w", request_id="r", slots=number, crawl="c", lease_ms=1000)
    leases = (await urls.lease(request, now=NOW)).leases
    assert len(leases) == number
    return [lease.token for lease in leases]


async def reap_until_nothing_is_left(dsn: str) -> list[Token]:
    reaped: list[Token] = []
    async with await open_store(dsn) as stores:
        while some := await stores.urls.reap(most=20, now=NOW + 1000):
            reaped += some
    return reaped


async def test_two_reapers_at_once_reap_each_lease_once(place: Place) -> None:
    """Invariant 2, Exclusivity: whoever locks an expired lease first ends it, and nobody ends it again."""
    await make_crawls(place, "c")
    async with await open_store(place.dsn) as stores:
        tokens = await lease_all(stores.urls, 400)
    reaped = run_together(reap_until_nothing_is_left, [(place.dsn,)] * 2)
    assert sorted(token for ones in reaped for token in ones) == sorted(tokens)
    expired = await place.backend.query(place.dsn, "SELECT count(*), min(expiries), max(expiries) FROM tasks")
    assert expired == [(400, 1, 1)]
    await check_counts(place)
    await check_deadlocks(place)


async def renew_one_by_one(dsn: str, tokens: list[Token]) -> list[Token]:
    async with await open_store(dsn) as stores:
        return [
            token
            for token in tokens
            if await stores.urls.renew([token], lease_ms=HOUR_MS, now=NOW + 999) == [Renewal.OK]
        ]


async def renew_or_reap(dsn: str, tokens: list[Token] | None) -> list[Token]:
    return await (reap_until_nothing_is_left(dsn) if tokens is None else renew_one_by_one(dsn, tokens))


async def test_a_lease_is_renewed_or_reaped_but_never_both(place: Place) -> None:
    """Invariant 2, Exclusivity: a reaper looks again, under the lock, whether the lease has expired."""
    await make_crawls(place, "c")
    async with await open_store(place.dsn) as stores:
        tokens = await lease_all(stores.urls, 200)
    last_first = sorted(tokens, reverse=True)
    renewed, *reaped = run_together(renew_or_reap, [(place.dsn, last_first), (place.dsn, None), (place.dsn, None)])
    assert sorted([*renewed, *(token for ones in reaped for token in ones)]) == sorted(tokens)
    left = await place.backend.query(place.dsn, "SELECT token FROM leases")
    assert sorted(bytes(token).hex() for (token,) in left if isinstance(token, bytes)) == sorted(renewed)
    await check_counts(place)


def hurried_clock() -> int:
    """Run 200 times as fast as the clock on the wall, the same in all processes."""
    return NOW + time.monotonic_ns() // 5_000


async def crawl_two_crawls(dsn: str, worker: int) -> list[Held]:
    held: list[Held] = []
    async with await open_store(dsn) as stores:
        for requests in range(100_000):
            request = LeaseRequest(
                worker=f"w{worker}", request_id=str(requests), slots=4, lease_ms=24 * HOUR_MS,
                crawl=[None, "one", "two"][worker % 3],
            )  # fmt: skip
            leases = (await stores.urls.lease(request, now=hurried_clock())).leases
            since = time.monotonic_ns()
            if not leases:
                counts = [await stores.urls.counts(name) for name in ("one", "two")]
                if all(each.completed == each.total for each in counts):
                    break
            await asyncio.sleep(0.02 * bool(leases))  # a fetch takes a while
            until = time.monotonic_ns()
            done = [Report(token=lease.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200)) for lease in leases]
            answers = await stores.urls.report(done, now=hurried_clock())
            assert {answer.verdict for answer in answers} <= {Verdict.COMPLETED}
            held += [Held(lease.url, lease.token, since, until) for lease in leases]
    return held


async def test_the_same_url_in_two_crawls_is_never_leased_in_both_at_once(place: Place) -> None:
    """Invariant 2, Exclusivity: over all crawls, and each crawl gets its turn in the end."""
    await make_crawls(place, "one", "two", limits=CrawlLimits(delay_ms=0, concurrency=20, robots=False))
    pages = [Discovered(url=f"https://site{n % 6}.example/{n}") for n in range(60)]
    async with await open_store(place.dsn) as stores:
        for name in ("one", "two"):
            await stores.urls.add(name, pages, now=NOW)
    done = run_together(crawl_two_crawls, [(place.dsn, worker) for worker in range(PROCESSES)])
    held = [each for ones in done for each in ones]
    assert Counter(each.url for each in held) == {item.url: 2 for item in pages}
    check_exclusive(held)
    await check_counts(place)
    await check_deadlocks(place)


MIXED_OPERATIONS = 300
MIXED_CRAWLS = ("mix-a", "mix-b")
MIXED_DOMAINS = [f"d{n}.example" for n in range(6)]
MIXED_LIMITS = (
    CrawlLimits(delay_ms=0, concurrency=4, robots=True),
    CrawlLimits(delay_ms=0, concurrency=4, robots=False, max_depth=1),
    CrawlLimits(delay_ms=1, concurrency=2, robots=False, max_pages=10_000),
    CrawlLimits(delay_ms=0, concurrency=8, robots=True, max_pages_per_domain=10_000),
)


class MixedClient:
    """Does whatever comes to its mind, with few domains and few URLs so that it meets the others."""

    def __init__(self, urls: UrlStore, seed: int) -> None:
        self.urls = urls
        self.chance = random.Random(seed)
        self.name = f"client-{seed}"
        self.tokens: list[Token] = []
        self.requests = 0

    def some_links(self) -> list[Discovered]:
        return [
            Discovered(
                url=f"https://{self.chance.choice(MIXED_DOMAINS)}/{self.chance.choice(['robots.txt', *range(20)])}",
                depth=self.chance.randrange(3),
                priority=self.chance.randrange(3),
                due_in_ms=self.chance.choice([0, 0, 5]),
                key=self.chance.choice([None, None, None, None, "mixed"]),
                metadata=self.chance.choice([None, {"a": 1}]),
            )
            for _ in range(self.chance.randrange(1, 12))
        ]

    def some_tokens(self) -> list[Token]:
        return [self.tokens.pop() for _ in range(min(len(self.tokens), self.chance.randrange(1, 6)))]

    async def step(self) -> None:
        crawl = self.chance.choice(MIXED_CRAWLS)
        operations = [self.add] * 6 + [self.lease] * 8 + [self.report] * 8 + [
            self.renew, self.release, self.reap, self.promote, self.retry, self.purge, self.configure_gate,
            self.configure_queue, self.delete_queue, self.set_limits, self.set_state, self.read,
        ]  # fmt: skip
        await self.chance.choice(operations)(crawl)
        if self.chance.random() < 0.01:
            await self.urls.delete_crawl(crawl)
            await self.urls.create_crawl(crawl, limits=self.chance.choice(MIXED_LIMITS))

    async def add(self, crawl: str) -> None:
        await self.urls.add(crawl, self.some_links())

    async def lease(self, crawl: str) -> None:
        self.requests += 1
        request = LeaseRequest(
            worker=self.name, request_id=str(self.requests), slots=self.chance.randrange(1, 12),
            crawl=self.chance.choice([None, crawl]), lease_ms=self.chance.choice([20, HOUR_MS]),
            run_id=self.chance.choice([None, "0190163d-8694-739b-aea5-966c26f8ad91"]),
        )  # fmt: skip
        self.tokens += [lease.token for lease in (await self.urls.lease(request)).leases]
        self.chance.shuffle(self.tokens)

    async def report(self, crawl: str) -> None:
        outcomes = [Outcome.DONE, Outcome.DONE, Outcome.FAILED, Outcome.DEFERRED, Outcome.REFUSED]
        await self.urls.report(
            [
                Report(
                    token=token,
                    outcome=self.chance.choice(outcomes),
                    fetch=Fetch(http_status=200),
                    links=self.some_links(),
                    robots=Robots(text="", expires_in_ms=self.chance.choice([50, HOUR_MS])),
                )
                for token in self.some_tokens()
            ]
        )

    async def renew(self, crawl: str) -> None:
        await self.urls.renew(self.tokens[:5], lease_ms=HOUR_MS)

    async def release(self, crawl: str) -> None:
        if self.chance.random() < 0.5:
            await self.urls.release(self.some_tokens())
        else:
            await self.urls.release(worker=self.name)

    async def reap(self, crawl: str) -> None:
        await self.urls.reap(most=self.chance.choice([3, 1000]))

    async def promote(self, crawl: str) -> None:
        await self.urls.promote(crawl)

    async def retry(self, crawl: str) -> None:
        await self.urls.retry_failed(crawl)

    async def purge(self, crawl: str) -> None:
        await self.urls.purge(crawl, before=NOW * 2, key=self.chance.choice([None, *MIXED_DOMAINS]))

    async def configure_gate(self, crawl: str) -> None:
        settings = GateSettings(band=self.chance.randrange(16), blocked_until=self.chance.choice([None, 0]))
        await self.urls.configure_gate(self.chance.choice(MIXED_DOMAINS), settings)

    async def configure_queue(self, crawl: str) -> None:
        settings = QueueSettings(priority=self.chance.choice([None, 100]), page_limit=self.chance.choice([None, 90]))
        await self.urls.configure_queue(crawl, self.chance.choice([*MIXED_DOMAINS, "mixed"]), settings)

    async def delete_queue(self, crawl: str) -> None:
        await self.urls.delete_queue(crawl, self.chance.choice([*MIXED_DOMAINS, "mixed"]))

    async def set_limits(self, crawl: str) -> None:
        await self.urls.set_crawl_limits(crawl, self.chance.choice(MIXED_LIMITS))

    async def set_state(self, crawl: str) -> None:
        await self.urls.set_crawl_state(crawl, CrawlState.RUNNING)

    async def read(self, crawl: str) -> None:
        await self.urls.list_queues(crawl)
        await self.urls.list_tasks(crawl)
        await self.urls.counts(crawl, self.chance.choice(MIXED_DOMAINS))


async def do_anything(dsn: str, seed: int) -> int:
    """Run one client; tell how often a crawl was gone when it came to use it."""
    missed = 0
    async with await open_store(dsn, EAGER) as stores:
        client = MixedClient(stores.urls, seed)
        for _ in range(MIXED_OPERATIONS):
            try:
                await client.step()
            except UnknownCrawl:
                missed += 1
    return missed


async def test_no_mix_of_operations_deadlocks_or_spoils_a_count(place: Place) -> None:
    """Invariant 6, Counts are exact, whatever meets whatever; and locks are taken in one order."""
    await make_crawls(place, *MIXED_CRAWLS)
    run_together(do_anything, [(place.dsn, seed) for seed in range(PROCESSES)])
    await check_deadlocks(place)
    await check_counts(place)
