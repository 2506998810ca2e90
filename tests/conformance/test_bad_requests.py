"""Bad requests: an argument that is not of the form that a call takes is an error of ours, and harms nothing."""

import base64
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from outrider.model.errors import InvalidInput, LimitExceeded, OutriderError, UnknownCrawl
from outrider.model.gate import GateSettings
from outrider.model.task import MAX_BATCH, CrawlLimits, CrawlRules, QueueSettings, TaskFilter
from outrider.model.url import UrlRefused
from outrider.store.protocols import UrlStore
from tests.conformance import junk
from tests.conformance.acting import (
    DAY,
    T0,
    add,
    ask,
    create,
    everything,
    lease_one,
    saying,
)

Call = Callable[[UrlStore, Any], Awaitable[object]]

BAD_NAMES = [*junk.NO_TEXT, *junk.UNSTORABLE, "", "n" * 256, junk.A_MEGABYTE]
BAD_NUMBERS = [*junk.NO_WHOLE_NUMBER, *junk.NEGATIVE_OR_HUGE]
UNKNOWN_NAMES = [*junk.NO_TEXT, *junk.UNSTORABLE, "", "nowhere", "C", "c ", junk.A_MEGABYTE]


def forged(key: bytes) -> str:
    """A cursor that no listing gave out."""
    return base64.urlsafe_b64encode(bytes(16) + key).decode()


async def assert_each_refused(
    urls: UrlStore, call: Call, values: Iterable[Any], error: type[OutriderError] = InvalidInput
) -> None:
    """Assert that each value is refused with an error of ours, which is short, and that nothing has changed."""
    await create(urls)
    await add(urls, "http://a.example/1", "http://a.example/2")
    await lease_one(urls)
    before = await everything(urls)
    for value in values:
        shown = f"{type(value).__name__} {value!r:.60}" if not isinstance(value, int) else f"int {value:x}"[:60]
        try:
            await call(urls, value)
            pytest.fail(f"{shown} was taken")
        except error as refused:
            said = str(refused)
        assert 0 < len(said) < 1_000, shown
    assert await everything(urls) == before
    assert [crawl.name for crawl in await urls.list_crawls()] == ["c"]
    await lease_one(urls)  # the store goes on


LEASE_REQUESTS: dict[str, list[Any]] = {
    "slots": [0, 10**9, MAX_BATCH + 1, None, *BAD_NUMBERS],
    "worker": BAD_NAMES,
    "request_id": BAD_NAMES,
    "lease_ms": [0, DAY + 1, *BAD_NUMBERS],
    "max_per_queue": [0, -1, -(10**5_000), *junk.NO_WHOLE_NUMBER],
    "run_id": [*junk.NO_TEXT[1:], *junk.UNSTORABLE, "", "run", "0" * 31, junk.A_MEGABYTE],
}


@pytest.mark.parametrize("field", LEASE_REQUESTS)
async def test_a_bad_lease_request_is_refused(urls: UrlStore, field: str) -> None:
    """Invariant 2, Exclusivity: who asks must have a name, and must be able to hold what it is given."""
    call = lambda urls, value: ask(urls, **{field: value})  # noqa: E731
    await assert_each_refused(urls, call, LEASE_REQUESTS[field])


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda urls, name: urls.get_crawl(name), id="get_crawl"),
        pytest.param(lambda urls, name: urls.set_crawl_state(name, "paused"), id="set_crawl_state"),
        pytest.param(lambda urls, name: urls.set_crawl_limits(name, CrawlLimits()), id="set_crawl_limits"),
        pytest.param(lambda urls, name: urls.add(name, [], now=T0), id="add"),
        pytest.param(lambda urls, name: urls.promote(name, now=T0), id="promote"),
        pytest.param(lambda urls, name: urls.retry_failed(name, now=T0), id="retry_failed"),
        pytest.param(lambda urls, name: urls.counts(name), id="counts"),
        pytest.param(lambda urls, name: urls.counts_by_kind(name), id="counts_by_kind"),
        pytest.param(lambda urls, name: urls.find_task(name, "http://a.example/"), id="find_task"),
        pytest.param(lambda urls, name: urls.list_tasks(name), id="list_tasks"),
        pytest.param(lambda urls, name: urls.list_queues(name), id="list_queues"),
        pytest.param(lambda urls, name: urls.configure_queue(name, "k", QueueSettings(), now=T0), id="configure"),
        pytest.param(lambda urls, name: urls.delete_queue(name, "a.example"), id="delete_queue"),
        pytest.param(lambda urls, name: urls.delete_crawl(name), id="delete_crawl"),
        pytest.param(lambda urls, name: urls.purge(name, before=T0 + 1), id="purge"),
    ],
)
async def test_a_crawl_that_is_not_there_is_unknown_whatever_its_name(urls: UrlStore, call: Call) -> None:
    """Invariant 1, Identity: a name is that name and no other."""
    await assert_each_refused(urls, call, UNKNOWN_NAMES, UnknownCrawl)


