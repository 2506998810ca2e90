"""Invariant 6, Counts are exact: counting the rows anew, past the store."""

from collections import Counter, defaultdict

from outrider.model.url import locate
from tests.conformance.backends import Place

DISCOVERED, PENDING, ASSIGNED, COMPLETED, FAILED = range(5)

CountRows = dict[tuple[object, ...], tuple[int, ...]]


async def check_counts(place: Place) -> None:
    """Check every count against the tasks that it counts, and the leases against what is ASSIGNED."""
    kept, counted = await _kept(place), await _counted(place)
    wrong = {
        scope: f"kept {kept.get(scope)}, counted {counted.get(scope)}"
        for scope in kept.keys() | counted.keys()
        if kept.get(scope) != counted.get(scope)
    }
    assert not wrong, f"by crawl, key, domain, kind: {wrong}"
    await _check_leases(place)


async def _kept(place: Place) -> CountRows:
    rows = await place.backend.query(
        place.dsn,
        """SELECT crawl_id, key, domain, kind, sum(discovered), sum(pending), sum(assigned), sum(completed),
                  sum(failed) FROM counts GROUP BY crawl_id, key, domain, kind""",
    )
    kept = {tuple(row[:4]): tuple(int(str(number)) for number in row[4:]) for row in rows}
    return {scope: numbers for scope, numbers in kept.items() if any(numbers)}


async def _counted(place: Place) -> CountRows:
    counted: defaultdict[tuple[object, ...], Counter[object]] = defaultdict(Counter)
    rows = await place.backend.query(place.dsn, "SELECT crawl_id, key, url, kind, state FROM tasks")
    for crawl_id, key, url, kind, state in rows:
        counted[crawl_id, key, locate(str(url)).domain, kind][state] += 1
        counted[crawl_id, "", "", kind][state] += 1
    return {scope: tuple(numbers[state] for state in range(5)) for scope, numbers in counted.items()}


async def _check_leases(place: Place) -> None:
    leased = await place.backend.query(place.dsn, "SELECT crawl_id, key, hash FROM leases")
    assigned = await place.backend.query(place.dsn, f"SELECT crawl_id, key, hash FROM tasks WHERE state = {ASSIGNED}")
    assert sorted(leased, key=repr) == sorted(assigned, key=repr), "leases and ASSIGNED tasks must be the same"
