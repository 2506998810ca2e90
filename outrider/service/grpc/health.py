"""The service `grpc.health.v1.Health`: what load balancers and orchestrators ask."""

import asyncio
import enum
from collections.abc import AsyncIterator, Iterable
from typing import Any

from outrider.service.grpc.definitions import HEALTH, message_class
from outrider.service.grpc.methods import CallContext, Method, ServerStreaming, Service, Unary
from outrider.service.grpc.status import GrpcError, Status

_Request = message_class(HEALTH, "HealthCheckRequest")
_Response = message_class(HEALTH, "HealthCheckResponse")


class Serving(enum.IntEnum):
    """The statuses of a service, with the numbers of the health protocol."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


class Health:
    """The status of each service, and of the whole server under the empty name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._statuses = dict.fromkeys(["", *names], Serving.SERVING)
        self._changed = asyncio.Event()
        self._stopped = False

    @property
    def service(self) -> Service:
        """What to give to a `GrpcApp`."""
        methods: dict[str, Method] = {
            "Check": Unary(request=_Request, handle=self._check),
            "Watch": ServerStreaming(request=_Request, handle=self._watch),
        }
        return Service(name="grpc.health.v1.Health", methods=methods, file=HEALTH)

    def set(self, status: Serving, *names: str) -> None:
        """Change the status of some services, or of all where none is named, and tell who watches."""
        self._statuses.update(dict.fromkeys(names or list(self._statuses), status))
        self._changed.set()
        self._changed = asyncio.Event()

    def stop(self) -> None:
        """Say that nothing is served any more, and let those who watch go."""
        self._stopped = True
        self.set(Serving.NOT_SERVING)

    async def _check(self, _context: CallContext, request: Any) -> Any:
        status = self._statuses.get(request.service)
        if status is None:
            raise GrpcError(Status.NOT_FOUND, f"there is no service {request.service[:100]!r}")
        return _Response(status=status)

    async def _watch(self, _context: CallContext, request: Any) -> AsyncIterator[list[Any]]:
        told = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, Serving.SERVICE_UNKNOWN)
            if status != told:
                told = status
                yield [_Response(status=status)]
            if self._stopped:
                return
            await changed.wait()
