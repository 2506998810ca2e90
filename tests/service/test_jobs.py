"""Jobs over HTTP: submitted, listed, shown, and asked for what their users want."""

import json
from typing import Any
from uuid import UUID

import pytest

from outrider.model.job import JobRequest
from outrider.model.lease import LeaseRequest
from outrider.model.machines import JobStatus
from outrider.model.task import Discovered
from tests.service.job_serving import (
    FREE,
    SEED,
    backend,
    claimed,
    dsn,
    fetched,
    finished,
    port,
    served,
    stores_of,
    submit,
    submitted,
)
from tests.service.serving import Port, Served

__all__ = ["backend", "dsn", "port", "served"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNKNOWN = "01900000-0000-7000-8000-000000000000"


async def shown(served: Served, job_id: str) -> Any:
    answer = await served.ask("GET", f"/v1/jobs/{job_id}")
    assert answer.status == 200, answer.text
    return answer.json["job"]


async def listed(served: Served, query: str = "") -> list[str]:
    answer = await served.ask("GET", f"/v1/jobs?{query}")
    assert answer.status == 200, answer.text
    return [job["id"] for job in answer.json["jobs"]]


async def test_a_submission_is_answered_with_202_and_where_the_job_is(served: Served) -> None:
    body: dict[str, Any] = {
        "seeds": ["HTTPS://Site.example", SEED, "https://other.example/a"],
        "strategy": "sitemap",
        "scope": "domain",
        "include": ["/docs/[0-9]+"],
        "max_pages": 10,
        "max_depth": 3,
        "delay": 2,
        "priority": 7,
        "max_retries": 1,
        "source_id": "feed 9",
        "labels": {"team": "news"},
        "webhook_url": "https://hooks.example/x",
        "webhook_secret": "a secret of some length",
        "crawl": "news",
    }
    answer = await submit(served, **body)
    assert answer.status == 202
    assert answer.headers["location"] == f"/v1/jobs/{answer.json['id']}"
    assert UUID(answer.json["id"]).version == 7
    job = (await served.ask("GET", answer.headers["location"])).json["job"]
    assert job == answer.json
    assert (job["status"], job["desired_state"], job["crawl"], job["priority"]) == ("pending", "run", "news", 7)
    assert (job["max_retries"], job["source_id"], job["labels"]) == (1, "feed 9", {"team": "news"})
    assert job["order"]["seeds"] == [SEED, "https://other.example/a"], "normalised, each once"
    assert (job["order"]["strategy"], job["order"]["scope"], job["order"]["delay"]) == ("sitemap", "domain", 2.0)
    assert (job["order"]["max_pages"], job["order"]["max_depth"]) == (10, 3)
    assert job["webhook_url"] == "https://hooks.example/x"


async def test_a_webhook_secret_is_never_told(served: Served) -> None:
    secret = "a secret of some length"
    job_id = await submitted(served, webhook_url="https://hooks.example/", webhook_secret=secret)
    for path in ("", "/progress", "/results"):
        assert secret not in (await served.ask("GET", f"/v1/jobs/{job_id}{path}")).text
    assert secret not in (await served.ask("GET", "/v1/jobs")).text


async def test_a_job_without_a_crawl_gets_one_of_its_own(served: Served) -> None:
    job_id = await submitted(served)
    assert (await shown(served, job_id))["crawl"] == job_id


async def test_a_second_live_job_on_a_crawl_is_a_conflict_that_names_the_first(served: Served) -> None:
    first = await submitted(served, crawl="news")
    answer = await submit(served, crawl="news")
    assert (answer.status, answer.json["type"]) == (409, "urn:outrider:problem:job-conflict")
    assert first in answer.json["detail"]
    await served.ask("POST", f"/v1/jobs/{first}/cancel")
    assert (await submit(served, crawl="news")).status == 202


async def test_the_same_idempotency_key_gives_the_same_job_and_is_for_one_request(served: Served) -> None:
    headers = {"idempotency-key": "order 66"}
    first = await submit(served, headers, max_pages=5)
    again = await submit(served, headers, max_pages=5)
    assert (again.status, again.json) == (202, first.json)
    assert await listed(served) == [first.json["id"]]
    for other in ({"max_pages": 6}, {"max_pages": 5, "priority": 1}, {"max_pages": 5, "labels": {"a": "b"}}):
        answer = await submit(served, headers, **other)
        assert (answer.status, answer.json["type"]) == (409, "urn:outrider:problem:idempotency-conflict")
        assert first.json["id"] in answer.json["detail"]
    await served.ask("PATCH", f"/v1/jobs/{first.json['id']}", {"max_pages": 9, "priority": 3})
    changed = await submit(served, headers, max_pages=5)
    assert (changed.status, changed.json["id"], changed.json["priority"]) == (202, first.json["id"], 3)


async def test_jobs_are_filtered_by_what_they_were_submitted_with_and_by_what_became_of_them(served: Served) -> None:
    one = await submitted(served, crawl="one", labels={"team": "news", "tier": "a=b"}, source_id="s1")
    two = await submitted(served, crawl="two", labels={"team": "sport"}, source_id="s2")
    await served.ask("POST", f"/v1/jobs/{two}/pause")
    assert await listed(served) == [two, one]
    assert await listed(served, "status=paused") == [two]
    assert await listed(served, "crawl=one") == [one]
    assert await listed(served, "source_id=s2") == [two]
    assert await listed(served, "label=team%3Dnews") == [one]
    assert await listed(served, "label=tier%3Da%3Db") == [one]
    assert await listed(served, "label=team%3Dnone") == []
    assert await listed(served, "user_id=nobody") == []


async def test_jobs_are_sorted_in_four_orders(served: Served) -> None:
    low, high, middle = [await submitted(served, priority=priority) for priority in (1, 9, 5)]
    await served.ask("POST", f"/v1/jobs/{low}/pause")
    assert await listed(served) == [middle, high, low]
    assert await listed(served, "sort=oldest") == [low, high, middle]
    assert await listed(served, "sort=priority") == [high, middle, low]
    assert (await listed(served, "sort=updated"))[0] == low


@pytest.mark.parametrize("sort", ["newest", "oldest", "priority"])
async def test_a_listing_stays_whole_while_jobs_are_added(served: Served, sort: str) -> None:
    there = {await submitted(served, priority=number % 3) for number in range(7)}
    seen: list[str] = []
    query = f"sort={sort}&limit=2"
    while True:
        page = (await served.ask("GET", f"/v1/jobs?{query}")).json
        seen += [job["id"] for job in page["jobs"]]
        await submitted(served, priority=1)
        if page["next_cursor"] is None or len(seen) > 40:
            break
        query = f"sort={sort}&limit=2&cursor={page['next_cursor']}"
        if sort == "oldest" and there <= set(seen):
            break  # what is added comes last, for ever
    assert len(seen) == len(set(seen))
    assert there <= set(seen)


async def test_a_job_is_shown_with_its_history(served: Served) -> None:
    stores = stores_of(served)
    job_id = await submitted(served)
    job = await claimed(stores, "runner 1")
    await finished(stores, job, JobStatus.FAILED, error_kind="dns", error_message="no such host")
    answer = (await served.ask("GET", f"/v1/jobs/{job_id}")).json
    assert [(step["from_status"], step["to_status"]) for step in answer["history"]] == [
        (None, "pending"),
        ("pending", "processing"),
        ("processing", "failed"),
    ]
    assert answer["history"][1]["actor"] == "runner 1"
    assert (answer["job"]["error_kind"], answer["job"]["error_message"]) == ("dns", "no such host")


async def test_a_job_of_another_program_is_shown_without_an_order(served: Served) -> None:
    job = await stores_of(served).control.submit_job(JobRequest(payload={"url": SEED}))
    assert (await shown(served, job.id))["order"] is None
    assert await listed(served) == [job.id]


async def test_progress_has_exact_counts_and_what_the_runner_last_said(served: Served) -> None:
    stores = stores_of(served)
    job_id = await submitted(served, max_pages=8)
    before = (await served.ask("GET", f"/v1/jobs/{job_id}/progress")).json
    assert (before["status"], before["done"], before["percentage"]) == ("pending", 0, 0)
    job = await claimed(stores)
    await fetched(stores, job, SEED, f"{SEED}a")
    await stores.urls.add(job.crawl, [Discovered(url=f"{SEED}{number}") for number in range(3)])
    await stores.urls.lease(LeaseRequest(worker="w", request_id="r", slots=1, crawl=job.crawl))
    said = {"rate": 2.5, "domains": ["site.example"], "last_error": "timeout", "bytes": 9, "unheard": {}}
    await stores.control.beat_job(job.id, job.epoch, progress=said)
    progress = (await served.ask("GET", f"/v1/jobs/{job_id}/progress")).json
    assert {name: progress[name] for name in ("status", "done", "failed", "pending", "in_flight")} == {
        "status": "processing", "done": 2, "failed": 0, "pending": 2, "in_flight": 1,
    }  # fmt: skip
    assert (progress["percentage"], progress["percentage_of"]) == (25, "limit")
    assert (progress["rate"], progress["domains"], progress["last_error"]) == (2.5, ["site.example"], "timeout")


async def test_without_a_limit_the_percentage_is_of_the_known_frontier_and_says_so(served: Served) -> None:
    stores = stores_of(served)
    job_id = await submitted(served)
    job = await claimed(stores)
    await fetched(stores, job, SEED)
    await stores.urls.add(job.crawl, [Discovered(url=f"{SEED}{number}") for number in range(3)])
    progress = (await served.ask("GET", f"/v1/jobs/{job_id}/progress")).json
    assert (progress["percentage"], progress["percentage_of"]) == (25, "frontier")


async def test_a_queued_job_pauses_resumes_and_is_cancelled_at_once(served: Served) -> None:
    job_id = await submitted(served)
    for wish, status, desired in (
        ("pause", "paused", "pause"),
        ("pause", "paused", "pause"),
        ("resume", "pending", "run"),
        ("cancel", "cancelled", "cancel"),
        ("cancel", "cancelled", "cancel"),
    ):
        answer = await served.ask("POST", f"/v1/jobs/{job_id}/{wish}")
        assert (answer.status, answer.json["status"], answer.json["desired_state"]) == (200, status, desired)
    for wish in ("pause", "resume", "retry"):
        answer = await served.ask("POST", f"/v1/jobs/{job_id}/{wish}")
        assert (answer.status, answer.json["type"]) == (409, "urn:outrider:problem:job-conflict")


async def test_a_wish_for_a_running_job_is_written_down_for_its_runner(served: Served) -> None:
    stores = stores_of(served)
    job_id = await submitted(served)
    job = await claimed(stores)
    await stores.urls.create_crawl(job.crawl, limits=FREE)
    answer = await served.ask("POST", f"/v1/jobs/{job_id}/pause")
    assert (answer.json["status"], answer.json["desired_state"]) == ("processing", "pause")
    assert (await served.ask("GET", f"/v1/crawls/{job.crawl}")).json["state"] == "paused"
    assert await stores.control.beat_job(job.id, job.epoch) == "pause"


async def test_a_failed_job_is_retried_where_it_was_or_anew(served: Served) -> None:
    stores = stores_of(served)
    job_id = await submitted(served)
    await finished(stores, await claimed(stores), JobStatus.FAILED, error_message="broken")
    answer = await served.ask("POST", f"/v1/jobs/{job_id}/retry")
    assert (answer.status, answer.json["status"], answer.json["error_message"]) == (200, "pending", None)
    assert answer.json["order"]["fresh"] is False
    await finished(stores, await claimed(stores), JobStatus.FAILED, error_message="broken")
    answer = await served.ask("POST", f"/v1/jobs/{job_id}/retry?fresh=true")
    assert (answer.json["status"], answer.json["order"]["fresh"]) == ("pending", True)


async def test_priority_and_limits_of_a_live_job_are_changed_and_its_crawl_follows(served: Served) -> None:
    stores = stores_of(served)
    job_id = await submitted(served, max_pages=5, max_depth=1)
    job = await claimed(stores)
    await stores.urls.create_crawl(job.crawl, limits=FREE)
    answer = await served.ask("PATCH", f"/v1/jobs/{job_id}", {"priority": 4, "max_pages": None, "max_depth": 3})
    assert (answer.status, answer.json["priority"]) == (200, 4)
    assert (answer.json["order"]["max_pages"], answer.json["order"]["max_depth"]) == (None, 3)
    limits = (await served.ask("GET", f"/v1/crawls/{job.crawl}")).json["limits"]
    assert (limits["max_pages"], limits["max_depth"]) == (None, 3)
    await finished(stores, job)
    late = await served.ask("PATCH", f"/v1/jobs/{job_id}", {"priority": 5})
    assert (late.status, late.json["type"]) == (409, "urn:outrider:problem:job-conflict")


async def test_the_summary_adds_up_all_live_jobs(served: Served) -> None:
    stores = stores_of(served)
    for crawl in ("one", "two"):
        await submitted(served, crawl=crawl)
        await claimed(stores)
        await stores.urls.create_crawl(crawl, limits=FREE)
        await stores.urls.add(crawl, [Discovered(url=f"{SEED}{number}") for number in range(3)])
    await stores.urls.lease(LeaseRequest(worker="w", request_id="r", slots=1, crawl="two"))
    await submitted(served)
    answer = (await served.ask("GET", "/v1/summary")).json
    assert (answer["total_pending"], answer["total_assigned"]) == (6, 1)
    assert (answer["jobs"]["pending"], answer["jobs"]["processing"], answer["jobs"]["failed"]) == (1, 2, 0)


async def test_a_job_that_is_not_there_is_404_for_every_call(served: Served) -> None:
    for method, path in (
        ("GET", ""), ("GET", "/progress"), ("GET", "/events"), ("GET", "/results"), ("POST", "/pause"),
        ("POST", "/resume"), ("POST", "/cancel"), ("POST", "/retry"), ("PATCH", ""),
    ):  # fmt: skip
        for job_id in (UNKNOWN, "no-id", "%2E%2E"):
            body = {"priority": 1} if method == "PATCH" else None
            answer = await served.ask(method, f"/v1/jobs/{job_id}{path}", body)
            assert (answer.status, answer.json["type"]) == (404, "urn:outrider:problem:unknown-job"), (path, job_id)


async def test_results_are_lines_of_pages_and_go_on_after_any_of_them(served: Served) -> None:
    stores = stores_of(served)
    job_id = await submitted(served)
    assert (await served.ask("GET", f"/v1/jobs/{job_id}/results")).text == ""
    job = await claimed(stores)
    await fetched(stores, job, *(f"{SEED}{number}" for number in range(1_500)))
    answer = await served.ask("GET", f"/v1/jobs/{job_id}/results")
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert len({line["url"] for line in lines}) == 1_500
    assert (lines[0]["status"], lines[0]["title"]) == (200, lines[0]["url"])
    middle = lines[700]["id"]
    rest = await served.ask("GET", f"/v1/jobs/{job_id}/results?after={middle}")
    assert [json.loads(line) for line in rest.text.splitlines()] == lines[701:]
    few = await served.ask("GET", f"/v1/jobs/{job_id}/results?after={middle}&limit=3")
    assert [json.loads(line) for line in few.text.splitlines()] == lines[701:704]
    assert (await served.ask("GET", f"/v1/jobs/{job_id}/results?after={lines[-1]['id']}")).text == ""


async def test_metrics_count_jobs_by_status_and_nothing_by_name(served: Served) -> None:
    await submitted(served, crawl="a-name-of-ours")
    paused = await submitted(served)
    await served.ask("POST", f"/v1/jobs/{paused}/pause")
    text = (await served.ask("GET", "/metrics")).text
    for line in (
        'outrider_jobs{status="pending"} 1.0',
        'outrider_jobs{status="paused"} 1.0',
        'outrider_jobs{status="failed"} 0.0',
        'outrider_job_urls{state="pending"} 0.0',
        "outrider_jobs_submitted_total 2.0",
    ):
        assert line in text.splitlines()
    assert "a-name-of-ours" not in text
    assert paused not in text


async def test_private_seeds_are_taken_where_the_operator_allows_it(port: Port, dsn: str) -> None:
    async with port.serving(dsn, allow_private=True) as served:
        assert (await submit(served, seeds=["http://127.0.0.1:8000/"])).status == 202
