"""The whole service as one ASGI application: the HTTP API, and gRPC for whoever speaks it, behind one door.

    request --+-- application/grpc --> the gRPC application
              +-- anything else -----> the HTTP API

Both ask the same keys. The application opens nothing by itself: `open_service` does, and closes it again.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from starlette.types import Receive, Scope, Send

from outrider.frontier.claiming import Claiming
from outrider.frontier.local import LocalFrontier
from outrider.model.settings import Settings
from outrider.service.grpc.app import GrpcApp
from outrider.service.grpc.health import Health
from outrider.service.grpc.reflection import reflection_services
from outrider.service.http.endpoint import MAX_BODY_BYTES, Backend, problem_response
from outrider.service.http.routes import make_routes
from outrider.service.keys import DEFAULT_RATE, Keys, Principal
from outrider.service.metrics import Metrics
from outrider.service.problems import HeadersTooLarge
from outrider.service.urlfrontier import URLFrontier, translated
from outrider.store.opening import open_store

MAX_HEADER_BYTES: Final = 12 * 1024
"""Less than the server takes, so that the answer is a problem and not a closed connection."""
GRPC: Final = b"application/grpc"
HEALTH: Final = "/grpc.health.v1.Health/"


class Service:
    """One service: hand it to an ASGI server."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._http = make_routes(backend)
        node = socket.gethostname()
        frontier = URLFrontier(backend.stores.urls, node=node, add=backend.add, put_known=backend.put_known).service
        self._health = Health([frontier.name])
        services = [frontier, self._health.service]
        self._grpc = GrpcApp(
            [*services, *reflection_services(services)], authorise=self._principal, translate=translated
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        headers = dict(scope["headers"])
        if headers.get(b"content-type", b"").startswith(GRPC):
            await self._grpc(scope, receive, send)
            return
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size > MAX_HEADER_BYTES:
            error = HeadersTooLarge(f"the headers have {size} bytes, allowed are {MAX_HEADER_BYTES}")
            await problem_response(error)(scope, receive, send)
            return
        scope["path"] = scope.get("raw_path", scope["path"].encode()).partition(b"?")[0].decode("latin-1")
        await self._http(scope, receive, send)

    def stop(self) -> None:
        """Send home whoever waits for work and end the streams, so that the server can close its connections."""
        self.backend.stopping.set()
        self._health.stop()
        self._grpc.drain()

    async def _principal(self, metadata: Mapping[str, str], path: str) -> Principal | None:
        """Tell who calls over gRPC; whoever asks for our health needs no key, as with `/healthz`."""
        if path.startswith(HEALTH):
            return None
        return await self.backend.keys.principal(metadata.get("authorization"), metadata.get("host", ""))


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


@asynccontextmanager
async def open_service(
    dsn: str,
    settings: Settings | None = None,
    *,
    only_local: bool = True,
    rate: float = DEFAULT_RATE,
    max_body_bytes: int = MAX_BODY_BYTES,
    allow_private: bool = False,
) -> AsyncIterator[Service]:
    """Open a store and serve it.

    `only_local` says that nobody but this machine can reach the service: such a one needs no keys until there are
    some. All others need them always. `allow_private` lets clients add URLs of private addresses.
    """
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(await open_store(dsn, settings))
        claiming = Claiming(stores.control, settings or Settings())
        frontier = await stack.enter_async_context(LocalFrontier(stores.urls, claiming=claiming))
        keys = Keys(stores.control, open_without_keys=only_local, rate=rate)
        backend = Backend(stores, frontier, keys, Metrics(), asyncio.Event(), max_body_bytes, allow_private)
        yield Service(backend)
