"""Bad input: a refusal with a reason for that item alone; everything beside it is stored."""

import itertools
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.model.lease import Renewal, Report, Verdict
from outrider.model.machines import TaskState
from outrider.model.task import MAX_METADATA_BYTES, MAX_METADATA_LEVELS, AddResult, Refusal
from outrider.store.protocols import UrlStore
from tests.conformance import junk
from tests.conformance.acting import (
    DONE,
    FAILED,
    NEW,
    REJECTED,
    T0,
    add,
    check_counts,
    create,
    everything,
    found,
    lease,
    lease_one,
    report,
    saying,
    state,
    task,
    tasks,
)

crawl_names = (f"crawl-{number}" for number in itertools.count())

on_one_store = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
"""Every example has a crawl of its own on the same store."""


async def assert_refused_alone(urls: UrlStore, bad: list[Any], reasons: list[Refusal]) -> list[AddResult]:
    """Add a batch in which every other item is bad; returns the refusals."""
    await create(urls)
    good = [found(f"http://good.example/{number}") for number in range(len(bad) + 1)]
    batch = [item for pair in zip(good, bad, strict=False) for item in pair] + [good[-1]]
    answers = await urls.add("c", batch, now=T0)
    assert [answer.outcome for answer in answers[::2]] == [NEW] * len(good)
    refused = answers[1::2]
    for item, answer, reason in zip(bad, refused, reasons, strict=True):
        shown = repr(type(item)) if not isinstance(item, type(good[0])) else f"{item.url!r:.60}"
        assert (answer.outcome, answer.reason) == (REJECTED, reason), f"{shown}: {answer}"
        assert 0 < len(answer.detail or "") < 500
    assert sorted(row.url for row in await tasks(urls)) == sorted(item.url for item in good)
    await check_counts(urls)
    return refused


