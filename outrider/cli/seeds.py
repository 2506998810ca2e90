"""Seeds: where a crawl begins, as people type them and as lists of millions have them."""

import io
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from outrider.cli.redis_seeds import SCHEMES, SortedSet
from outrider.crawler.plan import CrawlPlan, without_credentials
from outrider.model.domain import MAX_SOURCE_CHARACTERS
from outrider.model.errors import InvalidInput, shown
from outrider.model.task import Refusal
from outrider.model.typed_url import with_scheme
from outrider.model.url import MAX_URL_BYTES, UrlRefused, locate

STANDARD_INPUT: Final = "-"
MOST_REFUSALS: Final = 1_000
"""How many refusals are kept; all are counted."""

MOST_RANK: Final = 2**31 - 1

_LONGEST_LINE = 4 * MAX_URL_BYTES
_ARCHIVES: Final = {
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "compressed with gzip",
    b"\x28\xb5\x2f\xfd": "compressed",
}
_RANKED = re.compile(r"""("?)([0-9]{1,18})\1\s*,\s*("?)([^,\s/:@"]+)\3""", re.ASCII)
_HEADER = re.compile(r"""("?)\w*rank\1\s*,\s*("?)(?:domain|host|hostname|site|url)\2""", re.ASCII | re.IGNORECASE)


class Seed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A URL to begin with, normalised."""

    url: str
    rank: int | None = None
    """Its place in a list of popular sites; 1 is the first."""
    line: int | None = None
    """Where the list has it; None for what was typed."""


class RefusedSeed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A text that is no seed, and why."""

    line: int | None
    reason: Refusal
    detail: str

    def __str__(self) -> str:
        return self.detail if self.line is None else f"line {self.line}: {self.detail}"


class Seeds:
    """The seeds of a plan, read while they are iterated over, once; what is refused is skipped and kept.

    First come those that were typed, then those of the file or of the sorted set.
    """

    def __init__(
        self,
        typed: tuple[str, ...],
        file: io.BufferedReader | None,
        *,
        members: SortedSet | None = None,
        source: str | None = None,
    ) -> None:
        self.source = source
        """What the domains table calls the list."""
        self.refused = 0
        self.refusals: list[RefusedSeed] = []
        self._typed = typed
        self._file = file
        self._members = members

    def __iter__(self) -> Iterator[Seed]:
        for text in self._typed:
            if (seed := self._read(text, None)) is not None:
                yield seed
        if self._file is not None:
            yield from self._from_file(self._file)
        if self._members is not None:
            yield from self._from_members(self._members)

    def _from_members(self, members: SortedSet) -> Iterator[Seed]:
        for position, (text, score) in enumerate(members, start=1):
            if not score.is_integer() or not 0 <= score <= MOST_RANK:
                detail = f"{shown(text)} has the score {score:g}: ranks are whole numbers from 0 to {MOST_RANK}"
                self._refuse(None, Refusal.BAD_PRIORITY, detail)
                continue
            try:
                yield Seed(url=locate(with_scheme(text)).url, rank=int(score), line=position)
            except UrlRefused as refusal:
                self._refuse(None, refusal.reason, f"{shown(text)}: {refusal}")

    def _from_file(self, file: io.BufferedReader) -> Iterator[Seed]:
        # What is no UTF-8 becomes lone surrogates, which the line's own URL is then refused for.
        lines = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape")
        try:
            number = 0
            while line := lines.readline(_LONGEST_LINE):
                number += 1
                if len(line) == _LONGEST_LINE and not line.endswith("\n"):
                    self._refuse(number, Refusal.TOO_LONG, f"the line has {_LONGEST_LINE} characters or more")
                    while line and not line.endswith("\n"):
                        line = lines.readline(_LONGEST_LINE)
                    continue
                text = line.strip()
                if not text or text.startswith("#") or (number == 1 and _HEADER.fullmatch(text)):
                    continue
                if (seed := self._read(text, number)) is not None:
                    yield seed
        except OSError as error:
            raise InvalidInput(f"cannot read the seeds any further: {error.strerror or error}") from None
        finally:
            lines.close()

    def _read(self, text: str, line: int | None) -> Seed | None:
        rank = None
        try:
            if line is not None and (ranked := _RANKED.fullmatch(text)) is not None:
                rank, text = int(ranked[2]), ranked[4]
            return Seed(url=locate(with_scheme(text)).url, rank=rank, line=line)
        except UrlRefused as refusal:
            self._refuse(line, refusal.reason, str(refusal))
            return None

    def _refuse(self, line: int | None, reason: Refusal, detail: str) -> None:
        self.refused += 1
        if len(self.refusals) < MOST_REFUSALS:
            self.refusals.append(RefusedSeed(line=line, reason=reason, detail=detail))


def read_seeds(plan: CrawlPlan) -> Seeds:
    """Open the seeds of a plan; a file that cannot be read is refused here, before a crawl begins."""
    source = source_of(plan)
    if plan.seeds_file is None:
        return Seeds(plan.seeds, None, source=source)
    if plan.seeds_file.startswith(SCHEMES):
        return Seeds(plan.seeds, None, members=SortedSet(plan.seeds_file), source=source)
    try:
        file = _open(plan.seeds_file)
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"cannot read the seeds in {plan.seeds_file}: {problem}") from None
    beginning = b""
    with suppress(OSError):
        beginning = file.peek(4)
    for magic, what in _ARCHIVES.items():
        if beginning.startswith(magic):
            file.close()
            raise InvalidInput(f"cannot read the seeds in {plan.seeds_file}: it is {what}, unpack it first")
    return Seeds(plan.seeds, file, source=source)


def source_of(plan: CrawlPlan) -> str:
    """Name the list that seeds are from: as the plan says, or as the list itself is called.

    >>> [source_of(CrawlPlan(seeds_file=name)) for name in ("lists/tranco_20260205.csv", "redis://host/0/start_urls")]
    ['tranco_20260205', 'redis:start_urls']
    """
    if plan.seeds_source is not None:
        return plan.seeds_source
    if plan.seeds_file is None:
        return "typed"
    if plan.seeds_file == STANDARD_INPUT:
        return "standard input"
    if plan.seeds_file.startswith(SCHEMES):
        name = f"redis:{without_credentials(plan.seeds_file).split('/', 4)[-1]}"
    else:
        name = Path(plan.seeds_file).stem
    readable = name.encode(errors="replace").decode().replace("\0", "")
    return readable[:MAX_SOURCE_CHARACTERS]


def _open(name: str) -> io.BufferedReader:
    if name == STANDARD_INPUT:
        return open(0, "rb", closefd=False)
    return Path(name).open("rb")
