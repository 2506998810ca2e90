"""Bad requests: an argument that is not of the form that a call takes is an error of ours, and harms nothing."""

import base64
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from outrider.model.errors import InvalidInput, LimitExceeded, OutriderError, UnknownCrawl
from outrider.model.gate import GateSettings
from outrider.model.task import MAX_BATCH, CrawlLimits, CrawlRules, CrawlState, QueueSettings, TaskFilter
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
Attempts = dict[str, tuple[Call, Iterable[Any]]]
"""What is tried: a call for each name, and the values that it must refuse."""

BAD_NAMES = [*junk.NO_TEXT, *junk.UNSTORABLE, "", "n" * 256, junk.A_MEGABYTE]
BAD_NUMBERS = [*junk.NO_WHOLE_NUMBER, *junk.NEGATIVE_OR_HUGE]
NO_KEYS = [*junk.NO_TEXT[1:], *junk.UNSTORABLE, ""]
UNKNOWN_NAMES = [*junk.NO_TEXT, *junk.UNSTORABLE, "", "nowhere", "C", "c ", junk.A_MEGABYTE]


def forged(key: bytes) -> str:
    """A cursor that no listing gave out."""
    return base64.urlsafe_b64encode(bytes(16) + key).decode()


async def assert_each_refused(urls: UrlStore, attempts: Attempts, error: type[OutriderError] = InvalidInput) -> None:
    """Assert that each value is refused with an error of ours, which is short, and that nothing has changed."""
    await create(urls)
    await add(urls, "http://a.example/1", "http://a.example/2")
    await lease_one(urls)
    before = await everything(urls)
    for what, (call, values) in attempts.items():
        for value in values:
            shown = f"{what}: {value:x}"[:60] if isinstance(value, int) else f"{what}: {value!r:.60}"
            try:
                await call(urls, value)
                pytest.fail(f"{shown} was taken")
            except error as refused:
                said = str(refused)
            assert 0 < len(said) < 1_000, shown
    assert await everything(urls) == before
    assert [crawl.name for crawl in await urls.list_crawls()] == ["c"]
    await lease_one(urls)  # the store goes on


def asking(field: str) -> Call:
    """A lease request with one field that a test chooses."""
    return lambda urls, value: ask(urls, **{field: value})


