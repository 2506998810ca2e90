"""Blocking: what trouble with a site means, and when a domain is given up for how long.

A worker classifies what it saw into a `BlockReason`. One failure is a page's; a series of them without a good
answer between is the domain's, and the domain then rests. Reasons that say that nobody is there make it
unreachable, reasons that say that we are not wanted make it blocked.

| reason | rests for |
|---|---|
| `robots_denied` | 90 days |
| `login_required` | 30 days |
| `forbidden` | 14 days |
| `rate_limited` | 7 days |
| `server_error` | 1 day |
| `dns_failure`, `connection_refused`, `connection_reset`, `timeout`, `tls_error` | 7 days |
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from outrider.model.machines import DomainStatus
from outrider.model.task import NEVER
from outrider.policy.lifecycle import path

DAY_MS: Final = 24 * 3_600_000


class BlockReason(StrEnum):
    """Why a domain is given up: the `block_reason_code` of its row."""

    LOGIN_REQUIRED = "login_required"
    RATE_LIMITED = "rate_limited"
    FORBIDDEN = "forbidden"
    ROBOTS_DENIED = "robots_denied"
    """Its robots.txt leaves nothing to fetch. That it forbids a page says nothing of the domain."""
    SERVER_ERROR = "server_error"
    DNS_FAILURE = "dns_failure"
    CONNECTION_REFUSED = "connection_refused"
    CONNECTION_RESET = "connection_reset"
    TIMEOUT = "timeout"
    TLS_ERROR = "tls_error"

    @property
    def status(self) -> DomainStatus:
        """What it makes of a domain: unreachable where nobody is there, else blocked."""
        return DomainStatus.UNREACHABLE if self in _NOBODY_THERE else DomainStatus.BLOCKED


_NOBODY_THERE: Final = frozenset(
    {
        BlockReason.DNS_FAILURE,
        BlockReason.CONNECTION_REFUSED,
        BlockReason.CONNECTION_RESET,
        BlockReason.TIMEOUT,
        BlockReason.TLS_ERROR,
    }
)
_PLAIN_REFUSALS: Final = frozenset({BlockReason.LOGIN_REQUIRED, BlockReason.FORBIDDEN, BlockReason.ROBOTS_DENIED})
"""Answers that were meant: unlike trouble, ten of them at the same time are ten."""

_REASON_OF_STATUS: Final[Mapping[int, BlockReason]] = {
    401: BlockReason.LOGIN_REQUIRED,
    403: BlockReason.FORBIDDEN,
    408: BlockReason.SERVER_ERROR,
    429: BlockReason.RATE_LIMITED,
    451: BlockReason.FORBIDDEN,
    511: BlockReason.LOGIN_REQUIRED,
}
_REASON_OF_FAILURE: Final[Mapping[str, BlockReason]] = {
    "dns": BlockReason.DNS_FAILURE,
    "connect": BlockReason.CONNECTION_REFUSED,
    "connect_timeout": BlockReason.TIMEOUT,
    "tls": BlockReason.TLS_ERROR,
    "first_byte_timeout": BlockReason.TIMEOUT,
    "timeout": BlockReason.TIMEOUT,
    "disconnected": BlockReason.CONNECTION_RESET,
    "bad_response": BlockReason.SERVER_ERROR,
}


class BlockSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a domain is given up, and for how long."""

    max_domain_errors: int = 5
    """So many errors in a row, one per back-off event, are the domain's own."""
    max_login_walls: int = 3
    """The same for pages that only show a login form: small sites have no more of them."""
    max_block_retries: int = 3
    """So often a blocked domain is tried again before it stays blocked."""
    login_required_rest_ms: int = 30 * DAY_MS
    rate_limited_rest_ms: int = 7 * DAY_MS
    forbidden_rest_ms: int = 14 * DAY_MS
    robots_denied_rest_ms: int = 90 * DAY_MS
    server_error_rest_ms: int = DAY_MS
    unreachable_rest_ms: int = 7 * DAY_MS

    def errors_allowed(self, reason: BlockReason) -> int:
        """Tell at how many errors in a row this reason, when it comes last, is the domain's."""
        match reason:
            case BlockReason.ROBOTS_DENIED:
                return 1
            case BlockReason.LOGIN_REQUIRED:
                return min(self.max_login_walls, self.max_domain_errors)
            case _:
                return self.max_domain_errors

    def rest_ms(self, reason: BlockReason) -> int:
        """Tell for how long a domain is left alone for this reason."""
        match reason:
            case BlockReason.LOGIN_REQUIRED:
                return self.login_required_rest_ms
            case BlockReason.RATE_LIMITED:
                return self.rate_limited_rest_ms
            case BlockReason.FORBIDDEN:
                return self.forbidden_rest_ms
            case BlockReason.ROBOTS_DENIED:
                return self.robots_denied_rest_ms
            case BlockReason.SERVER_ERROR:
                return self.server_error_rest_ms
            case _:
                return self.unreachable_rest_ms


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a domain stands when trouble is reported."""

    status: DomainStatus
    errors_in_row: int
    """The reported one included, see `errors_after`."""
    block_count: int = 0
    """How often it was blocked before."""


class Blocking(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to give a domain up."""

    steps: tuple[DomainStatus, ...]
    """The statuses to go through, one transition each; the last is blocked or unreachable."""
    reason: BlockReason
    next_crawl_after: int | None
    """When it may be tried again; None where it stays blocked until an operator says otherwise."""

    @property
    def permanent(self) -> bool:
        """Whether no clock will end it."""
        return self.next_crawl_after is None

    @property
    def blocked_until(self) -> int:
        """The same moment for the gate, which always has one."""
        return NEVER if self.next_crawl_after is None else self.next_crawl_after


