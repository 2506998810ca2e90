"""The story of one URL at the desk: with the commands that do something about it, and as a record for programs."""

import shlex
from typing import Any

import msgspec

from outrider.cli.opened import crawl_again, same_crawl
from outrider.cli.urls import task_record
from outrider.control.evidence import Evidence
from outrider.control.story import Fact, headline, story_of
from outrider.crawler.plan import CrawlPlan
from outrider.policy.explaining import Cause


def facts_of(evidence: Evidence, plan: CrawlPlan) -> list[Fact]:
    """Tell the whole story, the answer first and what to do last."""
    facts = story_of(evidence)
    if steps := advice(evidence, plan):
        facts.append(("what to do", "\n".join(steps)))
    return facts


def advice(evidence: Evidence, plan: CrawlPlan) -> list[str]:
    """Say what can be done about it, where something can."""
    again = crawl_again(plan, evidence.last_run)
    run_again = [] if evidence.processes else [again]
    match evidence.explanation.cause:
        case Cause.OUT_OF_SCOPE:
            return ["name it as a seed, or widen --scope, --include or --exclude, and crawl again"]
        case Cause.TRAP:
            return ["name it as a seed to fetch it all the same"]
        case Cause.UNKNOWN:
            steps = ["name it as a seed to fetch it"]
            if evidence.pages.pending or evidence.pages.assigned:
                steps.insert(0, "it may still be found: the crawl is not finished")
            return steps
        case Cause.TOO_DEEP:
            depth = 0 if evidence.task is None else evidence.task.depth
            return [f"crawl again with --max-depth {depth} or more"]
        case Cause.PAGE_LIMIT:
            return ["crawl again with a higher --max-pages"]
        case Cause.DOMAIN_LIMIT:
            return ["crawl again, which gives its domain a new budget, or with a higher --max-pages-per-domain"]
        case Cause.CANCELLED:
            return ["`outrider crawl --fresh` begins it anew"]
        case Cause.ROBOTS_UNREACHABLE:
            return [f"{same_crawl('retry-failed', plan)}  # asks for robots.txt again", *run_again]
        case Cause.FAILED:
            return [f"{same_crawl('retry-failed', plan)} --filter {shlex.quote(evidence.url)}", *run_again]
        case Cause.ROBOTS:
            if evidence.robots is not None and evidence.robots.allowed:
                return [
                    "robots.txt allows it by now:",
                    f"{same_crawl('retry-failed', plan)} --filter {shlex.quote(evidence.url)}",
                    *run_again,
                ]
            return ["nothing: the site does not want it fetched"]
        case Cause.LEASED:
            return run_again if evidence.holder_was_killed else []
        case Cause.DONE | Cause.PAUSED | Cause.REFUSED:
            return []
        case _:
            return [] if evidence.processes else ["no crawl process is at work:", again]


def as_record(evidence: Evidence, plan: CrawlPlan) -> dict[str, Any]:
    """Give the story for programs; the keys and the words of `verdict` stay."""
    why = evidence.explanation
    return {
        "url": evidence.url,
        "crawl": evidence.crawl.name,
        "verdict": why.cause.value,
        "detail": why.detail,
        "until": why.until,
        "answer": headline(evidence),
        "task": None if evidence.task is None else task_record(evidence.task),
        "attempts": [msgspec.to_builtins(artifact) for artifact in evidence.attempts],
        "holder": msgspec.to_builtins(evidence.holder),
        "holder_was_killed": evidence.holder_was_killed,
        "robots": msgspec.to_builtins(evidence.robots),
        "gate": msgspec.to_builtins(evidence.gate),
        "scope_is_certain": evidence.scope_is_certain,
        "similar": evidence.similar,
        "processes": evidence.processes,
        "what_to_do": advice(evidence, plan),
    }
