"""The three state machines as pure tables, and their drawings.

The tables are the whole truth: a step that is not in its table raises `InvalidTransition`, in the
model and, guarded by the row's state, in the stores.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from outrider.model.errors import InvalidTransition


class TaskState(StrEnum):
    """Where a task stands in its crawl."""

    DISCOVERED = "DISCOVERED"
    PENDING = "PENDING"
    ASSIGNED = "ASSIGNED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class DomainStatus(StrEnum):
    """Where a domain stands in its life."""

    PENDING = "pending"
    ACTIVE = "active"
    EXHAUSTED = "exhausted"
    BLOCKED = "blocked"
    UNREACHABLE = "unreachable"


class JobStatus(StrEnum):
    """What is true of a job; `DesiredState` is what its user asked for."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PAUSED = "paused"


class DesiredState(StrEnum):
    """What the user of a job asked for."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


State = TypeVar("State", bound=StrEnum)


class StateMachine(Generic[State]):
    """A named table of allowed steps, each with the event that causes it.

    >>> TASK.check(TaskState.PENDING, TaskState.ASSIGNED)
    >>> TASK.allows(TaskState.COMPLETED, TaskState.FAILED)
    False
    """

    def __init__(self, name: str, initial: State, steps: Mapping[tuple[State, State], str]) -> None:
        self.name = name
        self.initial = initial
        self.steps = dict(steps)
        self.states: tuple[State, ...] = tuple(type(initial))

    def allows(self, source: State, target: State) -> bool:
        """Tell whether the table has this step."""
        return (source, target) in self.steps

    def check(self, source: State, target: State) -> None:
        """Raise `InvalidTransition`, which names both states, unless the table has this step."""
        if (source, target) not in self.steps:
            raise InvalidTransition(self.name, source, target)

    def sources(self, target: State) -> tuple[State, ...]:
        """List the states from which `target` may be entered, for a store's guard."""
        return tuple(source for source, end in self.steps if end == target)

    def final_states(self) -> tuple[State, ...]:
        """List the states that no step leaves."""
        leaving = {source for source, _ in self.steps}
        return tuple(state for state in self.states if state not in leaving)

    def drawing(self) -> str:
        """Draw the table as a Mermaid state diagram."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [f"    {source} --> {target}: {event}" for (source, target), event in self.steps.items()]
        lines += [f"    {state} --> [*]" for state in self.final_states()]
        return "\n".join(lines)


TASK = StateMachine(
    "task",
    TaskState.DISCOVERED,
    {
        (TaskState.DISCOVERED, TaskState.PENDING): "scope, depth and budget passed",
        (TaskState.PENDING, TaskState.ASSIGNED): "leased",
        (TaskState.ASSIGNED, TaskState.COMPLETED): "artifact with http_status > 0",
        (TaskState.ASSIGNED, TaskState.PENDING): "lease expired, deferred, or failed with retries left",
        (TaskState.ASSIGNED, TaskState.FAILED): "failed with no retries left, refused, or poison",
        (TaskState.COMPLETED, TaskState.PENDING): "refresh schedule",
        (TaskState.FAILED, TaskState.PENDING): "operator's retry",
    },
)

DOMAIN = StateMachine(
    "domain",
    DomainStatus.PENDING,
    {
        (DomainStatus.PENDING, DomainStatus.ACTIVE): "crawl starts",
        (DomainStatus.PENDING, DomainStatus.UNREACHABLE): "connection fails",
        (DomainStatus.ACTIVE, DomainStatus.ACTIVE): "page crawled, or budget hit",
        (DomainStatus.ACTIVE, DomainStatus.EXHAUSTED): "nothing pending or assigned",
        (DomainStatus.ACTIVE, DomainStatus.BLOCKED): "errors exceed threshold",
        (DomainStatus.ACTIVE, DomainStatus.UNREACHABLE): "connection fails",
        (DomainStatus.EXHAUSTED, DomainStatus.PENDING): "refresh due",
        (DomainStatus.EXHAUSTED, DomainStatus.ACTIVE): "new work",
        (DomainStatus.BLOCKED, DomainStatus.PENDING): "cooldown expires",
        (DomainStatus.BLOCKED, DomainStatus.ACTIVE): "unblocked",
        (DomainStatus.UNREACHABLE, DomainStatus.PENDING): "long cooldown expires",
        (DomainStatus.UNREACHABLE, DomainStatus.ACTIVE): "reached again",
    },
)

JOB = StateMachine(
    "job",
    JobStatus.PENDING,
    {
        (JobStatus.PENDING, JobStatus.PROCESSING): "supervisor claims",
        (JobStatus.PENDING, JobStatus.PAUSED): "user pauses",
        (JobStatus.PENDING, JobStatus.CANCELLED): "user cancels",
        (JobStatus.PROCESSING, JobStatus.COMPLETED): "crawl complete",
        (JobStatus.PROCESSING, JobStatus.FAILED): "permanent error, or no retries left",
        (JobStatus.PROCESSING, JobStatus.PAUSED): "user pauses",
        (JobStatus.PROCESSING, JobStatus.CANCELLED): "user cancels",
        (JobStatus.PROCESSING, JobStatus.PENDING): "recovered, or transient error with retries left",
        (JobStatus.PAUSED, JobStatus.PENDING): "user resumes",
        (JobStatus.PAUSED, JobStatus.CANCELLED): "user cancels",
        (JobStatus.FAILED, JobStatus.PENDING): "user retries",
    },
)
