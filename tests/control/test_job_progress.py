"""How far a job has come, from counts and from what its runner said."""

from datetime import UTC, datetime
from typing import Any

import pytest

from outrider.control.job_progress import progress_of
from outrider.model.job import Job
from outrider.model.machines import DesiredState, JobStatus
from outrider.model.task import Counts

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def job(status: JobStatus = JobStatus.PROCESSING, progress: Any = None, **fields: Any) -> Job:
    blank = dict.fromkeys(Job.__struct_fields__)
    known = {"id": "j", "crawl": "c", "payload": {}, "desired_state": DesiredState.RUN, "created_at": NOW}
    return Job(**{**blank, **known, "status": status, "progress": progress, **fields})


@pytest.mark.parametrize(
    ("counts", "max_pages", "percentage", "of"),
    [
        (Counts(), None, 0, "frontier"),
        (Counts(completed=3, failed=1, pending=4), None, 50, "frontier"),
        (Counts(completed=1, discovered=9), None, 10, "frontier"),
        (Counts(completed=5), None, 99, "frontier"),
        (Counts(completed=2, pending=100), 4, 50, "limit"),
        (Counts(completed=999), 1_000, 99, "limit"),
        (Counts(completed=9), 4, 99, "limit"),
        (Counts(failed=9), 4, 0, "limit"),
    ],
)
def test_a_percentage_is_of_the_limit_or_of_what_is_known(
    counts: Counts, max_pages: int | None, percentage: int, of: str
) -> None:
    progress = progress_of(job(), counts, max_pages)
    assert (progress.percentage, progress.percentage_of) == (percentage, of)


def test_only_a_completed_job_is_whole() -> None:
    assert progress_of(job(JobStatus.COMPLETED), Counts(completed=1, pending=5), 10).percentage == 100


def test_what_the_runner_said_counts_while_it_runs() -> None:
    said = {"rate": 2.5, "domains": ["a.example"], "last_error": "timeout", "waiting_until": NOW.isoformat()}
    running = progress_of(job(progress=said), Counts(), None)
    assert (running.rate, running.domains, running.waiting_until) == (2.5, ["a.example"], NOW)
    paused = progress_of(job(JobStatus.PAUSED, progress=said), Counts(), None)
    assert (paused.rate, paused.domains, paused.waiting_until) == (0.0, [], None)
    assert paused.last_error == "timeout"


@pytest.mark.parametrize("said", [None, {}, {"rate": "fast"}, {"domains": 3}, {"something": "else"}])
def test_what_a_runner_of_another_version_says_harms_nothing(said: Any) -> None:
    progress = progress_of(job(progress=said, error_message="broken"), Counts(completed=1), None)
    assert (progress.done, progress.rate, progress.last_error) == (1, 0.0, "broken")
