"""Orders that cannot be placed: each is refused with the field, and what is wrong with it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from outrider.control.orders import MOST_SEEDS
from tests.service.job_serving import SEED, submit, submitted
from tests.service.serving import Port, Served, open_port

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[Port]:
    async with open_port() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(port: Port, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder: Path = tmp_path_factory.mktemp("refused")
    async with port.serving(folder) as running:
        yield running


@pytest.mark.parametrize(
    ("body", "word", "at", "detail"),
    [
        ({"seeds": []}, "order-refused", "$.seeds", "at least one"),
        ({"seeds": [SEED, "ftp://a.example/"]}, "order-refused", "$.seeds[1]", "ftp://a.example/"),
        ({"seeds": ["mailto:x@a.example"]}, "order-refused", "$.seeds[0]", "mailto"),
        ({"seeds": [""]}, "order-refused", "$.seeds[0]", ""),
        ({"seeds": ["https://a.example/" + "x" * 9_000]}, "order-refused", "$.seeds[0]", "8192"),
        ({"seeds": ["http://127.0.0.1/"]}, "order-refused", "$.seeds[0]", "loopback"),
        ({"seeds": ["http://0x7f.1:8080/"]}, "order-refused", "$.seeds[0]", "loopback"),
        ({"seeds": [SEED, "http://[::1]/"]}, "order-refused", "$.seeds[1]", "loopback"),
        ({"seeds": ["http://LOCALHOST/"]}, "order-refused", "$.seeds[0]", "loopback"),
        ({"seeds": ["http://169.254.169.254/latest"]}, "order-refused", "$.seeds[0]", "metadata"),
        ({"seeds": [SEED] * (MOST_SEEDS + 1)}, "order-refused", "$.seeds", "allowed are"),
        ({"seeds": SEED}, "invalid-input", "$.seeds", "Expected `array`"),
        ({"seeds": [SEED, 3]}, "invalid-input", "$.seeds[1]", "Expected `str`"),
        ({"seeds": [SEED], "colour": "red"}, "invalid-input", "$", "colour"),
        ({"seeds": [SEED], "strategy": "greedy"}, "invalid-input", "$.strategy", "greedy"),
        ({"seeds": [SEED], "scope": "planet"}, "invalid-input", "$.scope", "planet"),
        ({"seeds": [SEED], "include": ["("]}, "order-refused", "$.include[0]", "regular expression"),
        ({"seeds": [SEED], "exclude": ["a", "(?=b)c"]}, "order-refused", "$.exclude[1]", "RE2"),
        ({"seeds": [SEED], "exclude": ["(([a-z])+)+!{,3}"]}, "order-refused", "$.exclude[0]", "RE2"),
        ({"seeds": [SEED], "include": ["x" * 1_001]}, "order-refused", "$.include[0]", "1000"),
        ({"seeds": [SEED], "include": ["x"] * 101}, "order-refused", "$.include", "100"),
        ({"seeds": [SEED], "max_pages": 0}, "order-refused", "$.max_pages", "from 1 to"),
        ({"seeds": [SEED], "max_pages": 2**40}, "order-refused", "$.max_pages", "2,147,483,647"),
        ({"seeds": [SEED], "max_pages": "many"}, "invalid-input", "$.max_pages", "Expected `int | null`"),
        ({"seeds": [SEED], "max_depth": -1}, "order-refused", "$.max_depth", "from 0"),
        ({"seeds": [SEED], "delay": -0.1}, "order-refused", "$.delay", "from 0"),
        ({"seeds": [SEED], "timeout": 0}, "order-refused", "$.timeout", "0.001"),
        ({"seeds": [SEED], "max_body": 10}, "order-refused", "$.max_body", "1,024"),
        ({"seeds": [SEED], "concurrency": 0}, "order-refused", "$.concurrency", "from 1"),
        ({"seeds": [SEED], "user_agent": "two\nlines"}, "order-refused", "$.user_agent", "printable"),
        ({"seeds": [SEED], "labels": {"a=b": "c"}}, "order-refused", "$.labels", "without ="),
        ({"seeds": [SEED], "labels": {"a": "x" * 300}}, "order-refused", "$.labels.a", "255"),
        ({"seeds": [SEED], "labels": {str(n): "x" for n in range(33)}}, "order-refused", "$.labels", "32"),
        ({"seeds": [SEED], "labels": {"a": 1}}, "invalid-input", "$.labels[...]", "Expected `str`"),
        ({"seeds": [SEED], "crawl": ""}, "invalid-input", "$.crawl", "length"),
        ({"seeds": [SEED], "priority": 1.5}, "invalid-input", "$.priority", "int"),
        ({"seeds": [SEED], "priority": 2**40}, "invalid-input", None, "priority"),
        ({"seeds": [SEED], "max_retries": -1}, "invalid-input", None, "max_retries"),
        ({"seeds": [SEED], "webhook_url": "ftp://hooks.example/"}, "order-refused", "$.webhook_url", "ftp"),
        ({"seeds": [SEED], "webhook_url": "http://10.0.0.1/"}, "order-refused", "$.webhook_url", "private"),
        ({"seeds": [SEED], "webhook_url": "https://me:pw@hooks.example/"}, "order-refused", "$.webhook_url", "user"),
        ({"seeds": [SEED], "webhook_secret": "x" * 20}, "order-refused", "$.webhook_secret", "no webhook_url"),
        (
            {"seeds": [SEED], "webhook_url": "https://hooks.example/", "webhook_secret": "short"},
            "order-refused",
            "$.webhook_secret",
            "16 to",
        ),
        ({}, "invalid-input", "$", "seeds"),
    ],
)
async def test_an_order_that_makes_no_sense_is_refused_with_its_field(
    served: Served, body: dict[str, Any], word: str, at: str | None, detail: str
) -> None:
    answer = await served.ask("POST", "/v1/jobs", body)
    assert (answer.status, answer.json["type"]) == (422, f"urn:outrider:problem:{word}"), answer.text
    assert answer.json.get("at") == at
    assert detail in answer.json["detail"]


async def test_nothing_of_what_was_refused_is_there(served: Served) -> None:
    await submit(served, seeds=["ftp://a.example/"], crawl="refused")
    assert (await served.ask("GET", "/v1/jobs?crawl=refused")).json["jobs"] == []


@pytest.mark.parametrize("key", ["", "x" * 300])
async def test_an_idempotency_key_has_a_length(served: Served, key: str) -> None:
    answer = await submit(served, {"idempotency-key": key})
    assert (answer.status, "idempotency_key" in answer.json["detail"]) == (422, True)


@pytest.mark.parametrize(
    "query",
    ["status=odd", "sort=odd", "limit=0", "limit=1001", "cursor=odd", "label=odd", "colour=red", "cursor=newest.0.x"],
)
async def test_a_listing_that_makes_no_sense_is_refused(served: Served, query: str) -> None:
    answer = await served.ask("GET", f"/v1/jobs?{query}")
    assert (answer.status, answer.json["type"]) == (422, "urn:outrider:problem:invalid-input")


async def test_a_cursor_is_for_the_order_that_it_came_from(served: Served) -> None:
    for _ in range(2):
        await submitted(served)
    cursor = (await served.ask("GET", "/v1/jobs?limit=1")).json["next_cursor"]
    assert (await served.ask("GET", f"/v1/jobs?limit=1&sort=priority&cursor={cursor}")).status == 422


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "say what to change"),
        ({"max_pages": 0}, "max_pages"),
        ({"delay": -1}, "delay"),
        ({"delay": None}, "Expected `float`"),
        ({"seeds": [SEED]}, "seeds"),
        ({"priority": "high"}, "Expected `int`"),
        ({"priority": 2**40}, "priority"),
    ],
)
async def test_a_change_that_makes_no_sense_is_refused(served: Served, body: dict[str, Any], detail: str) -> None:
    job_id = await submitted(served)
    answer = await served.ask("PATCH", f"/v1/jobs/{job_id}", body)
    assert (answer.status, detail in answer.json["detail"]) == (422, True), answer.text


@pytest.mark.parametrize(
    ("header", "status"),
    [("x", 422), ("-1", 422), ("9" * 30, 422), ("0" * 20 + "9" * 5_000, 422), ("²", 422), ("", 200)],
)
async def test_a_last_event_id_is_one_of_ours(served: Served, header: str, status: int) -> None:
    job_id = await submitted(served)
    await served.ask("POST", f"/v1/jobs/{job_id}/cancel")
    answer = await served.ask("GET", f"/v1/jobs/{job_id}/events", headers={"last-event-id": header})
    assert answer.status == status


@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=0", "colour=red"])
async def test_results_that_make_no_sense_are_refused(served: Served, query: str) -> None:
    job_id = await submitted(served)
    assert (await served.ask("GET", f"/v1/jobs/{job_id}/results?{query}")).status == 422
