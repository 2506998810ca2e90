"""Pages: the links, images and declarations of HTML, from friends and from strangers."""

import resource
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.crawler.markup import thinned
from outrider.crawler.page import Link, Page, is_html, is_xml, read_page, x_robots
from outrider.policy.discovery import LinkKind, Region

URL = "https://example.org/dir/page"


def page(html: str, **options: object) -> Page:
    return read_page(html.encode(), url=URL, declared_charset="utf-8", **options)  # type: ignore[arg-type]


def urls(html: str) -> list[str]:
    return [link.url for link in page(html).links]


def padded(html: str) -> str:
    """Make a page so large that it is cut down before it is read."""
    return html + "<i>x</i>" * 20_000


def test_a_page_is_read_as_a_whole() -> None:
    read = page("""<!doctype html><title> A
        title &amp; more </title><a href="next?a=1&amp;b=2#top">x</a><img src=1.png>""")
    assert read == Page(
        title="A title & more",
        links=[
            Link(
                url="https://example.org/dir/next?a=1&b=2", kind=LinkKind.ANCHOR, nofollow=False, place=0,
                region=Region.BODY,
            )
        ],
        links_dropped=0, images=1, image_urls=[], noindex=False, nofollow=False, charset="utf-8",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("html", "kind"),
    [
        ("<a href=/x>", LinkKind.ANCHOR), ("<map><area href=/x></map>", LinkKind.AREA),
        ("<A HREF=/x REL=Next>", LinkKind.NEXT), ("<link rel=next href=/x>", LinkKind.NEXT),
        ("<link rel=canonical href=/x>", LinkKind.CANONICAL),
        ("<link rel=alternate hreflang=fr href=/x>", LinkKind.ALTERNATE),
        ("<link rel=alternate type=text/html href=/x>", LinkKind.ALTERNATE),
        ('<link rel="alternate" type="application/rss+xml; charset=utf-8" href="/x">', LinkKind.FEED),
        ("<link rel=alternate type=application/atom+xml href=/x>", LinkKind.FEED),
        ("<iframe src=/x><a href=/no></iframe>", LinkKind.FRAME),
        ("<meta http-equiv=refresh content='5; URL=/x'>", LinkKind.REFRESH),
        ("""<meta http-equiv="Refresh" content="0;url='/x'">""", LinkKind.REFRESH),
        ("<meta http-equiv=refresh content='0, /x'>", LinkKind.REFRESH),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [str, padded])
def test_every_kind_of_link_is_found_in_small_and_large_pages(html: str, kind: LinkKind, size: type[str]) -> None:
    links = page(size(html)).links
    assert [(link.url, link.kind) for link in links] == [("https://example.org/x", kind)]


@pytest.mark.parametrize(
    "html",
    [
        "<a>", "<a href>", "<a href=''>", "<a href='#top'>", "<a href='javascript:go()'>", "<a href='JavaScript:go()'>",
        "<a href='mailto:a@example.org'>", "<a href='tel:1'>", "<a href='data:text/html,x'>", "<a href='ftp://a/b'>",
        "<a href='http://'>", "<a href='http://a b/'>", "<link rel=stylesheet href=/x>",
        "<link rel='alternate stylesheet' href=/x>", "<link rel=alternate type=application/json href=/x>",
        "<!-- <a href=/x> -->", "<script>'<a href=/x>'</script>", "<style><a href=/x></style>",
        "<textarea><a href=/x></textarea>", "<template><a href=/x></template>", "<div title='<a href=/x>'></div>",
        "<meta http-equiv=refresh content=5>",
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [str, padded])
def test_what_leads_to_no_page_is_no_link(html: str, size: type[str]) -> None:
    assert page(size(html)).links == []


@pytest.mark.parametrize("html", ["<a href=/x", "<a href='/x>", "<a href='/x> <p>"])
@pytest.mark.parametrize("before", ["", "<i>x</i>" * 20_000], ids=["small", "large"])
def test_a_tag_that_the_end_of_the_body_cuts_is_no_link(html: str, before: str) -> None:
    assert urls(before + html) == []


def test_links_are_relative_to_the_first_base() -> None:
    assert urls("<base target=x><base href=/other/><base href=/no/><a href=a>") == ["https://example.org/other/a"]
    assert urls("<a href=a><base href='http://'>") == ["https://example.org/dir/a"]


def test_of_equal_links_the_first_counts_and_the_page_itself_does_not() -> None:
    read = page("<a href=/a><a href=/b rel=nofollow><a href='/a#x'><a href=/b><a href=page><a href='page#x'>")
    assert [(link.url, link.nofollow, link.place) for link in read.links] == [
        ("https://example.org/a", False, 0),
        ("https://example.org/b", True, 1),
    ]


@pytest.mark.parametrize(
    ("relations", "nofollow"), [("nofollow", True), ("noopener NoFollow", True), ("ugc sponsored", False), ("", False)]
)
def test_only_nofollow_means_nofollow(relations: str, nofollow: bool) -> None:
    assert page(f"<a href=/x rel='{relations}'>").links[0].nofollow is nofollow


@pytest.mark.parametrize("size", [str, padded])
def test_a_link_knows_its_region_of_the_page(size: type[str]) -> None:
    html = """<header><a href=/1></header><nav><a href=/2></nav><a href=/3>
        <article><header><a href=/4></header><a href=/5></article><aside><a href=/6></aside><footer><a href=/7></footer>
        <a href=/8>"""
    assert [link.region for link in page(size(html)).links] == [
        Region.NAVIGATION, Region.NAVIGATION, Region.BODY, Region.MAIN, Region.MAIN, Region.ASIDE, Region.FOOTER,
        Region.BODY,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("html", "noindex", "nofollow"),
    [
        ("<meta name=robots content='NOINDEX, follow'>", True, False),
        ("<meta name=ROBOTS content=nofollow>", False, True),
        ("<meta name=robots content=none>", True, True),
        ("<meta name=Outrider content=noindex>", True, False),
        ("<meta name=otherbot content=noindex>", False, False),
        ("<meta name=robots content=noindex><meta name=outrider content=nofollow>", True, True),
        ("<meta name=robots>", False, False),
    ],
)
@pytest.mark.parametrize("size", [str, padded])
def test_meta_robots_is_read_for_all_and_for_us(html: str, noindex: bool, nofollow: bool, size: type[str]) -> None:
    read = page(size(html))
    assert (read.noindex, read.nofollow) == (noindex, nofollow)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], (False, False)), (["noindex"], (True, False)), (["NoIndex, NoFollow"], (True, True)),
        (["none"], (True, True)), (["otherbot: noindex"], (False, False)), (["Outrider: noindex"], (True, False)),
        (["otherbot: noindex, nofollow", "nofollow"], (False, True)),
        (["otherbot: noindex, outrider: nofollow"], (False, True)),
        (["unavailable_after: 25 Jun 2030 15:00:00 PST, noindex"], (True, False)), (["", ",", ":"], (False, False)),
    ],
)  # fmt: skip
def test_x_robots_tag_is_read_for_all_and_for_us(values: list[str], expected: tuple[bool, bool]) -> None:
    assert x_robots(values, "outrider") == expected


