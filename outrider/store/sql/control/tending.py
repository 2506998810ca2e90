"""Tending the claims of a worker: what rests is given back, what is kept is prolonged, what is ready is claimed.

All of it is one transaction and knows nothing but the worker's name, so that any process may tend for a worker, and
a kill leaves either all of it or nothing.
"""

from outrider.model.domain import ClaimTally
from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import crawls

RENEWED_AFTER = 3
"""A claim is prolonged when this share of it, a third, has passed."""


def tend(worker: str, crawl: str, wanted: int, claim_ms: int, rest_ms: int, now: int | None) -> Script[ClaimTally]:
    """Tend the claims of a worker on the domains of one crawl.

    Whatever the status of a domain, something that is ready is new work for it; where its gate is closed, the next
    lease finds that, the queue moves out of the way, and the claim is given back.
    """
    stored = yield from crawls.find(crawl)
    moment = yield from crawls.clock(now)
    released = yield Call("release_idle_claims", (worker, stored.crawl_id, moment, moment + rest_ms))
    renewed_before = moment + claim_ms - claim_ms // RENEWED_AFTER
    yield Call("prolong_claims", (worker, moment, renewed_before, moment + claim_ms))
    claimed = []
    if wanted:
        claimed = yield Call("claim_ready_domains", (worker, stored.crawl_id, wanted, moment, moment + claim_ms))
    held = yield Call("count_claims_of", (worker, moment))
    return ClaimTally(held=int(held[0][0]), claimed=sorted(row[0] for row in claimed), released=len(released))
