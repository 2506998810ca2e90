"""`outrider jobs` on a store, and the same on a service."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.exits import ExitCode
from outrider.model.job import Job, JobEnding
from outrider.model.machines import JobStatus
from outrider.model.task import CrawlLimits, CrawlRules
from outrider.store.opening import Stores, open_store
from tests.cli.conftest import Ended, Outrider, crawl_a_small_site

SEED = "https://example.org/"
SECRET = "sixteen or more characters"


class Jobs:
    """`outrider jobs` at one place, and the store behind it."""

    def __init__(self, outrider: Outrider, folder: Path, place: list[str]) -> None:
        self._outrider = outrider
        self._place = place
        self.folder = folder
        self.dsn = f"sqlite:///{folder}/outrider.sqlite"

    def __call__(self, *words: str) -> Ended:
        """Run a command."""
        return self._outrider("jobs", *words, *self._place)

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

    def submit(self, *words: str) -> str:
        """Submit a job; give its id."""
        return self.ok("submit", SEED, *words).strip()

    def act(self, work: Callable[[Stores], Any]) -> Any:
        """Do something with the store itself, as a supervisor does."""

        async def acting() -> Any:
            async with await open_store(self.dsn) as stores:
                return await work(stores)

        return asyncio.run(acting())

    def run_and_end(self, ending: JobEnding) -> Job:
        """Claim the first job and end it so, as a supervisor with a runner does."""

        async def running(stores: Stores) -> Job:
            job = await stores.control.claim_job("a supervisor")
            assert job is not None
            await stores.urls.create_crawl(job.crawl, CrawlRules(), CrawlLimits())
            return await stores.control.finish_job(job.id, job.epoch, ending)

        found = self.act(running)
        assert isinstance(found, Job)
        return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A service in a process of its own: its folder and its address."""
    folder = tmp_path_factory.mktemp("service")
    serving = subprocess.Popen(
        [sys.executable, "-m", "outrider.cli.main", "serve", "--port", "0", "--data", str(folder)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert serving.stderr is not None
    line = next(line for line in serving.stderr if "serving" in line)
    threading.Thread(target=serving.stderr.read, daemon=True).start()
    yield folder, line.split(" on ")[1].split(",")[0]
    serving.terminate()
    serving.wait(30)


@pytest.fixture(params=["store", "service"])
def jobs(request: pytest.FixtureRequest, outrider: Outrider, tmp_path: Path) -> Jobs:
    """The commands against a store, and against a service; all jobs of a service have ended."""
    if request.param == "store":
        return Jobs(outrider, tmp_path / "data", ["--data", str(tmp_path / "data")])
    folder, address = request.getfixturevalue("service")
    jobs = Jobs(outrider, folder, ["--frontier", address])
    for status in ("pending", "processing", "paused"):
        for job in jobs.lines("list", "--status", status, "--all"):
            jobs.ok("cancel", job["id"])
    return jobs


def test_a_submitted_job_is_listed_and_shown(jobs: Jobs) -> None:
    ended = jobs("submit", SEED, "--max-pages", "10", "--label", "team=search", "--priority", "3")
    job = ended.stdout.strip()
    assert f"watch {job}" in ended.stderr
    listed = jobs.ok("list", "--limit", "1").splitlines()
    assert listed[0].split()[:3] == ["job", "status", "done"]
    assert listed[1].split()[:5] == [job, "pending", "0", "%", "3"]
    assert listed[1].endswith(SEED)
    shown = jobs.ok("show", job)
    for told in (job, "pending", "0 % of the limit", "max pages 10", "team=search", "submitted, by"):
        assert told in shown


def test_nobody_who_runs_jobs_is_told(outrider: Outrider, tmp_path: Path) -> None:
    jobs = Jobs(outrider, tmp_path / "data", ["--data", str(tmp_path / "data")])
    assert f"start outrider supervise --data {tmp_path}/data" in jobs("submit", SEED).stderr


def test_json_has_all_but_the_secret(jobs: Jobs) -> None:
    hook = ("--webhook", "https://hooks.example/x", "--webhook-secret", SECRET)
    submitted = jobs.json("submit", SEED, *hook)
    assert (submitted["status"], submitted["order"]["seeds"]) == ("pending", [SEED])
    assert submitted["webhook_url"] == "https://hooks.example/x"
    shown = jobs.ok("show", submitted["id"], "--json")
    assert set(json.loads(shown)) == {"job", "progress", "history"}
    assert SECRET not in shown + jobs.ok("show", submitted["id"]) + jobs.ok("list", "--json")


def test_the_options_of_a_crawl_are_the_order(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("other.example\n")
    (tmp_path / "outrider.toml").write_text("[crawl]\ndelay = 2.5\n")
    order = jobs.json(
        "submit", "example.org", "--seeds", str(tmp_path / "more.txt"), "--strategy", "sitemap", "--scope", "domain",
        "--exclude", "/private/", "--max-depth", "4", "--no-robots", "--max-body", "512k",
        "--config", str(tmp_path / "outrider.toml"),
    )["order"]  # fmt: skip
    assert order["seeds"] == [SEED, "https://other.example/"]
    for field, value in {
        "strategy": "sitemap", "scope": "domain", "exclude": ["/private/"], "max_depth": 4, "robots": False,
        "max_body": 512 * 1024, "delay": 2.5, "user_agent": None, "max_pages": None, "fresh": False,
    }.items():  # fmt: skip
        assert order[field] == value, field


def test_a_job_has_a_crawl_of_its_own_unless_one_is_named(jobs: Jobs) -> None:
    own = jobs.json("submit", SEED)
    assert own["crawl"] == own["id"]
    name = f"named by {own['id']}"
    assert jobs.json("submit", SEED, "--crawl", name)["crawl"] == name
    second = jobs("submit", SEED, "--crawl", name)
    assert (second.returncode, second.stdout) == (ExitCode.REFUSED, "")
    assert "has a live job" in second.stderr


def test_an_idempotency_key_submits_once(jobs: Jobs) -> None:
    key = ("--idempotency-key", f"once in {jobs.folder}")
    assert jobs.submit(*key) == jobs.submit(*key)
    other = jobs("submit", "https://other.example", *key)
    assert other.returncode == ExitCode.REFUSED


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["submit"], "name at least one seed: outrider jobs submit https://example.org"),
        (["submit", "ftp://example.org"], "a seed is refused"),
        (["submit", SEED, "--strategy", "random"], "--strategy must be one of single, sitemap, recursive"),
        (["submit", SEED, "--label", "nothing"], "--label must be NAME=VALUE, not 'nothing'"),
        (["submit", SEED, "--label", "a=1", "--label", "a=2"], "--label a is there twice"),
        (["submit", SEED, "--max-pages", "0"], "--max-pages must be"),
        (["submit", SEED, "--webhook", "nonsense"], "webhook_url"),
        (["submit", SEED, "--webhook", "https://hooks.example/", "--webhook-secret", "short"], "webhook_secret"),
        (["submit", "http://127.0.0.1/"], "loopback"),
        (["list", "--status", "done"], "--status must be one of pending"),
        (["list", "--sort", "size"], "--sort must be one of newest"),
        (["set", "01999999-9999-7999-8999-999999999999"], "say what to change"),
        (["set", "01999999-9999-7999-8999-999999999999", "--max-pages", "many"], "--max-pages must be"),
        (["set", "01999999-9999-7999-8999-999999999999", "--delay", "none"], "--delay must be"),
        (["show", "01999999-9999-7999-8999-999999999999"], "there is no job 01999999"),
        (["watch", "01999999-9999-7999-8999-999999999999"], "there is no job 01999999"),
        (["results", "01999999-9999-7999-8999-999999999999"], "there is no job 01999999"),
    ],
)
def test_what_makes_no_sense_is_told(jobs: Jobs, arguments: list[str], told: str) -> None:
    jobs.submit()
    ended = jobs(*arguments)
    assert (ended.returncode, ended.stdout) == (ExitCode.REFUSED, "")
    assert ended.stderr.startswith("outrider: ")
    assert told in ended.stderr


