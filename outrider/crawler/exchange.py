"""An exchange with a server: what is asked for within which limits, and what comes back or does not."""

import re
from enum import StrEnum
from typing import Final

import msgspec

from outrider.model.errors import OutriderError

_CHARSET: Final = re.compile(r";\s*charset\s*=\s*[\"']?\s*([^\s\"';,]+)", re.IGNORECASE)


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a fetch may take and how much it may bring."""

    connect_s: float = 10.0
    """For the name, the connection and TLS together."""
    first_byte_s: float = 20.0
    """From the request's sending to the end of the response's headers."""
    total_s: float = 60.0
    """For the whole fetch."""
    max_body: int = 10 * 1024 * 1024
    """Bytes of a body, as transferred and once more as decoded; the rest is cut off."""
    max_headers: int = 64 * 1024
    """Bytes of all headers together; a response with more is refused."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A page to get. With validators, the server may answer that nothing has changed (304)."""

    url: str
    """Normalised: it is sent as it stands."""
    etag: str | None = None
    last_modified: str | None = None
    max_body: int | None = None
    """In place of the fetcher's limit."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What a server answered."""

    url: str
    status: int
    reason: str
    version: str
    """As in the status line: `HTTP/1.1`."""
    headers: tuple[tuple[bytes, bytes], ...]
    """As they came, in order, still with the transfer and content encodings' own."""
    raw_body: bytes
    """As transferred, without chunking."""
    body: bytes
    """Without content encodings."""
    truncated: bool = False
    """Cut at the limit, or the content encoding ended early."""
    unknown_encoding: str | None = None
    """A content encoding that nobody here can take off; `body` still has it."""
    request_head: bytes
    """The request as it was sent, without what was for the proxy only."""
    address: str | None
    """The server's IP address; None behind a proxy."""
    fetched_at: int
    """When the request was sent, in milliseconds since 1970."""
    started: float
    """The same moment on `time.monotonic()`: never before the sending, at most a few milliseconds after."""
    elapsed_ms: int
    """From the sending to the last byte."""

    def header(self, name: str) -> str | None:
        """Give the first value of a header."""
        return next(iter(self.header_values(name)), None)

    def header_values(self, name: str) -> list[str]:
        """Give every value of a header, one per line in which it stands."""
        wanted = name.lower().encode()
        length = len(wanted)
        return [_text(value) for key, value in self.headers if len(key) == length and key.lower() == wanted]

    @property
    def content_type(self) -> str | None:
        """The declared media type without parameters, in lower case."""
        declared = self.header("content-type")
        return declared.partition(";")[0].strip().lower() or None if declared else None

    @property
    def charset_declared(self) -> str | None:
        """The charset in the Content-Type header, in lower case, whether or not it exists."""
        found = _CHARSET.search(self.header("content-type") or "")
        return found[1].lower() if found else None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


class FailureKind(StrEnum):
    """Why there is no response."""

    BAD_REQUEST = "bad_request"
    """The URL or a validator cannot be sent at all."""
    PRIVATE_ADDRESS = "private_address"
    DNS = "dns"
    CONNECT = "connect"
    CONNECT_TIMEOUT = "connect_timeout"
    TLS = "tls"
    PROXY = "proxy"
    """The proxy, not the site, refused or could not be reached."""
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    TIMEOUT = "timeout"
    DISCONNECTED = "disconnected"
    """The server closed the connection before the response was complete."""
    BAD_RESPONSE = "bad_response"
    """Not HTTP, a status that there is not, or headers past the limits."""
    BAD_ENCODING = "bad_encoding"
    LOCAL = "local"
    """This machine is out of sockets or memory; it says nothing about the site."""


class FetchFailed(OutriderError):
    """There is no usable response, and why."""

    def __init__(self, kind: FailureKind, detail: str, *, started: float | None, reused: bool) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.started = started
        """When the request was sent, on `time.monotonic()`; None where nothing was."""
        self.reused = reused
        """The connection was kept from an earlier fetch; a disconnection may say no more than that it was stale."""

    @property
    def sent(self) -> bool:
        """Whether a request may have reached the server."""
        return self.started is not None
