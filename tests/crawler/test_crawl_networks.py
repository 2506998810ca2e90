"""`outrider crawl` where hosts cannot be reached, or must not be."""

import asyncio
from pathlib import Path

import pytest

from outrider.cli.exits import ExitCode
from outrider.model.machines import TaskState
from tests.crawler.crawling import Crawl, Ended, serving_site
from tests.crawler.raw_server import certificate, page, serving, unused_port

QUICK = {"retry_base_ms": 10}


def reasons(crawl: Crawl) -> list[str]:
    return [fate.reason for path, fate in crawl.fates().items() if path != "/robots.txt"]


def robots_reasons(crawl: Crawl) -> list[str]:
    return [fate.reason for path, fate in crawl.fates().items() if path == "/robots.txt"]


def crawled(folder: Path, *arguments: str | int | float) -> tuple[Crawl, Ended]:
    crawl = Crawl(folder, *arguments, "--delay", 0, "--timeout", 2, **QUICK)
    return crawl, crawl.run()


@pytest.mark.parametrize("robots", ["--robots", "--no-robots"])
def test_a_host_without_an_address_is_recorded_and_nothing_could_be_fetched(robots: str, tmp_path: Path) -> None:
    crawl, ended = crawled(tmp_path, "http://nowhere.invalid/", robots)
    assert ended.code == ExitCode.NOTHING_FETCHED, ended.errors
    waits = robots == "--robots"  # for a robots.txt that may yet come
    assert crawl.states() == {TaskState.PENDING if waits else TaskState.FAILED: 1}
    [reason] = robots_reasons(crawl) if waits else reasons(crawl)
    assert "dns: " in reason or "connect_timeout: " in reason, "the latter where no name server answers at all"


def test_a_closed_port_is_recorded_and_nothing_could_be_fetched(tmp_path: Path) -> None:
    crawl, ended = crawled(tmp_path, f"http://127.0.0.1:{unused_port()}/")
    assert ended.code == ExitCode.NOTHING_FETCHED, ended.errors
    [reason] = robots_reasons(crawl)
    assert "connect: " in reason
    assert "outrider retry-failed" in ended.errors


def test_a_site_that_cannot_be_reached_does_not_keep_others_from_being_crawled(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 10, "--no-oddities") as served:
        crawl, ended = crawled(tmp_path, served.url(), f"http://127.0.0.1:{unused_port()}/")
    assert ended.code == ExitCode.WAITING
    assert "robots.txt unreachable: connect: " in ended.errors
    assert crawl.states() == {TaskState.COMPLETED: 10, TaskState.PENDING: 1}


async def test_a_certificate_that_nobody_vouches_for_is_recorded_as_such(tmp_path: Path) -> None:
    async with serving({"/": page(), "/robots.txt": page()}, tls=certificate(tmp_path, name="127.0.0.1")) as server:
        crawl, ended = await asyncio.to_thread(crawled, tmp_path, server.url("/", scheme="https"))
    assert ended.code == ExitCode.NOTHING_FETCHED, ended.errors
    [reason] = robots_reasons(crawl)
    assert "tls: " in reason


async def test_a_private_address_is_refused_unless_it_was_typed(tmp_path: Path) -> None:
    """The seed is private itself and allowed for itself; what it leads to is not."""
    elsewhere = page(b"", "Location: http://127.0.0.99:9/", status="302 Found")
    async with serving({"/": elsewhere, "/robots.txt": page(status="404 Not Found")}) as server:
        crawl, ended = await asyncio.to_thread(crawled, tmp_path, server.url("/"))
        assert ended.code == ExitCode.OK, ended.errors
    fates = {url: (state, reason) for url, state, reason in crawl.query("SELECT url, state, reason FROM tasks")}
    state, reason = fates["http://127.0.0.99:9/"]
    assert state == 4
    assert "private_address: " in reason
    assert fates[server.url("/")][0] == 3


def test_with_allow_private_every_address_may_be_fetched(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--host", "127.0.0.1", "--host", "127.0.0.2", "--pages", 5, "--no-oddities") as served:
        seeds = tmp_path / "seeds.txt"
        seeds.write_text(f"{served.url()}\n{served.url('/', '127.0.0.2')}\n")
        crawl, ended = crawled(tmp_path, "--seeds", str(seeds), "--allow-private")
        assert ended.code == ExitCode.OK
    assert crawl.states() == {TaskState.COMPLETED: 10}


def test_private_addresses_of_a_list_of_seeds_were_not_typed(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 5) as served:
        seeds = tmp_path / "seeds.txt"
        seeds.write_text(f"{served.url()}\n")
        crawl, ended = crawled(tmp_path, "--seeds", str(seeds))
        assert ended.code == ExitCode.NOTHING_FETCHED
        assert served.count() == 0
    assert "private_address: " in reasons(crawl)[0]


def test_seeds_of_which_none_is_one_fetch_nothing(tmp_path: Path) -> None:
    _, ended = crawled(tmp_path, "http://[malformed", "mailto:someone@example.org")
    assert ended.code == ExitCode.REFUSED
    assert "no usable seed" in ended.errors


def test_a_proxy_is_asked_for_every_host(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 5, "--no-oddities") as served:
        crawl, ended = crawled(
            tmp_path, "http://one.example/", "http://two.example/", "--proxy", served.base_url, "--allow-private"
        )
        assert ended.code == ExitCode.OK, ended.errors
        assert {request.host for request in served.requests()} == {"one.example", "two.example"}
    assert crawl.states() == {TaskState.COMPLETED: 10}
