"""Metrics of domains: how many stand where, why some were given up, claims, and the steps of their lives.

Labels are statuses and known reasons, never names. All replicas of a service tell of the same store.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from outrider.model.machines import DomainStatus
from outrider.policy.blocking import BlockReason
from outrider.store.protocols import ControlStore

OTHER: Final = "other"
"""Whatever else somebody gave as a reason."""
CODES: Final = (*BlockReason, OTHER)


class DomainMetrics:
    """The metrics of one store's domains, as one service sees them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._domains = Gauge("outrider_domains", "Domains, by status.", ["status"], registry=registry)
        self._given_up = Gauge(
            "outrider_domains_given_up", "Domains that are blocked or unreachable, by reason.", ["code"],
            registry=registry,
        )  # fmt: skip
        self._claims = Gauge("outrider_claims", "Claims on domains, live or expired.", ["state"], registry=registry)
        self._steps = Counter(
            "outrider_domain_steps", "Steps of domains' lives since this process first looked.", ["source", "target"],
            registry=registry,
        )  # fmt: skip
        self._blocks = Counter(
            "outrider_domain_blocks", "Domains given up since this process first looked, by reason.", ["code"],
            registry=registry,
        )  # fmt: skip
        self._last_step: int | None = None

    async def read(self, control: ControlStore) -> None:
        """Ask the store how things are."""
        census = await control.domain_census()
        for status, number in census.by_status.items():
            self._domains.labels(status).set(number)
        given_up = dict.fromkeys(CODES, 0)
        for code, number in census.blocked_by_code.items():
            given_up[_known(code)] += number
        for known, number in given_up.items():
            self._given_up.labels(known).set(number)
        self._claims.labels("live").set(census.live_claims)
        self._claims.labels("expired").set(census.expired_claims)
        await self._count_steps(control)

    async def _count_steps(self, control: ControlStore) -> None:
        taken = await control.domain_steps_since(self._last_step)
        for tally in taken.tallies:
            self._steps.labels(tally.from_status, tally.to_status).inc(tally.number)
            if tally.to_status in (DomainStatus.BLOCKED, DomainStatus.UNREACHABLE):
                self._blocks.labels(_known(tally.reason_code)).inc(tally.number)
        self._last_step = taken.last_id


def _known(code: str | None) -> str:
    return code if code is not None and code in CODES else OTHER
