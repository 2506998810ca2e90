"""Pages: what an HTML document says of itself and where it leads.

Lexbor builds the tree that the HTML standard asks for, and that tree can be far larger than its page: 26 KB of
`<p><b id=1><p><b id=2>…` make 734 MB, 200 KB of nested `<div>` keep it busy for two seconds. So a page is handed
to it whole only if its number of tags rules that out, and cut down to the tags that are read otherwise.
"""

import re
from collections.abc import Iterable
from typing import Final

import can_ada
import msgspec
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, SelectolaxError

from outrider.crawler.charset import decode
from outrider.crawler.markup import absolute, base_of, thinned
from outrider.policy.discovery import LinkKind, Region

MAX_LINKS: Final = 10_000
MAX_TITLE_CHARACTERS: Final = 1_000

_SMALL_CHARACTERS = 4_096
"""So little cannot make more than 80,000 elements."""
_WHOLE_CHARACTERS = 65_536
"""More than this is cut down: a single tag with so many attributes takes Lexbor 0.2 s, and the square of it."""
_MOST_NESTED = 10_000
_MOST_REOPENED = 200_000
"""Elements of 360 bytes that badly closed markup may make beside its own."""
_THINNED_CHARACTERS = 2_097_152
_TAGS_PER_LINK = 3
_FORMATTING = re.compile(r"<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)[\s/>]", re.IGNORECASE)
"""What HTML opens again wherever it was not closed (the list of active formatting elements, without `a`)."""

_REGIONS = {
    "header": Region.NAVIGATION,
    "nav": Region.NAVIGATION,
    "main": Region.MAIN,
    "article": Region.MAIN,
    "aside": Region.ASIDE,
    "footer": Region.FOOTER,
}
_REGION_ROOTS = ",".join(_REGIONS)
_MOST_REGIONS = 64
"""Pages have a handful; thousands inside each other would make the search for their links quadratic."""
_REGION_MARKS = tuple(f"<{name}" for name in _REGIONS)
_HAS_NO_PAGE = ("javascript:", "mailto:", "tel:", "data:", "#")
_FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/feed+xml"})
_PAGE_TYPES = frozenset({"", "text/html", "application/xhtml+xml"})
_REFRESH = re.compile(r"\s*[\d.]+\s*[;,]?\s*(?:url\s*=\s*)?(?:'([^']+)'?|\"([^\"]+)\"?|(\S+))", re.IGNORECASE)
_CANDIDATE = re.compile(r"([^\s,]\S*+)(?:(?<!,)\s[^,]*+)?")
"""One image of a `srcset` and its descriptor, which it has unless a comma ends its URL."""


