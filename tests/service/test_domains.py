"""Domains over HTTP: looking at them, orders, claims, sums, and who may do what."""

import re
from typing import Any

import pytest

from outrider.model.api_key import Role
from outrider.model.domain import DomainChange, DomainSeed, UnknownDomain
from outrider.model.domain_view import DomainInUse, DomainSort
from outrider.model.errors import InvalidTransition
from outrider.model.machines import DomainStatus
from outrider.model.task import Discovered
from outrider.service import metrics
from outrider.service.domain_client import RemoteDomainDesk
from outrider.store.sql.control import domain_listing
from tests.service.job_serving import FREE, backend, bearer, dsn, port, served, stores_of
from tests.service.serving import Answer, Served

__all__ = ["backend", "dsn", "port", "served"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def remember(served: Served, *domains: str) -> None:
    await stores_of(served).control.remember_domains([DomainSeed(domain=domain) for domain in domains])


async def step(served: Served, domain: str, target: DomainStatus, **change: Any) -> None:
    control = stores_of(served).control
    found = await control.get_domain(domain)
    assert found is not None
    await control.transition_domain(
        domain, DomainChange(source=found.status, target=target, expected_version=found.version, **change)
    )


def problem(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["type"].removeprefix("urn:outrider:problem:")


async def test_domains_are_listed_by_status_and_page_by_page(served: Served) -> None:
    await remember(served, "a.example", "b.example", "c.example")
    await step(served, "b.example", DomainStatus.UNREACHABLE, block_reason_code="dns_failure")
    first = (await served.ask("GET", "/v1/domains?sort=name&limit=2")).json
    assert [each["domain"] for each in first["domains"]] == ["a.example", "b.example"]
    second = (await served.ask("GET", f"/v1/domains?sort=name&limit=2&cursor={first['next_cursor']}")).json
    assert ([each["domain"] for each in second["domains"]], second["next_cursor"]) == (["c.example"], None)
    away = (await served.ask("GET", "/v1/domains?status=unreachable")).json["domains"]
    assert [(each["domain"], each["block_reason_code"]) for each in away] == [("b.example", "dns_failure")]
    assert (await served.ask("GET", "/v1/domains/top")).json == {"domains": []}


@pytest.mark.parametrize("query", ["status=gone", "sort=age", "limit=0", "limit=1001", "cursor=x", "colour=red"])
async def test_a_wrong_query_is_refused(query: str, served: Served) -> None:
    answer = await served.ask("GET", f"/v1/domains?sort=priority&{query}".replace("sort=priority&sort", "sort"))
    assert problem(answer) == (422, "invalid-input")


async def test_a_domain_is_shown_by_any_spelling_with_its_gate_and_history(served: Served) -> None:
    await remember(served, "a.example")
    await step(served, "a.example", DomainStatus.UNREACHABLE, block_reason="gone", block_reason_code="dns_failure")
    shown = (await served.ask("GET", "/v1/domains/WWW.A.example")).json
    assert (shown["domain"]["domain"], shown["domain"]["status"]) == ("a.example", "unreachable")
    assert shown["gate"]["domain"] == "a.example"
    [taken] = shown["history"]
    assert (taken["from_status"], taken["to_status"], taken["reason"]) == ("pending", "unreachable", "gone")
    assert (await served.ask("GET", "/v1/domains/a.example/history")).json["history"] == [taken]
    after = await served.ask("GET", f"/v1/domains/a.example/history?after={taken['history_id']}")
    assert after.json == {"history": []}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None), ("GET", "/history", None), ("POST", "/reset", {}), ("POST", "/unblock", {}),
        ("POST", "/merge", {"into": "a.example"}),
    ],
)  # fmt: skip
async def test_what_is_not_known_is_a_problem_of_its_own(method: str, path: str, body: Any, served: Served) -> None:
    await remember(served, "a.example")
    answer = await served.ask(method, f"/v1/domains/b.example{path}", body)
    assert problem(answer) == (404, "unknown-domain")
    assert "b.example" in answer.json["detail"]


