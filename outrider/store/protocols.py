"""What a store must be able to do: the two protocols.

All times are milliseconds. `now` is for tests and simulations: None means the store's own clock. Every
method either does the whole of what it says or raises and does nothing.
"""

from collections.abc import Sequence
from typing import Protocol

from outrider.model.artifact import Artifact
from outrider.model.gate import Gate, GateSettings
from outrider.model.lease import LeaseGrant, LeaseRequest, Renewal, Report, ReportAnswer, Token
from outrider.model.task import (
    AddResult,
    Counts,
    Crawl,
    CrawlLimits,
    CrawlRules,
    CrawlState,
    Discovered,
    Kind,
    Queue,
    QueueSettings,
    Task,
    TaskFilter,
    TaskPage,
)


class UrlStore(Protocol):
    """The URL plane: tasks, queues, gates, leases, counts, artifacts."""

    async def create_crawl(
        self, name: str, rules: CrawlRules = ..., limits: CrawlLimits | None = None, *, now: int | None = None
    ) -> Crawl:
        """Create a crawl, or find it; raises `CrawlConflict` where its rules are others."""
        ...

    async def get_crawl(self, name: str) -> Crawl:
        """Find a crawl; raises `UnknownCrawl`."""
        ...

    async def list_crawls(self) -> list[Crawl]:
        """List all crawls by name."""
        ...

    async def set_crawl_state(self, name: str, state: CrawlState) -> Crawl:
        """Run, pause or cancel a crawl: no lease is granted on one that does not run."""
        ...

    async def set_crawl_limits(self, name: str, limits: CrawlLimits) -> Crawl:
        """Change a crawl's limits; what was left DISCOVERED waits for `promote`."""
        ...

    async def add(
        self, crawl: str, items: Sequence[Discovered], *, now: int | None = None
    ) -> list[AddResult]:
        """Store what is new; one answer for each item, in order."""
        ...

    async def lease(self, request: LeaseRequest, *, now: int | None = None) -> LeaseGrant:
        """Hand out ready tasks, as far as politeness and limits allow."""
        ...

    async def renew(
        self, tokens: Sequence[Token], *, lease_ms: int | None = None, now: int | None = None
    ) -> list[Renewal]:
        """Prolong leases that are live; one answer for each token, in order."""
        ...

    async def report(self, reports: Sequence[Report], *, now: int | None = None) -> list[ReportAnswer]:
        """End leases with what was found; one answer for each report, in order."""
        ...

    async def reap(self, *, most: int = ..., now: int | None = None) -> list[Token]:
        """Return the tasks of leases that have expired; tell which leases these were."""
        ...

    async def release(
        self, tokens: Sequence[Token] = (), *, worker: str | None = None, now: int | None = None
    ) -> list[Token]:
        """Give leases back uncharged: those named, or all of a worker; tell which were live."""
        ...

    async def promote(self, crawl: str, *, now: int | None = None) -> int:
        """Make PENDING what an earlier depth limit left DISCOVERED; tell how many."""
        ...

    async def retry_failed(self, crawl: str, which: TaskFilter = ..., *, now: int | None = None) -> int:
        """Give FAILED tasks a fresh start; tell how many."""
        ...

    async def counts(self, crawl: str, key: str | None = None) -> Counts:
        """Sum up a crawl or one of its queues, exactly."""
        ...

    async def counts_by_kind(self, crawl: str) -> dict[Kind, Counts]:
        """Sum up a crawl for each kind of task, exactly."""
        ...

    async def find_task(self, crawl: str, url: str, key: str | None = None) -> Task | None:
        """Find a task by any spelling of its URL."""
        ...

    async def list_tasks(
        self, crawl: str, which: TaskFilter = ..., *, cursor: str | None = None, limit: int = ...
    ) -> TaskPage:
        """List tasks in an order that stays the same whatever happens to them."""
        ...

    async def list_queues(self, crawl: str, *, after: str = "", limit: int = ...) -> list[Queue]:
        """List queues by key."""
        ...

    async def artifacts(self, crawl: str, *, after_id: int = 0, limit: int = ...) -> list[Artifact]:
        """List a crawl's artifacts in the order in which they were reported."""
        ...

    async def configure_queue(
        self, crawl: str, key: str, settings: QueueSettings, *, now: int | None = None
    ) -> None:
        """Set a queue's overrides, also before its first URL."""
        ...

    async def configure_gate(self, domain: str, settings: GateSettings, *, now: int | None = None) -> Gate:
        """Set a domain's politeness for all crawls, also before its first URL."""
        ...

    async def get_gate(self, domain: str) -> Gate | None:
        """Read a domain's gate."""
        ...

    async def robots_text(self, domain: str) -> tuple[str, str] | None:
        """Read the version and text of a domain's robots.txt."""
        ...

    async def delete_queue(self, crawl: str, key: str) -> int:
        """Remove a queue with its tasks and settings; tell how many tasks."""
        ...

    async def delete_crawl(self, crawl: str) -> int:
        """Remove a crawl with everything but its artifacts; tell how many tasks."""
        ...

    async def purge(self, crawl: str, *, before: int, key: str | None = None) -> int:
        """Remove tasks discovered before a time, except those in flight; tell how many."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of the store."""
        ...
