"""A small universe for random operations, so that everything in it meets everything else.

Two crawls, five domains, two queues that clients named, two workers, two runs. Strategies draw numbers
rather than records: that is fast, and shrinks well.
"""

from typing import Any, Final

from hypothesis import strategies as st

from outrider.model.artifact import Fetch
from outrider.model.gate import Robots
from outrider.model.lease import Outcome
from outrider.model.settings import Settings
from outrider.model.task import CrawlLimits, Kind
from outrider.model.url import locate

T0: Final = 1_700_000_000_000

SHORT_LIVED = Settings(
    backoff_jitter=0.0, max_retries=2, max_deferrals=2, max_lease_expiries=2, max_domain_errors=2,
    max_block_retries=1, forbidden_rest_ms=5_000, server_error_rest_ms=20_000, unreachable_rest_ms=60_000,
)  # fmt: skip
"""Ends come soon, and nothing is left to chance."""

CRAWLS: Final = ("first", "second")
WORKERS: Final = ("ann", "bob")
RUNS: Final = (None, "01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-000000000002")
URLS: Final = [
    *(f"https://{host}/{page}" for host in ("a.org", "b.org", "c.net", "d.co.uk") for page in range(5)),
    "https://www.a.org/1", "http://a.org/2", "HTTPS://B.org:443/./1#top", "https://b.org/robots.txt",
    "http://[2001:db8::1]:8080/1", "http://[2001:db8::1]:8080/2", "http://[2001:db8::1]:8080/",
]  # fmt: skip
DOMAINS: Final = list(dict.fromkeys(locate(url).domain for url in URLS))
MIXED_URLS: Final = [
    "https://a.org/1",
    "https://c.net/1",
    *(f"https://{host}/m{page}" for page in range(6) for host in ("a.org", "c.net")),
]
SECOND_QUEUE_URLS: Final = ["https://a.org/1", "https://a.org/2", "https://a.org/x", "https://a.org/y"]
KEYS: Final = [*DOMAINS, "mixed", "second-queue"]

ITEMS: Final[list[dict[str, Any]]] = [
    {}, {}, {}, {}, {"depth": 1}, {"depth": 2}, {"depth": 3}, {"priority": 1}, {"priority": 9},
    {"key": "mixed"}, {"key": "mixed", "priority": 1}, {"key": "second-queue"}, {"due_in_ms": 1_500},
    {"due_in_ms": 60_000}, {"kind": Kind.IMAGE}, {"kind": Kind.SITEMAP, "depth": 1},
    {"metadata": {"from": "a feed"}},
    {"url": "javascript:alert(1)"}, {"url": "http://[::1"}, {"url": "http://a.org/\0"}, {"url": 7},
    {"priority": -1}, {"depth": -1}, {"due_in_ms": -1}, {"key": ""}, {"key": "k" * 256}, {"kind": 9},
    {"metadata": {1: 2}},
]  # fmt: skip
"""What may be said of a discovery, the last eleven of them wrong."""

OUTCOMES: Final[list[dict[str, Any]]] = [
    {"outcome": Outcome.DONE}, {"outcome": Outcome.DONE}, {"outcome": Outcome.DONE, "sent_after_ms": 400},
    {"outcome": Outcome.DONE, "fetch": Fetch(http_status=304, etag="abc", elapsed_ms=70)},
    {"outcome": Outcome.DONE, "sent_after_ms": 1_000, "reason": "thin"},
    {"outcome": Outcome.DONE, "robots": Robots(text="Allow: /", expires_in_ms=30_000, crawl_delay_ms=2_000)},
    {"outcome": Outcome.DONE, "robots": Robots(text="Allow: /x", expires_in_ms=0)},
    {"outcome": Outcome.FAILED, "robots": Robots(text="#", expires_in_ms=20_000, unreachable=True)},
    {"outcome": Outcome.FAILED}, {"outcome": Outcome.FAILED, "reason": "timeout", "sent_after_ms": 999_999},
    {"outcome": Outcome.FAILED, "retry_after_ms": 30_000}, {"outcome": Outcome.FAILED, "sent_after_ms": None},
    {"outcome": Outcome.DEFERRED}, {"outcome": Outcome.DEFERRED, "backs_off": True, "fetch": Fetch(http_status=429)},
    {"outcome": Outcome.DEFERRED, "backs_off": True, "retry_after_ms": 8_000, "fetch": Fetch(http_status=503)},
    {"outcome": Outcome.DEFERRED, "sent_after_ms": None, "reason": "stopping"},
    {"outcome": Outcome.FAILED, "block_code": "timeout"}, {"outcome": Outcome.FAILED, "block_code": "timeout"},
    {"outcome": Outcome.DONE, "block_code": "forbidden", "fetch": Fetch(http_status=403)},
    {"outcome": Outcome.DEFERRED, "block_code": "server_error", "backs_off": True, "fetch": Fetch(http_status=503)},
    {"outcome": Outcome.REFUSED, "reason": "robots"}, {"outcome": Outcome.REFUSED},
    {"outcome": Outcome.DONE, "fetch": Fetch()}, {"outcome": Outcome.FAILED, "retry_after_ms": -1},
]  # fmt: skip
"""What may be said in a report, the last two of them wrong."""

crawls = st.sampled_from(CRAWLS)
limits = st.builds(
    CrawlLimits,
    max_depth=st.sampled_from([None, None, 0, 1]),
    max_pages=st.sampled_from([None, None, None, 3]),
    max_pages_per_domain=st.sampled_from([None, 1, 2]),
    delay_ms=st.sampled_from([0, 0, 1_000]),
    concurrency=st.integers(1, 3),
    robots=st.sampled_from([False, False, True]),
)
workers = st.sampled_from(WORKERS)
picks = st.integers(0, 11)
jumps = st.sampled_from([0, 0, 0, 1, 400, 600, 1_000, 1_000, 1_001, 5_000, 20_000, 61_000, 121_000])
spans = st.sampled_from([None, 0, 900, 45_000])
batches = st.lists(st.tuples(st.integers(0, len(URLS) - 1), st.integers(0, len(ITEMS) - 1)), min_size=1, max_size=8)
reports = st.lists(
    st.tuples(picks, st.integers(0, len(OUTCOMES) - 1), st.lists(st.integers(0, len(URLS) - 1), max_size=2)),
    min_size=1,
    max_size=4,
)
