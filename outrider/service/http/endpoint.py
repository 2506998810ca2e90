"""Endpoints: what each takes and gives, who may call it, and how a call is carried out."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from outrider.frontier.local import LocalFrontier
from outrider.model.api_key import Role
from outrider.model.batch import KnownUrl
from outrider.model.errors import InvalidInput, LimitExceeded, OutriderError
from outrider.model.task import AddResult, Discovered, Restored
from outrider.service import problems
from outrider.service.keys import ANYBODY, Keys, Principal
from outrider.service.metrics import Metrics
from outrider.service.private import add_public
from outrider.service.problems import BadRequest, UnsupportedMedia
from outrider.store.opening import Stores

logger = logging.getLogger(__name__)

Query = TypeVar("Query", bound=msgspec.Struct)

JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"
MAX_BODY_BYTES: Final = 32 * 1024 * 1024

_encode: Final = msgspec.json.Encoder().encode


class Backend(NamedTuple):
    """What the endpoints work on."""

    stores: Stores
    frontier: LocalFrontier
    keys: Keys
    metrics: Metrics
    stopping: asyncio.Event
    """Set when the service is about to stop: whoever waits for work is sent home."""
    max_body_bytes: int = MAX_BODY_BYTES
    allow_private: bool = False
    """Take URLs of private addresses too."""

    async def add(self, crawl: str, items: Sequence[Discovered]) -> list[AddResult]:
        """Add what a client offers, as far as this service takes it; one answer for each item, in order."""
        if self.allow_private:
            results = await self.frontier.add(crawl, items)
        else:
            results = await add_public(self.frontier.add, crawl, items)
        self.metrics.added(results)
        return results

    async def put_known(self, crawl: str, items: Sequence[KnownUrl]) -> list[AddResult]:
        """Set what a batch client knows, as far as this service takes it; one answer for each item, in order."""
        put = self.stores.urls.put_known
        results = await (put(crawl, items) if self.allow_private else add_public(put, crawl, items))
        self.frontier.tell()
        self.metrics.added(results)
        return results

    async def restore(self, crawl: str, items: Sequence[Restored]) -> list[AddResult]:
        """Store what an export told of, as far as this service takes it; one answer for each item, in order."""
        put = self.stores.urls.restore
        results = await (put(crawl, items) if self.allow_private else add_public(put, crawl, items))
        self.frontier.tell()
        self.metrics.added(results)
        return results


class Call(NamedTuple):
    """One request, after its key was checked and its body read."""

    backend: Backend
    principal: Principal
    request: Request
    body: Any
    """Of the type that the endpoint takes, or what its `plain` form is."""
    received_at: float
    """`time.monotonic()`"""

    @property
    def crawl(self) -> str:
        """The crawl that the path names."""
        return str(self.request.path_params["crawl"])

    def query(self, kind: type[Query]) -> Query:
        """Read the query as a record, or raise `InvalidInput`."""
        try:
            return msgspec.convert(dict(self.request.query_params), kind, strict=False)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at ")
            where = place.strip("`").removeprefix("$.")
            raise InvalidInput(f"the query is not right: {where + ': ' if where else ''}{message}") from None


Handler = Callable[[Call], Awaitable[msgspec.Struct | Response]]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    path: str
    """With `{crawl}`, `{key}`, `{domain}` and `{job}` in it."""
    summary: str
    handler: Handler
    role: Role | None = Role.READ
    """None where no key is needed."""
    takes: type[msgspec.Struct] | None = None
    plain: type[msgspec.Struct] | None = None
    """What our own client sends: tried first, since it needs no step from it to the frontier's records."""
    gives: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] | None = None
    media: str = JSON
    """Of the answer."""
    takes_media: str = JSON
    status: int = 200
    """Of a success."""
    location: str | None = None
    """Where what was made is found, below this path and by its id."""
    headers: tuple[str, ...] = ()
    """Headers of a request that it knows, all of which may be left out."""

    @property
    def name(self) -> str:
        """Its name in metrics and in the description."""
        return self.handler.__name__


