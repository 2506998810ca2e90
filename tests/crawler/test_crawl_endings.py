"""When a crawl of which nothing can be leased is over, and why."""

import pytest

from outrider.crawler.execution import ending_of
from outrider.crawler.progress import CrawlEnding
from outrider.model.lease import LeaseGrant, NoWork
from outrider.model.task import Counts, Outlook

NOW = 1_700_000_000_000
PATIENCE_MS = 60_000


def ending(
    no_work: NoWork = NoWork.WAITING,
    *,
    next_ready_at: int | None = None,
    limited: bool = False,
    **counts: int,
) -> CrawlEnding | None:
    grant = LeaseGrant(leases=[], next_ready_at=next_ready_at, no_work=no_work)
    outlook = Outlook(counts=Counts(**counts), next_ready_at=next_ready_at, limited=limited)
    return ending_of(grant, outlook, now=NOW, max_wait_ms=PATIENCE_MS)


def test_a_crawl_with_nothing_pending_and_nothing_in_flight_is_drained() -> None:
    assert ending(completed=5, failed=1, discovered=7) is CrawlEnding.DRAINED


@pytest.mark.parametrize("no_work", [NoWork.WAITING, NoWork.LIMIT])
def test_while_another_process_has_something_in_flight_nothing_is_over(no_work: NoWork) -> None:
    assert ending(no_work, assigned=1) is None
    assert ending(no_work, assigned=1, pending=1) is None


def test_what_can_be_fetched_soon_is_waited_for() -> None:
    assert ending(pending=1, next_ready_at=NOW + PATIENCE_MS) is None


def test_what_cannot_be_fetched_soon_ends_the_crawl_as_waiting() -> None:
    assert ending(pending=1, next_ready_at=NOW + PATIENCE_MS + 1) is CrawlEnding.WAITING
    assert ending(pending=1) is CrawlEnding.WAITING


def test_a_limit_ends_the_crawl_where_something_is_left_over() -> None:
    assert ending(NoWork.LIMIT, pending=1) is CrawlEnding.LIMIT
    assert ending(pending=1, limited=True) is CrawlEnding.LIMIT
    assert ending(NoWork.LIMIT) is CrawlEnding.DRAINED, "all there was has been fetched"


def test_what_the_user_asked_for_comes_first() -> None:
    assert ending(NoWork.PAUSED, pending=1, assigned=1) is CrawlEnding.PAUSED
    assert ending(NoWork.CANCELLED, pending=1, assigned=1) is CrawlEnding.CANCELLED
