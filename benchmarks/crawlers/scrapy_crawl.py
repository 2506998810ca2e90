"""Crawl a site with Scrapy: python scrapy_crawl.py URL CONCURRENCY FOLDER [jobdir]."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import TextResponse


class Spider(scrapy.Spider):
    name = "benchmark"
    url: str

    async def start(self) -> AsyncIterator[scrapy.Request]:
        # Unlike those of `start_urls`, a request that is not fetched again when a page links to it.
        yield scrapy.Request(self.url)

    def parse(self, response: TextResponse) -> Iterator[Any]:
        links = response.css("a::attr(href)").getall()
        yield {
            "url": response.url,
            "status": response.status,
            "depth": response.meta.get("depth", 0),
            "title": response.css("title::text").get(),
            "links": len(links),
        }
        yield from response.follow_all(links)


def main(url: str, concurrency: int, folder: Path, *, durable: bool) -> None:
    output = folder / "pages.jsonl"
    settings: dict[str, Any] = {
        "CONCURRENT_REQUESTS": concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": True,
        "AUTOTHROTTLE_ENABLED": False,
        "COOKIES_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "WARNING",
        "FEEDS": {str(output): {"format": "jsonlines"}},
    }
    if durable:
        settings["JOBDIR"] = str(folder / "job")
    process = CrawlerProcess(settings)
    process.crawl(Spider, url=url)
    process.start()
    with output.open("rb") as lines:
        print(json.dumps({"pages": sum(1 for _ in lines)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), durable="jobdir" in sys.argv[4:])
