"""What becomes of a job, as it happens: its steps, each once and in order, and its progress in between."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Literal

import msgspec

from outrider.control.job_progress import JobProgress
from outrider.model.job import TERMINAL, Job, JobTransition
from outrider.store.protocols import ControlStore

EVERY_S: Final = 0.5
"""How often the store is asked for steps, which are a few rows of an index."""
PROGRESS_EVERY_S: Final = 1.0
AT_ONCE: Final = 100


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is told of a job."""

    kind: Literal["state", "progress"]
    id: int | None
    """Of a step, its number in the job's history: whoever names it goes on after it. Progress has none: the latest is
    all that counts."""
    data: dict[str, object]
    """A `JobTransition` or a `JobProgress`, as JSON has it."""


async def follow(
    control: ControlStore, job: Job, after: int, progress: Callable[[], Awaitable[JobProgress]]
) -> AsyncIterator[JobEvent]:
    """Tell every step of a job after one, and its progress, until it has ended; its last step comes last."""
    told: JobProgress | None = None
    due, status = 0.0, job.status
    while True:
        steps = await control.job_events(job.id, after=after, limit=AT_ONCE)
        may_be_more = len(steps) == AT_ONCE
        if steps:
            after, status = steps[-1].sequence, steps[-1].to_status
        is_over = status in TERMINAL and not may_be_more
        if is_over and not steps:
            return
        last = steps.pop() if is_over else None
        for step in steps:
            yield _state(step)
        if is_over or time.monotonic() >= due:
            now = await progress()
            status = now.status  # no step may follow the one that the client named, of another store or of an older one
            due = time.monotonic() + PROGRESS_EVERY_S
            if now != told:
                told = now
                yield JobEvent(kind="progress", id=None, data=msgspec.to_builtins(now))
        if last is not None:
            yield _state(last)
            return
        if not may_be_more:
            await asyncio.sleep(EVERY_S)


def _state(step: JobTransition) -> JobEvent:
    return JobEvent(kind="state", id=step.sequence, data=msgspec.to_builtins(step))
