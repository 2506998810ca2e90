"""The identity of a domain: what a host is called when politeness, budget and memory are kept for it.

A host here is lower-case, punycoded and may carry a port, as `outrider.model.url` leaves it.
"""

from functools import cache, lru_cache
from typing import Final

from publicsuffixlist import PublicSuffixList

MAX_DOMAIN_CHARACTERS: Final = 255

_DEFAULT_PORTS: Final = frozenset({"80", "443"})
_WWW: Final = "www."


def domain_of(host: str) -> str:
    """Name the domain that a host belongs to.

    The default ports are those of both schemes, so that the two faces of a site are one domain.
    A leading `www.` goes, but not where the rest is a single label, a bare public suffix or has a
    `www.` of its own: the last would make the domain of a domain another domain.

    >>> domain_of("www.example.com:443"), domain_of("www.example.com:8443"), domain_of("www.co.uk")
    ('example.com', 'example.com:8443', 'www.co.uk')
    """
    name, port = split_port(host)
    name = name.removesuffix(".")
    if name.startswith(_WWW):
        name = _without_www(name)
    return f"{name}:{port}" if port and port not in _DEFAULT_PORTS else name


@lru_cache(maxsize=65_536)
def parent_domain(domain: str) -> str:
    """Name the registrable domain (public suffix and one label) over a domain, without its port.

    An address, a single label and a bare public suffix have none above them and stay themselves.
    Private suffixes count: `someone.github.io` is registrable.

    >>> parent_domain("blog.example.co.uk:8080"), parent_domain("[::1]:8080"), parent_domain("co.uk")
    ('example.co.uk', '[::1]', 'co.uk')
    """
    name, _ = split_port(domain)
    if is_address(name):
        return name
    return _public_suffixes().privatesuffix(name) or name


def split_port(host: str) -> tuple[str, str]:
    """Split a host into its name and its port, which is empty where there is none.

    >>> split_port("[::1]:8080"), split_port("[::1]"), split_port("example.com")
    (('[::1]', '8080'), ('[::1]', ''), ('example.com', ''))
    """
    if ":" not in host or host.endswith("]"):
        return host, ""
    name, _, port = host.rpartition(":")
    return name, port


def is_address(name: str) -> bool:
    """Tell whether a host's name is an IP address; no other name ends in a numeric label."""
    return name.startswith("[") or name.rpartition(".")[2].isdecimal()


def _without_www(name: str) -> str:
    rest = name.removeprefix(_WWW)
    # A single label is public too, known or not.
    return name if rest.startswith(_WWW) or _public_suffixes().is_public(rest) else rest


@cache
def _public_suffixes() -> PublicSuffixList:
    # Building it takes 35 ms, which a program that never asks should not pay.
    return PublicSuffixList(accept_unknown=True)
