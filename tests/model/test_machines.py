"""The state machines: exactly the steps of the design, written down here a second time."""

from enum import StrEnum
from itertools import product
from typing import Any

import pytest

from outrider.model.errors import InvalidTransition, OutriderError
from outrider.model.machines import DOMAIN, JOB, TASK, StateMachine

ALLOWED: dict[str, dict[str, set[str]]] = {
    "task": {
        "DISCOVERED": {"PENDING"},
        "PENDING": {"ASSIGNED"},
        "ASSIGNED": {"COMPLETED", "PENDING", "FAILED"},
        "COMPLETED": {"PENDING"},
        "FAILED": {"PENDING"},
    },
    "domain": {
        "pending": {"active", "unreachable"},
        "active": {"active", "exhausted", "blocked", "unreachable"},
        "exhausted": {"pending", "active"},
        "blocked": {"pending", "active"},
        "unreachable": {"pending", "active"},
    },
    "job": {
        "pending": {"processing", "paused", "cancelled"},
        "processing": {"completed", "failed", "paused", "cancelled", "pending"},
        "paused": {"pending", "cancelled"},
        "failed": {"pending"},
        "completed": set(),
        "cancelled": set(),
    },
}

MACHINES: tuple[StateMachine[Any], ...] = (TASK, DOMAIN, JOB)
PAIRS = [
    pytest.param(machine, source, target, id=f"{machine.name}: {source} to {target}")
    for machine in MACHINES
    for source, target in product(machine.states, repeat=2)
]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_a_machine_has_the_states_of_the_design(machine: StateMachine[Any]) -> None:
    """Invariant 9, Jobs, and the machines of task and domain: no state more, none less."""
    assert set(machine.states) == set(ALLOWED[machine.name])


@pytest.mark.parametrize(("machine", "source", "target"), PAIRS)
def test_a_step_is_allowed_only_if_the_design_has_it(
    machine: StateMachine[Any], source: StrEnum, target: StrEnum
) -> None:
    """Invariant 9, Jobs, and the machines of task and domain: any other step names both states."""
    if target in ALLOWED[machine.name][source]:
        assert machine.allows(source, target)
        machine.check(source, target)
        return
    assert not machine.allows(source, target)
    with pytest.raises(InvalidTransition) as caught:
        machine.check(source, target)
    assert isinstance(caught.value, OutriderError)
    assert str(caught.value) == f"a {machine.name} cannot go from {source} to {target}"
    assert (caught.value.machine, caught.value.source, caught.value.target) == (machine.name, source, target)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_sources_are_the_states_from_which_a_state_may_be_entered(machine: StateMachine[Any]) -> None:
    """Invariant 9, Jobs, and the machines of task and domain: a store's guard asks for these."""
    allowed = ALLOWED[machine.name]
    for target in machine.states:
        assert set(machine.sources(target)) == {source for source in allowed if target in allowed[source]}


@pytest.mark.parametrize(
    ("machine", "initial", "final"),
    [(TASK, "DISCOVERED", set()), (DOMAIN, "pending", set()), (JOB, "pending", {"completed", "cancelled"})],
    ids=lambda value: getattr(value, "name", ""),
)
def test_where_a_machine_begins_and_ends(machine: StateMachine[Any], initial: str, final: set[str]) -> None:
    """Invariant 9, Jobs: a terminal state changes only by an explicit retry."""
    assert machine.initial == initial
    assert set(machine.final_states()) == final


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_a_drawing_shows_every_step_once_with_its_event(machine: StateMachine[Any]) -> None:
    lines = machine.drawing().splitlines()
    assert lines[:2] == ["stateDiagram-v2", f"    [*] --> {machine.initial}"]
    for (source, target), event in machine.steps.items():
        assert event
        assert lines.count(f"    {source} --> {target}: {event}") == 1
    assert len(lines) == 2 + len(machine.steps) + len(machine.final_states())
