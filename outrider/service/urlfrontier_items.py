"""The messages of URLFrontier, read and written."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from outrider.model.batch import KnownUrl, ListedUrl, Served, UrlFilter, priority_of
from outrider.model.task import DEFAULT_CRAWL, Discovered
from outrider.service import urlfrontier_pb2 as messages

FAR: Final = 1 << 40
"""Seconds, about 35,000 years: what lies beyond is no date."""

OK, SKIPPED, FAIL = messages.AckMessage.OK, messages.AckMessage.SKIPPED, messages.AckMessage.FAIL


def milliseconds_now() -> int:
    """Tell the time of this machine; the store has its own."""
    return time.time_ns() // 1_000_000


class Step(msgspec.Struct, kw_only=True):
    """What may be stored together: no URL is both discovered and known here. Each item with its position."""

    discovered: list[tuple[int, Discovered]] = []
    known: list[tuple[int, KnownUrl]] = []


class Puts:
    """Items sorted by crawl, and what became of each."""

    def __init__(self, number: int) -> None:
        self.statuses = [SKIPPED] * number
        self.steps: dict[str, list[Step]] = {}
        self._said: dict[tuple[str, str], bool] = {}
        self._priority = priority_of(milliseconds_now())

    def discovered(self, position: int, info: messages.URLInfo) -> None:
        """Take a discovery."""
        item = Discovered(url=info.url, key=info.key or None, metadata=_metadata_of(info), priority=self._priority)
        self._step(info, is_known=False).discovered.append((position, item))

    def known(self, position: int, info: messages.URLInfo, date: int) -> None:
        """Take what is known of a URL; the date 0 says that it is done."""
        due_at = min(date, FAR) * 1000 if date else None
        item = KnownUrl(url=info.url, key=info.key or None, metadata=_metadata_of(info), due_at=due_at)
        self._step(info, is_known=True).known.append((position, item))

    def _step(self, info: messages.URLInfo, *, is_known: bool) -> Step:
        """Find the step for an item: a new one where its URL was put in the other way before, since order counts."""
        crawl, url = info.crawlID or DEFAULT_CRAWL, info.url
        steps = self.steps.setdefault(crawl, [])
        if not steps or self._said.get((crawl, url), is_known) is not is_known:
            steps.append(Step())
        self._said[crawl, url] = is_known
        return steps[-1]

    def statuses_of(self, positions: Sequence[int], status: "messages.AckMessage.Status") -> None:
        """Say the same of several items."""
        for position in positions:
            self.statuses[position] = status


def url_filter(request: messages.ListUrlParams | messages.CountUrlParams) -> UrlFilter:
    """Read which URLs a list or a count is about."""
    return UrlFilter(key=request.key or None, contains=request.filter or None, ignore_case=request.ignoreCase)


def url_of(item: messages.URLItem) -> str:
    """Give the URL of an item, of either kind."""
    return item.known.info.url if item.HasField("known") else item.discovered.info.url


def _metadata_of(info: messages.URLInfo) -> dict[str, list[str]] | None:
    return {name: list(values.values) for name, values in info.metadata.items()} or None


def _metadata(kept: Mapping[str, Any] | None) -> dict[str, messages.StringList]:
    """Give metadata as lists of texts, also those that came another way than by this service."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in (kept or {}).items()}
    return {
        name: messages.StringList(values=[value if isinstance(value, str) else _json(value) for value in values])
        for name, values in lists.items()
    }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def url_info(served: Served) -> messages.URLInfo:
    """Write a URL that is handed out."""
    if served.metadata is None:
        return messages.URLInfo(url=served.url, key=served.key, crawlID=served.crawl)
    return messages.URLInfo(url=served.url, key=served.key, crawlID=served.crawl, metadata=_metadata(served.metadata))


def url_item(listed: ListedUrl, crawl: str) -> messages.URLItem:
    """Write what is known of a URL; the date 0 says that it is done."""
    info = messages.URLInfo(url=listed.url, key=listed.key, crawlID=crawl, metadata=_metadata(listed.metadata))
    date = 0 if listed.due_at is None else max(1, listed.due_at // 1000)
    return messages.URLItem(
        known=messages.KnownURLItem(info=info, refetchable_from_date=date), creation_date=listed.discovered_at // 1000
    )
