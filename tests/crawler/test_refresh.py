"""`outrider refresh` on a site whose pages stay, change, vanish and come to be."""

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from outrider.crawler.plan import DATABASE
from outrider.model.task import DiscoveryType
from tests.cli.commands import command
from tests.crawler.raw_server import Answer, Exchange, RawServer, page, serving

HTML = "Content-Type: text/html"
WORDS = " ".join(f"word{letter} and some more of it" for letter in "abcdefghijklmnopqrstuvwxyz")
REFRESHING = {
    "ENABLE_REFRESH_MODE": "true",
    "OUTRIDER_REFRESH_FIRST": "0.001",
    "OUTRIDER_REFRESH_SHORTEST": "0.001",
    "OUTRIDER_REFRESH_BALANCE": "0.001",
    "OUTRIDER_EXHAUSTED_REST": "0.001",
    "OUTRIDER_REFRESH_GONE_RETRY": "0.001",
}
"""A second is a long time on this site."""


def text(body: str, *links: str) -> bytes:
    anchors = "".join(f'<a href="{link}">{link}</a>' for link in links)
    return f"<html><title>t</title><nav>{anchors}</nav><main>{body}</main></html>".encode()


def with_validator(tag: str, body: bytes) -> Answer:
    """A page that need not be sent again to who has it."""

    async def answer(exchange: Exchange) -> None:
        has_it = f"If-None-Match: {tag}".encode() in exchange.head
        status = "304 Not Modified" if has_it else "200 OK"
        await exchange.send(page(b"" if has_it else body, HTML, f"ETag: {tag}", "Connection: close", status=status))

    return answer


@pytest_asyncio.fixture
async def site() -> AsyncIterator[RawServer]:
    """A site of five pages."""
    answers: dict[str, Answer] = {
        "/robots.txt": page(b"", status="404 Not Found"),
        "/": page(text(WORDS, "/stays", "/counts", "/changes", "/vanishes"), HTML),
        "/stays": with_validator('"1"', text(WORDS)),
        "/counts": page(text(f"{WORDS} 1 visitor"), HTML),
        "/changes": page(text(WORDS), HTML),
        "/vanishes": page(text(WORDS), HTML),
    }
    async with serving(answers) as server:
        yield server


async def outrider(folder: Path, *words: str, **environment: str) -> tuple[int, str]:
    async with command(folder, *words, "--progress", "plain", environment=REFRESHING | environment) as running:
        return await running.ends(), running.said


async def crawl(folder: Path, site: RawServer, **environment: str) -> None:
    code, said = await outrider(folder, "crawl", site.url("/"), "--delay", "0", "--per-domain", "4", **environment)
    assert code == 0, said


def requests(site: RawServer) -> Counter[str]:
    """What was asked for since the last look."""
    paths = Counter(head.split(b" ", 2)[1].decode() for head in site.heads)
    site.heads.clear()
    return paths


