"""The HTTP API as one Starlette application."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from outrider.model.api_key import Role
from outrider.service import metrics, problems
from outrider.service.http import crawls, domains, explaining, importing, jobs, openapi, urls, working
from outrider.service.http.endpoint import Backend, Call, Endpoint, carry_out, without_body
from outrider.service.http.wire import Health
from outrider.service.problems import MEDIA_TYPE, PREFIX, Problem


async def healthz(call: Call) -> Health:
    """Tell that the process lives."""
    return Health()


async def readyz(call: Call) -> Health:
    """Tell whether the store answers."""
    await call.backend.stores.urls.list_crawls()
    return Health()


async def show_metrics(call: Call) -> Response:
    """Write the metrics down for Prometheus."""
    text = await call.backend.metrics.exposition(call.backend.stores)
    return Response(text, headers={"content-type": metrics.MEDIA_TYPE})


ENDPOINTS: Final = (
    *working.ENDPOINTS,
    *crawls.ENDPOINTS,
    *urls.ENDPOINTS,
    *explaining.ENDPOINTS,
    *importing.ENDPOINTS,
    *jobs.ENDPOINTS,
    *domains.ENDPOINTS,
    Endpoint(
        method="GET", path="/healthz", summary="Whether the process lives.", handler=healthz, role=None, gives=Health
    ),
    Endpoint(
        method="GET", path="/readyz", summary="Whether the store answers.", handler=readyz, role=None, gives=Health
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        summary="Metrics for Prometheus.",
        handler=show_metrics,
        role=Role.READ,
        media="text/plain",
    ),
)


class Segment(Convertor[str]):
    """One part of a path. Names may hold slashes, so that paths are matched as they were sent, and decoded after."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Decode what stands between two slashes."""
        return unquote(value)

    def to_string(self, value: str) -> str:
        """Encode a name so that it stands between two slashes."""
        return quote(value, safe="")


register_url_convertor("segment", Segment())


def make_routes(backend: Backend) -> Starlette:
    """Make the API over a backend."""
    by_path: defaultdict[str, dict[str, Endpoint]] = defaultdict(dict)
    for endpoint in ENDPOINTS:
        by_path[endpoint.path][endpoint.method] = endpoint
    api = openapi.description(ENDPOINTS)
    documents = (
        ("/openapi.json", openapi.encoded(api), "application/json"),
        ("/docs", openapi.page(api).encode(), "text/html; charset=utf-8"),
    )
    # The more exact comes first: `urls/explain` before anything that could be read as a name.
    routes: list[BaseRoute] = [_route(backend, path, methods) for path, methods in by_path.items()]
    routes += [Route(path, _document(body, media)) for path, body, media in documents]
    handlers = {HTTPException: _refused, Exception: _failed}
    return Starlette(routes=routes, exception_handlers=handlers)  # type: ignore[arg-type]


def _route(backend: Backend, path: str, methods: dict[str, Endpoint]) -> Route:
    async def answer(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await carry_out(backend, methods[method], request)

    return Route(path.replace("}", ":segment}"), answer, methods=list(methods))


def _document(body: bytes, media: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        response = Response(body, headers={"content-type": media})
        return without_body(response) if request.method == "HEAD" else response

    return answer


def _refused(_: Request, error: HTTPException) -> Response:
    """Answer for what no endpoint was found."""
    word, title = {
        404: ("not-found", "There is nothing here"),
        405: ("method-not-allowed", "The path does not take this method"),
    }.get(error.status_code, ("refused", "The request was refused"))
    problem = Problem(type=PREFIX + word, title=title, status=error.status_code, detail=f"{title}; see /docs.")
    return Response(
        problems.encoded(problem), error.status_code, headers=dict(error.headers or {}), media_type=MEDIA_TYPE
    )


def _failed(_: Request, __: Exception) -> Response:
    """Answer for a mistake of ours; what it was stands in the log."""
    problem = Problem(type=f"{PREFIX}internal", title="The service made a mistake", status=500, detail="See its log.")
    return Response(problems.encoded(problem), 500, media_type=MEDIA_TYPE)
