"""What becomes of a job, as it happens: its steps, each once and in order, and its progress in between."""

from typing import Final, Literal

import msgspec

EVERY_S: Final = 0.5
"""How often the store is asked for steps; a job takes minutes, and a step is one row of an index."""


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is told of a job."""

    kind: Literal["state", "progress"]
    id: int | None
    """Of a step, its number in the job's history: whoever names it goes on after it. Progress has none: the latest is
    all that counts."""
    data: dict[str, object]
    """A `JobTransition` or a `JobProgress`, as JSON has it."""
