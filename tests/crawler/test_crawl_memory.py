"""How much memory a crawl takes does not depend on how long it is."""

import re
import time
from pathlib import Path

import pytest

from outrider.cli.exits import ExitCode
from tests.crawler.crawling import Crawl, Running, serving_site

MOST_BYTES = 250 * 1024 * 1024
HOUR_S = 3_600.0


def highest_memory(running: Running) -> int:
    """Watch a process until it ends; tell the most memory that it ever had, in bytes."""
    status = Path(f"/proc/{running.process.pid}/status")
    highest = 0
    until = time.monotonic() + HOUR_S
    while running.process.poll() is None:
        assert time.monotonic() < until
        if found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text()):
            highest = int(found[1]) * 1024
        time.sleep(0.2)
    return highest


@pytest.mark.soak
def test_a_crawl_of_200000_pages_stays_below_250_megabytes(tmp_path: Path) -> None:
    pages = 200_000
    with serving_site(tmp_path, "--pages", pages, "--no-oddities") as served:
        crawl = Crawl(tmp_path, served.url(), "--delay", 0, "--per-domain", 64, "--concurrency", 64)
        began = time.monotonic()
        running = crawl.start()
        highest = highest_memory(running)
        print(f"{highest / 2**20:.0f} MB at most, {pages / (time.monotonic() - began):.0f} pages/s")
        assert running.end().code == ExitCode.OK
    assert highest <= MOST_BYTES
    with crawl.output.open() as lines:
        assert sum(1 for _ in lines) == pages
