"""What `outrider crawl` makes of the answers to robots.txt."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from outrider.cli.exits import ExitCode
from outrider.model.machines import TaskState
from tests.crawler.crawling import Crawl, serving_site
from tests.crawler.raw_server import Exchange, page, serving, unused_port


def test_a_site_whose_robots_txt_is_out_of_order_is_waited_for_and_not_asked_for_a_page(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 5, "--robots-status", 500) as served:
        crawl = Crawl(tmp_path, served.url(), "--delay", 0, "--max-wait", 1)
        ended = crawl.run()
        assert ended.code == ExitCode.WAITING, ended.errors
        assert set(served.paths()) == {"/robots.txt"}
    assert crawl.states() == {TaskState.PENDING: 1}


def test_a_site_whose_robots_txt_comes_back_is_crawled_after_all(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 5, "--no-oddities", "--robots-status", 500) as served:
        crawl = Crawl(tmp_path, served.url(), "--delay", 0, "--max-wait", 0.1, backoff_base_ms=200, backoff_jitter=0)
        assert crawl.run().code == ExitCode.WAITING
    with serving_site(tmp_path, "--pages", 5, "--no-oddities", "--port", served.port):
        assert crawl.run().code == ExitCode.OK
    assert crawl.states() == {TaskState.COMPLETED: 5}


def test_where_there_is_no_robots_txt_everything_is_allowed(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 5, "--no-oddities", "--robots-status", 404) as served:
        crawl = Crawl(tmp_path, served.url(), "--delay", 0)
        assert crawl.run().code == ExitCode.OK
        assert crawl.states() == {TaskState.COMPLETED: 5}
        assert served.paths()["/robots.txt"] == 1


def test_no_robots_asks_for_none(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 5, "--robots-status", 500, "--no-oddities") as served:
        crawl = Crawl(tmp_path, served.url(), "--delay", 0, "--no-robots")
        assert crawl.run().code == ExitCode.OK
        assert "/robots.txt" not in served.paths()


async def test_a_site_whose_robots_txt_cannot_be_reached_is_waited_for_and_the_reason_kept(tmp_path: Path) -> None:
    async def hang_up(_: Exchange) -> None:
        return

    async with serving({"/": page(), "/robots.txt": hang_up}) as server:
        crawl = Crawl(tmp_path, server.url("/"), "--delay", 0, retry_base_ms=20)
        ended = await asyncio.to_thread(crawl.run)
        assert ended.code == ExitCode.NOTHING_FETCHED, ended.errors
        assert len(server.heads) == 3, "as often as a task may fail"
        assert "robots.txt unreachable: disconnected: " in ended.errors
        again = await asyncio.to_thread(crawl.run)
        assert again.code == ExitCode.WAITING, again.errors
        assert "robots.txt unreachable" in again.errors
        assert len(server.heads) == 3, "a second execution waits as well"
    assert crawl.states() == {TaskState.PENDING: 1}
    [(reason,)] = crawl.query("SELECT reason FROM tasks WHERE kind = 1")
    assert reason.startswith("disconnected: ")
    assert crawl.query("SELECT errors_in_row FROM gates") == [(3,)], "counts towards unreachable"


async def test_a_site_whose_robots_txt_can_be_reached_again_is_crawled_after_retry_failed(tmp_path: Path) -> None:
    port = unused_port()
    crawl = Crawl(tmp_path, f"http://127.0.0.1:{port}/", "--delay", 0, retry_base_ms=20)
    assert (await asyncio.to_thread(crawl.run)).code == ExitCode.NOTHING_FETCHED
    with serving_site(tmp_path, "--pages", 5, "--no-oddities", "--port", port):
        assert (await asyncio.to_thread(crawl.run)).code == ExitCode.WAITING
        command = (sys.executable, "-m", "outrider.cli.main", "retry-failed", "--data", str(crawl.data))
        assert (await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)).stdout
        assert (await asyncio.to_thread(crawl.run)).code == ExitCode.OK
    assert crawl.states() == {TaskState.COMPLETED: 5}


async def test_redirects_of_robots_txt_are_followed_inside_the_domain_and_keep_the_delay(tmp_path: Path) -> None:
    times: list[tuple[float, str]] = []

    def noted(answer: bytes, path: str) -> object:
        async def answered(exchange: Exchange) -> None:
            times.append((time.monotonic(), path))
            await exchange.send(answer)

        return answered

    moved = page(b"", "Location: /rules.txt", status="301 Moved Permanently")
    rules = page(b"User-agent: *\nDisallow: /forbidden\n", "Content-Type: text/plain")
    home = page(b'<a href="/forbidden">x</a>', "Content-Type: text/html")
    answers = {
        path: noted(answer, path) for path, answer in {"/robots.txt": moved, "/rules.txt": rules, "/": home}.items()
    }
    async with serving(answers) as server:  # type: ignore[arg-type]
        crawl = Crawl(tmp_path, server.url("/"), "--delay", 0.3)
        assert (await asyncio.to_thread(crawl.run)).code == ExitCode.OK
    assert [path for _, path in times] == ["/robots.txt", "/rules.txt", "/"]
    assert times[1][0] - times[0][0] >= 0.28
    assert times[2][0] - times[1][0] >= 0.28
    reasons = crawl.query("SELECT reason FROM tasks WHERE url LIKE '%/forbidden'")
    assert reasons == [("robots: line 2: Disallow: /forbidden",)]
