"""What operators ask over HTTP: crawls, queues, URLs."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio

from tests.service.serving import Port, Served, open_port

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[Port]:
    async with open_port() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def served(port: Port, tmp_path: Path) -> AsyncIterator[Served]:
    async with port.serving(tmp_path) as running:
        yield running


async def test_a_crawl_is_created_found_and_changed_by_put(served: Served) -> None:
    body = {"rules": {"key_rule": "host"}, "limits": {"max_pages": 10, "delay_ms": 5}}
    for _ in range(2):
        answer = await served.ask("PUT", "/v1/crawls/news", body)
        assert (answer.status, answer.json["rules"]["key_rule"], answer.json["limits"]["max_pages"]) == (
            200,
            "host",
            10,
        )
    answer = await served.ask("PUT", "/v1/crawls/news", {"rules": {"key_rule": "host"}})
    assert answer.json["limits"]["max_pages"] == 10
    conflict = await served.ask("PUT", "/v1/crawls/news", {})
    assert (conflict.status, conflict.json["type"]) == (409, "urn:outrider:problem:crawl-conflict")
    assert [crawl["name"] for crawl in (await served.ask("GET", "/v1/crawls")).json["crawls"]] == ["news"]


async def test_a_raised_depth_lets_in_what_was_left_over(served: Served) -> None:
    await served.crawl(max_depth=0)
    await served.add("http://a.example/", depth=1)
    assert (await served.ask("GET", "/v1/crawls/news")).json["outlook"]["counts"]["discovered"] == 1
    await served.crawl(max_depth=1)
    assert (await served.ask("GET", "/v1/crawls/news")).json["counts"]["page"]["pending"] == 1


@pytest.mark.parametrize("name", ["a/b", "ünï", "..", "a b?c#d", "%2F"])
async def test_any_name_can_be_asked_for(served: Served, name: str) -> None:
    path = "/v1/crawls/" + quote(name, safe="").replace(".", "%2E")
    assert (await served.ask("PUT", path, {})).json["name"] == name
    assert (await served.ask("GET", path)).json["name"] == name


async def test_a_paused_crawl_hands_out_nothing_until_it_is_resumed(served: Served) -> None:
    await served.crawl()
    await served.add("http://a.example/")
    answer = await served.ask("PUT", "/v1/crawls/news/state", {"state": "paused"})
    assert answer.json["state"] == "paused"
    assert (await served.lease())["no_work"] == "paused"
    await served.ask("PUT", "/v1/crawls/news/state", {"state": "running"})
    assert len((await served.lease(request_id="r2"))["leases"]) == 1


async def test_a_queue_is_set_before_its_first_url_and_deleted_with_its_urls(served: Served) -> None:
    await served.crawl()
    path = "/v1/crawls/news/queues/a%2Fkey"
    await served.ask("PUT", path, {"delay_ms": 7, "blocked_for_ms": 60_000, "page_limit": 3, "priority": 9})
    await served.add("http://a.example/1", "http://a.example/2", key="a/key")
    (queue,) = (await served.ask("GET", "/v1/crawls/news/queues")).json["queues"]
    settings = queue["settings"]
    assert (queue["key"], settings["delay_ms"], settings["page_limit"], settings["priority"]) == ("a/key", 7, 3, 9)
    assert 50_000 < settings["blocked_for_ms"] <= 60_000
    assert (await served.lease())["leases"] == []
    assert (await served.ask("DELETE", path)).json == {"removed": 2}
    assert (await served.ask("GET", "/v1/crawls/news/queues")).json["queues"] == []


async def test_queues_are_listed_page_by_page(served: Served) -> None:
    await served.crawl()
    await served.add(*(f"http://{letter}.example/" for letter in "abc"))
    first = (await served.ask("GET", "/v1/crawls/news/queues?limit=2")).json
    rest = (await served.ask("GET", f"/v1/crawls/news/queues?limit=2&after={first['next_after']}")).json
    keys = [queue["key"] for queue in first["queues"] + rest["queues"]]
    assert (keys, rest["next_after"]) == (["a.example", "b.example", "c.example"], None)


async def test_a_gate_binds_all_crawls(served: Served) -> None:
    await served.crawl()
    await served.ask("PUT", "/v1/domains/a.example/gate", {"blocked_for_ms": 60_000})
    await served.add("http://a.example/")
    assert (await served.lease())["leases"] == []
    await served.ask("PUT", "/v1/domains/a.example/gate", {"blocked_for_ms": 0})
    assert len((await served.lease(request_id="r2"))["leases"]) == 1


async def test_a_deleted_crawl_is_gone(served: Served) -> None:
    await served.crawl()
    await served.add("http://a.example/")
    assert (await served.ask("DELETE", "/v1/crawls/news")).json == {"removed": 1}
    assert (await served.ask("GET", "/v1/crawls/news")).status == 404


async def test_urls_are_filtered_and_paged_by_cursor(served: Served) -> None:
    await served.crawl()
    await served.add(*(f"http://a.example/{number}" for number in range(10)), "http://b.example/7")
    seen, path = [], "/v1/crawls/news/urls?limit=4"
    cursor = ""
    while True:
        page = (await served.ask("GET", path + cursor)).json
        seen += [each["url"] for each in page["urls"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert len(seen) == len(set(seen)) == 11

    async def urls(query: str) -> list[str]:
        return sorted(each["url"] for each in (await served.ask("GET", f"/v1/crawls/news/urls?{query}")).json["urls"])

    assert await urls("key=b.example") == ["http://b.example/7"]
    assert await urls("text=%2F7") == ["http://a.example/7", "http://b.example/7"]
    assert await urls("pattern=a.*%2F%5B34%5D%24") == ["http://a.example/3", "http://a.example/4"]
    assert await urls("pattern=%2F9%24&limit=1") == ["http://a.example/9"]
    assert await urls("state=completed") == []
    assert await urls("kind=sitemap") == []


@pytest.mark.parametrize(
    "query", ["pattern=(", "pattern=%5C1(a)", "limit=0", "limit=x", "state=odd", "cursor=odd", "colour=red"]
)
async def test_a_query_that_makes_no_sense_is_refused(served: Served, query: str) -> None:
    await served.crawl()
    answer = await served.ask("GET", f"/v1/crawls/news/urls?{query}")
    assert (answer.status, answer.json["status"]) == (422, 422)
    streamed = await served.ask("GET", f"/v1/crawls/news/urls?stream=1&{query}")
    assert streamed.status == 422


async def test_a_url_is_explained_from_all_that_is_known_of_it(served: Served) -> None:
    await served.crawl()
    await served.add("http://a.example/")
    (lease,) = (await served.lease())["leases"]
    report = {"token": lease["token"], "outcome": "failed", "reason": "timeout"}
    await served.ask("POST", "/v1/report", {"reports": [report]})
    facts = (await served.ask("GET", "/v1/crawls/news/urls/explain?url=HTTP://A.example")).json
    assert (facts["url"], facts["task"]["state"], facts["task"]["reason"]) == (
        "http://a.example/",
        "pending",
        "timeout",
    )
    assert [artifact["outcome"] for artifact in facts["artifacts"]] == ["failed"]
    assert facts["gate"]["domain"] == "a.example"
    assert lease["token"] not in json.dumps(facts)
    assert (facts["verdict"], facts["detail"], facts["until"] > 0) == ("retry", "timeout", True)
    assert facts["answer"].startswith("waiting: to be tried again after timeout, not before ")
    told = {each["about"]: each["text"] for each in facts["story"]}
    assert (told["answer"], told["crawl"].startswith("news, running, begun ")) == (facts["answer"], True)
    unknown = (await served.ask("GET", "/v1/crawls/news/urls/explain?url=http://b.example/")).json
    assert (unknown["task"], unknown["artifacts"], unknown["verdict"]) == (None, [], "unknown")
    assert (await served.ask("GET", "/v1/crawls/news/urls/explain?url=mailto:x")).status == 422


async def test_what_was_fetched_is_listed_in_the_order_of_the_reports(served: Served) -> None:
    await served.crawl()
    await served.add(*(f"http://a.example/{number}" for number in range(5)))
    leases = (await served.lease())["leases"]
    for lease in leases:
        done = {"token": lease["token"], "outcome": "done", "fetch": {"http_status": 200, "title": lease["url"]}}
        await served.ask("POST", "/v1/report", {"reports": [done]})
    first = (await served.ask("GET", "/v1/crawls/news/artifacts?limit=3")).json
    rest = (await served.ask("GET", f"/v1/crawls/news/artifacts?limit=3&after={first['next_after']}")).json
    listed = first["artifacts"] + rest["artifacts"]
    assert [each["fetch"]["title"] for each in listed] == [lease["url"] for lease in leases]
    assert rest["next_after"] is None
    stream = await served.ask("GET", "/v1/crawls/news/artifacts?stream=1")
    assert [json.loads(line) for line in stream.text.splitlines()] == listed
    assert "token" not in stream.text
    assert (await served.ask("GET", "/v1/crawls/none/artifacts?stream=1")).status == 404


async def test_failed_urls_get_a_fresh_start(served: Served) -> None:
    await served.crawl()
    await served.add("http://a.example/")
    (lease,) = (await served.lease())["leases"]
    await served.ask("POST", "/v1/report", {"reports": [{"token": lease["token"], "outcome": "refused"}]})
    assert (await served.ask("POST", "/v1/crawls/news/retry-failed")).json == {"tasks": 1}
    assert len((await served.lease(request_id="r2"))["leases"]) == 1


async def test_metrics_count_without_labels_that_grow(served: Served) -> None:
    for number in range(5):
        name = f"crawl-{number}"
        await served.crawl(name)
        await served.add(f"http://host-{number}.example/", crawl=name)
    (lease,) = (await served.lease("crawl-0"))["leases"]
    done = {"token": lease["token"], "outcome": "done", "fetch": {"http_status": 200}}
    await served.ask("POST", "/v1/report", {"reports": [done]})
    await served.ask("GET", "/v1/crawls/nowhere")
    text = (await served.ask("GET", "/metrics")).text
    for line in (
        'outrider_added_total{outcome="new"} 5.0',
        "outrider_leased_total 1.0",
        'outrider_reported_total{verdict="completed"} 1.0',
        'outrider_tasks{state="pending"} 4.0',
        'outrider_tasks{state="completed"} 1.0',
        'outrider_crawls{state="running"} 5.0',
        'outrider_requests_total{endpoint="show_crawl",status="404"} 1.0',
        'outrider_request_seconds_count{endpoint="lease"} 1.0',
    ):
        assert line in text.splitlines()
    assert "outrider_ready_age_seconds" in text
    assert "host-" not in text
    assert "crawl-" not in text
