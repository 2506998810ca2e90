"""What workers ask over HTTP: add, lease, renew, report, release."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.service.serving import Port, Served, open_port

DONE = {"outcome": "done", "fetch": {"http_status": 200}}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[Port]:
    async with open_port() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def served(port: Port, tmp_path: Path) -> AsyncIterator[Served]:
    async with port.serving(tmp_path) as running:
        await running.crawl()
        yield running


async def test_one_answer_for_each_discovery_and_a_refusal_refuses_only_its_own(served: Served) -> None:
    answer = await served.ask(
        "POST",
        "/v1/crawls/news/discovered",
        {"items": [{"url": "http://a.example/"}, {"url": "mailto:x"}, {"url": "HTTP://A.example"}]},
    )
    assert answer.status == 200
    assert [result["outcome"] for result in answer.json["results"]] == ["new", "rejected", "known"]
    assert answer.json["results"][1]["reason"] == "not_http"


async def test_kinds_go_by_name_or_by_number(served: Served) -> None:
    await served.add("http://a.example/1", kind="sitemap", discovery_type="feed")
    await served.add("http://a.example/2", kind=2, discovery_type=3)
    leases = (await served.lease())["leases"]
    assert [(each["kind"], each["discovery_type"]) for each in leases] == [("sitemap", "feed")] * 2


async def test_a_lease_carries_durations_and_what_the_fetch_needs(served: Served) -> None:
    await served.add("http://a.example/", depth=2, metadata={"from": "test"})
    answer = await served.lease(lease_ms=30_000)
    assert answer["next_ready_in_ms"] is None or 0 <= answer["next_ready_in_ms"] <= 30_000
    (lease,) = answer["leases"]
    assert lease["lease_ms"] == 30_000
    assert (lease["url"], lease["depth"], lease["attempt"]) == ("http://a.example/", 2, 1)
    assert lease["metadata"] == {"from": "test"}
    assert not any(name.endswith("_at") for name in (*answer, *lease))


async def test_the_same_request_id_gives_the_same_leases(served: Served) -> None:
    """Invariant 2, Exclusivity: an answer that got lost strands nothing and doubles nothing."""
    await served.add(*(f"http://a.example/{number}" for number in range(5)))
    first = await served.lease(request_id="one", slots=3)
    again = await served.lease(request_id="one", slots=3)
    other = await served.lease(request_id="two", slots=3)
    tokens = [{lease["token"] for lease in answer["leases"]} for answer in (first, again, other)]
    assert tokens[0] == tokens[1]
    assert [len(each) for each in tokens] == [3, 3, 2]
    assert not tokens[0] & tokens[2]


async def test_a_report_ends_a_lease_with_its_links_and_may_be_repeated(served: Served) -> None:
    """Invariant 5, Nothing lost."""
    await served.add("http://a.example/")
    (lease,) = (await served.lease())["leases"]
    report = {"token": lease["token"], **DONE, "links": [{"url": "http://a.example/next", "depth": 1}]}
    for _ in range(2):
        answer = await served.ask("POST", "/v1/crawls/news/report", {"reports": [report]})
        assert answer.json == {"results": [{"verdict": "completed"}]}
    urls = (await served.ask("GET", "/v1/crawls/news/urls")).json["urls"]
    assert {each["url"]: each["state"] for each in urls} == {
        "http://a.example/": "completed",
        "http://a.example/next": "pending",
    }


async def test_a_retry_is_told_as_a_duration(served: Served) -> None:
    await served.add("http://a.example/")
    (lease,) = (await served.lease())["leases"]
    report = {"token": lease["token"], "outcome": "deferred", "retry_after_ms": 60_000}
    answer = await served.ask("POST", "/v1/report", {"reports": [report]})
    (result,) = answer.json["results"]
    assert result["verdict"] == "retry_at"
    assert 50_000 < result["retry_in_ms"] <= 60_000


async def test_a_bad_report_is_refused_alone(served: Served) -> None:
    await served.add("http://a.example/1", "http://b.example/")
    one, two = (await served.lease())["leases"]
    reports = [{"token": one["token"], "outcome": "done"}, {"token": two["token"], **DONE}, {"token": "x", **DONE}]
    answer = await served.ask("POST", "/v1/report", {"reports": reports})
    assert [result["verdict"] for result in answer.json["results"]] == ["rejected", "completed", "lease_lost"]


async def test_leases_are_renewed_and_released_by_token(served: Served) -> None:
    await served.add("http://a.example/")
    (lease,) = (await served.lease())["leases"]
    tokens = {"tokens": [lease["token"], "0" * 32]}
    assert (await served.ask("POST", "/v1/crawls/news/renew", tokens)).json == {"results": ["ok", "lease_lost"]}
    assert (await served.ask("POST", "/v1/release", tokens)).json == {"released": [lease["token"]]}
    assert (await served.ask("POST", "/v1/renew", tokens)).json == {"results": ["lease_lost", "lease_lost"]}


async def test_a_worker_may_serve_any_crawl(served: Served) -> None:
    await served.crawl("sports")
    await served.add("http://a.example/", crawl="news")
    await served.add("http://b.example/", crawl="sports")
    body = {"worker": "w", "request_id": "r", "slots": 10}
    leases = (await served.ask("POST", "/v1/lease", body)).json["leases"]
    assert {lease["crawl"] for lease in leases} == {"news", "sports"}


async def test_a_long_poll_ends_when_there_is_work(served: Served) -> None:
    waiting = asyncio.create_task(served.lease(wait_ms=15_000))
    await served.somebody_waits()
    began = time.monotonic()
    await served.add("http://a.example/")
    answer = await waiting
    assert [lease["url"] for lease in answer["leases"]] == ["http://a.example/"]
    assert time.monotonic() - began < 2
    assert answer["waited_ms"] >= 0


async def test_who_does_not_wait_is_not_kept_waiting_by_those_who_do(served: Served) -> None:
    waiting = asyncio.create_task(served.lease(request_id="patient", wait_ms=15_000))
    await served.somebody_waits()
    began = time.monotonic()
    assert (await served.lease(request_id="hasty"))["leases"] == []
    assert time.monotonic() - began < 2
    waiting.cancel()


async def test_a_long_poll_is_no_longer_than_was_asked_for(served: Served) -> None:
    began = time.monotonic()
    answer = await served.lease(wait_ms=200)
    assert 0.15 < time.monotonic() - began < 5
    assert answer == {"leases": [], "next_ready_in_ms": None, "no_work": "waiting", "waited_ms": answer["waited_ms"]}


async def test_a_wait_longer_than_a_minute_is_refused(served: Served) -> None:
    answer = await served.ask("POST", "/v1/lease", {"worker": "w", "request_id": "r", "slots": 1, "wait_ms": 60_001})
    assert (answer.status, answer.json["at"]) == (422, "$.wait_ms")


async def test_a_stopping_service_asks_waiters_to_come_again(port: Port, tmp_path: Path) -> None:
    async with port.serving(tmp_path) as served:
        await served.crawl()
        body = {"worker": "w", "request_id": "r", "slots": 1, "wait_ms": 15_000}
        waiting = asyncio.create_task(served.ask("POST", "/v1/crawls/news/lease", body))
        await served.somebody_waits()
        served.service.stop()
        answer = await asyncio.wait_for(waiting, 5)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.json["type"] == "urn:outrider:problem:store-unavailable"


async def test_a_client_that_goes_away_leaves_nobody_waiting(served: Served) -> None:
    waiting = asyncio.create_task(served.lease(wait_ms=15_000))
    await served.somebody_waits()
    waiting.cancel()
    await served.somebody_waits(is_so=False)
    metrics = (await served.ask("GET", "/metrics")).text
    assert 'outrider_requests_total{endpoint="lease",status="499"} 1.0' in metrics.splitlines()


async def test_the_scope_is_widened_by_seeds_and_by_hand(served: Served) -> None:
    await served.add("http://a.example/x", discovery_type="seed")
    await served.add("http://b.example/x")
    await served.ask("POST", "/v1/crawls/news/scope", {"roots": ["http://c.example"]})
    answer = await served.ask("GET", "/v1/crawls/news/scope")
    assert answer.json == {"roots": ["http://a.example/x", "http://c.example/"]}


async def test_robots_are_read_by_domain(served: Served) -> None:
    await served.crawl("polite", robots=True)
    assert (await served.ask("GET", "/v1/domains/a.example/robots")).json == {"version": None, "text": None}
    await served.add("http://a.example/", crawl="polite")
    (lease,) = (await served.lease("polite"))["leases"]
    assert lease["kind"] == "robots"
    report = {"token": lease["token"], **DONE, "robots": {"text": "User-agent: *", "expires_in_ms": 60_000}}
    await served.ask("POST", "/v1/report", {"reports": [report]})
    answer = (await served.ask("GET", "/v1/domains/A.example/robots")).json
    assert answer["text"] == "User-agent: *"
    (page,) = (await served.lease("polite", request_id="r2"))["leases"]
    assert page["robots_version"] == answer["version"]
