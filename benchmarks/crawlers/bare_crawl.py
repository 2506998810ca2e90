"""The least that crawls a site: aiohttp, selectolax, a set and a queue in memory, nothing written, nobody asked.

python bare_crawl.py URL CONCURRENCY FOLDER
"""

import asyncio
import json
import sys
from urllib.parse import urldefrag, urljoin

import aiohttp
import uvloop
from selectolax.lexbor import LexborHTMLParser


async def crawl(url: str, concurrency: int) -> int:
    """Fetch every page of the site once; tell how many there were."""
    seen, done = {url}, 0
    queue: asyncio.Queue[str] = asyncio.Queue()
    queue.put_nowait(url)
    connector = aiohttp.TCPConnector(limit=concurrency)

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal done
        while True:
            page = await queue.get()
            async with session.get(page) as response:
                body = await response.read()
            for node in LexborHTMLParser(body).css("a[href]"):
                link = urldefrag(urljoin(page, node.attributes["href"] or "")).url
                if link.startswith(url) and link not in seen:
                    seen.add(link)
                    queue.put_nowait(link)
            done += 1
            queue.task_done()

    async with (
        aiohttp.ClientSession(connector=connector, raise_for_status=True) as session,
        asyncio.TaskGroup() as group,
    ):
        workers = [group.create_task(work(session)) for _ in range(concurrency)]
        await queue.join()
        for worker in workers:
            worker.cancel()
    return done


if __name__ == "__main__":
    print(json.dumps({"pages": uvloop.run(crawl(sys.argv[1], int(sys.argv[2])))}))
