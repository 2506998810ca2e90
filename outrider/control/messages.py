"""What a supervisor and its runner say to each other: one JSON object a line.

To the runner, on its standard input:    `begin`, `permit_until` after each beat, `go_on`, `stop`
From the runner, on its standard output: `progress` every second, `ended`, `error`

The end of the input means that the supervisor is gone. Moments are of the monotonic clock, which all processes of
a machine share: a line that waited in the pipe while its reader was stopped grants nothing more.
"""

from datetime import datetime
from typing import Final

import msgspec

from outrider.crawler.plan import CrawlPlan
from outrider.model.settings import Settings

STOPPED: Final = "stopped"
PERMIT_OVER: Final = 75
"""The exit code of a runner that heard nothing of its supervisor's beats for too long."""


class Reach(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a runner reaches the frontier: by a store, or by a service."""

    store: str | None = None
    """A DSN."""
    service: str | None = None
    """An address, as `outrider.connect` takes it."""


class Begin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a runner is to do."""

    crawl: str
    worker: str
    """The name to lease under."""
    run_id: str | None = None
    plan: CrawlPlan
    settings: Settings
    reach: Reach
    lease_ms: int
    permit_until: float
    joins: bool = False
    """Only help with the crawl, and leave when it is over, paused or cancelled."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Stop: what is under way may finish, or is given back at once."""

    at_once: bool = False


class ToRunner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line to a runner."""

    begin: Begin | None = None
    permit_until: float | None = None
    go_on: bool = False
    """The crawl was not complete after all."""
    stop: Stop | None = None


class RunnerProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How a runner is doing; what was fetched is counted from its own start."""

    fetched: int = 0
    failed: int = 0
    in_flight: int = 0
    rate: float = 0.0
    """Answers per second, over the last ten."""
    bytes: int = 0
    domains: list[str] = []
    """What it fetches from."""
    last_error: str | None = None
    waiting_until: datetime | None = None
    """Where nothing is in flight: when something may be ready."""


class RunnerError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a runner could not go on."""

    kind: str
    message: str
    transient: bool
    """Whether another run may fare better."""


class FromRunner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a runner."""

    progress: RunnerProgress | None = None
    ended: str | None = None
    """`drained`, `limit`, `waiting` or `stopped`; the runner waits for what its supervisor says to that."""
    error: RunnerError | None = None


def line_of(message: ToRunner | FromRunner) -> bytes:
    r"""Write a message down.

    >>> line_of(ToRunner(stop=Stop()))
    b'{"stop":{"at_once":false}}\n'
    """
    return msgspec.json.encode(message) + b"\n"


read_to_runner: Final = msgspec.json.Decoder(ToRunner).decode
read_from_runner: Final = msgspec.json.Decoder(FromRunner).decode
