"""Scope: which of the URLs that a crawl finds are its own.

A scope is a record of plain values, so that it can be kept with its crawl and read again.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Final, Protocol, Self

import msgspec

from outrider.model.domain_name import parent_domain
from outrider.model.errors import InvalidInput, shown
from outrider.model.url import Location, locate


class ScopeRule(StrEnum):
    """How far a crawl goes from its seeds."""

    HOST = "host"
    """The hosts of the seeds; one with `www.` and one without are the same, and so are http and https."""
    DOMAIN = "domain"
    """The registrable domains of the seeds, with all hosts and ports."""
    PREFIX = "prefix"
    """The hosts of the seeds, below the folders of the seeds."""
    ANY = "any"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The rule of a crawl and what its seeds make of it; `scope_of` builds one from seeds."""

    rule: ScopeRule = ScopeRule.HOST
    seeds: frozenset[str] = frozenset()
    """Normalised; each is in scope whatever the rules say."""
    hosts: frozenset[str] = frozenset()
    """As `outrider.model.domain_name.domain_of` names them."""
    domains: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    """A host and a folder: `example.org/docs/`."""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def judge(self, location: Location) -> str | None:
        """Tell why a URL is out of scope; None means that it is in.

        >>> scope = scope_of(["https://example.org/"])
        >>> scope.judge(locate("https://www.example.org/a")), scope.judge(locate("https://example.com/"))
        (None, "out of scope: host example.com is not among the seeds'")
        """
        url, host, domain = location
        if (reason := self._outside(url, host, domain)) is None and not self.include and not self.exclude:
            return None
        if url in self.seeds:
            return None
        return reason if reason is not None else self._filtered(url)

    def excluded(self, url: str) -> str | None:
        """Tell which pattern excludes a URL, whatever else the scope says."""
        for pattern in self.exclude:
            if _compiled(pattern, "exclude").search(url):
                return f"excluded by --exclude {pattern!r}"
        return None

    def with_seeds(self, urls: Iterable[str]) -> Self:
        """Widen the scope by more seeds, or raise `UrlRefused`."""
        more = scope_of(urls, self.rule)
        return msgspec.structs.replace(
            self,
            seeds=self.seeds | more.seeds,
            hosts=self.hosts | more.hosts,
            domains=self.domains | more.domains,
            prefixes=tuple(dict.fromkeys((*self.prefixes, *more.prefixes))),
        )

    def extended(self, url: str) -> Self:
        """Widen the scope by the host that a seed redirects to, or raise `UrlRefused`.

        The target itself is let in as a seed is. Where it lies in its site says nothing about where the
        content lies, so that a prefix grows by the target's folder and not by its host.
        """
        location = locate(url)
        return msgspec.structs.replace(
            self,
            seeds=self.seeds | {location.url},
            hosts=self.hosts | {location.domain},
            domains=self.domains | {parent_domain(location.domain)},
            prefixes=tuple(dict.fromkeys((*self.prefixes, _folder(location)))),
        )

    def _outside(self, url: str, host: str, domain: str) -> str | None:
        match self.rule:
            case ScopeRule.HOST:
                if domain in self.hosts:
                    return None
                return f"out of scope: host {host} is not among the seeds'"
            case ScopeRule.DOMAIN:
                registrable = parent_domain(domain)
                if registrable in self.domains:
                    return None
                return f"out of scope: domain {registrable} is not among the seeds'"
            case ScopeRule.PREFIX:
                if f"{domain}{_path(url)}".startswith(self.prefixes):
                    return None
                return "out of scope: not below the folder of a seed"
            case ScopeRule.ANY:
                return None

    def _filtered(self, url: str) -> str | None:
        if (reason := self.excluded(url)) is not None:
            return reason
        if self.include and not any(_compiled(pattern, "include").search(url) for pattern in self.include):
            return "not matched by --include"
        return None


def scope_of(
    seeds: Iterable[str],
    rule: ScopeRule = ScopeRule.HOST,
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
) -> Scope:
    """Build the scope of a crawl from its seeds, or raise `UrlRefused` or `InvalidInput`.

    `include` and `exclude` are regular expressions, looked for anywhere in the normalised URL; a URL that
    both match is excluded.
    """
    included, excluded = tuple(include), tuple(exclude)
    for option, patterns in (("include", included), ("exclude", excluded)):
        for pattern in patterns:
            _compiled(pattern, option)
    locations = [locate(seed) for seed in seeds]
    return Scope(
        rule=rule,
        seeds=frozenset(location.url for location in locations),
        hosts=frozenset(location.domain for location in locations),
        domains=frozenset(parent_domain(location.domain) for location in locations),
        prefixes=tuple(dict.fromkeys(_folder(location) for location in locations)),
        include=included,
        exclude=excluded,
    )


def is_read_in_linear_time(pattern: str) -> bool:
    """Tell whether a regular expression is searched for by RE2, or raise `InvalidInput` where it is none.

    >>> is_read_in_linear_time("/docs/[0-9]+"), is_read_in_linear_time("(?=a)b")
    (True, False)
    """
    return not isinstance(_compiled(pattern, "pattern"), re.Pattern)


class _Pattern(Protocol):
    def search(self, string: str, /) -> object | None: ...


_READ_OTHERWISE: Final = re.compile(r"\{,|\{(?:[0-9]*,)?0[0-9]|\[:\^?[a-z]+:\]|\\[1-9][0-9]|[^\x00-\x7f]")
"""What RE2 takes for something else than Python does: to it `a{,3}` and `a{03}` repeat nothing, `[[:alpha:]]` is a
class and `\\12` never a group. Characters beyond ASCII differ in letter case."""


@lru_cache(maxsize=1_024)
def _compiled(pattern: str, option: str) -> _Pattern:
    r"""Read a regular expression of Python's, or raise `InvalidInput`.

    It is searched for by RE2, in time linear in the URL, for Python's own engine may take for ever over a single
    one: `(([a-z])+)+!`. Python's is left for what RE2 does not know (back references, look-around, possessive
    repetition, counts over 1000) or reads otherwise. Normalised URLs are ASCII without line ends, so that `\w`
    and `$` mean the same to both.
    """
    try:
        native = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        message = f"--{option} {shown(pattern)} is not a regular expression: {error}"
        raise InvalidInput(message) from None
    if _READ_OTHERWISE.search(pattern):
        return native
    import re2  # type: ignore[import-untyped]  # 3 to 6 ms, which only crawls with patterns need

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        searched: _Pattern = re2.compile(pattern, options)
    except re2.error:
        return native
    return searched


def _path(url: str) -> str:
    """Give a normalised URL's path, which always begins with a slash, without its query."""
    path = url[url.index("/", 8) :]
    return path.partition("?")[0]


def _folder(location: Location) -> str:
    return location.domain + _path(location.url).rpartition("/")[0] + "/"
