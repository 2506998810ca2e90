"""Random histories of domains through the real stores: no illegal step, no write under a lost claim, no drift.

Whatever happens, after every operation: the steps of each domain form a path of the table with growing versions, gate
and domain tell the same status, every counter equals what the reports that were accepted add up to, and a report under
a claim is accepted if and only if the claim is live.
"""

import asyncio
from collections import Counter, defaultdict
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.model.artifact import Fetch
from outrider.model.domain import Claim, DomainChange
from outrider.model.errors import ClaimLost, InvalidTransition
from outrider.model.gate import GateSettings
from outrider.model.lease import Lease, LeaseRequest, Outcome, Report, Verdict
from outrider.model.machines import DOMAIN, DomainStatus
from outrider.model.settings import Settings
from outrider.model.task import CrawlLimits, Discovered
from outrider.store.opening import Stores, open_store
from tests.conformance.backends import Backend, Place
from tests.recount import check_counts

T0: Final = 1_750_000_000_000
SITES: Final = ("a.org", "b.org", "c.org")
WORKERS: Final = ("ann", "bob")
CLAIM_MS: Final = 20_000
SHORT = Settings(
    backoff_jitter=0.0, max_retries=2, max_lease_expiries=2, max_domain_errors=2, max_block_retries=1,
    forbidden_rest_ms=5_000, server_error_rest_ms=20_000, unreachable_rest_ms=60_000, exhausted_rest_ms=30_000,
    enable_refresh_mode=True,
)  # fmt: skip
ANSWERS: Final[list[dict[str, Any]]] = [
    {"outcome": Outcome.DONE, "fetch": Fetch(http_status=200, images_found=3)},
    {"outcome": Outcome.DONE, "fetch": Fetch(http_status=200, images_found=1)},
    {"outcome": Outcome.DONE, "fetch": Fetch(http_status=404)},
    {"outcome": Outcome.DONE, "fetch": Fetch(http_status=403, images_found=9), "block_code": "forbidden"},
    {"outcome": Outcome.FAILED, "block_code": "timeout"},
    {"outcome": Outcome.FAILED, "block_code": "dns_failure"},
    {"outcome": Outcome.DEFERRED, "block_code": "server_error", "backs_off": True},
    {"outcome": Outcome.REFUSED, "reason": "private address"},
]

small = st.integers(0, 7)
operation = st.one_of(
    st.tuples(st.just("add"), small, small),
    st.tuples(st.just("lease"), small, small),
    st.tuples(st.just("report"), small, small),
    st.tuples(st.just("report"), small, small),
    st.tuples(st.just("claim"), small, small),
    st.tuples(st.sampled_from(["release", "renew", "release_all", "configure", "wake", "recalculate"]), small, small),
    st.tuples(st.sampled_from(["transition", "open_gate", "reap", "purge"]), small, small),
)
histories = st.lists(st.tuples(operation, st.sampled_from([0, 1, 1_000, 6_000, 21_000, 61_000])), max_size=40)