class Link(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a page leads; the URL is absolute and http or https, but not normalised."""

    url: str
    kind: LinkKind
    nofollow: bool
    place: int
    """Its order among the links that were kept."""
    region: Region


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from one HTML document."""

    title: str | None
    links: list[Link]
    links_dropped: int
    """Links past the limit or too long to be fetched; of a page of many megabytes, an estimate."""
    images: int
    image_urls: list[str]
    """Empty unless asked for."""
    noindex: bool
    nofollow: bool
    charset: str


def read_page(
    body: bytes,
    *,
    url: str,
    declared_charset: str | None = None,
    agent: str = "outrider",
    max_links: int = MAX_LINKS,
    with_image_urls: bool = False,
) -> Page:
    """Read an HTML document; never raises, whatever the bytes.

    Of links with the same URL the first counts, and links to the page itself do not. `agent` is the product
    token whose own `<meta name="…">` is honoured beside `robots`.
    """
    text, charset = decode(body, declared_charset)
    dropped = 0
    if not _may_be_built_whole(text):
        text, dropped = thinned(text, most_tags=max_links * _TAGS_PER_LINK, most_characters=_THINNED_CHARACTERS)
    reading = _Reading(url, agent, max_links, with_image_urls)
    try:
        # Without events a tree is built in half the time, and only `<selectedcontent>` differs.
        tree = LexborHTMLParser(text, options=LexborDocumentOptions.WO_EVENTS)
        reading.read(tree, has_regions=any(mark in text for mark in _REGION_MARKS))
    except (SelectolaxError, UnicodeError, RuntimeError):
        pass  # out of memory inside Lexbor; what was read so far stands
    return Page(
        title=reading.title,
        links=reading.links,
        links_dropped=reading.dropped + dropped,
        images=reading.images,
        image_urls=reading.image_urls,
        noindex=reading.noindex,
        nofollow=reading.nofollow,
        charset=charset,
    )


def _may_be_built_whole(text: str) -> bool:
    """Tell whether the tree of a page is certain to be small, whatever its tags are."""
    if len(text) <= _SMALL_CHARACTERS:
        return True
    if len(text) > _WHOLE_CHARACTERS or (tags := text.count("<")) > _MOST_NESTED:
        return False
    # Every tag could open again every formatting element before it.
    return len(_FORMATTING.findall(text)) * tags <= _MOST_REOPENED


class _Reading:
    """The state of one pass over a tree."""

    def __init__(self, url: str, agent: str, max_links: int, with_image_urls: bool) -> None:
        self.title: str | None = None
        self.links: list[Link] = []
        self.dropped = 0
        self.images = 0
        self.noindex = False
        self.nofollow = False
        self._own = url.partition("#")[0]
        self._base: can_ada.URL | None = base_of(url)
        self._has_base = False
        self._robots_names = ("robots", agent.lower())
        self._max_links = max_links
        self._with_image_urls = with_image_urls
        self._seen = {self._own}
        self._images_seen: set[str] = set()
        self._images_resolved: dict[str, None] = {}
        self._region_of: dict[int, Region] = {}

    @property
    def image_urls(self) -> list[str]:
        return list(self._images_resolved)

    def read(self, tree: LexborHTMLParser, *, has_regions: bool) -> None:
        # One walk for each tag: a selector for all of them costs 70 µs before its first match.
        for node in tree.tags("base"):
            self._read_base(node.attributes)
        for node in tree.tags("title"):
            if self.title is None and (text := " ".join(node.text().split())):
                self.title = text[:MAX_TITLE_CHARACTERS]
        for node in tree.tags("meta"):
            self._read_meta(node.attributes)
        for node in tree.tags("link"):
            self._read_link(node.attributes)
        if has_regions:
            self._find_regions(tree)
        for node in tree.tags("a"):
            self._read_anchor(node, LinkKind.ANCHOR)
        for node in tree.tags("area"):
            self._read_anchor(node, LinkKind.AREA)
        for node in tree.tags("iframe"):
            self._add(node.attributes.get("src"), LinkKind.FRAME, node=node)
        for node in tree.tags("img"):
            self._read_image(node.attributes, has_source=True)
        for node in tree.tags("source"):
            self._read_image(node.attributes, has_source=False)  # its `src` is a sound or a film

    def _find_regions(self, tree: LexborHTMLParser) -> None:
        """Mark the links inside regions: the innermost counts, but for the heading of an article."""
        for root in tree.css(_REGION_ROOTS)[:_MOST_REGIONS]:
            name = root.tag or ""
            region = _REGIONS[name]
            for link in root.css("a[href],area[href],iframe[src]"):
                if name == "header":
                    self._region_of.setdefault(link.mem_id, region)
                else:
                    self._region_of[link.mem_id] = region

    def _read_anchor(self, node: LexborNode, kind: LinkKind) -> None:
        attributes = node.attributes
        relations = attributes.get("rel")
        nofollow = False
        if relations:
            words = relations.lower().split()
            nofollow = "nofollow" in words
            if "next" in words:
                kind = LinkKind.NEXT
        self._add(attributes.get("href"), kind, nofollow=nofollow, node=node)

    def _read_link(self, attributes: dict[str, str | None]) -> None:
        words = (attributes.get("rel") or "").lower().split()
        kind = None
        if "canonical" in words:
            kind = LinkKind.CANONICAL
        elif "next" in words:
            kind = LinkKind.NEXT
        elif "alternate" in words and "stylesheet" not in words:
            media_type = media_type_of(attributes.get("type"))
            if media_type in _FEED_TYPES:
                kind = LinkKind.FEED
            elif media_type in _PAGE_TYPES:
                kind = LinkKind.ALTERNATE
        if kind is not None:
            self._add(attributes.get("href"), kind, nofollow="nofollow" in words)

    def _read_meta(self, attributes: dict[str, str | None]) -> None:
        content = attributes.get("content") or ""
        if (attributes.get("name") or "").strip().lower() in self._robots_names:
            words = set(re.split(r"[\s,]+", content.lower()))
            self.noindex |= not words.isdisjoint(("noindex", "none"))
            self.nofollow |= not words.isdisjoint(("nofollow", "none"))
        elif (attributes.get("http-equiv") or "").strip().lower() == "refresh" and (target := _REFRESH.match(content)):
            self._add(target[1] or target[2] or target[3], LinkKind.REFRESH)

    def _read_base(self, attributes: dict[str, str | None]) -> None:
        written = attributes.get("href")
        if self._has_base or not written:
            return
        self._has_base = True
        target = absolute(written, self._base)
        if target is not None:
            self._base = base_of(target)

    def _read_image(self, attributes: dict[str, str | None], *, has_source: bool) -> None:
        written = [attributes.get("src")] if has_source else []
        if srcset := attributes.get("srcset"):
            written += [each.rstrip(",") for each in _CANDIDATE.findall(srcset)]
        urls = [each for each in written if each]
        if not urls or urls[0] in self._images_seen:
            return
        self.images += 1
        self._images_seen.add(urls[0])
        if self._with_image_urls:
            self._images_resolved.update(dict.fromkeys(filter(None, (absolute(each, self._base) for each in urls))))

    def _add(
        self, written: str | None, kind: LinkKind, *, nofollow: bool = False, node: LexborNode | None = None
    ) -> None:
        if not written or written.startswith(_HAS_NO_PAGE):
            return
        if len(self.links) >= self._max_links:
            self.dropped += 1
            return
        url = absolute(written, self._base)
        if url is None or url in self._seen:
            return
        self._seen.add(url)
        region = Region.BODY
        if self._region_of and node is not None:
            region = self._region_of.get(node.mem_id, Region.BODY)
        self.links.append(Link(url=url, kind=kind, nofollow=nofollow, place=len(self.links), region=region))


_DIRECTIVES_WITH_VALUES = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})


