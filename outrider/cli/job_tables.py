"""How jobs are printed: a line in a list, all that is known of one, and the same for programs."""

import time
from collections.abc import Mapping
from datetime import datetime

import msgspec

from outrider.cli.display import printable
from outrider.control.desk import JobView
from outrider.control.job_progress import JobProgress
from outrider.control.story import Fact
from outrider.control.wording import moment_and_distance, span
from outrider.model.job import Job, JobTransition
from outrider.model.machines import DesiredState, JobStatus
from outrider.service.http.job_wire import job_item

HEADINGS = ("job", "status", "done", "priority", "retries", "submitted", "crawl", "seeds")
NUMBERS = ("job", "done", "priority", "retries")
"""And what else is never folded: an id must be copied in one piece."""
SPARE = ("priority", "retries", "crawl")
WISHES = {DesiredState.PAUSE: "pausing", DesiredState.CANCEL: "cancelling"}
LIMITS = ("max_pages", "max_pages_per_domain", "max_depth")
MOST_SEEDS = 10


def job_record(job: Job) -> dict[str, object]:
    """Give a job for programs, as the service does: without its webhook's secret, which is nobody's to see."""
    record: dict[str, object] = msgspec.to_builtins(job_item(job))
    return record


def status_of(job: Job) -> str:
    """Say how a job stands, and what it was asked for where that is still to come."""
    wish = WISHES.get(job.desired_state) if job.status is JobStatus.PROCESSING else None
    if wish is not None:
        return wish
    return f"{job.status} ({job.reason})" if job.status is JobStatus.COMPLETED and job.reason else job.status.value


def row_of(job: Job) -> tuple[str, ...]:
    """Write a job as a row of a list."""
    return (
        job.id,
        status_of(job),
        f"{job.progress_percentage} %",
        str(job.priority),
        f"{job.retry_count}/{job.max_retries}",
        f"{span(max(time.time() - job.created_at.timestamp(), 0))} ago",
        "" if job.crawl == job.id else job.crawl,
        _seeds_in_short(job.payload),
    )


def _seeds_of(payload: Mapping[str, object]) -> list[str]:
    seeds = payload.get("seeds")
    return [str(seed) for seed in seeds] if isinstance(seeds, list | tuple) else []


def _seeds_in_short(payload: Mapping[str, object]) -> str:
    seeds = _seeds_of(payload)
    more = f" and {len(seeds) - 1:,} more" if len(seeds) > 1 else ""
    return f"{seeds[0]}{more}" if seeds else ""


def facts_of(view: JobView, progress: JobProgress) -> list[Fact]:
    """Say all that is known of a job; what is empty is left out."""
    job = view.job
    facts = [
        ("job", job.id),
        ("status", status_of(job)),
        ("progress", progress_line(progress)),
        ("now at", ", ".join(progress.domains)),
        ("waiting", _until(progress.waiting_until)),
        ("error", f"{job.error_kind}: {job.error_message}" if job.error_kind else job.error_message or ""),
        ("last error", (progress.last_error or "") if progress.last_error != job.error_message else ""),
        ("crawl", job.crawl),
        ("seeds", _seed_lines(job.payload)),
        ("order", order_line(job.payload)),
        ("priority", str(job.priority)),
        ("retries", f"{job.retry_count} of {job.max_retries}"),
        ("labels", "\n".join(f"{name}={value}" for name, value in job.labels.items())),
        ("source", job.source_id or ""),
        ("owner", job.user_id or ""),
        ("webhook", job.webhook_url or ""),
        ("due", _due(job)),
        ("last beat", _at(job.last_heartbeat) if job.status is JobStatus.PROCESSING else ""),
        ("runner", (job.worker_id or "") if job.status is JobStatus.PROCESSING else ""),
        ("history", "\n".join(map(step_line, view.history))),
    ]
    return [(name, text) for name, text in facts if text]


def progress_line(progress: JobProgress) -> str:
    """Say how far a job has come in one line."""
    of = "of the limit" if progress.percentage_of == "limit" else "of what is known"
    parts = [
        f"{progress.percentage} % {of}",
        f"{progress.done:,} done",
        f"{progress.pending:,} pending",
        f"{progress.in_flight:,} in flight",
        f"{progress.failed:,} failed",
    ]
    if progress.status is JobStatus.PROCESSING:
        parts.append(f"{progress.rate:.1f} pages/s")
    return ", ".join(parts)


def step_line(step: JobTransition) -> str:
    """Write a step of a job's history in one line."""
    came_from = "submitted" if step.from_status is None else f"{step.from_status} → {step.to_status}"
    note = f": {printable(step.note)}" if step.note else ""
    return f"{step.at:%Y-%m-%d %H:%M:%S} UTC  {came_from}, by {step.actor}{note}"


def _seed_lines(payload: Mapping[str, object]) -> str:
    seeds = _seeds_of(payload)
    more = [f"and {len(seeds) - MOST_SEEDS:,} more"] if len(seeds) > MOST_SEEDS else []
    return "\n".join(seeds[:MOST_SEEDS] + more)


def order_line(payload: Mapping[str, object]) -> str:
    """Say in short what was ordered: how pages are found, and the limits."""
    limits = [f"{name.replace('_', ' ')} {payload[name]:,}" for name in LIMITS if isinstance(payload.get(name), int)]
    return ", ".join([f"{payload.get('strategy', 'recursive')}", f"scope {payload.get('scope', 'host')}", *limits])


def _due(job: Job) -> str:
    is_late = job.status is JobStatus.PENDING and job.available_at.timestamp() > time.time()
    return _at(job.available_at) if is_late else ""


def _until(moment: datetime | None) -> str:
    return "" if moment is None else f"until {_at(moment)}"


def _at(moment: datetime | None) -> str:
    return "" if moment is None else moment_and_distance(int(moment.timestamp() * 1000), int(time.time() * 1000))