async def test_a_domain_is_blocked_unblocked_and_reset(served: Served) -> None:
    blocked = await served.ask("POST", "/v1/domains/a.example/block", {"reason": "they asked"})
    assert (blocked.json["block_reason"], blocked.json["block_reason_code"]) == ("they asked", "operator")
    freed = await served.ask("POST", "/v1/domains/a.example/unblock", {})
    assert freed.json["block_reason"] is None
    await step(served, "a.example", DomainStatus.UNREACHABLE)
    reset = await served.ask("POST", "/v1/domains/a.example/reset", {"reason": "is back"})
    assert reset.json["status"] == "pending"
    history = (await served.ask("GET", "/v1/domains/a.example/history")).json["history"]
    assert (history[-1]["reason"], history[-1]["to_status"]) == ("is back", "pending")
    await step(served, "a.example", DomainStatus.ACTIVE)
    assert problem(await served.ask("POST", "/v1/domains/a.example/reset", {})) == (409, "invalid-transition")


async def test_a_block_for_a_time_ends(served: Served) -> None:
    await served.crawl()
    await served.ask("POST", "/v1/domains/a.example/block", {"blocked_for_ms": 3_600_000})
    await served.add("https://a.example/")
    waiting = await served.lease()
    assert waiting["leases"] == []
    assert 3_500_000 < waiting["next_ready_in_ms"] <= 3_600_000


async def test_who_waits_for_work_gets_what_an_unblocked_domain_has(served: Served) -> None:
    await served.crawl()
    await served.ask("POST", "/v1/domains/a.example/block", {})
    await served.add("https://a.example/")
    assert (await served.lease())["leases"] == []
    await served.ask("POST", "/v1/domains/a.example/unblock", {})
    assert len((await served.lease(request_id="2"))["leases"]) == 1


async def test_claims_are_shown_and_released(served: Served) -> None:
    await remember(served, "a.example", "b.example", "c.example")
    control = stores_of(served).control
    claims = await control.claim_domains("one", 1) + await control.claim_domains("two", 1)
    shown = (await served.ask("GET", "/v1/domains/claims")).json
    assert [(each["worker"], each["number"]) for each in shown["workers"]] == [("one", 1), ("two", 1)]
    assert (shown["expired"], shown["unclaimed"]) == (0, {"pending": 1})
    assert (await served.ask("POST", "/v1/domains/claims/release", {"worker": "one"})).json == {"released": 1}
    assert (await served.ask("POST", "/v1/domains/claims/release", {})).json == {"released": 1}
    assert await control.renew_claims("two", claims[1:]) == [None]


async def test_priorities_are_recalculated_batch_by_batch(served: Served) -> None:
    await remember(served, "a.example", "b.example")
    batch = (await served.ask("POST", "/v1/domains/recalculate", {})).json
    assert batch == {"number": 2, "after": None}
    shown = (await served.ask("GET", "/v1/domains/a.example")).json["domain"]
    assert shown["priority_computed_at"] is not None


async def test_what_is_sound_is_verified(served: Served) -> None:
    await remember(served, "a.example")
    answer = (await served.ask("GET", "/v1/domains/verify")).json
    assert answer["ok"] is True
    assert {check["step"] for check in answer["checks"]} == {"tracking", "budgets", "claims", "refresh", "backfill"}


@pytest.mark.parametrize("role", [Role.READ, Role.CRAWL])
async def test_changes_need_an_admin_s_key_and_looking_any(role: Role, served: Served) -> None:
    await remember(served, "a.example")
    key = await bearer(served, "somebody", role)
    for path in ("", "/a.example", "/a.example/history", "/top", "/claims"):
        assert (await served.ask("GET", f"/v1/domains{path}", headers=key)).status == 200
    changes: list[tuple[str, Any]] = [
        ("a.example/reset", {}), ("a.example/block", {}), ("a.example/unblock", {}),
        ("a.example/merge", {"into": "b.example"}), ("recalculate", {}), ("claims/release", {}),
    ]  # fmt: skip
    for path, body in changes:
        assert problem(await served.ask("POST", f"/v1/domains/{path}", body, headers=key)) == (403, "forbidden")
    assert problem(await served.ask("GET", "/v1/domains/verify", headers=key)) == (403, "forbidden")


async def test_a_key_that_is_bound_to_crawls_changes_nothing_of_all(served: Served) -> None:
    key = await bearer(served, "bound", Role.ADMIN, "news")
    assert problem(await served.ask("POST", "/v1/domains/a.example/block", {}, headers=key)) == (403, "forbidden")


