"""`outrider crawl` where what it writes to fails it, and where it loses what it holds."""

import asyncio
import re
import signal
from pathlib import Path

import pytest

from outrider.cli.exits import ExitCode
from outrider.model.machines import TaskState
from tests.crawler.crawling import Crawl, freeze, serving_site, wait_for
from tests.crawler.raw_server import Exchange, page, serving

FAST = ("--delay", 0, "--per-domain", 8, "--concurrency", 8)


def with_files_of_at_most(kilobytes: int) -> tuple[str, ...]:
    """A disk that is full, for one process."""
    return ("bash", "-c", f'ulimit -f {kilobytes}; exec "$@"', "bash")


@pytest.mark.parametrize(
    ("arguments", "pages", "page_bytes", "kilobytes", "told"),
    [
        (["--warc"], 60, 1_000_000, 3_000, r"outrider: no room left for .*\.warc\.gz.*; make room and resume"),
        # A file that may not grow is not what SQLite takes for a full disk.
        (["--no-warc"], 400, 2_000, 700, r"outrider: .*outrider\.sqlite failed: disk I/O error"),
    ],
    ids=["the archive", "the store"],
)
def test_a_full_disk_ends_the_crawl_with_a_clear_line_and_loses_nothing(
    arguments: list[str], pages: int, page_bytes: int, kilobytes: int, told: str, tmp_path: Path
) -> None:
    with serving_site(tmp_path, "--pages", pages, "--page-bytes", page_bytes, "--no-oddities") as served:
        crawl = Crawl(tmp_path, served.url(), *FAST, *arguments)
        ended = crawl.run(prefix=with_files_of_at_most(kilobytes))
        assert ended.code == ExitCode.STORE, ended.errors
        assert re.fullmatch(told, ended.errors.splitlines()[-1]), ended.errors
        assert "Traceback" not in ended.errors
        assert crawl.states()[TaskState.PENDING] > 0

        ended = crawl.run()
        assert ended.code == ExitCode.OK, ended.errors
    assert len(crawl.paths()) == len(set(crawl.paths())) == pages


@pytest.mark.parametrize("data", ["/sys/outrider", "/dev/null"])
def test_a_data_folder_that_cannot_be_written_is_told_in_one_line(data: str, tmp_path: Path) -> None:
    crawl = Crawl(tmp_path, "http://127.0.0.1:9/")
    crawl.data = Path(data)
    ended = crawl.run()
    assert ended.code == ExitCode.STORE, ended.errors
    assert ended.errors.startswith("outrider: ")
    assert data in ended.errors
    assert ended.errors.count("\n") == 1


async def test_a_process_that_slept_too_long_has_lost_its_page_to_another(tmp_path: Path) -> None:
    """Invariant *Exclusivity*: its report is refused, so that the page is there once."""
    awake = asyncio.Event()
    asked = 0

    async def slow_at_first(exchange: Exchange) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            await awake.wait()
        await exchange.send(page(f"<title>answer {asked}</title>".encode(), "Content-Type: text/html"))

    async with serving({"/": slow_at_first, "/robots.txt": page(status="404 Not Found")}) as server:
        crawl = Crawl(tmp_path, server.url("/"), *FAST, crash_threshold=1)
        sleeper = crawl.start()
        await asyncio.to_thread(wait_for, lambda: asked == 1)
        await asyncio.to_thread(freeze, sleeper, crawl)
        other = await asyncio.to_thread(crawl.run)
        assert other.code == ExitCode.OK, other.errors
        assert asked == 2
        awake.set()
        sleeper.send(signal.SIGCONT)
        ended = await asyncio.to_thread(sleeper.end)
        assert ended.code == ExitCode.OK, ended.errors
    assert [line["title"] for line in crawl.lines()] == ["answer 2"]
    assert crawl.query("SELECT expiries, attempt_count FROM tasks WHERE kind = 0") == [(1, 2)]