class World:
    """A store, and what must have come of all that was accepted."""

    def __init__(self, stores: Stores, place: Place) -> None:
        self.stores, self.place = stores, place
        self.now = T0
        self.requests = 0
        self.leases: list[tuple[Lease, str, Claim | None]] = []
        self.claims: dict[str, dict[str, Claim]] = defaultdict(dict)
        self.images: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.crawled: Counter[str] = Counter()
        self.depth: Counter[str] = Counter()

    async def add(self, site: int, number: int) -> None:
        url = f"https://{SITES[site % 3]}/{number}"
        await self.stores.urls.add("c", [Discovered(url=url, depth=number)], now=self.now)

    async def lease(self, worker: int, number: int) -> None:
        self.requests += 1
        name, claims = WORKERS[worker % 2], number % 2 == 0
        request = LeaseRequest(
            worker=name, request_id=str(self.requests), slots=1 + number, crawl="c", claims=claims, lease_ms=120_000
        )
        for lease in (await self.stores.urls.lease(request, now=self.now)).leases:
            claim = self.claims[name].get(lease.domain) if claims else None
            if claims:
                assert claim is not None, "leased under a claim that nobody has"
                assert await self.is_live(name, claim)
            self.leases.append((lease, name, claim))

    async def report(self, pick: int, kind: int) -> None:
        if not self.leases:
            return
        lease, worker, claim = self.leases.pop(pick % len(self.leases))
        holds = claim is None or await self.is_live(worker, claim)
        before = await self.stores.control.get_domain(lease.domain)
        said = ANSWERS[kind % len(ANSWERS)]
        (answer,) = await self.stores.urls.report([Report(token=lease.token, **said)], now=self.now)
        if not holds:
            assert answer.verdict is Verdict.LEASE_LOST
            assert await self.stores.control.get_domain(lease.domain) == before
        if answer.verdict is Verdict.LEASE_LOST:
            return
        self.errors[lease.domain] += "block_code" in said
        self.crawled[lease.domain] += said["outcome"] is Outcome.DONE
        if said["outcome"] is Outcome.DONE and "block_code" not in said:
            self.images[lease.domain] += said["fetch"].images_found
            self.depth[lease.domain] = max(self.depth[lease.domain], lease.depth)

    async def is_live(self, worker: str, claim: Claim) -> bool:
        """Tell whether nobody has ended or taken over a claim, asking the database itself."""
        rows = await self.place.backend.query(
            self.place.dsn,
            f"SELECT 1 FROM domains WHERE domain = '{claim.domain}' AND claimed_by = '{worker}' "
            f"AND claim_version = {claim.version}",
        )
        return bool(rows) and claim.expires_at.timestamp() * 1000 > self.now

    async def claim(self, worker: int, number: int) -> None:
        name = WORKERS[worker % 2]
        held = [claim for claims in self.claims.values() for claim in claims.values()]
        live = {claim.domain for other in WORKERS for claim in held if await self.is_live(other, claim)}
        for claim in await self.stores.control.claim_domains(name, 1 + number % 2, claim_ms=CLAIM_MS, now=self.now):
            assert claim.domain not in live, "claimed twice"
            self.claims[name][claim.domain] = claim

    async def renew(self, worker: int, _: int) -> None:
        name = WORKERS[worker % 2]
        held = list(self.claims[name].values())
        live = [await self.is_live(name, claim) for claim in held]
        renewed = await self.stores.control.renew_claims(name, held, claim_ms=CLAIM_MS, now=self.now)
        assert [claim is not None for claim in renewed] == live
        self.claims[name] = {claim.domain: claim for claim in renewed if claim is not None}

    async def release(self, worker: int, _: int) -> None:
        name = WORKERS[worker % 2]
        held = list(self.claims.pop(name, {}).values())
        live = [await self.is_live(name, claim) for claim in held]
        assert await self.stores.control.release_claims(name, held, now=self.now) == live

    async def release_all(self, *_: int) -> None:
        await self.stores.control.release_all_claims()

    async def configure(self, site: int, number: int) -> None:
        if await self.stores.control.get_domain(SITES[site % 3]) is not None:
            await self.stores.control.configure_domain(SITES[site % 3], max_pages_per_run=number)

    async def wake(self, *_: int) -> None:
        await self.stores.control.wake_domains(now=self.now)

    async def recalculate(self, *_: int) -> None:
        await self.stores.control.recalculate_priorities(now=self.now)

    async def open_gate(self, site: int, _: int) -> None:
        await self.stores.urls.configure_gate(SITES[site % 3], GateSettings(blocked_until=0), now=self.now)

    async def reap(self, *_: int) -> None:
        await self.stores.urls.reap(now=self.now)

    async def purge(self, *_: int) -> None:
        await self.stores.urls.purge("c", before=self.now)

    async def transition(self, site: int, number: int) -> None:
        name, target = SITES[site % 3], list(DomainStatus)[number % 5]
        before = await self.stores.control.get_domain(name)
        if before is None:
            return
        worker = WORKERS[number % 2] if number > 4 else None
        change = DomainChange(source=before.status, target=target, expected_version=before.version, worker=worker)
        try:
            await self.stores.control.transition_domain(name, change, now=self.now)
        except InvalidTransition:
            assert not DOMAIN.allows(before.status, target)
        except ClaimLost:
            assert worker is not None
        else:
            if worker is not None and name in self.claims[worker]:
                claim = await self.stores.control.get_domain(name)
                assert claim is not None
                assert claim.claim_expires_at is not None
                self.claims[worker][name] = Claim(
                    domain=name, domain_id=claim.id, version=claim.version, expires_at=claim.claim_expires_at
                )

    async def check(self) -> None:
        """Check everything that must always hold."""
        await check_counts(self.place)
        for domain in await self.stores.control.list_domains():
            gate = await self.stores.urls.get_gate(domain.domain)
            assert gate is not None
            assert gate.status is domain.status
            status, version = DomainStatus.PENDING, 0
            for step in await self.stores.control.domain_history(domain.domain):
                assert step.from_status is status
                assert DOMAIN.allows(step.from_status, step.to_status)
                assert version < step.version <= domain.version
                status, version = step.to_status, step.version
            assert domain.status is status
            name = domain.domain
            assert (domain.images_found, domain.total_error_count) == (self.images[name], self.errors[name])
            assert (domain.pages_crawled, domain.crawl_depth_reached) == (self.crawled[name], self.depth[name])


async def live(stores: Stores, place: Place, history: list[tuple[tuple[str, int, int], int]]) -> None:
    world = World(stores, place)
    limits = CrawlLimits(delay_ms=0, concurrency=9, robots=False)
    await stores.urls.create_crawl("c", limits=limits, now=T0)
    for site in range(3):
        await world.add(site, 0)
    # Begin with leases under a claim: few sequences would else come to lose one.
    await world.claim(0, 1)
    await world.lease(0, 2)
    for (name, first, second), jump in history:
        world.now += jump
        await getattr(world, name)(first, second)
        await world.check()


def test_random_histories_keep_to_the_table_to_claims_and_to_the_counters(backend: Backend) -> None:
    dsn = backend.create()

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(histories)
    def run(history: list[tuple[tuple[str, int, int], int]]) -> None:
        async def once() -> None:
            await backend.wipe(dsn)
            async with await open_store(dsn, SHORT) as stores:
                await live(stores, Place(backend, dsn), history)

        asyncio.run(once())

    run()
    backend.drop(dsn)
