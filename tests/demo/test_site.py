import gzip
import re
from collections import deque
from email.utils import parsedate_to_datetime
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from protego import Protego
from selectolax.lexbor import LexborHTMLParser

from outrider.demo.answer import Answer, Request
from outrider.demo.listings import SITEMAP_PAGES
from outrider.demo.odd.bodies import JAPANESE, WESTERN
from outrider.demo.site import ODDITIES, Site, SiteOptions

SMALL = SiteOptions(pages=300)
PLAIN = SiteOptions(pages=300, oddities=False)
LOC = "{http://www.sitemaps.org/schemas/sitemap/0.9}loc"


def get(site: Site, target: str, *, visit: int = 1, now: float = 0.0, **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return site.answer(Request(target=target, host="site.example", headers=names, visit=visit, now=now))


def header(answer: Answer, name: str) -> str:
    return dict(answer.headers)[name]


def links(page: bytes) -> list[str]:
    return [str(node.attributes["href"]) for node in LexborHTMLParser(page).css("li > a")]


def depths(site: Site) -> dict[str, int]:
    """All paths that the lists of links lead to, by how many clicks away they are."""
    found = {"/": 0}
    waiting = deque(["/"])
    while waiting:
        path = waiting.popleft()
        for target in links(get(site, path).body):
            absolute = target if target.startswith("/") else f"/{target}"
            if absolute not in found:
                found[absolute] = found[path] + 1
                waiting.append(absolute)
    return found


@pytest.mark.parametrize("options", [SMALL, PLAIN, SiteOptions(pages=1), SiteOptions(pages=40, links_per_page=2)])
def test_a_crawl_from_the_front_page_finds_all_normal_pages_and_nothing_else(options: SiteOptions) -> None:
    site = Site(options)
    assert depths(site).keys() == set(site.page_paths())


def test_every_page_is_near_the_front_page() -> None:
    assert max(depths(Site(SiteOptions(pages=2_000))).values()) <= 4


def test_the_same_options_give_the_same_site_and_another_seed_gives_another() -> None:
    first, again, other = Site(SMALL), Site(SMALL), Site(SiteOptions(pages=300, seed=2))
    paths = list(first.page_paths())
    assert [get(first, path) for path in paths] == [get(again, path) for path in paths]
    assert get(first, paths[200]).body != get(other, paths[200]).body


def test_pages_have_the_links_and_about_the_length_that_was_asked_for() -> None:
    site = Site(SiteOptions(pages=300, links_per_page=12, page_bytes=3_000))
    for path in site.page_paths():
        body = get(site, path).body
        assert len(links(body)) == 12
        assert 2_900 <= len(body) <= 3_100


def test_a_vast_site_is_served_without_being_made_beforehand() -> None:
    site = Site(SiteOptions(pages=100_000_000))
    assert len(links(get(site, "/towns/99999999").body)) == 20


def test_plain_pages_lead_to_nothing_but_pages() -> None:
    site = Site(PLAIN)
    paths = set(site.page_paths())
    for path in paths:
        found = re.findall(rb'(?:href|src|srcset)="([^"]*)"', get(site, path).body)
        assert {each.decode() for each in found} <= paths
    assert [get(site, path).status for path in ("/odd/", "/sitemap.xml", "/feed.rss", "/image/1.png")] == [404] * 4
    assert b"Sitemap" not in get(site, "/robots.txt").body


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "//1", "/almanac/0", "/almanac/020", "/almanac/1", "/almanac/300", "/almanac/²", "/x/almanac/20",
     "/almanac/20/", "/odd", "/odd/nothing", "/sitemap-9.xml", "/sitemap-1.xml.gz", "/sitemap-.xml", "/image/64.png"],
)  # fmt: skip
def test_what_is_no_page_is_not_found(path: str) -> None:
    assert get(Site(SMALL), path).status == 404


def test_a_client_that_has_the_page_is_told_so() -> None:
    site = Site(SMALL)
    page = get(site, "/botany/1")
    etag, changed = header(page, "ETag"), header(page, "Last-Modified")
    assert parsedate_to_datetime(changed).year >= 2024
    assert (get(site, "/botany/1", if_none_match=etag).status, get(site, "/craft/2", if_none_match=etag).status) == (
        304,
        200,
    )
    assert get(site, "/botany/1", if_modified_since=changed) == get(site, "/botany/1", if_none_match=etag)
    assert get(site, "/botany/1", if_none_match='"other"', if_modified_since=changed).status == 200


def test_some_pages_have_images_canonicals_bases_feeds_and_some_no_title() -> None:
    site = Site(SMALL)
    whole = b"".join(get(site, path).body for path in site.page_paths())
    for part in (b"<img src", b"srcset=", b'rel="canonical"', b"<base ", b"rss+xml", b'rel="nofollow"', b"noarchive"):
        assert part in whole
    assert 0 < whole.count(b"<title>") < 300


def test_robots_txt_is_understood_as_meant() -> None:
    site = Site(SiteOptions(pages=300, robots_delay_s=0.25))
    rules = Protego.parse(get(site, "/robots.txt").body.decode())
    assert rules.can_fetch("/", "outrider")
    assert not rules.can_fetch("/odd/private/1", "outrider")
    assert not rules.can_fetch("/odd/target/x?forbidden=1", "outrider")
    assert rules.can_fetch("/odd/private/open", "outrider")
    assert not rules.can_fetch("/", "UnwelcomeBot")
    assert rules.crawl_delay("outrider") == 0.25
    assert "http://site.example/sitemap.xml" in list(rules.sitemaps)


