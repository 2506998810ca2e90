"""Overrides: what an operator or a client sets for one queue, before or after its first URL."""

from outrider.model.errors import InvalidInput, shown
from outrider.model.gate import DEFAULT_BAND
from outrider.model.task import NEVER, QueueSettings
from outrider.policy.admission import key_problem
from outrider.policy.priority import band_of
from outrider.store.sql.script import Call, Script
from outrider.store.sql.urls import crawls


def configure_queue(name: str, key: str, settings: QueueSettings, now: int | None) -> Script[None]:
    """Set all overrides of a queue; None clears one."""
    problem = key_problem(key)
    if problem is not None:
        raise InvalidInput(f"cannot set a queue: {problem.detail}")
    for field, low, high in (
        ("delay_ms", 0, 2**31), ("blocked_until", 0, NEVER), ("page_limit", 0, 2**62),
        ("priority", -(2**31), 2**31),
    ):  # fmt: skip
        value = getattr(settings, field)
        if value is not None and (type(value) is not int or not low <= value < high):
            raise InvalidInput(f"{field} of a queue must be a whole number from {low}, not {shown(value)}")
    stored = yield from crawls.for_write(name)
    moment = yield from crawls.clock(now)
    band = DEFAULT_BAND if settings.priority is None else band_of(settings.priority)
    yield Call(
        "configure_queue",
        (
            stored.crawl_id, key, band, NEVER, moment, settings.delay_ms, settings.blocked_until or 0,
            settings.page_limit, settings.priority,
        ),
    )  # fmt: skip
