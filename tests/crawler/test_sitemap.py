"""Sitemaps: every form that sites have them in, and those that are meant as weapons."""

import gzip
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.crawler.sitemap import Sitemap, SitemapEntry, read_sitemap

URL = "https://example.org/sitemap.xml"
NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
MEASURED = """
import resource, sys
from outrider.crawler.sitemap import read_sitemap
body = sys.stdin.buffer.read()
usage = resource.getrusage(resource.RUSAGE_SELF)
sitemap = read_sitemap(body, url="https://example.org/sitemap.xml")
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime - usage.ru_utime, after.ru_maxrss - usage.ru_maxrss, len(sitemap.entries), sitemap.fault)
"""
ONE = f"<urlset {NAMESPACE}><url><loc>https://example.org/a</loc></url></urlset>".encode()


def read(body: bytes | str, **options: int) -> Sitemap:
    return read_sitemap(body.encode() if isinstance(body, str) else body, url=URL, **options)


def urls(body: bytes | str) -> list[str]:
    return [entry.url for entry in read(body).entries]


def test_an_entry_says_when_it_changed_and_how_much_it_matters() -> None:
    sitemap = read(f"""<?xml version="1.0" encoding="UTF-8"?>
        <urlset {NAMESPACE} xmlns:image="x"><url><loc> https://example.org/a?x=1&amp;y=2 </loc>
        <lastmod>1970-01-02</lastmod><changefreq>Daily</changefreq><priority>0.8</priority>
        <image:image><image:loc>https://example.org/no.png</image:loc></image:image></url>
        <url><loc>/b</loc><lastmod>soon</lastmod><changefreq>often</changefreq><priority>7</priority></url></urlset>""")
    assert sitemap.entries == [
        SitemapEntry(url="https://example.org/a?x=1&y=2", lastmod_ms=86_400_000, priority=0.8, changefreq="daily"),
        SitemapEntry(url="https://example.org/b"),
    ]
    assert (sitemap.sitemaps, sitemap.truncated, sitemap.fault) == ([], False, None)


def test_an_index_lists_sitemaps() -> None:
    sitemap = read(
        f"<sitemapindex {NAMESPACE}><sitemap><loc>https://example.org/1.xml.gz</loc></sitemap></sitemapindex>"
    )
    assert (sitemap.entries, sitemap.sitemaps) == ([], ["https://example.org/1.xml.gz"])


@pytest.mark.parametrize(
    "body",
    [
        ONE,
        b"\n \n" + ONE,
        b"\xef\xbb\xbf" + ONE,
        ONE.decode().encode("utf-16"),
        b"<?xml version='1.0' encoding='windows-1251'?>" + ONE,
        b'<s:urlset xmlns:s="x"><s:url><s:loc>https://example.org/a</s:loc></s:url></s:urlset>',
        b"<urlset><url><loc>https://example.org/a</loc><image:loc>no</image:loc></url></urlset>",
        gzip.compress(ONE),
        gzip.compress(ONE[:30]) + gzip.compress(ONE[30:]),
        b"https://example.org/a\r\nnonsense\n\nftp://example.org/b\n",
        b"<rss><channel><item><link>https://example.org/a</link></item></channel></rss>",
        b'<feed xmlns="http://www.w3.org/2005/Atom"><entry><link href="https://example.org/a"/></entry></feed>',
    ],
    ids=[
        "plain", "blank lines first", "mark first", "utf-16", "other charset", "prefixed", "undeclared prefix", "gzip",
        "two gzip members", "text", "rss", "atom",
    ],
)  # fmt: skip
def test_a_sitemap_is_read_in_every_form_that_sites_have_it_in(body: bytes) -> None:
    assert urls(body) == ["https://example.org/a"]


def test_a_broken_sitemap_gives_what_stands_before_the_fault() -> None:
    sitemap = read(f"<urlset {NAMESPACE}><url><loc>/a</loc></url><url><loc>/b</loc></url><url><loc>/c & d</loc></url>")
    assert [entry.url for entry in sitemap.entries] == ["https://example.org/a", "https://example.org/b"]
    assert sitemap.fault is not None


def test_gzip_that_is_cut_gives_what_could_be_unzipped() -> None:
    body = "<urlset>" + "".join(f"<url><loc>/{number * 7919}</loc></url>" for number in range(20_000))
    whole = gzip.compress(body.encode())
    assert 5_000 < len(urls(whole[: len(whole) // 2])) < 15_000
    assert urls(whole[:12]) == []


def test_entries_past_the_limit_are_left_out_and_told() -> None:
    entry = "<url><loc>/a</loc></url>"
    assert read(f"<urlset>{entry * 3}</urlset>", most=3).truncated is False
    sitemap = read(f"<urlset>{entry * 4}</urlset>", most=3)
    assert (len(sitemap.entries), sitemap.truncated) == (3, True)
    assert read("https://example.org/a\n" * 4, most=3).truncated is True


def test_entities_of_its_own_end_a_document() -> None:
    lol = "".join(f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' for level in range(1, 10))
    body = f'<!DOCTYPE x [<!ENTITY l0 "lol">{lol}]><urlset><url><loc>/&l9;</loc></url></urlset>'
    assert read(body) == Sitemap(fault="the document declares the entity 'l0'")
    external = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><urlset><url><loc>/&e;</loc></url></urlset>'
    assert read(external).entries == []


def test_a_document_type_alone_does_no_harm() -> None:
    assert urls(b'<!DOCTYPE urlset SYSTEM "x.dtd">' + ONE) == ["https://example.org/a"]


def weapon(name: str) -> bytes:
    """Make XML that means to cost far more than its megabytes."""
    match name:
        case "nesting":
            return b"<a>" * 20_000_000
        case "names":
            return b"<a>" + b"".join(b"<a%d/>" % number for number in range(1_000_000))
        case "one text":
            return b"<urlset><url><loc>" + b"x" * 60_000_000
        case "one tag":
            return b'<urlset x="' + b"x" * 60_000_000
        case "one name":
            return b"<" + b"x" * 60_000_000
        case _:
            return b"\0" * 60_000_000


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("nesting", "nested more than 100 levels deep"), ("names", "more than 10000 names"), ("one text", "no element"),
        ("one tag", "a tag of more than"), ("one name", "a tag of more than"), ("zeros", "None"),
    ],
)  # fmt: skip
def test_a_bomb_of_gzip_is_unzipped_and_read_within_bounds(name: str, fault: str) -> None:
    body = gzip.compress(weapon(name), 1)
    measured = subprocess.run([sys.executable, "-c", MEASURED], input=body, capture_output=True, check=True)
    seconds, kibibytes, entries, told = measured.stdout.decode().split(maxsplit=3)
    assert (float(seconds) < 5, int(kibibytes) < 100 * 1024, entries) == (True, True, "0")
    assert fault in told


@given(st.binary(max_size=200))
def test_no_bytes_whatsoever_make_a_sitemap_that_cannot_be_read(body: bytes) -> None:
    read(body)
    read(b"<urlset><url><loc>" + body)
    read(gzip.compress(ONE)[:-4] + body)
    read(b"<?xml version='1.0' encoding='" + body + b"'?><urlset/>")
