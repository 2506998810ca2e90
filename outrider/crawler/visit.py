"""A visit: from a lease to the report that ends it.

Robots.txt is asked first, then the site, then the page is read and kept. Whatever goes wrong becomes a
report with a reason; nothing of it stops the worker.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from outrider.crawler import robots_visit
from outrider.crawler.charset import decode
from outrider.crawler.comparing import Comparison, compare, fresh_for_ms
from outrider.crawler.exchange import FailureKind, FetchFailed, Request, Response
from outrider.crawler.feed import is_feed, read_feed
from outrider.crawler.fetch import Fetcher
from outrider.crawler.links import Links, is_from_seed, redirects_to
from outrider.crawler.login import is_login_wall, is_sent_to_login
from outrider.crawler.markup import absolute, base_of
from outrider.crawler.page import Page, is_html, read_page, x_robots
from outrider.crawler.progress import ROBOTS_UNREACHABLE, Progress
from outrider.crawler.robots import RobotsCache, RobotsRules
from outrider.crawler.sitemap import read_sitemap
from outrider.crawler.warc import Exchange, WarcWriter
from outrider.frontier.protocol import Frontier
from outrider.model.artifact import Fetch
from outrider.model.lease import Lease, Outcome, Report
from outrider.model.task import Discovered, Kind
from outrider.model.url import Location, locate
from outrider.policy.answer import (
    Judgement,
    judge_robots_status,
    judge_status,
    judge_trouble,
    parse_retry_after,
)
from outrider.policy.blocking import BlockReason, reason_of_failure, reason_of_status

READ_INLINE_BYTES: Final = 256 * 1024
"""Longer bodies are read in a thread, so that the other fetches go on meanwhile."""
MAX_TITLE: Final = 300
MAX_TROUBLES: Final = 10_000

DONE: Final = Judgement(Outcome.DONE)
REFUSED: Final = frozenset({FailureKind.PRIVATE_ADDRESS, FailureKind.BAD_REQUEST})
SITE_IS_AWAY: Final = frozenset(
    {FailureKind.DNS, FailureKind.CONNECT, FailureKind.CONNECT_TIMEOUT, FailureKind.TLS, FailureKind.PROXY}
)
"""Failures that say something of the whole site; the others may be one page's."""
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class Reading(NamedTuple):
    """What a body says."""

    page: Page | None = None
    links: Sequence[Discovered] = ()
    comparison: Comparison = Comparison()
    is_login_wall: bool = False


