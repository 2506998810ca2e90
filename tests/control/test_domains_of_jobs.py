"""Supervisors and the domains table: claims of runners, and the upkeep that comes with the clock."""

import signal
import time

import msgspec

from outrider.model.domain import DomainChange, DomainSeed
from outrider.model.job import WorkerKind, WorkerMode, runner_name
from outrider.model.machines import DomainStatus, JobStatus
from tests.conformance.backends import Place
from tests.control.supervised import QUICK, Watched, runner_of, send, wait_until, watched

CLAIMING = msgspec.structs.replace(QUICK, enable_claim_protocol=True)
PAGES = 60


async def holders(crawls: Watched) -> set[str]:
    return {worker.worker for worker in (await crawls.stores.control.claims()).workers}


async def test_a_runner_claims_the_domains_of_its_job_and_leaves_no_claim(place: Place) -> None:
    async with watched(place, pages=PAGES) as crawls:
        job = await crawls.submit(delay=0.01)
        async with crawls.supervised(settings=CLAIMING):
            await wait_until(lambda: holders(crawls), "a claim")
            assert await holders(crawls) == {runner_name(job.id, 1)}
            workers = await crawls.stores.control.list_workers()
            assert {worker.mode for worker in workers} == {WorkerMode.CLAIMS}
            assert WorkerKind.SUPERVISOR in {worker.kind for worker in workers}
            await crawls.becomes(job, JobStatus.COMPLETED)
            await wait_until(lambda: _none_is_held(crawls), "no claim")
        await crawls.check_whole(job, PAGES)


async def _none_is_held(crawls: Watched) -> bool:
    return not await holders(crawls)


async def test_what_a_killed_runner_had_claimed_is_free_for_the_next(sqlite_place: Place) -> None:
    async with watched(sqlite_place, pages=PAGES) as crawls:
        job = await crawls.submit(delay=0.01)
        async with crawls.supervised(settings=CLAIMING) as supervisor:
            process_id = await runner_of(supervisor)
            await crawls.visits.reach(10)
            send(process_id, signal.SIGKILL)
            await crawls.becomes(job, JobStatus.COMPLETED)
            await wait_until(lambda: _none_is_held(crawls), "no claim")
        await crawls.check_whole(job, PAGES)


async def test_a_supervisor_wakes_what_has_rested_and_works_out_priorities(sqlite_place: Place) -> None:
    async with watched(sqlite_place) as crawls:
        control = crawls.stores.control
        await control.remember_domains([DomainSeed(domain="a.example", seed_rank=1)])
        for source, target in (
            (DomainStatus.PENDING, DomainStatus.ACTIVE),
            (DomainStatus.ACTIVE, DomainStatus.BLOCKED),
        ):
            known = await control.get_domain("a.example")
            assert known is not None
            change = DomainChange(
                source=source,
                target=target,
                expected_version=known.version,
                next_crawl_after=int(time.time() * 1000) - 1,
            )
            await control.transition_domain("a.example", change)

        async def is_awake() -> bool:
            known = await control.get_domain("a.example")
            assert known is not None
            return known.status is DomainStatus.PENDING and known.priority_computed_at is not None

        async with crawls.supervised():
            await wait_until(is_awake, "a domain that is awake")
