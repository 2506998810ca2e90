"""The story of one URL: what the evidence says, in sentences for people."""

from outrider.control.evidence import Evidence
from outrider.control.wording import byte_count, moment, moment_and_distance, span
from outrider.crawler.settled_pages import split_location
from outrider.model.artifact import Artifact
from outrider.model.lease import Outcome
from outrider.model.task import CrawlState, DiscoveryType, Task
from outrider.policy.explaining import Cause
from outrider.policy.politeness import effective_delay
from outrider.policy.scope import Scope, ScopeRule

Fact = tuple[str, str]
"""A name and what is to be said of it; several lines make several rows."""

_FOUND = {
    DiscoveryType.SEED: "a seed",
    DiscoveryType.LINK: "found as a link of a page",
    DiscoveryType.SITEMAP: "found in a sitemap",
    DiscoveryType.FEED: "found in a feed",
    DiscoveryType.REDIRECT: "found as the target of a redirect",
    DiscoveryType.REFRESH: "found by a refresh",
    DiscoveryType.IMPORT: "imported",
    DiscoveryType.ROBOTS: "asked for before the pages of its site",
}
_TRAPS = {
    "trap_repeated_path": "its path repeats itself",
    "trap_deep_path": "its path has too many folders",
    "trap_calendar": "it is a date far ahead or long ago, as of a calendar without end",
    "trap_many_parameters": "its query has too many parameters",
    "trap_session_id": "it carries the number of a session",
}
_WAITING = frozenset(
    {
        Cause.BLOCKED,
        Cause.BACK_OFF,
        Cause.RETRY,
        Cause.NOT_DUE,
        Cause.DELAY,
        Cause.ROBOTS_FIRST,
        Cause.ROBOTS_UNREACHABLE,
        Cause.QUEUED,
    }
)
_SHOWN_SEEDS = 3


def headline(evidence: Evidence) -> str:
    """Give the answer in one sentence."""
    why, task = evidence.explanation, evidence.task
    if why.cause in _WAITING:
        return _waiting(evidence)
    limits = evidence.crawl.limits
    match why.cause:
        case Cause.OUT_OF_SCOPE:
            sure = "" if evidence.scope_is_certain else " (as far as the kept seeds tell: not all were kept)"
            return f"not fetched: {why.detail}{sure}"
        case Cause.TRAP:
            return f"not followed: it looks like one of endlessly many URLs: {_TRAPS.get(why.detail or '', why.detail)}"
        case Cause.UNKNOWN:
            return "not fetched: it is unknown to the crawl, nothing that was read so far leads to it"
        case Cause.TOO_DEEP:
            return f"not fetched: found at depth {task.depth if task else 0:,}, and the limit is {limits.max_depth:,}"
        case Cause.LEFT_OVER:
            return "not fetched yet: it was past a limit when it was found, and the next run takes it"
        case Cause.CANCELLED:
            return "not fetched: the crawl is cancelled"
        case Cause.PAUSED:
            return "not fetched yet: the crawl is paused"
        case Cause.PAGE_LIMIT:
            return f"not fetched: the crawl has reached its limit of {limits.max_pages:,} pages"
        case Cause.DOMAIN_LIMIT:
            return f"not fetched: its domain has reached the limit of {limits.max_pages_per_domain:,} pages in a run"
        case Cause.LEASED if evidence.holder_was_killed:
            return "leased to a process that was killed: the next crawl takes it back at once"
        case Cause.LEASED:
            return "being fetched at this moment"
        case Cause.DONE:
            return f"fetched: the site answered {task.http_status if task else 0}"
        case Cause.ROBOTS:
            return "not fetched: forbidden by the site's robots.txt"
        case _:
            times = task.attempt_count if task else 0
            return f"failed after {times:,} attempt{'' if times == 1 else 's'}: {why.detail or 'no reason given'}"


def _waiting(evidence: Evidence) -> str:
    """Tell what a URL waits for, and until when."""
    why = evidence.explanation
    moment_of_end = "" if why.until is None else moment_and_distance(why.until, evidence.now)
    after = f" after {why.detail}" if why.detail else ""
    match why.cause:
        case Cause.BLOCKED:
            return f"waiting: its domain is blocked by an operator until {moment_of_end}"
        case Cause.BACK_OFF:
            return f"waiting: its domain is left alone{after} until {moment_of_end}"
        case Cause.RETRY:
            return f"waiting: to be tried again{after}, not before {moment_of_end}"
        case Cause.NOT_DUE:
            return f"waiting: not due until {moment_of_end}"
        case Cause.DELAY:
            return f"waiting: for the delay between two requests to its domain, until {moment_of_end}"
        case Cause.ROBOTS_UNREACHABLE:
            because = evidence.robots.unreachable_because if evidence.robots else None
            reason = f" ({because})" if because else ""
            return f"waiting: the robots.txt of its site could not be fetched{reason}; next try {moment_of_end}"
        case Cause.ROBOTS_FIRST:
            return "waiting: the robots.txt of its site has to be read first"
        case _:
            before = max(evidence.queue.pending - 1, 0)
            return f"waiting for its turn: {before:,} other URLs of its queue are pending"


def story_of(evidence: Evidence) -> list[Fact]:
    """Tell the whole story, the answer first."""
    facts = [("url", evidence.url), ("answer", headline(evidence))]
    if evidence.holder is not None:
        facts.append(("leased", _leased(evidence)))
    if evidence.task is not None:
        facts.append(("found", _found(evidence.task, evidence.now)))
    facts += _result(evidence)
    if len(evidence.attempts) > (evidence.explanation.cause is Cause.DONE):
        facts.append(("attempts", "\n".join(map(_attempt, evidence.attempts))))
    if (robots := _robots(evidence)) is not None:
        facts.append(("robots.txt", robots))
    if evidence.explanation.cause in _WAITING and (gate := _gate(evidence)):
        facts.append(("domain", gate))
    if evidence.task is None and evidence.scope is not None:
        facts.append(("scope", _scope(evidence.scope, is_certain=evidence.scope_is_certain)))
    if evidence.similar:
        facts.append(("known instead", "\n".join(evidence.similar)))
    facts.append(("crawl", _crawl(evidence)))
    return facts


