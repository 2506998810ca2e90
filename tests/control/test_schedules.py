"""Schedules and refresh orders under a real supervisor, on a real site."""

import msgspec
import pytest

from outrider.control.orders import OrderRefused, check_crawl, checked_order
from outrider.control.schedules import schedule
from outrider.model.job import JobFilter, JobRequest
from outrider.model.machines import JobStatus
from outrider.model.order import JobOrder
from outrider.model.task import DiscoveryType
from tests.conformance.backends import Place
from tests.control.supervised import QUICK, wait_until, watched

PAGES = 10
REFRESHING = msgspec.structs.replace(
    QUICK,
    enable_refresh_mode=True,
    refresh_first_ms=1,
    refresh_shortest_ms=1,
    refresh_balance_ms=1,
    exhausted_rest_ms=1,
)
"""What was fetched is due again at once."""


async def test_a_schedule_crawls_first_and_refreshes_ever_after_also_by_another_supervisor(
    sqlite_place: Place,
) -> None:
    async with watched(sqlite_place, pages=PAGES) as at:
        order = JobOrder(seeds=(f"{at.site.base_url}/",), delay=0.0, per_domain=4, timeout=5.0)
        made = await schedule(at.stores.control, order, every_ms=1_000, crawl="news", allow_private=True)

        async def completed(number: int) -> bool:
            which = JobFilter(crawl="news", status=JobStatus.COMPLETED)
            return len((await at.stores.control.list_jobs(which)).jobs) >= number

        async with at.supervised(settings=REFRESHING):
            await wait_until(lambda: completed(1), "the first job")
        asked = at.visits.paths.copy()
        assert {number for path, number in asked.items() if path != "/robots.txt"} <= {1, 2}
        async with at.supervised(settings=REFRESHING):
            await wait_until(lambda: completed(3), "the job of another supervisor")
        await at.stores.control.remove_schedule(made.id)
        artifacts = await at.stores.urls.artifacts("news", limit=1_000)
        assert DiscoveryType.REFRESH in {each.discovery_type for each in artifacts}
        # In no run is a page fetched twice.
        fetched = [(each.run_id, each.url) for each in artifacts]
        assert len(fetched) == len(set(fetched))


async def test_a_refresh_of_a_crawl_that_is_not_there_or_where_it_is_off_fails_for_good(sqlite_place: Place) -> None:
    async with watched(sqlite_place, pages=1) as at:
        payload = msgspec.to_builtins(JobOrder(seeds=(), refresh=True))
        unknown = await at.stores.control.submit_job(JobRequest(payload=payload, crawl="nowhere"))
        async with at.supervised(settings=REFRESHING):
            failed = await at.becomes(unknown, JobStatus.FAILED)
        assert "nothing to refresh" in str(failed.error_message)
        await at.stores.urls.create_crawl("there")
        off = await at.stores.control.submit_job(JobRequest(payload=payload, crawl="there"))
        async with at.supervised():
            failed = await at.becomes(off, JobStatus.FAILED)
        assert "ENABLE_REFRESH_MODE=true" in str(failed.error_message)


def test_a_refresh_needs_no_seeds_but_a_crawl_and_cannot_begin_afresh() -> None:
    order = JobOrder(seeds=(), refresh=True)
    assert checked_order(order) == order
    check_crawl(order, "news")
    with pytest.raises(OrderRefused, match="name the crawl"):
        check_crawl(order, None)
    with pytest.raises(OrderRefused, match="leave out fresh"):
        checked_order(msgspec.structs.replace(order, fresh=True))
    with pytest.raises(OrderRefused, match="at least one"):
        checked_order(JobOrder(seeds=()))
