"""Problems: what an error becomes on the wire (RFC 9457), and what the client makes of it again.

Every error that a frontier can raise has a word of its own, which stays the same: programs go by it, people by the
detail.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from outrider.control.desk import IdempotencyConflict
from outrider.control.orders import OrderRefused
from outrider.model.api_key import UnknownKey
from outrider.model.domain import UnknownDomain
from outrider.model.domain_view import DomainInUse
from outrider.model.errors import (
    ClaimLost,
    CrawlConflict,
    InvalidInput,
    InvalidTransition,
    JobConflict,
    JobUnfinished,
    LimitExceeded,
    OutriderError,
    SchemaOutdated,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreNotOurs,
    StoreReadOnly,
    StoreUnavailable,
    UnknownCrawl,
)
from outrider.model.job import MixedModes, UnknownJob, UnknownRun
from outrider.model.quota import Quota, QuotaExceeded
from outrider.model.url import UrlRefused

MEDIA_TYPE: Final = "application/problem+json"
PREFIX: Final = "urn:outrider:problem:"
RETRY_AFTER_S: Final = 1
A_JOB_MAY_END_S: Final = 60


class Unauthenticated(OutriderError):
    """The service wants an API key, and the one given is none of its."""


class Forbidden(OutriderError):
    """The API key is not good for what was asked."""


class RateExceeded(OutriderError):
    """The API key asks more often than it may."""

    def __init__(self, message: str, retry_after_s: float = RETRY_AFTER_S) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BadRequest(OutriderError):
    """The request is not one that the service can read."""


class UnsupportedMedia(OutriderError):
    """The body is of a kind that the service does not read."""


class HeadersTooLarge(OutriderError):
    """The headers of the request are longer than is allowed."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Problem details: the body of every answer that is not a success."""

    type: str = "about:blank"
    title: str = ""
    status: int = 0
    detail: str = ""
    at: str | None = None
    """Where in the body the mistake is, as a path: `$.items[3].priority`."""
    name: str | None = None
    """The name that was not found."""
    quota: Quota | None = None
    """The quota that is used up, and how much it allows."""
    limit: int | None = None
    retry_at: datetime | None = None
    """When there is room again; left out where time alone makes none."""


class Kind(msgspec.Struct, frozen=True):
    """A kind of problem."""

    word: str
    status: int
    title: str


KINDS: Final[Mapping[type[OutriderError], Kind]] = {
    OutriderError: Kind("refused", 422, "The request was refused"),
    BadRequest: Kind("bad-request", 400, "The request cannot be read"),
    Unauthenticated: Kind("unauthenticated", 401, "A valid API key is needed"),
    Forbidden: Kind("forbidden", 403, "The API key is not good for this"),
    UnknownCrawl: Kind("unknown-crawl", 404, "There is no such crawl"),
    UnknownDomain: Kind("unknown-domain", 404, "There is no such domain"),
    UnknownJob: Kind("unknown-job", 404, "There is no such job"),
    UnknownRun: Kind("unknown-run", 404, "There is no such run"),
    UnknownKey: Kind("unknown-key", 404, "There is no such API key"),
    CrawlConflict: Kind("crawl-conflict", 409, "The crawl exists with other rules"),
    InvalidTransition: Kind("invalid-transition", 409, "There is no such step"),
    ClaimLost: Kind("claim-lost", 409, "The claim is lost"),
    DomainInUse: Kind("domain-in-use", 409, "The domain has URLs of its own"),
    JobConflict: Kind("job-conflict", 409, "The job is in another state"),
    JobUnfinished: Kind("job-unfinished", 409, "The job is not complete"),
    IdempotencyConflict: Kind("idempotency-conflict", 409, "The idempotency key was used for another request"),
    MixedModes: Kind("mixed-modes", 409, "Other workers run in another mode"),
    LimitExceeded: Kind("limit-exceeded", 413, "The request is too large"),
    UnsupportedMedia: Kind("unsupported-media-type", 415, "The body is of another kind"),
    InvalidInput: Kind("invalid-input", 422, "A value is not of the form that it must have"),
    UrlRefused: Kind("url-refused", 422, "The URL cannot be crawled"),
    OrderRefused: Kind("order-refused", 422, "The job cannot be ordered like that"),
    RateExceeded: Kind("rate-exceeded", 429, "Too many requests"),
    QuotaExceeded: Kind("quota-exceeded", 429, "The quota of the API key is used up"),
    HeadersTooLarge: Kind("headers-too-large", 431, "The headers are too large"),
    StoreUnavailable: Kind("store-unavailable", 503, "The store is out of reach"),
    StoreError: Kind("store-error", 503, "The store could not do it"),
    StoreNotOurs: Kind("store-not-ours", 503, "The store is not Outrider's"),
    StoreReadOnly: Kind("store-read-only", 503, "The store cannot be written"),
    StoreCorrupt: Kind("store-corrupt", 503, "The store is damaged"),
    SchemaOutdated: Kind("schema-outdated", 503, "The store has to be upgraded"),
    SchemaTooNew: Kind("schema-too-new", 503, "The store is newer than the service"),
    StoreFull: Kind("store-full", 507, "The store has no room left"),
}

