"""Admission: from what somebody found to what a store may keep.

Every bad item is refused by itself, with a reason; nothing else in its batch is touched by it.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from outrider.model.domain_name import parent_domain
from outrider.model.errors import shown
from outrider.model.task import (
    MAX_DEPTH,
    MAX_KEY_CHARACTERS,
    MAX_METADATA_BYTES,
    MAX_METADATA_LEVELS,
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

MAX_DUE_IN_MS = NEVER // 2

_PLAIN = Discovered(url="")


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


def admit(items: Sequence[Discovered], rules: CrawlRules, first: int = 0) -> Admission:
    """Normalise, key and check a batch, or the piece of one that begins at the position `first`."""
    candidates: list[Candidate] = []
    results: list[AddResult | None] = [None] * len(items)
    strip_tracking, sort_query = rules.strip_tracking, rules.sort_query
    by_domain = rules.key_rule is KeyRule.DOMAIN
    like = _PLAIN
    kind_number, how_number = like.kind.value, like.discovery_type.value
    for position, item in enumerate(items, first):
        try:
            place = locate(item.url, strip_tracking=strip_tracking, sort_query=sort_query)
            url, _, domain = place
        except UrlRefused as refused:
            results[position - first] = AddResult(Added.REJECTED, refused.reason, str(refused))
            continue
        except AttributeError:
            results[position - first] = _rejected(Refusal.BAD_TEXT, "item", item)
            continue
        kind, priority, depth, due = item.kind, item.priority, item.depth, item.due_in_ms
        how, key, found_metadata = item.discovery_type, item.key, item.metadata
        # Most of a batch is like the item before, and what was checked once need not be again.
        same = (
            kind is like.kind and priority is like.priority and depth is like.depth and due is like.due_in_ms
            and how is like.discovery_type and key is None and found_metadata is None
            and item.changed_at is None
        )  # fmt: skip
        metadata = None
        if not same:
            checked = _checked(item)
            if isinstance(checked, AddResult):
                results[position - first] = checked
                continue
            metadata, like, kind_number, how_number = checked, item, kind.value, how.value
        if key is None:
            key = domain if by_domain else key_for(place, rules)
        # A tuple is made a Candidate in half the time that its constructor takes.
        candidates.append(
            tuple.__new__(
                Candidate,
                (key, url_hash(url), position, url, domain, kind_number, priority, depth, due, how_number, metadata),
            )
        )
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


def _checked(item: Discovered) -> AddResult | str | None:
    """Find what is wrong with everything but the URL, or give the metadata as they will be kept."""
    for field, most, reason in (
        ("priority", MAX_PRIORITY, Refusal.BAD_PRIORITY),
        ("depth", MAX_DEPTH, Refusal.BAD_DEPTH),
        ("due_in_ms", MAX_DUE_IN_MS, Refusal.BAD_DUE),
    ):
        value = getattr(item, field)
        if type(value) is not int or not 0 <= value <= most:
            return _rejected(reason, field, value)
    changed_at = item.changed_at
    if changed_at is not None and (type(changed_at) is not int or not 0 <= changed_at < NEVER):
        return _rejected(Refusal.BAD_DUE, "changed_at", changed_at)
    if type(item.kind) is not Kind:
        return _rejected(Refusal.BAD_KIND, "kind", item.kind)
    if type(item.discovery_type) is not DiscoveryType:
        return _rejected(Refusal.BAD_KIND, "discovery_type", item.discovery_type)
    problem = None if item.key is None else key_problem(item.key)
    if problem is not None or item.metadata is None:
        return problem
    return _encoded_metadata(item.metadata)


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
    """Write metadata as JSON that reads back as the same; the standard library alone refuses NaN and bytes."""
    if not isinstance(metadata, dict):
        return _rejected(Refusal.BAD_METADATA, "metadata", metadata)
    fault = _fault_in(metadata, MAX_METADATA_LEVELS)
    if fault is not None:
        return _bad_metadata(f"metadata has {fault}")
    try:
        text = json.dumps(metadata, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError) as error:
        return _bad_metadata(f"metadata cannot be written as JSON: {str(error)[:200]}")
    if size > MAX_METADATA_BYTES:
        return _bad_metadata(f"metadata has {size} bytes, allowed are {MAX_METADATA_BYTES}")
    return text


def _fault_in(value: object, levels: int) -> str | None:
    """Find what JSON would change, or what is so deep that reading it back could exhaust the stack."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            return "a key that is not a text"
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        return None
    if levels == 0:
        return f"more than {MAX_METADATA_LEVELS} levels"
    return next(filter(None, (_fault_in(each, levels - 1) for each in value)), None)


def _bad_metadata(detail: str) -> AddResult:
    return AddResult(Added.REJECTED, Refusal.BAD_METADATA, detail)


def _rejected(reason: Refusal, field: str, value: object) -> AddResult:
    return AddResult(Added.REJECTED, reason, f"{field} {shown(value)} is not allowed")
