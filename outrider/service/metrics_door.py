"""A door for scrapers: the health and the metrics of a process that serves nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.types import Receive, Scope, Send

from outrider.service.app import Service
from outrider.service.server import Server, ServerOptions

PATHS: Final = frozenset({"/metrics", "/healthz", "/readyz"})
NOWHERE: Final = "/nowhere"
"""A path that no service has, so that it answers as for any that it does not know."""


@asynccontextmanager
async def open_metrics_door(service: Service, host: str, port: int) -> AsyncIterator[str]:
    """Serve metrics and health of a service for as long as this is entered; give the address."""

    async def only_metrics(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PATHS:
            scope = {**scope, "path": NOWHERE, "raw_path": NOWHERE.encode()}
        await service(scope, receive, send)

    async with Server(only_metrics, ServerOptions(host=host, port=port)) as server:
        yield server.base_url
