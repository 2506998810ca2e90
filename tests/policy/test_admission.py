"""Admission: what may enter, under which key, and what is told to the rest."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.model.task import Added, CrawlRules, Discovered, DiscoveryType, KeyRule, Kind
from outrider.model.url import url_hash
from outrider.policy.admission import Candidate, admit, storable
from tests.conformance import junk

RULES = CrawlRules()
URL = "http://www.example.co.uk:8080/a"


def only(item: Discovered, rules: CrawlRules = RULES) -> Candidate:
    """Admit the one item that must be let in."""
    candidates, results = admit([item], rules)
    assert results == [None]
    return candidates[0]


def test_a_candidate_is_the_normalised_discovery() -> None:
    """Invariant 1, Identity."""
    item = Discovered(
        url="HTTP://WWW.Example.co.uk:8080/./a#x", depth=2, priority=3, kind=Kind.IMAGE, due_in_ms=4,
        discovery_type=DiscoveryType.FEED, metadata={"m": "é"},
    )  # fmt: skip
    assert only(item) == Candidate(
        key="example.co.uk:8080", hash=url_hash(URL), position=0, url=URL, domain="example.co.uk:8080",
        kind=Kind.IMAGE, priority=3, depth=2, due_in_ms=4, discovery_type=DiscoveryType.FEED, metadata='{"m":"é"}',
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        (KeyRule.DOMAIN, "example.co.uk:8080"),
        (KeyRule.HOST, "www.example.co.uk:8080"),
        (KeyRule.PARENT_DOMAIN, "example.co.uk"),
    ],
)
def test_the_key_follows_the_rule_unless_a_client_names_it(rule: KeyRule, key: str) -> None:
    """Invariant 1, Identity: the key is a function of the URL, unless a client names it."""
    rules = CrawlRules(key_rule=rule)
    assert only(Discovered(url=URL), rules).key == key
    named = only(Discovered(url=URL, key="named"), rules)
    assert (named.key, named.domain) == ("named", "example.co.uk:8080")


def test_rules_that_tidy_the_query_decide_what_is_one_url() -> None:
    """Invariant 1, Identity."""
    messy = Discovered(url="http://a.example/?b=2&utm_source=x&a=1")
    assert only(messy).url == messy.url
    assert only(messy, CrawlRules(strip_tracking=True)).url == "http://a.example/?b=2&a=1"
    tidied = only(messy, CrawlRules(strip_tracking=True, sort_query=True))
    assert (tidied.url, tidied.hash) == ("http://a.example/?a=1&b=2", url_hash("http://a.example/?a=1&b=2"))


def test_positions_are_those_of_the_batch_and_duplicates_are_left_to_the_store() -> None:
    """Invariant 1, Identity: of duplicates the first counts, by its position."""
    items = [Discovered(url=url) for url in ("http://a.example/", "x:", "http://a.example/", "http://b.example/")]
    candidates, results = admit(items, RULES)
    assert [(each.position, each.url) for each in candidates] == [
        (0, "http://a.example/"), (2, "http://a.example/"), (3, "http://b.example/"),
    ]  # fmt: skip
    assert [result is None for result in results] == [True, False, True, True]


def test_candidates_sort_as_stores_keep_them() -> None:
    """Invariant 1, Identity: by key and hash, then by position."""
    items = [Discovered(url=f"http://{name}.example/{number}") for name in "ba" for number in range(5)]
    candidates = sorted(admit([*items, *items], RULES).candidates)
    assert [(each.key, each.hash, each.position) for each in candidates] == sorted(
        (each.key, each.hash, each.position) for each in candidates
    )


@pytest.mark.parametrize("place", range(len(junk.BAD_URLS)))
def test_a_bad_url_is_refused_with_its_reason(place: int) -> None:
    """Invariant 5, Nothing lost: each bad item is refused by itself."""
    url, reason = junk.BAD_URLS[place]
    candidates, (result,) = admit([Discovered(url=url)], RULES)
    assert candidates == []
    assert result is not None
    assert (result.outcome, result.reason) == (Added.REJECTED, reason)


@pytest.mark.parametrize("place", range(len(junk.BAD_FIELDS)))
def test_a_bad_field_is_refused_with_its_reason_and_name(place: int) -> None:
    """Invariant 5, Nothing lost: each bad item is refused by itself."""
    field, value, reason = junk.BAD_FIELDS[place]
    item = Discovered(**{"url": URL, field: value})
    candidates, results = admit([Discovered(url="http://a.example/"), item, Discovered(url="http://b.example/")], RULES)
    assert [each.position for each in candidates] == [0, 2]
    refused = results[1]
    assert refused is not None
    assert (refused.outcome, refused.reason) == (Added.REJECTED, reason)
    assert field in (refused.detail or "")


good = st.builds(
    Discovered,
    url=st.sampled_from([URL, "http://a.example/", "http://a.example/?b&a", "https://b.example/x"]),
    depth=st.integers(0, 3),
    priority=st.integers(0, 3),
    key=st.none() | st.sampled_from(["k", "a.example"]),
    kind=st.sampled_from(Kind),
    due_in_ms=st.integers(0, 3),
    discovery_type=st.sampled_from(DiscoveryType),
    metadata=st.none() | st.just({"m": 1}),
)


@given(items=st.lists(good | junk.discoveries | junk.anything, max_size=8), rule=st.sampled_from(KeyRule))
def test_an_item_is_judged_the_same_alone_and_in_any_company(items: list[Any], rule: KeyRule) -> None:
    """Invariant 5, Nothing lost: nothing else in its batch is touched by a bad item."""
    rules = CrawlRules(key_rule=rule)
    together = admit(items, rules)
    alone = [admit([item], rules) for item in items]
    assert together.results == [each.results[0] for each in alone]
    assert together.candidates == [
        candidate._replace(position=position)
        for position, each in enumerate(alone)
        for candidate in each.candidates
    ]  # fmt: skip


@given(item=good)
def test_the_short_way_for_plain_items_leads_to_the_same_place(item: Discovered) -> None:
    """Invariant 1, Identity: naming the key that would be derived anyway changes nothing."""
    plain = Discovered(url=item.url, depth=item.depth, priority=item.priority, kind=item.kind)
    derived = only(plain)
    named = only(Discovered(url=item.url, depth=item.depth, priority=item.priority, kind=item.kind, key=derived.key))
    assert named == derived


@pytest.mark.parametrize("text", ["", "plain", "\N{WHALE}", "\x01", "\uffff", "\ufdd0"])
def test_what_every_store_can_keep_is_storable(text: str) -> None:
    """Invariant 5, Nothing lost."""
    assert storable(text)


@pytest.mark.parametrize("text", junk.UNSTORABLE)
def test_nul_bytes_and_lone_surrogates_are_not_storable(text: str) -> None:
    """Invariant 5, Nothing lost."""
    assert not storable(text)