def test_distinct_images_are_counted_and_their_urls_given_when_asked() -> None:
    html = """<img src=a.png><img src=a.png><img><img src="data:image/png,x">
        <picture><source srcset="b.webp 1x, c.webp 2x"><img src=d.png srcset="e.png, f.png 2x"></picture>
        <video><source src=film.mp4></video>"""
    assert (page(html).images, page(html).image_urls) == (4, [])
    asked = page(html, with_image_urls=True)
    assert {url.rpartition("/")[2] for url in asked.image_urls} == {
        "a.png", "b.webp", "c.webp", "d.png", "e.png", "f.png",
    }  # fmt: skip


def test_links_past_the_limit_are_dropped_and_counted() -> None:
    read = page("".join(f"<a href=/{number}>" for number in range(30)), max_links=20)
    assert (len(read.links), read.links_dropped) == (20, 10)


def test_a_page_of_half_a_million_links_is_bounded_and_says_how_many_it_dropped() -> None:
    read = page("".join(f"<a href=/{number}>" for number in range(500_000)))
    assert (len(read.links), read.links_dropped) == (10_000, 490_000)


@pytest.mark.parametrize(
    "html",
    [
        "".join(f"<p><b id={number}>" for number in range(50_000)),
        "<div>" * 300_000,
        "".join(f"<article><header id={number}>" for number in range(2_000)),
        "<a " + " ".join(f"x{number}" for number in range(200_000)) + ">",
        "<a " * 300_000,
        "<a ='" * 300_001,
        "<!-" * 300_000,
        "<script " * 300_000,
        "<" * 300_000,
    ],
    ids=["reopened", "nested", "regions", "attributes", "open tags", "open quotes", "comments", "scripts", "brackets"],
)
def test_markup_made_to_blow_up_is_read_in_bounded_time_and_memory(html: str) -> None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.thread_time()
    assert urls(f"<a href=/first></a>{html}") == ["https://example.org/first"]
    assert time.thread_time() - started < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 150 * 1024


