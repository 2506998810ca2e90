"""What may be ordered: every refusal names the field, what is wrong with it and what is allowed."""

import hashlib
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from outrider.crawler.private_hosts import private_because
from outrider.model.errors import InvalidInput, shown
from outrider.model.job import JobRequest
from outrider.model.order import JobOrder
from outrider.model.task import MAX_BATCH, MAX_DEPTH, MAX_KEY_CHARACTERS
from outrider.model.url import MAX_URL_BYTES, UrlRefused, locate
from outrider.policy.admission import storable
from outrider.policy.scope import ScopeRule, is_read_in_linear_time

MOST_SEEDS: Final = MAX_BATCH
MOST_PATTERNS: Final = 100
LONGEST_PATTERN: Final = 1_000
LONGEST_USER_AGENT: Final = 200
MOST_PAGES: Final = 2**31 - 1
MOST_LABELS: Final = 32
LONGEST_LABEL: Final = 63
SHORTEST_SECRET: Final = 16
YEAR_S: Final = 366 * 24 * 3600

FINGERPRINT: Final = "fingerprint"
"""Where a payload says what was asked for at first, so that an idempotency key is known to be for something else."""

Number = int | float

_BOUNDS: Final[Mapping[str, tuple[Number, Number]]] = {
    "max_pages": (1, MOST_PAGES),
    "max_pages_per_domain": (1, MOST_PAGES),
    "max_depth": (0, MAX_DEPTH),
    "delay": (0, 86_400),
    "per_domain": (1, 10_000),
    "concurrency": (1, 10_000),
    "timeout": (0.001, 3_600),
    "max_body": (1_024, 1024**3),
    "max_wait": (0, YEAR_S),
}


class OrderRefused(InvalidInput):
    """An order that makes no sense, or that may not be placed here."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.at = f"$.{field}"
        """Where in the order the mistake is."""


def checked_order(order: JobOrder, *, allow_private: bool = False) -> JobOrder:
    """Check an order and give its seeds their normal form; raises `OrderRefused`."""
    try:
        order = msgspec.convert(msgspec.to_builtins(order), JobOrder)
    except (msgspec.ValidationError, TypeError) as error:
        message, _, place = str(error).partition(" - at ")
        raise OrderRefused(place.strip("`").removeprefix("$.") or "order", message) from None
    for field in _BOUNDS:
        check_bounds(field, getattr(order, field))
    if order.scope not in list(ScopeRule):
        raise OrderRefused("scope", f"must be one of {', '.join(ScopeRule)}, not {shown(order.scope)}")
    _check_patterns("include", order.include)
    _check_patterns("exclude", order.exclude)
    _check_user_agent(order.user_agent)
    if order.refresh and order.fresh:
        raise OrderRefused("refresh", "a crawl that is forgotten first has nothing to fetch again: leave out fresh")
    if order.refresh and not order.seeds:
        return order
    return msgspec.structs.replace(order, seeds=_checked_seeds(order.seeds, allow_private=allow_private))


def check_crawl(order: JobOrder, crawl: str | None) -> None:
    """Check that an order which has no seeds says which crawl it is for."""
    if order.refresh and not order.seeds and crawl is None:
        raise OrderRefused("refresh", "name the crawl whose pages are to be fetched again, or give it seeds")


def check_bounds(field: str, value: Number | None) -> None:
    """Check a number of an order, by the field's name; None is no limit."""
    low, high = _BOUNDS[field]
    if value is not None and not low <= value <= high:  # NaN is in no bounds
        raise OrderRefused(field, f"must be from {low:,} to {high:,}, not {shown(value)}")


