"""The completed pages of a crawl, in the order of their numbers and without gaps that fill up later.

Where several connections write, a page may show up behind one with a higher number. Whoever goes on after the last
number that they have seen would miss it, so that no page is given before all that come before it are there.
"""

from typing import Final

from outrider.crawler.page_lines import PageLine, utc_text
from outrider.model.artifact import Artifact, ArtifactHorizon
from outrider.model.lease import Outcome
from outrider.model.task import Kind
from outrider.store.protocols import UrlStore

AT_ONCE: Final = 1_000


class SettledPages:
    """Reads the pages of one crawl as far as they are settled.

    The log outlives a crawl that is deleted: what was reported before the crawl was created is not of this crawl, but
    of an older one with its name.
    """

    def __init__(self, urls: UrlStore, crawl: str) -> None:
        self._urls = urls
        self._crawl = crawl
        self._earlier: ArtifactHorizon | None = None
        self.created_at = 0
        """When the crawl was created; of what is older nothing is given."""
        self.settled = 0
        """Up to here no artifact can turn up any more that is not there yet."""

    async def settle(self) -> None:
        """Look how far the log is settled; where others write, it takes two looks."""
        horizon = await self._urls.artifact_horizon()
        if horizon.oldest_writer == horizon.next_writer:
            self.settled, self._earlier = horizon.last_id, None
        elif self._earlier is None:
            self._earlier = horizon
        elif horizon.oldest_writer >= self._earlier.next_writer:
            self.settled, self._earlier = self._earlier.last_id, horizon

    async def read(self, position: int) -> tuple[list[PageLine], int]:
        """Read some of the settled pages after a position; tell how far that went."""
        artifacts = await self._urls.artifacts(self._crawl, after_id=position, limit=AT_ONCE)
        settled = [artifact for artifact in artifacts if artifact.artifact_id <= self.settled]
        whole = len(settled) == AT_ONCE
        lines = [line_of(artifact) for artifact in settled if self._belongs(artifact)]
        return lines, settled[-1].artifact_id if whole else self.settled

    def _belongs(self, artifact: Artifact) -> bool:
        is_page = artifact.kind is Kind.PAGE and artifact.outcome == Outcome.DONE
        return is_page and artifact.reported_at >= self.created_at


def split_location(location: str | None) -> tuple[str | None, int | None]:
    """Take a place in the archive apart: the file and the offset of the response in it."""
    if location is None or location.count(":") != 2:
        return None, None
    file, offset, _ = location.split(":")
    return file.rpartition("/")[2], int(offset)


def line_of(artifact: Artifact) -> PageLine:
    """Write a page's artifact as a line."""
    fetch = artifact.fetch
    warc_file, warc_offset = split_location(fetch.content_location)
    return PageLine(
        id=artifact.artifact_id,
        url=artifact.url,
        status=fetch.http_status,
        depth=artifact.depth,
        title=fetch.title,
        links=fetch.links_found,
        images=fetch.images_found,
        digest=fetch.digest,
        fetched_at=None if fetch.fetched_at is None else utc_text(fetch.fetched_at),
        content_type=fetch.content_type,
        elapsed_ms=fetch.elapsed_ms,
        redirects=fetch.redirects,
        noindex=fetch.noindex,
        warc_file=warc_file,
        warc_offset=warc_offset,
    )
