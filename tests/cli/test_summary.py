import io
import json
import os
import pty

import msgspec
import pytest

from outrider.cli.display import ProgressMode
from outrider.cli.exits import ExitCode, exit_code_of
from outrider.cli.summary import Summary, print_summary, summarise
from outrider.crawler.plan import CrawlPlan
from outrider.crawler.progress import CrawlEnding, DomainTrouble, Snapshot
from outrider.model.task import Counts

SNAPSHOT = Snapshot(
    crawl="DEFAULT", elapsed_s=192.4, counts=Counts(discovered=300, pending=5_646, completed=1_234, failed=12),
    completed_before=234, in_flight=0, fetched=1_260, pages_per_s=0.0, bytes_received=34_500_000,
    failures={"http 404": 12, "timeout": 3}, skipped={"out of scope": 120, "nofollow": 3}, slowest=[],
    troubles=[DomainTrouble(domain="example.org", reason="429, asked for 30 s", until=None, waiting=1_200)],
    next_ready_in_s=1_500, max_pages=1_000,
)  # fmt: skip
PLAN = CrawlPlan(seeds=("https://example.org/",), max_pages=1_000, output="pages.jsonl")
CLEAN = msgspec.structs.replace(SNAPSHOT, counts=Counts(completed=1_234), failures={}, skipped={}, troubles=[])


def summary_of(ending: CrawlEnding, snapshot: Snapshot = SNAPSHOT, plan: CrawlPlan = PLAN) -> Summary:
    return summarise(snapshot, ending, plan)


def printed(summary: Summary, mode: ProgressMode = ProgressMode.AUTO) -> str:
    stream = io.StringIO()
    print_summary(summary, mode, stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (CrawlEnding.DRAINED, 0),
        (CrawlEnding.LIMIT, 10),
        (CrawlEnding.WAITING, 11),
        (CrawlEnding.NOTHING_FETCHED, 12),
        (CrawlEnding.STOPPED, 13),
        (CrawlEnding.PAUSED, 14),
        (CrawlEnding.CANCELLED, 15),
    ],
)
def test_every_ending_has_an_exit_code_of_its_own(ending: CrawlEnding, code: int) -> None:
    assert exit_code_of(ending) == code
    assert summary_of(ending).exit_code == code


def test_no_ending_is_without_an_exit_code() -> None:
    codes = [exit_code_of(ending) for ending in CrawlEnding]
    assert len(set(codes)) == len(CrawlEnding)
    assert not set(codes) & {ExitCode.UNEXPECTED, ExitCode.USAGE, ExitCode.STORE, ExitCode.REFUSED}


def test_it_tells_what_was_fetched_what_was_not_and_where_it_is() -> None:
    text = printed(summary_of(CrawlEnding.LIMIT))
    for part in (
        "a limit on pages is reached",
        "1,000, and 234 before",
        "5,646 pending, 300 past a limit of depth or pages",
        "34.5 MB in 1,260 answers",
        "3 min 12 s, 5.2 pages/s",
        "failed tries",
        "http 404 (12), timeout (3)",
        "out of scope (120), nofollow (3)",
        "example.org: 429, asked for 30 s (1,200 waiting)",
        "outrider-data/warc",
        "pages.jsonl",
        "outrider-data/outrider.sqlite",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("ending", "step"),
    [
        (CrawlEnding.STOPPED, "run the same command again to resume"),
        (CrawlEnding.LIMIT, "raise --max-pages to go on"),
        (CrawlEnding.WAITING, "run the same command again in 25 min, or with a higher --max-wait"),
        (CrawlEnding.PAUSED, "run the same command again once the crawl is no longer paused"),
        (CrawlEnding.CANCELLED, "--fresh begins it anew"),
        (CrawlEnding.NOTHING_FETCHED, "outrider explain https://example.org/  # why"),
        (CrawlEnding.DRAINED, "raise --max-pages to fetch what is left over"),
    ],
)
def test_the_first_thing_to_do_next_follows_from_the_ending(ending: CrawlEnding, step: str) -> None:
    assert summary_of(ending).next_steps[0] == step


def test_failures_can_be_looked_at_and_retried() -> None:
    steps = "\n".join(summary_of(CrawlEnding.DRAINED).next_steps)
    assert "outrider urls --state failed" in steps
    assert "outrider retry-failed" in steps
    clean = summary_of(CrawlEnding.DRAINED, CLEAN).next_steps
    assert clean == ["outrider explain URL  # why a URL was or was not fetched"]


def test_a_command_to_run_next_finds_the_same_crawl() -> None:
    plan = CrawlPlan(data="my data", crawl="news", max_depth=3)
    steps = "\n".join(summary_of(CrawlEnding.LIMIT, plan=plan).next_steps)
    assert "outrider urls --data 'my data' --crawl news --state failed" in steps
    assert "raise --max-depth to go on" in steps


def test_passwords_are_hidden() -> None:
    summary = summary_of(CrawlEnding.LIMIT, plan=CrawlPlan(store="postgresql://me:secret@host/outrider", warc=False))
    assert "postgresql://me:***@host/outrider" in printed(summary)
    assert "secret" not in printed(summary) + printed(summary, ProgressMode.JSON)
    assert "WARC" not in printed(summary)


def test_a_clean_end_has_no_lines_about_trouble() -> None:
    text = printed(summary_of(CrawlEnding.DRAINED, CLEAN))
    assert "finished: nothing is left to fetch" in text
    for absent in ("failed tries", "links skipped", "waiting on"):
        assert absent not in text


def test_many_waiting_domains_are_told_as_a_number() -> None:
    troubles = [DomainTrouble(domain=f"d{n}.example", reason="dns", until=None, waiting=1) for n in range(40)]
    text = printed(summary_of(CrawlEnding.WAITING, msgspec.structs.replace(SNAPSHOT, troubles=troubles)))
    assert "and 35 more domains" in text
    assert "d30.example" not in text


def test_off_a_terminal_there_are_no_control_characters_and_no_folding() -> None:
    long_names = CrawlPlan(output="x" * 300 + ".jsonl")
    text = printed(summary_of(CrawlEnding.LIMIT, plan=long_names))
    assert "x" * 300 + ".jsonl" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_json_is_one_line_with_exact_numbers() -> None:
    text = printed(summary_of(CrawlEnding.WAITING), ProgressMode.JSON)
    told = json.loads(text)
    assert text.count("\n") == 1
    assert (told["event"], told["ending"], told["exit_code"]) == ("summary", "waiting", 11)
    assert (told["completed"], told["completed_now"], told["pending"]) == (1_234, 1_000, 5_646)


def test_without_progress_there_is_no_summary() -> None:
    assert printed(summary_of(CrawlEnding.LIMIT), ProgressMode.NONE) == ""


def test_on_a_narrow_terminal_the_table_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        print_summary(summary_of(CrawlEnding.LIMIT), ProgressMode.AUTO, stream)
        seen = os.read(ours, 100_000).decode()
    os.close(ours)
    plain = seen.replace("\x1b[1m", "").replace("\x1b[3m", "").replace("\x1b[0m", "")
    assert "\x1b" not in plain
    assert max(len(line) for line in plain.splitlines()) == 60


def test_a_crawl_does_not_fail_because_nobody_reads_its_summary() -> None:
    stream = io.StringIO()
    stream.close()
    print_summary(summary_of(CrawlEnding.LIMIT), ProgressMode.PLAIN, stream)
