"""The one exception tree: every error that Outrider raises on purpose is an `OutriderError`.

A message says what was wrong with which input and, where there is something to do, what to do.
"""


def shown(value: object, most: int = 100) -> str:
    """Show a value in a message, whatever it is and however long.

    >>> shown("x" * 200, most=4), shown(10**5000)
    ("'xxx…", 'an int that cannot be shown')
    """
    try:
        text = repr(value)
    except Exception:  # numbers of thousands of digits, and objects of others
        text = f"an {type(value).__name__} that cannot be shown"
    return text if len(text) <= most else f"{text[:most]}…"


class OutriderError(Exception):
    """Anything that Outrider refuses or cannot do, told for a person to read."""


class InvalidTransition(OutriderError):
    """A state machine was asked for a step that its table does not have."""

    def __init__(self, machine: str, source: str, target: str) -> None:
        super().__init__(f"a {machine} cannot go from {source} to {target}")
        self.machine = machine
        self.source = source
        self.target = target


class LimitExceeded(OutriderError):
    """A request as a whole is larger than a documented limit; nothing of it was done."""


class UnknownCrawl(OutriderError):
    """The named crawl does not exist in this store."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no crawl named {shown(name)}")
        self.name = name


class CrawlConflict(OutriderError):
    """A crawl of this name exists with other rules, which are fixed when a crawl is created."""


class InvalidInput(OutriderError):
    """An argument is not of the form that the operation takes."""


class StoreError(OutriderError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The store did not answer within the bounded wait: server gone, or file locked by another."""


class StoreNotOurs(StoreError):
    """The file or database holds something that Outrider did not create."""


class StoreReadOnly(StoreError):
    """The store cannot be written: a read-only file, folder or server."""


class StoreCorrupt(StoreError):
    """The file is damaged."""


class StoreFull(StoreError):
    """There is no room left on the disk; nothing of the request was written."""


class SchemaOutdated(StoreError):
    """The store's schema is older than this program; the message says what to run."""


class SchemaTooNew(StoreError):
    """The store's schema is newer than this program."""


class ClaimLost(StoreError):
    """A domain's claim is no longer the writer's; nothing was changed."""


class JobConflict(StoreError):
    """Another live job holds the crawl, or the job is not in the state that the call needs."""


class JobUnfinished(StoreError):
    """A job was said to be complete while its crawl has something in flight, or soon will have; nothing was changed."""