def _found(task: Task, now: int) -> str:
    kind = "" if task.kind.name == "PAGE" else f", a {task.kind.name.lower()} file"
    where = f"at depth {task.depth:,}, priority {task.priority:,}"
    return f"{_FOUND[task.discovery_type]}{kind}, {where}, {moment_and_distance(task.discovered_at, now)}"


def _leased(evidence: Evidence) -> str:
    holder = evidence.holder
    assert holder is not None
    return (
        f"by worker {holder.worker} since {moment_and_distance(holder.granted_at, evidence.now)}, "
        f"until {moment_and_distance(holder.expires_at, evidence.now)} unless renewed"
    )


def _result(evidence: Evidence) -> list[Fact]:
    """Tell what the newest answer was."""
    done = next((each for each in evidence.attempts if each.outcome == Outcome.DONE), None)
    if done is None or evidence.explanation.cause is not Cause.DONE:
        return []
    fetch, facts = done.fetch, []
    when = fetch.fetched_at or done.reported_at
    took = "" if fetch.elapsed_ms is None else f", in {fetch.elapsed_ms / 1000:.2f} s"
    facts.append(("fetched", f"{moment_and_distance(when, evidence.now)}{took}, attempt {done.attempt:,}"))
    if done.reason:
        facts.append(("then", done.reason))
    if fetch.title:
        facts.append(("title", fetch.title))
    what = [fetch.content_type or "no content type"]
    if fetch.body_bytes is not None:
        what.append(f"{byte_count(fetch.body_bytes)} as sent")
    facts.append(("content", ", ".join([*what, f"{fetch.links_found:,} links, {fetch.images_found:,} images"])))
    if fetch.redirects:
        facts.append(("redirected by", "\n".join(fetch.redirects)))
    if fetch.noindex:
        facts.append(("noindex", "the page asks not to be shown in search results"))
    if fetch.digest:
        facts.append(("digest", fetch.digest))
    file, offset = split_location(fetch.content_location)
    if file is not None:
        facts.append(("WARC", f"{file} at byte {offset:,}"))
    return facts


def _attempt(artifact: Artifact) -> str:
    status = f" {artifact.fetch.http_status}" if artifact.fetch.http_status else ""
    reason = f": {artifact.reason}" if artifact.reason else ""
    return f"{artifact.attempt:,}. {moment(artifact.reported_at)}, {artifact.outcome}{status}{reason}"


def _robots(evidence: Evidence) -> str | None:
    if not evidence.crawl.limits.robots:
        return "not asked: the crawl runs with --no-robots"
    said = evidence.robots
    if said is None:
        return None if evidence.gate is None else "not read yet"
    if said.unreachable_because is not None:
        text = f"unreachable: {said.unreachable_because}"
    elif said.line is None:
        text = "allows it: no rule speaks of it"
    else:
        text = f"{'allows' if said.allowed else 'forbids'} it, line {said.line:,}: {said.rule}"
    if said.expires_at is None:
        return text
    tense = "is" if said.expires_at > evidence.now else "was"
    return (
        f"{text}\nversion {said.version[:12]}, {tense} good until {moment_and_distance(said.expires_at, evidence.now)}"
    )


def _gate(evidence: Evidence) -> str | None:
    gate = evidence.gate
    if gate is None:
        return None
    delay = effective_delay(gate, evidence.crawl.limits, None)
    clocks = {
        "blocked": gate.blocked_until,
        "backing off": gate.backoff_until,
        "no other request": gate.next_fetch_at,
    }
    lines = [f"{gate.domain}, delay {delay / 1000:g} s"]
    lines += [
        f"{what} until {moment_and_distance(at, evidence.now)}" for what, at in clocks.items() if at > evidence.now
    ]
    return "\n".join(lines)


def _scope(scope: Scope, *, is_certain: bool) -> str:
    if scope.rule is ScopeRule.ANY:
        text = "any: every site"
    else:
        places = {ScopeRule.HOST: scope.hosts, ScopeRule.DOMAIN: scope.domains, ScopeRule.PREFIX: scope.prefixes}
        names = sorted(places[scope.rule])
        more = f" and {len(names) - _SHOWN_SEEDS:,} more" if len(names) > _SHOWN_SEEDS else ""
        text = f"{scope.rule}: {', '.join(names[:_SHOWN_SEEDS]) or 'no seed is known'}{more}"
    if not is_certain:
        text += "; not all seeds were kept"
    filters = [f"--include {each}" for each in scope.include] + [f"--exclude {each}" for each in scope.exclude]
    return "\n".join([text, *filters])


def _crawl(evidence: Evidence) -> str:
    pages = evidence.pages
    words = [] if evidence.processes is None else ["at work" if evidence.processes else "no process at work"]
    if evidence.crawl.state is not CrawlState.RUNNING or evidence.processes != 0:
        words.insert(0, evidence.crawl.state)  # that the store would let it run on says nothing to people
    began = span((evidence.now - evidence.crawl.created_at) / 1000)
    return (
        f"{evidence.crawl.name}, {', '.join(words)}, begun {began} ago: "
        f"{pages.completed:,} done, {pages.pending:,} pending, {pages.failed:,} failed"
    )
