"""Crawls: creating them, finding them, changing what may be changed."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from outrider.model.errors import CrawlConflict, InvalidInput, UnknownCrawl, shown
from outrider.model.task import MAX_KEY_CHARACTERS, Crawl, CrawlLimits, CrawlRules, CrawlState, KeyRule
from outrider.model.url import locate
from outrider.policy.admission import storable
from outrider.store.checks import check_choice, check_now
from outrider.store.sql.script import Call, Row, Script


class StoredCrawl(NamedTuple):
    """A crawl with the number under which its rows are kept."""

    crawl_id: int
    crawl: Crawl
    limited_run: str | None
    """Whose budgets the queues stand at that have used up a limit; see `lease`."""


def decoded(row: Row) -> StoredCrawl:
    """Read a row of `crawls`."""
    return StoredCrawl(
        row[0],
        Crawl(
            name=row[1],
            state=CrawlState(row[2]),
            rules=CrawlRules(key_rule=KeyRule(row[3]), strip_tracking=bool(row[4]), sort_query=bool(row[5])),
            limits=CrawlLimits(
                max_depth=row[6],
                max_pages=row[7],
                max_pages_per_domain=row[8],
                delay_ms=row[9],
                concurrency=row[10],
                robots=bool(row[11]),
            ),
            created_at=row[12],
            conduct=None if row[14] is None else msgspec.json.decode(row[14]),
        ),
        None if row[13] is None else str(row[13]),
    )


def clock(now: int | None) -> Script[int]:
    """Tell the time: the caller's where one is given, else the store's own."""
    if now is not None:
        check_now(now)
        return now
    rows = yield Call("clock")
    return int(rows[0][0])


def create(name: str, rules: CrawlRules, limits: CrawlLimits | None, now: int | None) -> Script[Crawl]:
    """Create a crawl, or find the one that is there: its rules must be the same.

    Limits are set where they are given; an existing crawl keeps its own where they are not.
    """
    if not isinstance(name, str) or not storable(name) or not 0 < len(name) <= MAX_KEY_CHARACTERS:
        raise InvalidInput(f"a crawl's name has 1 to {MAX_KEY_CHARACTERS} characters, not {shown(name)}")
    check_rules(rules)
    chosen = check_limits(limits or CrawlLimits())
    moment = yield from clock(now)
    made = yield Call(
        "insert_crawl",
        (
            name, rules.key_rule.value, rules.strip_tracking, rules.sort_query, chosen.max_depth,
            chosen.max_pages, chosen.max_pages_per_domain, chosen.delay_ms, chosen.concurrency,
            chosen.robots, moment,
        ),
    )  # fmt: skip
    if made:
        return decoded(made[0]).crawl
    stored = yield from for_write(name)
    if stored.crawl.rules != rules:
        raise CrawlConflict(
            f"crawl {name!r} exists with other rules ({stored.crawl.rules}), which are fixed at its creation"
        )
    if limits is None:
        return stored.crawl
    return (yield from set_limits(name, limits))


def check_rules(rules: CrawlRules) -> None:
    """Refuse rules that are none."""
    if not isinstance(rules.key_rule, KeyRule):
        raise InvalidInput(f"key_rule must be one of {', '.join(KeyRule)}, not {shown(rules.key_rule)}")
    for field in ("strip_tracking", "sort_query"):
        if type(getattr(rules, field)) is not bool:
            raise InvalidInput(f"{field} must be true or false, not {shown(getattr(rules, field))}")


def check_limits(limits: CrawlLimits) -> CrawlLimits:
    """Refuse limits that no crawl could run with."""
    for field in ("max_depth", "max_pages", "max_pages_per_domain", "delay_ms"):
        value = getattr(limits, field)
        if value is not None and (type(value) is not int or not 0 <= value < 2**31):
            raise InvalidInput(f"{field} must be a whole number from 0 to {2**31 - 1}, not {shown(value)}")
    if type(limits.concurrency) is not int or not 1 <= limits.concurrency < 2**31:
        raise InvalidInput(f"concurrency must be a whole number from 1, not {shown(limits.concurrency)}")
    if type(limits.robots) is not bool:
        raise InvalidInput(f"robots must be true or false, not {shown(limits.robots)}")
    return limits


def nameable(name: str) -> str:
    """Give a name back, unless no crawl can have it."""
    if not isinstance(name, str) or not storable(name):
        raise UnknownCrawl(name)
    return name


def find(name: str) -> Script[StoredCrawl]:
    """Find a crawl by its name."""
    rows = yield Call("crawl_by_name", (nameable(name),))
    if not rows:
        raise UnknownCrawl(name)
    return decoded(rows[0])


def for_write(name: str) -> Script[StoredCrawl]:
    """Find a crawl and keep it from being deleted until the transaction ends."""
    rows = yield Call("crawl_for_write", (nameable(name),))
    if not rows:
        raise UnknownCrawl(name)
    return decoded(rows[0])


def alone(name: str) -> Script[StoredCrawl]:
    """Find a crawl and keep everybody else from writing to it until the transaction ends."""
    rows = yield Call("crawl_alone", (nameable(name),))
    if not rows:
        raise UnknownCrawl(name)
    return decoded(rows[0])


def list_all() -> Script[list[Crawl]]:
    """List all crawls by name."""
    rows = yield Call("list_crawls")
    return [decoded(row).crawl for row in rows]


def set_state(name: str, state: CrawlState) -> Script[Crawl]:
    """Run, pause or cancel a crawl: `lease` checks it."""
    rows = yield Call("set_crawl_state", (nameable(name), check_choice(state, "state", CrawlState).value))
    if not rows:
        raise UnknownCrawl(name)
    return decoded(rows[0]).crawl


def set_conduct(name: str, conduct: str | None) -> Script[Crawl]:
    """Write down how the workers of a crawl are to behave, as JSON."""
    rows = yield Call("set_conduct", (nameable(name), conduct))
    if not rows:
        raise UnknownCrawl(name)
    return decoded(rows[0]).crawl


def widen_scope(name: str, roots: Sequence[str]) -> Script[None]:
    """Remember addresses that widen a crawl's scope; those that it has already change nothing."""
    stored = yield from for_write(name)
    urls = sorted({locate(root).url for root in roots})
    yield Call("widen_scope", (), [(stored.crawl_id, url) for url in urls])


def set_limits(name: str, limits: CrawlLimits) -> Script[Crawl]:
    """Change a crawl's limits, and wake the queues that stood at the old ones."""
    check_limits(limits)
    rows = yield Call(
        "set_crawl_limits",
        (
            nameable(name), limits.max_depth, limits.max_pages, limits.max_pages_per_domain, limits.delay_ms,
            limits.concurrency, limits.robots,
        ),
    )  # fmt: skip
    if not rows:
        raise UnknownCrawl(name)
    stored = decoded(rows[0])
    yield Call("wake_crawl", (stored.crawl_id,))
    return stored.crawl


def with_limits(crawl: Crawl, **changes: object) -> CrawlLimits:
    """Change some of a crawl's limits and keep the others."""
    return msgspec.structs.replace(crawl.limits, **changes)
