"""Filling: from a source to the store, batch by batch, with the progress told."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import xxhash

from outrider.control.backfill.columns import Part, RowRefused, read_image, read_page
from outrider.control.backfill.rows import RowBatch, RowSource
from outrider.control.backfill.urls import UrlRecord, UrlSource
from outrider.control.backfill.workbench import Refusals, Sums, Workbench
from outrider.model.backfill import BackfillFigures, BackfillKind, BackfillStep, DomainPast
from outrider.model.errors import UnknownCrawl
from outrider.model.task import Added, Restored
from outrider.model.url import UrlRefused, locate
from outrider.store.opening import Stores

ROWS_AT_ONCE: Final = 20_000
DOMAINS_AT_ONCE: Final = 1_000
URLS_AT_ONCE: Final = 2_000


class BackfillProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a backfill has come; what an earlier try has read is counted."""

    rows_read: int = 0
    rows_refused: int = 0
    domains: int = 0
    """Domains that were offered to the store."""


class BackfillOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill did, or would do."""

    source: str
    kind: BackfillKind
    dry_run: bool
    rows_read: int
    rows_refused: int
    refusals: list[Refusals]
    """Why rows were refused; of URLs, only those that this process has read."""
    source_domains: int
    domains: BackfillStep
    urls: dict[Added, int] | None
    """Of a source of URLs, what became of them here."""
    remarks: list[str]
    figures: BackfillFigures | None
    """None of a dry run."""


Tell = Callable[[BackfillProgress], None]


def backfill_id(source: RowSource | UrlSource, *details: str) -> str:
    """Name a backfill in the ledger: the same source, read the same way, has the same name."""
    return xxhash.xxh3_128_hexdigest("\0".join((source.name, *details)).encode("utf-8", "surrogateescape"))


async def fill_from_rows(
    stores: Stores, source: RowSource, name: str, workbench_path: Path, tell: Tell, *, dry_run: bool = False
) -> BackfillOutcome:
    """Read all rows onto the workbench, then add what is missing of each domain."""
    control, parts = stores.control, await source.parts()
    entry = await control.get_backfill(name)
    # A workbench that was left behind at the very end would hide what the source has got since.
    workbench = Workbench(workbench_path, source.identity, anew=entry is not None and entry.finished_at is not None)
    try:
        if not dry_run:
            await control.begin_backfill(name, source.name, BackfillKind.CRAWL_LOG)
        await _read_parts(source, parts, workbench, tell)
        readings = [workbench.reading(part) for part in parts]
        read, refused = sum(each.rows_read for each in readings), sum(each.rows_refused for each in readings)
        total, domains = BackfillStep(), 0
        for pasts in workbench.pasts(DOMAINS_AT_ONCE):
            step = await (control.preview_backfill if dry_run else control.backfill_domains)(name, pasts)
            total, domains = _sum(total, step), domains + len(pasts)
            tell(BackfillProgress(rows_read=read, rows_refused=refused, domains=domains))
        refusals = workbench.refusals()
        if not dry_run:
            await control.note_backfill(name, position=None, rows_read=read, rows_refused=refused, finished=True)
            workbench.remove()
    finally:
        workbench.close()
    return BackfillOutcome(
        source=source.name,
        kind=BackfillKind.CRAWL_LOG,
        dry_run=dry_run,
        rows_read=read,
        rows_refused=refused,
        refusals=refusals,
        source_domains=domains,
        domains=total,
        urls=None,
        remarks=_remarks(parts),
        figures=None if dry_run else await control.backfill_figures(),
    )


def _remarks(parts: Sequence[Part]) -> list[str]:
    return [] if Part.IMAGES in parts else ["there is no provenance, so that no images count as stored"]


async def _read_parts(source: RowSource, parts: Sequence[Part], workbench: Workbench, tell: Tell) -> None:
    before_read, before_refused = 0, 0
    for part in parts:
        reading = workbench.reading(part)
        if not reading.finished:
            async for batch in source.batches(part, reading.position, ROWS_AT_ONCE):
                reading = workbench.keep(part, sums_of(part, batch), batch.position, finished=False)
                tell(
                    BackfillProgress(
                        rows_read=before_read + reading.rows_read, rows_refused=before_refused + reading.rows_refused
                    )
                )
            reading = workbench.keep(part, Sums(), reading.position, finished=True)
        before_read, before_refused = before_read + reading.rows_read, before_refused + reading.rows_refused


def sums_of(part: Part, batch: RowBatch) -> Sums:
    """Sum up a batch; a row that cannot be read is refused by itself."""
    sums = Sums()
    for place, values in batch.rows:
        sums.rows_read += 1
        try:
            if isinstance(values, str):
                raise RowRefused("unreadable", values)
            if part is Part.PAGES:
                sums.add_page(read_page(values))
            else:
                sums.images.add(read_image(values))
        except RowRefused as refused:
            sums.refuse(refused.reason, f"{place}: {refused}")
    return sums


async def fill_from_urls(
    stores: Stores, source: UrlSource, name: str, crawl: str, tell: Tell, *, dry_run: bool = False
) -> BackfillOutcome:
    """Make tasks of a crawl of all URLs that it does not have; new domains are marked as brought by this."""
    filling = _UrlFilling(stores, source, name, crawl, dry_run=dry_run)
    if not dry_run:
        await filling.begin()
    batch: list[UrlRecord] = []
    for record in source.records(filling.position):
        batch.append(record)
        if len(batch) == URLS_AT_ONCE:
            await filling.take(batch)
            tell(filling.progress)
            batch = []
    await filling.take(batch, finished=True)
    tell(filling.progress)
    return BackfillOutcome(
        source=source.name,
        kind=source.kind,
        dry_run=dry_run,
        rows_read=filling.rows_read,
        rows_refused=filling.rows_refused,
        refusals=sorted(filling.sums.refusals.values(), key=lambda each: -each.number),
        source_domains=len(filling.domains),
        domains=filling.step,
        urls=filling.urls,
        remarks=source.remarks(),
        figures=None if dry_run else await stores.control.backfill_figures(),
    )


class _UrlFilling:
    """URLs on their way into a crawl, and what became of them."""

    def __init__(self, stores: Stores, source: UrlSource, name: str, crawl: str, *, dry_run: bool) -> None:
        self._stores = stores
        self._source = source
        self._name = name
        self._crawl = crawl
        self._dry_run = dry_run
        self.position: str | None = None
        self.rows_read = 0
        self.rows_refused = 0
        self.domains: set[str] = set()
        self.step = BackfillStep()
        self.urls = dict.fromkeys((Added.NEW, Added.KNOWN), 0)
        self.sums = Sums()

    @property
    def progress(self) -> BackfillProgress:
        """How far this has come."""
        return BackfillProgress(rows_read=self.rows_read, rows_refused=self.rows_refused, domains=len(self.domains))

    async def begin(self) -> None:
        """Find the crawl, and where to go on if the source is still what it was."""
        try:
            await self._stores.urls.get_crawl(self._crawl)
        except UnknownCrawl:
            await self._stores.urls.create_crawl(self._crawl)
        entry = await self._stores.control.begin_backfill(self._name, self._source.name, self._source.kind)
        identity, _, position = (entry.position or "").partition("/")
        if position and identity == self._source.identity:
            self.position, self.rows_read, self.rows_refused = position, entry.rows_read, entry.rows_refused

    async def take(self, batch: Sequence[UrlRecord], *, finished: bool = False) -> None:
        """Put a batch in, and write down where to go on."""
        good: list[tuple[str, Restored]] = []
        domains: set[str] = set()
        for record in batch:
            if isinstance(record.found, str):
                self._refuse("unreadable", f"{record.place}: {record.found}")
                continue
            try:
                domains.add(locate(record.found.url).domain)
                good.append((record.place, record.found))
            except UrlRefused as refused:
                self._refuse(f"bad URL: {refused.reason}", f"{record.place}: {refused}")
        await self._offer(sorted(domains - self.domains))
        if good and not self._dry_run:
            await self._restore(good)
        self.rows_read += len(batch)
        self.position = batch[-1].position if batch else self.position
        if not self._dry_run:
            await self._stores.control.note_backfill(
                self._name,
                position=f"{self._source.identity}/{self.position or ''}",
                rows_read=self.rows_read,
                rows_refused=self.rows_refused,
                finished=finished,
            )

    async def _offer(self, domains: Sequence[str]) -> None:
        self.domains.update(domains)
        pasts = [DomainPast(domain=domain) for domain in domains]
        if pasts:
            control = self._stores.control
            offer = control.preview_backfill if self._dry_run else control.backfill_domains
            self.step = _sum(self.step, await offer(self._name, pasts))

    async def _restore(self, good: Sequence[tuple[str, Restored]]) -> None:
        results = await self._stores.urls.restore(self._crawl, [found for _, found in good])
        for (place, _), result in zip(good, results, strict=True):
            if result.outcome is Added.REJECTED:
                self._refuse(str(result.reason), f"{place}: {result.detail or result.reason}")
            else:
                self.urls[result.outcome] += 1

    def _refuse(self, reason: str, example: str) -> None:
        self.rows_refused += 1
        self.sums.refuse(reason, example)


def _sum(first: BackfillStep, second: BackfillStep) -> BackfillStep:
    return BackfillStep(
        new=first.new + second.new,
        added_to=first.added_to + second.added_to,
        unchanged=first.unchanged + second.unchanged,
    )
