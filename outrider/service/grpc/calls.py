"""One call: its request read, its handler run, its answers and status sent.

A call is the task in which the server runs it, and a second one that reads. The second also notices that the client
has gone, and cancels the first.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from google.protobuf.message import Message

from outrider.service.grpc.compression import ACCEPTED
from outrider.service.grpc.framing import MessageDecoder, encode
from outrider.service.grpc.methods import Bidirectional, CallContext, Method, ServerStreaming, Unary
from outrider.service.grpc.status import GrpcError, Status, status_fields

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class ClientGone(Exception):
    """The client cancelled the call or lost its connection."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one call may take."""

    # Of one message, decompressed.
    message_bytes: int = 4 * 1024 * 1024
    # Of messages that are decoded and wait for the handler; one may go beyond.
    read_ahead_bytes: int = 1024 * 1024


class Reply:
    """The response of one call: head, messages, trailers."""

    def __init__(self, send: Send, *, compressing: bool) -> None:
        self._send = send
        self._compressing = compressing
        self._started = False

    async def start(self) -> None:
        """Send the head now, for clients that wait for it before they send."""
        if not self._started:
            await self._head(trailers=True)
            await self._body(b"", more=True)

    async def messages(self, messages: Sequence[Message]) -> None:
        """Send messages together; returns when the client had room for them."""
        body = encode(messages, compressing=self._compressing)
        if not self._started:
            await self._head(trailers=True)
        await self._body(body, more=True)

    async def finish(self, status: Status, message: str = "") -> None:
        """Send the status: as trailers, or in the head where there was nothing before."""
        fields = status_fields(status, message)
        if not self._started:
            await self._head(fields)
            await self._body(b"", more=False)
        else:
            await self._body(b"", more=False)
            await self._tell({"type": "http.response.trailers", "headers": fields, "more_trailers": False})

    async def _head(self, more: Sequence[tuple[bytes, bytes]] = (), *, trailers: bool = False) -> None:
        self._started = True
        headers = [(b"content-type", b"application/grpc"), (b"grpc-accept-encoding", ACCEPTED.encode()), *more]
        if self._compressing:
            headers.append((b"grpc-encoding", b"gzip"))
        await self._tell({"type": "http.response.start", "status": 200, "headers": headers, "trailers": trailers})

    async def _body(self, body: bytes, *, more: bool) -> None:
        await self._tell({"type": "http.response.body", "body": body, "more_body": more})

    async def _tell(self, event: dict[str, Any]) -> None:
        try:
            await self._send(event)
        except OSError as error:  # as ASGI says it from version 2.4 on
            raise ClientGone from error


class Inbox:
    """Messages that were decoded and wait for the handler; the reader stops when it is full."""

    def __init__(self, decoder: MessageDecoder[Any], receive: Receive, *, most_messages: int, most_bytes: int) -> None:
        self._decoder = decoder
        self._receive = receive
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._messages: list[Any] = []
        self._taken_bytes = 0
        self._failure: GrpcError | None = None
        self._ended = False
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()

    async def fill(self) -> bool:
        """Read to the end of the request; False where the client went away before it."""
        try:
            while not self._ended:
                event = await self._receive()
                if event["type"] == "http.disconnect":
                    return False
                self._decoder.feed(event.get("body", b""))
                while self._decode():
                    self._arrived.set()
                    await self._room()
                if not event.get("more_body", False):
                    self._decoder.finish()
                    self.end()
                elif self._messages:
                    self._arrived.set()
        except GrpcError as failure:
            self.end(failure)
        return True

    async def take(self) -> list[Any]:
        """All that has come; empty at the end of the stream, or the error that ended it."""
        while not self._messages and not self._ended:
            self._arrived.clear()
            await self._arrived.wait()
        if not self._messages and self._failure is not None:
            raise self._failure
        messages, self._messages = self._messages, []
        self._taken_bytes = self._decoder.decoded_bytes
        self._taken.set()
        return messages

    def end(self, failure: GrpcError | None = None) -> None:
        """Nothing more is read; what is here can still be taken."""
        if not self._ended:
            self._ended = True
            self._failure = failure
            self._arrived.set()
            self._taken.set()

    def _decode(self) -> bool:
        """Decode what there is room for, and tell whether more would be there."""
        room = self._most_bytes - (self._decoder.decoded_bytes - self._taken_bytes)
        return self._decoder.decode(self._messages, most_messages=self._most_messages, most_bytes=room)

    async def _room(self) -> None:
        while self._messages and not self._ended:
            self._taken.clear()
            await self._taken.wait()


class Call:
    """One call from its first byte to its status."""

    def __init__(self, *, context: CallContext, receive: Receive, reply: Reply, limits: Limits, encoding: str) -> None:
        self.context = context
        self._receive = receive
        self._reply = reply
        self._limits = limits
        self._encoding = encoding
        self._inbox: Inbox | None = None
        self._client_gone = False

    async def run(self, method: Method) -> None:
        """Run the handler until it is done, the client has gone or its deadline has passed.

        Raises `GrpcError` for the status to send, and `ClientGone` where there is nobody to send it to.
        """
        task = asyncio.current_task()
        assert task is not None
        most_messages = method.most_messages if isinstance(method, Bidirectional) else 2
        decoder = MessageDecoder(method.request, most_bytes=self._limits.message_bytes, encoding=self._encoding)
        self._inbox = Inbox(
            decoder, self._receive, most_messages=most_messages, most_bytes=self._limits.read_ahead_bytes
        )
        reader = asyncio.create_task(self._read(self._inbox, task))
        timeout = asyncio.timeout(self.context.seconds_left())
        try:
            async with timeout:
                await self._handle(method, self._inbox)
        except TimeoutError as error:
            if not timeout.expired():
                raise
            raise GrpcError(Status.DEADLINE_EXCEEDED, "the deadline of the call has passed") from error
        except asyncio.CancelledError:
            if not self._client_gone:
                raise
            task.uncancel()
            raise ClientGone from None
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    def drain(self) -> None:
        """Read no more; what was read is still handled and answered, and the client is sent elsewhere."""
        if self._inbox is not None:
            self._inbox.end(GrpcError(Status.UNAVAILABLE, "the service is stopping: connect again"))

    async def _read(self, inbox: Inbox, task: asyncio.Task[Any]) -> None:
        if await inbox.fill():
            while (await self._receive())["type"] != "http.disconnect":
                pass
        self._client_gone = True
        task.cancel()

    async def _handle(self, method: Method, inbox: Inbox) -> None:
        match method:
            case Unary():
                answer = await method.handle(self.context, await _only(inbox))
                await self._reply.messages([answer])
            case ServerStreaming():
                request = await _only(inbox)
                async with contextlib.aclosing(method.handle(self.context, request)) as batches:  # type: ignore[type-var]
                    async for batch in batches:
                        await self._reply.messages(batch)
            case Bidirectional():
                await self._reply.start()
                while batch := await inbox.take():
                    answers = await method.handle(self.context, batch)
                    if answers:
                        await self._reply.messages(answers)
        await self._reply.finish(Status.OK)


async def _only(inbox: Inbox) -> Any:
    """The one message of a request that is not a stream."""
    messages = await inbox.take()
    rest = await inbox.take() if messages else []
    if len(messages) + len(rest) != 1:
        raise GrpcError(Status.INTERNAL, f"one message is needed, and {len(messages) + len(rest)} or more came")
    return messages[0]
