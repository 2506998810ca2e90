"""Evidence: everything that a store knows of one URL, read at one moment."""

import time
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from outrider.crawler.plan import USER_AGENT
from outrider.crawler.robots import RobotsRules, product_token
from outrider.model.artifact import Artifact
from outrider.model.gate import Gate
from outrider.model.job import Run
from outrider.model.lease import Holder
from outrider.model.task import Counts, Crawl, Kind, Task
from outrider.model.typed_url import with_scheme
from outrider.model.url import Location, UrlRefused, locate
from outrider.policy.admission import key_for
from outrider.policy.explaining import Explanation, explain_task, explain_unknown
from outrider.policy.scope import Scope, ScopeRule, scope_of
from outrider.policy.traps import trap_in
from outrider.store.opening import Stores
from outrider.store.protocols import UrlStore

MOST_ATTEMPTS = 20
KEPT_SEEDS = 100
"""How many seeds a run remembers; with so many, there may have been more."""


class RobotsSaid(msgspec.Struct, frozen=True, kw_only=True):
    """What the site's robots.txt, as the store has it, says of the URL."""

    allowed: bool
    line: int | None
    rule: str | None
    unreachable_because: str | None
    version: str
    expires_at: int | None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one URL in one crawl."""

    url: str
    crawl: Crawl
    now: int
    explanation: Explanation
    task: Task | None
    artifacts: list[Artifact]
    """What was reported of it, the newest first."""
    holder: Holder | None
    holder_was_killed: bool
    gate: Gate | None
    robots: RobotsSaid | None
    last_run: Run | None
    scope: Scope | None
    """None where no run tells which seeds the crawl had."""
    scope_is_certain: bool
    """All seeds are known, and so is what they let in."""
    similar: list[str]
    """Other spellings of an unknown URL that the crawl does know."""
    pages: Counts
    """Of the whole crawl."""
    queue: Counts
    """Of the URL's own queue, whatever the kind."""
    processes: int | None
    """Crawl processes at work in the data folder; None where nobody can know."""

    @property
    def attempts(self) -> list[Artifact]:
        """The artifacts of this life of the URL: they outlive a crawl that is begun anew."""
        return [each for each in self.artifacts if self.task is not None and each.leased_at >= self.task.discovered_at]


def read_url(text: str) -> str:
    """Read a URL as it is typed, also without its scheme, or raise `UrlRefused`."""
    return locate(with_scheme(text)).url


async def gather(
    stores: Stores,
    crawl: Crawl,
    text: str,
    *,
    key: str | None = None,
    agent: str | None = None,
    killed: Collection[str] = (),
    processes: int | None = None,
) -> Evidence:
    """Find out about a URL, or raise `UrlRefused`.

    `key` names its queue where a client did; `agent` says as whom to ask robots.txt, by default as the last run did.
    `killed` are workers whose processes are known to be gone.
    """
    rules, urls, name = crawl.rules, stores.urls, crawl.name
    place = locate(read_url(text), strip_tracking=rules.strip_tracking, sort_query=rules.sort_query)
    now = int(time.time() * 1000)
    task = await urls.find_task(name, place.url, key)
    gate = await urls.get_gate(place.domain)
    runs = await stores.control.list_runs(name, limit=1)
    last_run = runs[0] if runs else None
    pages = (await urls.counts_by_kind(name)).get(Kind.PAGE, Counts())
    queue = await urls.counts(name, key_for(place, rules) if key is None else key)
    scope, is_certain = await _scope(urls, name, last_run)
    holder = await urls.find_holder(name, place.url, key)
    if task is None:
        outside = None if scope is None else scope.judge(place)
        if outside is not None and not is_certain and queue.total:
            outside = None  # the crawl has other pages of this site, so that a seed must have let it in
        explanation = explain_unknown(outside=outside, trap=trap_in(place.url, year=datetime.now(UTC).year))
    else:
        is_full = await _is_full(urls, crawl, queue)
        explanation = explain_task(task, crawl, gate=gate, pages=pages, now=now, domain_is_full=is_full)
    return Evidence(
        url=place.url,
        crawl=crawl,
        now=now,
        explanation=explanation,
        task=task,
        artifacts=await urls.artifacts_of(name, place.url, limit=MOST_ATTEMPTS),
        holder=holder,
        holder_was_killed=holder is not None and holder.worker in killed,
        gate=gate,
        robots=await _robots(urls, place, gate, agent or _agent(last_run)) if crawl.limits.robots else None,
        last_run=last_run,
        scope=scope,
        scope_is_certain=is_certain,
        similar=[] if task is not None else await _similar(urls, name, place),
        pages=pages,
        queue=queue,
        processes=processes,
    )


async def _scope(urls: UrlStore, crawl: str, last_run: Run | None) -> tuple[Scope | None, bool]:
    """Build the scope of the last run again, as far as its seeds were kept."""
    if last_run is None:
        return None, False
    kept = last_run.settings
    seeds = _texts(kept.get("seeds"))
    rule = ScopeRule(str(kept.get("scope", ScopeRule.HOST)))
    scope = scope_of(
        _readable(seeds),
        rule,
        include=_texts(kept.get("include")),
        exclude=_texts(kept.get("exclude")),
    )
    for root in await urls.scope_roots(crawl):
        scope = scope.extended(root)
    is_certain = len(seeds) < KEPT_SEEDS and kept.get("seeds_file") is None
    return scope, is_certain or rule is ScopeRule.ANY


def _texts(kept: object) -> list[str]:
    return [str(each) for each in kept] if isinstance(kept, list | tuple) else []


def _readable(seeds: list[str]) -> list[str]:
    found = []
    for seed in seeds:
        with suppress(UrlRefused):
            found.append(read_url(seed))
    return found


async def _is_full(urls: UrlStore, crawl: Crawl, queue: Counts) -> bool:
    most = crawl.limits.max_pages_per_domain
    if most is None or queue.completed + queue.assigned < most:
        return False
    return (await urls.outlook(crawl.name)).limited


def _agent(last_run: Run | None) -> str:
    return USER_AGENT if last_run is None else str(last_run.settings.get("user_agent", USER_AGENT))


async def _robots(urls: UrlStore, place: Location, gate: Gate | None, agent: str) -> RobotsSaid | None:
    found = await urls.robots_text(place.domain)
    if found is None:
        return None
    version, text = found
    rules = RobotsRules(text, product_token(agent))
    judgement = rules.judge(place.url)
    return RobotsSaid(
        allowed=judgement.allowed,
        line=judgement.line,
        rule=judgement.rule,
        unreachable_because=rules.unreachable_because,
        version=version,
        expires_at=None if gate is None else gate.robots_expires_at,
    )


async def _similar(urls: UrlStore, crawl: str, place: Location) -> list[str]:
    """Look for the spellings that people mix up."""
    url = place.url
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    candidates = [
        f"{'http' if scheme == 'https' else 'https'}://{rest}",
        f"{scheme}://{host.removeprefix('www.') if host.startswith('www.') else f'www.{host}'}{slash}{path}",
        url.removesuffix("/") if path else url,
        url if url.endswith("/") or "?" in url else f"{url}/",
        url.partition("?")[0],
    ]
    found = []
    for candidate in dict.fromkeys(candidates):
        with suppress(UrlRefused):
            if candidate != url and await urls.find_task(crawl, candidate) is not None:
                found.append(candidate)
    return found
