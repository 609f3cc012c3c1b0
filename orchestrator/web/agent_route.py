"""Route of the Model Context Protocol: tools that send requests to the API of this server.

A tool sends its requests with the credentials of the request that has called it, so the same table of roles,
the same limits and the same idempotency keys hold.

Source: Model Context Protocol, https://modelcontextprotocol.io/specification, section Transports.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import cache
from http import HTTPStatus
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote

from anyio import from_thread, to_thread
from fastapi import APIRouter, Request, Response
from starlette.types import Message, Receive, Scope, Send

from orchestrator.client.http import ApiBackend, refusal_of
from orchestrator.errors import NotFound
from orchestrator.web.access import CHANGE_HEADER

ROUTER = APIRouter(include_in_schema=False)

PATH = "/mcp"
"""Path of the tools, at the root of the server."""

_LOG = logging.getLogger(__name__)

_CREDENTIALS = frozenset({b"host", b"authorization", b"cookie", b"origin", CHANGE_HEADER.encode()})

_CALLER: ContextVar[Request] = ContextVar("caller")
"""Request that calls a tool."""


class CallerBackend(ApiBackend):
    """The API of this server, with the credentials of the request that calls a tool."""

    def _answer(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        caller = _CALLER.get()
        scope = _scope(caller, method, f"/api/v1{path}", {**headers, "content-length": str(len(content))})
        status, answer = from_thread.run(_answered, caller.app, scope, content)
        if status >= HTTPStatus.BAD_REQUEST:
            raise refusal_of(self.url, status, HTTPStatus(status).phrase, answer)
        return answer


@ROUTER.post(PATH)
async def agent_tools(request: Request) -> Response:
    """Answer a message of the Model Context Protocol."""
    if find_spec("mcp") is None:
        remedy = "An admin installs `rotrnn-sweeps[agents]` on the machine of the service."
        raise NotFound(PATH, "needs the SDK of the Model Context Protocol", "no package mcp", remedy)
    body = await request.body()
    return _AgentAnswer(request, body, await to_thread.run_sync(_tools))


class _AgentAnswer(Response):
    """Answer that the tools write themselves.

    Args:
        request: Request of the agent.
        content: Its body, which has been read.
        tools: Application of the tools.
    """

    def __init__(
        self, request: Request, content: bytes, tools: Callable[[Any, Any, Any], Awaitable[None]]
    ) -> None:
        super().__init__()
        self._request, self._content, self._tools = request, content, tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request, as ASGI defines it."""
        _CALLER.set(self._request)
        await self._tools(scope, _received(self._content, receive), send)


@cache
def _tools() -> Callable[[Any, Any, Any], Awaitable[None]]:
    from orchestrator.client.agent_tools import agent_application, agent_server

    backend = CallerBackend("the service")
    own: Mapping[str, Callable[..., Any]] = {
        "submit": backend.submit_text,
        "validate": backend.validate_text,
        "cost": backend.cost_at,
    }
    return agent_application(agent_server(backend, own), PATH)


def _scope(caller: Request, method: str, target: str, headers: Mapping[str, str]) -> Scope:
    """Return the ASGI scope of a request to the API from the client of another request."""
    path, _, query = target.partition("?")
    credentials = [(name, value) for name, value in caller.scope["headers"] if name in _CREDENTIALS]
    own = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return {
        **{
            name: caller.scope[name]
            for name in ("type", "asgi", "http_version", "scheme", "client", "server")
        },
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [*credentials, *own, (b"content-type", b"application/json")],
    }


async def _answered(app: Callable[..., Awaitable[None]], scope: Scope, content: bytes) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    status, parts = 0, list[bytes]()

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    try:
        await app(scope, _received(content, receive), send)
    except Exception:
        if not status:
            raise
        # The answer, without the text of the error, has been sent: the server would log it here, too.
        _LOG.exception("%s has failed", scope["path"])
    return status, b"".join(parts)


def _received(content: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` that returns a body first, and then what another one returns."""
    whole: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def received() -> Message:
        return whole.pop() if whole else await receive()

    return received
