"""Exit codes: what the process says to its caller, and which one the end of a crawl is."""

from enum import IntEnum
from typing import TYPE_CHECKING

from outrider.model.errors import JobConflict, OutriderError, StoreError

if TYPE_CHECKING:
    from outrider.crawler.progress import CrawlEnding


class ExitCode(IntEnum):
    """What the process says to its caller; `docs/reference/exit-codes.md` explains each."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    STORE = 3
    REFUSED = 4
    LIMIT = 10
    WAITING = 11
    NOTHING_FETCHED = 12
    STOPPED = 13
    PAUSED = 14
    CANCELLED = 15
    FAILED = 16
    UNSOUND = 17
    INTERRUPTED = 130


def exit_code_of(ending: "CrawlEnding") -> ExitCode:
    """Tell how a process ends whose crawl ended so: the code of the same name, where a drained crawl is well."""
    return ExitCode.OK if ending.name == "DRAINED" else ExitCode[ending.name]


def exit_code_of_error(error: OutriderError) -> ExitCode:
    """Tell how a process ends that failed so; to ask a job at the wrong time is no trouble of the store."""
    is_trouble = isinstance(error, StoreError) and not isinstance(error, JobConflict)
    return ExitCode.STORE if is_trouble else ExitCode.REFUSED
