"""A task and what surrounds it: discoveries, crawls, queues, counts."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any, Final, NewType

import msgspec

from outrider.model.machines import TaskState

Millis = NewType("Millis", int)
"""A moment, in milliseconds since 1970 (UTC), or a span of them."""

NEVER: Final = 1 << 62
"""Later than any moment: a queue that waits for nothing known."""

MAX_BATCH: Final = 10_000
MAX_KEY_CHARACTERS: Final = 255
MAX_METADATA_BYTES: Final = 16 * 1024
MAX_METADATA_LEVELS: Final = 32
MAX_PRIORITY: Final = 2**31 - 1
MAX_DEPTH: Final = 2**31 - 1
DEFAULT_CRAWL: Final = "DEFAULT"


class Kind(IntEnum):
    """What a task fetches."""

    PAGE = 0
    ROBOTS = 1
    SITEMAP = 2
    IMAGE = 3


class DiscoveryType(IntEnum):
    """How a URL came to be known."""

    SEED = 0
    LINK = 1
    SITEMAP = 2
    FEED = 3
    REDIRECT = 4
    REFRESH = 5
    IMPORT = 6
    ROBOTS = 7


class KeyRule(StrEnum):
    """How a crawl derives a task's queue key from its URL; fixed when the crawl is created."""

    DOMAIN = "domain"
    HOST = "host"
    PARENT_DOMAIN = "parent_domain"


class CrawlState(StrEnum):
    """Whether a crawl hands out work."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"


class CrawlRules(msgspec.Struct, frozen=True, kw_only=True):
    """What is fixed when a crawl is created, since the identity of its tasks depends on it."""

    key_rule: KeyRule = KeyRule.DOMAIN
    strip_tracking: bool = False
    sort_query: bool = False


class CrawlLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What may be changed while a crawl lives. None means no limit."""

    max_depth: int | None = None
    max_pages: int | None = None
    max_pages_per_domain: int | None = None
    """Pages of one domain in one run."""
    delay_ms: int = 1000
    """Between two requests to one domain, where neither its gate nor its queue says otherwise."""
    concurrency: int = 1
    """Requests in flight to one domain, where its gate does not say otherwise."""
    robots: bool = True
    """Lease a gate's robots.txt before its first page, and again when it has expired."""


class Crawl(msgspec.Struct, frozen=True, kw_only=True):
    """A named frontier."""

    name: str
    state: CrawlState
    rules: CrawlRules
    limits: CrawlLimits
    created_at: int
    conduct: Mapping[str, Any] | None = None
    """How its workers are to behave, whoever they are; None leaves that to each of them."""


class Discovered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A URL as somebody found it, not yet normalised or checked."""

    url: str
    depth: int = 0
    priority: int = 0
    """Higher comes first within its queue; 0 is the default, negative is refused."""
    key: str | None = None
    """Names the queue outright; by default the crawl's key rule does."""
    kind: Kind = Kind.PAGE
    due_in_ms: int = 0
    discovery_type: DiscoveryType = DiscoveryType.LINK
    changed_at: int | None = None
    """When its sitemap says that it changed last, in milliseconds: a page that was fetched before is then due."""
    metadata: Mapping[str, object] | None = None


class Restored(Discovered, frozen=True, kw_only=True, gc=False):
    """A task as an export told of it, to be stored where it is not there."""

    state: TaskState = TaskState.PENDING
    """What was being fetched is PENDING again; the crawl's limit of depth says what is DISCOVERED."""
    due_at: int | None = None
    """In milliseconds, and it may be past; it takes the place of `due_in_ms`."""
    discovered_at: int | None = None
    attempt_count: int = 0
    failures: int = 0
    deferrals: int = 0
    http_status: int | None = None
    reason: str | None = None


class Added(StrEnum):
    """What became of a discovery."""

    NEW = "new"
    KNOWN = "known"
    REJECTED = "rejected"


class Refusal(StrEnum):
    """Why an input was refused."""

    TOO_LONG = "too_long"
    NOT_HTTP = "not_http"
    NO_HOST = "no_host"
    BAD_PORT = "bad_port"
    BAD_HOST = "bad_host"
    BAD_TEXT = "bad_text"
    """Not a string, or one with NUL bytes or lone surrogates."""
    BAD_KEY = "bad_key"
    BAD_PRIORITY = "bad_priority"
    BAD_DEPTH = "bad_depth"
    BAD_KIND = "bad_kind"
    BAD_DUE = "bad_due"
    BAD_METADATA = "bad_metadata"
    BAD_REPORT = "bad_report"
    BAD_HISTORY = "bad_history"
    """What is said of its past cannot be."""


class AddResult(msgspec.Struct, frozen=True):
    """The answer to one discovery."""

    outcome: Added
    reason: Refusal | None = None
    detail: str | None = None


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One URL in one crawl."""

    crawl: str
    key: str
    url: str
    kind: Kind
    state: TaskState
    priority: int
    depth: int
    attempt_count: int
    failures: int
    deferrals: int
    expiries: int
    discovered_at: int
    due_at: int
    discovery_type: DiscoveryType
    last_heartbeat: int | None
    """Last activity of the live lease, None where there is none."""
    http_status: int | None
    reason: str | None
    """Why the last attempt did not complete."""
    metadata: Mapping[str, object] | None = None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks stand in each state."""

    discovered: int = 0
    pending: int = 0
    assigned: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        """All tasks, whatever their state."""
        return self.discovered + self.pending + self.assigned + self.completed + self.failed


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Overrides for one queue; None leaves the default in force."""

    delay_ms: int | None = None
    blocked_until: int | None = None
    page_limit: int | None = None
    """Stops the queue once this many of its pages are completed or in flight."""
    priority: int | None = None


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of one crawl that share a key."""

    crawl: str
    key: str
    domain: str | None
    """The one domain of its tasks; None where a client named a key for tasks of several."""
    band: int
    ready_at: int
    last_served_at: int | None
    settings: QueueSettings
    counts: Counts


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What a crawl has before it, all of one moment."""

    counts: Counts
    next_ready_at: int | None
    """A lower bound for when something may be ready; None where nothing is known to come."""
    limited: bool
    """Some queue stands still because a limit on its pages is used up."""


class WaitingQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that has to wait, and what its domain's gate says of that."""

    key: str
    domain: str | None
    ready_at: int
    pending: int
    backoff_until: int
    blocked_until: int
    robots_until: int
    """When its robots.txt, which could not be fetched, is tried again; 0 where that is not so."""

    @property
    def waits_until(self) -> int:
        """Until when it waits at least: its gate may be closed for longer than the queue knows."""
        return max(self.ready_at, self.backoff_until, self.blocked_until, self.robots_until)


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks a listing, count or retry is about; None means any."""

    state: TaskState | None = None
    key: str | None = None
    kind: Kind | None = None
    url_contains: str | None = None


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a listing, and where the next one starts."""

    tasks: list[Task]
    next_cursor: str | None
