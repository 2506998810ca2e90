"""Domains: remembering them, reading them with exact counts, and the steps of their lives."""

from collections.abc import Sequence
from typing import NamedTuple

from outrider.model.domain import MAX_SOURCE_CHARACTERS, Domain, DomainChange, DomainSeed, DomainStep, UnknownDomain
from outrider.model.domain_name import parent_domain
from outrider.model.errors import ClaimLost, shown
from outrider.model.identifiers import new_uuid7
from outrider.model.job import UnknownRun
from outrider.model.machines import DOMAIN, DomainStatus
from outrider.model.task import Added, AddResult, Refusal
from outrider.model.url import UrlRefused, canonical_domain
from outrider.policy.admission import KNOWN, NEW, storable
from outrider.store.sql.control import runs
from outrider.store.sql.control.rows import record
from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import crawls


class SeedList(NamedTuple):
    """A batch of seeds after the door."""

    seeds: dict[str, DomainSeed]
    """By canonical domain, in their order; the first that names a source or rank counts."""
    results: list[str | AddResult]
    """By position: the canonical domain, or why there is none."""


def admit_seeds(seeds: Sequence[DomainSeed]) -> SeedList:
    """Canonicalise and check a batch; what is bad is refused by itself."""
    admitted = SeedList({}, [])
    for seed in seeds:
        domain = _admitted(seed)
        admitted.results.append(domain)
        if isinstance(domain, str):
            earlier = admitted.seeds.get(domain, seed)
            admitted.seeds[domain] = DomainSeed(
                domain=domain,
                source=seed.source if earlier.source is None else earlier.source,
                seed_rank=seed.seed_rank if earlier.seed_rank is None else earlier.seed_rank,
            )
    return admitted


def _admitted(seed: DomainSeed) -> str | AddResult:
    if not isinstance(seed, DomainSeed):
        return AddResult(Added.REJECTED, Refusal.BAD_TEXT, f"item {shown(seed)} is not allowed")
    source, rank = seed.source, seed.seed_rank
    if source is not None and not (isinstance(source, str) and storable(source)):
        return AddResult(Added.REJECTED, Refusal.BAD_TEXT, f"source {shown(source)} cannot be stored")
    if source is not None and len(source) > MAX_SOURCE_CHARACTERS:
        detail = f"source has {len(source)} characters, allowed are {MAX_SOURCE_CHARACTERS}"
        return AddResult(Added.REJECTED, Refusal.TOO_LONG, detail)
    if rank is not None and (type(rank) is not int or not 0 <= rank < 2**31):
        return AddResult(Added.REJECTED, Refusal.BAD_PRIORITY, f"seed_rank {shown(rank)} is not allowed")
    try:
        return canonical_domain(seed.domain)
    except UrlRefused as refused:
        return AddResult(Added.REJECTED, refused.reason, str(refused))


def remember(admitted: SeedList, now: int | None) -> Script[list[AddResult]]:
    """Store the domains that are new, with their gates; fill what the others lack, and nothing else."""
    moment = yield from crawls.clock(now)
    # Ids in the order of the list: among equals, the first seeded is the first claimed.
    ids = sorted(new_uuid7() for _ in admitted.seeds)
    new = [
        (each, domain, parent_domain(domain), seed.source, seed.seed_rank)
        for each, (domain, seed) in zip(ids, admitted.seeds.items(), strict=True)
    ]
    new.sort(key=lambda row: row[1])
    inserted = yield Call("insert_seeds", (moment,), new)
    rows = [(domain, source, rank) for _, domain, _, source, rank in new]
    yield Call("insert_gates", (), [(domain,) for domain, *_ in rows])
    yield Call("fill_seeds", (), rows)
    fresh = {row[0] for row in inserted}
    answers: list[AddResult] = []
    for result in admitted.results:
        if isinstance(result, AddResult):
            answers.append(result)
        else:
            answers.append(NEW if result in fresh else KNOWN)
            fresh.discard(result)
    return answers


def find(domain: str) -> Script[Domain | None]:
    """Read one domain."""
    rows = yield Call("domain", (domain,))
    return record(Domain, rows[0]) if rows else None


def listed(status: DomainStatus | None, after: str, limit: int) -> Script[list[Domain]]:
    """List domains by name: a domain never moves in this order."""
    rows = yield Call("list_domains", (None if status is None else status.value, after, limit))
    return [record(Domain, row) for row in rows]


def refresh_candidates(limit: int, now: int | None) -> Script[list[str]]:
    """Name the domains whose refresh is due, those first that yield most."""
    moment = yield from crawls.clock(now)
    rows = yield Call("refresh_candidates", (moment, limit))
    return [row[0] for row in rows]


def _existing(domain: str) -> Script[Domain]:
    found = yield from find(domain)
    if found is None:
        raise UnknownDomain(domain)
    return found


def transition(domain: str, change: DomainChange, now: int | None, earlier: list[Domain]) -> Script[Domain]:
    """Make one step of a domain's life, if it still is what the writer believes."""
    DOMAIN.check(change.source, change.target)
    if change.run_id is not None and (yield from runs.find(change.run_id)) is None:
        raise UnknownRun(change.run_id)
    yield Call("lock_gates", (), [(domain,)])
    yield Call("lock_domains", (), [(domain,)])
    moment = yield from crawls.clock(now)
    moved = yield Call(
        "transition_domain",
        (
            domain, change.source.value, change.expected_version, change.worker, moment,
            change.target.value, change.block_reason, change.block_reason_code, change.next_crawl_after,
            change.run_id,
        ),
    )  # fmt: skip
    found = yield from _existing(domain)
    if moved:
        earlier[:] = [found]
        actor = change.actor or change.worker or "operator"
        yield Call(
            "insert_domain_history",
            (moment,),
            [
                (
                    found.id, change.source.value, change.target.value, change.block_reason_code, change.block_reason,
                    actor, change.run_id, found.version,
                )
            ],
        )  # fmt: skip
    elif [(each.version, each.updated_at) for each in earlier] != [(found.version, found.updated_at)]:
        raise ClaimLost(_loss(found, change))
    return found


def _loss(found: Domain, change: DomainChange) -> str:
    expected = f"{change.source} with version {change.expected_version}"
    real = f"{found.status} with version {found.version}"
    if change.worker is not None:
        expected += f", claimed by {change.worker}"
        real += f", claimed by {found.claimed_by} until {found.claim_expires_at}" if found.claimed_by else ", unclaimed"
    return f"{found.domain} is no longer {expected}: it is {real}; nothing was changed"


def history(domain: str, after: int, limit: int) -> Script[list[DomainStep]]:
    """List the steps of a domain's life, the oldest first."""
    rows = yield Call("domain_history", (domain, after, limit))
    if not rows:
        yield from _existing(domain)
    return [record(DomainStep, row) for row in rows]


def configure(domain: str, max_pages_per_run: int | None) -> Script[Domain]:
    """Set a domain's budget; as with any change by somebody else, a claim on it is lost."""
    yield Call("configure_domain", (domain, max_pages_per_run))
    return (yield from _existing(domain))
