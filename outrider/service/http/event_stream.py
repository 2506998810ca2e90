"""Server-sent events: how they are written, kept alive, ended, and read again.

A stream that ends may be asked for again with the id of its last event; where nothing can follow any more the answer is
204, upon which browsers stop asking.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec
from starlette.responses import Response, StreamingResponse

from outrider.control.job_events import JobEvent
from outrider.model.errors import InvalidInput, OutriderError, shown

EVENT_STREAM: Final = "text/event-stream"
KEEP_ALIVE_S: Final = 15.0
"""How long a stream may be silent before it says that it is there."""
RETRY_MS: Final = 1_000
"""After how long browsers ask again."""
LARGEST_ID: Final = 2**63 - 1

_KEEP_ALIVE: Final = b": still there\n\n"
_encode: Final = msgspec.json.Encoder().encode


async def stream(
    events: AsyncIterator[JobEvent], stopping: asyncio.Event, still_allowed: Callable[[], Awaitable[object]]
) -> Response:
    """Answer with events for as long as there are some, or until the service is about to stop.

    The first one is waited for before the answer begins, which can then still be an error. `still_allowed` is asked
    whenever the stream is kept alive, and raises where the key was revoked in the meantime.
    """
    first = await anext(events, None)
    if first is None:
        return Response(status_code=204)
    # Proxies that gather answers would keep events back.
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_written(first, events, stopping, still_allowed), media_type=EVENT_STREAM, headers=headers)


async def _written(
    first: JobEvent,
    events: AsyncIterator[JobEvent],
    stopping: asyncio.Event,
    still_allowed: Callable[[], Awaitable[object]],
) -> AsyncIterator[bytes]:
    yield b"retry: %d\n\n" % RETRY_MS + written(first)
    stopped = asyncio.create_task(stopping.wait())
    coming = asyncio.create_task(_next(events))
    try:
        while True:
            await asyncio.wait((coming, stopped), timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                return
            if not coming.done():
                await still_allowed()
                yield _KEEP_ALIVE
                continue
            event = coming.result()
            if event is None:
                return
            yield written(event)
            coming = asyncio.create_task(_next(events))
    except OutriderError:
        return  # whoever asks again is told what it was
    finally:
        for task in (stopped, coming):
            task.cancel()
        await asyncio.gather(stopped, coming, return_exceptions=True)


async def _next(events: AsyncIterator[JobEvent]) -> JobEvent | None:
    return await anext(events, None)


def written(event: JobEvent) -> bytes:
    """Write an event down: JSON has no line ends in it."""
    number = b"" if event.id is None else b"id: %d\n" % event.id
    return b"%sevent: %s\ndata: %s\n\n" % (number, event.kind.encode(), _encode(event.data))


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[JobEvent]:
    """Read events again; what is no event of ours, such as a comment, is passed over."""
    fields: dict[bytes, bytes] = {}
    async for line in lines_of(chunks):
        if line:
            name, _, value = line.partition(b":")
            fields[name] = value.removeprefix(b" ")
            continue
        if fields.get(b"event") in (b"state", b"progress"):
            number = int(fields[b"id"]) if b"id" in fields else None
            data = msgspec.json.decode(fields[b"data"], type=dict[str, object])
            yield msgspec.convert({"kind": fields[b"event"].decode(), "id": number, "data": data}, JobEvent)
        fields.clear()


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Cut a stream into its whole lines, without their ends; a torn last one is left out."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


def last_event_id(header: str | None) -> int | None:
    """Read where a client goes on; raises `InvalidInput` for what is no id of ours."""
    if header is None or header == "":
        return None
    is_number = header.isascii() and header.isdecimal() and len(header) <= len(str(LARGEST_ID))
    if not is_number or int(header) > LARGEST_ID:
        raise InvalidInput(f"last-event-id is the number of an event, not {shown(header)}")
    return int(header)
