"""Counts: every change of state, gathered over a transaction and written once at its end."""

from collections import defaultdict

from outrider.model.machines import TaskState
from outrider.store.sql.script import Call, Script

STATES = tuple(TaskState)
"""The order of the count columns; a state's number in the tables is its place here."""

NUMBER = {state: number for number, state in enumerate(STATES)}
DISCOVERED, PENDING, ASSIGNED, COMPLETED, FAILED = range(len(STATES))

Scope = tuple[int, str, str, int]
"""Crawl, key, domain, kind. The crawl's own sum has an empty key and domain."""


class CountChanges:
    """What a transaction did to the counts.

    >>> changes = CountChanges()
    >>> changes.add((1, "a.org", "a.org", 0), PENDING, 2)
    >>> changes.move((1, "a.org", "a.org", 0), PENDING, ASSIGNED)
    >>> changes.rows(slot=0)
    [(1, '', '', 0, 0, 0, 1, 1, 0, 0), (1, 'a.org', 'a.org', 0, 0, 0, 1, 1, 0, 0)]
    """

    def __init__(self) -> None:
        self._changes: defaultdict[Scope, list[int]] = defaultdict(lambda: [0] * len(STATES))
        self._pages: defaultdict[tuple[str, str], int] = defaultdict(int)

    def add(self, scope: Scope, state: int, number: int = 1) -> None:
        """Count tasks that came to be in this state, or with a negative number ceased to be."""
        self._changes[scope][state] += number

    def move(self, scope: Scope, source: int, target: int) -> None:
        """Count one task that went from one state to another."""
        change = self._changes[scope]
        change[source] -= 1
        change[target] += 1

    def page_done(self, run_id: str, domain: str) -> None:
        """Count one completed page towards a run's budget for its domain."""
        self._pages[run_id, domain] += 1

    def rows(self, slot: int) -> list[tuple[int | str, ...]]:
        """Give the changes with the sums of their crawls, in the order in which rows are locked."""
        crawls: defaultdict[Scope, list[int]] = defaultdict(lambda: [0] * len(STATES))
        for (crawl_id, _, _, kind), change in self._changes.items():
            total = crawls[crawl_id, "", "", kind]
            for number, difference in enumerate(change):
                if difference:
                    total[number] += difference
        # Sums first: what is in order already is sorted in no time.
        scopes = [item for group in (crawls, self._changes) for item in group.items() if any(item[1])]
        return [(*scope, slot, *change) for scope, change in sorted(scopes)]

    def write_sums_only(self, slot: int) -> Script[None]:
        """Write the sums of the crawls, where the rows of their queues are gone."""
        yield Call("add_counts", (), [row for row in self.rows(slot) if row[1] == ""])

    def write(self, slot: int) -> Script[None]:
        """Write everything, as the last thing that a transaction does."""
        yield Call("add_counts", (), self.rows(slot))
        if self._pages:
            pages = [(run_id, domain, slot, number) for (run_id, domain), number in sorted(self._pages.items())]
            yield Call("add_run_counts", (), pages)
