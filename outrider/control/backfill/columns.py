"""Columns: which column of somebody's table or file says what, and reading one row by them."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final, NamedTuple, cast

from outrider.model.errors import InvalidInput, shown
from outrider.model.task import MAX_DEPTH
from outrider.model.url import UrlRefused, canonical_domain
from outrider.policy.admission import storable
from outrider.store.checks import END_OF_TIME_MS, MAX_TEXT_CHARACTERS

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
EARLIEST_AS_MILLISECONDS: Final = 10**11
"""Numbers from here on are milliseconds: as seconds they would be in the year 5138."""
MOST_IMAGES: Final = 1_000_000_000
HIGHEST_STATUS: Final = 999

_DIGITS = re.compile(r"\s*[0-9]{1,18}\s*", re.ASCII)


class Part(StrEnum):
    """What rows are about, named as the tables are by default."""

    PAGES = "crawl_log"
    IMAGES = "provenance"


FIELDS: Final[Mapping[Part, Mapping[str, tuple[str, ...]]]] = {
    Part.PAGES: {
        "id": ("id",),
        "domain": ("domain",),
        "url": ("url", "page_url"),
        "status": ("status", "http_status", "status_code"),
        "images_found": ("images_found",),
        "crawled_at": ("crawled_at", "fetched_at"),
        "depth": ("depth",),
    },
    Part.IMAGES: {
        "id": ("id",),
        "source_domain": ("source_domain", "domain"),
        "url": ("source_page_url", "page_url"),
        "image_id": ("image_id",),
    },
}
"""The fields of each part, and the columns that are looked for where `--map` names none."""

NEEDED: Final[Mapping[Part, tuple[tuple[str, ...], ...]]] = {
    Part.PAGES: (("domain", "url"), ("status",)),
    Part.IMAGES: (("source_domain", "url"), ("image_id",)),
}
"""Of each of these at least one."""


class RowRefused(ValueError):
    """A row that says nothing that can be counted."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        """The same for all rows with the same trouble."""


class PageRow(NamedTuple):
    """A page that was fetched, or was to be."""

    domain: str
    status: int | None
    """0 where nobody answered; None where the log does not say."""
    images_found: int
    crawled_at: int | None
    depth: int


class ImageRow(NamedTuple):
    """An image that was stored, and where it was found."""

    domain: str
    image_id: str


class ColumnMap(NamedTuple):
    """What `--map` says of tables and columns."""

    tables: Mapping[Part, str]
    columns: Mapping[tuple[Part, str], str]

    def described(self) -> str:
        """Write it in one way, as part of the name of a source."""
        said = [(part.value, table) for part, table in self.tables.items()]
        said += [(f"{part}.{field}", column) for (part, field), column in self.columns.items()]
        return ",".join(f"{name}={value}" for name, value in sorted(said))


def read_map(texts: Sequence[str]) -> ColumnMap:
    """Read `crawl_log=old.log` and `crawl_log.status=code`, or say what is wrong with which.

    >>> read_map(["crawl_log=old.log", "crawl_log.status=code"]).described()
    'crawl_log=old.log,crawl_log.status=code'
    """
    tables: dict[Part, str] = {}
    columns: dict[tuple[Part, str], str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        part, _, field = name.partition(".")
        if not equals or not value or not _is_known(part, field):
            raise InvalidInput(f"--map {shown(text)} is neither TABLE=NAME nor TABLE.FIELD=COLUMN: {_choices()}")
        if field:
            columns[Part(part), field] = value
        else:
            tables[Part(part)] = value
    return ColumnMap(tables, columns)


def _is_known(part: str, field: str) -> bool:
    return any(part == each.value and (not field or field in FIELDS[each]) for each in Part)


def _choices() -> str:
    return "; ".join(f"{part} has {', '.join(fields)}" for part, fields in FIELDS.items())


def layout(part: Part, available: Collection[str], mapping: ColumnMap, place: str) -> dict[str, str]:
    """Find the column of each field of a part, or say which is missing."""
    found = {}
    for field, candidates in FIELDS[part].items():
        named = mapping.columns.get((part, field))
        if named is not None and named not in available:
            raise InvalidInput(f"{place} has no column {shown(named)}, which --map names for {part}.{field}")
        column = named or next((each for each in candidates if each in available), None)
        if column is not None:
            found[field] = column
    for needed in NEEDED[part]:
        if not any(field in found for field in needed):
            looked_for = ", ".join(column for field in needed for column in FIELDS[part][field])
            raise InvalidInput(
                f"{place} has no column for {' or '.join(needed)} (looked for {looked_for}): "
                f"name it with --map {part}.{needed[0]}=COLUMN"
            )
    return found


def part_of(available: Collection[str], mapping: ColumnMap, place: str) -> Part:
    """Tell what the rows of a file are about by its columns."""
    for part, field in ((Part.PAGES, "status"), (Part.IMAGES, "image_id")):
        if mapping.columns.get((part, field)) is not None or set(FIELDS[part][field]) & set(available):
            return part
    raise InvalidInput(
        f"{place} is neither a crawl log nor provenance: its columns are {shown(sorted(available))}; name that of the "
        "status with --map crawl_log.status=COLUMN, or that of the image with --map provenance.image_id=COLUMN"
    )


def read_page(values: Mapping[str, object]) -> PageRow:
    """Read a row of a crawl log, its values by field, or raise `RowRefused`."""
    status = _whole_number(values.get("status"), "status", HIGHEST_STATUS)
    return PageRow(
        domain=_domain(values.get("domain"), values.get("url")),
        status=status,
        images_found=_whole_number(values.get("images_found"), "images_found", MOST_IMAGES) or 0,
        crawled_at=_moment(values.get("crawled_at")),
        depth=_whole_number(values.get("depth"), "depth", MAX_DEPTH) or 0,
    )


def read_image(values: Mapping[str, object]) -> ImageRow:
    """Read a row of provenance, its values by field, or raise `RowRefused`."""
    image = values.get("image_id")
    if image is None or image == "":
        raise RowRefused("no image_id", "the row names no image")
    if not storable(name := str(image)) or len(name) > MAX_TEXT_CHARACTERS:
        raise RowRefused("bad image_id", f"image_id {shown(image)} cannot be stored")
    return ImageRow(_domain(values.get("source_domain"), values.get("url")), name)


def _domain(domain: object, url: object) -> str:
    text = domain if domain not in (None, "") else url
    if text is None or text == "":
        raise RowRefused("no domain", "the row has neither a domain nor a URL")
    try:
        return canonical_domain(text)  # type: ignore[arg-type]  # anything but a text is refused in words
    except UrlRefused as refused:
        raise RowRefused(f"bad domain: {refused.reason}", str(refused)) from None


def _whole_number(value: object, field: str, most: int) -> int | None:
    if value is None or value == "":
        return None
    is_digits = isinstance(value, str) and _DIGITS.fullmatch(value)
    is_whole = isinstance(value, (float, Decimal)) and math.isfinite(value) and value == int(value)
    number = int(cast(str, value)) if is_digits or is_whole else value
    if type(number) is not int or not 0 <= number <= most:
        raise RowRefused(f"bad {field}", f"{field} {shown(value)} is not a whole number from 0 to {most}")
    return number


def _moment(value: object) -> int | None:
    """Read a moment as milliseconds; texts are ISO 8601 or numbers, and without a zone in UTC."""
    if value is None or value == "":
        return None
    milliseconds: int | None = None
    try:
        if isinstance(value, datetime):
            milliseconds = _since_epoch(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            milliseconds = round(value if value >= EARLIEST_AS_MILLISECONDS else value * 1000)
        elif isinstance(value, str):
            text = value.strip()
            is_number = text.replace(".", "", 1).isdecimal() and not (len(text) == 8 and text.isdecimal())
            return _moment(float(text)) if is_number else _moment(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        milliseconds = None
    if milliseconds is None or not 0 <= milliseconds < END_OF_TIME_MS:
        raise RowRefused("bad crawled_at", f"crawled_at {shown(value)} is not a moment since 1970")
    return milliseconds


def _since_epoch(moment: datetime) -> int:
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // MILLISECOND
