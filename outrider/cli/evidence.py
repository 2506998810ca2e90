"""Evidence: everything that a store knows of one URL, read at one moment."""

import time
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from outrider.cli.opened import KEPT_SEEDS, Opened, workers_of
from outrider.cli.seeds import Seeds
from outrider.crawler.plan import USER_AGENT
from outrider.crawler.robots import RobotsRules, product_token
from outrider.model.artifact import Artifact
from outrider.model.gate import Gate
from outrider.model.job import Run
from outrider.model.lease import Holder
from outrider.model.task import Counts, Crawl, Kind, Task
from outrider.model.url import Location, UrlRefused, locate
from outrider.policy.admission import key_for
from outrider.policy.explaining import Explanation, explain_task, explain_unknown
from outrider.policy.scope import Scope, ScopeRule, scope_of
from outrider.policy.traps import trap_in

MOST_ATTEMPTS = 20


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
    attempts: list[Artifact]
    """What was reported of it since the crawl began, the newest first."""
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
    processes: int
    """Crawl processes at work in the data folder."""


def read_url(text: str) -> str:
    """Read a URL as it is typed, also without its scheme, or raise `UrlRefused`."""
    seeds = Seeds((text,), None)
    for seed in seeds:
        return seed.url
    refusal = seeds.refusals[0]
    error = UrlRefused(refusal.reason, "", None)
    error.args = (refusal.detail,)
    raise error


async def gather(opened: Opened, text: str) -> Evidence:
    """Find out about a URL, or raise `UrlRefused`."""
    rules = opened.crawl.rules
    place = locate(read_url(text), strip_tracking=rules.strip_tracking, sort_query=rules.sort_query)
    urls, name = opened.urls, opened.name
    now = int(time.time() * 1000)
    task = await urls.find_task(name, place.url)
    gate = await urls.get_gate(place.domain)
    runs = await opened.stores.control.list_runs(name, limit=1)
    last_run = runs[0] if runs else None
    pages = (await urls.counts_by_kind(name)).get(Kind.PAGE, Counts())
    queue = await urls.counts(name, key_for(place, rules))
    scope, is_certain = await _scope(opened, last_run)
    holder, workers = await urls.find_holder(name, place.url), workers_of(opened.plan)
    if task is None:
        outside = None if scope is None else scope.judge(place)
        if outside is not None and not is_certain and queue.total:
            outside = None  # the crawl has other pages of this site, so that a seed must have let it in
        explanation = explain_unknown(outside=outside, trap=trap_in(place.url, year=datetime.now(UTC).year))
    else:
        explanation = explain_task(
            task, opened.crawl, gate=gate, pages=pages, now=now, domain_is_full=await _is_full(opened, queue)
        )
    return Evidence(
        url=place.url,
        crawl=opened.crawl,
        now=now,
        explanation=explanation,
        task=task,
        attempts=[] if task is None else await _attempts(opened, task),
        holder=holder,
        holder_was_killed=holder is not None and holder.worker in workers.killed,
        gate=gate,
        robots=await _robots(opened, place, gate, last_run),
        last_run=last_run,
        scope=scope,
        scope_is_certain=is_certain,
        similar=[] if task is not None else await _similar(opened, place),
        pages=pages,
        queue=queue,
        processes=len(workers.living),
    )


async def _scope(opened: Opened, last_run: Run | None) -> tuple[Scope | None, bool]:
    """Build the scope of the last run again, as far as its seeds were kept."""
    if last_run is None:
        return None, False
    kept = last_run.settings
    seeds = _texts(kept.get("seeds"))
    rule = ScopeRule(str(kept.get("scope", ScopeRule.HOST)))
    scope = scope_of(
        [seed.url for seed in Seeds(tuple(seeds), None)],
        rule,
        include=_texts(kept.get("include")),
        exclude=_texts(kept.get("exclude")),
    )
    for root in await opened.urls.scope_roots(opened.name):
        scope = scope.extended(root)
    is_certain = len(seeds) < KEPT_SEEDS and kept.get("seeds_file") is None
    return scope, is_certain or rule is ScopeRule.ANY


def _texts(kept: object) -> list[str]:
    return [str(each) for each in kept] if isinstance(kept, list | tuple) else []


async def _is_full(opened: Opened, queue: Counts) -> bool:
    most = opened.crawl.limits.max_pages_per_domain
    if most is None or queue.completed + queue.assigned < most:
        return False
    return (await opened.urls.outlook(opened.name)).limited


async def _attempts(opened: Opened, task: Task) -> list[Artifact]:
    found = await opened.urls.artifacts_of(opened.name, task.url, limit=MOST_ATTEMPTS)
    # Artifacts outlive a crawl that was begun anew; those are of another life of this URL.
    return [artifact for artifact in found if artifact.leased_at >= task.discovered_at]


async def _robots(opened: Opened, place: Location, gate: Gate | None, last_run: Run | None) -> RobotsSaid | None:
    found = await opened.urls.robots_text(place.domain) if opened.crawl.limits.robots else None
    if found is None:
        return None
    version, text = found
    agent = USER_AGENT if last_run is None else str(last_run.settings.get("user_agent", USER_AGENT))
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


async def _similar(opened: Opened, place: Location) -> list[str]:
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
            if candidate != url and await opened.urls.find_task(opened.name, candidate) is not None:
                found.append(candidate)
    return found