async def test_bad_urls_are_refused_alone(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: the rest of the batch is stored."""
    bad = [found(url) for url, _ in junk.BAD_URLS]
    await assert_refused_alone(urls, bad, [reason for _, reason in junk.BAD_URLS])


async def test_bad_fields_are_refused_alone(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: the rest of the batch is stored."""
    bad = [found(f"http://bad.example/{n}", **{field: value}) for n, (field, value, _) in enumerate(junk.BAD_FIELDS)]
    refused = await assert_refused_alone(urls, bad, [reason for _, _, reason in junk.BAD_FIELDS])
    for (field, _, reason), answer in zip(junk.BAD_FIELDS, refused, strict=True):
        assert field in (answer.detail or ""), f"{reason}: a person must see which field it was"
    assert await add(urls, *(item.url for item in bad)) == [NEW] * len(bad), "what was refused is not known"


async def test_what_is_no_discovery_at_all_is_refused_alone(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: the rest of the batch is stored."""
    await assert_refused_alone(urls, junk.NO_TEXT, [Refusal.BAD_TEXT] * len(junk.NO_TEXT))


async def test_a_batch_of_nothing_but_junk_is_answered(urls: UrlStore) -> None:
    """Invariant 6, Counts are exact."""
    await create(urls)
    answers = await urls.add("c", [found(None), found("x:"), found("http://a.example/", depth=-1)], now=T0)
    assert [answer.outcome for answer in answers] == [REJECTED] * 3
    assert (await check_counts(urls)).total == 0
    assert await urls.list_queues("c") == []


async def test_what_is_just_within_the_limits_is_kept_as_it_is(urls: UrlStore) -> None:
    """Invariant 1, Identity."""
    await create(urls)
    longest = "http://a.example/" + "x" * (8192 - len("http://a.example/"))
    odd_keys = ["k" * 255, "\N{WHALE}" * 255, " ", "\x01", "'; DROP TABLE tasks; --", "a\u0301", "á", "{}", "%s", "?1"]
    items = [
        found(longest, depth=2**31 - 1, priority=2**31 - 1, metadata={"m": "x" * (MAX_METADATA_BYTES - 8)}),
        *(found("http://b.example/é?ü#ö", key=key) for key in odd_keys),
        found("http://[::1]:8080/", metadata=junk.nested(MAX_METADATA_LEVELS)), found("http://127.1/"),
        found("http://münchen.example/", metadata={"m": [2**63, -(10**300), 1e308, "\0"]}),
    ]  # fmt: skip
    assert await add(urls, *items) == [NEW] * len(items)
    stored = await task(urls, longest)
    assert (stored.depth, stored.priority) == (2**31 - 1, 2**31 - 1)
    for key in odd_keys:
        assert (await task(urls, items[1].url, key=key)).key == key
        assert (await urls.counts("c", key)).total == 1
    assert {queue.key for queue in await urls.list_queues("c")} >= set(odd_keys)
    leased = {each.key: each.metadata for each in await lease(urls, slots=100)}
    assert leased["[::1]:8080"] == items[-3].metadata
    assert leased["xn--mnchen-3ya.example"] == items[-1].metadata
    assert leased.keys() & set(odd_keys), "the others wait: one lease per URL"
    await check_counts(urls)


@on_one_store
@given(items=st.lists(junk.discoveries | junk.anything, max_size=4))
async def test_no_discovery_raises_or_harms_its_neighbours(urls: UrlStore, items: list[Any]) -> None:
    """Invariant 5, Nothing lost: whatever is in any field."""
    name = next(crawl_names)
    await create(urls, name)
    batch = [found("http://one.example/"), *items, found("http://other.example/")]
    answers = await urls.add(name, batch, now=T0)
    assert len(answers) == len(batch)
    assert answers[0].outcome is answers[-1].outcome is NEW
    for answer in answers:
        assert (answer.reason is not None) == (answer.outcome is REJECTED)
    assert await state(urls, "http://one.example/", name) is TaskState.PENDING
    counts = await check_counts(urls, name)
    assert counts.total == [answer.outcome for answer in answers].count(NEW)


async def test_bad_reports_are_refused_alone_and_their_leases_stay(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: a malformed report ends nothing."""
    await create(urls)
    bad = junk.BAD_REPORTS
    await add(urls, *(f"http://{number}.example/" for number in range(2 * len(bad))))
    leases = await lease(urls, slots=2 * len(bad))
    batch: list[Report] = []
    for fields, (one, other) in zip(bad, zip(leases[::2], leases[1::2], strict=True), strict=True):
        batch += [saying(one, **{"outcome": DONE, **fields}), saying(other)]
    answers = await urls.report(batch, now=T0)
    assert [answer.verdict for answer in answers[1::2]] == [Verdict.COMPLETED] * len(bad)
    for fields, answer in zip(bad, answers[::2], strict=True):
        assert (answer.verdict, answer.refusal) == (Verdict.REJECTED, Refusal.BAD_REPORT), f"{fields!r:.200}"
        assert 0 < len(answer.detail or "") < 500
    assert await urls.renew([one.token for one in leases[::2]], now=T0) == [Renewal.OK] * len(bad)
    assert len(await urls.artifacts("c", limit=10_000)) == len(bad)
    last = await urls.report([saying(one) for one in leases[::2]], now=T0)
    assert [answer.verdict for answer in last] == [Verdict.COMPLETED] * len(bad)
    await check_counts(urls)


async def test_what_is_no_report_at_all_is_refused_alone(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: the rest of the batch is taken."""
    await create(urls)
    await add(urls, "http://a.example/")
    batch: list[Any] = [*junk.NO_TEXT, saying(await lease_one(urls)), *junk.NO_TEXT]
    answers = await urls.report(batch, now=T0)
    assert answers.pop(len(junk.NO_TEXT)).verdict is Verdict.COMPLETED
    assert {answer.refusal for answer in answers} == {Refusal.BAD_REPORT}


async def test_a_token_that_cannot_be_one_is_a_lost_lease(urls: UrlStore) -> None:
    """Invariant 2, Exclusivity: a token that is not live changes nothing, whatever it is."""
    await create(urls)
    await add(urls, "http://a.example/", "http://b.example/")
    live, _ = await lease(urls, slots=2)
    before = await everything(urls)
    answers = await urls.report([saying(token) for token in junk.BAD_TOKENS], now=T0)
    assert {(answer.verdict, answer.refusal) for answer in answers} == {(Verdict.LEASE_LOST, Refusal.BAD_REPORT)}
    assert await urls.renew(junk.BAD_TOKENS, now=T0) == [Renewal.LEASE_LOST] * len(junk.BAD_TOKENS)
    assert await urls.release(junk.BAD_TOKENS, now=T0) == []
    assert await everything(urls) == before
    assert await urls.renew([*junk.BAD_TOKENS, live.token], now=T0) == (
        [Renewal.LEASE_LOST] * len(junk.BAD_TOKENS) + [Renewal.OK]
    )
    assert await urls.release([*junk.BAD_TOKENS, live.token], now=T0) == [live.token]


async def test_a_report_is_taken_with_its_good_links_whatever_the_others_are(urls: UrlStore) -> None:
    """Invariant 5, Nothing lost: never an outcome without the links found on that page."""
    await create(urls)
    await add(urls, "http://a.example/")
    bad: list[Any] = [found(url) for url, _ in junk.BAD_URLS]
    bad += [found("http://bad.example/", **{field: value}) for field, value, _ in junk.BAD_FIELDS]
    links = [found("http://one.example/"), *bad, *junk.NO_TEXT, found("http://other.example/")]
    assert (await report(urls, await lease_one(urls), now=T0, links=links)).verdict is Verdict.COMPLETED
    assert [row.key for row in await tasks(urls)] == ["a.example", "one.example", "other.example"]
    await check_counts(urls)


@on_one_store
@given(data=st.data())
async def test_no_report_raises_or_harms_its_neighbours(urls: UrlStore, data: st.DataObject) -> None:
    """Invariant 5, Nothing lost: whatever is in any field."""
    name = next(crawl_names)
    await create(urls, name)
    await add(urls, *(f"http://{name}.example/{number}" for number in range(3)), crawl=name)
    first, second, third = await lease(urls, name, slots=3)
    bad = data.draw(junk.reports(second.token))
    answers = await urls.report([saying(first), bad, saying(third, FAILED)], now=T0)
    assert [answers[0].verdict, answers[2].verdict] == [Verdict.COMPLETED, Verdict.RETRY_AT]
    refused = answers[1].verdict is Verdict.REJECTED
    assert (answers[1].refusal is Refusal.BAD_REPORT) == refused
    assert ((await task(urls, second.url, name)).state is TaskState.ASSIGNED) == refused
    await check_counts(urls, name)
