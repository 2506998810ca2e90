"""The normal pages of the site: a tree of links, so that each is near the front page, and chance links besides.

Nothing is kept per page: the links and the text of a page follow from its number and the seed.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from outrider.demo.answer import HTML, Answer, Headers, Request
from outrider.demo.options import SiteOptions
from outrider.demo.words import WORDS, prose

IMAGES = 64
"""How many different images the pages show."""

_MASK = (1 << 64) - 1
_DAYS = 512
_FIRST_DAY = datetime(2024, 1, 1, 12, tzinfo=UTC)
_HTTP_DATES = [(_FIRST_DAY + timedelta(days=day)).strftime("%a, %d %b %Y %H:%M:%S GMT") for day in range(_DAYS)]
_ISO_DATES = [(_FIRST_DAY + timedelta(days=day)).date().isoformat() for day in range(_DAYS)]


class Pages:
    """All normal pages; page 0 is the front page."""

    def __init__(self, options: SiteOptions) -> None:
        self._options = options
        self._branching = max(2, options.links_per_page // 2)
        self._prose = prose(options.seed, options.page_bytes + 8_192)

    def paths(self) -> Iterator[str]:
        """The path of every page, each once."""
        return map(self.path_of, range(self._options.pages))

    def path_of(self, number: int) -> str:
        """The one path of a page."""
        return f"/{WORDS[number % len(WORDS)]}/{number}" if number else "/"

    def number_of(self, path: str) -> int | None:
        """The number of the page with just this path, if there is one."""
        if path == "/":
            return 0
        section, _, digits = path.rpartition("/")
        # Digits of other scripts and leading zeros would give a page more than one path.
        if not (digits.isascii() and digits.isdigit()) or digits[0] == "0" or len(digits) > 9:
            return None
        number = int(digits)
        known = number < self._options.pages and section[1:] == WORDS[number % len(WORDS)] and section[0] == "/"
        return number if known else None

    def links_of(self, number: int) -> list[int]:
        """The pages that a page links to: its children in the tree, then others by chance."""
        pages, wanted = self._options.pages, self._options.links_per_page
        first = number * self._branching + 1
        links = list(range(min(first, pages), min(first + self._branching, pages)))
        # A linear congruential generator, as making a random.Random costs more than the whole page.
        state = (number * 0x9E3779B97F4A7C15 + self._options.seed * 0xD1B54A32D192ED03 + 1) & _MASK
        for _ in range(wanted - len(links)):
            state = (state * 6364136223846793005 + 1442695040888963407) & _MASK
            links.append((state >> 33) % pages)
        return links

    def last_modified(self, number: int) -> str:
        """The day on which a page changed for the last time, as sitemaps write it."""
        return _ISO_DATES[number * 7 % _DAYS]

    def answer(self, number: int, request: Request) -> Answer:
        """The page, or 304 to a client that shows that it has it."""
        etag = f'"{self._options.seed:x}-{number:x}"'
        changed = _HTTP_DATES[number * 7 % _DAYS]
        headers: Headers = (HTML, ("ETag", etag), ("Last-Modified", changed))
        known = request.headers.get("if-none-match")
        # RFC 9110, 13.1.3: the date is not looked at where there is a tag.
        if known == etag or (known is None and request.headers.get("if-modified-since") == changed):
            return Answer(status=304, headers=headers[1:])
        return Answer(headers=headers, body=self.body(number))

    def body(self, number: int) -> bytes:
        """The page in HTML."""
        word, oddities = WORDS[number % len(WORDS)], self._options.oddities
        head = self._head(number) if oddities else ""
        # Every seventh page writes its links against a base.
        start = "" if oddities and number % 7 == 3 else "/"
        links = "".join(
            [
                f'<li><a href="{start}{WORDS[to % len(WORDS)]}/{to}">{WORDS[to % len(WORDS)]} {to}</a></li>\n'
                if to
                else '<li><a href="/">front page</a></li>\n'
                for to in self.links_of(number)
            ]
        )
        more = self._more(number) if oddities else ""
        title = "" if oddities and number % 19 == 7 else f"<title>Page {number}: {word}</title>"
        page = (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{title}{head}</head>\n'
            f"<body><h1>Page {number}: {word}</h1>\n<ul>\n{links}</ul>\n{more}<p>"
        )
        missing = max(0, self._options.page_bytes - len(page) - 24)
        offset = number * 61 % 8_192
        return f"{page}{self._prose[offset : offset + missing]}</p>\n</body></html>\n".encode()

    def _head(self, number: int) -> str:
        parts = []
        if number % 7 == 3:
            parts.append('<base href="/">')
        if number % 5 == 2:
            parts.append(f'<link rel="canonical" href="{self.path_of(number)}">')
        if number % 11 == 4:
            parts.append('<meta name="robots" content="index, follow, noarchive">')
        if number % 17 == 6 or number == 0:
            parts.append('<link rel="alternate" type="application/rss+xml" href="/feed.rss">')
            parts.append('<link rel="alternate" type="application/atom+xml" href="/feed.atom">')
        return "".join(parts)

    def _more(self, number: int) -> str:
        """Markup besides the links, none of which leads to a page that is not linked otherwise."""
        parts = []
        if number == 0:
            parts.append('<p><a href="/odd/">odd pages</a></p>\n')
        if number % 3 == 1:
            image = f"/image/{number % IMAGES}"
            parts.append(f'<img src="{image}.png" srcset="{image}.png?w=1 1x, {image}.png?w=2 2x" alt="image">\n')
        if number % 13 == 5:
            other = self.path_of(self.links_of(number)[0])
            parts.append(f'<p><a rel="nofollow" href="{other}">again</a> <a href="{other}#part-2">part 2</a>\n')
            parts.append('<a href="mailto:someone@example.com">mail</a> <a href="javascript:void(0)">more</a></p>\n')
        return "".join(parts)
