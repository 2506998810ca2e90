import asyncio
import json
import time
from pathlib import Path

import pytest

from outrider.cli.exits import ExitCode
from outrider.cli.opened import Workers, look_for_workers
from outrider.frontier.presence import Presence
from outrider.model.gate import GateSettings
from outrider.model.job import RunKind, RunStatus
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.machines import TaskState
from outrider.model.task import CrawlLimits, Discovered, Kind, Restored
from outrider.store.opening import open_store
from tests.cli.conftest import CrawledSite, Outrider

SITE = "https://example.org/"


async def waiting_crawl(data: Path, *, blocked: bool = False) -> None:
    """Leave a crawl with a page that answered 503, and a page behind it."""
    async with await open_store(f"sqlite:///{data / 'outrider.sqlite'}") as stores:
        await stores.urls.create_crawl("DEFAULT", limits=CrawlLimits(robots=False, max_pages=1_234_567))
        await stores.urls.add("DEFAULT", [Discovered(url=SITE, priority=9), Discovered(url=f"{SITE}a")])
        grant = await stores.urls.lease(LeaseRequest(worker="w", request_id="1", slots=1, crawl="DEFAULT"))
        report = Report(
            token=grant.leases[0].token, outcome=Outcome.DEFERRED, reason="http 503", backs_off=True,
            retry_after_ms=600_000,
        )  # fmt: skip
        await stores.urls.report([report])
        if blocked:
            until = int(time.time() * 1000) + 7_200_000
            await stores.urls.configure_gate("example.org", GateSettings(blocked_until=until))
        # Only a look at the queue learns that its gate is closed.
        await stores.urls.lease(LeaseRequest(worker="w", request_id="2", slots=1, crawl="DEFAULT"))


def test_it_tells_what_is_done_what_failed_and_where_everything_lies(crawled: CrawledSite, outrider: Outrider) -> None:
    answer = outrider("status", "--data", crawled.data)
    assert (answer.returncode, answer.stderr) == (ExitCode.OK, "")
    for words in ("DEFAULT, finished", "nothing is left to do", "past a limit", "depth 2", "completed: drained",
                  "robots.txt obeyed", str(crawled.data / "outrider.sqlite"), "1 file,"):  # fmt: skip
        assert words in answer.stdout


def test_json_counts_are_exact_and_failures_are_counted_by_reason(crawled: CrawledSite, outrider: Outrider) -> None:
    told = json.loads(outrider("status", "--data", crawled.data, "--json").stdout)
    lines = outrider("urls", "--data", crawled.data, "--all", "--json").stdout.splitlines()
    listed = [json.loads(line) for line in lines]
    for state, number in told["pages"].items():
        assert number == sum(each["state"] == state and each["kind"] == "page" for each in listed)
    failed = sum(each["state"] == "failed" for each in listed)
    assert sum(told["failures"].values()) == failed > 0
    assert told["failures"]["http 500"] == 1
    assert told["kinds"]["robots"]["completed"] == 1
    assert [(run["status"], run["reason"], run["alive"]) for run in told["runs"]] == [("completed", "drained", False)]
    assert told["processes"] == 0


@pytest.mark.parametrize(
    ("blocked", "reason"), [(False, "backing off after http 503"), (True, "blocked by an operator")]
)
def test_a_domain_that_waits_is_told_with_the_reason(
    tmp_path: Path, outrider: Outrider, blocked: bool, reason: str
) -> None:
    asyncio.run(waiting_crawl(tmp_path, blocked=blocked))
    told = json.loads(outrider("status", "--data", tmp_path, "--json").stdout)
    (waiting,) = told["waiting"]
    assert (waiting["domain"], waiting["reason"], waiting["pending"]) == ("example.org", reason, 2)
    assert waiting["in_s"] > 590
    shown = outrider("status", "--data", tmp_path).stdout
    assert f"example.org: {reason}, " in shown
    assert "pages 1,234,567" in shown


def test_a_crawl_of_which_only_a_sitemap_is_left_is_not_finished(tmp_path: Path, outrider: Outrider) -> None:
    async def add() -> None:
        async with await open_store(f"sqlite:///{tmp_path / 'outrider.sqlite'}") as stores:
            await stores.urls.create_crawl("DEFAULT", limits=CrawlLimits(robots=False))
            await stores.urls.add("DEFAULT", [Discovered(url=f"{SITE}sitemap.xml", kind=Kind.SITEMAP)])

    asyncio.run(add())
    shown = outrider("status", "--data", tmp_path).stdout
    assert "DEFAULT, running" in shown
    assert "something can be fetched at once" in shown
    assert "the same `outrider crawl` command again" in shown


