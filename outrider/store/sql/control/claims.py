"""Claims: who may schedule a domain, until when, under which version."""

from collections.abc import Sequence

from outrider.model.domain import Claim, ClaimOverview, WorkerClaims
from outrider.model.machines import DomainStatus
from outrider.model.settings import Settings
from outrider.policy.admission import storable
from outrider.store.sql.control.rows import moment_of, record
from outrider.store.sql.script import Call, Row, Script
from outrider.store.sql.urls import crawls, lives

WAKE_BATCH = 50
"""How many domains that have cooled down one claim wakes at least: a bound on what a claim costs when
very many become claimable at the same moment."""

RELEASE_CHUNK = 2_000


def claim(
    worker: str, number: int, claim_ms: int, now: int | None, settings: Settings, earlier: list[Claim]
) -> Script[list[Claim]]:
    """Claim the best domains that are free: active before pending, then by priority."""
    moment = yield from crawls.clock(now)
    if earlier:
        held = yield Call("held_claims", (worker, moment), [(each.domain, each.version) for each in earlier])
        if held:
            kept = {row[0] for row in held}
            return [each for each in earlier if each.domain in kept]
    if settings.enable_domain_tracking:
        yield from lives.wake(moment, WAKE_BATCH, refresh=settings.enable_refresh_mode)
    yield Call("wake_domains", (moment, max(number, WAKE_BATCH)))
    rows = yield Call("claim_domains", (worker, number, moment, moment + claim_ms))
    expires_at = moment_of(moment + claim_ms)
    earlier[:] = [
        Claim(domain=row[0], domain_id=row[1], version=row[2], expires_at=expires_at) for row in sorted(rows, key=_rank)
    ]
    return list(earlier)


def _rank(row: Row) -> tuple[bool, int, bool, object, str]:
    """Give back the order in which domains were chosen, which an UPDATE does not keep."""
    _, domain_id, _, status, priority_score, last_crawled_at = row
    crawled = last_crawled_at is not None
    return (
        status != DomainStatus.ACTIVE,
        -priority_score,
        crawled,
        last_crawled_at if crawled else 0,
        domain_id,
    )


def renew(worker: str, claims: Sequence[Claim], claim_ms: int, now: int | None) -> Script[list[Claim | None]]:
    """Prolong the claims that are live; their versions stay."""
    rows = _by_domain(claims)
    yield Call("lock_domains", (), [(domain,) for domain, _ in rows])
    moment = yield from crawls.clock(now)
    renewed = yield Call("renew_claims", (worker, moment, moment + claim_ms), rows)
    expires_at = moment_of(moment + claim_ms)
    live = {
        (row[0], row[2]): Claim(domain=row[0], domain_id=row[1], version=row[2], expires_at=expires_at)
        for row in renewed
    }
    return [live.get((each.domain, each.version)) for each in claims]


def release(worker: str, claims: Sequence[Claim], now: int | None) -> Script[list[bool]]:
    """Give claims up; tell for each whether it was still held."""
    rows = _by_domain(claims)
    yield Call("lock_domains", (), [(domain,) for domain, _ in rows])
    moment = yield from crawls.clock(now)
    released = {(row[0], row[1]) for row in (yield Call("release_claims", (worker, moment), rows))}
    return [(each.domain, each.version) in released for each in claims]


def _by_domain(claims: Sequence[Claim]) -> list[tuple[str, int]]:
    """Sort what can be claims at all in the order of locking; anything else is no live claim."""
    return sorted({(each.domain, each.version) for each in claims if _can_be(each)})


def _can_be(claim: Claim) -> bool:
    domain, version = claim.domain, claim.version
    return isinstance(domain, str) and storable(domain) and type(version) is int and 0 <= version < 2**31


def release_all(worker: str | None) -> Script[int]:
    """End one chunk of all claims, live or not, or of one worker's; tell how many."""
    rows = yield Call("release_all_claims", (worker, RELEASE_CHUNK))
    return len(rows)


def overview(now: int | None) -> Script[ClaimOverview]:
    """Tell who holds what, what is stuck, and what is free."""
    moment = yield from crawls.clock(now)
    workers = yield Call("claims_by_worker", (moment,))
    expired = yield Call("count_expired_claims", (moment,))
    unclaimed = yield Call("count_unclaimed", (moment,))
    return ClaimOverview(
        workers=[record(WorkerClaims, row) for row in workers],
        expired=int(expired[0][0]),
        unclaimed={DomainStatus(row[0]): int(row[1]) for row in unclaimed},
    )


def wake(most: int, now: int | None, settings: Settings) -> Script[int]:
    """Make domains pending whose rest is over, or whose refresh is due; tell how many."""
    moment = yield from crawls.clock(now)
    return (yield from lives.wake(moment, most, refresh=settings.enable_refresh_mode))


def settle(names: Sequence[str], now: int | None, settings: Settings) -> Script[int]:
    """Make active domains exhausted of which nothing is left; tell how many."""
    moment = yield from crawls.clock(now)
    return (yield from lives.settle(names, settings.exhausted_rest_ms, moment))
