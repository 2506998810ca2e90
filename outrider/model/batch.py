"""Batch mode: what crawlers that speak URLFrontier ask for and send.

They take batches without tokens, and say later what became of a URL by setting its state and date outright.
"""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from outrider.model.task import MAX_BATCH, MAX_PRIORITY, Counts

BATCH_WORKER = "urlfrontier"
"""Who holds the leases of batch mode: its clients have no names."""

BATCH_LEASE_MS = 30_000
"""How long a URL is left alone after it was served, where the client does not say."""


def priority_of(due_at: int) -> int:
    """Give the priority of a task in batch mode, where tasks come by their dates: the earlier, the higher.

    The wire has whole seconds, and its clients use dates of long ago as priorities.

    >>> priority_of(0) - priority_of(1_999), priority_of(1 << 50)
    (1, 0)
    """
    return max(0, MAX_PRIORITY - due_at // 1000)


class ServeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A client's wish for a batch. None means any, or no limit."""

    crawl: str | None = None
    key: str | None = None
    max_urls_per_queue: int | None = None
    """Also how many of a queue may be in flight: one that has as many, or more, is passed over."""
    max_queues: int | None = None
    max_urls: int = MAX_BATCH
    lease_ms: int = BATCH_LEASE_MS


class Served(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A URL that was handed out."""

    url: str
    key: str
    crawl: str
    metadata: Mapping[str, object] | None = None


class KnownUrl(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a client says of a URL, whether the frontier has seen it or not."""

    url: str
    due_at: int | None
    """When to fetch it again, in milliseconds; it may be past. None means that it is done, for ever."""
    key: str | None = None
    metadata: Mapping[str, object] | None = None


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """Some of a queue's overrides: None clears one, UNSET leaves it as it is."""

    delay_ms: int | UnsetType | None = UNSET
    blocked_until: int | UnsetType | None = UNSET
    page_limit: int | UnsetType | None = UNSET


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over a crawl or one of its queues, all of one moment."""

    counts: Counts
    in_process: int
    """Leased, and the lease has not expired."""
    queues: int
    active_queues: int
    """Queues that have something left to fetch."""


class QueueNames(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a list of queues."""

    keys: list[str]
    total: int
    """How many there are in the whole list."""


class UrlFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which URLs of a crawl a listing is about; None means any."""

    key: str | None = None
    contains: str | None = None
    ignore_case: bool = False


class ListedUrl(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A URL with what its client keeps of it."""

    url: str
    key: str
    due_at: int | None
    """None where it will not be fetched again."""
    discovered_at: int
    metadata: Mapping[str, object] | None = None


class UrlRange(msgspec.Struct, frozen=True, kw_only=True):
    """The URLs that were found in one range of a crawl, and where the next range starts."""

    urls: list[ListedUrl]
    next_cursor: str | None