def _checked_seeds(seeds: tuple[str, ...], *, allow_private: bool) -> tuple[str, ...]:
    if not seeds:
        raise OrderRefused("seeds", "there must be at least one")
    if len(seeds) > MOST_SEEDS:
        raise OrderRefused("seeds", f"there are {len(seeds):,}, allowed are {MOST_SEEDS:,}")
    found: dict[str, None] = {}
    for number, seed in enumerate(seeds):
        try:
            url = locate(seed).url
        except UrlRefused as error:
            raise OrderRefused(f"seeds[{number}]", str(error)) from None
        private = None if allow_private else private_because(url)
        if private is not None:
            raise OrderRefused(f"seeds[{number}]", f"{private}, which is not crawled here")
        found[url] = None
    return tuple(found)


def _check_patterns(field: str, patterns: tuple[str, ...]) -> None:
    if len(patterns) > MOST_PATTERNS:
        raise OrderRefused(field, f"there are {len(patterns)} patterns, allowed are {MOST_PATTERNS}")
    for number, pattern in enumerate(patterns):
        place = f"{field}[{number}]"
        if len(pattern) > LONGEST_PATTERN or not storable(pattern):
            raise OrderRefused(place, f"a pattern is a text of at most {LONGEST_PATTERN} characters")
        try:
            is_linear = is_read_in_linear_time(pattern)
        except InvalidInput as error:
            raise OrderRefused(place, str(error)) from None
        if not is_linear:
            # Whoever runs a job runs those of others too, and one such pattern can hold up a worker for ever.
            raise OrderRefused(
                place, f"{shown(pattern)} is not a regular expression of RE2: no look-around, back references or "
                "possessive repetition, and characters in ASCII"
            )  # fmt: skip


def _check_user_agent(text: str | None) -> None:
    if text is not None and not (
        text.isascii() and text.isprintable() and text.strip() and len(text) <= LONGEST_USER_AGENT
    ):
        raise OrderRefused("user_agent", f"must be 1 to {LONGEST_USER_AGENT} printable ASCII characters")


def check_labels(labels: Mapping[str, str]) -> None:
    """Check what a job is marked with."""
    if len(labels) > MOST_LABELS:
        raise OrderRefused("labels", f"there are {len(labels)}, allowed are {MOST_LABELS}")
    for name, value in labels.items():
        if not (0 < len(name) <= LONGEST_LABEL and storable(name)) or "=" in name:
            raise OrderRefused("labels", f"a name has 1 to {LONGEST_LABEL} characters without =, not {shown(name)}")
        if len(value) > MAX_KEY_CHARACTERS or not storable(value):
            raise OrderRefused(f"labels.{name}", f"a value has at most {MAX_KEY_CHARACTERS} characters")


def check_webhook(url: str | None, secret: str | None, *, allow_private: bool = False) -> None:
    """Check where to tell of a job's end; what its name resolves to is checked when it is told."""
    if url is None:
        if secret is not None:
            raise OrderRefused("webhook_secret", "there is no webhook_url that it could be for")
        return
    try:
        locate(url)
        parts = urlsplit(url)
    except (UrlRefused, ValueError) as error:
        raise OrderRefused("webhook_url", str(error)) from None
    if len(url.encode()) > MAX_URL_BYTES or not storable(url):
        raise OrderRefused("webhook_url", f"must have at most {MAX_URL_BYTES} bytes")
    if parts.username is not None or parts.password is not None:
        raise OrderRefused("webhook_url", "must have no user and no password: messages are signed by webhook_secret")
    private = None if allow_private else private_because(url)
    if private is not None:
        raise OrderRefused("webhook_url", f"{private}, which is not told anything from here")
    if secret is not None and not (SHORTEST_SECRET <= len(secret) <= MAX_KEY_CHARACTERS and storable(secret)):
        raise OrderRefused("webhook_secret", f"must have {SHORTEST_SECRET} to {MAX_KEY_CHARACTERS} characters")


def fingerprint_of(request: JobRequest) -> str:
    """Tell two requests apart: the same for those that ask for the same."""
    return hashlib.sha256(msgspec.json.encode(request, order="deterministic")).hexdigest()
