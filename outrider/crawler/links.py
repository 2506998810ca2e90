"""Links: which of the addresses that a worker finds become discoveries, and why the others do not."""

import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from outrider.crawler.feed import Feed
from outrider.crawler.markup import absolute, base_of
from outrider.crawler.page import Link, Page
from outrider.crawler.progress import Progress
from outrider.crawler.sitemap import Sitemap
from outrider.model.lease import Lease
from outrider.model.task import MAX_METADATA_BYTES, CrawlRules, Discovered, DiscoveryType, Kind
from outrider.model.url import Location, UrlRefused, locate
from outrider.policy.discovery import priority_of
from outrider.policy.scope import Scope
from outrider.policy.traps import QueryVariants, Trap, trap_in

MAX_HOPS: Final = 5
SITEMAP_DEPTH: Final = 1
MAX_SITEMAP_LEVELS: Final = 3
SITEMAP_PRIORITY: Final = 2_000
"""A sitemap is read before the pages of its site, all of which have at most 1,000."""
REMEMBERED: Final = 50_000


class Known:
    """URLs that the frontier is known to have, in bounded memory: to offer them again would change nothing."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._young: set[str] = set()
        self._old: set[str] = set()

    def __contains__(self, url: str) -> bool:
        return url in self._young or url in self._old

    def update(self, urls: Iterable[str]) -> None:
        """Remember some more, and forget what was longest not mentioned."""
        self._young.update(urls)
        if len(self._young) >= self._remembered:
            self._old, self._young = self._young, set()


class Links:
    """The rules of one crawl for what to follow; long pages are judged in threads, several at a time."""

    def __init__(
        self,
        scope: Scope,
        rules: CrawlRules,
        progress: Progress,
        *,
        ignore_nofollow: bool,
        sitemaps: bool,
        follow_links: bool = True,
    ) -> None:
        self.scope = scope
        self.known = Known()
        self._rules = rules
        self._progress = progress
        self._ignore_nofollow = ignore_nofollow
        self._sitemaps = sitemaps
        self._follow_links = follow_links
        self._counting = threading.Lock()
        """For what threads change: the counts of what is skipped, and the queries of each path."""
        self._variants = QueryVariants()
        self._year = datetime.now(UTC).year

    def of_page(self, page: Page, lease: Lease, *, nofollow: bool) -> list[Discovered]:
        """Choose the links of a page to follow."""
        if not self._follow_links:
            self._skip("links are not followed", len(page.links))
            return []
        obeys = not self._ignore_nofollow
        if nofollow and obeys:
            self._skip("nofollow", len(page.links))
            return []
        depth = lease.depth + 1
        found = []
        for link in page.links:
            if link.nofollow and obeys:
                self._skip("nofollow")
                continue
            location = self._admitted(link.url)
            if location is not None:
                found.append(_discovered_link(location, link, depth))
        if page.links_dropped:
            self._skip("too many links", page.links_dropped)
        return found

    def of_feed(self, feed: Feed, lease: Lease) -> list[Discovered]:
        """Choose the entries of a feed to follow."""
        if not self._follow_links:
            self._skip("links are not followed", len(feed.entries))
            return []
        depth = lease.depth + 1
        urls = (entry.url for entry in feed.entries)
        return [
            Discovered(
                url=location.url,
                depth=depth,
                priority=priority_of(DiscoveryType.FEED, depth=depth),
                discovery_type=DiscoveryType.FEED,
            )
            for location in map(self._admitted, urls)
            if location is not None
        ]

    def of_sitemap(self, sitemap: Sitemap, now_ms: int, *, level: int = 0, again: bool = False) -> list[Discovered]:
        """Choose the entries of a sitemap to follow, and the sitemaps that it names.

        One that is read `again` also tells which of the pages that are known have changed since.
        """
        found = self.of_sitemaps(sitemap.sitemaps, level + 1)
        for entry in sitemap.entries:
            changed_at = entry.lastmod_ms if again and (entry.lastmod_ms or -1) >= 0 else None
            location = self._admitted(entry.url, known_too=changed_at is not None)
            if location is None:
                continue
            age_ms = None if entry.lastmod_ms is None else max(now_ms - entry.lastmod_ms, 0)
            priority = priority_of(
                DiscoveryType.SITEMAP,
                depth=SITEMAP_DEPTH,
                sitemap_priority=entry.priority,
                changed_ago_ms=age_ms,
            )
            found.append(
                Discovered(
                    url=location.url,
                    depth=SITEMAP_DEPTH,
                    priority=priority,
                    discovery_type=DiscoveryType.SITEMAP,
                    changed_at=changed_at,
                )
            )
        return found

    def of_sitemaps(self, urls: Sequence[str], level: int = 0) -> list[Discovered]:
        """Choose sitemaps to read. A site may keep them elsewhere, so that of the scope only `exclude` counts.

        Sitemaps may name sitemaps, but not without end: their level is kept as their depth.
        """
        if not self._sitemaps or not urls:
            return []
        if level > MAX_SITEMAP_LEVELS:
            self._skip("nested sitemaps", len(urls))
            return []
        found = []
        for url in urls:
            if url in self.known:
                continue
            location = self._located(url)
            if location is None:
                self.known.update([url])  # every page of the site leads here again: it is refused once
            elif self.scope.excluded(location.url) is not None:
                self.known.update([url])
                self._skip("excluded by --exclude")
            elif location.url not in self.known:
                found.append(
                    Discovered(
                        url=location.url,
                        depth=level,
                        kind=Kind.SITEMAP,
                        priority=SITEMAP_PRIORITY,
                        discovery_type=DiscoveryType.SITEMAP,
                    )
                )
        return found

    def of_redirect(self, lease: Lease, target: str) -> Discovered | str:
        """Follow a redirect as a task of its own, at the same depth; a text says why it is not followed."""
        chain = [*redirects_to(lease), lease.url]
        try:
            location = locate(
                absolute(target, base_of(lease.url)) or target,
                strip_tracking=self._rules.strip_tracking,
                sort_query=self._rules.sort_query,
            )
        except UrlRefused as refused:
            return f"redirects to an address that is refused: {refused}"
        if location.url == lease.url:
            return "redirects to itself"
        if location.url in chain:
            return "redirects in a circle"
        if len(chain) > MAX_HOPS:
            return f"redirected more than {MAX_HOPS} times"
        from_seed = is_from_seed(lease)
        outside = None if from_seed else self.scope.judge(location)
        if outside is not None:
            self._skip(outside.partition(":")[0])
            return f"redirects {outside}"
        metadata: dict[str, object] = {"redirects": chain}
        if from_seed:
            metadata["seed"] = True
        if len(msgspec.json.encode(metadata)) > MAX_METADATA_BYTES:
            return "redirected through addresses that are too long to be kept"
        return Discovered(
            url=location.url,
            depth=lease.depth,
            kind=lease.kind,
            priority=lease.priority,
            discovery_type=DiscoveryType.REDIRECT,
            metadata=metadata,
        )

    def _admitted(self, url: str, *, known_too: bool = False) -> Location | None:
        """Give the place of a URL that is to be followed and may be news to the frontier."""
        # Most links of a site are known and written as they are normalised: a look-up is all that they cost.
        if url in self.known and not known_too:
            return None
        location = self._located(url)
        if location is None or (location.url in self.known and not known_too):
            return None
        outside = self.scope.judge(location)
        if outside is not None:
            self._skip(outside.partition(":")[0].partition(" '")[0])
            return None
        trap = trap_in(location.url, year=self._year)
        if trap is None and "?" in location.url:
            with self._counting:
                if not self._variants.allows(location.url):
                    trap = Trap.QUERY_VARIANTS
        if trap is not None:
            self._skip(trap)
            return None
        return location

    def _located(self, url: str) -> Location | None:
        try:
            return self._locate(url)
        except UrlRefused as refused:
            self._skip(refused.reason)
            return None

    def _locate(self, url: str) -> Location:
        return locate(url, strip_tracking=self._rules.strip_tracking, sort_query=self._rules.sort_query)

    def _skip(self, reason: str, number: int = 1) -> None:
        with self._counting:
            self._progress.skipped[reason] += number


def redirects_to(lease: Lease) -> tuple[str, ...]:
    """Give the addresses that redirected to a task, the first one first."""
    chain = (lease.metadata or {}).get("redirects")
    return tuple(str(url) for url in chain) if isinstance(chain, list) else ()


def is_from_seed(lease: Lease) -> bool:
    """Tell whether a task is a seed, or what a seed redirects to."""
    return lease.discovery_type is DiscoveryType.SEED or bool((lease.metadata or {}).get("seed"))


def _discovered_link(location: Location, link: Link, depth: int) -> Discovered:
    kind = DiscoveryType.LINK
    return Discovered(
        url=location.url,
        depth=depth,
        priority=priority_of(kind, depth=depth, link=link.kind, region=link.region, place=link.place),
        discovery_type=kind,
    )
