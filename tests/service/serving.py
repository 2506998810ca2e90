"""A real service on a real socket, for tests of HTTP."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import uvloop
from yarl import URL

from outrider.model.settings import Settings
from outrider.service.app import Service, open_service
from outrider.service.server import Server, ServerOptions


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str
    json: Any
    """None where the body is none."""


class Served:
    """A service, and a client that sends exactly what it is told."""

    def __init__(self, service: Service, base_url: str, session: aiohttp.ClientSession) -> None:
        self.service = service
        self.base_url = base_url
        self._session = session

    async def ask(self, method: str, path: str, json: Any = None, **more: Any) -> Answer:
        """Send a request; the path is sent as it is written."""
        url = URL(self.base_url + path, encoded=True)
        async with self._session.request(method, url, json=json, **more) as response:
            text = await response.text()
            headers = {name.lower(): value for name, value in response.headers.items()}
            is_json = headers.get("content-type", "") in ("application/json", "application/problem+json")
            return Answer(response.status, headers, text, await response.json(content_type=None) if is_json else None)

    async def crawl(self, name: str = "news", **limits: Any) -> None:
        """Create a crawl that waits for nothing."""
        body = {"limits": {"delay_ms": 0, "concurrency": 100, "robots": False} | limits}
        assert (await self.ask("PUT", f"/v1/crawls/{name}", body)).status == 200

    async def add(self, *urls: str, crawl: str = "news", **fields: Any) -> list[str]:
        """Add URLs; tell what became of each."""
        answer = await self.ask(
            "POST", f"/v1/crawls/{crawl}/discovered", {"items": [{"url": url, **fields} for url in urls]}
        )
        return [result["outcome"] for result in answer.json["results"]]

    async def lease(self, crawl: str = "news", **fields: Any) -> Any:
        """Lease; give the answer's body."""
        body = {"worker": "w", "request_id": "r", "slots": 10} | fields
        answer = await self.ask("POST", f"/v1/crawls/{crawl}/lease", body)
        assert answer.status == 200, answer.text
        return answer.json

    async def somebody_waits(self, *, is_so: bool = True) -> None:
        """Wait until a request waits for work, or until none does."""
        turns = self.service.backend.frontier._turns
        async with asyncio.timeout(10):
            while True:
                if any(turn.locked() for turn in turns.values()) == is_so:
                    return
                await asyncio.sleep(0.005)


class Port:
    """A server that stays while the services behind it come and go: to stop one takes a fifth of a second."""

    def __init__(self) -> None:
        self._service: Service | None = None
        self.base_url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hand a request on."""
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        assert self._service is not None
        await self._service(scope, receive, send)

    @asynccontextmanager
    async def serving(
        self, folder: Path | str, settings: Settings | None = None, **options: Any
    ) -> AsyncIterator[Served]:
        """Serve a fresh store in a folder, or the one that is there; or a store of this DSN."""
        dsn = folder if isinstance(folder, str) else f"sqlite:///{folder}/outrider.sqlite"
        async with (
            open_service(dsn, settings, **options) as service,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session,
        ):
            self._service = service
            yield Served(service, self.base_url, session)


@asynccontextmanager
async def open_port() -> AsyncIterator[Port]:
    """Listen on a port of this machine."""
    port = Port()
    async with Server(port, ServerOptions(port=0)) as server:
        port.base_url = server.base_url
        yield port


@contextmanager
def served_by_a_thread(folder: Path) -> Iterator[Server]:
    """Serve a store in `folder` from a thread of its own, for clients that do not share the test's loop."""
    ready, servers = threading.Event(), []
    loop, stop = uvloop.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with (
            open_service(f"sqlite:///{folder}/outrider.sqlite") as service,
            Server(service, ServerOptions(port=0, drain_s=1), on_stop=[service.stop]) as server,
        ):
            servers.append(server)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield servers[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
    assert not thread.is_alive()
    loop.close()
