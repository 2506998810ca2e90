"""Hostile input: what no store may choke on, as tables and as Hypothesis strategies."""

from typing import Any, Final

from hypothesis import strategies as st

from outrider.model.artifact import Fetch
from outrider.model.gate import Robots
from outrider.model.lease import Outcome, Report
from outrider.model.task import MAX_BATCH, MAX_METADATA_LEVELS, Discovered, DiscoveryType, Kind, Refusal

NO_TEXT: Final[list[Any]] = [None, 5, 5.0, True, b"text", ["text"], {"text": 1}, object()]
UNSTORABLE: Final[list[Any]] = ["\0", "nul\0inside", "half \ud800 a pair", "\udfff"]
NO_WHOLE_NUMBER: Final[list[Any]] = [True, 1.0, float("nan"), "1", b"1", [1], object()]
NEGATIVE_OR_HUGE: Final[list[Any]] = [-1, -(10**30), 10**30, 10**5_000, -(10**5_000)]

A_MEGABYTE: Final = "x" * 1_000_000

BAD_URLS: Final[list[tuple[Any, Refusal]]] = [
    ("", Refusal.NOT_HTTP),
    ("/relative", Refusal.NOT_HTTP),
    ("//a.example/", Refusal.NOT_HTTP),
    ("javascript:alert(1)", Refusal.NOT_HTTP),
    ("mailto:me@a.example", Refusal.NOT_HTTP),
    ("ftp://a.example/", Refusal.NOT_HTTP),
    ("http://", Refusal.NO_HOST),
    ("http://[::1", Refusal.BAD_HOST),
    ("http://a..example/", Refusal.BAD_HOST),
    ("http://a.example:99999/", Refusal.BAD_PORT),
    ("\0", Refusal.BAD_TEXT),
    ("http://a.example/\0", Refusal.BAD_TEXT),
    ("http://a.example/\ud800", Refusal.BAD_TEXT),
    ("http://\udfff.example/", Refusal.BAD_TEXT),
    (A_MEGABYTE, Refusal.TOO_LONG),
    ("http://a.example/" + A_MEGABYTE, Refusal.TOO_LONG),
    ("http://" + A_MEGABYTE + ".example/", Refusal.TOO_LONG),
    ("javascript:" + A_MEGABYTE, Refusal.TOO_LONG),
    *((value, Refusal.BAD_TEXT) for value in NO_TEXT),
]


def nested(levels: int) -> dict[str, Any]:
    """Metadata of so many levels."""
    innermost: dict[str, Any] = {}
    for _ in range(levels - 1):
        innermost = {"deeper": innermost}
    return innermost


def _endless() -> dict[str, Any]:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    return circle


BAD_FIELDS: Final[list[tuple[str, Any, Refusal]]] = [
    *(("priority", value, Refusal.BAD_PRIORITY) for value in (*NO_WHOLE_NUMBER, *NEGATIVE_OR_HUGE, None, 2**31)),
    *(("depth", value, Refusal.BAD_DEPTH) for value in (*NO_WHOLE_NUMBER, *NEGATIVE_OR_HUGE, None, 2**31)),
    *(("due_in_ms", value, Refusal.BAD_DUE) for value in (*NO_WHOLE_NUMBER, *NEGATIVE_OR_HUGE, None)),
    *(("kind", value, Refusal.BAD_KIND) for value in (*NO_WHOLE_NUMBER, *NEGATIVE_OR_HUGE, None, 4, "page")),
    *(("discovery_type", value, Refusal.BAD_KIND) for value in (*NO_WHOLE_NUMBER, *NEGATIVE_OR_HUGE, None, 8)),
    *(("key", value, Refusal.BAD_KEY) for value in (*NO_TEXT[1:], *UNSTORABLE, "", "k" * 256, A_MEGABYTE)),
    *(("metadata", value, Refusal.BAD_METADATA) for value in (*NO_TEXT[1:-2], "{}", {"m": object()}, {"m": "\ud800"})),
    *(("metadata", {"m": number}, Refusal.BAD_METADATA) for number in (float("nan"), float("inf"), -float("inf"))),
    ("metadata", {"m": A_MEGABYTE}, Refusal.BAD_METADATA),
    *(("metadata", {"m": value}, Refusal.BAD_METADATA) for value in (b"bytes", {1, 2}, {1: "no text"}, 10**5_000)),
    ("metadata", nested(MAX_METADATA_LEVELS + 1), Refusal.BAD_METADATA),
    ("metadata", nested(5_000), Refusal.BAD_METADATA),
    ("metadata", _endless(), Refusal.BAD_METADATA),
]

