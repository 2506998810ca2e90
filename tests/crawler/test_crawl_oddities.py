"""Everything odd that a site can answer: each ends as it should, with its reason, and the crawl goes on."""

import fcntl
import re
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from outrider.cli.exits import ExitCode
from outrider.demo.odd.bodies import JAPANESE, WESTERN
from outrider.demo.site import ODDITIES, Site, SiteOptions
from outrider.model.machines import TaskState
from outrider.model.task import Kind
from tests.crawler.crawling import Crawl, Ended, ServedSite, serving_site
from tests.servers import RunFolder

PAGES = 40
COMPLETED, FAILED = TaskState.COMPLETED, TaskState.FAILED

FATES: dict[str, tuple[TaskState, int, str]] = {
    # Too slow, too long, cut off, or no HTTP.
    "/odd/slow": (COMPLETED, 200, ""),
    "/odd/slow-head": (FAILED, 0, "first_byte_timeout: .*"),
    "/odd/slow-body": (FAILED, 0, "timeout: .*"),
    "/odd/silent": (FAILED, 0, "first_byte_timeout: .*"),
    "/odd/endless": (COMPLETED, 200, "the body was cut off"),
    "/odd/huge": (COMPLETED, 200, "the body was cut off"),
    "/odd/truncated": (FAILED, 0, "disconnected: .*"),
    "/odd/truncated-chunks": (FAILED, 0, "disconnected: .*"),
    "/odd/dropped": (FAILED, 0, "disconnected: .*"),
    "/odd/not-http": (FAILED, 0, "bad_response: .*"),
    "/odd/two-lengths": (FAILED, 0, "bad_response: .*"),
    "/odd/header-flood": (FAILED, 0, "bad_response: .*"),
    "/odd/long-header": (FAILED, 0, "bad_response: .*"),
    # Wrongly encoded, or explosive.
    "/odd/encoded/gzip": (COMPLETED, 200, ""),
    "/odd/encoded/invalid-gzip": (FAILED, 0, "bad_encoding: .*"),
    "/odd/encoded/cut-gzip": (COMPLETED, 200, "the body was cut off"),
    "/odd/encoded/unheard-of": (COMPLETED, 200, ""),
    "/odd/encoded/gzip-bomb": (COMPLETED, 200, "the body was cut off"),
    "/odd/encoded/zstd-bomb": (COMPLETED, 200, "the body was cut off"),
    # Redirects.
    "/odd/redirect/301": (COMPLETED, 301, ""),
    "/odd/redirect/308": (COMPLETED, 308, ""),
    "/odd/redirect/landed/301": (COMPLETED, 200, ""),
    "/odd/redirect/without-location": (COMPLETED, 302, ""),
    "/odd/redirect/outside": (COMPLETED, 302, "redirects out of scope: .*elsewhere.invalid.*"),
    "/odd/redirect/metadata": (COMPLETED, 302, "redirects out of scope: .*"),
    "/odd/redirect/file": (COMPLETED, 302, "redirects to an address that is refused: .*"),
    "/odd/redirect/malformed": (COMPLETED, 302, "redirects to an address that is refused: .*"),
    "/odd/redirect/empty": (FAILED, 302, "redirects to itself"),
    "/odd/itself": (FAILED, 302, "redirects to itself"),
    "/odd/loop/3": (COMPLETED, 302, "redirects in a circle"),
    "/odd/chain/0": (COMPLETED, 200, ""),
    "/odd/for-ever/6": (COMPLETED, 302, "redirected more than 5 times"),
    # Errors: those of the client are answers, those of the server may pass.
    "/odd/always/404": (COMPLETED, 404, ""),
    "/odd/always/410": (COMPLETED, 410, ""),
    "/odd/always/204": (COMPLETED, 204, ""),
    "/odd/always/500": (FAILED, 500, "http 500"),
    "/odd/recovers/500": (COMPLETED, 200, ""),
    "/odd/recovers/429-seconds": (COMPLETED, 200, ""),
    "/odd/recovers/429-date": (COMPLETED, 200, ""),
    "/odd/recovers/503-seconds": (COMPLETED, 200, ""),
    "/odd/recovers/503-date": (COMPLETED, 200, ""),
    # What robots.txt says.
    "/odd/private/1": (FAILED, 0, "robots: line 3: Disallow: /odd/private/"),
    "/odd/target/x?forbidden=1": (FAILED, 0, r"robots: line 5: Disallow: /\*\?forbidden="),
    "/odd/private/open": (COMPLETED, 200, ""),
}


class Tour:
    """A whole crawl of a site with all its oddities."""

    def __init__(self, folder: Path, ended: Ended) -> None:
        self.crawl = crawl = Crawl(folder)
        self.ended = ended
        self.asked = ServedSite("http://127.0.0.1:0", folder).paths()
        self.fates = crawl.fates()
        self.lines = dict(zip(crawl.paths(), crawl.lines(), strict=True))


def make_tour(folder: Path) -> Ended:
    with serving_site(folder, "--pages", PAGES, "--slow", 0.1) as served:
        crawl = Crawl(
            folder,
            served.url("/"), served.url("/odd/"), "http://[malformed", "ftp://example.org/", "no-dots",
            "--delay", 0, "--per-domain", 16, "--concurrency", 16, "--timeout", 1, "--max-body", "1MB",
            # The calendar is entered near its end, and only some of very many links are followed.
            "--exclude", r"/calendar/(19|20[01])", "--exclude", r"/calendar/\d+/\d+/", "--exclude", r"/links/\d",
            retry_base_ms=20, backoff_base_ms=50, backoff_jitter=0,
        )  # fmt: skip
        return crawl.run()


