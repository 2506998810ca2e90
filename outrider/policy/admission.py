"""Admission: from what somebody found to what a store may keep.

Every bad item is refused by itself, with a reason; nothing else in its batch is touched by it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from outrider.model.domain_name import parent_domain
from outrider.model.task import (
    MAX_DEPTH,
    MAX_KEY_CHARACTERS,
    MAX_METADATA_BYTES,
    MAX_PRIORITY,
    NEVER,
    Added,
    AddResult,
    CrawlRules,
    Discovered,
    DiscoveryType,
    KeyRule,
    Kind,
    Refusal,
)
from outrider.model.url import Location, UrlRefused, locate, url_hash

NEW = AddResult(Added.NEW)
KNOWN = AddResult(Added.KNOWN)

_KINDS = frozenset(Kind)
_DISCOVERY_TYPES = frozenset(DiscoveryType)


class Candidate(NamedTuple):
    """A discovery that passed. Sorts by (key, hash), the order in which stores keep tasks."""

    key: str
    hash: bytes
    position: int
    """Its place in the batch."""
    url: str
    domain: str
    kind: int
    priority: int
    depth: int
    due_in_ms: int
    discovery_type: int
    metadata: str | None


class Admission(NamedTuple):
    """A batch after the door: what may enter, and an answer for each item that may not."""

    candidates: list[Candidate]
    results: list[AddResult | None]
    """By position; None where the store has yet to say NEW or KNOWN."""


def admit(items: Sequence[Discovered], rules: CrawlRules) -> Admission:
    """Normalise, key and check a batch."""
    candidates: list[Candidate] = []
    results: list[AddResult | None] = [None] * len(items)
    strip_tracking, sort_query = rules.strip_tracking, rules.sort_query
    by_domain = rules.key_rule is KeyRule.DOMAIN
    for position, item in enumerate(items):
        try:
            place = locate(item.url, strip_tracking=strip_tracking, sort_query=sort_query)
        except UrlRefused as refused:
            results[position] = AddResult(Added.REJECTED, refused.reason, str(refused))
            continue
        except AttributeError:
            results[position] = _rejected(Refusal.BAD_TEXT, "item", item)
            continue
        problem = _problem(item)
        if problem is not None:
            results[position] = problem
            continue
        key = item.key
        if key is None:
            key = place.domain if by_domain else key_for(place, rules)
        metadata = None
        if item.metadata is not None:
            encoded = _encoded_metadata(item.metadata)
            if isinstance(encoded, AddResult):
                results[position] = encoded
                continue
            metadata = encoded
        candidates.append(
            Candidate(
                key, url_hash(place.url), position, place.url, place.domain, item.kind, item.priority, item.depth,
                item.due_in_ms, item.discovery_type, metadata,
            )
        )  # fmt: skip
    return Admission(candidates, results)


def key_for(place: Location, rules: CrawlRules) -> str:
    """Derive the key of a queue from a URL, by the rule that its crawl was created with."""
    match rules.key_rule:
        case KeyRule.DOMAIN:
            return place.domain
        case KeyRule.HOST:
            return place.host
        case KeyRule.PARENT_DOMAIN:
            return parent_domain(place.domain)


def _problem(item: Discovered) -> AddResult | None:
    """Find what is wrong with everything but the URL; the common case is decided first, and fast."""
    priority, depth, due = item.priority, item.depth, item.due_in_ms
    if type(priority) is not int or not 0 <= priority <= MAX_PRIORITY:
        return _rejected(Refusal.BAD_PRIORITY, "priority", priority)
    if type(depth) is not int or not 0 <= depth <= MAX_DEPTH:
        return _rejected(Refusal.BAD_DEPTH, "depth", depth)
    if type(due) is not int or not 0 <= due < NEVER // 2:
        return _rejected(Refusal.BAD_DUE, "due_in_ms", due)
    if item.kind not in _KINDS:
        return _rejected(Refusal.BAD_KIND, "kind", item.kind)
    if item.discovery_type not in _DISCOVERY_TYPES:
        return _rejected(Refusal.BAD_KIND, "discovery_type", item.discovery_type)
    return None if item.key is None else key_problem(item.key)


def key_problem(key: object) -> AddResult | None:
    """Tell what is wrong with a queue key that a client named, if anything is."""
    if not isinstance(key, str) or not storable(key):
        return _rejected(Refusal.BAD_KEY, "key", key)
    if not 0 < len(key) <= MAX_KEY_CHARACTERS:
        return AddResult(
            Added.REJECTED, Refusal.BAD_KEY, f"key has {len(key)} characters, allowed are 1 to {MAX_KEY_CHARACTERS}"
        )
    return None


def storable(text: str) -> bool:
    """Tell whether a text can be kept by every store: no NUL bytes, no lone surrogates."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encoded_metadata(metadata: object) -> str | AddResult:
    try:
        encoded = msgspec.json.encode(metadata)
        text = encoded.decode()
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        return AddResult(Added.REJECTED, Refusal.BAD_METADATA, f"metadata cannot be written as JSON: {error}")
    if not text.startswith("{"):
        return _rejected(Refusal.BAD_METADATA, "metadata", metadata)
    if len(encoded) > MAX_METADATA_BYTES:
        return AddResult(
            Added.REJECTED,
            Refusal.BAD_METADATA,
            f"metadata has {len(encoded)} bytes, allowed are {MAX_METADATA_BYTES}",
        )
    return text


def _rejected(reason: Refusal, field: str, value: object) -> AddResult:
    shown = repr(value)
    if len(shown) > 100:
        shown = shown[:100] + "…"
    return AddResult(Added.REJECTED, reason, f"{field} {shown} is not allowed")