def test_robots_txt_fails_when_it_is_told_to() -> None:
    assert get(Site(SiteOptions(robots_status=503)), "/robots.txt").status == 503


def test_the_sitemaps_list_every_page_once_some_of_them_gzipped() -> None:
    site = Site(SiteOptions(pages=SITEMAP_PAGES * 2 + 10))
    index = ET.fromstring(get(site, "/sitemap.xml").body)
    names = [str(each.text).removeprefix("http://site.example") for each in index.iter(LOC)]
    assert names == ["/sitemap-0.xml.gz", "/sitemap-1.xml", "/sitemap-2.xml.gz"]
    listed: list[str] = []
    for name in names:
        body = get(site, name).body
        root = ET.fromstring(gzip.decompress(body) if name.endswith(".gz") else body)
        listed += [str(each.text).removeprefix("http://site.example") for each in root.iter(LOC)]
        assert len(list(root.iter(LOC.replace("loc", "lastmod")))) == len(list(root.iter(LOC)))
        assert all(0 <= float(str(each.text)) <= 1 for each in root.iter(LOC.replace("loc", "priority")))
    assert listed == list(site.page_paths())


@pytest.mark.parametrize("path", ["/feed.rss", "/feed.atom"])
def test_feeds_are_xml_with_the_latest_pages(path: str) -> None:
    root = ET.fromstring(get(Site(SMALL), path).body)
    entries = [each for each in root.iter() if each.tag.endswith(("item", "entry"))]
    assert len(entries) == 20


def test_the_list_of_odd_pages_links_to_all_of_them_and_each_is_there() -> None:
    site = Site(SMALL)
    assert links(get(site, "/odd/").body) == [oddity.path for oddity in ODDITIES]
    assert b'href="/odd/"' in get(site, "/").body
    missing = [oddity.path for oddity in ODDITIES if get(site, oddity.path).status == 404]
    assert missing == ["/odd/always/404"]


def test_chains_end_and_loops_do_not() -> None:
    site = Site(SMALL)

    def follow(path: str, most: int) -> list[str]:
        way = [path]
        while len(way) <= most and get(site, way[-1]).status in (301, 302):
            way.append(header(get(site, way[-1]), "Location"))
        return way

    assert follow("/odd/chain/5", 20) == [f"/odd/chain/{number}" for number in (5, 4, 3, 2, 1, 0)]
    assert follow("/odd/loop/1", 4) == [f"/odd/loop/{number}" for number in (1, 2, 3, 1, 2)]
    assert follow("/odd/itself", 2) == ["/odd/itself"] * 3
    assert len(set(follow("/odd/for-ever/1", 30))) == 31


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_lands_on_a_page(status: int) -> None:
    site = Site(SMALL)
    answer = get(site, f"/odd/redirect/{status}")
    assert answer.status == status
    assert get(site, header(answer, "Location")).status == 200


@pytest.mark.parametrize("name", ["500", "429-seconds", "429-date", "503-seconds", "503-date"])
def test_what_recovers_fails_at_first(name: str) -> None:
    site = Site(SiteOptions(failures=2, retry_after_s=3))
    path = f"/odd/recovers/{name}"
    assert site.counts_visits(path)
    answers = [get(site, path, visit=visit, now=1_000_000_000.0) for visit in (1, 2, 3)]
    assert [answer.status for answer in answers] == [int(name[:3]), int(name[:3]), 200]
    if name.endswith("seconds"):
        assert header(answers[0], "Retry-After") == "3"
    elif name.endswith("date"):
        assert parsedate_to_datetime(header(answers[0], "Retry-After")).timestamp() == 1_000_000_003


@pytest.mark.parametrize(
    ("name", "charset", "title"),
    [("windows-1252", "windows-1252", WESTERN), ("windows-1252-unsaid", "windows-1252", WESTERN),
     ("shift_jis-in-markup", "shift_jis", JAPANESE), ("utf-8-as-latin-1", "utf-8", JAPANESE),
     ("utf-16", "utf-16", JAPANESE)],
)  # fmt: skip
def test_pages_are_in_the_charset_of_their_name(name: str, charset: str, title: str) -> None:
    assert f"<title>{title}</title>" in get(Site(SMALL), f"/odd/charset/{name}").body.decode(charset)


@pytest.mark.parametrize("trap", ["/odd/calendar/2026/01", "/odd/repetition/", "/odd/variants", "/odd/sessions"])
def test_a_trap_leads_to_ever_new_pages(trap: str) -> None:
    site, seen = Site(SMALL), {trap}
    path = trap
    for _ in range(50):
        body = LexborHTMLParser(get(site, path).body)
        found = [str(node.attributes["href"]) for node in body.css("a")]
        new = [each if each.startswith("/") else path + each for each in found]
        path = next(each for each in new if each not in seen and get(site, each).status == 200)
        seen.add(path)
    assert len(seen) == 51


def test_the_page_with_very_many_links_has_that_many_and_each_is_there() -> None:
    site = Site(SiteOptions(many_links=1_234))
    assert get(site, "/odd/links/").body.count(b"<a href") == 1_234
    assert [get(site, f"/odd/links/{number}").status for number in (0, 1_233, 1_234)] == [200, 200, 404]


@pytest.mark.parametrize("wrong", [{"pages": 0}, {"links_per_page": 1}, {"robots_delay_s": -1.0}, {"huge_bytes": -1}])
def test_options_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SiteOptions(**wrong)
