"""The file of pages follows the store: nothing is lost between two processes, and nothing doubled."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from outrider.crawler.page_tail import PageTail
from outrider.crawler.settled_pages import split_location
from outrider.model.artifact import ArtifactHorizon, Fetch
from outrider.model.errors import StoreNotOurs
from outrider.model.identifiers import new_uuid7
from outrider.model.lease import LeaseRequest, Outcome, Report
from outrider.model.task import CrawlLimits, Discovered, Kind
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from outrider.store.sql import migrate

LIMITS = CrawlLimits(delay_ms=0, concurrency=100, robots=False)
ANOTHER_ARTIFACT = """
    INSERT INTO crawl_log (crawl, key, url, token, url_hash, attempt, domain, kind, outcome, verdict, http_status,
                           images_found, discovery_type, depth, leased_at, reported_at)
    SELECT crawl, key, $1, $2, url_hash, attempt, domain, kind, outcome, verdict, http_status,
           images_found, discovery_type, depth, leased_at, reported_at FROM crawl_log"""


@pytest.fixture
async def urls(tmp_path: Path) -> AsyncIterator[UrlStore]:
    async with await open_store(f"sqlite:///{tmp_path / 'store.sqlite'}") as stores:
        for crawl in ("c", "other"):
            await stores.urls.create_crawl(crawl, limits=LIMITS)
        yield stores.urls


async def complete(
    urls: UrlStore,
    *paths: str,
    crawl: str = "c",
    outcome: Outcome = Outcome.DONE,
    kind: Kind = Kind.PAGE,
    now: int | None = None,
) -> None:
    """Have pages added, leased and reported."""
    await urls.add(crawl, [Discovered(url=f"https://a.example/{path}", kind=kind) for path in paths], now=now)
    request = LeaseRequest(worker="w", request_id=new_uuid7(), slots=100, crawl=crawl)
    leases = (await urls.lease(request, now=now)).leases
    reports = [Report(token=each.token, outcome=outcome, fetch=Fetch(http_status=200)) for each in leases]
    await urls.report(reports, now=now)


def paths(file: Path) -> list[str]:
    return [json.loads(line)["url"].removeprefix("https://a.example/") for line in file.read_text().splitlines()]


async def test_completed_pages_of_one_crawl_are_copied_and_nothing_else(urls: UrlStore, tmp_path: Path) -> None:
    file = tmp_path / "pages.jsonl"
    await complete(urls, "1", "2")
    await complete(urls, "failed", outcome=Outcome.REFUSED)
    await complete(urls, "sitemap", kind=Kind.SITEMAP)
    await complete(urls, "elsewhere", crawl="other")
    await complete(urls, "3")
    tail = PageTail(urls, "c", str(file))
    await tail.finish()
    assert sorted(paths(file)) == ["1", "2", "3"]


async def test_it_goes_on_after_the_last_line_and_cuts_a_torn_one(urls: UrlStore, tmp_path: Path) -> None:
    file = tmp_path / "pages.jsonl"
    await complete(urls, "1")
    await complete(urls, "2")
    await PageTail(urls, "c", str(file)).finish()
    file.write_bytes(file.read_bytes()[:-10])
    await complete(urls, "3")
    await PageTail(urls, "c", str(file)).finish()
    assert paths(file) == ["1", "2", "3"]


async def test_more_pages_than_are_read_at_once_are_all_copied(urls: UrlStore, tmp_path: Path) -> None:
    file = tmp_path / "pages.jsonl"
    for start in range(0, 1_500, 100):
        await complete(urls, *(str(number) for number in range(start, start + 100)))
    await PageTail(urls, "c", str(file)).finish()
    assert len(paths(file)) == len(set(paths(file))) == 1_500


async def test_whoever_has_the_file_copies_for_all_and_another_takes_over(urls: UrlStore, tmp_path: Path) -> None:
    file = tmp_path / "pages.jsonl"
    one, other = PageTail(urls, "c", str(file)), PageTail(urls, "c", str(file))
    await one.open()
    await complete(urls, "1")
    await other.finish()
    assert paths(file) == [], "it is not the other's to write"
    await one.copy()
    one.close()
    await complete(urls, "2")
    await other.copy()
    assert paths(file) == ["1", "2"]
    other.close()


async def test_the_last_pages_of_a_process_that_found_the_file_taken_are_not_forgotten(
    urls: UrlStore, tmp_path: Path
) -> None:
    """Another process may report and leave between the last look at the store and the closing of the file."""
    file = tmp_path / "pages.jsonl"

    class LateReports:
        """The store, with a process that reports something after each of the first two looks."""

        def __init__(self) -> None:
            self.late = ["late", "later"]

        def __getattr__(self, name: str) -> Any:
            return getattr(urls, name)

        async def artifact_horizon(self) -> ArtifactHorizon:
            horizon = await urls.artifact_horizon()
            if self.late:
                await complete(urls, self.late.pop(0))
            return horizon

    await complete(urls, "1")
    await PageTail(LateReports(), "c", str(file)).finish()
    assert paths(file) == ["1", "late", "later"]


async def test_the_file_of_another_crawl_is_left_alone(urls: UrlStore, tmp_path: Path) -> None:
    file = tmp_path / "pages.jsonl"
    await complete(urls, "1", crawl="other")
    await PageTail(urls, "other", str(file)).finish()
    before = file.read_bytes()
    with pytest.raises(StoreNotOurs, match="has the pages of another crawl"):
        await PageTail(urls, "c", str(file)).open()
    assert file.read_bytes() == before


async def begun_anew(urls: UrlStore) -> None:
    later = int(time.time() * 1000) + 10_000
    await urls.delete_crawl("c")
    await urls.create_crawl("c", limits=LIMITS, now=later)
    await complete(urls, "1", "2", now=later)


async def test_what_was_fetched_before_the_crawl_was_begun_anew_is_not_copied(urls: UrlStore, tmp_path: Path) -> None:
    file = tmp_path / "pages.jsonl"
    await complete(urls, "1", "gone")
    await begun_anew(urls)
    await PageTail(urls, "c", str(file)).finish()
    assert sorted(paths(file)) == ["1", "2"]


async def test_the_file_from_before_the_crawl_was_begun_anew_is_set_aside(urls: UrlStore, tmp_path: Path) -> None:
    file = tmp_path / "pages.jsonl"
    await complete(urls, "1", "gone")
    await PageTail(urls, "c", str(file)).finish()
    before = file.read_bytes()
    await begun_anew(urls)
    for _ in range(2):
        await PageTail(urls, "c", str(file)).finish()
        assert sorted(paths(file)) == ["1", "2"]
    assert (tmp_path / "pages.jsonl.old").read_bytes() == before


async def test_a_page_of_which_the_number_was_given_out_but_not_committed_is_waited_for(
    postgres_database: str, tmp_path: Path
) -> None:
    """PostgreSQL gives out numbers before it commits; whoever goes past one that is missing never sees it."""
    file = tmp_path / "pages.jsonl"
    await asyncio.to_thread(migrate.upgrade, postgres_database)
    async with await open_store(postgres_database) as stores:
        await stores.urls.create_crawl("c", limits=LIMITS)
        await complete(stores.urls, "1")
        tail = PageTail(stores.urls, "c", str(file))
        other = await asyncpg.connect(postgres_database)
        async with other.transaction():
            await other.execute(ANOTHER_ARTIFACT, "https://a.example/late", b"another token")
            await tail.copy()
        await other.close()
        await tail.finish()
    assert paths(file) == ["1", "late"]


@pytest.mark.parametrize(
    ("location", "parts"),
    [("a.warc.gz:12:34", ("a.warc.gz", 12)), (None, (None, None)), ("s3://bucket/key", (None, None))],
)
def test_a_place_in_the_archive_is_taken_apart(location: str | None, parts: tuple[str | None, int | None]) -> None:
    assert split_location(location) == parts
