"""API keys: who may ask a service for what."""

from datetime import datetime
from enum import StrEnum

import msgspec

from outrider.model.errors import OutriderError, shown
from outrider.model.quota import JobQuota


class Role(StrEnum):
    """What a key is good for; each role may do all that those before it may."""

    READ = "read"
    CRAWL = "crawl"
    """Create and set up crawls, add URLs, lease and report."""
    ADMIN = "admin"
    """Delete, and change what binds all crawls."""

    def includes(self, needed: "Role") -> bool:
        """Tell whether this role may do what another may."""
        order = tuple(Role)
        return order.index(self) >= order.index(needed)


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is kept: its secret is not in it, and cannot be had from it."""

    key_id: str
    name: str
    role: Role
    crawls: tuple[str, ...]
    """The only crawls that it is good for; none means all."""
    digest: str
    """SHA-256 of the secret, in hexadecimal. The secret is random and long, so that a slow hash would protect nothing
    more."""
    created_at: datetime
    revoked_at: datetime | None = None
    owner: str
    """Whose jobs the key submits, sees and touches."""
    max_active_jobs: int | None = None
    max_pages_per_job: int | None = None
    max_jobs_per_day: int | None = None

    @property
    def quota(self) -> JobQuota:
        """How much it may have done for it."""
        return JobQuota(
            max_active_jobs=self.max_active_jobs,
            max_pages_per_job=self.max_pages_per_job,
            max_jobs_per_day=self.max_jobs_per_day,
        )


class UnknownKey(OutriderError):
    """There is no API key of this id."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"there is no API key {shown(key_id)}")
