"""A visit: from a lease to the report that ends it."""

import gzip
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import msgspec
import pytest

from outrider.crawler.exchange import FetchLimits
from outrider.crawler.fetch import Fetcher
from outrider.crawler.links import Links
from outrider.crawler.progress import Progress
from outrider.crawler.visit import READ_INLINE_BYTES, Visitor
from outrider.crawler.warc import WarcWriter
from outrider.frontier.local import LocalFrontier
from outrider.model.identifiers import new_uuid7
from outrider.model.lease import Lease, LeaseRequest, Outcome, Report
from outrider.model.task import CrawlLimits, CrawlRules, Discovered, DiscoveryType, Kind
from outrider.policy.scope import scope_of
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from tests.crawler.raw_server import Answer, Exchange, RawServer, page, serving

HTML = "Content-Type: text/html"


class Bench(NamedTuple):
    """A visitor with all that it needs, and a site."""

    server: RawServer
    urls: UrlStore
    frontier: LocalFrontier
    visitor: Visitor
    links: Links
    progress: Progress

    async def lease(self, path: str = "/", kind: Kind = Kind.PAGE) -> Lease:
        """Lease a page, or the robots.txt that comes before it."""
        url = self.server.url(path)
        await self.frontier.add("c", [Discovered(url=url, kind=kind, discovery_type=DiscoveryType.SEED)])
        request = LeaseRequest(worker="w", request_id=new_uuid7(), slots=1, crawl="c")
        [lease] = (await self.frontier.lease(request)).grant.leases
        return lease

    async def visit(self, lease: Lease) -> Report:
        return await self.visitor.visit(lease, monotonic())

    async def visited(self, path: str = "/", kind: Kind = Kind.PAGE) -> Report:
        return await self.visit(await self.lease(path, kind))


@asynccontextmanager
async def bench(folder: Path, answers: Mapping[str, Answer], *, robots: bool = False) -> AsyncIterator[Bench]:
    archive = WarcWriter(folder, prefix="test", software="test")
    limits = FetchLimits(connect_s=0.5)
    async with (
        serving(answers) as server,
        await open_store(f"sqlite:///{folder / 'store.sqlite'}") as stores,
        LocalFrontier(stores.urls) as frontier,
        Fetcher(user_agent="Test/1", concurrency=8, allow_private=True, limits=limits) as fetcher,
    ):
        await stores.urls.create_crawl("c", limits=CrawlLimits(delay_ms=0, concurrency=8, robots=robots))
        progress = Progress()
        links = Links(scope_of([server.url("/")]), CrawlRules(), progress, ignore_nofollow=False, sitemaps=True)
        visitor = Visitor(
            frontier=frontier, fetcher=fetcher, links=links, progress=progress, agent="test", archive=archive
        )
        yield Bench(server, stores.urls, frontier, visitor, links, progress)
        archive.close()


async def test_a_page_is_reported_with_what_was_found_on_it_and_where_it_is_kept(tmp_path: Path) -> None:
    markup = b'<title>A page</title><a href="/next">x</a><img src="/i.png"><meta name="robots" content="noindex">'
    async with bench(tmp_path, {"/": page(markup, HTML, 'ETag: "1"')}) as at:
        report = await at.visited()
    fetch = report.fetch
    assert (report.outcome, fetch.http_status, fetch.title) == (Outcome.DONE, 200, "A page")
    assert (fetch.links_found, fetch.images_found, fetch.noindex, fetch.etag) == (1, 1, True, '"1"')
    assert [link.url for link in report.links] == [at.server.url("/next")]
    assert fetch.content_location is not None
    file, offset, length = fetch.content_location.split(":")
    record = gzip.decompress((tmp_path / file).read_bytes()[int(offset) :][: int(length)])
    assert markup in record


async def test_a_long_page_is_read_in_a_thread_to_the_same_end(tmp_path: Path) -> None:
    markup = (
        b"<title>Long</title>" + b"x" * READ_INLINE_BYTES + b'<a href="/next">x</a><a href="http://b.example/">x</a>'
    )
    async with bench(tmp_path, {"/": page(markup, HTML)}) as at:
        report = await at.visited()
    assert report.fetch.title == "Long"
    assert [link.url for link in report.links] == [at.server.url("/next")]
    assert at.progress.skipped == {"out of scope": 1}


