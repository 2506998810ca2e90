"""gRPC services as one ASGI application."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from outrider.service.grpc.calls import Call, ClientGone, Limits, Receive, Reply, Send
from outrider.service.grpc.compression import IDENTITY, check_encoding
from outrider.service.grpc.deadlines import timeout_seconds
from outrider.service.grpc.methods import Bidirectional, CallContext, Method, Service
from outrider.service.grpc.status import GrpcError, Status

# Finds out who calls, from the metadata and the path of the method; raises GrpcError to refuse.
Authorise = Callable[[Mapping[str, str], str], Awaitable[Any]]
# The status for an error of the handlers; None where it is not known.
Translate = Callable[[Exception], GrpcError | None]

log = logging.getLogger(__name__)


class GrpcApp:
    """Serves gRPC over HTTP/2 from any ASGI server that can send trailers.

    app = GrpcApp([
        Service(name="urlfrontier.URLFrontier", file=urlfrontier_pb2.DESCRIPTOR, methods={
            "PutURLs": Bidirectional(request=URLItem, handle=put_urls),
        }),
    ])
    """

    def __init__(
        self,
        services: Iterable[Service],
        *,
        authorise: Authorise | None = None,
        translate: Translate | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._methods: dict[str, Method] = {
            f"/{service.name}/{name}": method for service in services for name, method in service.methods.items()
        }
        self._authorise = authorise
        self._translate = translate
        self._limits = limits or Limits()
        self._streams: set[Call] = set()
        self._draining = False

    def drain(self) -> None:
        """End the open streams once what they have sent is answered, and refuse new calls.

        Clients see UNAVAILABLE, after the answers to all that was read, and connect again.
        """
        self._draining = True
        for call in self._streams:
            call.drain()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one call."""
        if scope["type"] != "http":
            raise ValueError(f"gRPC is served over HTTP, not over {scope['type']}")
        metadata = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = _http_refusal(scope, metadata.get("content-type", ""))
        if refusal is not None:
            await _answer_http(send, *refusal)
            return
        encoding = metadata.get("grpc-encoding", IDENTITY)
        # Whoever compresses wants to save the wire, and can read what is compressed the same way.
        compressing = encoding == "gzip" and "gzip" in metadata.get("grpc-accept-encoding", "")
        reply = Reply(send, compressing=compressing)
        try:
            await self._call(scope, metadata, encoding, receive, reply)
        except ClientGone:
            return
        except GrpcError as error:
            await _finish(reply, error)
        except Exception as error:
            await _finish(reply, self._explained(error, scope["path"]))

    async def _call(
        self, scope: Any, metadata: Mapping[str, str], encoding: str, receive: Receive, reply: Reply
    ) -> None:
        path = scope["path"]
        method = self._methods.get(path)
        if method is None:
            raise GrpcError(Status.UNIMPLEMENTED, f"there is no method {path}")
        if self._draining:
            raise GrpcError(Status.UNAVAILABLE, "the service is stopping: connect again")
        check_encoding(encoding)
        timeout = timeout_seconds(metadata.get("grpc-timeout"))
        context = CallContext(
            path=path,
            metadata=metadata,
            client=scope.get("client"),
            principal=await self._authorise(metadata, path) if self._authorise else None,
            deadline=None if timeout is None else time.monotonic() + timeout,
        )
        call = Call(context=context, receive=receive, reply=reply, limits=self._limits, encoding=encoding)
        if not isinstance(method, Bidirectional):
            await call.run(method)
            return
        self._streams.add(call)
        try:
            await call.run(method)
        finally:
            self._streams.discard(call)

    def _explained(self, error: Exception, path: str) -> GrpcError:
        """The status for a handler's error; what nobody foresaw is logged, and not told to the client."""
        known = self._translate(error) if self._translate else None
        if known is None:
            log.error("%s failed", path, exc_info=error)
            return GrpcError(Status.INTERNAL, "the service failed; its log says why")
        return known


async def _finish(reply: Reply, error: GrpcError) -> None:
    try:
        await reply.finish(error.status, error.message)
    except ClientGone:
        return


def _http_refusal(scope: Any, content_type: str) -> tuple[int, str] | None:
    """The HTTP status and words for what is not gRPC at all."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in ("application/grpc", "application/grpc+proto"):
        return 415, f"gRPC calls have the content type application/grpc, not {kind[:100]!r}"
    if scope["method"] != "POST":
        return 405, f"gRPC calls are made by POST, not by {scope['method'][:20]}"
    if "http.response.trailers" not in scope.get("extensions", {}):
        return 505, "gRPC calls need HTTP/2"
    return None


async def _answer_http(send: Send, status: int, words: str) -> None:
    body = f"{words}\n".encode("utf-8", "replace")
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    if status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
