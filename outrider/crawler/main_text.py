"""Main text: the words of a page without what stands on every page of its site.

Navigation, headers, footers, asides and forms are left out, and so are the texts of links, which say where a page
leads rather than what it says. The markup is read as a stream, in time and memory linear in its length: a tree of
hostile markup can be far larger than its page.
"""

import re
from typing import Final

MAX_CHARACTERS: Final = 1024 * 1024
"""Of a page beyond this, only the beginning is read."""
FEWEST_WORDS: Final = 40
"""With fewer words than this outside of links, a page is a list of links, and these are what it says."""

_REST = r"""(?>[^>"'=]++|=\s*+(?>"[^"]*+(?>"|\Z)|'[^']*+(?>'|\Z))?+|["'])*+(?>>|\Z)"""
_UNREAD = re.compile(
    rf"""<(?>
        !--(?>-?>|(?>[^-]++|-(?!-!?>))*+(?>--!?>|\Z))
      | (?i:(?P<raw>script|style|noscript|template|svg|textarea|select|button|iframe|title|head))(?=[\s/>]){_REST}
            (?>[^<]++|<(?!/(?i:(?P=raw))))*+
    )""",
    re.VERBOSE,
)
_REGION = re.compile(r"<(/?)(nav|header|footer|aside|form|menu|dialog|main|article)(?=[\s/>])", re.IGNORECASE)
_LINK = re.compile(rf"<a(?=[\s/>]){_REST}(?>[^<]++|<(?!/?a[\s/>]))*+", re.IGNORECASE)
_TAG = re.compile(rf"<[a-zA-Z/!?]{_REST}")
_ENTITY = re.compile(r"&#?\w{1,32};")
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
"""Characters of scripts that do not part their words: each counts as one."""
_DIGIT: Final = b"0"
_LETTERS: Final = bytes(
    code if code >= 0x80 or chr(code).isalpha() else ord(_DIGIT) if chr(code).isdigit() else ord(" ")
    for code in range(256)
)
"""For every byte of UTF-8 what it is in a word: itself, some digit, or no part of it."""
_CONTENT = frozenset({"main", "article"})


def main_words(html: str) -> list[bytes]:
    """Give the words of a page's main text in lower case, in order, as UTF-8.

    Anything with a digit in it is left out: dates, counters, prices and session ids come and go by themselves.

    >>> main_words("<nav>Home</nav><p>Since 1999: <b>Owls</b> hunt at night.<footer>Imprint</footer>")
    [b'since', b'owls', b'hunt', b'at', b'night']
    """
    content, other = regions(html)
    for text in (content, f"{other} {content}"):
        words = _words(_LINK.sub(" ", text))
        if len(words) >= FEWEST_WORDS:
            return words
    return _words(f"{other} {content}")


def _words(text: str) -> list[bytes]:
    plain = _TAG.sub(" ", text).lower()
    if "&" in plain:
        plain = _ENTITY.sub(" ", plain)
    if not plain.isascii():
        plain = _IDEOGRAPHS.sub(r"\g<0> ", plain)
    # Bytes are cut into words in a third of the time that a pattern takes.
    return [word for word in plain.encode(errors="replace").translate(_LETTERS).split() if _DIGIT not in word]


def regions(html: str, *, with_forms: bool = False) -> tuple[str, str]:
    """Cut out what is on every page; give the markup of what a page marks as its content, and the rest of it."""
    text = _UNREAD.sub(" ", html[:MAX_CHARACTERS])
    content: list[str] = []
    other: list[str] = []
    inside = 0
    """How many content regions are open."""
    skipped = ""
    """The region that is being left out."""
    depth = begin = 0
    for tag in _REGION.finditer(text):
        closes, name = bool(tag[1]), tag[2].lower()
        if skipped:
            depth += 0 if name != skipped else -1 if closes else 1
            if depth == 0:
                skipped, begin = "", tag.start()
            continue
        if (name == "header" and inside) or (name == "form" and with_forms):
            continue  # the heading of an article, or what was asked for
        (content if inside else other).append(text[begin : tag.start()])
        begin = tag.start()
        if name in _CONTENT:
            inside = max(inside - 1, 0) if closes else inside + 1
        elif not closes:
            skipped, depth = name, 1
    if not skipped:
        (content if inside else other).append(text[begin:])
    return " ".join(content), " ".join(other)