async def test_a_lease_from_a_crawl_that_is_not_there_is_refused(urls: UrlStore) -> None:
    """Invariant 1, Identity: None alone means any crawl."""
    names = [name for name in UNKNOWN_NAMES if name is not None]
    await assert_each_refused(urls, lambda urls, name: ask(urls, name), names, UnknownCrawl)


@pytest.mark.parametrize(
    ("call", "values"),
    [
        pytest.param(lambda urls, name: urls.create_crawl(name, now=T0), BAD_NAMES, id="name"),
        *(
            pytest.param(
                lambda urls, value, field=field: urls.set_crawl_limits("c", CrawlLimits(**{field: value})),
                [2**31, *BAD_NUMBERS],
                id=field,
            )
            for field in ("max_depth", "max_pages", "max_pages_per_domain", "delay_ms", "concurrency")
        ),
        pytest.param(
            lambda urls, value: urls.create_crawl("d", limits=CrawlLimits(concurrency=value), now=T0),
            [0, None],
            id="no concurrency",
        ),
        pytest.param(
            lambda urls, value: urls.set_crawl_limits("c", CrawlLimits(robots=value)), [None, 1, "yes"], id="robots"
        ),
        pytest.param(
            lambda urls, value: urls.create_crawl("d", CrawlRules(key_rule=value), now=T0),
            [*junk.NO_TEXT, "junk", "\0"],
            id="key_rule",
        ),
        pytest.param(
            lambda urls, value: urls.create_crawl("d", CrawlRules(strip_tracking=value), now=T0),
            [None, 1, "yes"],
            id="strip_tracking",
        ),
        pytest.param(
            lambda urls, value: urls.create_crawl("d", CrawlRules(sort_query=value), now=T0),
            [None, 1, "yes"],
            id="sort_query",
        ),
        pytest.param(lambda urls, value: urls.set_crawl_state("c", value), [*junk.NO_TEXT, "junk", "\0"], id="state"),
    ],
)
async def test_a_crawl_that_could_not_run_is_refused(urls: UrlStore, call: Call, values: list[Any]) -> None:
    """Invariant 1, Identity: rules and limits are what they say."""
    await assert_each_refused(urls, call, values)


NO_KEYS = [*junk.NO_TEXT[1:], *junk.UNSTORABLE, ""]


@pytest.mark.parametrize(
    ("call", "values"),
    [
        pytest.param(
            lambda urls, value: urls.list_tasks("c", cursor=value),
            [*junk.NO_TEXT[1:], "", "x", "é", "====", forged(b"")[:-4], forged(b"\xff"), forged(b"\0"), "\ud800"],
            id="cursor",
        ),
        pytest.param(
            lambda urls, value: urls.list_tasks("c", limit=value), [0, MAX_BATCH + 1, None, *BAD_NUMBERS], id="limit"
        ),
        pytest.param(
            lambda urls, value: urls.list_tasks("c", TaskFilter(state=value)), [5, "junk", "\0", b""], id="state"
        ),
        pytest.param(
            lambda urls, value: urls.list_tasks("c", TaskFilter(kind=value)), [4, -1, 10**30, "0", 0.0, []], id="kind"
        ),
        pytest.param(lambda urls, value: urls.list_tasks("c", TaskFilter(key=value)), NO_KEYS[:-1], id="key"),
        pytest.param(lambda urls, value: urls.list_tasks("c", TaskFilter(url_contains=value)), NO_KEYS[:-1], id="text"),
        pytest.param(
            lambda urls, value: urls.retry_failed("c", TaskFilter(kind=value), now=T0),
            [4, 10**30, "0", []],
            id="retry kind",
        ),
        pytest.param(
            lambda urls, value: urls.retry_failed("c", TaskFilter(state=value), now=T0), ["junk"], id="retry state"
        ),
        pytest.param(lambda urls, value: urls.list_queues("c", after=value), [None, *NO_KEYS[:-1]], id="after"),
        pytest.param(
            lambda urls, value: urls.list_queues("c", limit=value), [0, MAX_BATCH + 1, *BAD_NUMBERS], id="queues"
        ),
        pytest.param(
            lambda urls, value: urls.artifacts("c", after_id=value), [None, *BAD_NUMBERS], id="after artifact"
        ),
        pytest.param(
            lambda urls, value: urls.artifacts("c", limit=value), [0, MAX_BATCH + 1, *BAD_NUMBERS], id="artifacts"
        ),
        pytest.param(
            lambda urls, value: urls.artifacts(value), [*junk.NO_TEXT, *junk.UNSTORABLE], id="artifacts of nothing"
        ),
        pytest.param(lambda urls, value: urls.counts("c", value), NO_KEYS, id="counts"),
        pytest.param(lambda urls, value: urls.find_task("c", "http://a.example/1", value), NO_KEYS, id="find"),
    ],
)
async def test_a_bad_question_is_refused(urls: UrlStore, call: Call, values: list[Any]) -> None:
    """Invariant 6, Counts are exact: no answer is better than one to another question."""
    await assert_each_refused(urls, call, values)