def reason_of_status(http_status: int, *, login_wall: bool = False) -> BlockReason | None:
    """Classify an answer to a page; None is a good sign, also for a page that is not there.

    >>> reason_of_status(503), reason_of_status(404), reason_of_status(200, login_wall=True)
    (<BlockReason.SERVER_ERROR: 'server_error'>, None, <BlockReason.LOGIN_REQUIRED: 'login_required'>)
    """
    if login_wall:
        return BlockReason.LOGIN_REQUIRED
    if http_status in _REASON_OF_STATUS:
        return _REASON_OF_STATUS[http_status]
    return BlockReason.SERVER_ERROR if http_status >= 500 else None


def reason_of_failure(kind: str) -> BlockReason | None:
    """Classify a fetch without an answer by the worker's word for it; None says nothing of the site.

    What lies with this machine, its proxy or the URL, and a body that cannot be decoded, are not the domain's.

    >>> reason_of_failure("dns"), reason_of_failure("local")
    (<BlockReason.DNS_FAILURE: 'dns_failure'>, None)
    """
    return _REASON_OF_FAILURE.get(kind)


def errors_after(errors_in_row: int, reason: BlockReason, *, began_back_off: bool) -> int:
    """Count an error of a domain: trouble once per back-off event, a plain refusal each time.

    Ten requests that are under way when a server stops for a moment fail together, and are one event.
    """
    return errors_in_row + (began_back_off or reason in _PLAIN_REFUSALS)


def decide(standing: Standing, reason: BlockReason, now: int, settings: BlockSettings) -> Blocking | None:
    """Decide whether trouble ends the patience with a domain; None leaves it as it is.

    A domain that is given up already is not given up again by what was under way, so that its rest does not grow.
    """
    if standing.status in (DomainStatus.BLOCKED, DomainStatus.UNREACHABLE):
        return None
    if standing.errors_in_row < settings.errors_allowed(reason):
        return None
    target = reason.status
    permanent = target is DomainStatus.BLOCKED and standing.block_count >= settings.max_block_retries
    return Blocking(
        steps=path(standing.status, target),
        reason=reason,
        next_crawl_after=None if permanent else now + settings.rest_ms(reason),
    )
