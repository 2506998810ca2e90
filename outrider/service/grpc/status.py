"""How a call ended: gRPC's codes, the error that carries one, and the header fields that tell it."""

import enum
from urllib.parse import quote

from outrider.model.errors import OutriderError

# What a status message may hold unescaped: printable ASCII without the percent sign.
_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


class Status(enum.IntEnum):
    """The codes of gRPC, with its numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(OutriderError):
    """A call ends with this status; the message is shown to the client."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def status_fields(status: Status, message: str = "") -> list[tuple[bytes, bytes]]:
    """The trailers of a call, or their part of a trailers-only response.

    >>> status_fields(Status.NOT_FOUND, "50 % müde")
    [(b'grpc-status', b'5'), (b'grpc-message', b'50 %25 m%C3%BCde')]
    """
    fields = [(b"grpc-status", str(int(status)).encode())]
    if message:
        fields.append((b"grpc-message", quote(message, safe=_PRINTABLE).encode("ascii")))
    return fields