_ERRORS: Final = {kind.word: error for error, kind in KINDS.items()}
_encode: Final = msgspec.json.Encoder().encode


def kind_of(error: OutriderError) -> Kind:
    """Tell what kind of problem an error is."""
    return next(KINDS[each] for each in type(error).__mro__ if each in KINDS)


def problem_of(error: OutriderError, *, at: str | None = None) -> Problem:
    """Describe an error of ours."""
    kind = kind_of(error)
    # What a store says of itself may name files and servers, which are the operator's and not the client's.
    detail = str(error) if kind.status < 500 or isinstance(error, StoreUnavailable) else kind.title
    problem = Problem(
        type=PREFIX + kind.word,
        title=kind.title,
        status=kind.status,
        detail=detail,
        at=at,
        name=error.name if isinstance(error, UnknownCrawl) else None,
    )
    if isinstance(error, QuotaExceeded):
        return msgspec.structs.replace(problem, quota=error.which, limit=error.limit, retry_at=error.retry_at)
    return problem


def headers_of(error: OutriderError) -> dict[str, str]:
    """Tell the headers that go with a problem."""
    if isinstance(error, Unauthenticated):
        return {"www-authenticate": 'Bearer realm="outrider"'}
    if isinstance(error, RateExceeded):
        return {"retry-after": str(max(round(error.retry_after_s), 1))}
    if isinstance(error, QuotaExceeded) and (wait_s := _wait_s(error)) is not None:
        return {"retry-after": str(wait_s)}
    return {"retry-after": str(RETRY_AFTER_S)} if isinstance(error, StoreUnavailable) else {}


def _wait_s(error: QuotaExceeded) -> int | None:
    """Tell when it is worth asking again: for a job to end, now and then; for more pages than a job may have, never."""
    if error.retry_at is not None:
        return max(math.ceil((error.retry_at - datetime.now(UTC)).total_seconds()), 1)
    return A_JOB_MAY_END_S if error.which is Quota.ACTIVE_JOBS else None


def encoded(problem: Problem) -> bytes:
    """Write a problem down; its title and status are always there."""
    return _encode(problem)


def error_of(status: int, body: bytes) -> OutriderError:
    """Make the error again that a service told of, so that callers cannot tell it from a local one."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = Problem(detail=body[:200].decode(errors="replace"))
    told = f"{problem.detail or problem.title or 'no reason was given'}"
    told = told if problem.at is None else f"{told} at {problem.at}"
    known = _ERRORS.get(problem.type.removeprefix(PREFIX))
    if known is None:
        kind: type[OutriderError] = StoreUnavailable if status >= 500 else OutriderError
        return kind(f"the service answered {status}: {told}")
    if known is UnknownCrawl:
        return UnknownCrawl(problem.name or "")
    if known is QuotaExceeded and problem.quota is not None and problem.limit is not None:
        return QuotaExceeded(problem.quota, problem.limit, problem.retry_at)
    error = known.__new__(known)
    Exception.__init__(error, told)
    return error
