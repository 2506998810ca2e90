"""URLs whose host is itself a private address, however it is written; names are not looked up.

Our workers look at every address that they connect to. This is for those who take URLs before anything is fetched, so
that what could never be crawled is refused at once.
"""

import re
from ipaddress import ip_address
from typing import Final

from outrider.crawler.addresses import refused_because
from outrider.model.url import UrlRefused, locate

# Nearly every URL is plainly written and has a name for its host: a look at its text is all that it costs.
_PLAIN: Final = re.compile(r"https?://(?!localhost)[a-z][a-z0-9.-]*[a-z](?::[0-9]+)?(?:[/?#]|$)")


def private_because(url: str) -> str | None:
    """Tell why the host of a URL is private; None for a name, a public address, and what is no URL at all.

    >>> private_because("http://0x7f.1/"), private_because("https://example.org/")
    ('127.0.0.1 is a private address (loopback)', None)
    """
    if not isinstance(url, str) or (_PLAIN.match(url) and ".localhost" not in url):
        return None
    try:
        host = locate(url).host
    except UrlRefused:
        return None
    name = host[1 : host.index("]")] if host.startswith("[") else host.partition(":")[0]
    reason = _reason(name.removesuffix("."))
    return None if reason is None else f"{name} is a private address ({reason})"


def _reason(name: str) -> str | None:
    if name == "localhost" or name.endswith(".localhost"):
        return "loopback"
    try:
        ip_address(name)
    except ValueError:
        return None
    return refused_because(name)
