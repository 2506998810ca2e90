"""API keys: what each role may, what a key is bound to, and what is never told."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from outrider.model.api_key import Role
from outrider.service import keys
from outrider.service.http.routes import ENDPOINTS
from outrider.service.keys import Rates, create_key
from outrider.service.problems import RateExceeded
from tests.service.serving import Port, Served, open_port

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


@pytest.fixture(autouse=True)
def _nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "FRESH_S", 0.0)


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.iterdir()]


async def bearer(served: Served, role: Role, *crawls: str) -> dict[str, str]:
    made = await create_key(served.service.backend.stores.control, f"a {role} key", role, crawls)
    return {"authorization": f"Bearer {made.text}"}


async def test_without_any_key_this_machine_may_do_everything(served: Served) -> None:
    assert (await served.ask("DELETE", "/v1/crawls/news")).status == 200


async def test_a_page_in_a_browser_cannot_have_its_own_name_point_here(served: Served) -> None:
    answer = await served.ask("GET", "/v1/crawls", headers={"host": "evil.example:7071"})
    assert (answer.status, answer.json["type"]) == (403, "urn:outrider:problem:forbidden")


async def test_once_there_is_a_key_everybody_needs_one(served: Served) -> None:
    await bearer(served, Role.READ)
    answer = await served.ask("GET", "/v1/crawls")
    assert (answer.status, answer.json["type"]) == (401, "urn:outrider:problem:unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_service_that_others_can_reach_needs_a_key_even_where_there_is_none(port: Port, tmp_path: Path) -> None:
    async with port.serving(tmp_path, only_local=False) as served:
        assert (await served.ask("GET", "/v1/crawls")).status == 401


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer x", "Basic dXNlcjpwYXNz", f"Bearer outrider_{'0' * 16}_{'x' * 43}", "Bearer " + "x" * 8_000],
)
async def test_what_is_no_key_opens_nothing(served: Served, authorization: str) -> None:
    await bearer(served, Role.ADMIN)
    answer = await served.ask("GET", "/v1/crawls", headers={"authorization": authorization})
    assert answer.status == 401


async def test_a_key_with_another_secret_opens_nothing(served: Served) -> None:
    headers = await bearer(served, Role.ADMIN)
    changed = headers["authorization"][:-1] + ("a" if headers["authorization"][-1] != "a" else "b")
    assert (await served.ask("GET", "/v1/crawls", headers={"authorization": changed})).status == 401


@pytest.mark.parametrize(
    ("role", "expected"),
    [(Role.READ, (200, 403, 403)), (Role.CRAWL, (200, 200, 403)), (Role.ADMIN, (200, 200, 200))],
)
async def test_each_role_may_what_those_before_it_may(
    served: Served, role: Role, expected: tuple[int, int, int]
) -> None:
    headers = await bearer(served, role)
    statuses = (
        (await served.ask("GET", "/v1/crawls/news", headers=headers)).status,
        (await served.ask("PUT", "/v1/crawls/other", {}, headers=headers)).status,
        (await served.ask("DELETE", "/v1/crawls/news", headers=headers)).status,
    )
    assert statuses == expected


async def test_all_that_deletes_needs_admin_and_all_that_changes_more_than_read() -> None:
    for endpoint in ENDPOINTS:
        if endpoint.method == "DELETE":
            assert endpoint.role is Role.ADMIN, endpoint.path
        elif endpoint.method != "GET":
            assert endpoint.role in (Role.CRAWL, Role.ADMIN), endpoint.path
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.role is None} == {"/healthz", "/readyz"}


async def test_a_bound_key_sees_its_crawls_only(served: Served) -> None:
    await served.crawl("sports")
    headers = await bearer(served, Role.ADMIN, "news")
    listed = await served.ask("GET", "/v1/crawls", headers=headers)
    assert [crawl["name"] for crawl in listed.json["crawls"]] == ["news"]
    assert (await served.ask("GET", "/v1/crawls/news", headers=headers)).status == 200
    assert (await served.ask("GET", "/v1/crawls/sports", headers=headers)).status == 403
    body = {"worker": "w", "request_id": "r", "slots": 1}
    assert (await served.ask("POST", "/v1/lease", body, headers=headers)).status == 403
    assert (await served.ask("POST", "/v1/crawls/news/lease", body, headers=headers)).status == 200
    assert (await served.ask("PUT", "/v1/domains/a.example/gate", {}, headers=headers)).status == 403


async def test_a_revoked_key_opens_nothing_and_leaves_no_open_door(served: Served) -> None:
    control = served.service.backend.stores.control
    made = await create_key(control, "gone", Role.ADMIN)
    headers = {"authorization": f"Bearer {made.text}"}
    assert (await served.ask("GET", "/v1/crawls", headers=headers)).status == 200
    await control.revoke_key(made.key_id)
    assert (await served.ask("GET", "/v1/crawls", headers=headers)).status == 401
    assert (await served.ask("GET", "/v1/crawls")).status == 401


async def test_only_a_digest_of_a_key_is_kept(served: Served, tmp_path: Path) -> None:
    made = await create_key(served.service.backend.stores.control, "mine", Role.READ)
    secret = made.text.rpartition("_")[2]
    assert not any(secret[:20].encode() in kept for kept in contents(tmp_path))


async def test_a_key_is_in_no_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    headers = await bearer(served, Role.READ)
    with caplog.at_level(logging.DEBUG):
        await served.ask("GET", "/v1/crawls", headers=headers)
        await served.ask("DELETE", "/v1/crawls/news", headers=headers)
        await served.ask("GET", "/v1/crawls", headers={"authorization": headers["authorization"][:-1]})
    assert headers["authorization"].rpartition("_")[2][:20] not in caplog.text


async def test_a_key_that_asks_too_often_is_told_when_to_come_again(port: Port, tmp_path: Path) -> None:
    async with port.serving(tmp_path, rate=1) as served:
        headers = await bearer(served, Role.READ)
        other = await bearer(served, Role.READ)
        assert (await served.ask("GET", "/v1/crawls", headers=headers)).status == 200
        answer = await served.ask("GET", "/v1/crawls", headers=headers)
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert answer.json["type"] == "urn:outrider:problem:rate-exceeded"
        assert (await served.ask("GET", "/v1/crawls", headers=other)).status == 200


async def test_a_rate_is_given_back_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("outrider.service.keys.time.monotonic", lambda: now)
    rates = Rates(2)
    rates.take("a")
    rates.take("a")
    with pytest.raises(RateExceeded) as refused:
        rates.take("a")
    assert refused.value.retry_after_s == 0.5
    now = 0.5
    rates.take("a")
    with pytest.raises(RateExceeded):
        rates.take("a")
