"""The description of the API (OpenAPI 3.1) and a page for people, both from the table of endpoints."""

import html
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from outrider import __version__
from outrider.service.http.endpoint import JSON_LINES, Endpoint
from outrider.service.problems import MEDIA_TYPE, Problem

REFERENCE: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"{(\w+)}")
_PROBLEMS: Final = {
    "400": "The body is not JSON.",
    "401": "A valid API key is needed.",
    "403": "The API key is not good for this.",
    "404": "There is no such crawl, job, domain or path.",
    "409": "It contradicts what is there.",
    "413": "The request is too large.",
    "415": "The body is of another kind.",
    "422": "A value is not of the form that it must have.",
    "429": "The key asks too often, or has used up a quota; see `retry-after`.",
    "503": "The store is out of reach; ask again.",
    "507": "The store has no room left.",
}

Json = dict[str, Any]


def description(endpoints: Iterable[Endpoint]) -> Json:
    """Describe the API."""
    served = list(endpoints)
    types = dict.fromkeys(each for endpoint in served for each in (endpoint.takes, endpoint.gives) if each is not None)
    schemas, components = msgspec.json.schema_components(
        [*types, Problem], schema_hook=_schema_of_anything, ref_template=REFERENCE
    )
    schema_of: Mapping[type, Json] = dict(zip((*types, Problem), schemas, strict=True))
    paths: dict[str, Json] = {}
    for endpoint in served:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Outrider",
            "version": __version__,
            "description": "A crawl frontier: add URLs, lease what may be fetched, report what became of it.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}},
        },
    }


def _schema_of_anything(kind: type) -> Json:
    if kind is not object:
        raise NotImplementedError
    return {"description": "Any value."}


def _operation(endpoint: Endpoint, schema_of: Mapping[type, Json]) -> Json:
    names = _PARAMETER.findall(endpoint.path)
    operation: Json = {
        "operationId": endpoint.name + ("" if "crawl" in names or not _is_twice(endpoint) else "_by_token"),
        "summary": endpoint.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in names
        ]
        + _query(endpoint.query)
        + [
            {"name": name, "in": "header", "required": False, "schema": {"type": "string"}} for name in endpoint.headers
        ],
        "responses": {str(endpoint.status): _success(endpoint, schema_of)},
    }
    operation["responses"] |= {
        status: {"description": text, "content": {MEDIA_TYPE: {"schema": schema_of[Problem]}}}
        for status, text in _PROBLEMS.items()
    }
    if endpoint.role is not None:
        # Beside `key` stands nothing at all: a service on this machine that has no keys asks for none.
        operation["security"] = [{"key": []}, {}]
        operation["description"] = f"Needs a key with the role `{endpoint.role}`, where the service has keys."
    if endpoint.takes is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {endpoint.takes_media: {"schema": schema_of[endpoint.takes]}},
        }
    elif endpoint.takes_media == JSON_LINES:
        operation["requestBody"] = {"required": True, "content": {JSON_LINES: {"schema": {"type": "string"}}}}
    return operation


def _is_twice(endpoint: Endpoint) -> bool:
    return endpoint.name in ("renew", "report", "release")


def _success(endpoint: Endpoint, schema_of: Mapping[type, Json]) -> Json:
    content: Json = {}
    if endpoint.gives is not None:
        content[endpoint.media] = {"schema": schema_of[endpoint.gives]}
        if endpoint.query is not None and "stream" in endpoint.query.__struct_fields__:
            content[JSON_LINES] = {"schema": {"type": "string"}}
    else:
        content[endpoint.media] = {"schema": {"type": "string"}}
    return {"description": endpoint.summary, "content": content}


def _query(kind: type[msgspec.Struct] | None) -> list[Json]:
    if kind is None:
        return []
    (_, components) = msgspec.json.schema_components([kind], ref_template=REFERENCE)
    schema = components[kind.__name__]
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(_whole(value, components))}
        for name, value in schema["properties"].items()
    ]


def _whole(schema: Json, components: Mapping[str, Json]) -> Json:
    """Put what a parameter refers to in its place: records of queries are not among the described ones."""
    if "anyOf" in schema:
        return schema | {"anyOf": [_whole(choice, components) for choice in schema["anyOf"]]}
    if "$ref" not in schema:
        return schema
    referred = components[schema["$ref"].rpartition("/")[2]]
    return {**referred, **{name: value for name, value in schema.items() if name != "$ref"}}


def _without_null(schema: Json) -> Json:
    """Describe a parameter: it can be left out, but a query has no null."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        schema = {name: value for name, value in schema.items() if name != "anyOf"} | choices[0]
    if "enum" in schema:
        schema = schema | {"enum": [each for each in schema["enum"] if each is not None]}
    return {name: value for name, value in schema.items() if not (name == "default" and value is None)}


def encoded(api: Json) -> bytes:
    """Write the description down."""
    return msgspec.json.encode(api)


def page(api: Json) -> str:
    """Write the description as a page that needs nothing from elsewhere."""
    rows = []
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            rows.append(
                f"<section><h2><code>{method.upper()}</code> <code>{html.escape(path)}</code></h2>"
                f"<p>{html.escape(operation['summary'])} {html.escape(operation.get('description', ''))}</p>"
                f"{_parameters(operation)}{_bodies(operation)}</section>"
            )
    schemas = "".join(
        f"<details id='{name}'><summary>{name}</summary><pre>{_pretty(schema)}</pre></details>"
        for name, schema in sorted(api["components"]["schemas"].items())
    )
    return _PAGE.format(version=html.escape(api["info"]["version"]), rows="".join(rows), schemas=schemas)


def _parameters(operation: Json) -> str:
    items = "".join(
        f"<li><code>{html.escape(each['name'])}</code> ({each['in']}) {html.escape(_brief(each['schema']))}</li>"
        for each in operation["parameters"]
    )
    return f"<ul>{items}</ul>" if items else ""


def _bodies(operation: Json) -> str:
    taken = operation.get("requestBody", {}).get("content", {})
    given = next(answer for status, answer in operation["responses"].items() if status < "300")["content"]
    return "".join(
        f"<p>{verb} {html.escape(media)}: {_link(content['schema'])}</p>"
        for verb, contents in (("Takes", taken), ("Gives", given))
        for media, content in contents.items()
    )


def _link(schema: Json) -> str:
    name = html.escape(str(schema.get("$ref", "")).rpartition("/")[2])
    return f"<a href='#{name}'>{name}</a>" if name else html.escape(_brief(schema))


def _brief(schema: Json) -> str:
    if "enum" in schema:
        return " | ".join(str(each) for each in schema["enum"])
    return str(schema.get("type", ""))


def _pretty(schema: Json) -> str:
    return html.escape(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())


_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Outrider API</title>
<meta name="viewport" content="width=device-width">
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}
h2{{font-size:1rem;margin:1.5rem 0 0}}p,ul{{margin:.2rem 0}}pre{{overflow:auto}}</style>
<h1>Outrider {version}</h1>
<p>The same for programs: <a href="openapi.json">openapi.json</a>. Every error is a problem of RFC 9457.</p>
{rows}<h1>Records</h1>{schemas}</html>"""