class BodyRefused(InvalidInput):
    """A body that is JSON, but not of the form that the endpoint takes."""

    def __init__(self, message: str, at: str) -> None:
        super().__init__(message)
        self.at = at


async def carry_out(backend: Backend, endpoint: Endpoint, request: Request) -> Response:
    """Check the key, read the body, call the handler and write its answer down."""
    received_at = time.monotonic()
    status = 500
    try:
        principal = await _admitted(backend, endpoint, request)
        body = await _body(endpoint, request, backend.max_body_bytes)
        answer = await endpoint.handler(Call(backend, principal, request, body, received_at))
        response = answer if isinstance(answer, Response) else _success(endpoint, answer)
        status = response.status_code
    except OutriderError as error:
        response = problem_response(error)
        status = response.status_code
        if status >= 500:
            logger.warning("%s: %s", endpoint.name, error)
    except ClientDisconnect:
        status = 499
        return Response(status_code=499)
    finally:
        backend.metrics.answered(endpoint.name, status, time.monotonic() - received_at)
    return without_body(response) if request.method == "HEAD" else response


def _success(endpoint: Endpoint, answer: Any) -> Response:
    headers = None if endpoint.location is None else {"location": f"{endpoint.location}/{answer.id}"}
    return Response(_encode(answer), endpoint.status, headers=headers, media_type=JSON)


async def _admitted(backend: Backend, endpoint: Endpoint, request: Request) -> Principal:
    if endpoint.role is None:
        return ANYBODY
    headers = request.headers
    principal = await backend.keys.principal(headers.get("authorization"), headers.get("host", ""))
    principal.check(endpoint.role, request.path_params.get("crawl"))
    return principal


def problem_response(error: OutriderError) -> Response:
    """Answer with what was wrong."""
    problem = problems.problem_of(error, at=getattr(error, "at", None))
    return Response(
        problems.encoded(problem), problem.status, headers=problems.headers_of(error), media_type=problems.MEDIA_TYPE
    )


def without_body(response: Response) -> Response:
    """Answer HEAD as GET, without the body."""
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    return Response(status_code=response.status_code, headers=headers)


async def _body(endpoint: Endpoint, request: Request, most: int) -> msgspec.Struct | None:
    if endpoint.takes is None:
        return None
    check_media(request, endpoint.takes_media)
    return decoded(await read_bounded(request, most), endpoint.takes, endpoint.plain)


def check_media(request: Request, wanted: str) -> None:
    """Raise `UnsupportedMedia` where a body is of another kind than the endpoint reads."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != wanted:
        raise UnsupportedMedia(f"send the body as {wanted}, not as {media[:100] or 'something unnamed'}")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMedia(f"send the body as it is, not encoded as {encoding[:100]}")


async def read_bounded(request: Request, most: int) -> bytes:
    """Read a whole body, or raise `LimitExceeded` as soon as it is known to be too long."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > most:
        raise LimitExceeded(f"the body has {announced[:20]} bytes, allowed are {most}")
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise LimitExceeded(f"the body has more than {most} bytes, which are allowed")
        chunks.append(chunk)
    return b"".join(chunks)


def decoded(body: bytes, takes: type[msgspec.Struct], plain: type[msgspec.Struct] | None) -> msgspec.Struct:
    """Read JSON as a record; raises `BadRequest` where it is none and `BodyRefused` where it is another."""
    try:
        if plain is not None:
            try:
                return msgspec.json.decode(body, type=plain)
            except msgspec.ValidationError:
                read: Any = msgspec.json.decode(body, type=takes)
                return read.plain()  # type: ignore[no-any-return]
        return msgspec.json.decode(body, type=takes)
    except msgspec.ValidationError as error:
        message, _, place = str(error).rpartition(" - at ")
        raise BodyRefused(message or place, place.strip("`") if message else "$") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