def x_robots(header_values: Iterable[str], agent: str) -> tuple[bool, bool]:
    """Read the values of `X-Robots-Tag`: whether they say noindex, and whether nofollow, to this agent.

    >>> x_robots(["otherbot: noindex", "outrider: nofollow"], "outrider")
    (False, True)
    """
    noindex = nofollow = False
    agent = agent.lower()
    for value in header_values:
        meant = True
        for part in value.lower().split(","):
            name, colon, directive = part.partition(":")
            if colon and name.strip() not in _DIRECTIVES_WITH_VALUES:
                meant = name.strip() in (agent, "*")
            else:
                directive = part
            if meant:
                word = directive.strip()
                noindex |= word in ("noindex", "none")
                nofollow |= word in ("nofollow", "none")
    return noindex, nofollow


def media_type_of(content_type: str | None) -> str:
    """Give the media type of a `Content-Type`, in lower case and without parameters."""
    return (content_type or "").partition(";")[0].strip().lower()


_SNIFFED_BYTES: Final = 512
_XML_STARTS = (b"<?xml", b"<rss", b"<rdf:RDF", b"<feed", b"<urlset", b"<sitemapindex")
_HTML_START = re.compile(
    rb"(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*"
    rb"<(?:!doctype\s+html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|meta|link|!--)[\s/>]",
    re.IGNORECASE | re.DOTALL,
)


def is_html(content_type: str | None, body: bytes) -> bool:
    """Tell whether a body is an HTML page: by its type or, where it has none, by how it begins."""
    media_type = media_type_of(content_type)
    if media_type:
        return media_type in ("text/html", "application/xhtml+xml")
    return _HTML_START.match(_start_of(body)) is not None


def is_xml(content_type: str | None, body: bytes) -> bool:
    """Tell whether a body is XML but no page: by its type or, where it has none, by how it begins."""
    media_type = media_type_of(content_type)
    if media_type:
        return media_type in ("text/xml", "application/xml") or (
            media_type.endswith("+xml") and media_type != "application/xhtml+xml"
        )
    start = _start_of(body)
    return start.startswith(_XML_STARTS) and _HTML_START.match(start) is None


def _start_of(body: bytes) -> bytes:
    start = body[:_SNIFFED_BYTES]
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        start = decode(start)[0].encode(errors="replace")
    return start.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n\f")
