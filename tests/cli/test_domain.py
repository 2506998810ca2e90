"""`outrider domain` on a store, and the same on a service."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from outrider.cli.domain_tables import DomainTable
from outrider.cli.exits import ExitCode
from outrider.model.artifact import Fetch
from outrider.model.domain import Domain, DomainChange, DomainSeed
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.machines import DomainStatus
from outrider.model.task import CrawlLimits, Discovered
from outrider.store.opening import Stores, open_store
from tests.cli.conftest import CrawledSite, Ended, Outrider
from tests.service.serving import served_by_a_thread

PENDING, ACTIVE, EXHAUSTED, BLOCKED, UNREACHABLE = DomainStatus
FREE = CrawlLimits(delay_ms=0, concurrency=100, robots=False)
NUMBER = r"\d{4}-\d\d-\d\d \d\d:\d\d"


class Domains:
    """`outrider domain` at one place, and the store behind it."""

    def __init__(self, outrider: Outrider, folder: Path, place: list[str]) -> None:
        self._outrider = outrider
        self._place = place
        self.file = folder / "outrider.sqlite"

    def __call__(self, *words: str) -> Ended:
        """Run a command."""
        return self._outrider("domain", *words, *self._place)

    def ok(self, *words: str) -> str:
        """Run a command that must go well; give what it printed."""
        ended = self(*words)
        assert ended.returncode == ExitCode.OK, ended
        return ended.stdout

    def json(self, *words: str) -> Any:
        """Run a command that must go well; give the JSON that it printed."""
        return json.loads(self.ok(*words, "--json"))

    def lines(self, *words: str) -> list[Any]:
        """Run a command that must go well; give the JSON lines that it printed."""
        return [json.loads(line) for line in self.ok(*words, "--json").splitlines()]

    def act(self, work: Callable[[Stores], Any]) -> Any:
        """Do something with the store itself."""

        async def acting() -> Any:
            async with await open_store(f"sqlite:///{self.file}") as stores:
                return await work(stores)

        return asyncio.run(acting())

    def remember(self, *domains: str) -> None:
        """Have domains that nothing has become of."""
        seeds = [DomainSeed(domain=domain, source="list_1", seed_rank=place) for place, domain in enumerate(domains, 1)]
        self.act(lambda stores: stores.control.remember_domains(seeds))

    def step(self, domain: str, *targets: DomainStatus, **change: Any) -> None:
        """Take a domain some steps further."""

        async def stepping(stores: Stores) -> None:
            for target in targets:
                found = await stores.control.get_domain(domain)
                assert found is not None
                await stores.control.transition_domain(
                    domain,
                    DomainChange(source=found.status, target=target, expected_version=found.version, **change),
                )

        self.act(stepping)

    def write(self, statement: str) -> None:
        """Write past the store."""
        connection = sqlite3.connect(self.file, isolation_level=None, timeout=30)
        connection.execute(statement)
        connection.close()


@pytest.fixture(params=["store", "service"])
def domains(request: pytest.FixtureRequest, outrider: Outrider, tmp_path: Path) -> Iterator[Domains]:
    """The commands against an empty store, and against a service with one."""
    folder = tmp_path / "data"
    folder.mkdir()
    if request.param == "store":
        here = Domains(outrider, folder, ["--data", str(folder)])
        here.act(lambda stores: stores.urls.list_crawls())
        yield here
    else:
        with served_by_a_thread(folder) as server:
            yield Domains(outrider, folder, ["--frontier", server.base_url])


async def fetch_a_page(stores: Stores) -> None:
    """Have two pages of a domain, one of them fetched, with three images."""
    await stores.urls.create_crawl("c", limits=FREE)
    await stores.urls.add("c", [Discovered(url=f"https://photos.example/{n}") for n in range(2)])
    [lease] = (await stores.urls.lease(LeaseRequest(worker="w", request_id="1", slots=1, crawl="c"))).leases
    fetch = Fetch(http_status=200, images_found=3)
    await stores.urls.report([Report(token=lease.token, outcome=Outcome.DONE, fetch=fetch)])


def test_domains_are_listed_with_pages_images_yield_and_reasons_below(domains: Domains) -> None:
    domains.act(fetch_a_page)
    domains.remember("login.example", "gone.example", "closed.example")
    domains.step("login.example", ACTIVE, BLOCKED, block_reason_code="login_required")
    domains.step("gone.example", UNREACHABLE, block_reason="no such host", block_reason_code="dns_failure",
                 next_crawl_after=4_000_000_000_000)  # fmt: skip
    domains.ok("block", "closed.example", "--reason", "they asked")
    lines = domains.ok("status", "--sort", "name").splitlines()
    assert lines[0].split("  ")[0] == "DOMAIN"
    assert lines[0].split() == ["DOMAIN", "STATUS", "PAGES", "IMAGES", "YIELD", "LAST", "CRAWLED"]
    assert set(lines[1]) == {"─"}
    assert lines[2].split() == ["closed.example", "pending", "0/0", "0", "-", "-"]
    assert lines[3] == "  └─ reason: operator: they asked"
    assert lines[4].split() == ["gone.example", "unreachable", "0/0", "0", "-", "-"]
    assert lines[5] == "  └─ reason: dns_failure: no such host (until 2096-10-02 07:06)"
    assert lines[6].split()[:5] == ["login.example", "blocked", "0/0", "0", "-"]
    assert lines[7] == "  └─ reason: login_required (for good)"
    assert re.fullmatch(rf"photos\.example +active +1/2 +3 +3 +{NUMBER}", lines[8])
    beginnings = {line[: lines[0].index("STATUS")].count("example ") for line in lines[2::2]}
    assert beginnings == {1}, "aligned"


def test_a_listing_is_filtered_limited_and_sorted(domains: Domains) -> None:
    domains.remember("a.example", "b.example", "c.example")
    domains.step("b.example", UNREACHABLE)
    assert [each["domain"] for each in domains.lines("status", "--status", "Unreachable")] == ["b.example"]
    ended = domains("status", "--limit", "2", "--sort", "name")
    assert [line.split()[0] for line in ended.stdout.splitlines()[2:4]] == ["a.example", "b.example"]
    assert "the first 2" in ended.stderr
    assert len(domains.lines("status", "--all")) == 3
    assert "no domain is like that" in domains("status", "--status", "exhausted").stderr
    for words, told in (
        (["--sort", "age"], "--sort must be one of"),
        (["--status", "dead"], "--status must be one of"),
    ):
        ended = domains("status", *words)
        assert (ended.returncode, told in ended.stderr) == (ExitCode.REFUSED, True)


def test_the_top_is_what_was_worked_out(domains: Domains) -> None:
    assert "recalculate" in domains("top").stderr
    domains.act(fetch_a_page)
    domains.remember("nothing.example")
    assert domains.json("recalculate") == {"domains": 2}
    assert domains.ok("recalculate") == "domains worked out: 2\n"
    assert [each["domain"] for each in domains.lines("top")] == ["photos.example"]
    info = domains.json("info", "photos.example")
    assert info["domain"]["priority_computed_at"] is not None


def test_all_that_is_known_of_a_domain_is_told(domains: Domains) -> None:
    domains.act(fetch_a_page)
    domains.remember("photos.example")
    told = domains.ok("info", "https://www.Photos.example/1")
    for text in ("photos.example", "1 crawled of 2 known", "3 found, 0 stored", "list_1, rank 1", "1,000 pages a run",
                 "pending → active, by lease", "band 8"):  # fmt: skip
        assert text in told
    view = domains.json("info", "photos.example")
    assert set(view) == {"domain", "gate", "history"}
    assert [step["to_status"] for step in view["history"]] == ["active"]


def test_the_history_can_be_gone_on_with(domains: Domains) -> None:
    domains.remember("a.example")
    assert "nothing has become of it" in domains("history", "a.example").stderr
    domains.step("a.example", ACTIVE, EXHAUSTED, PENDING)
    steps = domains.lines("history", "a.example")
    assert [step["to_status"] for step in steps] == ["active", "exhausted", "pending"]
    ended = domains("history", "a.example", "--limit", "2")
    assert (len(ended.stdout.splitlines()), f"--after {steps[1]['history_id']}" in ended.stderr) == (2, True)
    assert "exhausted → pending, by" in domains.ok("history", "a.example", "--after", str(steps[1]["history_id"]))


@pytest.mark.parametrize("command", ["info", "history", "reset", "unblock"])
def test_a_domain_that_is_not_known_or_cannot_be_one_is_refused(command: str, domains: Domains) -> None:
    ended = domains(command, "nowhere.example")
    assert (ended.returncode, "no domain 'nowhere.example'" in ended.stderr) == (ExitCode.REFUSED, True)
    assert domains(command, "http://").returncode == ExitCode.REFUSED


def test_a_reset_is_written_down_with_its_reason(domains: Domains) -> None:
    domains.remember("a.example")
    domains.step("a.example", ACTIVE, BLOCKED, block_reason_code="forbidden")
    printed = domains.ok("reset", "a.example", "--reason", "manual review").splitlines()
    assert printed[2].split()[:2] == ["a.example", "pending"]
    assert len(printed) == 3
    assert "blocked → pending, by operator (manual review)" in domains.ok("history", "a.example")
    domains.step("a.example", ACTIVE)
    ended = domains("reset", "a.example")
    assert (ended.returncode, "active" in ended.stderr) == (ExitCode.REFUSED, True)


def test_a_domain_is_blocked_for_a_time_and_unblocked(domains: Domains) -> None:
    blocked = domains.json("block", "a.example", "--until", "2d", "--reason", "later")
    assert (blocked["status"], blocked["block_reason"]) == ("pending", "later")
    assert "closed until" in domains.ok("info", "a.example")
    assert domains.json("unblock", "a.example")["block_reason"] is None
    assert "closed" not in domains.ok("info", "a.example")
    domains.ok("block", "a.example")
    assert "closed for good" in domains.ok("info", "a.example")


@pytest.mark.parametrize(("until", "told"), [("soon", "such as 7d"), ("2001-01-01", "in the past"), ("7y", "7d")])
def test_a_time_that_makes_no_sense_is_refused(until: str, told: str, outrider: Outrider) -> None:
    ended = outrider("domain", "block", "a.example", "--until", until)
    assert (ended.returncode, told in ended.stderr) == (ExitCode.REFUSED, True)


def test_two_rows_of_one_domain_are_merged(domains: Domains) -> None:
    domains.act(fetch_a_page)
    domains.write(
        "INSERT INTO domains (id, domain, parent_domain, first_seen_at, updated_at, pages_crawled, pages_discovered) "
        "VALUES ('00000000-0000-7000-8000-000000000001', 'www.photos.example', 'photos.example', "
        "'2020-01-01T00:00:00.000Z', '2020-01-01T00:00:00.000Z', 5, 9)"
    )
    merged = domains.json("merge", "www.photos.example", "photos.example")
    assert (merged["id"][-1], merged["pages_crawled"], merged["pages_discovered"]) == ("1", 6, 11)
    domains.remember("other.example")
    ended = domains("merge", "photos.example", "other.example")
    assert (ended.returncode, "URLs of it (2)" in ended.stderr) == (ExitCode.REFUSED, True)


def test_claims_are_shown_by_worker_and_released(domains: Domains) -> None:
    domains.remember("a.example", "b.example", "c.example", "d.example")

    async def claim(stores: Stores) -> None:
        await stores.control.claim_domains("one", 2)
        await stores.control.claim_domains("two", 1)

    domains.act(claim)
    shown = domains.ok("claims").splitlines()
    assert shown[0].split() == ["WORKER", "CLAIMS", "EARLIEST", "EXPIRY"]
    assert [line.split()[:2] for line in shown[1:3]] == [["one", "2"], ["two", "1"]]
    assert [line.split() for line in shown[4:]] == [["live", "3"], ["expired", "0"], ["unclaimed", "1", "pending"]]
    assert domains.ok("claims", "release", "two") == "claims ended: 1\n"
    assert domains.json("claims", "release", "--all") == {"released": 2}
    assert domains.json("claims")["unclaimed"] == {"pending": 4}
    for words in ([], ["one", "--all"]):
        ended = domains("claims", "release", *words)
        assert (ended.returncode, "--all" in ended.stderr) == (ExitCode.REFUSED, True)


def test_what_is_sound_is_verified_and_what_is_not_has_an_exit_code(domains: Domains) -> None:
    domains.act(fetch_a_page)
    told = domains.ok("verify")
    assert "all well" in told
    for step in ("tracking", "budgets", "claims", "refresh", "backfill"):
        assert re.search(rf"^{step} ", told, re.MULTILINE)
    domains.write("UPDATE domains SET pages_crawled = -9")
    ended = domains("verify")
    assert ended.returncode == ExitCode.UNSOUND
    assert re.search(r"domains whose counters cannot be +wrong +1: photos\.example", ended.stdout)
    assert "wrong" in ended.stdout.splitlines()[-1]
    ended = domains("verify", "--json")
    assert (ended.returncode, json.loads(ended.stdout)["ok"]) == (ExitCode.UNSOUND, False)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE crawl_log SET domain = 'lost.example'", "domains of the log without a row +wrong +1: lost"),
        ("UPDATE counts SET completed = 0, pending = 0", "domains with fewer pages than the log has +wrong +1"),
        ("UPDATE domains SET domain = 'WWW.photos.example'", "names that are not canonical +wrong +1: WWW"),
        ("DELETE FROM gates", "domains without a gate +wrong +1"),
        ("UPDATE domains SET source = 'backfill_x'", "domains +1 in the log, 1 backfilled, 1 in all"),
        ("UPDATE domains SET source = 'backfill_x'", "backfilled and active +1 domains, 1.0 pages each"),
        (
            "UPDATE domains SET claimed_by = 'w', claim_expires_at = '2020-01-01T00:00:00.000Z'",
            "claims that have expired and are stuck +wrong +1",
        ),
    ],
)
def test_a_verification_finds(statement: str, told: str, outrider: Outrider, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    domains = Domains(outrider, tmp_path / "data", ["--data", str(tmp_path / "data")])
    domains.act(fetch_a_page)
    domains.write(statement)
    assert re.search(told, domains("verify").stdout)


def test_a_crawl_leaves_domains_that_are_sound(crawled: CrawledSite, outrider: Outrider) -> None:
    domains = Domains(outrider, crawled.data, ["--data", str(crawled.data)])
    assert "all well" in domains.ok("verify")
    [domain] = domains.lines("status")
    assert domain["domain"] == crawled.address.removeprefix("http://")


def test_looking_creates_no_store(outrider: Outrider, tmp_path: Path) -> None:
    ended = outrider("domain", "status", "--data", tmp_path / "none")
    assert (ended.returncode, "there is no domain in" in ended.stderr) == (ExitCode.REFUSED, True)
    assert not (tmp_path / "none").exists()


def test_a_store_and_a_service_exclude_each_other(outrider: Outrider) -> None:
    ended = outrider("domain", "status", "--store", "sqlite:///x", "--frontier", "http://127.0.0.1:1")
    assert (ended.returncode, "exclude each other" in ended.stderr) == (ExitCode.REFUSED, True)


def test_a_terminal_has_colours_and_long_rows_are_not_folded(domains: Domains) -> None:
    domains.remember("a-name-that-is-longer-than-the-terminal-is-wide.example")
    domains.step("a-name-that-is-longer-than-the-terminal-is-wide.example", UNREACHABLE, block_reason_code="timeout")
    [record] = domains.lines("status")
    screen = StringIO()
    table = DomainTable(as_json=False)
    table._console = Console(file=screen, force_terminal=True, color_system="standard", width=40, highlight=False)
    table.print([msgspec.convert(record, Domain)])
    heading, _, row, reason = screen.getvalue().splitlines()
    assert heading.startswith("\x1b[1mDOMAIN")
    assert "\x1b[33munreachable\x1b[0m" in row
    assert "reason: timeout (for good)" in reason
