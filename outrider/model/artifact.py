"""The immutable record of one fetch."""

import msgspec

from outrider.model.task import DiscoveryType, Kind


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker measured of one fetch."""

    http_status: int = 0
    """0 where there was no answer."""
    fetched_at: int | None = None
    elapsed_ms: int | None = None
    content_type: str | None = None
    body_bytes: int | None = None
    images_found: int = 0
    digest: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    content_location: str | None = None


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `crawl_log`: one report that was accepted."""

    artifact_id: int
    crawl: str
    key: str
    url: str
    token: str
    attempt: int
    domain: str
    domain_id: str | None
    kind: Kind
    outcome: str
    reason: str | None
    discovery_type: DiscoveryType
    run_id: str | None
    depth: int
    fetch: Fetch
    leased_at: int
    reported_at: int
