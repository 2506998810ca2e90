"""Visiting robots.txt, by RFC 9309: what each answer to it means.

Found: it holds. Not there (4xx): everything is allowed. Out of order (5xx) or out of reach: nothing is,
until it can be read.
"""

import asyncio
from typing import Final

from outrider.crawler.exchange import FetchFailed, Request, Response
from outrider.crawler.fetch import Fetcher
from outrider.crawler.markup import absolute, base_of
from outrider.crawler.robots import MAX_ROBOTS_BYTES, UNREACHABLE, RobotsRules
from outrider.model.gate import Robots
from outrider.model.lease import Lease
from outrider.model.url import UrlRefused, locate

MAX_HOPS: Final = 5
DAY_MS: Final = 24 * 3_600_000
HOUR_MS: Final = 3_600_000
MOST_DELAY_MS: Final = DAY_MS


async def fetch(fetcher: Fetcher, lease: Lease, delay_s: float) -> Response:
    """Fetch a robots.txt with the redirects inside its domain, none sooner than the delay after the last.

    A redirect to another domain is left: that domain's politeness is not ours to use up.
    """
    url, hops, sent_at = lease.url, 0, None
    while True:
        try:
            response = await fetcher.fetch(Request(url=url, max_body=MAX_ROBOTS_BYTES))
        except FetchFailed as failure:
            if failure.started is None:
                failure.started = sent_at  # the redirects before were requests too
            raise
        sent_at = response.started
        target = response.header("location") if 300 <= response.status < 400 else None
        following = absolute(target, base_of(url)) if target else None
        if following is None or hops == MAX_HOPS or not _is_within(following, lease.domain):
            return response
        url, hops = following, hops + 1
        await asyncio.sleep(delay_s)


def _is_within(url: str, domain: str) -> bool:
    try:
        return locate(url).domain == domain
    except UrlRefused:
        return False


def rules_of(response: Response, agent: str) -> RobotsRules | None:
    """Read the rules where there are any."""
    return RobotsRules.of_body(response.body, agent) if 200 <= response.status < 300 else None


def said(response: Response, rules: RobotsRules | None) -> Robots:
    """Tell the frontier what a site said."""
    if rules is None:
        return Robots(text="", expires_in_ms=DAY_MS)
    delay = rules.crawl_delay
    text = response.body[:MAX_ROBOTS_BYTES].decode(errors="replace").replace("\0", "")
    return Robots(
        text=text,
        expires_in_ms=DAY_MS,
        crawl_delay_ms=None if delay is None else min(round(delay * 1000), MOST_DELAY_MS),
    )


def unreachable(reason: str | None) -> Robots:
    """Stand in for a robots.txt that could not be read: where this was the last try, all pages wait for the next."""
    text = f"{UNREACHABLE}{' '.join((reason or '').split())}\nUser-agent: *\nDisallow: /\n"
    return Robots(text=text, expires_in_ms=HOUR_MS, unreachable=True)