async def test_a_bad_lease_request_is_refused(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: who asks must have a name, and must be able to hold what it is given."""
    bad = {
        "slots": [0, 10**9, MAX_BATCH + 1, None, *BAD_NUMBERS],
        "worker": BAD_NAMES,
        "request_id": BAD_NAMES,
        "lease_ms": [0, DAY + 1, *BAD_NUMBERS],
        "max_per_queue": [0, -1, -(10**5_000), *junk.NO_WHOLE_NUMBER],
        "run_id": [*junk.NO_TEXT[1:], *junk.UNSTORABLE, "", "run", "0" * 31, junk.A_MEGABYTE],
    }
    await assert_each_refused(urls, {field: (asking(field), values) for field, values in bad.items()})


async def test_a_crawl_that_is_not_there_is_unknown_whatever_its_name(urls: UrlStore) -> None:
    """Invariant 1, Identity: a name is that name and no other."""
    calls: dict[str, Call] = {
        "get_crawl": lambda urls, name: urls.get_crawl(name),
        "set_crawl_state": lambda urls, name: urls.set_crawl_state(name, CrawlState.PAUSED),
        "set_crawl_limits": lambda urls, name: urls.set_crawl_limits(name, CrawlLimits()),
        "add": lambda urls, name: urls.add(name, [], now=T0),
        "promote": lambda urls, name: urls.promote(name, now=T0),
        "retry_failed": lambda urls, name: urls.retry_failed(name, now=T0),
        "counts": lambda urls, name: urls.counts(name),
        "counts_by_kind": lambda urls, name: urls.counts_by_kind(name),
        "find_task": lambda urls, name: urls.find_task(name, "http://a.example/"),
        "list_tasks": lambda urls, name: urls.list_tasks(name),
        "list_queues": lambda urls, name: urls.list_queues(name),
        "configure_queue": lambda urls, name: urls.configure_queue(name, "k", QueueSettings(), now=T0),
        "delete_queue": lambda urls, name: urls.delete_queue(name, "a.example"),
        "delete_crawl": lambda urls, name: urls.delete_crawl(name),
        "purge": lambda urls, name: urls.purge(name, before=T0 + 1),
    }
    attempts: Attempts = {what: (call, UNKNOWN_NAMES) for what, call in calls.items()}
    attempts["lease"] = (lambda urls, name: ask(urls, name), [name for name in UNKNOWN_NAMES if name is not None])
    await assert_each_refused(urls, attempts, UnknownCrawl)


def limiting(field: str) -> Call:
    """Set one limit of the crawl that is there."""
    return lambda urls, value: urls.set_crawl_limits("c", CrawlLimits(**{field: value}))


def ruling(field: str) -> Call:
    """Create a crawl with one rule that a test chooses."""
    return lambda urls, value: urls.create_crawl("d", CrawlRules(**{field: value}), now=T0)


async def test_a_crawl_that_could_not_run_is_refused(urls: UrlStore) -> None:
    """Invariant 1, Identity: rules and limits are what they say."""
    numbers = ("max_depth", "max_pages", "max_pages_per_domain", "delay_ms", "concurrency")
    no_truth: list[Any] = [None, 1, "yes"]
    await assert_each_refused(
        urls,
        {field: (limiting(field), [2**31, *BAD_NUMBERS]) for field in numbers}
        | {
            "no concurrency": (limiting("concurrency"), [0, None]),
            "robots": (limiting("robots"), no_truth),
            "name": (lambda urls, name: urls.create_crawl(name, now=T0), BAD_NAMES),
            "limits": (lambda urls, value: urls.create_crawl("d", limits=CrawlLimits(delay_ms=value), now=T0), [-1]),
            "key_rule": (ruling("key_rule"), [*junk.NO_TEXT, "junk", "\0"]),
            "strip_tracking": (ruling("strip_tracking"), no_truth),
            "sort_query": (ruling("sort_query"), no_truth),
            "state": (lambda urls, value: urls.set_crawl_state("c", value), [*junk.NO_TEXT, "junk", "\0"]),
        },
    )


def listing(field: str) -> Call:
    """List tasks by one field of a filter."""
    return lambda urls, value: urls.list_tasks("c", TaskFilter(**{field: value}))


def retrying(field: str) -> Call:
    """Retry what has failed by one field of a filter."""
    return lambda urls, value: urls.retry_failed("c", TaskFilter(**{field: value}), now=T0)


async def test_a_bad_question_is_refused(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: no answer is better than one to another question."""
    no_texts = NO_KEYS[:-1]
    no_sizes = [0, MAX_BATCH + 1, None, *BAD_NUMBERS]
    no_cursors = ["", "x", "é", "====", forged(b"")[:-4], forged(b"\xff"), forged(b"\0"), "\ud800"]
    await assert_each_refused(
        urls,
        {
            "cursor": (lambda urls, value: urls.list_tasks("c", cursor=value), [*junk.NO_TEXT[1:], *no_cursors]),
            "limit": (lambda urls, value: urls.list_tasks("c", limit=value), no_sizes),
            "state": (listing("state"), [5, "junk", "\0", b""]),
            "kind": (listing("kind"), [4, -1, 10**30, "0", 0.0, []]),
            "key": (listing("key"), no_texts),
            "url_contains": (listing("url_contains"), no_texts),
            "retried kind": (retrying("kind"), [4, 10**30, "0", []]),
            "retried state": (retrying("state"), ["junk"]),
            "after": (lambda urls, value: urls.list_queues("c", after=value), [None, *no_texts]),
            "queues": (lambda urls, value: urls.list_queues("c", limit=value), no_sizes),
            "after_id": (lambda urls, value: urls.artifacts("c", after_id=value), [None, *BAD_NUMBERS]),
            "artifacts": (lambda urls, value: urls.artifacts("c", limit=value), no_sizes),
            "artifacts of": (lambda urls, value: urls.artifacts(value), [None, *no_texts]),
            "counts": (lambda urls, value: urls.counts("c", value), NO_KEYS),
            "find_task": (lambda urls, value: urls.find_task("c", "http://a.example/1", value), NO_KEYS),
        },
    )


def setting(field: str) -> Call:
    """Override one setting of the queue that is there."""
    return lambda urls, value: urls.configure_queue("c", "a.example", QueueSettings(**{field: value}), now=T0)


def gating(field: str) -> Call:
    """Set one thing of the gate that is there."""
    return lambda urls, value: urls.configure_gate("a.example", GateSettings(**{field: value}), now=T0)


async def test_a_bad_order_is_refused(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact: an order that is not understood changes nothing."""
    no_priorities = [2**31, -(2**31) - 1, *junk.NO_WHOLE_NUMBER, *junk.NEGATIVE_OR_HUGE[1:]]
    no_queues = [None, *NO_KEYS, "k" * 256]
    await assert_each_refused(
        urls,
        {
            "queue delay_ms": (setting("delay_ms"), [2**31, *BAD_NUMBERS]),
            "queue blocked_until": (setting("blocked_until"), BAD_NUMBERS),
            "queue page_limit": (setting("page_limit"), BAD_NUMBERS),
            "queue priority": (setting("priority"), no_priorities),
            "queue": (lambda urls, value: urls.configure_queue("c", value, QueueSettings(), now=T0), no_queues),
            "gate delay_ms": (gating("delay_ms"), [2**31, *BAD_NUMBERS]),
            "gate concurrency": (gating("concurrency"), [0, 2**31, *BAD_NUMBERS]),
            "gate blocked_until": (gating("blocked_until"), BAD_NUMBERS),
            "gate band": (gating("band"), [16, *BAD_NUMBERS]),
            "delete_queue": (lambda urls, value: urls.delete_queue("c", value), no_queues),
            "purge": (lambda urls, value: urls.purge("c", before=value), [None, *BAD_NUMBERS]),
            "purge key": (lambda urls, value: urls.purge("c", before=T0, key=value), NO_KEYS),
            "reap": (lambda urls, value: urls.reap(most=value, now=T0), [0, None, *BAD_NUMBERS]),
            "renew": (lambda urls, value: urls.renew([], lease_ms=value, now=T0), [0, DAY + 1, *BAD_NUMBERS]),
            "release": (lambda urls, value: urls.release(worker=value, now=T0), BAD_NAMES[1:]),
        },
    )


async def test_what_is_no_url_and_no_domain_is_refused(urls: UrlStore) -> None:
    """Invariant 1, Identity: of a URL or domain that cannot be."""
    hosts = [*junk.NO_TEXT, *junk.UNSTORABLE, "", "http://[::1", "javascript:alert(1)", junk.A_MEGABYTE]
    await assert_each_refused(
        urls,
        {
            "find_task": (lambda urls, value: urls.find_task("c", value), hosts),
            "configure_gate": (lambda urls, value: urls.configure_gate(value, GateSettings(), now=T0), hosts),
            "get_gate": (lambda urls, value: urls.get_gate(value), hosts),
            "robots_text": (lambda urls, value: urls.robots_text(value), hosts),
        },
        UrlRefused,
    )


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
