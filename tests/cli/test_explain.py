import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from outrider.cli.exits import ExitCode
from outrider.frontier.presence import Presence
from outrider.model.artifact import Fetch
from outrider.model.gate import GateSettings, Robots
from outrider.model.job import RunKind
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.task import CrawlLimits, CrawlState, Discovered, DiscoveryType
from outrider.policy.explaining import Cause
from outrider.store.opening import Stores, open_store
from tests.cli.conftest import ROOT, CrawledSite, Outrider
from tests.service.serving import open_port

SITE = "https://example.org/"
OK = Fetch(http_status=200)
Explain = Callable[[str], dict[str, Any]]


@pytest.fixture
def explain(crawled: CrawledSite, outrider: Outrider) -> Explain:
    """Explain a path of the crawled site, or a whole URL."""

    def asked(place: str) -> dict[str, Any]:
        url = place if "://" in place else f"{crawled.address}{place}"
        answer = outrider("explain", url, "--data", crawled.data, "--json")
        assert (answer.returncode, answer.stderr) == (ExitCode.OK, "")
        told: dict[str, Any] = json.loads(answer.stdout)
        return told

    return asked


def test_a_page_that_was_fetched_is_told_with_all_that_is_known(
    crawled: CrawledSite, outrider: Outrider, explain: Explain
) -> None:
    told = explain("/odd/chain/0")
    assert (told["verdict"], told["task"]["status"]) == ("done", 200)
    assert told["attempts"][0]["fetch"]["redirects"][0] == f"{crawled.address}/odd/chain/5"
    shown = outrider("explain", f"{crawled.address}/odd/chain/0", "--data", crawled.data).stdout
    for words in ("fetched: the site answered 200", "found as the target of a redirect, at depth 2", "/odd/chain/3",
                  "The end of the chain", "sha256:", "outrider-00001.warc.gz at byte ", "attempt 1"):  # fmt: skip
        assert words in shown


def test_any_spelling_of_the_url_will_do(crawled: CrawledSite, outrider: Outrider) -> None:
    host = crawled.address.removeprefix("http://")
    for spelling in (host, f"HTTP://{host}/odd/../#top", f"//{host}/".replace("//", "http://")):
        answer = outrider("explain", spelling, "--data", crawled.data, "--json")
        assert json.loads(answer.stdout)["verdict"] == "done", spelling


def test_a_robots_rule_is_told_with_its_line(crawled: CrawledSite, outrider: Outrider, tmp_path: Path) -> None:
    told = explained_in(tmp_path, outrider, f"{SITE}private/1", robots_refused)
    assert told["verdict"] == "robots"
    assert (told["robots"]["line"], told["robots"]["rule"]) == (2, "Disallow: /private/")
    shown = outrider("explain", f"{SITE}private/1", "--data", tmp_path).stdout
    assert "forbids it, line 2: Disallow: /private/" in shown
    assert "good until" in shown


def test_a_failure_is_told_with_each_attempt_and_what_to_do(
    crawled: CrawledSite, outrider: Outrider, explain: Explain
) -> None:
    told = explain("/odd/always/500")
    assert (told["verdict"], told["detail"]) == ("failed", "http 500")
    assert [attempt["attempt"] for attempt in told["attempts"]] == [2, 1]
    shown = outrider("explain", f"{crawled.address}/odd/always/500", "--data", crawled.data).stdout
    assert "failed after 2 attempts: http 500" in shown
    assert f"outrider retry-failed --data {crawled.data} --filter {crawled.address}/odd/always/500" in shown


def test_what_the_crawl_does_not_have_is_explained_by_its_rules(crawled: CrawledSite, explain: Explain) -> None:
    elsewhere = explain("https://example.org/")
    assert elsewhere["verdict"] == "out_of_scope"
    assert elsewhere["detail"] == "out of scope: host example.org is not among the seeds'"
    excluded = explain("/odd/slow")
    assert excluded["verdict"] == "out_of_scope"
    assert "--exclude" in excluded["detail"]
    assert explain("/a/a/a/a/")["detail"] == "trap_repeated_path"
    unknown = explain("/never/heard/of")
    assert (unknown["verdict"], unknown["similar"]) == ("unknown", [])
    assert explain("/?a=1")["similar"] == [f"{crawled.address}/"]


def test_a_page_past_the_depth_names_both_depths(crawled: CrawledSite, outrider: Outrider, explain: Explain) -> None:
    told = explain("/odd/private/1")
    assert told["verdict"] == "too_deep"
    assert told["answer"] == "not fetched: found at depth 3, and the limit is 2"
    assert told["what_to_do"] == ["crawl again with --max-depth 3 or more"]


