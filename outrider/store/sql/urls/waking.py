"""Waking queues: what a transaction learnt about them, written once, in one order of locks.

`queues.ready_at` is the later of two lower bounds: `tasks_due_at`, when the first task may be due, and
`gate_opens_at`, when the domain may let somebody in. Whoever makes work or opens a gate lowers them;
only `lease`, which has looked, raises them.
"""

from typing import NamedTuple

from outrider.model.task import NEVER
from outrider.store.sql.script import Call, Script, Value

QueueKey = tuple[int, str]

LIMITED = NEVER - 1
"""The `gate_opens_at` of a queue that has used up a limit."""


class _Wake(NamedTuple):
    due_at: int = NEVER
    renamed: bool = False
    domain: str | None = None
    opens_at: int | None = None


class Wakes:
    """The queues that a transaction has news for."""

    def __init__(self) -> None:
        self._wakes: dict[QueueKey, _Wake] = {}
        self._opened: dict[str, int] = {}
        self._freed: set[QueueKey] = set()

    def task_due(self, queue: QueueKey, due_at: int) -> None:
        """Say that a queue has a task that is due then."""
        wake = self._wakes.get(queue)
        if wake is None:
            self._wakes[queue] = _Wake(due_at)
        elif due_at < wake.due_at:
            self._wakes[queue] = wake._replace(due_at=due_at)

    def name(self, queue: QueueKey, domain: str | None) -> None:
        """Say that a queue's tasks are all of this domain, or of several: it has other gates than before."""
        self._wakes[queue] = self._wakes.get(queue, _Wake())._replace(renamed=True, domain=domain, opens_at=0)

    def gate_opens(self, domain: str, opens_at: int) -> None:
        """Say that every queue of a domain, in any crawl, may be served then."""
        self._opened[domain] = min(opens_at, self._opened.get(domain, opens_at))

    def page_freed(self, queue: QueueKey) -> None:
        """Say that a page in flight did not come about, which leaves room below a queue's limit.

        A queue of one domain is woken by its gate; one of several domains knows no gate to be woken by.
        """
        self._freed.add(queue)

    def write(self) -> Script[None]:
        """Write everything, just before the counts."""
        if self._opened:
            waiting = yield Call("queues_behind_gates", (), sorted(self._opened.items()))
            for crawl_id, key, domain in waiting:
                self._open((crawl_id, key), self._opened[domain])
        if self._freed:
            for crawl_id, key in (yield Call("mixed_at_limit", (), sorted(self._freed))):
                self._open((crawl_id, key), 0)
        rows: list[tuple[Value, ...]] = [(*queue, *wake) for queue, wake in sorted(self._wakes.items())]
        yield Call("wake_queues", (), rows)

    def _open(self, queue: QueueKey, opens_at: int) -> None:
        wake = self._wakes.get(queue, _Wake())
        earliest = opens_at if wake.opens_at is None else min(opens_at, wake.opens_at)
        self._wakes[queue] = wake._replace(opens_at=earliest)