async def test_who_changed_it_stands_in_the_history(served: Served) -> None:
    await remember(served, "a.example")
    await step(served, "a.example", DomainStatus.UNREACHABLE)
    key = await bearer(served, "root", Role.ADMIN)
    await served.ask("POST", "/v1/domains/a.example/unblock", {}, headers=key)
    history = (await served.ask("GET", "/v1/domains/a.example/history", headers=key)).json["history"]
    assert re.fullmatch("key [0-9a-f]{16}", history[-1]["actor"])


async def test_the_client_gives_what_the_store_does(served: Served) -> None:
    await remember(served, "a.example", "b.example", "claims")
    stores = stores_of(served)
    await stores.urls.create_crawl("news", limits=FREE)
    await stores.urls.add("news", [Discovered(url="https://b.example/")])
    async with RemoteDomainDesk(served.base_url, patience_s=1) as desk:
        page = await desk.page(sort=DomainSort.NAME)
        assert page == await stores.control.sorted_domains(sort=DomainSort.NAME)
        assert (await desk.show("claims")).domain.domain == "claims"
        assert (await desk.block("a.example", reason="x")).block_reason == "x"
        assert (await desk.unblock("a.example")).block_reason is None
        await step(served, "a.example", DomainStatus.UNREACHABLE)
        assert (await desk.reset("a.example", "again")).status is DomainStatus.PENDING
        assert (await desk.history("a.example"))[-1].reason == "again"
        assert [batch.number async for batch in desk.recalculate()] == [3]
        assert await desk.top() == []
        assert (await desk.claims()).expired == 0
        assert await desk.release_claims() == 0
        assert (await desk.verify()).ok
        with pytest.raises(UnknownDomain, match=r"z\.example"):
            await desk.show("z.example")
        with pytest.raises(DomainInUse, match=r"URLs of it \(1\)"):
            await desk.merge("b.example", "a.example")
        await step(served, "a.example", DomainStatus.ACTIVE)
        with pytest.raises(InvalidTransition):
            await desk.reset("a.example")
        assert (await desk.merge("claims", "a.example")).domain == "a.example"


async def test_the_metrics_have_domains_claims_and_steps_and_no_name_of_any(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "FRESH_S", -1.0)
    await served.ask("GET", "/metrics")
    await remember(served, "a.example", "b.example", "c.example")
    await step(served, "a.example", DomainStatus.UNREACHABLE, block_reason_code="dns_failure")
    await step(served, "b.example", DomainStatus.UNREACHABLE, block_reason_code="made up")
    await stores_of(served).control.claim_domains("w", 1)
    text = (await served.ask("GET", "/metrics")).text
    for line in (
        'outrider_domains{status="unreachable"} 2.0', 'outrider_domains{status="pending"} 1.0',
        'outrider_domains_given_up{code="dns_failure"} 1.0', 'outrider_domains_given_up{code="other"} 1.0',
        'outrider_domains_given_up{code="forbidden"} 0.0',
        'outrider_claims{state="live"} 1.0', 'outrider_claims{state="expired"} 0.0',
    ):  # fmt: skip
        assert line in text
    assert ".example" not in text


async def test_the_metrics_count_the_steps_of_lives_by_kind_and_reason(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "FRESH_S", -1.0)
    monkeypatch.setattr(domain_listing, "SETTLING_MS", -60_000)
    await remember(served, "a.example", "b.example")
    await step(served, "a.example", DomainStatus.UNREACHABLE, block_reason_code="timeout")
    assert "outrider_domain_steps_total{" not in (await served.ask("GET", "/metrics")).text
    await step(served, "a.example", DomainStatus.PENDING)
    await step(served, "b.example", DomainStatus.UNREACHABLE, block_reason_code="dns_failure")
    for _ in range(2):
        text = (await served.ask("GET", "/metrics")).text
        assert 'outrider_domain_steps_total{source="unreachable",target="pending"} 1.0' in text
        assert 'outrider_domain_steps_total{source="pending",target="unreachable"} 1.0' in text
        assert 'outrider_domain_blocks_total{code="dns_failure"} 1.0' in text
