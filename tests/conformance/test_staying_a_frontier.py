"""A store keeps and decides; it neither fetches nor reads what was fetched."""

import json
import subprocess
import sys

import outrider.store.opening

WHAT_FETCHES = {"aiohttp", "ftplib", "http", "httpcore", "httpx", "pycurl", "requests", "urllib.request", "urllib3"}
WHAT_READS_BODIES = {"bs4", "fastwarc", "html", "html5lib", "lxml", "parsel", "protego", "selectolax", "warcio"}


def test_opening_a_store_loads_nothing_that_fetches_or_reads_bodies() -> None:
    """Invariant 10, The frontier stays a frontier: it never opens a connection to a crawled site."""
    program = f"import json, sys, {outrider.store.opening.__name__}; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(json.loads(answer.stdout))
    assert outrider.store.opening.__name__ in loaded
    assert loaded & (WHAT_FETCHES | WHAT_READS_BODIES) == set()
