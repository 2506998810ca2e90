"""The records that travel over HTTP; `translation` makes of them what the frontier speaks.

On the wire are durations, not moments, so that clocks need not agree; what is a fact for ever (when something was
discovered or fetched) stays a moment. Kinds go by their names. Readers also take their numbers, which is what our own
client sends: lists of links are then decoded straight into the records of the frontier.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta

from outrider.model.artifact import Fetch
from outrider.model.gate import Robots
from outrider.model.lease import NoWork, Outcome, Renewal, Report, Token, Verdict
from outrider.model.task import (
    MAX_BATCH,
    MAX_KEY_CHARACTERS,
    AddResult,
    Counts,
    Crawl,
    CrawlLimits,
    CrawlRules,
    CrawlState,
    Discovered,
    DiscoveryType,
    Kind,
    Refusal,
)

MAX_WAIT_MS: Final = 60_000
"""How long one request for work may wait for some."""

Name = Annotated[str, Meta(min_length=1, max_length=MAX_KEY_CHARACTERS)]
KindName = Literal["page", "robots", "sitemap", "image"]
DiscoveryName = Literal["seed", "link", "sitemap", "feed", "redirect", "refresh", "import", "robots"]
StateName = Literal["discovered", "pending", "assigned", "completed", "failed"]

KIND_NAMES: Final = {kind: cast("KindName", kind.name.lower()) for kind in Kind}
DISCOVERY_NAMES: Final = {way: cast("DiscoveryName", way.name.lower()) for way in DiscoveryType}
KINDS: Final[Mapping[object, Kind]] = {name: kind for kind, name in KIND_NAMES.items()}
DISCOVERIES: Final[Mapping[object, DiscoveryType]] = {name: way for way, name in DISCOVERY_NAMES.items()}


class DiscoveredItem(msgspec.Struct, frozen=True, kw_only=True):
    """A URL as somebody found it."""

    url: str
    depth: int = 0
    priority: int = 0
    key: str | None = None
    kind: Kind | KindName = "page"
    due_in_ms: int = 0
    discovery_type: DiscoveryType | DiscoveryName = "link"
    changed_at: int | None = None
    """When its sitemap says that it changed last, in milliseconds since 1970."""
    metadata: dict[str, Any] | None = None

    def discovered(self) -> Discovered:
        """Give it the form that the frontier takes."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields["kind"] = KINDS.get(self.kind, self.kind)
        fields["discovery_type"] = DISCOVERIES.get(self.discovery_type, self.discovery_type)
        return Discovered(**fields)


class DiscoveredBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What was discovered; seeds also widen the crawl's scope."""

    items: Annotated[list[DiscoveredItem], Meta(max_length=MAX_BATCH)]

    def plain(self) -> "PlainDiscoveredBatch":
        """Give it the form that the frontier takes."""
        return PlainDiscoveredBatch(items=[item.discovered() for item in self.items])


class PlainDiscoveredBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The same with numbers for kinds: decoded without a step in between."""

    items: Annotated[list[Discovered], Meta(max_length=MAX_BATCH)]


class AddAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer for each item, in order."""

    results: list[AddResult]


class LeaseBody(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's wish for work. Asked again with the same `request_id`, it gives the same leases."""

    worker: Name
    request_id: Name
    slots: Annotated[int, Meta(ge=1, le=MAX_BATCH)]
    wait_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)] = 0
    """Where nothing is ready, wait for something, at most for so long."""
    lease_ms: int | None = None
    run_id: str | None = None
    max_per_queue: int | None = None
    scheduled: bool = False
    """The run is scheduled from the domains table: each domain's `max_pages_per_run` binds it."""
    fair: bool = False
    """Share what is left of a small `max_pages` fairly among the crawl's queues."""
    claims: bool = False
    """Take only from domains on which this worker has a live claim."""


class LeaseItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The right to fetch one task, for `lease_ms` from when it was asked for."""

    token: str
    crawl: str
    key: str
    url: str
    domain: str
    kind: KindName
    depth: int
    priority: int
    attempt: int
    discovery_type: DiscoveryName
    lease_ms: int
    etag: str | None = None
    last_modified: str | None = None
    digest: str | None = None
    """Of the body that the last fetch brought, to compare with."""
    similarity: int | None = None
    robots_version: str | None = None
    metadata: dict[str, Any] | None = None


class LeaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was leased."""

    leases: list[LeaseItem]
    next_ready_in_ms: int | None
    """When more may be ready, at the earliest; null where nothing is known to come."""
    no_work: NoWork | None
    waited_ms: int
    """How long the service had the request before it granted anything: the leases began no sooner."""


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Leases by their tokens."""

    tokens: Annotated[list[str], Meta(max_length=MAX_BATCH)]


class RenewAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer for each token, in order."""

    results: list[Renewal]


class ReleaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of those leases that were live, and are given back."""

    released: list[str]


class ReportItem(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one lease, with everything found on the page."""

    token: str
    outcome: Outcome
    fetch: Fetch = Fetch()
    links: list[DiscoveredItem] = []
    reason: str | None = None
    retry_after_ms: int | None = None
    backs_off: bool = False
    block_code: str | None = None
    """What the trouble says of the whole domain, such as `forbidden` or `dns_failure`; null where nothing."""
    changed: bool | None = None
    """Whether the page says something else than at the last fetch; null where nobody can tell."""
    fresh_for_ms: int | None = None
    """For how long the answer promised not to change."""
    sent_after_ms: int | None = 0
    """From the grant of the lease to the start of the request; null where nothing was sent."""
    robots: Robots | None = None

    def report(self) -> Report:
        """Give it the form that the frontier takes."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields["token"] = Token(self.token)
        fields["links"] = [link.discovered() for link in self.links]
        return Report(**fields)


class ReportBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Reports; each names its lease by its token, and may be sent again."""

    reports: Annotated[list[ReportItem], Meta(max_length=MAX_BATCH)]

    def plain(self) -> "PlainReportBatch":
        """Give it the form that the frontier takes."""
        return PlainReportBatch(reports=[item.report() for item in self.reports])


class PlainReportBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The same with numbers for kinds."""

    reports: Annotated[list[Report], Meta(max_length=MAX_BATCH)]


class ReportResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the frontier made of one report."""

    verdict: Verdict
    retry_in_ms: int | None = None
    refusal: Refusal | None = None
    detail: str | None = None


class ReportReply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer for each report, in order."""

    results: list[ReportResult]


class CrawlBody(msgspec.Struct, frozen=True, kw_only=True):
    """How a crawl is to be; its rules are fixed once it exists."""

    rules: CrawlRules = CrawlRules()
    limits: CrawlLimits | None = None
    """What is left out of them goes back to its default; without any, an existing crawl keeps its own."""


class StateBody(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a crawl is to hand out work."""

    state: CrawlState


class OutlookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a crawl has before it, all of one moment."""

    counts: Counts
    next_ready_in_ms: int | None
    limited: bool


class CrawlAnswer(Crawl, frozen=True, kw_only=True):
    """A crawl, how far it is and what it has before it."""

    counts: dict[KindName, Counts]
    """For each kind of task that it has."""
    outlook: OutlookAnswer


class CrawlList(msgspec.Struct, frozen=True, kw_only=True):
    """All crawls that the key is good for, by name."""

    crawls: list[Crawl]


class QueueBody(msgspec.Struct, frozen=True, kw_only=True):
    """Overrides for one queue; what is null or left out goes back to the default."""

    delay_ms: Annotated[int, Meta(ge=0)] | None = None
    blocked_for_ms: Annotated[int, Meta(ge=0)] | None = None
    page_limit: Annotated[int, Meta(ge=0)] | None = None
    priority: Annotated[int, Meta(ge=0)] | None = None


class QueueItem(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, its overrides and its counts."""

    key: str
    domain: str | None
    band: int
    ready_in_ms: int | None
    """Null where it waits for nothing known."""
    served_ago_ms: int | None
    settings: QueueBody
    counts: Counts


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """Queues by key, and where the next page begins."""

    queues: list[QueueItem]
    next_after: str | None


class TaskItem(msgspec.Struct, frozen=True, kw_only=True):
    """One URL in one crawl, as listings and exports tell of it and as an import takes it."""

    url: str
    state: StateName
    kind: KindName
    key: str
    status: int | None
    depth: int
    priority: int
    attempts: int
    failures: int
    deferrals: int
    reason: str | None
    discovered_by: DiscoveryName
    discovered_at: str
    due_at: str
    metadata: Mapping[str, Any] | None


class TaskList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of URLs, and where the next one begins."""

    urls: list[TaskItem]
    next_cursor: str | None


class ArtifactItem(msgspec.Struct, frozen=True, kw_only=True):
    """What was reported of one fetch."""

    id: int
    """Later reports have higher ones."""
    url: str
    key: str
    domain: str
    attempt: int
    outcome: str
    reason: str | None
    kind: KindName
    depth: int
    run_id: str | None
    leased_at: int
    reported_at: int
    fetch: Fetch


class ArtifactPage(msgspec.Struct, frozen=True, kw_only=True):
    """Fetches in the order of their ids, and the last of them where there may be more."""

    artifacts: list[ArtifactItem]
    next_after: int | None


class ImportAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the lines of an import."""

    new: int
    known: int
    rejected: int
    refusals: list[str]
    """The first of the refusals, each with its line."""


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks are gone."""

    removed: int


class Promoted(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks may be fetched again."""

    tasks: int


class RobotsText(msgspec.Struct, frozen=True, kw_only=True):
    """A robots.txt; null where none was reported."""

    version: str | None
    text: str | None


class ScopeRoots(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses that widen a crawl's scope."""

    roots: Annotated[list[str], Meta(max_length=MAX_BATCH)]


class AllScopeRoots(msgspec.Struct, frozen=True, kw_only=True):
    """All addresses that widen a crawl's scope."""

    roots: list[str]


class GateBody(msgspec.Struct, frozen=True, kw_only=True):
    """A domain's politeness for all crawls; null leaves a value as it is."""

    delay_ms: int | None = None
    concurrency: int | None = None
    blocked_for_ms: Annotated[int, Meta(ge=0)] | None = None
    """0 unblocks."""
    band: int | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How the service is."""

    status: Literal["ok"] = "ok"
