"""Private addresses: URLs that a service takes only where its operator allows it.

Our own workers look at every address that they connect to, whatever a name resolves to. Other people's crawlers may
not, so that a frontier that anybody may add to should not hand them the addresses of machines behind their walls.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Final, TypeVar

from outrider.crawler.addresses import refused_because
from outrider.model.batch import KnownUrl
from outrider.model.task import Added, AddResult, Discovered, Refusal, Restored
from outrider.model.url import UrlRefused, locate

Item = TypeVar("Item", Discovered, Restored, KnownUrl)

# Nearly every URL is plainly written and has a name for its host: a look at its text is all that it costs.
_PLAIN: Final = re.compile(r"https?://(?!localhost)[a-z][a-z0-9.-]*[a-z](?::[0-9]+)?(?:[/?#]|$)")


def refusal_of(url: str) -> AddResult | None:
    """Refuse a URL whose host is itself a private address, however it is written; a name is not looked up.

    >>> refusal_of("http://0x7f.1/").detail, refusal_of("https://example.org/")
    ('127.0.0.1 is a private address (loopback), which this service does not take', None)
    """
    if not isinstance(url, str) or (_PLAIN.match(url) and ".localhost" not in url):
        return None
    try:
        host = locate(url).host
    except UrlRefused:
        return None  # the store says what is wrong with it
    name = host[1 : host.index("]")] if host.startswith("[") else host.partition(":")[0]
    reason = _reason(name.removesuffix("."))
    if reason is None:
        return None
    return AddResult(
        Added.REJECTED, Refusal.BAD_HOST, f"{name} is a private address ({reason}), which this service does not take"
    )


def _reason(name: str) -> str | None:
    if name == "localhost" or name.endswith(".localhost"):
        return "loopback"
    try:
        ip_address(name)
    except ValueError:
        return None
    return refused_because(name)


async def add_public(
    add: Callable[[str, Sequence[Item]], Awaitable[list[AddResult]]], crawl: str, items: Sequence[Item]
) -> list[AddResult]:
    """Add what may be added; one answer for each item, in order."""
    refusals = [refusal_of(item.url) for item in items]
    if not any(refusals):
        return await add(crawl, items)
    public = [item for item, refusal in zip(items, refusals, strict=True) if refusal is None]
    added = iter(await add(crawl, public))
    return [next(added) if refusal is None else refusal for refusal in refusals]
