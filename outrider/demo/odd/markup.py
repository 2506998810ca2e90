"""Pages whose markup says what may be followed and where links lead."""

from collections.abc import Callable

from outrider.demo.answer import HTML, Answer, Request, html_page, link_list
from outrider.demo.listings import ALLOWED, DISALLOWED
from outrider.demo.odd.oddity import Oddity, name_of
from outrider.demo.options import SiteOptions

UNWANTED = "/odd/unwanted/"
"""A crawler that honours every sign never asks for anything below here."""

_TARGETS = {
    "area": '<map name="m"><area shape="default" href="/odd/target/area" alt="area"></map>',
    "iframe": '<iframe src="/odd/target/iframe"></iframe>',
    "single-quotes": "<a href='/odd/target/single-quotes'>x</a>",
    "no-quotes": "<a href=/odd/target/no-quotes>x</a>",
    "upper-case": '<A HREF="/odd/target/upper-case">X</A>',
    "spaces": '<a href="  /odd/target/spaces\n ">x</a>',
    "dots": '<a href="/odd/x/../target/dots">x</a>',
    "entities": '<a href="/odd/target/entities?a=1&amp;b=2">x</a>',
    "unclosed": '<p><a href="/odd/target/unclosed">x<p>',
}
_BROKEN = (
    '<a href="http://[broken">x</a> <a href="http://:99999/">x</a> <a href="">x</a> <a>x</a>'
    ' <a href="tel:+49">x</a> <a href="data:text/html,x">x</a> <a href="ftp://example.com/">x</a>'
    ' <a href="/odd/target/\x00">x</a> <a href="//">x</a>'
)

Answering = Callable[[Request, SiteOptions], Answer | None]


def _page(title: str, body: str, head: str = "") -> Answering:
    return lambda _request, _options: html_page(title, body, head=head)


def _small_page(request: Request, _options: SiteOptions) -> Answer | None:
    name = name_of(request)
    return html_page(f"Page {name}", "") if name and name.replace("-", "").isalnum() and name.isascii() else None


def _private(_request: Request, _options: SiteOptions) -> Answer:
    return html_page("Private", "<p>robots.txt speaks of this folder.</p>")


def _robots_tag(_request: Request, _options: SiteOptions) -> Answer:
    body = f'<a href="{UNWANTED}robots-tag">x</a>'
    return html_page("X-Robots-Tag", body, headers=(HTML, ("X-Robots-Tag", "noindex, nofollow")))


def _links(_request: Request, options: SiteOptions) -> Answer:
    links = "".join([f"<a href=/odd/links/{number}>x</a>\n" for number in range(options.many_links)])
    return html_page("Very many links", links)


def _linked(request: Request, options: SiteOptions) -> Answer | None:
    name = name_of(request)
    known = name.isdecimal() and len(name) < 9 and int(name) < options.many_links
    return html_page(f"One of very many: {name}", "") if known else None


def _deep(_request: Request, _options: SiteOptions) -> Answer:
    return html_page("Deeply nested", "<div>" * 20_000 + '<a href="/odd/target/deep">x</a>' + "</div>" * 20_000)


ODDITIES = (
    Oddity(
        path="/odd/nofollow-page",
        about="meta robots: nofollow",
        answer=_page(
            "No follow", f'<a href="{UNWANTED}page">x</a>', '<meta name="robots" content="NoIndex, NoFollow">'
        ),
    ),
    Oddity(
        path="/odd/nofollow-link",
        about="one link with rel=nofollow, one without",
        answer=_page(
            "Links", f'<a rel="ugc nofollow" href="{UNWANTED}link">x</a> <a href="/odd/target/followed">x</a>'
        ),
    ),
    Oddity(path="/odd/robots-tag", about="X-Robots-Tag: nofollow", answer=_robots_tag),
    Oddity(
        path="/odd/canonical",
        about="canonical elsewhere",
        answer=_page("Copy", "", '<link rel="canonical" href="/odd/target/original">'),
    ),
    Oddity(
        path="/odd/next",
        about="link rel=next",
        answer=_page("First", "", '<link rel="next" href="/odd/target/second">'),
    ),
    Oddity(
        path="/odd/base",
        about="base href in another folder",
        answer=_page("Base", '<a href="from-base">x</a>', '<base href="/odd/target/">'),
    ),
    Oddity(
        path="/odd/refresh",
        about="meta refresh",
        answer=_page("Refresh", "", '<meta http-equiv="refresh" content="0; url=/odd/target/refreshed">'),
    ),
    Oddity(
        path="/odd/srcset",
        about="images with srcset",
        answer=_page("Pictures", '<img src="/image/1.png" srcset="/image/2.png 1x, /image/3.png 2x">'),
    ),
    Oddity(path="/odd/hrefs", about="links written in every way", answer=_page("Hrefs", "\n".join(_TARGETS.values()))),
    Oddity(path="/odd/broken-hrefs", about="links that lead nowhere", answer=_page("Broken", _BROKEN)),
    Oddity(path="/odd/deep", about="elements nested very deeply", answer=_deep),
    Oddity(path="/odd/links/", about="very many links", answer=_links),
    Oddity(path="/odd/links/0", about="one of very many", answer=_linked, family=True),
    Oddity(path="/odd/target/here", about="where odd links lead", answer=_small_page, family=True),
    Oddity(
        path="/odd/forbidden-links",
        about="links that robots.txt disallows, and one that it allows",
        answer=_page(
            "Forbidden",
            link_list({f"{DISALLOWED}1": "forbidden", "/odd/target/x?forbidden=1": "forbidden", ALLOWED: "allowed"}),
        ),
    ),
    Oddity(path=ALLOWED, about="allowed by robots.txt", answer=_private, family=True),
)
UNLISTED = (Oddity(path=f"{UNWANTED}page", about="not wanted", answer=_small_page, family=True),)
"""No odd page but those that forbid it leads here."""
