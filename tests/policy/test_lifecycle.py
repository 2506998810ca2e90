"""Lifecycle: events and steps agree with the domain's state machine."""

from itertools import pairwise, product

import pytest

from outrider.model.errors import InvalidTransition
from outrider.model.machines import DOMAIN, DomainStatus
from outrider.policy import lifecycle
from outrider.policy.lifecycle import STEPS, DomainEvent


def test_every_event_has_its_line_in_the_table() -> None:
    assert STEPS.keys() == set(DomainEvent)


def test_events_make_exactly_the_steps_of_the_machine() -> None:
    """No event can make a step that the machine does not have, and none of its steps is without a cause."""
    steps = {step for line in STEPS.values() for step in line.items()}
    assert steps == DOMAIN.steps.keys()


@pytest.mark.parametrize(
    ("event", "before", "after"),
    [
        ("crawl_starts", "pending", "active"),
        ("page_crawled", "active", "active"),
        ("page_crawled", "unreachable", "active"),
        ("page_crawled", "blocked", "blocked"),
        ("image_stored", "active", "active"),
        ("budget_hit", "active", "active"),
        ("all_done", "active", "exhausted"),
        ("all_done", "pending", "pending"),
        ("errors_exceed", "active", "blocked"),
        ("connection_fails", "active", "unreachable"),
        ("connection_fails", "pending", "unreachable"),
        ("cooldown_expires", "blocked", "pending"),
        ("cooldown_expires", "unreachable", "pending"),
        ("cooldown_expires", "active", "active"),
        ("refresh_due", "exhausted", "pending"),
        ("new_work", "exhausted", "active"),
        ("unblocked", "blocked", "active"),
        ("unblocked", "unreachable", "active"),
    ],
)
def test_what_an_event_makes_of_a_domain(event: str, before: str, after: str) -> None:
    assert lifecycle.after(DomainEvent(event), DomainStatus(before)) is DomainStatus(after)


@pytest.mark.parametrize("status", list(DomainStatus))
def test_being_listed_again_changes_nothing(status: DomainStatus) -> None:
    """A seed list that names a blocked or exhausted domain does not have it crawled again."""
    assert lifecycle.after(DomainEvent.SEEDED, status) is status


@pytest.mark.parametrize(("source", "target"), list(product(DomainStatus, repeat=2)))
def test_a_path_is_made_of_steps_of_the_machine(source: DomainStatus, target: DomainStatus) -> None:
    try:
        path = lifecycle.path(source, target)
    except InvalidTransition:
        via_active = DOMAIN.allows(source, DomainStatus.ACTIVE) and DOMAIN.allows(DomainStatus.ACTIVE, target)
        assert not DOMAIN.allows(source, target)
        assert not via_active
        return
    assert path[-1] is target
    assert all(DOMAIN.allows(one, next_one) for one, next_one in pairwise((source, *path)))


@pytest.mark.parametrize("source", ["pending", "active", "exhausted"])
@pytest.mark.parametrize("target", ["blocked", "unreachable"])
def test_whatever_is_being_crawled_can_be_given_up(source: str, target: str) -> None:
    assert lifecycle.path(DomainStatus(source), DomainStatus(target))[-1] == target