def test_a_long_reason_is_trimmed_for_people_and_whole_for_programs(tmp_path: Path, outrider: Outrider) -> None:
    reason = "out of luck " * 30

    async def fail() -> None:
        async with await open_store(f"sqlite:///{tmp_path / 'outrider.sqlite'}") as stores:
            await stores.urls.create_crawl("DEFAULT", limits=CrawlLimits(robots=False))
            await stores.urls.add("DEFAULT", [Discovered(url=SITE)])
            (lease,) = (await stores.urls.lease(LeaseRequest(worker="w", request_id="1", slots=1))).leases
            await stores.urls.report([Report(token=lease.token, outcome=Outcome.REFUSED, reason=reason)])
            run = await stores.control.open_run("DEFAULT", RunKind.CRAWL)
            await stores.control.close_run(run.id, RunStatus.FAILED, reason)

    asyncio.run(fail())
    shown = outrider("status", "--data", tmp_path).stdout
    assert shown.count("…") == 2
    assert max(map(len, shown.splitlines())) < 200
    told = json.loads(outrider("status", "--data", tmp_path, "--json").stdout)
    assert (list(told["failures"]), told["runs"][0]["reason"]) == ([reason], reason)


@pytest.mark.parametrize("command", [["status"], ["explain", SITE], ["retry-failed"]])
def test_standard_input_is_not_recommended_as_the_place_of_the_seeds(
    tmp_path: Path, outrider: Outrider, command: list[str]
) -> None:
    async def begin() -> None:
        async with await open_store(f"sqlite:///{tmp_path / 'outrider.sqlite'}") as stores:
            await stores.urls.create_crawl("DEFAULT", limits=CrawlLimits(robots=False))
            failed = Restored(url=f"{SITE}failed", state=TaskState.FAILED)
            await stores.urls.restore("DEFAULT", [Restored(url=SITE), failed])
            await stores.control.open_run("DEFAULT", RunKind.CRAWL, settings={"seeds": [], "seeds_file": "-"})

    asyncio.run(begin())
    shown = outrider(*command, "--data", tmp_path).stdout
    assert "the same `outrider crawl` command again" in shown
    assert "--seeds" not in shown


def test_a_process_that_is_alive_is_told_from_one_that_was_killed(tmp_path: Path) -> None:
    folder, nobody = tmp_path / "workers", frozenset[str]()
    assert look_for_workers(folder) == Workers(nobody, nobody)
    assert not folder.exists()
    alive, killed = Presence(folder), Presence(folder)
    killed.close(owes_nothing=False)
    before = sorted(folder.iterdir())
    assert look_for_workers(folder) == Workers(frozenset({alive.worker}), frozenset({killed.worker}))
    assert sorted(folder.iterdir()) == before
    alive.close()
    assert look_for_workers(folder) == Workers(nobody, frozenset({killed.worker}))


@pytest.mark.parametrize(
    "command", [["status"], ["urls"], ["retry-failed"], ["export"], ["explain", "https://example.org/"]]
)
def test_looking_for_a_crawl_that_is_not_there_is_refused_and_creates_nothing(
    tmp_path: Path, outrider: Outrider, command: list[str]
) -> None:
    answer = outrider(*command)
    assert (answer.returncode, answer.stdout) == (ExitCode.REFUSED, "")
    assert answer.stderr.startswith("outrider: there is no crawl in outrider-data/outrider.sqlite")
    assert list((tmp_path / "here").iterdir()) == []


def test_an_empty_file_is_no_crawl_and_stays_empty(tmp_path: Path, outrider: Outrider) -> None:
    (tmp_path / "outrider.sqlite").touch()
    assert outrider("status", "--data", tmp_path).returncode == ExitCode.REFUSED
    assert (tmp_path / "outrider.sqlite").stat().st_size == 0


def test_a_crawl_of_another_name_is_refused_with_the_names_that_there_are(
    crawled: CrawledSite, outrider: Outrider
) -> None:
    answer = outrider("status", OUTRIDER_DATA=str(crawled.data), OUTRIDER_CRAWL="other")
    assert answer.returncode == ExitCode.REFUSED
    assert "there is no crawl named 'other'" in answer.stderr
    assert "there is 'DEFAULT'" in answer.stderr
