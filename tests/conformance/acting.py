"""What the tests do to a store, in few words.

Unless a test asks for politeness its crawl has none: no delay, room for a hundred requests, no robots.txt.
Time is what the test says; nothing here reads a clock.
"""

import itertools
from collections import Counter
from typing import Any, Final

from outrider.model.artifact import Artifact, Fetch
from outrider.model.gate import Gate
from outrider.model.lease import Lease, LeaseGrant, LeaseRequest, Outcome, Report, ReportAnswer, Token
from outrider.model.machines import TaskState
from outrider.model.task import (
    Added,
    AddResult,
    Counts,
    Crawl,
    CrawlLimits,
    CrawlRules,
    Discovered,
    Kind,
    Queue,
    Task,
    TaskFilter,
)
from outrider.store.protocols import UrlStore

T0: Final = 1_750_000_000_000
"""When every test begins."""
SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

DONE, FAILED, DEFERRED, REFUSED = Outcome
NEW, KNOWN, REJECTED = Added
BY_DOMAIN: Final = CrawlRules()

_requests = itertools.count()


async def create(urls: UrlStore, name: str = "c", *, rules: CrawlRules = BY_DOMAIN, **limits: Any) -> Crawl:
    """Create a crawl, impolite but for the limits that are named."""
    chosen = CrawlLimits(**{"delay_ms": 0, "concurrency": 100, "robots": False, **limits})
    return await urls.create_crawl(name, rules, chosen, now=T0)


def found(url: Any, **fields: Any) -> Discovered:
    """Make a discovery, of whatever a test wants to try."""
    return Discovered(url=url, **fields)


async def answers(urls: UrlStore, *items: str | Discovered, crawl: str = "c", now: int = T0) -> list[AddResult]:
    """Add URLs and return the whole answers."""
    batch = [found(item) if isinstance(item, str) else item for item in items]
    return await urls.add(crawl, batch, now=now)


async def add(urls: UrlStore, *items: str | Discovered, crawl: str = "c", now: int = T0) -> list[Added]:
    """Add URLs and return what became of each."""
    return [answer.outcome for answer in await answers(urls, *items, crawl=crawl, now=now)]


async def ask(urls: UrlStore, crawl: str | None = "c", *, now: int = T0, slots: int = 1, **wishes: Any) -> LeaseGrant:
    """Ask for work, each time with a request id of its own unless one is named."""
    wishes = {"worker": "w", "request_id": f"request-{next(_requests)}", **wishes}
    return await urls.lease(LeaseRequest(crawl=crawl, slots=slots, **wishes), now=now)


async def lease(
    urls: UrlStore, crawl: str | None = "c", *, now: int = T0, slots: int = 1, **wishes: Any
) -> list[Lease]:
    """Ask for work and return what there was."""
    return (await ask(urls, crawl, now=now, slots=slots, **wishes)).leases


async def lease_one(urls: UrlStore, crawl: str | None = "c", *, now: int = T0, **wishes: Any) -> Lease:
    """Lease the one task that must be ready."""
    leases = await lease(urls, crawl, now=now, **wishes)
    assert len(leases) == 1, "nothing was ready"
    return leases[0]


async def wait_for_lease(urls: UrlStore, crawl: str | None = "c", *, now: int) -> tuple[Lease, int]:
    """Follow `next_ready_at` from look to look; returns the lease and when it came."""
    for _ in range(2_000):
        grant = await ask(urls, crawl, now=now)
        if grant.leases:
            return grant.leases[0], now
        assert grant.next_ready_at is not None, "nothing is known to come"
        now = max(now + 1, grant.next_ready_at)
    raise AssertionError("the times of `next_ready_at` lead nowhere")


def saying(lease: Lease | Token | str, outcome: Outcome = DONE, **fields: Any) -> Report:
    """Make a report; done means 200 unless a fetch is named."""
    token = lease.token if isinstance(lease, Lease) else Token(lease)
    fields.setdefault("fetch", Fetch(http_status=200 if outcome is DONE else 0))
    return Report(token=token, outcome=outcome, **fields)


async def report(
    urls: UrlStore, lease: Lease | Token | str, outcome: Outcome = DONE, *, now: int, **fields: Any
) -> ReportAnswer:
    """Report one lease."""
    (answer,) = await urls.report([saying(lease, outcome, **fields)], now=now)
    return answer


async def tasks(urls: UrlStore, crawl: str = "c", **which: Any) -> list[Task]:
    """List all tasks of a crawl, page by page."""
    listed: list[Task] = []
    cursor: str | None = None
    while True:
        page = await urls.list_tasks(crawl, TaskFilter(**which), cursor=cursor, limit=100)
        listed += page.tasks
        if page.next_cursor is None:
            return listed
        cursor = page.next_cursor


async def task(urls: UrlStore, url: str, crawl: str = "c", key: str | None = None) -> Task:
    """Find the task that must be there."""
    stored = await urls.find_task(crawl, url, key)
    assert stored is not None, f"there is no task for {url}"
    return stored


async def state(urls: UrlStore, url: str, crawl: str = "c") -> TaskState:
    """Tell the state of the task that must be there."""
    return (await task(urls, url, crawl)).state


async def gate(urls: UrlStore, domain: str) -> Gate:
    """Read the gate that must be there."""
    stored = await urls.get_gate(domain)
    assert stored is not None, f"there is no gate for {domain}"
    return stored


Everything = tuple[list[Task], list[Queue], Counts, dict[Kind, Counts], list[Artifact], list[Gate | None]]


async def everything(urls: UrlStore, crawl: str = "c") -> Everything:
    """Read all that can be read of a crawl, to see whether anything has changed."""
    queues = await urls.list_queues(crawl, limit=10_000)
    return (
        await tasks(urls, crawl),
        queues,
        await urls.counts(crawl),
        await urls.counts_by_kind(crawl),
        await urls.artifacts(crawl, limit=10_000),
        [await urls.get_gate(queue.domain) for queue in queues if queue.domain is not None],
    )


def counted(rows: list[Task]) -> Counts:
    """Count tasks by hand."""
    numbers = Counter(row.state.lower() for row in rows)
    return Counts(**{str(name): number for name, number in numbers.items()})


async def check_counts(urls: UrlStore, crawl: str = "c") -> Counts:
    """Invariant 6, Counts are exact: every count that can be read equals the rows that it counts."""
    rows = await tasks(urls, crawl)
    total = await urls.counts(crawl)
    assert total == counted(rows)
    by_kind = {kind: counts for kind, counts in (await urls.counts_by_kind(crawl)).items() if counts.total}
    assert by_kind == {kind: counted([row for row in rows if row.kind is kind]) for kind in {row.kind for row in rows}}
    for queue in await urls.list_queues(crawl, limit=10_000):
        expected = counted([row for row in rows if row.key == queue.key])
        assert queue.counts == expected
        assert await urls.counts(crawl, queue.key) == expected
    return total
