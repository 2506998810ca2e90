"""Export and import over HTTP: what goes out comes back as it was."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from outrider.cli.urls import task_record
from outrider.service import urlfrontier_pb2 as messages
from outrider.service.http.importing import read_line
from tests.service.serving import Answer, Port, Served, open_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

LINES = {"content-type": "application/x-ndjson"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[Port]:
    async with open_port() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def served(port: Port, tmp_path: Path) -> AsyncIterator[Served]:
    async with port.serving(tmp_path) as running:
        yield running


async def imported(served: Served, lines: str, crawl: str = "news") -> Answer:
    return await served.ask("POST", f"/v1/crawls/{crawl}/import", data=lines.encode(), headers=LINES)


async def exported(served: Served, crawl: str = "news") -> str:
    return (await served.ask("GET", f"/v1/crawls/{crawl}/urls", headers={"accept": LINES["content-type"]})).text


async def lead_a_life(served: Served) -> None:
    """Have URLs in every state but that of being fetched, with everything that can be said of one."""
    await served.crawl(max_depth=3)
    await served.add(*(f"http://a.example/{number}" for number in range(6)), priority=5, depth=2)
    await served.add("http://a.example/named", key="own", metadata={"note": ["é", 1], "deep": {"a": None}})
    await served.add("http://a.example/later", due_in_ms=86_400_000, discovery_type="sitemap", kind="sitemap")
    await served.add("http://a.example/never", due_in_ms=2**60)
    await served.add("http://a.example/deep", depth=9)
    leases = (await served.lease(slots=4))["leases"]
    reports: list[dict[str, Any]] = [
        {"outcome": "done", "fetch": {"http_status": 203}},
        {"outcome": "failed", "reason": "timeout: “é”"},
        {"outcome": "deferred", "reason": "http 429", "retry_after_ms": 60_000},
        {"outcome": "refused", "reason": "robots: line 2"},
    ]
    body = {"reports": [{"token": lease["token"], **each} for lease, each in zip(leases, reports, strict=True)]}
    answer = await served.ask("POST", "/v1/report", body)
    assert {each["verdict"] for each in answer.json["results"]} == {"completed", "retry_at", "failed"}


async def test_what_is_exported_and_imported_is_exported_the_same(served: Served) -> None:
    await lead_a_life(served)
    whole = await exported(served)
    states = {json.loads(line)["state"] for line in whole.splitlines()}
    assert states == {"completed", "pending", "failed", "discovered"}
    await served.crawl("copy", max_depth=3)
    answer = await imported(served, whole, "copy")
    assert (answer.json["new"], answer.json["refusals"]) == (10, [])
    assert await exported(served, "copy") == whole
    counts = [(await served.ask("GET", f"/v1/crawls/{name}")).json["counts"] for name in ("news", "copy")]
    assert counts[0] == counts[1]
    again = await imported(served, whole, "copy")
    assert (again.json["new"], again.json["known"]) == (0, 10)
    assert await exported(served, "copy") == whole


async def test_what_the_command_line_exports_is_imported_too(served: Served) -> None:
    await lead_a_life(served)
    page = await served.service.backend.stores.urls.list_tasks("news")
    lines = "\n".join(json.dumps(task_record(task), ensure_ascii=False) for task in page.tasks)
    await served.crawl("copy", max_depth=3)
    assert (await imported(served, lines, "copy")).json["new"] == 10
    assert await exported(served, "copy") == await exported(served)


async def test_what_was_being_fetched_is_pending_again_with_its_attempts(served: Served) -> None:
    await served.crawl()
    await served.add("http://a.example/")
    await served.lease()
    lines = await exported(served)
    await served.crawl("copy")
    await imported(served, lines, "copy")
    (task,) = (await served.ask("GET", "/v1/crawls/copy/urls")).json["urls"]
    assert (task["state"], task["attempts"]) == ("pending", 1)


async def test_an_imported_url_is_fetched_and_a_finished_one_is_not(served: Served) -> None:
    await served.crawl()
    lines = [
        {"url": "http://a.example/old", "due_at": "2001-01-01T00:00:00Z", "attempts": 2, "metadata": {"a": 1}},
        {"url": "http://a.example/done", "state": "completed", "status": 200},
        {"url": "http://a.example/failed", "state": "failed", "reason": "dns"},
        {"url": "http://a.example/later", "due_at": "2999-01-01T00:00:00Z"},
    ]
    await imported(served, "\n".join(map(json.dumps, lines)))
    (lease,) = (await served.lease())["leases"]
    assert (lease["url"], lease["attempt"], lease["metadata"]) == ("http://a.example/old", 3, {"a": 1})


async def test_a_dump_of_urlfrontier_keeps_metadata_dates_and_keys(served: Served) -> None:
    from google.protobuf.json_format import MessageToJson

    await served.crawl()
    kept = {"a": messages.StringList(values=["1", "2"]), "none": messages.StringList()}
    info = messages.URLInfo(url="http://a.example/k", key="q", crawlID="other", metadata=kept)
    known = messages.KnownURLItem(info=info, refetchable_from_date=4_102_444_800)
    items = [
        messages.URLItem(known=known, creation_date=1_000_000_000),
        messages.URLItem(known=messages.KnownURLItem(info=messages.URLInfo(url="http://a.example/done"))),
        messages.URLItem(discovered=messages.DiscoveredURLItem(info=messages.URLInfo(url="http://a.example/d"))),
    ]
    lines = "\n".join(MessageToJson(item, indent=None) for item in items)
    assert (await imported(served, lines)).json["new"] == 3
    tasks = {task["url"]: task for task in (await served.ask("GET", "/v1/crawls/news/urls")).json["urls"]}
    first = tasks["http://a.example/k"]
    assert (first["key"], first["metadata"]) == ("q", {"a": ["1", "2"], "none": []})
    assert (first["due_at"], first["discovered_at"]) == ("2100-01-01T00:00:00.000Z", "2001-09-09T01:46:40.000Z")
    assert [tasks[f"http://a.example/{name}"]["state"] for name in ("done", "d")] == ["completed", "pending"]


async def test_a_past_that_cannot_be_is_refused_for_its_line_alone(served: Served) -> None:
    await served.crawl()
    odd: list[tuple[dict[str, Any], str]] = [
        ({"status": 1_000}, "http_status 1000"), ({"attempts": -1}, "attempt_count -1"),
        ({"failures": 2**31}, "failures 2147483648"), ({"deferrals": -5}, "deferrals -5"), ({"reason": "\0"}, "reason"),
        ({"discovered_at": "yesterday"}, "'yesterday' is not a moment"), ({"due_at": "1969-12-31T00:00:00Z"}, "due_at"),
        ({"state": "odd"}, "$.state"), ({"metadata": [1]}, "$.metadata"), ({"status": "200"}, "$.status"),
        ({"reason": "x" * 10_001}, "reason"),
    ]  # fmt: skip
    lines = [json.dumps({"url": f"http://a.example/{number}", **each}) for number, (each, _) in enumerate(odd, 1)]
    answer = await imported(served, "\n".join([*lines, '{"url": "http://a.example/good"}']))
    assert (answer.json["new"], answer.json["rejected"]) == (1, len(odd))
    told = dict(refusal.split(": ", 1) for refusal in answer.json["refusals"])
    for number, (_, words) in enumerate(odd, 1):
        assert words in told[f"line {number}"]


async def test_a_line_is_read_to_the_millisecond() -> None:
    moments = {"2026-01-02T03:04:05.678Z": 1_767_323_045_678, "9999-12-31T23:59:59.999Z": 253_402_300_799_999}
    for text, moment in moments.items():
        assert read_line(json.dumps({"url": "http://a.example/", "due_at": text}).encode(), 0).due_at == moment


async def test_an_import_tells_which_lines_it_could_not_take(served: Served) -> None:
    await served.crawl()
    lines = [
        '{"url": "http://a.example/"}',
        "",
        "not json",
        '{"url": "ftp://a.example/"}',
        '{"known": {"info": {"url": "http://a.example/k", "key": "q"}, "refetchableFromDate": "4102444800"}}',
        '{"discovered": {"info": {"url": "http://a.example/d"}}}',
        '{"no": "url"}',
        '{"known": {"info": {"url": "http://a.example/done"}}}',
    ]
    headers = {"content-type": "application/x-ndjson"}
    answer = await served.ask("POST", "/v1/crawls/news/import", data="\n".join(lines), headers=headers)
    assert (answer.json["new"], answer.json["rejected"]) == (4, 3)
    assert [refusal.partition(":")[0] for refusal in answer.json["refusals"]] == ["line 3", "line 7", "line 4"]
    (known,) = (await served.ask("GET", "/v1/crawls/news/urls?key=q")).json["urls"]
    assert known["due_at"].startswith("2100-01-01")
    (done,) = (await served.ask("GET", "/v1/crawls/news/urls?state=completed")).json["urls"]
    assert done["url"] == "http://a.example/done"


async def test_an_import_changes_nothing_of_what_is_there(served: Served) -> None:
    await served.crawl()
    await served.add("http://a.example/", depth=1)
    line = '{"url": "http://a.example/", "state": "completed", "depth": 5}'
    headers = {"content-type": "application/x-ndjson"}
    answer = await served.ask("POST", "/v1/crawls/news/import", data=line, headers=headers)
    assert (answer.json["new"], answer.json["known"]) == (0, 1)
    (task,) = (await served.ask("GET", "/v1/crawls/news/urls")).json["urls"]
    assert (task["state"], task["depth"]) == ("pending", 1)
