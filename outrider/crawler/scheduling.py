"""How a run is scheduled: what of the domains table binds its leases."""

from typing import Final

import msgspec

from outrider.model.job import WorkerMode
from outrider.model.settings import Settings


class Scheduling(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run is scheduled from the domains table, and whether its workers claim domains.

    >>> Scheduling.of(Settings(enable_claim_protocol=True))
    Scheduling(begins_domains=False, claims=True)
    """

    begins_domains: bool = False
    """Domains that the table has and no crawl has begun are begun by this run."""
    claims: bool = False
    """Lease only from domains that this worker has claimed."""

    @property
    def from_domains(self) -> bool:
        """Whether each domain's own budget binds the run, and a domain that rests is not seeded again."""
        return self.begins_domains or self.claims

    @property
    def mode(self) -> WorkerMode:
        """The mode in which its workers are registered."""
        return WorkerMode.CLAIMS if self.claims else WorkerMode.PLAIN

    @classmethod
    def of(cls, settings: Settings, *, claims: bool = False) -> "Scheduling":
        """Read it from the flags; `claims` asks for claims whatever they say."""
        return cls(
            begins_domains=settings.enable_smart_scheduling,
            claims=claims or settings.enable_claim_protocol,
        )


PLAIN: Final = Scheduling()
