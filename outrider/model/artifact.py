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
    title: str | None = None
    links_found: int = 0
    noindex: bool = False
    """The page asks not to be shown in search results."""
    redirects: tuple[str, ...] = ()
    """The addresses that led here, the first one first."""
    similarity: int | None = None
    """A hash of the main text, signed, of 64 bits: those of pages that say nearly the same differ in few."""


class ArtifactHorizon(msgspec.Struct, frozen=True, kw_only=True):
    """How far the numbers of artifacts have come.

    Where several connections write, a number may be given out and show up only later, behind a higher one. Once
    `oldest_writer` of a later horizon has reached `next_writer` of an earlier one, every artifact up to the
    earlier `last_id` that will ever be there is there.
    """

    last_id: int
    next_writer: int
    oldest_writer: int


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
