"""The endpoints that read URLs and fetches: listings and the streaming export."""

from collections.abc import AsyncIterator
from typing import Annotated, Final, Protocol

import msgspec
import re2  # type: ignore[import-untyped]
from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from outrider.model.errors import InvalidInput
from outrider.model.machines import TaskState
from outrider.model.task import Task, TaskFilter, TaskPage
from outrider.service.http import translation
from outrider.service.http.endpoint import JSON_LINES, Call, Endpoint
from outrider.service.http.wire import KINDS, ArtifactPage, KindName, StateName, TaskList
from outrider.service.http.working import CRAWL
from outrider.store.protocols import UrlStore

EXPORTED_AT_ONCE: Final = 1_000
MOST_LOOKED_AT: Final = 10_000
"""Rows that one request with a pattern looks at; the cursor goes on from there."""
MOST_PATTERN_BYTES: Final = 1 << 20
"""What RE2 may use for a pattern, which bounds the time for each URL as well."""


class UrlQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which URLs to list."""

    state: StateName | None = None
    key: str | None = None
    kind: KindName | None = None
    text: str | None = None
    """Only URLs that contain this."""
    pattern: Annotated[str, Meta(max_length=1_000)] | None = None
    """Only URLs in which this regular expression (RE2) is found; a page may then be short and still have a cursor."""
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100
    stream: bool = False
    """All of them as JSON lines, whatever the limit; so does `accept: application/x-ndjson`."""


class ArtifactQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which fetches to list."""

    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """The id of the last one that is known already."""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100
    stream: bool = False
    """All of them as JSON lines, whatever the limit; so does `accept: application/x-ndjson`."""


class Pattern(Protocol):
    """A compiled expression."""

    def search(self, text: str) -> object:
        """Look for it anywhere in a text."""
        ...


async def list_urls(call: Call) -> TaskList | Response:
    """List URLs, or stream all of them."""
    query = call.query(UrlQuery)
    wanted = call.request.headers.get("accept", "")
    which = TaskFilter(
        state=None if query.state is None else TaskState(query.state.upper()),
        key=query.key,
        kind=None if query.kind is None else KINDS[query.kind],
        url_contains=query.text,
    )
    pattern = None if query.pattern is None else _compiled(query.pattern)
    urls = call.backend.stores.urls
    if query.stream or JSON_LINES in wanted:
        # The first page is read before the answer begins, which can then still be that there is no such crawl.
        page = await urls.list_tasks(call.crawl, which, cursor=query.cursor, limit=EXPORTED_AT_ONCE)
        return StreamingResponse(_lines(urls, call.crawl, which, pattern, page), media_type=JSON_LINES)
    return await _listed(urls, call.crawl, which, pattern, query)


async def _listed(urls: UrlStore, crawl: str, which: TaskFilter, pattern: Pattern | None, query: UrlQuery) -> TaskList:
    page = await urls.list_tasks(crawl, which, cursor=query.cursor, limit=query.limit)
    found, cursor, looked_at = _matching(page.tasks, pattern), page.next_cursor, len(page.tasks)
    while len(found) < query.limit and cursor is not None and looked_at < MOST_LOOKED_AT:
        page = await urls.list_tasks(crawl, which, cursor=cursor, limit=query.limit - len(found))
        looked_at += len(page.tasks)
        found += _matching(page.tasks, pattern)
        cursor = page.next_cursor
    return TaskList(urls=[translation.task_item(task) for task in found], next_cursor=cursor)


async def _lines(
    urls: UrlStore, crawl: str, which: TaskFilter, pattern: Pattern | None, page: TaskPage
) -> AsyncIterator[bytes]:
    """Write all URLs as JSON lines, read in short ranges: no long snapshot, and no more memory for more of them."""
    encoder = msgspec.json.Encoder()
    while True:
        found = _matching(page.tasks, pattern)
        if found:
            yield encoder.encode_lines([translation.task_item(task) for task in found])
        if page.next_cursor is None:
            return
        page = await urls.list_tasks(crawl, which, cursor=page.next_cursor, limit=EXPORTED_AT_ONCE)


def _matching(tasks: list[Task], pattern: Pattern | None) -> list[Task]:
    return tasks if pattern is None else [task for task in tasks if pattern.search(task.url)]


def _compiled(pattern: str) -> Pattern:
    """Compile a client's pattern with RE2, which takes linear time whatever it is given."""
    options = re2.Options()
    options.max_mem = MOST_PATTERN_BYTES
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise InvalidInput(f"the pattern is not a regular expression that RE2 reads: {_told(error)}") from None
    return compiled


def _told(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


async def list_artifacts(call: Call) -> ArtifactPage | Response:
    """List what was fetched for a crawl, by all workers."""
    query, urls = call.query(ArtifactQuery), call.backend.stores.urls
    await urls.get_crawl(call.crawl)
    if query.stream or JSON_LINES in call.request.headers.get("accept", ""):
        return StreamingResponse(_artifact_lines(urls, call.crawl, query.after), media_type=JSON_LINES)
    found = await urls.artifacts(call.crawl, after_id=query.after, limit=query.limit)
    return ArtifactPage(
        artifacts=[translation.artifact_item(artifact) for artifact in found],
        next_after=found[-1].artifact_id if len(found) == query.limit else None,
    )


async def _artifact_lines(urls: UrlStore, crawl: str, after: int) -> AsyncIterator[bytes]:
    encoder = msgspec.json.Encoder()
    while found := await urls.artifacts(crawl, after_id=after, limit=EXPORTED_AT_ONCE):
        yield encoder.encode_lines([translation.artifact_item(artifact) for artifact in found])
        after = found[-1].artifact_id


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path=f"{CRAWL}/urls",
        summary="URLs in an order that stays, by cursor; or all of them as JSON lines.",
        handler=list_urls,
        query=UrlQuery,
        gives=TaskList,
    ),
    Endpoint(
        method="GET",
        path=f"{CRAWL}/artifacts",
        summary="What was fetched for a crawl, by all workers, in the order of the reports; or all as JSON lines.",
        handler=list_artifacts,
        query=ArtifactQuery,
        gives=ArtifactPage,
    ),
)