BAD_TOKENS: Final[list[Any]] = [
    *NO_TEXT, *UNSTORABLE, "", "ab", "ab" * 15, "ab" * 17, "zz" * 16, " " * 32, "ab" * 15 + "\0\0", "é" * 32,
    "ab" * 15 + " a", "ab" * 14 + "\t\n\t\n", A_MEGABYTE,
]  # fmt: skip

_BAD_COUNTS: Final[list[Any]] = [*NO_WHOLE_NUMBER, *NEGATIVE_OR_HUGE]

BAD_REPORTS: Final[list[dict[str, Any]]] = [
    *({"outcome": outcome} for outcome in (None, "gone", 5, b"done", ["done"])),
    *({"fetch": Fetch(http_status=status)} for status in (0, 1000, None, *_BAD_COUNTS)),
    *({"outcome": Outcome.FAILED, "fetch": Fetch(http_status=status)} for status in (2**31, None, *_BAD_COUNTS)),
    *(
        {"fetch": Fetch(http_status=200, **{field: value})}
        for field in ("images_found", "elapsed_ms", "body_bytes", "fetched_at")
        for value in _BAD_COUNTS
    ),
    {"fetch": Fetch(http_status=200, images_found=None)},  # type: ignore[arg-type]
    *(
        {"fetch": Fetch(http_status=200, **{field: value})}
        for field in ("content_type", "digest", "etag", "last_modified", "content_location")
        for value in (*NO_TEXT[1:], *UNSTORABLE)
    ),
    *({field: value} for field in ("retry_after_ms", "sent_after_ms") for value in _BAD_COUNTS),
    *({"reason": value} for value in (*NO_TEXT[1:], *UNSTORABLE)),
    *({"fetch": value} for value in (None, 200, {"http_status": 200})),
    *({"robots": value} for value in ("User-agent: *", 5, {"text": ""})),
    *({"robots": Robots(text=value, expires_in_ms=1)} for value in (*NO_TEXT, *UNSTORABLE)),
    *({"robots": Robots(text="", expires_in_ms=value)} for value in (None, *_BAD_COUNTS)),
    *({"robots": Robots(text="", expires_in_ms=1, crawl_delay_ms=value)} for value in _BAD_COUNTS),
    *({"links": value} for value in (None, 5, True, "http://a.example/", {"http://a.example/": 1})),
    {"links": [Discovered(url="http://a.example/")] * (MAX_BATCH + 1)},
]

texts = st.text(st.characters(exclude_categories=()), max_size=40)
"""Any text, lone surrogates and NUL bytes included."""

anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64]),
    st.floats(),
    texts,
    st.binary(max_size=10),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(texts, st.one_of(st.none(), st.floats(), texts, st.binary()), max_size=3),
    st.builds(object),
)

urls = st.one_of(
    texts,
    texts.map("http://a.example/".__add__),
    texts.map(lambda host: f"http://{host}/"),
    texts.map(lambda query: f"https://a.example:8080/?{query}#x"),
)

discoveries = st.builds(
    Discovered,
    url=urls | anything,
    depth=st.integers(0, 9) | anything,
    priority=st.integers(0, 9) | anything,
    key=st.none() | texts | anything,
    kind=st.sampled_from(Kind) | anything,
    due_in_ms=st.integers(0, 9) | anything,
    discovery_type=st.sampled_from(DiscoveryType) | anything,
    metadata=st.none() | anything,
)

fetches = st.builds(
    Fetch,
    http_status=st.integers(0, 600) | anything,
    **{field: st.none() | anything for field in Fetch.__struct_fields__ if field != "http_status"},
)

robots = st.builds(Robots, text=texts | anything, expires_in_ms=st.integers(0) | anything, crawl_delay_ms=anything)


def reports(token: Any) -> st.SearchStrategy[Report]:
    """Reports of one lease, with junk in any field but the token."""
    return st.builds(
        Report,
        token=st.just(token),
        outcome=st.sampled_from(Outcome) | anything,
        fetch=fetches | anything,
        links=st.lists(discoveries | anything, max_size=3) | anything,
        reason=st.none() | anything,
        retry_after_ms=st.none() | anything,
        backs_off=st.booleans() | anything,
        sent_after_ms=st.integers(0, 9) | anything,
        robots=st.none() | robots | anything,
    )
