"""Jobs and keys: who sees and touches whose, and how much each may have."""

from datetime import UTC, datetime

import pytest

from outrider.model.api_key import Role
from outrider.model.machines import JobStatus
from outrider.model.quota import JobQuota
from outrider.model.task import CrawlLimits, CrawlState
from outrider.service import keys
from outrider.service.keys import create_key
from tests.service.job_serving import (
    SEED,
    backend,
    bearer,
    claimed,
    dsn,
    finished,
    port,
    served,
    stores_of,
    submit,
    submitted,
)
from tests.service.serving import Served

__all__ = ["backend", "dsn", "port", "served"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def _nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "FRESH_S", 0.0)


async def test_a_job_is_its_keys_owners(served: Served) -> None:
    control = stores_of(served).control
    made = await create_key(control, "crawler 7", Role.CRAWL, owner="ada")
    headers = {"authorization": f"Bearer {made.text}"}
    job = (await submit(served, headers)).json
    assert (job["user_id"], job["key_id"]) == ("ada", made.key_id)
    history = (await served.ask("GET", f"/v1/jobs/{job['id']}", headers=headers)).json["history"]
    assert history[0]["actor"] == f"key {made.key_id}"


async def test_to_a_key_below_admin_the_jobs_of_others_do_not_exist(served: Served) -> None:
    ada, bob, root = [
        await bearer(served, name, role)
        for name, role in (("ada", Role.CRAWL), ("bob", Role.CRAWL), ("root", Role.ADMIN))
    ]
    job_id = await submitted(served, ada)
    for method, path in (
        ("GET", ""), ("GET", "/progress"), ("GET", "/events"), ("GET", "/results"),
        ("POST", "/pause"), ("POST", "/resume"), ("POST", "/cancel"), ("POST", "/retry"), ("PATCH", ""),
    ):  # fmt: skip
        body = {"priority": 1} if method == "PATCH" else None
        answer = await served.ask(method, f"/v1/jobs/{job_id}{path}", body, headers=bob)
        assert (answer.status, answer.json["type"]) == (404, "urn:outrider:problem:unknown-job")
    for query in ("", "?user_id=ada"):
        assert (await served.ask("GET", f"/v1/jobs{query}", headers=bob)).json["jobs"] == []
    for headers in (ada, root):
        assert [job["id"] for job in (await served.ask("GET", "/v1/jobs", headers=headers)).json["jobs"]] == [job_id]
    assert (await served.ask("POST", f"/v1/jobs/{job_id}/pause", headers=root)).json["status"] == "paused"


async def test_a_second_key_of_the_same_owner_sees_the_same_jobs(served: Served) -> None:
    control = stores_of(served).control
    texts = [(await create_key(control, name, Role.CRAWL, owner="ada")).text for name in ("one", "two")]
    one, two = ({"authorization": f"Bearer {text}"} for text in texts)
    same = {"idempotency-key": "k"}
    job_id = await submitted(served, one | same)
    assert (await served.ask("GET", f"/v1/jobs/{job_id}", headers=two)).status == 200
    assert await submitted(served, two | same) == job_id


async def test_a_key_to_read_may_not_submit_or_touch(served: Served) -> None:
    reader = await bearer(served, "ada", Role.READ)
    job_id = await submitted(served, await bearer(served, "ada"))
    assert (await submit(served, reader)).status == 403
    assert (await served.ask("POST", f"/v1/jobs/{job_id}/cancel", headers=reader)).status == 403
    assert (await served.ask("PATCH", f"/v1/jobs/{job_id}", {"priority": 1}, headers=reader)).status == 403
    assert (await served.ask("GET", f"/v1/jobs/{job_id}", headers=reader)).status == 200


async def test_a_bound_key_submits_for_its_crawls_and_sees_no_others(served: Served) -> None:
    bound = await bearer(served, "ada", Role.CRAWL, "news")
    free = await bearer(served, "ada")
    other = await submitted(served, free, crawl="sports")
    assert (await submit(served, bound)).status == 403
    assert (await submit(served, bound, crawl="sports")).status == 403
    job_id = await submitted(served, bound, crawl="news")
    assert [job["id"] for job in (await served.ask("GET", "/v1/jobs", headers=bound)).json["jobs"]] == [job_id]
    assert (await served.ask("GET", f"/v1/jobs/{other}", headers=bound)).status == 404


async def test_the_same_idempotency_key_of_two_owners_is_two_jobs(served: Served) -> None:
    ada, bob = await bearer(served, "ada"), await bearer(served, "bob")
    same = {"idempotency-key": "k"}
    assert await submitted(served, ada | same) != await submitted(served, bob | same)


async def test_past_its_quota_of_active_jobs_a_key_waits_for_one_to_end(served: Served) -> None:
    headers = await bearer(served, "ada", max_active_jobs=1)
    first = await submitted(served, headers | {"idempotency-key": "k"})
    answer = await submit(served, headers)
    assert (answer.status, answer.json["type"]) == (429, "urn:outrider:problem:quota-exceeded")
    assert (answer.json["quota"], answer.json["limit"]) == ("max_active_jobs", 1)
    assert int(answer.headers["retry-after"]) > 0
    again = await submit(served, headers | {"idempotency-key": "k"})
    assert (again.status, again.json["id"]) == (202, first), "what was submitted before is no new job"
    await served.ask("POST", f"/v1/jobs/{first}/cancel", headers=headers)
    assert (await submit(served, headers)).status == 202
    text = (await served.ask("GET", "/metrics", headers=headers)).text
    assert 'outrider_jobs_over_quota_total{quota="max_active_jobs"} 1.0' in text