class Visitor:
    """Visits what is leased, for one crawl and under one name."""

    def __init__(
        self,
        *,
        frontier: Frontier,
        fetcher: Fetcher,
        links: Links,
        progress: Progress,
        agent: str,
        archive: WarcWriter | None = None,
        obeys_robots: bool = True,
        narrows: bool = False,
        max_depth: int | None = None,
        delay_s: float = 0.0,
        remembers: bool = False,
    ) -> None:
        self._frontier = frontier
        self._fetcher = fetcher
        self._links = links
        self._progress = progress
        self._agent = agent
        """The product token by which robots.txt calls this crawler."""
        self._archive = archive
        self._obeys_robots = obeys_robots
        self._narrows = narrows
        """Refuse pages that are out of scope or too deep by now, though they were let in before."""
        self._max_depth = max_depth if narrows else None
        self._delay_s = delay_s
        self._remembers = remembers
        """Pages are to be refreshed: have the first fetch of each bring what later ones are compared with."""
        self._rules = RobotsCache()
        self._failures_in_row: Counter[str] = Counter()
        self.troubles: dict[str, str] = {}
        """Why a domain was last put off, for displays."""

    async def visit(self, lease: Lease, asked_at: float) -> Report:
        """Fetch what a lease is for; `asked_at` is when the worker asked for it, on the monotonic clock."""
        if lease.kind is Kind.ROBOTS:
            return await self._visit_robots(lease, asked_at)
        unwanted = await self._unwanted_because(lease)
        if unwanted is not None:
            self._progress.failures["no longer wanted"] += 1
            return Report(token=lease.token, outcome=Outcome.REFUSED, reason=unwanted, sent_after_ms=None)
        rules = await self._rules_of(lease)
        if rules is not None and rules.unreachable_because is not None:
            # Since it was leased, robots.txt was tried again, in vain: the frontier has the page wait for the next try.
            reason = f"{ROBOTS_UNREACHABLE}: {rules.unreachable_because}"
            return Report(token=lease.token, outcome=Outcome.DEFERRED, reason=reason, sent_after_ms=None)
        refused = None if rules is None else self._refused_by(rules, lease)
        if refused is not None:
            self._progress.failures["robots"] += 1
            return Report(token=lease.token, outcome=Outcome.REFUSED, reason=refused, sent_after_ms=None)
        try:
            request = Request(url=lease.url, etag=lease.etag, last_modified=lease.last_modified)
            response = await self._fetcher.fetch(request)
        except FetchFailed as failure:
            return self._failed(lease, failure, asked_at)
        return await self._answered(lease, response, asked_at, rules)

    # ------------------------------------------------------------- robots.txt

    async def _rules_of(self, lease: Lease) -> RobotsRules | None:
        if not self._obeys_robots or lease.robots_version is None:
            return None
        rules = self._rules.get(lease.domain, lease.robots_version)
        if rules is None:
            found = await self._frontier.robots_text(lease.domain)
            if found is None:
                return None
            rules = RobotsRules(found[1], self._agent)
            self._rules.put(lease.domain, found[0], rules)
        return rules

    def _refused_by(self, rules: RobotsRules, lease: Lease) -> str | None:
        if rules.allows(lease.url):
            return None
        judgement = rules.judge(lease.url)
        return f"robots: line {judgement.line}: {judgement.rule}"

    async def _visit_robots(self, lease: Lease, asked_at: float) -> Report:
        try:
            response = await robots_visit.fetch(self._fetcher, lease, self._delay_s)
        except FetchFailed as failure:
            report = self._failed(lease, failure, asked_at)
            if failure.kind in REFUSED or failure.kind is FailureKind.LOCAL:
                return report
            self.troubles[lease.domain] = f"{ROBOTS_UNREACHABLE}: {report.reason}"
            return msgspec.structs.replace(report, robots=robots_visit.unreachable(report.reason))
        self._count(lease, response)
        judgement = self._judged(lease, response)
        code = BlockReason.SERVER_ERROR if response.status >= 500 else None
        if judgement.outcome is Outcome.DONE:
            rules = robots_visit.rules_of(response, self._agent)
            links = self._links.of_sitemaps(rules.sitemaps) if rules else []
            said = robots_visit.said(response, rules)
            if rules is not None and rules.allows_nothing and self._obeys_robots:
                code = BlockReason.ROBOTS_DENIED
        else:
            links, said = [], robots_visit.unreachable(judgement.reason)
        return Report(
            token=lease.token,
            outcome=judgement.outcome,
            fetch=self._fetch_of(
                lease, response, self._keep(lease, response, None), Reading(comparison=self._compared(lease, response))
            ),
            links=links,
            reason=judgement.reason,
            retry_after_ms=judgement.retry_after_ms,
            backs_off=judgement.backs_off,
            block_code=code,
            sent_after_ms=_since(asked_at, response.started),
            robots=said,
        )

    # ------------------------------------------------------------------ answers

    def _failed(self, lease: Lease, failure: FetchFailed, asked_at: float) -> Report:
        self._progress.failures[failure.kind] += 1
        sent_after_ms = None if failure.started is None else _since(asked_at, failure.started)
        if failure.kind in REFUSED:
            return Report(token=lease.token, outcome=Outcome.REFUSED, reason=str(failure), sent_after_ms=sent_after_ms)
        if failure.kind is FailureKind.LOCAL:
            judgement = Judgement(Outcome.DEFERRED, str(failure), retry_after_ms=1_000)
        elif failure.kind is FailureKind.DISCONNECTED and failure.reused and lease.attempt == 1:
            # The connection may have been closed before the request arrived: no fault of anybody's, the first time.
            judgement = Judgement(Outcome.DEFERRED, str(failure))
        elif lease.kind is Kind.ROBOTS or failure.kind not in SITE_IS_AWAY:
            judgement = judge_trouble(str(failure), failures_in_row=0, attempt=lease.attempt)
        else:
            in_row = self._note_failure(lease.domain, str(failure))
            judgement = judge_trouble(str(failure), failures_in_row=in_row, attempt=lease.attempt)
        return Report(
            token=lease.token,
            outcome=judgement.outcome,
            fetch=Fetch(fetched_at=None, redirects=redirects_to(lease)),
            reason=judgement.reason,
            retry_after_ms=judgement.retry_after_ms,
            backs_off=judgement.backs_off,
            block_code=reason_of_failure(failure.kind),
            sent_after_ms=sent_after_ms,
        )

    async def _answered(self, lease: Lease, response: Response, asked_at: float, rules: RobotsRules | None) -> Report:
        self._count(lease, response)
        judgement = self._judged(lease, response)
        outcome, reason = judgement.outcome, judgement.reason
        links: list[Discovered] = []
        if outcome is not Outcome.DONE:
            reading = Reading(comparison=self._compared(lease, response))
        else:
            target = response.header("location") if response.status in REDIRECTS else None
            if target is not None:
                outcome, reason, links = await self._redirected(lease, target)
                at_login = is_sent_to_login(lease.url, absolute(target, base_of(lease.url)) or target)
                reading = Reading(comparison=self._compared(lease, response), is_login_wall=at_login)
            else:
                reading = await self._read(lease, response)
                links = list(reading.links)
            if rules is not None and rules.sitemaps:
                links += self._links.of_sitemaps(rules.sitemaps)
            reason = reason or _cut_short(response, reading.page)
        location = self._keep(lease, response, reading.page)
        return Report(
            token=lease.token,
            outcome=outcome,
            fetch=self._fetch_of(lease, response, location, reading),
            links=links,
            reason=reason,
            retry_after_ms=judgement.retry_after_ms,
            backs_off=judgement.backs_off,
            block_code=_block_code(lease, response, reading),
            changed=reading.comparison.changed,
            fresh_for_ms=fresh_for_ms(response) if self._remembers or lease.digest is not None else None,
            sent_after_ms=_since(asked_at, response.started),
        )

    def _judged(self, lease: Lease, response: Response) -> Judgement:
        status = response.status
        in_row = self._note_failure(lease.domain, f"http {status}") if status >= 500 or status == 429 else 0
        if not in_row:
            self._failures_in_row.pop(lease.domain, None)
            self.troubles.pop(lease.domain, None)
        if status < 400:
            return DONE
        self._progress.failures[f"http {status}"] += 1
        retry_after_ms = parse_retry_after(response.header("retry-after"), now_ms=int(time.time() * 1000))
        if retry_after_ms is not None and in_row:
            self.troubles[lease.domain] = f"http {status}, asked for {retry_after_ms / 1000:.0f} s"
        if lease.kind is Kind.ROBOTS:
            return judge_robots_status(status, retry_after_ms=retry_after_ms)
        return judge_status(status, retry_after_ms=retry_after_ms, failures_in_row=in_row, attempt=lease.attempt)

    def _note_failure(self, domain: str, reason: str) -> int:
        if len(self.troubles) >= MAX_TROUBLES:
            self.troubles.clear()
            self._failures_in_row.clear()
        self.troubles[domain] = reason
        self._failures_in_row[domain] += 1
        return self._failures_in_row[domain]

    async def _redirected(self, lease: Lease, target: str) -> tuple[Outcome, str | None, list[Discovered]]:
        found = self._links.of_redirect(lease, target)
        if isinstance(found, str):
            return (Outcome.REFUSED if found == "redirects to itself" else Outcome.DONE), found, []
        if is_from_seed(lease) and self._links.scope.judge(locate(found.url)) is not None:
            # Before the report: a process that takes the target must know that it is in scope.
            await self._frontier.widen_scope(lease.crawl, [found.url])
            self._links.scope = self._links.scope.extended(found.url)
        return Outcome.DONE, None, [found]

    async def _unwanted_because(self, lease: Lease) -> str | None:
        """Tell why a page is not to be fetched after all: the plan may have been narrowed since it was found.

        What is not in our scope may be in that of another process, which has widened it: then we learn of it.
        """
        if lease.kind is not Kind.PAGE:
            return None
        if self._max_depth is not None and lease.depth > self._max_depth:
            return f"depth {lease.depth} is beyond --max-depth {self._max_depth}"
        location = Location(lease.url, lease.domain, lease.domain)
        if self._links.scope.judge(location) is None:
            return None
        self._links.scope = self._links.scope.with_seeds(await self._frontier.scope_roots(lease.crawl))
        return self._links.scope.judge(location) if self._narrows and not is_from_seed(lease) else None

    # ------------------------------------------------------------------- bodies

    async def _read(self, lease: Lease, response: Response) -> Reading:
        """Read a body for what it says and leads to; what is not text leads nowhere."""
        if not response.body or response.status in (204, 304):
            return Reading(comparison=self._compared(lease, response))
        if len(response.body) > READ_INLINE_BYTES:
            return await asyncio.to_thread(self._read_body, lease, response)
        return self._read_body(lease, response)

    def _read_body(self, lease: Lease, response: Response) -> Reading:
        body, content_type = response.body, response.content_type
        reading = Reading(comparison=self._compared(lease, response))
        if lease.kind is Kind.SITEMAP:
            if response.status >= 400:
                return reading
            sitemap = read_sitemap(body, url=lease.url)
            again = lease.digest is not None
            links = self._links.of_sitemap(sitemap, response.fetched_at, level=lease.depth, again=again)
            return reading._replace(links=links)
        if is_feed(content_type, body):
            return reading._replace(links=self._links.of_feed(read_feed(body, url=lease.url), lease))
        if not is_html(content_type, body):
            return reading
        page = read_page(body, url=lease.url, declared_charset=response.charset_declared, agent=self._agent)
        _, nofollow = x_robots(response.header_values("x-robots-tag"), self._agent)
        if response.status >= 400:
            return reading._replace(page=page)
        # Few pages have the word: only these are worth another reading.
        may_be_wall = b"password" in body.lower()
        return reading._replace(
            page=page,
            links=self._links.of_page(page, lease, nofollow=nofollow or page.nofollow),
            is_login_wall=may_be_wall and is_login_wall(lease.url, decode(body, response.charset_declared)[0]),
        )

    def _compared(self, lease: Lease, response: Response) -> Comparison:
        return compare(lease, response, remembers=self._remembers)

    def _keep(self, lease: Lease, response: Response, page: Page | None) -> str | None:
        """Write what was sent and received to the archive; tell where it lies."""
        if self._archive is None:
            return None
        chain = redirects_to(lease)
        where = self._archive.write(
            Exchange(
                url=response.url,
                fetched_at=response.fetched_at,
                request_head=response.request_head,
                status=response.status,
                reason=response.reason,
                http_version=response.version.partition("/")[2] or "1.1",
                headers=response.headers,
                raw_body=response.raw_body,
                peer_address=response.address,
                truncated=response.truncated,
                metadata={
                    "crawl": lease.crawl,
                    "kind": lease.kind.name.lower(),
                    "depth": lease.depth,
                    "attempt": lease.attempt,
                    "discovered-by": lease.discovery_type.name.lower(),
                    "via": chain[-1] if chain else None,
                    "title": page.title[:MAX_TITLE] if page and page.title else None,
                },
            )
        )
        return f"{where.file}:{where.offset}:{where.length}"

    def _fetch_of(self, lease: Lease, response: Response, location: str | None, reading: Reading) -> Fetch:
        page, comparison = reading.page, reading.comparison
        unchanged = response.status == 304  # a site need not say again what it said of the page that it has
        noindex, _ = x_robots(response.header_values("x-robots-tag"), self._agent)
        return Fetch(
            http_status=response.status,
            fetched_at=response.fetched_at,
            elapsed_ms=response.elapsed_ms,
            content_type=_storable(response.content_type),
            body_bytes=len(response.raw_body),
            images_found=page.images if page else 0,
            digest=comparison.digest,
            etag=_storable(response.header("etag")) or (lease.etag if unchanged else None),
            last_modified=_storable(response.header("last-modified")) or (lease.last_modified if unchanged else None),
            content_location=location,
            title=_storable(page.title[:MAX_TITLE]) if page and page.title else None,
            links_found=len(page.links) if page else 0,
            noindex=noindex or (page is not None and page.noindex),
            redirects=redirects_to(lease),
            similarity=comparison.similarity,
        )

    def _count(self, lease: Lease, response: Response) -> None:
        self._progress.page_fetched(lease.domain, response.elapsed_ms, len(response.raw_body), time.monotonic())

    def acknowledged(self, _lease: Lease, links: Sequence[Discovered]) -> None:
        """Note that the frontier has the links of a page, so that they need not be offered again."""
        self._links.known.update(link.url for link in links)


def _block_code(lease: Lease, response: Response, reading: Reading) -> BlockReason | None:
    """Tell what an answer says against its domain; a sitemap that is not for everybody says nothing."""
    reason = reason_of_status(response.status, login_wall=reading.is_login_wall)
    if lease.kind is Kind.PAGE or reason in (BlockReason.SERVER_ERROR, BlockReason.RATE_LIMITED):
        return reason
    return None


def _cut_short(response: Response, page: Page | None) -> str | None:
    """Tell which limit a page was cut short by."""
    if response.truncated:
        return "the body was cut off"
    if page is not None and page.links_dropped:
        return f"{page.links_dropped} links past the limit were left out"
    return None


def _since(asked_at: float, moment: float) -> int:
    return max(round((moment - asked_at) * 1000), 0)


def _storable(text: str | None) -> str | None:
    """Make a text of a site fit to be kept: no NUL bytes, no halves of characters, no great length."""
    if text is None:
        return None
    return text[:1_000].replace("\0", "").encode(errors="replace").decode()
