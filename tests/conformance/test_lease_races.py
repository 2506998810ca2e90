"""What a lease does about tasks that somebody takes or ends between its look at them and its grant."""

from outrider.model.lease import LeaseGrant, LeaseRequest
from outrider.model.machines import TaskState
from outrider.model.settings import Settings
from outrider.store.opening import Stores
from outrider.store.sql.script import Call, Row, Script
from outrider.store.sql.url_store import SqlUrlStore
from outrider.store.sql.urls.lease import lease
from tests.conformance.acting import T0, add, create
from tests.conformance.backends import Place
from tests.recount import check_counts


def too_late(script: Script[LeaseGrant]) -> Script[LeaseGrant]:
    """Run a lease whose first task is no longer PENDING by the time that it is assigned."""
    rows: list[Row] | None = None
    while True:
        try:
            call = next(script) if rows is None else script.send(rows)
        except StopIteration as end:
            grant: LeaseGrant = end.value
            return grant
        if call.name == "assign_tasks" and call.rows:
            call = Call(call.name, call.values, call.rows[1:])
        rows = yield call


async def test_a_task_that_is_gone_when_it_is_assigned_is_not_handed_out(stores: Stores, place: Place) -> None:
    """Invariants Exclusivity and Counts: a lease without an ASSIGNED task would spoil both."""
    urls = stores.urls
    assert isinstance(urls, SqlUrlStore)
    await create(urls)
    pages = {"https://a.example/", "https://b.example/", "https://c.example/"}
    await add(urls, *pages)
    request = LeaseRequest(worker="w", request_id="r", slots=10, crawl="c")
    grant = await urls._engine.write(lambda: too_late(lease(request, T0, Settings(), 0)))
    left = pages - {leased.url for leased in grant.leases}
    assert len(left) == 1
    await check_counts(place)
    assert [task.url for task in (await urls.list_tasks("c")).tasks if task.state is TaskState.PENDING] == [*left]
    again = await urls.lease(LeaseRequest(worker="w", request_id="again", slots=10, crawl="c"), now=T0)
    assert {leased.url for leased in again.leases} == left, "it was free all the same, so the next one has it"