@pytest.mark.parametrize(
    ("call", "values"),
    [
        *(
            pytest.param(
                lambda urls, value, field=field: urls.configure_queue(
                    "c", "a.example", QueueSettings(**{field: value}), now=T0
                ),
                bad,
                id=f"queue {field}",
            )
            for field, bad in {
                "delay_ms": [2**31, *BAD_NUMBERS],
                "blocked_until": BAD_NUMBERS,
                "page_limit": BAD_NUMBERS,
                "priority": [2**31, -(2**31) - 1, *junk.NO_WHOLE_NUMBER, *junk.NEGATIVE_OR_HUGE[1:]],
            }.items()
        ),
        pytest.param(
            lambda urls, value: urls.configure_queue("c", value, QueueSettings(), now=T0),
            [None, *NO_KEYS, "k" * 256],
            id="queue key",
        ),
        *(
            pytest.param(
                lambda urls, value, field=field: urls.configure_gate(
                    "a.example", GateSettings(**{field: value}), now=T0
                ),
                bad,
                id=f"gate {field}",
            )
            for field, bad in {
                "delay_ms": [2**31, *BAD_NUMBERS],
                "concurrency": [0, 2**31, *BAD_NUMBERS],
                "blocked_until": BAD_NUMBERS,
                "band": [16, *BAD_NUMBERS],
            }.items()
        ),
        pytest.param(lambda urls, value: urls.delete_queue("c", value), [None, *NO_KEYS], id="delete_queue"),
        pytest.param(lambda urls, value: urls.purge("c", before=value), [None, *BAD_NUMBERS], id="purge"),
        pytest.param(lambda urls, value: urls.purge("c", before=T0, key=value), NO_KEYS, id="purge key"),
        pytest.param(lambda urls, value: urls.reap(most=value, now=T0), [0, None, *BAD_NUMBERS], id="reap"),
        pytest.param(
            lambda urls, value: urls.renew([], lease_ms=value, now=T0), [0, DAY + 1, *BAD_NUMBERS], id="renew"
        ),
        pytest.param(lambda urls, value: urls.release(worker=value, now=T0), BAD_NAMES[1:], id="release"),
    ],
)
async def test_a_bad_order_is_refused(urls: UrlStore, call: Call, values: list[Any]) -> None:
    """Invariant 6, Counts are exact: an order that is not understood changes nothing."""
    await assert_each_refused(urls, call, values)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda urls, value: urls.find_task("c", value), id="find_task"),
        pytest.param(lambda urls, value: urls.configure_gate(value, GateSettings(), now=T0), id="configure_gate"),
        pytest.param(lambda urls, value: urls.get_gate(value), id="get_gate"),
        pytest.param(lambda urls, value: urls.robots_text(value), id="robots_text"),
    ],
)
async def test_what_is_no_url_and_no_domain_is_refused(urls: UrlStore, call: Call) -> None:
    """Invariant 1, Identity: of a URL or domain that cannot be."""
    hosts = [*junk.NO_TEXT, *junk.UNSTORABLE, "", "http://[::1", "javascript:alert(1)", junk.A_MEGABYTE]
    await assert_each_refused(urls, call, hosts, UrlRefused)


async def test_batches_have_a_limit_that_the_error_names(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: of a batch that is refused as a whole nothing is done."""
    await create(urls)
    await add(urls, "http://a.example/")
    leased = await lease_one(urls)
    before = await everything(urls)
    tokens = [leased.token] * (MAX_BATCH + 1)
    for call in (
        urls.renew(tokens, now=T0),
        urls.release(tokens, now=T0),
        urls.report([saying(leased)] * (MAX_BATCH + 1), now=T0),
    ):
        with pytest.raises(LimitExceeded, match=r"10001 .* 10000"):
            await call
    assert await everything(urls) == before
