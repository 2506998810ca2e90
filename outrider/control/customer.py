"""On whose behalf a desk acts: what they may have, and which jobs are theirs."""

from typing import Final

import msgspec

from outrider.model.job import Job
from outrider.model.quota import JobQuota


class Customer(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf a desk acts."""

    actor: str = "user"
    """Who is named in a job's history."""
    user_id: str | None = None
    """The owner of the jobs that are submitted."""
    key_id: str | None = None
    quota: JobQuota = JobQuota()
    sees_all: bool = True
    """Whether jobs of others are seen and touched too; to everybody else they do not exist."""
    crawls: frozenset[str] | None = None
    """The only crawls whose jobs are seen; None means all."""

    def sees(self, job: Job) -> bool:
        """Tell whether a job exists for this customer."""
        is_own = self.sees_all or job.user_id == self.user_id
        return is_own and (self.crawls is None or job.crawl in self.crawls)


OPERATOR: Final = Customer()
"""Whoever has the store itself."""
