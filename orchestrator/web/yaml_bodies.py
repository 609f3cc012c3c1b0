"""Search-space files as the body of a request, in YAML (RFC 9512), beside the same request in JSON.

    curl -H "Content-Type: application/yaml" --data-binary @small.yaml .../api/v1/sweeps?name=small

The file is the `text` of the JSON body; every other key of that body is a parameter of the address.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import Request
from fastapi.datastructures import Headers
from fastapi.responses import Response
from fastapi.routing import APIRoute

from orchestrator.errors import BadInput
from orchestrator.web.problems import UnknownMediaType

YAML, JSON = "application/yaml", "application/json"

_WITH_YAML = f"With a body in {YAML} only, where it stands for the same key of the JSON body."


def _parameter(name: str, schema: Mapping[str, Any], more: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": False,
        "schema": schema,
        "description": f"{_WITH_YAML}{more}",
    }


def described(switch: str) -> dict[str, Any]:
    """Return what OpenAPI says of a file in YAML.

    Args:
        switch: the key of the JSON body that is true or false.
    """
    return {
        "requestBody": {
            "content": {YAML: {"schema": {"type": "string", "description": "The search-space file."}}}
        },
        "parameters": [
            _parameter("name", {"type": "string"}, " It must then be given."),
            _parameter("profile", {"type": "string", "default": "auto"}),
            _parameter("overrides", {"type": "array", "items": {"type": "string"}}, " It may be repeated."),
            _parameter(switch, {"type": "boolean", "default": False}),
        ],
    }


class FileRoute(APIRoute):
    """A route that receives a search-space file, in JSON or in YAML."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of FastAPI, which receives a body in YAML as the same request in JSON."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == YAML:
                return await handler(_in_json(request, await request.body()))
            if kind == JSON:
                return await handler(request)
            must, remedy = f"must be {JSON} or {YAML}", "Name the format of the body."
            raise UnknownMediaType("Content-Type", must, kind or "nothing", remedy)

        return handle


def _in_json(request: Request, content: bytes) -> Request:
    """Return the request whose body in JSON says the same."""
    try:
        body: dict[str, Any] = {**request.query_params, "text": content.decode("utf-8-sig")}
    except UnicodeDecodeError as error:
        raise BadInput(
            "body", "must be UTF-8", f"another byte at {error.start}", "Save it as UTF-8."
        ) from None
    if "text" in request.query_params:
        raise BadInput(
            "query.text", "must be left out of a request in YAML", "a text", "Send it as the body."
        )
    if overrides := request.query_params.getlist("overrides"):
        body["overrides"] = overrides
    translated = json.dumps(body).encode()
    headers = Headers(request.headers).mutablecopy()
    headers["content-type"], headers["content-length"] = JSON, str(len(translated))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": translated, "more_body": False}

    return Request({**request.scope, "headers": headers.raw}, receive)
