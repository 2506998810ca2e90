"""The tail of a crawl: its completed pages, copied from the store to a file of JSON lines as they come.

The store is the truth and the file follows it, so that a kill between the two loses no line and doubles none.
Of several processes on one crawl, whichever has the file copies the pages of all.
"""

import asyncio
import logging
from typing import Final

from outrider.crawler.page_lines import STANDARD_OUTPUT, PageLines
from outrider.crawler.settled_pages import SettledPages
from outrider.model.errors import StoreNotOurs, StoreUnavailable
from outrider.store.protocols import UrlStore

logger = logging.getLogger(__name__)

EVERY_S: Final = 0.5
SETTLING_S: Final = 0.02


class PageTail:
    """Follows one crawl into one file."""

    def __init__(self, urls: UrlStore, crawl: str, path: str) -> None:
        self._urls = urls
        self._crawl = crawl
        self._path = path
        self._lines: PageLines | None = None
        self._position = 0
        self._pages = SettledPages(urls, crawl)

    async def open(self) -> None:
        """Take the file where nobody has it, and find the place to go on from."""
        self._pages.created_at = (await self._urls.get_crawl(self._crawl)).created_at
        lines = await asyncio.to_thread(PageLines.try_open, self._path)
        if lines is not None and lines.last_id and await self._is_older_than_the_crawl(lines):
            await asyncio.to_thread(lines.set_aside)
            logger.info("%s has the pages from before the crawl was begun anew: set aside", self._path)
            lines = await asyncio.to_thread(PageLines.try_open, self._path)
        if lines is None:
            return
        if self._path == STANDARD_OUTPUT:
            self._position = (await self._urls.artifact_horizon()).last_id
        else:
            self._position = lines.last_id
        self._lines = lines

    async def _is_older_than_the_crawl(self, lines: PageLines) -> bool:
        """Tell whether the file is that of a crawl of the same name that was deleted since."""
        try:
            found = await self._urls.artifacts(self._crawl, after_id=lines.last_id - 1, limit=1)
            if found and (found[0].artifact_id, found[0].url) == (lines.last_id, lines.last_url):
                return found[0].reported_at < self._pages.created_at
            raise StoreNotOurs(
                f"{self._path} has the pages of another crawl: its last line is not in this store; "
                "name another file, or move that one away"
            )
        except BaseException:
            lines.close()
            raise

    async def follow(self) -> None:
        """Copy what comes until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.copy()
            except StoreUnavailable as error:  # what it has not copied now it copies later
                logger.warning("the store is out of reach: %s", error)

    async def copy(self) -> None:
        """Copy what is settled."""
        if self._lines is None:
            await self.open()
            if self._lines is None:
                return
        await self._pages.settle()
        while self._position < self._pages.settled:
            pages, position = await self._pages.read(self._position)
            self._lines.append(pages)
            self._position = position

    async def finish(self, patience_s: float = 10.0) -> None:
        """Copy everything that is there now, and let go of the file."""
        last_id = (await self._urls.artifact_horizon()).last_id
        try:
            async with asyncio.timeout(patience_s):
                while await self._copied_up_to(last_id) and self._path != STANDARD_OUTPUT:
                    # Another process that found the file taken a moment ago has left its last pages to us.
                    done, last_id = last_id, (await self._urls.artifact_horizon()).last_id
                    if last_id == done:
                        break
        except TimeoutError:
            logger.warning("%s lacks the last lines: another writer holds them up; run the command again", self._path)
        finally:
            self.close()

    async def _copied_up_to(self, last_id: int) -> bool:
        """Copy up to here and let go of the file; False where another process has it."""
        await self.copy()
        while self._lines is not None and self._pages.settled < last_id:
            await asyncio.sleep(SETTLING_S)
            await self.copy()
        was_ours = self._lines is not None
        self.close()
        return was_ours

    def close(self) -> None:
        """Let go of the file."""
        if self._lines is not None:
            self._lines.close()
            self._lines = None
