"""What the API says of itself: whatever is sent, it answers as described, and never with a mistake of its own."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from outrider.service.http.openapi import description
from outrider.service.http.routes import ENDPOINTS
from tests.service.serving import served_by_a_thread

CRAWL = "news"
LONGEST_WAIT_MS = 5
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance,
]  # fmt: skip
API = schemathesis.openapi.from_dict(description(ENDPOINTS))
OPERATIONS = {f"{each.method} {each.path}": API[each.path][each.method] for each in ENDPOINTS}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_by_a_thread(tmp_path_factory.mktemp("described")) as server:
        yield server.base_url


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as opened:
        opened.trust_env = False
        yield opened


@schemathesis.serializer("application/x-ndjson")
def as_lines(_context: Any, value: Any) -> bytes:
    """Send a text as it is, and anything else as a line of JSON."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else msgspec.json.encode(value)


def fill(base_url: str, session: requests.Session) -> None:
    """Have a crawl with something to lease and something that is leased."""
    there = f"{base_url}/v1/crawls/{CRAWL}"
    session.put(there, json={"limits": {"delay_ms": 0, "robots": False}}).raise_for_status()
    items: list[Any] = [{"url": f"http://a.example/{number}", "metadata": {"a": [1]}} for number in range(3)]
    session.post(f"{there}/discovered", json={"items": items}).raise_for_status()
    session.post(f"{there}/lease", json={"worker": "w", "request_id": "r", "slots": 1}).raise_for_status()


def adapted(case: Case[Any], *, names_what_is_there: bool) -> Case[Any]:
    """Have the case name what the store has, and wait for nothing long."""
    if names_what_is_there and "crawl" in case.path_parameters:
        case.path_parameters["crawl"] = CRAWL
    if isinstance(case.body, dict) and isinstance(wait := case.body.get("wait_ms"), int):
        case.body["wait_ms"] = min(wait, LONGEST_WAIT_MS)
    return case


def check(operation: str, address: str, session: requests.Session, examples: int, *, is_random: bool = False) -> None:
    strategies = [OPERATIONS[operation].as_strategy(mode) for mode in GenerationMode]

    @given(case=st.one_of(strategies), names_what_is_there=st.booleans())
    @settings(
        max_examples=examples,
        derandomize=not is_random,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    def try_it(case: Case[Any], names_what_is_there: bool) -> None:
        ready = adapted(case, names_what_is_there=names_what_is_there)
        ready.call_and_validate(base_url=address, session=session, checks=CHECKS, timeout=20)

    fill(address, session)
    try_it()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_answers_are_as_described(operation: str, address: str, session: requests.Session) -> None:
    check(operation, address, session, examples=12)


@pytest.mark.soak
@pytest.mark.parametrize("operation", OPERATIONS)
def test_answers_are_as_described_for_long(operation: str, address: str, session: requests.Session) -> None:
    check(operation, address, session, examples=1_000, is_random=True)
