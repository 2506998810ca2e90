"""Counts: every change of state and what is counted of domains, gathered over a transaction and written at its end."""

from collections import defaultdict

from outrider.model.machines import TaskState
from outrider.store.sql.script import Call, Script

STATES = tuple(TaskState)
"""The order of the count columns; a state's number in the tables is its place here."""

NUMBER = {state: number for number, state in enumerate(STATES)}
DISCOVERED, PENDING, ASSIGNED, COMPLETED, FAILED = range(len(STATES))
IMAGES, ERRORS, DEPTH = range(len(STATES), len(STATES) + 3)
"""What stands behind the states: two sums, and how deep somebody has come."""
COLUMNS = len(STATES) + 3

Scope = tuple[int, str, str, int]
"""Crawl, key, domain, kind. The crawl's own sum has an empty key and domain."""


class CountChanges:
    """What a transaction did to the counts.

    >>> changes = CountChanges()
    >>> changes.add((1, "a.org", "a.org", 0), PENDING, 2)
    >>> changes.move((1, "a.org", "a.org", 0), PENDING, ASSIGNED)
    >>> changes.rows(slot=0, changed_at=7)  # doctest: +NORMALIZE_WHITESPACE
    [(1, '', '', 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 7), (1, 'a.org', 'a.org', 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 7)]
    """

    def __init__(self) -> None:
        self._changes: defaultdict[Scope, list[int]] = defaultdict(lambda: [0] * COLUMNS)
        self._pages: defaultdict[tuple[str, str], int] = defaultdict(int)

    def add(self, scope: Scope, state: int, number: int = 1) -> None:
        """Count tasks that came to be in this state, or with a negative number ceased to be."""
        self._changes[scope][state] += number

    def move(self, scope: Scope, source: int, target: int) -> None:
        """Count one task that went from one state to another."""
        change = self._changes[scope]
        change[source] -= 1
        change[target] += 1

    def answered(self, scope: Scope, *, images: int, error: bool, depth: int) -> None:
        """Count what one answer says of its domain."""
        change = self._changes[scope]
        change[IMAGES] += images
        change[ERRORS] += error
        if depth > change[DEPTH]:
            change[DEPTH] = depth

    def page_done(self, run_id: str, domain: str) -> None:
        """Count one completed page towards a run's budget for its domain."""
        self._pages[run_id, domain] += 1

    def has_more(self) -> set[str]:
        """Tell of which domains more tasks are PENDING than before, so that there must be one."""
        return {scope[2] for scope, change in self._changes.items() if change[PENDING] > 0}

    def rows(self, slot: int, changed_at: int = 0) -> list[tuple[int | str, ...]]:
        """Give the changes with the sums of their crawls, in the order in which rows are locked."""
        crawls: defaultdict[Scope, list[int]] = defaultdict(lambda: [0] * COLUMNS)
        for (crawl_id, _, _, kind), change in self._changes.items():
            total = crawls[crawl_id, "", "", kind]
            for number, difference in enumerate(change):
                if difference:
                    total[number] = max(total[number], difference) if number == DEPTH else total[number] + difference
        # Sums first: what is in order already is sorted in no time.
        scopes = [item for group in (crawls, self._changes) for item in group.items() if any(item[1])]
        return [(*scope, slot, *change, changed_at) for scope, change in sorted(scopes)]

    def write_sums_only(self, slot: int) -> Script[None]:
        """Write the sums of the crawls, where the rows of their queues are gone."""
        yield Call("add_counts", (), [row for row in self.rows(slot) if row[1] == ""])

    def write(self, slot: int, changed_at: int = 0) -> Script[list[tuple[str, str]]]:
        """Write everything, as the last thing that a transaction does but for the lives of domains.

        `changed_at` is when what is left to do became more or less; 0 where it did not. Gives the runs and domains of
        which these are the first pages.
        """
        yield Call("add_counts", (), self.rows(slot, changed_at))
        if not self._pages:
            return []
        pages = [(run_id, domain, slot, number) for (run_id, domain), number in sorted(self._pages.items())]
        counted = yield Call("add_run_counts", (), pages)
        return [
            (str(run_id), domain) for run_id, domain, number in counted if number == self._pages[str(run_id), domain]
        ]
