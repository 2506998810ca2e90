"""What tells a crawler of pages without being one: robots.txt, sitemaps and feeds."""

import gzip
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from outrider.demo.answer import Answer, Request
from outrider.demo.options import SiteOptions
from outrider.demo.pages import Pages

SITEMAP_PAGES = 1_000
"""How many pages one sitemap lists."""

FEED_ENTRIES = 20
DISALLOWED = "/odd/private/"
ALLOWED = "/odd/private/open"

_NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
_NEWEST = datetime(2026, 1, 1, tzinfo=UTC)


def robots(options: SiteOptions, request: Request) -> Answer:
    """The site's robots.txt, or whatever status it is told to answer with."""
    lines = ["# A synthetic site.", "User-agent: *"]
    if options.oddities:
        lines += [f"Disallow: {DISALLOWED}", f"Allow: {ALLOWED}", "Disallow: /*?forbidden="]
    else:
        lines.append("Disallow:")
    if options.robots_delay_s is not None:
        lines.append(f"Crawl-delay: {options.robots_delay_s:g}")
    lines += ["", "User-agent: UnwelcomeBot", "Disallow: /"]
    if options.oddities:
        lines += ["", f"Sitemap: {request.origin}/sitemap.xml", "Sitemap: /sitemap-relative-is-wrong.xml"]
    body = "\n".join([*lines, ""]).encode() if options.robots_status == 200 else b""
    return Answer(status=options.robots_status, headers=(("Content-Type", "text/plain; charset=utf-8"),), body=body)


def sitemap_names(options: SiteOptions) -> list[str]:
    """The sitemaps that the index lists."""
    return [_sitemap_name(number) for number in range(-(-options.pages // SITEMAP_PAGES))]


def _sitemap_name(number: int) -> str:
    """Every other one is gzipped, the first too."""
    return f"sitemap-{number}.xml{'' if number % 2 else '.gz'}"


def sitemap_index(options: SiteOptions, request: Request) -> Answer:
    """The index of all sitemaps."""
    entries = "".join(
        f"<sitemap><loc>{request.origin}/{name}</loc><lastmod>2026-01-01</lastmod></sitemap>\n"
        for name in sitemap_names(options)
    )
    return _xml(f"<sitemapindex {_NAMESPACE}>\n{entries}</sitemapindex>\n")


def sitemap(options: SiteOptions, pages: Pages, request: Request) -> Answer | None:
    """One sitemap, if there is one of this name: pages with the days of their last change and their priorities."""
    name = request.path[1:]
    digits = name.removeprefix("sitemap-").partition(".")[0]
    if not digits.isdecimal() or len(digits) > 6 or name != _sitemap_name(int(digits)):
        return None
    first = int(digits) * SITEMAP_PAGES
    if first >= options.pages:
        return None
    entries = "".join(
        f"<url><loc>{request.origin}{pages.path_of(number)}</loc><lastmod>{pages.last_modified(number)}</lastmod>"
        f"<priority>{priority_of(number)}</priority></url>\n"
        for number in range(first, min(first + SITEMAP_PAGES, options.pages))
    )
    plain = _xml(f"<urlset {_NAMESPACE}>\n{entries}</urlset>\n")
    if not name.endswith(".gz"):
        return plain
    # A fixed time keeps the bytes the same at every request.
    return Answer(headers=(("Content-Type", "application/gzip"),), body=gzip.compress(plain.body, mtime=0))


def priority_of(number: int) -> float:
    """The priority of a page in its sitemap: 1 for the front page, less for the others."""
    return 1.0 if number == 0 else (1 + number % 9) / 10


def rss(options: SiteOptions, pages: Pages, request: Request) -> Answer:
    """The latest pages, in RSS 2."""
    items = "".join(
        f"<item><title>Page {number}</title><link>{request.origin}{pages.path_of(number)}</link>"
        f"<pubDate>{format_datetime(_NEWEST - timedelta(days=number), usegmt=True)}</pubDate></item>\n"
        for number in range(min(FEED_ENTRIES, options.pages))
    )
    channel = f"<title>Latest</title><link>{request.origin}/</link><description>Latest pages</description>"
    return _xml(f'<rss version="2.0"><channel>{channel}\n{items}</channel></rss>\n', "application/rss+xml")


def atom(options: SiteOptions, pages: Pages, request: Request) -> Answer:
    """The latest pages, in Atom."""
    entries = "".join(
        f"<entry><title>Page {number}</title><id>{request.origin}{pages.path_of(number)}</id>"
        f'<link href="{pages.path_of(number)}"/>'
        f"<updated>{(_NEWEST - timedelta(days=number)).isoformat()}</updated></entry>\n"
        for number in range(min(FEED_ENTRIES, options.pages))
    )
    head = f"<title>Latest</title><id>{request.origin}/</id><updated>{_NEWEST.isoformat()}</updated>"
    feed = f'<feed xmlns="http://www.w3.org/2005/Atom">{head}\n{entries}</feed>\n'
    return _xml(feed, "application/atom+xml")


def _xml(text: str, content_type: str = "application/xml") -> Answer:
    return Answer(headers=(("Content-Type", f"{content_type}; charset=utf-8"),), body=(_XML + text).encode())
