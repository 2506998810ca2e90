"""A backfill that kills itself: `python -m tests.control.filling_process STORE FOLDER SOURCE DEATH`.

It dies by -9 when it is to tell of its progress for the DEATH-th time, and says each time how much it has read.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from outrider.control.backfill import filling
from outrider.control.backfill.columns import read_map
from outrider.control.backfill.scrapy import ScrapyJob
from outrider.control.backfill.sources import recognise
from outrider.control.backfill.urlfrontier import UrlFrontierDump
from outrider.store.opening import open_store

CRAWL = "taken-over"


async def fill(dsn: str, folder: Path, text: str, death: int) -> None:
    told = 0

    def tell(progress: filling.BackfillProgress) -> None:
        nonlocal told
        told += 1
        print(progress.rows_read, flush=True)
        if told == death:
            os.kill(os.getpid(), signal.SIGKILL)

    source = recognise(text, read_map([]))
    async with await open_store(dsn) as stores:
        if isinstance(source, (ScrapyJob, UrlFrontierDump)):
            await filling.fill_from_urls(stores, source, "b", CRAWL, tell)
        else:
            await filling.fill_from_rows(stores, source, "b", folder / "workbench.sqlite", tell)
            await source.close()


if __name__ == "__main__":
    filling.ROWS_AT_ONCE, filling.DOMAINS_AT_ONCE, filling.URLS_AT_ONCE = 40, 3, 20  # type: ignore[misc]
    asyncio.run(fill(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
