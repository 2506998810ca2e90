"""Verifying: what must hold of the domains at each step of their introduction, looked up in the store.

| step | what is checked |
|---|---|
| tracking | every domain has a row, a canonical name, a gate that agrees with it, and a life of legal steps |
| budgets | no counter is negative or greater than what contains it; how evenly pages are spread |
| claims | no claim is stuck or held by nobody, no mix of modes, no page fetched twice, no page of the log uncounted |
| refresh | every exhausted domain comes up again |
| backfill | what was backfilled, by status |

A check that is only told of, since no number of it is wrong, has no verdict.
"""

from collections import Counter
from typing import Final

import msgspec

from outrider.model.domain import Domain
from outrider.model.domain_view import DomainAudit
from outrider.model.job import WorkerMode
from outrider.model.machines import DomainStatus
from outrider.model.url import UrlRefused, canonical_domain
from outrider.store.opening import Stores

AT_ONCE: Final = 250
"""So few that a service which is asked for it answers others in between."""
LOGGED_AT_ONCE: Final = 50_000
BACKFILLED: Final = "backfill"
MOST_NAMED: Final = 3


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was checked."""

    step: str
    """Of the introduction: tracking, budgets, claims, refresh or backfill."""
    what: str
    found: str
    ok: bool | None
    """None where there is nothing to be wrong."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """All that was checked."""

    checks: list[Check]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(check.ok is not False for check in self.checks)


class _Log:
    """What the log says of pages, by domain."""

    def __init__(self) -> None:
        self.completed: Counter[str] = Counter()
        self.refreshed = 0
        self.unknown: set[str] = set()


class _Tally:
    """What was found in a walk over all domains."""

    def __init__(self, log: _Log) -> None:
        self.number = 0
        self.crawled = 0
        self.most = 0
        self.not_canonical: list[str] = []
        self.bad_counters: list[str] = []
        self.fewer_than_logged: list[str] = []
        self.sums: Counter[tuple[DomainStatus, str]] = Counter()
        self._log = log
        log.unknown.update(log.completed)

    def add(self, domain: Domain) -> None:
        """Look at one domain."""
        self.number += 1
        self.crawled += domain.pages_crawled > 0
        self.most = max(self.most, domain.pages_crawled)
        self._log.unknown.discard(domain.domain)
        if not _is_canonical(domain.domain):
            self.not_canonical.append(domain.domain)
        if not _counters_are_sound(domain):
            self.bad_counters.append(domain.domain)
        # A page that waits for its refresh counts as waiting, not as crawled.
        if self._log.completed[domain.domain] > domain.pages_crawled + domain.frontier_size:
            self.fewer_than_logged.append(domain.domain)
        if (domain.source or "").startswith(BACKFILLED):
            self.sums[domain.status, "domains"] += 1
            self.sums[domain.status, "pages"] += domain.pages_crawled
            self.sums[domain.status, "images"] += domain.images_stored


def _is_canonical(name: str) -> bool:
    try:
        return canonical_domain(name) == name
    except UrlRefused:
        return False


def _counters_are_sound(domain: Domain) -> bool:
    counters = (
        domain.pages_discovered, domain.pages_crawled, domain.frontier_size, domain.images_found, domain.images_stored,
        domain.total_error_count, domain.consecutive_error_count, domain.crawl_depth_reached, domain.block_count,
    )  # fmt: skip
    return min(counters) >= 0 and domain.pages_crawled <= domain.pages_discovered


async def verify(stores: Stores) -> Verification:
    """Check everything; all is read in short ranges, so that a crawl beside it is not held up."""
    log = await _read_log(stores)
    tally = _Tally(log)
    after = ""
    while True:
        page = await stores.control.list_domains(after=after, limit=AT_ONCE)
        for domain in page:
            tally.add(domain)
        if len(page) < AT_ONCE:
            break
        after = page[-1].domain
    audit = await stores.control.audit_domains()
    checks = [
        *_tracking(tally, audit, log),
        *_budgets(tally),
        *await _claims(stores, tally, audit),
        *_refresh(audit, log),
        *_backfill(tally, log),
    ]
    return Verification(checks=checks)


async def _read_log(stores: Stores) -> _Log:
    log, last, read = _Log(), (await stores.urls.artifact_horizon()).last_id, 0
    while read < last:
        after, read = read, min(read + LOGGED_AT_ONCE, last)
        for each in await stores.control.logged_pages(after=after, until=read):
            log.completed[each.domain] += each.completed
            log.refreshed += each.refreshed
    return log


def _tracking(tally: _Tally, audit: DomainAudit, log: _Log) -> list[Check]:
    return [
        Check(step="tracking", what="domains known", found=f"{tally.number:,}", ok=None),
        _none("tracking", "domains of the log without a row", sorted(log.unknown)),
        _zero("tracking", "domains with URLs and no row", audit.counted_without_domain),
        _none("tracking", "names that are not canonical", tally.not_canonical),
        _zero("tracking", "domains without a gate", audit.without_gate),
        _zero("tracking", "gates that believe another status", audit.gates_of_another_status),
        _zero("tracking", "gates that open before the rest is over", audit.gates_open_too_soon),
        _zero("tracking", "steps of lives that are not allowed", audit.illegal_steps),
    ]


def _budgets(tally: _Tally) -> list[Check]:
    spread = f"{tally.crawled:,} with pages, {tally.number - tally.crawled:,} without; at most {tally.most:,} of one"
    return [
        _none("budgets", "domains whose counters cannot be", tally.bad_counters),
        Check(step="budgets", what="how pages are spread", found=spread, ok=None),
    ]


async def _claims(stores: Stores, tally: _Tally, audit: DomainAudit) -> list[Check]:
    overview = await stores.control.claims()
    expired = {worker.worker_id for worker in await stores.control.expired_workers()}
    living = [worker for worker in await stores.control.list_workers() if worker.worker_id not in expired]
    modes = {worker.mode for worker in living}
    live = sum(worker.number for worker in overview.workers)
    claiming = sum(worker.mode is WorkerMode.CLAIMS for worker in living)
    held = f"{live:,} of {len(overview.workers):,} workers; {claiming:,} claiming workers are registered"
    return [
        Check(step="claims", what="live claims", found=held, ok=None),
        _zero("claims", "claims that have expired and are stuck", overview.expired),
        _zero("claims", "live claims of workers that are not registered", audit.claims_of_nobody),
        Check(
            step="claims",
            what="modes of the workers",
            found=" and ".join(sorted(modes)) or "no workers",
            ok=len(modes) < 2,
        ),
        _zero("claims", "pages fetched twice by one run, lately", audit.fetched_twice),
        _none("claims", "domains with fewer pages than the log has", tally.fewer_than_logged),
    ]


def _refresh(audit: DomainAudit, log: _Log) -> list[Check]:
    return [
        _zero("refresh", "exhausted domains that never come up again", audit.exhausted_for_ever),
        Check(step="refresh", what="fetches that were refreshes", found=f"{log.refreshed:,}", ok=None),
    ]


def _backfill(tally: _Tally, log: _Log) -> list[Check]:
    backfilled = sum(tally.sums[status, "domains"] for status in DomainStatus)
    covered = f"{len(log.completed):,} in the log, {backfilled:,} backfilled, {tally.number:,} in all"
    checks = [Check(step="backfill", what="domains", found=covered, ok=None)]
    for status in DomainStatus:
        number = tally.sums[status, "domains"]
        if number:
            pages, images = tally.sums[status, "pages"], tally.sums[status, "images"]
            found = f"{number:,} domains, {pages / number:,.1f} pages each, {images / max(pages, 1):.2f} images a page"
            checks.append(Check(step="backfill", what=f"backfilled and {status}", found=found, ok=None))
    return checks


def _zero(step: str, what: str, number: int) -> Check:
    return Check(step=step, what=what, found=f"{number:,}", ok=number == 0)


def _none(step: str, what: str, names: list[str]) -> Check:
    more = ", …" if len(names) > MOST_NAMED else ""
    named = f": {', '.join(names[:MOST_NAMED])}{more}" if names else ""
    return Check(step=step, what=what, found=f"{len(names):,}{named}", ok=not names)
