"""What a service is: its methods, each with its kind, the type of its requests and its handler."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)

DEFAULT_BATCH = 4_096


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler may know of its call besides the messages."""

    # Such as `/urlfrontier.URLFrontier/PutURLs`.
    path: str
    # The header fields, names in lower case; of a repeated one, the last.
    metadata: Mapping[str, str]
    client: tuple[str, int] | None
    # Who calls, as the application's `authorise` found out.
    principal: Any = None
    # On the clock of `time.monotonic`; None where the client waits for ever.
    deadline: float | None = None

    def seconds_left(self) -> float | None:
        """How long the client still waits."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


class Unary(msgspec.Struct, Generic[Request, Answer], frozen=True, kw_only=True):
    """One message in, one out."""

    request: type[Request]
    handle: Callable[[CallContext, Request], Awaitable[Answer]]


class ServerStreaming(msgspec.Struct, Generic[Request, Answer], frozen=True, kw_only=True):
    """One message in, a stream out; what the handler yields together is sent together."""

    request: type[Request]
    handle: Callable[[CallContext, Request], AsyncIterator[Sequence[Answer]]]


class Bidirectional(msgspec.Struct, Generic[Request, Answer], frozen=True, kw_only=True):
    """Streams both ways, in batches.

    The handler gets all that has come, up to `most_messages`, and its answers are sent together. A stream's batches
    are handled one after the other, so that their order holds; while one is handled the next is read and decoded, and
    the longer that takes the larger it grows.
    """

    request: type[Request]
    handle: Callable[[CallContext, list[Request]], Awaitable[Sequence[Answer]]]
    most_messages: int = DEFAULT_BATCH


Method = Unary[Any, Any] | ServerStreaming[Any, Any] | Bidirectional[Any, Any]


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A named service; `file` describes it to clients that ask by reflection."""

    name: str
    methods: Mapping[str, Method]
    file: FileDescriptor
