"""A receiver of webhooks on a real socket, which answers as a test wants it to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

LONG_S = 30.0
"""Nothing here takes so long, unless it hangs."""


class Delivered(NamedTuple):
    """One request that came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.headers["X-Outrider-Delivery"]

    @property
    def json(self) -> Any:
        """What it says."""
        return msgspec.json.decode(self.body)


Answer = Callable[[Delivered], Awaitable[web.Response]]


class Receiver:
    """Keeps every request, and answers each with the next of the answers, then always with 204."""

    def __init__(self) -> None:
        self.requests: list[Delivered] = []
        self.answers: list[Answer] = []
        self.url = ""
        self._changed = asyncio.Event()

    def answer(self, *statuses: int, **headers: str) -> None:
        """Have the next requests answered with these statuses."""
        for status in statuses:
            self.answers.append(_answer_with(status, headers))

    async def receive(self, request: web.Request) -> web.Response:
        """Take a request, as a handler of aiohttp."""
        delivered = Delivered(request.path, dict(request.headers), await request.read())
        self.requests.append(delivered)
        self._changed.set()
        answer = self.answers.pop(0) if self.answers else _answer_with(204, {})
        return await answer(delivered)

    async def has(self, number: int) -> list[Delivered]:
        """Wait until so many requests have come; give them."""
        async with asyncio.timeout(LONG_S):
            while len(self.requests) < number:
                self._changed.clear()
                await self._changed.wait()
        return self.requests


def _answer_with(status: int, headers: dict[str, str]) -> Answer:
    async def answer(_: Delivered) -> web.Response:
        return web.Response(status=status, headers=headers)

    return answer


async def never(_: Delivered) -> web.Response:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


@asynccontextmanager
async def receiver(port: int = 0) -> AsyncIterator[Receiver]:
    """Listen on a port of this machine."""
    receiving = Receiver()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", receiving.receive)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    receiving.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiving
    finally:
        await runner.cleanup()
