"""Private addresses: URLs that a service takes only where its operator allows it.

Our own workers look at every address that they connect to, whatever a name resolves to. Other people's crawlers may
not, so that a frontier that anybody may add to should not hand them the addresses of machines behind their walls.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from outrider.crawler.private_hosts import private_because
from outrider.model.batch import KnownUrl
from outrider.model.task import Added, AddResult, Discovered, Refusal, Restored

Item = TypeVar("Item", Discovered, Restored, KnownUrl)


def refusal_of(url: str) -> AddResult | None:
    """Refuse a URL whose host is itself a private address; of what is no URL, the store says what is wrong.

    >>> refusal_of("http://0x7f.1/").detail, refusal_of("https://example.org/")
    ('127.0.0.1 is a private address (loopback), which this service does not take', None)
    """
    reason = private_because(url)
    if reason is None:
        return None
    return AddResult(Added.REJECTED, Refusal.BAD_HOST, f"{reason}, which this service does not take")


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