@pytest.mark.parametrize("text", ["mailto:somebody@example.org", "http://", "just words", "http://[broken", ""])
def test_what_is_no_url_is_refused(crawled: CrawledSite, outrider: Outrider, text: str) -> None:
    answer = outrider("explain", text, "--data", crawled.data)
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (ExitCode.REFUSED, "", 1)
    answer = outrider("explain", text, "--data", crawled.data, "--json")
    assert (answer.returncode, json.loads(answer.stdout)["verdict"]) == (ExitCode.REFUSED, "refused")


PLACES = ("/", "/odd/chain/0", "/odd/always/500", "/odd/private/1", "/odd/slow", "/a/a/a/a/", "/?a=1", "/robots.txt")
THE_SAME = (
    "url", "verdict", "detail", "until", "answer", "task", "robots", "gate", "holder", "similar", "scope_is_certain",
)  # fmt: skip


def test_a_service_tells_the_same_story(crawled: CrawledSite, outrider: Outrider, explain: Explain) -> None:
    urls = [*(f"{crawled.address}{place}" for place in PLACES), "https://example.org/", crawled.address[7:]]

    async def asked() -> list[dict[str, Any]]:
        async with open_port() as port, port.serving(crawled.data) as served:
            path = "/v1/crawls/DEFAULT/urls/explain?url="
            return [(await served.ask("GET", path + quote(url, safe=""))).json for url in urls]

    for url, told in zip(urls, asyncio.run(asked()), strict=True):
        said = explain(url) if "://" in url else explain("/")
        same = (
            "url",
            "verdict",
            "detail",
            "until",
            "answer",
            "robots",
            "gate",
            "holder",
            "similar",
            "scope_is_certain",
        )
        assert {name: told[name] for name in same} == {name: said[name] for name in same}
        assert told["task"] == said["task"]
        assert [each["id"] for each in told["artifacts"]] == [each["artifact_id"] for each in said["attempts"]]
        shown = outrider("explain", url, "--data", crawled.data).stdout
        for sentence in told["story"]:
            if sentence["about"] != "crawl":  # only who is on the machine of the crawl can tell whether it is at work
                first = sentence["text"].partition("\n")[0]
                assert re.sub(r" \([^)]* ago\)", "", first) in re.sub(r" \([^)]* ago\)", "", shown)


def explained_in(
    data: Path, outrider: Outrider, url: str, prepare: Callable[[Stores], Awaitable[None]], **limits: Any
) -> dict[str, Any]:
    """Explain a URL in a crawl that somebody has prepared."""

    async def prepared() -> None:
        async with await open_store(f"sqlite:///{data / 'outrider.sqlite'}") as stores:
            await stores.urls.create_crawl("DEFAULT", limits=CrawlLimits(**{"robots": False, **limits}))
            await stores.urls.add("DEFAULT", [Discovered(url=url, discovery_type=DiscoveryType.SEED)])
            await prepare(stores)

    asyncio.run(prepared())
    answer = outrider("explain", url, "--data", data, "--json")
    assert answer.returncode == ExitCode.OK, answer.stderr
    told: dict[str, Any] = json.loads(answer.stdout)
    return told


async def reported(stores: Stores, report: dict[str, Any]) -> None:
    grant = await stores.urls.lease(LeaseRequest(worker="w", request_id="1", slots=1, crawl="DEFAULT"))
    await stores.urls.report([Report(token=grant.leases[0].token, **report)])


async def robots_refused(stores: Stores) -> None:
    await stores.urls.set_crawl_limits("DEFAULT", CrawlLimits(delay_ms=0))
    robots = Robots(text="User-agent: *\nDisallow: /private/", expires_in_ms=60_000)
    grant = await stores.urls.lease(LeaseRequest(worker="w", request_id="0", slots=1, crawl="DEFAULT"))
    await stores.urls.report([Report(token=grant.leases[0].token, outcome=Outcome.DONE, fetch=OK, robots=robots)])
    refusal = "robots: line 2: Disallow: /private/"
    await reported(stores, {"outcome": Outcome.REFUSED, "reason": refusal, "sent_after_ms": None})


async def leased(stores: Stores) -> None:
    await stores.urls.lease(LeaseRequest(worker="somebody", request_id="1", slots=1, crawl="DEFAULT"))


async def backing_off(stores: Stores) -> None:
    report = {"outcome": Outcome.DEFERRED, "reason": "http 429", "backs_off": True, "retry_after_ms": 60_000}
    await reported(stores, report)


async def failed_once(stores: Stores) -> None:
    await reported(stores, {"outcome": Outcome.FAILED, "reason": "dns: no such host"})


async def blocked(stores: Stores) -> None:
    until = int(time.time() * 1000) + 60_000
    await stores.urls.configure_gate("example.org", GateSettings(blocked_until=until))


