"""The endpoint that tells why a URL is where it is: the same story that `outrider explain` tells."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from outrider.control.evidence import RobotsSaid, gather
from outrider.control.story import headline, story_of
from outrider.model.gate import Gate
from outrider.model.lease import Holder
from outrider.model.task import Counts, Crawl
from outrider.policy.explaining import Cause
from outrider.service.http import translation
from outrider.service.http.endpoint import Call, Endpoint
from outrider.service.http.wire import ArtifactItem, TaskItem
from outrider.service.http.working import CRAWL


class ExplainQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which URL to explain."""

    url: str
    """In any spelling, also without its scheme."""
    key: str | None = None
    """Where a client named it; by default the crawl's rule does."""
    agent: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """As whom robots.txt is asked; by default as the crawl's last run asked."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is to be said of a URL."""

    about: str
    text: str
    """May have several lines."""


class UrlStory(msgspec.Struct, frozen=True, kw_only=True):
    """Why a URL was or was not fetched, and everything that is known of it."""

    url: str
    crawl: Crawl
    verdict: Cause
    """The cause by a word that stays the same."""
    detail: str | None
    until: int | None
    """Milliseconds since 1970, where a clock is what it waits for."""
    answer: str
    """The verdict in a sentence."""
    story: list[Said]
    """All of it in sentences, the answer among the first."""
    task: TaskItem | None
    """Null where the crawl has not met it."""
    holder: Holder | None
    gate: Gate | None
    robots: RobotsSaid | None
    scope_is_certain: bool
    """All seeds are known, and so is what they let in."""
    similar: list[str]
    """Other spellings of an unknown URL that the crawl does know."""
    queue: Counts
    artifacts: list[ArtifactItem]
    """What was reported of it, the newest first."""


async def explain_url(call: Call) -> UrlStory:
    """Tell why a URL was or was not fetched, and everything that is known of it."""
    query, stores = call.query(ExplainQuery), call.backend.stores
    crawl = await stores.urls.get_crawl(call.crawl)
    evidence = await gather(stores, crawl, query.url, key=query.key, agent=query.agent)
    why = evidence.explanation
    return UrlStory(
        url=evidence.url,
        crawl=crawl,
        verdict=why.cause,
        detail=why.detail,
        until=why.until,
        answer=headline(evidence),
        story=[Said(about=about, text=text) for about, text in story_of(evidence)],
        task=None if evidence.task is None else translation.task_item(evidence.task),
        holder=evidence.holder,
        gate=evidence.gate,
        robots=evidence.robots,
        scope_is_certain=evidence.scope_is_certain,
        similar=evidence.similar,
        queue=evidence.queue,
        artifacts=[translation.artifact_item(artifact) for artifact in evidence.artifacts],
    )


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path=f"{CRAWL}/urls/explain",
        summary="Why a URL was or was not fetched, and everything that is known of it.",
        handler=explain_url,
        query=ExplainQuery,
        gives=UrlStory,
    ),
)
