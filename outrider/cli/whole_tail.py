"""The whole tail of a crawl: all its completed pages so far, copied to a file or a pipe."""

import asyncio
from collections.abc import Callable
from typing import Final

from outrider.cli.opened import Opened
from outrider.crawler.page_lines import STANDARD_OUTPUT
from outrider.crawler.page_tail import PageTail
from outrider.model.errors import InvalidInput

TELL_EVERY_S: Final = 1.0


class WholeTail(PageTail):
    """Begins at the first page on standard output too, and does not wait for another writer of its file."""

    async def open(self) -> None:
        """Take the file, and find the place to go on from; raises `InvalidInput` where another has it."""
        await super().open()
        if self._lines is None:
            raise InvalidInput(f"another process is writing {self._path}: a crawl with --output does so by itself")
        if self._path == STANDARD_OUTPUT:
            self._position = 0

    @property
    def position(self) -> int:
        """The number of the last artifact that was looked at."""
        return self._position


async def copy_pages(opened: Opened, output: str, tell: Callable[[str], None]) -> None:
    """Copy what a file lacks, and tell from time to time how far that has come."""
    tail = WholeTail(opened.urls, opened.name, output)
    last_id = (await opened.urls.artifact_horizon()).last_id
    await tail.open()
    try:
        copying = asyncio.create_task(tail.copy())
        while not (await asyncio.wait((copying,), timeout=TELL_EVERY_S))[0]:
            tell(f"{tail.position / max(last_id, 1):.0%} of the crawl's log")
        await copying
        await tail.finish()
    finally:
        tail.close()