async def paused(stores: Stores) -> None:
    await stores.urls.set_crawl_state("DEFAULT", CrawlState.PAUSED)


async def left_alone(stores: Stores) -> None:
    """Nothing happens."""


@pytest.mark.parametrize(
    ("prepare", "verdict", "words"),
    [
        (leased, "leased", "being fetched at this moment"),
        (backing_off, "back_off", "waiting: its domain is left alone after http 429 until "),
        (failed_once, "retry", "waiting: to be tried again after dns: no such host, not before "),
        (blocked, "blocked", "waiting: its domain is blocked by an operator until "),
        (paused, "paused", "not fetched yet: the crawl is paused"),
        (left_alone, "queued", "waiting for its turn: 0 other URLs of its queue are pending"),
    ],
)
def test_what_waits_is_told_with_what_it_waits_for(
    tmp_path: Path, outrider: Outrider, prepare: Callable[[Stores], Awaitable[None]], verdict: str, words: str
) -> None:
    told = explained_in(tmp_path, outrider, SITE, prepare)
    assert told["verdict"] == verdict
    assert told["answer"].startswith(words)
    if told["until"] is not None:
        assert told["until"] > time.time() * 1000
    assert (told["holder"] is not None) == (verdict == "leased")


def test_a_lease_of_a_process_that_was_killed_is_told_from_one_that_is_held(tmp_path: Path, outrider: Outrider) -> None:
    killed = Presence(tmp_path / "workers")

    async def leased_by_it(stores: Stores) -> None:
        await stores.urls.lease(LeaseRequest(worker=killed.worker, request_id="1", slots=1, crawl="DEFAULT"))

    assert explained_in(tmp_path, outrider, SITE, leased_by_it)["answer"] == "being fetched at this moment"
    killed.close(owes_nothing=False)
    told = json.loads(outrider("explain", SITE, "--data", tmp_path, "--json").stdout)
    assert (told["verdict"], told["holder_was_killed"]) == ("leased", True)
    assert told["answer"].startswith("leased to a process that was killed")


def test_a_limit_on_pages_is_told(tmp_path: Path, outrider: Outrider) -> None:
    async def one_done(stores: Stores) -> None:
        await stores.urls.add("DEFAULT", [Discovered(url=f"{SITE}first", priority=9)])
        await reported(stores, {"outcome": Outcome.DONE, "fetch": OK})

    told = explained_in(tmp_path, outrider, SITE, one_done, max_pages=1)
    assert told["verdict"] == "page_limit"
    assert told["answer"] == "not fetched: the crawl has reached its limit of 1 pages"


def test_a_limit_on_the_pages_of_a_domain_is_told(tmp_path: Path, outrider: Outrider) -> None:
    async def one_done(stores: Stores) -> None:
        await stores.urls.add("DEFAULT", [Discovered(url=f"{SITE}first", priority=9)])
        run = await stores.control.open_run("DEFAULT", RunKind.CRAWL)
        for request_id in "12":
            request = LeaseRequest(worker="w", request_id=request_id, slots=1, crawl="DEFAULT", run_id=run.id)
            for lease in (await stores.urls.lease(request)).leases:
                await stores.urls.report([Report(token=lease.token, outcome=Outcome.DONE, fetch=OK)])

    told = explained_in(tmp_path, outrider, SITE, one_done, max_pages_per_domain=1, delay_ms=0)
    assert told["verdict"] == "domain_limit"
    assert told["answer"] == "not fetched: its domain has reached the limit of 1 pages in a run"


def test_where_not_all_seeds_were_kept_the_answer_says_so(tmp_path: Path, outrider: Outrider) -> None:
    async def many_seeds(stores: Stores) -> None:
        settings = {"seeds": ["https://one.example/"], "seeds_file": "tranco.csv", "scope": "host"}
        await stores.control.open_run("DEFAULT", RunKind.CRAWL, settings=settings)

    explained_in(tmp_path, outrider, SITE, many_seeds)
    of_a_known_site = json.loads(outrider("explain", f"{SITE}b", "--data", tmp_path, "--json").stdout)
    assert of_a_known_site["verdict"] == "unknown"
    elsewhere = json.loads(outrider("explain", "https://two.example/", "--data", tmp_path, "--json").stdout)
    assert (elsewhere["verdict"], elsewhere["scope_is_certain"]) == ("out_of_scope", False)
    assert "as far as the kept seeds tell" in elsewhere["answer"]


def test_every_verdict_is_documented() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \|", page.partition("| verdict |")[2].partition("\n\n")[0], re.MULTILINE
    )
    documented = [word for row in rows for word in re.findall(r"\w+", row)]
    assert sorted(documented) == sorted(Cause)
