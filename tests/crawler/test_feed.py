"""Feeds: RSS and Atom, whole and broken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.crawler.feed import FeedEntry, is_feed, moment_of, read_feed

URL = "https://example.org/feed"


def urls(body: str) -> list[str]:
    return [entry.url for entry in read_feed(body.encode(), url=URL).entries]


def test_rss_2_lists_the_links_of_its_items() -> None:
    feed = read_feed(
        b"""<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><link>https://example.org/</link>
        <atom:link href="https://example.org/feed" rel="self"/>
        <item><title>A</title><link> https://example.org/a </link><atom:link href="/no"/>
            <pubDate>Thu, 01 Jan 1970 00:00:01 GMT</pubDate></item>
        <item><link><![CDATA[/b?x=1&y=2]]></link></item></channel></rss>""",
        url=URL,
    )
    assert feed.entries == [
        FeedEntry(url="https://example.org/a", changed_ms=1_000),
        FeedEntry(url="https://example.org/b?x=1&y=2"),
    ]
    assert (feed.truncated, feed.fault) == (False, None)


def test_rss_1_keeps_its_items_beside_the_channel() -> None:
    assert urls(
        """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/">
        <channel><link>/</link></channel><item rdf:about="x"><link>/a</link></item></rdf:RDF>"""
    ) == ["https://example.org/a"]


@pytest.mark.parametrize("prefix", ["", "atom:"])
def test_atom_entries_lead_where_their_alternate_link_does(prefix: str) -> None:
    body = """<P:feed xmlns="http://www.w3.org/2005/Atom" xmlns:atom="http://www.w3.org/2005/Atom">
        <P:entry><P:link rel="self" href="/no"/><P:link rel="alternate" href="/a"/><P:updated>1970-01-01</P:updated>
            <P:content><P:link href="/inside"/></P:content></P:entry>
        <P:entry><P:link href="/b"/></P:entry><P:entry><P:id>https://example.org/c</P:id></P:entry>
        <P:entry><P:id>urn:uuid:1</P:id></P:entry></P:feed>""".replace("P:", prefix)
    assert urls(body) == ["https://example.org/a", "https://example.org/b", "https://example.org/c"]


def test_a_permanent_guid_stands_in_for_a_link() -> None:
    assert urls(
        """<rss><channel><item><guid>https://example.org/a</guid></item>
        <item><guid isPermaLink="false">https://example.org/no</guid></item></channel></rss>"""
    ) == ["https://example.org/a"]


def test_a_broken_feed_gives_what_stands_before_the_fault() -> None:
    feed = read_feed(b"<rss><channel><item><link>/a</link></item><item><link>/b</wrong>", url=URL)
    assert [entry.url for entry in feed.entries] == ["https://example.org/a"]
    assert feed.fault is not None


def test_what_is_no_feed_says_so() -> None:
    assert (
        read_feed(b"<html><item><link>/a</link></item></html>", url=URL).fault == "the document is a html, not a feed"
    )


def test_entries_past_the_limit_are_left_out_and_told() -> None:
    body = b"<rss><channel>" + b"<item><link>/a</link></item>" * 5 + b"</channel></rss>"
    feed = read_feed(body, url=URL, most=3)
    assert (len(feed.entries), feed.truncated) == (3, True)


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/rss+xml", b"", True), ("Application/Atom+XML; charset=utf-8", b"", True),
        ("text/xml", b"<?xml version='1.0'?>\n<rss version='2.0'>", True), (None, b"<feed xmlns='x'>", True),
        ("text/xml", b"<urlset>", False), ("text/html", b"<rss>", False), (None, b"", False),
    ],
)  # fmt: skip
def test_a_feed_is_known_by_its_type_or_first_element(content_type: str | None, body: bytes, expected: bool) -> None:
    assert is_feed(content_type, body) is expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1970", 0), ("1970-01", 0), ("1970-01-02", 86_400_000), ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.5Z", 500), ("Thu, 01 Jan 1970 01:00:00 +0100", 0), ("1960-01-01", None), ("", None),
        ("yesterday", None), ("9999-99-99", None), ("x" * 5_000, None), ("0", None),
    ],
)  # fmt: skip
def test_dates_are_read_as_people_write_them(written: str, expected: int | None) -> None:
    assert moment_of(written) == expected


@given(st.text(max_size=40))
def test_no_text_is_a_date_that_cannot_be_read(written: str) -> None:
    moment_of(written)


@given(st.binary(max_size=200))
def test_no_bytes_whatsoever_make_a_feed_that_cannot_be_read(body: bytes) -> None:
    read_feed(body, url=URL)
    read_feed(b"<rss><channel><item><link>" + body, url=URL)