def test_looking_creates_nothing(outrider: Outrider, tmp_path: Path) -> None:
    ended = outrider("jobs", "list", "--data", tmp_path / "none")
    assert ended.returncode == ExitCode.REFUSED
    assert "there are no jobs in" in ended.stderr
    assert not (tmp_path / "none").exists()


def test_a_service_decides_about_private_addresses_and_has_its_own_store(outrider: Outrider) -> None:
    service = ("--frontier", "http://127.0.0.1:9")
    assert "its own --allow-private" in outrider("jobs", "submit", SEED, "--allow-private", *service).stderr
    assert "exclude each other" in outrider("jobs", "list", "--store", "sqlite:///x", *service).stderr


def test_a_job_is_paused_resumed_and_cancelled(jobs: Jobs) -> None:
    job = jobs.submit()
    assert jobs.ok("pause", job) == f"{job}: paused\n"
    assert jobs.ok("resume", job) == f"{job}: pending\n"
    assert jobs.json("cancel", job)["status"] == "cancelled"
    late = jobs("resume", job)
    assert late.returncode == ExitCode.REFUSED
    assert "cancelled" in late.stderr


def test_a_job_that_runs_is_pausing_until_its_runner_has_stopped(jobs: Jobs) -> None:
    job = jobs.submit("--priority", "100")
    jobs.act(lambda stores: stores.control.claim_job("a supervisor"))
    assert jobs.ok("pause", job) == f"{job}: pausing\n"
    assert jobs.ok("list", "--limit", "1").splitlines()[1].split()[:2] == [job, "pausing"]