@pytest.fixture(scope="module")
def tour(run_folder: RunFolder) -> Tour:
    """One crawl for all tests of the run, made by whichever pytest-xdist worker comes first."""
    folder = run_folder.path / "crawls" / "tour"
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "ended.json"
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not report.exists():
            report.write_bytes(msgspec.json.encode(make_tour(folder)))
    return Tour(folder, msgspec.json.decode(report.read_bytes(), type=Ended))


def test_the_crawl_goes_on_to_its_end_and_finds_every_page(tour: Tour) -> None:
    assert tour.ended.code == ExitCode.OK, tour.ended.errors
    assert set(Site(SiteOptions(pages=PAGES)).page_paths()) <= set(tour.lines)
    assert tour.crawl.states().keys() == {COMPLETED, FAILED}
    unknown = {oddity.path for oddity in ODDITIES} - tour.fates.keys()
    assert unknown == {"/odd/links/0"}, "which is excluded"


@pytest.mark.parametrize("path", FATES)
def test_each_oddity_ends_with_its_reason(tour: Tour, path: str) -> None:
    state, status, reason = FATES[path]
    fate = tour.fates[path]
    assert (fate.state, fate.status) == (state, status), fate
    assert re.fullmatch(reason, fate.reason), fate
    assert (path in tour.lines) == (state is COMPLETED)


def test_nothing_is_tried_more_often_than_its_trouble_is_worth(tour: Tour) -> None:
    """A page has three failures. Not charged are a kept connection that was closed, once, and what a whole site has."""
    for path in FATES:
        assert tour.fates[path].failures <= 3, path
        assert tour.asked[path] <= 8, path


def test_titles_are_read_whatever_the_charset(tour: Tour) -> None:
    western = ("windows-1252", "windows-1252-in-markup", "windows-1252-as-latin-1", "unheard-of")
    japanese = ("shift_jis", "shift_jis-in-markup", "utf-8-as-latin-1", "utf-8-unsaid", "utf-16")
    assert {tour.lines[f"/odd/charset/{name}"]["title"] for name in western} == {WESTERN}
    assert {tour.lines[f"/odd/charset/{name}"]["title"] for name in japanese} == {JAPANESE}


def test_what_must_not_be_followed_is_not(tour: Tour) -> None:
    assert not [path for path in tour.asked if "/unwanted/" in path]
    assert tour.fates["/odd/target/followed"].state is COMPLETED
    assert not [path for path in ("/odd/private/1", "/odd/target/x?forbidden=1") if path in tour.asked]


def test_pages_that_ask_not_to_be_indexed_are_marked(tour: Tour) -> None:
    marked = {path for path, line in tour.lines.items() if line["noindex"]}
    assert marked == {"/odd/nofollow-page", "/odd/robots-tag"}


def test_links_are_found_wherever_they_stand(tour: Tour) -> None:
    names = ("original", "second", "from-base", "refreshed", "deep", "area", "iframe", "upper-case", "dots")
    assert {name for name in names if tour.fates[f"/odd/target/{name}"].state is not COMPLETED} == set()
    assert tour.lines["/odd/links/"]["links"] == 5_000
    assert tour.lines["/odd/srcset"]["images"] == 1


def test_redirects_are_told_with_the_page_that_they_lead_to(tour: Tour) -> None:
    chain = [url.partition("/odd/")[2] for url in tour.lines["/odd/chain/0"]["redirects"]]
    assert chain == ["chain/5", "chain/4", "chain/3", "chain/2", "chain/1"]


def test_sitemaps_and_feeds_are_read(tour: Tour) -> None:
    assert tour.crawl.states(Kind.SITEMAP) == {COMPLETED: 2}
    assert tour.asked["/sitemap-0.xml.gz"] == 1
    found_by = dict(tour.crawl.query("SELECT discovery_type, count(*) FROM tasks GROUP BY discovery_type"))
    assert found_by[2] > 2, "pages of the sitemap"
    assert {"/feed.rss", "/feed.atom"} <= tour.lines.keys()


def test_traps_and_other_links_that_are_not_followed_are_counted_by_reason(tour: Tour) -> None:
    skipped = next(line for line in tour.ended.errors.splitlines() if line.startswith("links skipped"))
    for reason in ("trap_calendar", "trap_query_variants", "trap_repeated_path", "nofollow", "excluded by --exclude"):
        assert reason in skipped, skipped
    assert "not_http (1)" in skipped, "robots.txt has it, which holds for every page, and it is counted once"


def test_seeds_that_are_none_are_refused_one_by_one(tour: Tour) -> None:
    refused = [line for line in tour.ended.errors.splitlines() if line.startswith("seed refused: ")]
    assert len(refused) == 3
    assert "ftp://example.org/" in refused[1]


def test_a_site_that_asks_for_patience_is_not_asked_before_it_ends(tmp_path: Path) -> None:
    paths = ("/odd/recovers/429-seconds", "/odd/recovers/503-seconds")
    with serving_site(tmp_path, "--pages", 20) as served:
        crawl = Crawl(
            tmp_path, *map(served.url, paths), served.url("/"), "--delay", 0, "--max-depth", 0, "--no-sitemaps",
            backoff_base_ms=10,
        )  # fmt: skip
        assert crawl.run().code == ExitCode.OK
        requests = served.requests()
    refusals = [
        (request, following)
        for number, (request, following) in enumerate(pairwise(requests))
        if request.path in paths and sum(before.path == request.path for before in requests[: number + 1]) <= 2
    ]
    assert len(refusals) == 4
    assert all(following.at_s - request.at_s >= 1.0 for request, following in refusals)