async def test_titles_and_headers_that_cannot_be_stored_as_they_are_are_made_fit(tmp_path: Path) -> None:
    markup = b"<title>a&#0;b\xed\xa0\x80c</title>"
    async with bench(tmp_path, {"/": page(markup, HTML, f"ETag: {'e' * 5_000}")}) as at:
        report = await at.visited()
        [answer] = await at.frontier.report([report])
    assert answer.verdict == "completed"
    assert report.fetch.etag == "e" * 1_000


async def test_a_kept_connection_that_was_closed_is_forgiven_once(tmp_path: Path) -> None:
    async def hang_up(_: Exchange) -> None:
        return

    async with bench(tmp_path, {"/first": page(), "/": hang_up}) as at:
        await at.visited("/first")
        lease = await at.lease("/")
        assert (await at.visit(lease)).outcome is Outcome.DEFERRED
        await at.visit(msgspec.structs.replace(lease, url=at.server.url("/first")))
        again = await at.visit(msgspec.structs.replace(lease, attempt=2))
        assert (again.outcome, again.reason) == (Outcome.FAILED, "disconnected: Server disconnected")


async def test_a_page_that_others_let_in_widens_the_scope_here_too(tmp_path: Path) -> None:
    """Another process has followed a seed to this host: what is found here is in scope for all."""
    linking = page(b'<a href="/next">x</a>', HTML)
    async with bench(tmp_path, {"/1": linking, "/2": linking}) as at:
        at.links.scope = scope_of(["https://seed.example/"])
        assert (await at.visited("/1")).links == []
        await at.frontier.widen_scope("c", [at.server.url("/")])
        assert [link.url for link in (await at.visited("/2")).links] == [at.server.url("/next")]


async def test_a_redirect_of_robots_txt_counts_as_a_request_though_its_target_was_never_asked(tmp_path: Path) -> None:
    async def to_https(exchange: Exchange) -> None:
        target = at.server.url("/robots.txt", scheme="https")
        await exchange.send(page(b"", f"Location: {target}", "Connection: close", status="301 Moved"))
        # No TLS is spoken here, so that nothing can be sent there.

    async with bench(tmp_path, {"/robots.txt": to_https}, robots=True) as at:
        report = await at.visited()
    assert report.outcome is Outcome.FAILED
    assert report.reason is not None
    assert report.reason.startswith("connect_timeout: ")
    assert report.sent_after_ms is not None


async def test_the_robots_txt_of_another_domain_is_not_that_of_the_site(tmp_path: Path) -> None:
    moved = page(b"", "Location: https://127.0.0.1:1/robots.txt", status="301 Moved")
    async with bench(tmp_path, {"/robots.txt": moved}, robots=True) as at:
        report = await at.visited()
        assert len(at.server.heads) == 1
    assert report.robots is not None
    assert report.robots.text == ""


@pytest.mark.parametrize(
    ("status", "outcome", "forbids"),
    [("200 OK", Outcome.DONE, False), ("404 Not Found", Outcome.DONE, False), ("500 Oh", Outcome.DEFERRED, True)],
)
async def test_robots_txt_is_reported_with_what_it_means(
    status: str, outcome: Outcome, forbids: bool, tmp_path: Path
) -> None:
    async with bench(tmp_path, {"/robots.txt": page(b"", status=status)}, robots=True) as at:
        lease = await at.lease()
        assert lease.kind is Kind.ROBOTS
        report = await at.visit(lease)
    assert report.outcome is outcome
    assert report.robots is not None
    assert ("Disallow: /" in report.robots.text) == forbids


async def test_the_sitemaps_of_robots_txt_are_offered_with_each_page_until_they_are_known(tmp_path: Path) -> None:
    """A crawl may find the robots.txt of a site there, from another crawl."""
    text = b"Sitemap: http://127.0.0.1/s.xml\nSitemap: /relative.xml\n"
    async with bench(tmp_path, {"/robots.txt": page(text), "/": page(), "/2": page()}, robots=True) as at:
        await at.frontier.report([await at.visited()])
        lease = await at.lease()
        report = await at.visit(lease)
        assert [link.kind for link in report.links] == [Kind.SITEMAP]
        at.visitor.acknowledged(lease, report.links)
        assert (await at.visited("/2")).links == []
    assert at.progress.skipped == {"not_http": 1}