def query(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    database = sqlite3.connect(f"file:{folder / 'outrider-data' / DATABASE}?mode=ro", uri=True)
    try:
        return database.execute(statement).fetchall()
    finally:
        database.close()


def pages_and_changes(folder: Path) -> dict[str, tuple[int, int]]:
    """How often each path was found to have changed, and to be gone."""
    statement = "SELECT t.url, v.changes, v.gone FROM revisits v JOIN tasks t USING (crawl_id, key, hash)"
    return {f"/{url.split('/', 3)[3]}": (changes, gone) for url, changes, gone in query(folder, statement)}


async def test_every_page_is_fetched_once_and_changes_are_told_from_counters(tmp_path: Path, site: RawServer) -> None:
    await crawl(tmp_path, site)
    assert requests(site)["/stays"] == 1
    assert isinstance(site.answers, dict)
    site.answers |= {
        "/": page(text(WORDS, "/stays", "/counts", "/changes", "/new"), HTML),
        "/counts": page(text(f"{WORDS} 1,234 visitors"), HTML),
        "/changes": page(text("Something else altogether is to be read here from now on, " * 9), HTML),
        "/vanishes": page(b"", status="404 Not Found"),
        "/new": page(text(WORDS), HTML),
    }
    code, said = await outrider(tmp_path, "refresh")
    assert code == 0, said
    assert {path: number for path, number in requests(site).items() if path != "/robots.txt"} == {
        "/": 1,
        "/stays": 1,
        "/counts": 1,
        "/changes": 1,
        "/vanishes": 1,
        "/new": 1,
    }
    assert pages_and_changes(tmp_path) == {
        "/": (0, 0),
        "/stays": (0, 0),
        "/counts": (0, 0),
        "/changes": (1, 0),
        "/vanishes": (0, 1),
        "/new": (0, 0),
    }
    found = query(tmp_path, f"SELECT url, http_status FROM crawl_log WHERE discovery_type = {DiscoveryType.REFRESH:d}")
    assert {(f"/{url.split('/', 3)[3]}", status) for url, status in found} == {
        ("/", 200),
        ("/stays", 304),
        ("/counts", 200),
        ("/changes", 200),
        ("/vanishes", 404),
    }
    assert query(tmp_path, "SELECT kind FROM crawl_runs ORDER BY started_at") == [("crawl",), ("refresh",)]


async def test_a_page_that_stays_away_is_asked_for_three_times_and_then_left(tmp_path: Path, site: RawServer) -> None:
    await crawl(tmp_path, site)
    requests(site)
    assert isinstance(site.answers, dict)
    site.answers["/vanishes"] = page(b"", status="410 Gone")
    asked = []
    for _ in range(5):
        await outrider(tmp_path, "refresh")
        asked.append(requests(site)["/vanishes"])
    assert asked == [1, 1, 1, 0, 0]


async def test_what_is_not_due_is_left_and_one_domain_is_fetched_on_request(tmp_path: Path, site: RawServer) -> None:
    later = {"OUTRIDER_REFRESH_FIRST": "86400", "OUTRIDER_REFRESH_SHORTEST": "3600", "OUTRIDER_EXHAUSTED_REST": "86400"}
    await crawl(tmp_path, site, **later)
    requests(site)
    code, said = await outrider(tmp_path, "refresh", **later)
    assert (code, requests(site)) == (0, {}), said
    assert "nothing of crawl DEFAULT is due" in said
    domain = site.url("/").removeprefix("http://").rstrip("/")
    await outrider(tmp_path, "refresh", "--domain", domain, "--due-only", **later)
    assert requests(site) == {}
    await outrider(tmp_path, "refresh", "--domain", domain, "--limit", "2", **later)
    assert requests(site).total() == 2
    await outrider(tmp_path, "refresh", "--domain", domain, **later)
    assert set(requests(site)) == {"/", "/stays", "/counts", "/changes", "/vanishes"}


async def test_pages_of_before_are_refreshed_too_once_refreshing_is_on(tmp_path: Path, site: RawServer) -> None:
    await crawl(tmp_path, site, ENABLE_REFRESH_MODE="false")
    assert query(tmp_path, "SELECT 1 FROM revisits") == []
    requests(site)
    code, said = await outrider(tmp_path, "refresh", ENABLE_REFRESH_MODE="false")
    assert (code, requests(site)) == (4, {})
    assert "ENABLE_REFRESH_MODE=true" in said
    domain = site.url("/").removeprefix("http://").rstrip("/")
    await outrider(tmp_path, "refresh", "--domain", domain)
    assert len(requests(site)) == 5
    (stayed,) = query(tmp_path, "SELECT http_status FROM crawl_log WHERE url LIKE '%/stays' AND attempt = 2")
    assert stayed == (304,)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--due-only"], "--due-only is for domains that are named"),
        (["--crawl", "other"], "there is no crawl named 'other'"),
        (["--progress", "loud"], "--progress must be one of"),
    ],
)
async def test_a_wish_that_makes_no_sense_is_refused(
    tmp_path: Path, site: RawServer, words: list[str], reason: str
) -> None:
    await crawl(tmp_path, site)
    requests(site)
    async with command(tmp_path, "refresh", *words, environment=REFRESHING) as running:
        assert await running.ends() == 4
    assert reason in running.said
    assert requests(site) == {}
