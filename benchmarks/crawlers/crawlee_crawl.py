"""Crawl a site with Crawlee: python crawlee_crawl.py URL CONCURRENCY FOLDER [sql]."""

import asyncio
import json
import logging
import sys
from pathlib import Path

from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient, SqlStorageClient


async def main(url: str, concurrency: int, folder: Path, *, durable: bool) -> None:
    logging.getLogger("crawlee").setLevel(logging.WARNING)
    database = f"sqlite+aiosqlite:///{folder}/crawlee.db"
    crawler = ParselCrawler(
        storage_client=SqlStorageClient(connection_string=database) if durable else MemoryStorageClient(),
        # A higher minimum, which keeps its pool from backing off when the machine is busy, made it no faster.
        concurrency_settings=ConcurrencySettings(max_concurrency=concurrency, desired_concurrency=concurrency),
        respect_robots_txt_file=True,
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        page = {
            "url": context.request.url,
            "status": context.http_response.status_code,
            "depth": context.request.crawl_depth,
            "title": context.selector.css("title::text").get(),
            "links": len(context.selector.css("a")),
        }
        await context.push_data(page)
        await context.enqueue_links()

    await crawler.run([url])
    dataset = await crawler.get_dataset()
    print(json.dumps({"pages": (await dataset.get_metadata()).item_count}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), durable="sql" in sys.argv[4:]))
