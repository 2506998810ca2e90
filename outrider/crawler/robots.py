"""Robots: what a site's robots.txt allows this crawler to fetch (RFC 9309).

Protego decides. What it does not tell, which line decided, is found here among the lines that it was given.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

import msgspec
from protego import Protego

MAX_ROBOTS_BYTES: Final = 500 * 1024
"""What is used of a robots.txt, which is what RFC 9309 asks for."""
MAX_ROBOTS_SITEMAPS: Final = 1_000

_AGENT = "user-agent"
_ALLOW = "allow"
_DISALLOW = "disallow"
_EVERYTHING = ("/", "/*", "*")
_SITEMAP = "sitemap"
_DELAY = "crawl-delay"
# Protego knows these spellings, so that the lines found here are those that it reads.
_SPELLINGS = {
    "useragent": _AGENT,
    "user agent": _AGENT,
    "dissallow": _DISALLOW,
    "dissalow": _DISALLOW,
    "disalow": _DISALLOW,
    "diasllow": _DISALLOW,
    "disallaw": _DISALLOW,
    "sitemaps": _SITEMAP,
    "site-map": _SITEMAP,
    "crawl delay": _DELAY,
}
_KNOWN = "|".join((_AGENT, _ALLOW, _DISALLOW, _SITEMAP, _DELAY, "host", *_SPELLINGS))
_DIRECTIVE = re.compile(rf"({_KNOWN})(?:\s*:|\s|\Z)(.*)", re.IGNORECASE)
_UNKNOWN = re.compile(r"[^:]*:")
_SITE_WIDE = frozenset({_SITEMAP, "host"})
_PRODUCT = re.compile(r"[A-Za-z_-]+")

UNREACHABLE: Final = "# unreachable: "
"""How the text begins that stands in for a robots.txt that could not be fetched, before the reason."""


def unreachable_because(text: str) -> str | None:
    """Tell why there is nothing but a stand-in for a robots.txt, where that is what a text is."""
    return text.partition("\n")[0].removeprefix(UNREACHABLE) if text.startswith(UNREACHABLE) else None


class Judgement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Whether a URL may be fetched, and the line of robots.txt that says so; None where no line speaks of it."""

    allowed: bool
    rule: str | None = None
    line: int | None = None


class _Line(NamedTuple):
    number: int
    field: str
    value: str
    text: str


class _Rule(NamedTuple):
    """A line that allows or disallows, with a judge of its own for what its pattern matches."""

    line: _Line
    matcher: Protego

    def matches(self, url: str) -> bool:
        return not self.matcher.can_fetch(url, "*")


class RobotsRules:
    """The rules of one robots.txt for one crawler, named by its product token in lower case.

    Only the group for this crawler is kept. That is faster, and thousands of groups that share thousands of
    rules, which Protego would multiply, cost nothing.
    """

    def __init__(self, text: str, agent: str) -> None:
        self.sitemaps: list[str] = []
        self.unreachable_because = unreachable_because(text)
        """Why there is no robots.txt but a stand-in that forbids everything."""
        self.size = len(text)
        lines = list(self._lines_for(text[:MAX_ROBOTS_BYTES], agent.lower()))
        self._lines = [line for line in lines if line.field in (_ALLOW, _DISALLOW)]
        self._rules: dict[bool, list[_Rule]] = {}
        self._protego = Protego.parse("\n".join(("user-agent: *", *(line.text for line in lines))))

    @classmethod
    def of_body(cls, body: bytes, agent: str) -> Self:
        """Read a robots.txt as it was fetched; a line that the limit on its size cuts does not count."""
        if len(body) > MAX_ROBOTS_BYTES:
            body = body[:MAX_ROBOTS_BYTES]
            body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
        return cls(body.decode("utf-8-sig", "replace"), agent)

    @classmethod
    def allow_all(cls) -> Self:
        """Give the rules of a site without a robots.txt."""
        return cls("", "*")

    @classmethod
    def disallow_all(cls) -> Self:
        """Give the rules of a site whose robots.txt cannot be had."""
        return cls("user-agent: *\ndisallow: /", "*")

    def allows(self, url: str) -> bool:
        """Tell whether a normalised URL may be fetched: `judge` without the line, in 1 µs for a plain path."""
        return self._protego.can_fetch(url, "*") if self._lines else True

    def judge(self, url: str) -> Judgement:
        r"""Tell whether a normalised URL may be fetched and which line says so.

        >>> RobotsRules("User-agent: *\nDisallow: /private/", "outrider").judge("https://example.org/private/a")
        Judgement(allowed=False, rule='Disallow: /private/', line=2)
        """
        if not self._lines:
            return Judgement(allowed=True)
        allowed = self._protego.can_fetch(url, "*")
        for rule in self._rules_that(allow=allowed):
            if rule.matches(url):
                return Judgement(allowed=allowed, rule=rule.line.text, line=rule.line.number)
        return Judgement(allowed=allowed)

    @property
    def allows_nothing(self) -> bool:
        """Whether the whole site is forbidden, and no line makes an exception."""
        fields = {line.field for line in self._lines}
        return fields == {_DISALLOW} and any(line.value in _EVERYTHING for line in self._lines)

    @property
    def crawl_delay(self) -> float | None:
        """The seconds between two requests that the site asks for."""
        return self._protego.crawl_delay("*")

    def _rules_that(self, *, allow: bool) -> list[_Rule]:
        """Give the rules of one kind, longest first: the first that matches is the one that decided."""
        rules = self._rules.get(allow)
        if rules is None:
            field = _ALLOW if allow else _DISALLOW
            lines = sorted((line for line in self._lines if line.field == field), key=_weight, reverse=True)
            rules = self._rules[allow] = [_Rule(line, _matcher_of(line.value)) for line in lines]
        return rules

    def _lines_for(self, text: str, agent: str) -> Iterator[_Line]:
        """Give the lines of all groups that name the agent best, and note the sitemaps on the way."""
        groups: dict[str, list[_Line]] = {}
        current: dict[str, list[_Line]] = {}
        in_names = False
        for line in _read_lines(text):
            if line.field in _SITE_WIDE:
                if line.field == _SITEMAP and line.value and len(self.sitemaps) < MAX_ROBOTS_SITEMAPS:
                    self.sitemaps.append(line.value)
                continue
            if line.field == _AGENT:
                if not in_names:
                    current = {}
                in_names = True
                for name in {line.value.lower(), line.value.lower().replace("*", "")} - {""}:
                    if _specificity(name, agent):
                        current[name] = groups.setdefault(name, [])
                continue
            in_names = False
            if line.value and line.field in (_ALLOW, _DISALLOW, _DELAY):
                for group in current.values():
                    group.append(line)
        best = max(groups, key=lambda name: _specificity(name, agent), default=None)
        return iter(groups[best] if best is not None else ())


