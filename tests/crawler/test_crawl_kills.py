"""`outrider crawl` killed with -9 in the middle, again and again, and started again with the same command."""

import gzip
import random
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from warcio.archiveiterator import ArchiveIterator  # type: ignore[import-untyped]

from outrider.demo.site import Site, SiteOptions
from outrider.model.machines import TaskState
from outrider.model.task import Kind
from tests.crawler.crawling import Crawl, ServedSite, machine_is_overloaded, serving_site, wait_for

CONCURRENCY = 32
CRAWLING_AGAIN_S = 3.0


class Tale(NamedTuple):
    """A crawl that was killed and, in the end, finished."""

    site: Site
    served: ServedSite
    crawl: Crawl
    kills: int
    starts_s: list[float]
    """From the start of each process to its first request."""


def killed_again_and_again(folder: Path, served: ServedSite, pages: int, kills: int) -> Tale:
    """Kill a crawl at moments that chance chooses, most of them while it fetches, and let it finish."""
    crawl = Crawl(
        folder, served.url(), "--concurrency", CONCURRENCY, "--per-domain", CONCURRENCY, "--delay", 0, "--no-sitemaps"
    )
    chance = random.Random(folder.name)
    starts_s: list[float] = []
    for _ in range(kills):
        before = served.count()
        running = crawl.start()
        if chance.random() < 0.2:  # somewhere in its beginning
            until = time.monotonic() + chance.uniform(0.2, 1.0)
            wait_for(lambda until=until: time.monotonic() > until)  # type: ignore[misc]
        else:
            wait_for(lambda before=before: served.count() > before)  # type: ignore[misc]
            starts_s.append(served.requests()[before].at_s - running.began)
            target = before + chance.randint(1, 2 * (pages - before) // (kills + 1))
            wait_for(lambda target=target: served.count() >= target)  # type: ignore[misc]
        running.kill()
    ended = crawl.run()
    assert ended.code == 0, ended.errors
    return Tale(Site(SiteOptions(pages=pages, oddities=False)), served, crawl, kills, starts_s)


def check(tale: Tale) -> None:
    assert sorted(tale.crawl.paths()) == sorted(tale.site.page_paths()), "no page lost, none twice"
    ids = [line["id"] for line in tale.crawl.lines()]
    assert all(later > earlier for earlier, later in pairwise(ids))
    asked = tale.served.paths()
    assert asked.total() - len(asked) <= tale.kills * CONCURRENCY
    assert max(tale.starts_s) <= CRAWLING_AGAIN_S or machine_is_overloaded()
    assert tale.crawl.states() == {TaskState.COMPLETED: tale.site.options.pages}
    assert tale.crawl.states(Kind.ROBOTS) == {TaskState.COMPLETED: 1}
    check_runs(tale)
    check_archive(tale)


def check_runs(tale: Tale) -> None:
    runs = tale.crawl.runs()
    assert runs[-1] == ("completed", "drained")
    assert set(runs[:-1]) == {("failed", "killed")}
    # A process that is killed early enough has not begun a run.
    assert len(tale.starts_s) <= len(runs) - 1 <= tale.kills


def check_archive(tale: Tale) -> None:
    """Every file is whole to its last byte, and every line of the output finds its response there."""
    responses: dict[tuple[str, int], str] = {}
    for path in tale.crawl.warc_files():
        gzip.decompress(path.read_bytes())  # warcio overlooks a torn end, this does not
        with path.open("rb") as file:
            records = ArchiveIterator(file, check_digests="raise")
            for record in records:
                if record.rec_type == "response":
                    url = record.rec_headers.get_header("WARC-Target-URI")
                    responses[path.name, records.get_record_offset()] = url
    for line in tale.crawl.lines():
        assert responses[line["warc_file"], line["warc_offset"]] == line["url"]


def test_a_crawl_that_is_killed_five_times_loses_nothing_and_repeats_at_most_what_was_in_flight(
    tmp_path: Path,
) -> None:
    pages = 1_500
    with serving_site(tmp_path, "--pages", pages, "--no-oddities") as served:
        check(killed_again_and_again(tmp_path, served, pages, kills=5))


@pytest.mark.soak
def test_a_crawl_of_5000_pages_that_is_killed_ten_times_loses_nothing(tmp_path: Path) -> None:
    pages = 5_000
    with serving_site(tmp_path, "--pages", pages, "--no-oddities") as served:
        tale = killed_again_and_again(tmp_path, served, pages, kills=10)
        asked = served.paths()
        print(f"twice: {asked.total() - len(asked)}; again after {sorted(round(s, 2) for s in tale.starts_s)} s")
        check(tale)


def test_the_run_of_a_killed_process_is_closed_by_another_that_is_under_way(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 1_200, "--no-oddities") as served:
        crawl = Crawl(tmp_path, served.url(), "--concurrency", 4, "--per-domain", 8, "--delay", 0)
        victim = crawl.start()
        wait_for(lambda: served.count() > 10)
        survivor = crawl.start()
        wait_for(lambda: len(crawl.runs()) == 2)
        victim.kill()
        assert survivor.end().code == 0
    assert crawl.runs() == [("failed", "killed"), ("completed", "drained")]
    assert len(crawl.paths()) == len(set(crawl.paths())) == 1_200