async def test_a_retry_counts_for_the_quota_of_active_jobs(served: Served) -> None:
    headers = await bearer(served, "ada", max_active_jobs=1)
    failed = await submitted(served, headers)
    stores = stores_of(served)
    await finished(stores, await claimed(stores), JobStatus.FAILED, error_message="broken")
    await submitted(served, headers)
    answer = await served.ask("POST", f"/v1/jobs/{failed}/retry", headers=headers)
    assert (answer.status, answer.json["quota"]) == (429, "max_active_jobs")


async def test_past_its_quota_of_jobs_a_day_a_key_is_told_when_there_is_room_again(served: Served) -> None:
    headers = await bearer(served, "ada", max_jobs_per_day=2)
    for _ in range(2):
        job_id = await submitted(served, headers)
        await served.ask("POST", f"/v1/jobs/{job_id}/cancel", headers=headers)
    answer = await submit(served, headers)
    assert (answer.status, answer.json["quota"], answer.json["limit"]) == (429, "max_jobs_per_day", 2)
    wait_s = (datetime.fromisoformat(answer.json["retry_at"]) - datetime.now(UTC)).total_seconds()
    assert 86_000 < wait_s <= 86_400
    assert abs(int(answer.headers["retry-after"]) - wait_s) < 60


async def test_a_job_has_no_more_pages_than_its_key_allows(served: Served) -> None:
    headers = await bearer(served, "ada", max_pages_per_job=100)
    job = (await submit(served, headers)).json
    assert job["order"]["max_pages"] == 100, "a job without a limit gets that of its key"
    answer = await submit(served, headers, max_pages=101)
    assert (answer.status, answer.json["quota"], answer.json["limit"]) == (429, "max_pages_per_job", 100)
    assert "retry-after" not in answer.headers, "no time will make room"
    assert (await submit(served, headers, max_pages=100)).status == 202
    for most in (101, None):
        answer = await served.ask("PATCH", f"/v1/jobs/{job['id']}", {"max_pages": most}, headers=headers)
        assert (answer.status, answer.json["quota"]) == (429, "max_pages_per_job")
    answer = await served.ask("PATCH", f"/v1/jobs/{job['id']}", {"max_pages": 50}, headers=headers)
    assert answer.json["order"]["max_pages"] == 50


async def test_quotas_are_each_keys_own(served: Served) -> None:
    control = stores_of(served).control
    quota = JobQuota(max_active_jobs=1)
    for name in ("one", "two"):
        made = await create_key(control, name, Role.CRAWL, owner="ada", quota=quota)
        assert (await submit(served, {"authorization": f"Bearer {made.text}"}, seeds=[SEED])).status == 202


async def test_only_an_operator_begins_a_crawl_of_others_anew(served: Served) -> None:
    ada, bob, root = [
        await bearer(served, name, role)
        for name, role in (("ada", Role.CRAWL), ("bob", Role.CRAWL), ("root", Role.ADMIN))
    ]
    await served.ask("PUT", "/v1/crawls/made-by-hand", {}, headers=ada)
    job_id = await submitted(served, ada, crawl="news", fresh=True)
    await served.ask("POST", f"/v1/jobs/{job_id}/cancel", headers=ada)
    for crawl in ("news", "made-by-hand"):
        answer = await submit(served, bob, crawl=crawl, fresh=True)
        assert (answer.status, answer.json["at"]) == (422, "$.fresh")
    assert (await submit(served, root, crawl="made-by-hand", fresh=True)).status == 202
    again = await submitted(served, ada, crawl="news", fresh=True)
    await served.ask("POST", f"/v1/jobs/{again}/cancel", headers=ada)
    assert (await submit(served, bob, crawl="news")).status == 202, "to go on with it is no harm"


async def test_nobody_gets_past_a_live_job_by_way_of_its_crawl(served: Served) -> None:
    stores = stores_of(served)
    ada, bob = await bearer(served, "ada", max_pages_per_job=5), await bearer(served, "bob")
    job_id = await submitted(served, ada)
    await stores.urls.create_crawl(job_id, limits=CrawlLimits(max_pages=5))
    for headers, path, body in (
        (bob, "/state", {"state": "cancelled"}),
        (bob, "", {"limits": {"delay_ms": 0}}),
        (ada, "", {"limits": {"max_pages": 1_000_000}}),
    ):
        answer = await served.ask("PUT", f"/v1/crawls/{job_id}{path}", body, headers=headers)
        assert (answer.status, answer.json["type"]) == (409, "urn:outrider:problem:job-conflict")
    crawl = await stores.urls.get_crawl(job_id)
    assert (crawl.state, crawl.limits.max_pages) == (CrawlState.RUNNING, 5)
    await finished(stores, await claimed(stores), JobStatus.FAILED, error_message="broken")
    after = await served.ask("PUT", f"/v1/crawls/{job_id}/state", {"state": "paused"}, headers=ada)
    assert after.status == 200
