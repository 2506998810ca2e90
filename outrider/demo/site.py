"""A synthetic web site as a pure function: the same request to the same site gives the same answer.

The site has a known number of normal pages, all reachable from `/`, and, if wanted, oddities: everything
that a crawler meets on the web and must survive, each at a path of its own below `/odd/`.
"""

from collections.abc import Iterator

from outrider.demo import listings
from outrider.demo.answer import Answer, Request, html_page, link_list
from outrider.demo.odd import bodies, errors, markup, network, redirects, traps
from outrider.demo.odd.oddity import ROOT, Oddity, folder_of
from outrider.demo.options import SiteOptions
from outrider.demo.pages import IMAGES, Pages

__all__ = ["ODDITIES", "Site", "SiteOptions"]

ODDITIES: tuple[Oddity, ...] = (
    *redirects.ODDITIES,
    *errors.ODDITIES,
    *network.ODDITIES,
    *bodies.ODDITIES,
    *markup.ODDITIES,
    *traps.ODDITIES,
)
"""All that `/odd/` links to."""

_BY_PATH = {oddity.path: oddity for oddity in ODDITIES}
_BY_FOLDER = {oddity.folder: oddity for oddity in (*ODDITIES, *markup.UNLISTED) if oddity.family}


class Site:
    """A site with these options."""

    def __init__(self, options: SiteOptions | None = None) -> None:
        self.options = options or SiteOptions()
        self._pages = Pages(self.options)

    def page_paths(self) -> Iterator[str]:
        """The paths of all normal pages: what a whole crawl from `/` must find."""
        return self._pages.paths()

    def counts_visits(self, path: str) -> bool:
        """Whether the answer depends on `Request.visit`."""
        return path.startswith(errors.RECOVERING) and path in _BY_PATH

    def answer(self, request: Request) -> Answer:
        """Answer a request; what the site does not know is 404."""
        if request.method not in ("GET", "HEAD"):
            return Answer(status=405, headers=(("Allow", "GET, HEAD"),))
        path = request.path
        number = self._pages.number_of(path)
        if number is not None:
            return self._pages.answer(number, request)
        if path == "/robots.txt":
            return listings.robots(self.options, request)
        found = self._beside_pages(path, request) if self.options.oddities else None
        return found or html_page("Not found", "<p>There is no such page.</p>", status=404)

    def _beside_pages(self, path: str, request: Request) -> Answer | None:
        if path.startswith(ROOT):
            return _odd_index() if path == ROOT else self._odd(path, request)
        if path == "/sitemap.xml":
            return listings.sitemap_index(self.options, request)
        if path.startswith("/sitemap-"):
            return listings.sitemap(self.options, self._pages, request)
        if path == "/feed.rss":
            return listings.rss(self.options, self._pages, request)
        if path == "/feed.atom":
            return listings.atom(self.options, self._pages, request)
        if path.startswith("/image/"):
            return _image(path)
        return None

    def _odd(self, path: str, request: Request) -> Answer | None:
        oddity = _BY_PATH.get(path) or _BY_FOLDER.get(folder_of(path))
        return oddity.answer(request, self.options) if oddity else None


def _odd_index() -> Answer:
    return html_page("Odd pages", link_list({oddity.path: oddity.about for oddity in ODDITIES}))


def _image(path: str) -> Answer | None:
    number, _, kind = path.removeprefix("/image/").partition(".")
    if kind != "png" or not number.isdecimal() or len(number) > 3 or int(number) >= IMAGES:
        return None
    return Answer(headers=(("Content-Type", "image/png"),), body=bodies.png(int(number)))