def test_thinned_html_says_the_same_in_fewer_words() -> None:
    html = """<html><body class="x"><title>T</title><nav><p><b><a title="a>b" href='/1'>one</a></b></p><nav></nav></nav>
        <!-- <a href=/no> --><script>"<a href=/no>"</script><a href=/2 title=it's>two</a><iframe src=/3>no</iframe>"""
    assert thinned(html, most_tags=100, most_characters=1_000).text == (
        "<title>T</title><nav><a title=\"a>b\" href='/1'></nav><a href=/2 title=it's><iframe src=/3></iframe>"
    )


MARKUP = st.lists(
    st.sampled_from(
        ["<", ">", "<a href=", "/x", '"', "'", " ", "=", "<!--", "-->", "<script>", "</script>", "<p>", "<b>", "<nav>",
         "</nav>", "<title>", "<base href=", "<meta content=", "<img srcset=", ",", "&amp;", "&#0;", "\0", "é", "http:",
         "//", "[", "<svg>", "<math>", "<template>", "<table>", "<iframe src="]
    ),
    max_size=60,
).map("".join)  # fmt: skip


@given(st.binary(max_size=500) | MARKUP.map(str.encode), st.sampled_from([URL, "", "nonsense", "http://[", "a:b"]))
@example(b"\xff\xfe<\xd8\x00", URL)
def test_no_bytes_whatsoever_make_a_page_that_cannot_be_read(body: bytes, url: str) -> None:
    read = read_page(body, url=url)
    assert all(link.url.startswith(("http://", "https://")) for link in read.links)


@given(MARKUP)
def test_cutting_down_never_makes_a_page_that_cannot_be_read(html: str) -> None:
    kept = thinned(html, most_tags=10, most_characters=1_000)
    assert len(kept.text) <= 1_000
    page(kept.text)


@pytest.mark.parametrize(
    ("content_type", "body", "html", "xml"),
    [
        ("text/html; charset=x", b"", True, False), ("application/xhtml+xml", b"", True, False),
        ("TEXT/HTML", b"%PDF", True, False), ("text/plain", b"<html>", False, False),
        ("image/svg+xml", b"", False, True), ("application/xml", b"<html>", False, True),
        ("application/pdf", b"<html>", False, False), (None, b" \n<!DOCTYPE html>", True, False),
        (None, b"\xef\xbb\xbf<html lang=en>", True, False), ("", b"<!-- x --><p>", True, False),
        (None, b"<?xml version='1.0'?><rss>", False, True), (None, b"<?xml version='1.0'?>\n<html >", True, False),
        (None, b"<urlset>", False, True), (None, b"\x89PNG", False, False), (None, b"", False, False),
        (None, b"<prose>", False, False), (None, "\ufeff<html>".encode("utf-16-le"), True, False),
    ],
)  # fmt: skip
def test_the_type_of_a_body_is_what_it_says_or_else_how_it_begins(
    content_type: str | None, body: bytes, html: bool, xml: bool
) -> None:
    assert (is_html(content_type, body), is_xml(content_type, body)) == (html, xml)
