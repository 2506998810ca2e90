"""How a watched job looks, and the exit code of how it ended."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from rich.console import Console

from outrider.cli.exits import ExitCode
from outrider.cli.job_desk import Place
from outrider.cli.job_tables import progress_line, status_of, step_line
from outrider.cli.job_watch import Pace, exit_code_of, picture
from outrider.control.job_progress import JobProgress
from outrider.model.job import Job, JobTransition
from outrider.model.machines import DesiredState, JobStatus

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def job(**fields: Any) -> Job:
    nothing = dict.fromkeys(Job.__struct_fields__)
    return Job(**{**nothing, "id": "j", "crawl": "j", "desired_state": DesiredState.RUN, "payload": {}, **fields})


def progress(**fields: Any) -> JobProgress:
    known = JobProgress(
        job_id="j", crawl="j", status=JobStatus.PROCESSING, done=120, failed=3, pending=1_000, in_flight=8, rate=12.34,
        percentage=10, percentage_of="limit", domains=["a.example", "b.example"], last_error=None, waiting_until=None,
        last_heartbeat=AT,
    )  # fmt: skip
    return msgspec.structs.replace(known, **fields)


def drawn(known: JobProgress) -> str:
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(picture(known, AT.timestamp()))
    return captured.get()


@pytest.mark.parametrize(
    ("status", "reason", "done", "code"),
    [
        (JobStatus.COMPLETED, "drained", 5, ExitCode.OK),
        (JobStatus.COMPLETED, "drained", 0, ExitCode.NOTHING_FETCHED),
        (JobStatus.COMPLETED, "limit", 5, ExitCode.LIMIT),
        (JobStatus.COMPLETED, "waiting", 5, ExitCode.WAITING),
        (JobStatus.FAILED, None, 5, ExitCode.FAILED),
        (JobStatus.CANCELLED, None, 5, ExitCode.CANCELLED),
    ],
)
def test_the_exit_code_says_how_a_job_ended(status: JobStatus, reason: str | None, done: int, code: ExitCode) -> None:
    assert exit_code_of(job(status=status, reason=reason), done) is code


def test_a_picture_tells_numbers_share_and_domains() -> None:
    told = drawn(progress())
    for text in ("processing", "12.3 pages/s", "120 done", "1,000 pending", "8 in flight", "3 failed"):
        assert text in told
    assert "10 % of the limit" in told
    assert "a.example, b.example" in told


def test_a_picture_tells_what_is_waited_for_and_what_went_wrong_last() -> None:
    later = datetime.fromtimestamp(AT.timestamp() + 90, UTC)
    told = drawn(progress(percentage_of="frontier", waiting_until=later, last_error="no\x1b[31mroute"))
    assert "of what is known so far" in told
    assert "next page in 1 min 30 s" in told
    assert "no [31mroute" in told, "control characters of others are not for a terminal"


def test_the_rate_is_that_of_the_last_seconds_as_they_were_seen() -> None:
    pace = Pace()
    assert pace.observe(progress(done=0, rate=1.5), 100.0).rate == 1.5, "nothing else is known yet"
    assert pace.observe(progress(done=10), 102.0).rate == 5.0
    assert pace.observe(progress(done=10), 105.0).rate == 2.0
    assert pace.observe(progress(done=110), 115.0).rate == 10.0, "what is older than ten seconds does not count"
    assert pace.observe(progress(status=JobStatus.PAUSED, rate=0.0), 116.0).rate == 0.0
    assert pace.observe(progress(done=200, rate=0.5), 200.0).rate == 0.5


def test_the_ordinary_pause_between_two_requests_is_no_waiting() -> None:
    assert "waiting" not in drawn(progress(waiting_until=datetime.fromtimestamp(AT.timestamp() + 0.5, UTC)))


def test_a_job_that_does_not_run_has_no_rate() -> None:
    assert "pages/s" in progress_line(progress())
    assert "pages/s" not in progress_line(progress(status=JobStatus.PAUSED))


@pytest.mark.parametrize(
    ("status", "desired", "reason", "told"),
    [
        (JobStatus.PROCESSING, DesiredState.RUN, None, "processing"),
        (JobStatus.PROCESSING, DesiredState.PAUSE, None, "pausing"),
        (JobStatus.PROCESSING, DesiredState.CANCEL, None, "cancelling"),
        (JobStatus.PAUSED, DesiredState.PAUSE, None, "paused"),
        (JobStatus.CANCELLED, DesiredState.CANCEL, None, "cancelled"),
        (JobStatus.COMPLETED, DesiredState.RUN, "limit", "completed (limit)"),
    ],
)
def test_a_wish_is_told_until_it_is_true(
    status: JobStatus, desired: DesiredState, reason: str | None, told: str
) -> None:
    assert status_of(job(status=status, desired_state=desired, reason=reason)) == told


def test_a_step_is_one_line() -> None:
    step = JobTransition(
        job_id="j", from_status=JobStatus.PROCESSING, to_status=JobStatus.PENDING, epoch=2, actor="watchdog",
        note="silent\nfor long", at=AT, sequence=7,
    )  # fmt: skip
    assert step_line(step) == "2026-01-02 03:04:05 UTC  processing → pending, by watchdog: silent for long"


def test_a_command_to_repeat_names_the_same_place_and_no_secret() -> None:
    assert Place().command("jobs", "watch", "j") == "outrider jobs watch j"
    assert Place(data="my data").command("jobs", "watch", "j") == "outrider jobs watch j --data 'my data'"
    stored = Place(store="postgresql://me:secret@db/x").command("jobs", "list")
    assert stored == "outrider jobs list --store 'postgresql://me:***@db/x'"
    assert Place(frontier="https://f.example", key="outrider_1").command("jobs", "list") == (
        "outrider jobs list --frontier https://f.example"
    )