def test_a_failed_job_is_retried(jobs: Jobs) -> None:
    job = jobs.submit("--priority", "100")
    assert jobs("retry", job).returncode == ExitCode.REFUSED
    ending = JobEnding(outcome=JobStatus.FAILED, error_kind="bad_luck", error_message="a pity")
    assert jobs.run_and_end(ending).id == job
    assert "bad_luck: a pity" in jobs.ok("show", job)
    assert jobs.json("retry", job, "--fresh")["status"] == "pending"


def test_priority_and_limits_of_a_live_job_are_changed(jobs: Jobs) -> None:
    job = jobs.submit("--max-pages", "10", "--max-depth", "3")
    changed = jobs.json("set", job, "--priority", "7", "--max-pages", "20", "--max-depth", "none", "--delay", "0.5")
    assert (changed["priority"], changed["order"]["max_pages"]) == (7, 20)
    assert (changed["order"]["max_depth"], changed["order"]["delay"]) == (None, 0.5)
    told = jobs.ok("set", job, "--max-pages", "30")
    assert told == f"{job}: pending\npriority 7, recursive, scope host, max pages 30\n"
    jobs.ok("cancel", job)
    assert jobs("set", job, "--priority", "1").returncode == ExitCode.REFUSED


def test_a_list_is_filtered_sorted_and_cut(jobs: Jobs) -> None:
    source = ("--source", "a source")
    first, second, third = (
        jobs.submit(*source, "--priority", str(number), "--label", f"n={number}") for number in (5, 9, 1)
    )
    live = ("list", "--status", "pending")

    def listed(*words: str) -> list[str]:
        return [job["id"] for job in jobs.lines(*live, *words)]

    assert listed("--source", "a source") == [third, second, first]
    assert listed("--sort", "oldest") == [first, second, third]
    assert listed("--sort", "priority") == [second, first, third]
    assert listed("--label", "n=9") == [second]
    assert listed("--crawl", third) == [third]
    assert listed("--owner", "nobody") == []
    assert listed("--limit", "2") == [third, second]
    assert listed("--all") == [third, second, first]
    cut = jobs(*live, "--limit", "2")
    assert cut.stderr == "the first 2; --limit or --all shows more\n"
    assert jobs("list", "--label", "no=such").stderr == "no job is like that\n"


@pytest.mark.parametrize(
    ("ending", "code", "told"),
    [
        (JobEnding(outcome=JobStatus.COMPLETED, reason="drained"), ExitCode.NOTHING_FETCHED, "completed (drained)"),
        (
            JobEnding(outcome=JobStatus.FAILED, error_message="a pity"),
            ExitCode.FAILED,
            "failed: a pity",
        ),
    ],
)
def test_watching_ends_with_the_job_and_its_exit_code(jobs: Jobs, ending: JobEnding, code: ExitCode, told: str) -> None:
    job = jobs.submit("--priority", "100")
    later = threading.Timer(0.5, jobs.run_and_end, [ending])
    later.start()
    watched = jobs("watch", job)
    later.join()
    assert watched.returncode == code, watched
    lines = watched.stdout.splitlines()
    assert "submitted" in lines[0]
    assert any("pending → processing, by a supervisor" in line for line in lines)
    assert lines[-1].startswith(told)


def test_watching_a_job_that_was_cancelled_tells_so(jobs: Jobs) -> None:
    job = jobs.submit()
    jobs.ok("cancel", job)
    watched = jobs("watch", job, "--json")
    assert watched.returncode == ExitCode.CANCELLED
    events = [json.loads(line) for line in watched.stdout.splitlines()]
    assert [event["data"]["to_status"] for event in events if event["kind"] == "state"] == ["pending", "cancelled"]


def test_results_are_the_pages_of_the_crawl(outrider: Outrider, tmp_path: Path) -> None:
    site = crawl_a_small_site(tmp_path / "data")
    jobs = Jobs(outrider, site.data, ["--data", str(site.data)])
    job = jobs.submit("--crawl", "DEFAULT")
    results = jobs.ok("results", job).splitlines()
    exported = outrider("export", "--data", site.data).stdout.splitlines()
    assert [json.loads(line) for line in results] == [json.loads(line) for line in exported]
    last = json.loads(results[-3])["id"]
    assert jobs.ok("results", job, "--after", str(last)).splitlines() == results[-2:]
