"""Every error over HTTP is a problem of RFC 9457, and the client makes the same error of it again."""

import asyncio
import importlib
import json
import pkgutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import outrider
from outrider.model.errors import CrawlConflict, OutriderError, StoreFull, StoreUnavailable, UnknownCrawl
from outrider.model.quota import Quota, QuotaExceeded
from outrider.service import problems
from outrider.service.http.routes import ENDPOINTS
from tests.service.serving import Answer, Port, Served, open_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

ELSEWHERE = ("outrider.crawler.", "outrider.control.webhooks", "outrider.service.server", "outrider.service.grpc.")
"""Rooms whose errors never come to an endpoint."""
JSON = {"content-type": "application/json"}
DEEP = '{"items": [{"url": "http://a.example/", "metadata": {"a": ' + "[" * 1_500


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[Port]:
    async with open_port() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def served(port: Port, tmp_path: Path) -> AsyncIterator[Served]:
    async with port.serving(tmp_path, max_body_bytes=2_000) as running:
        await running.crawl()
        yield running


def assert_is_problem(answer: Answer, status: int, word: str) -> None:
    assert answer.status == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["type"] == f"urn:outrider:problem:{word}"
    assert answer.json["status"] == status
    assert answer.json["title"]
    assert answer.json["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "word"),
    [
        ("GET", "/nowhere", None, {}, 404, "not-found"),
        ("GET", "/v1/crawls/none", None, {}, 404, "unknown-crawl"),
        ("DELETE", "/v1/crawls", None, {}, 405, "method-not-allowed"),
        ("POST", "/v1/lease", "{", JSON, 400, "bad-request"),
        ("POST", "/v1/crawls/news/discovered", DEEP, JSON, 400, "bad-request"),
        ("POST", "/v1/lease", b"\xff", JSON, 400, "bad-request"),
        ("POST", "/v1/lease", "{}", {"content-type": "text/plain"}, 415, "unsupported-media-type"),
        ("POST", "/v1/lease", "{}", {**JSON, "content-encoding": "gzip"}, 415, "unsupported-media-type"),
        ("POST", "/v1/lease", "{}", JSON, 422, "invalid-input"),
        ("POST", "/v1/lease", '{"worker": "", "request_id": "r", "slots": 1}', JSON, 422, "invalid-input"),
        ("POST", "/v1/lease", " " * 2_001, JSON, 413, "limit-exceeded"),
        ("PUT", "/v1/crawls/news", '{"rules": {"key_rule": "host"}}', JSON, 409, "crawl-conflict"),
        ("PUT", "/v1/crawls/news", '{"limits": {"delay_ms": -1}}', JSON, 422, "invalid-input"),
        ("PUT", f"/v1/crawls/{'n' * 300}", "{}", JSON, 422, "invalid-input"),
        ("GET", "/v1/crawls/news/urls/explain", None, {}, 422, "invalid-input"),
        ("GET", "/v1/domains/%20/robots", None, {}, 422, "url-refused"),
    ],
)
async def test_what_is_wrong_is_told_as_a_problem(
    served: Served, method: str, path: str, body: Any, headers: dict[str, str], status: int, word: str
) -> None:
    assert_is_problem(await served.ask(method, path, data=body, headers=headers), status, word)


async def test_a_wrong_value_is_told_with_its_place(served: Served) -> None:
    answer = await served.ask(
        "POST", "/v1/crawls/news/discovered", {"items": [{"url": "http://a.example/"}, {"url": 3}]}
    )
    assert_is_problem(answer, 422, "invalid-input")
    assert answer.json["at"] == "$.items[1].url"