def _read_lines(text: str) -> Iterator[_Line]:
    """Read the lines that Protego understands, and those that only end a list of names."""
    for number, written in enumerate(text.splitlines(), start=1):
        line = written.partition("#")[0].strip()
        if directive := _DIRECTIVE.match(line):
            field = directive[1].lower()
            yield _Line(number, _SPELLINGS.get(field, field), directive[2].strip(), line)
        elif _UNKNOWN.match(line):
            yield _Line(number, "", "", line)


def _specificity(name: str, agent: str) -> int:
    """Tell how well the name of a group fits an agent; 0 if it does not.

    As Protego has it, a name fits where the agent's begins with it, too.
    """
    if name == "*":
        return 1
    return len(name) if agent.startswith(name) or re.search(rf"(?<![\w-]){re.escape(name)}", agent) else 0


def _weight(line: _Line) -> int:
    """Give the length of a pattern in octets, as a URL would have them."""
    return sum(1 if character.isascii() else 3 * len(character.encode(errors="replace")) for character in line.value)


def _matcher_of(pattern: str) -> Protego:
    return Protego.parse(f"user-agent: *\ndisallow: {pattern}")


def product_token(user_agent: str) -> str:
    """Give the name by which robots.txt calls a crawler, in lower case, from its whole `User-Agent`.

    >>> product_token("Outrider/0.3 (+https://example.org/bot)")
    'outrider'
    """
    product = _PRODUCT.match(user_agent.strip())
    return product[0].lower() if product else "outrider"


class RobotsCache:
    """Keeps parsed rules by domain and version, since parsing takes a millisecond where judging takes one of 1,000."""

    def __init__(self, most: int = 2_048, *, most_characters: int = 8 * 1024 * 1024) -> None:
        self._most = most
        self._most_characters = most_characters
        self._characters = 0
        self._kept: OrderedDict[tuple[str, str], RobotsRules] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, domain: str, version: str) -> RobotsRules | None:
        """Give the rules of this version, if they are still here."""
        rules = self._kept.get((domain, version))
        if rules is not None:
            self._kept.move_to_end((domain, version))
        return rules

    def put(self, domain: str, version: str, rules: RobotsRules) -> None:
        """Keep rules, and forget those that were longest not asked for."""
        before = self._kept.pop((domain, version), None)
        self._characters += rules.size - (before.size if before is not None else 0)
        self._kept[domain, version] = rules
        while len(self._kept) > self._most or (self._characters > self._most_characters and len(self._kept) > 1):
            _, forgotten = self._kept.popitem(last=False)
            self._characters -= forgotten.size