async def test_a_method_that_is_not_taken_is_told_with_those_that_are(served: Served) -> None:
    answer = await served.ask("PATCH", "/v1/crawls/news")
    assert_is_problem(answer, 405, "method-not-allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "PUT", "DELETE"}


async def test_a_body_that_does_not_tell_its_length_is_cut_off_at_the_limit(served: Served) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 500
            await asyncio.sleep(0)

    answer = await served.ask("POST", "/v1/lease", data=endless(), headers=JSON)
    assert_is_problem(answer, 413, "limit-exceeded")


async def test_a_store_that_is_out_of_reach_is_503_with_a_time_to_come_again(port: Port, tmp_path: Path) -> None:
    async with port.serving(tmp_path) as served:
        original = served.service.backend.stores.urls.list_crawls

        async def unavailable() -> Any:
            raise StoreUnavailable("gone")

        served.service.backend.stores.urls.list_crawls = unavailable  # type: ignore[method-assign]
        try:
            answer = await served.ask("GET", "/readyz")
            assert_is_problem(answer, 503, "store-unavailable")
            assert answer.headers["retry-after"] == "1"
            assert (await served.ask("GET", "/healthz")).status == 200
        finally:
            served.service.backend.stores.urls.list_crawls = original  # type: ignore[method-assign]


async def test_headers_that_are_too_long_are_told_as_a_problem(served: Served) -> None:
    answer = await served.ask("GET", "/healthz", headers={"x-long": "x" * 13_000})
    assert_is_problem(answer, 431, "headers-too-large")


async def test_head_is_answered_as_get_without_a_body(served: Served) -> None:
    for path in ("/healthz", "/openapi.json", "/v1/crawls"):
        answer = await served.ask("HEAD", path)
        assert (answer.status, answer.text) == (200, "")


def every_error(tree: type[OutriderError]) -> set[type[OutriderError]]:
    return {tree}.union(*(every_error(child) for child in tree.__subclasses__()))


async def test_every_error_of_outrider_has_a_problem_of_its_own() -> None:
    for module in pkgutil.walk_packages(outrider.__path__, "outrider."):
        if ".migrations." not in module.name and ".cli." not in module.name:
            importlib.import_module(module.name)
    missing = {
        error.__name__
        for error in every_error(OutriderError)
        if error.__module__.startswith("outrider.") and problems.KINDS.get(error) is None
    }
    missing -= {error.__name__ for error in every_error(OutriderError) if error.__module__.startswith(ELSEWHERE)}
    # The one is told by the error that it is a kind of, the other never leaves the store.
    assert missing == {"BodyRefused", "RowTaken"}
    words = [kind.word for kind in problems.KINDS.values()]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("kind", list(problems.KINDS), ids=lambda kind: kind.__name__)
async def test_the_client_makes_the_same_error_of_a_problem(kind: type[OutriderError]) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "the reason")
    if isinstance(error, UnknownCrawl):
        error = UnknownCrawl("news")
    elif isinstance(error, QuotaExceeded):
        error = QuotaExceeded(Quota.JOBS_PER_DAY, 7, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    problem = problems.problem_of(error)
    again = problems.error_of(problem.status, problems.encoded(problem))
    assert type(again) is kind
    if problem.status < 500:
        assert str(again) == str(error)


async def test_what_is_no_problem_becomes_an_error_all_the_same() -> None:
    assert type(problems.error_of(502, b"<html>Bad gateway")) is StoreUnavailable
    assert type(problems.error_of(404, b"\xff")) is OutriderError
    assert type(problems.error_of(409, b'{"type": "urn:outrider:problem:crawl-conflict"}')) is CrawlConflict


async def test_what_a_store_says_of_itself_is_not_told_to_clients() -> None:
    problem = problems.problem_of(StoreFull("no room on /var/secret/path"))
    assert "secret" not in problems.encoded(problem).decode()


async def test_the_description_names_every_endpoint_and_resolves(served: Served) -> None:
    api = (await served.ask("GET", "/openapi.json")).json
    described = {(method.upper(), path) for path, methods in api["paths"].items() for method in methods}
    assert described == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    names = [operation["operationId"] for methods in api["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))
    text = json.dumps(api)
    referenced = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert referenced <= api["components"]["schemas"].keys()


async def test_the_page_for_people_needs_nothing_from_elsewhere(served: Served) -> None:
    answer = await served.ask("GET", "/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "/v1/crawls/{crawl}/lease" in answer.text
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    assert "<script" not in answer.text
