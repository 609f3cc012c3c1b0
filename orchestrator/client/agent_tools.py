"""Tools of the Model Context Protocol, generated from the methods of the client protocol.

A tool has the name, the arguments and the description of its method. Its result is the answer as JSON. A
refused call is a result with `isError`, whose four parts are those of a problem document of the HTTP API.

Source: Model Context Protocol, https://modelcontextprotocol.io/specification, section Tools.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import partial
from typing import Any, get_type_hints

from anyio import CapacityLimiter, to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, TextContent, ToolAnnotations

from orchestrator.client import answers
from orchestrator.client.protocol import Backend
from orchestrator.errors import Refusal, to_document

READING = (
    *("sweeps", "status", "live", "changes", "pareto", "trials", "trial", "reports", "log", "trial_log"),
    *("curves", "result", "analysis", "compare", "replay", "queue", "pools", "quota", "cost", "validate"),
    *("disk", "deletion", "sql"),
)
"""Methods of the client protocol that change nothing."""

CHANGING = ("submit", "stop", "try_setting", "resume", "retry", "move", "note")
"""Methods that change the caller's sweeps. The administration of users and quotas is for people."""

INSTRUCTIONS = (
    "Runs hyperparameter sweeps. Validate a search-space file, submit it with an idempotency key, read"
    " `status` until its state is COMPLETE or FAILED, then read `trials` and `compare`. A sweep is named by"
    " its ID or the beginning of it. A refused call says what must hold, what was found and what to do."
)

MOST_CALLS = 40
"""Number of tools that run at once; further calls wait."""

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
"""Application as ASGI defines it."""


def agent_server(backend: Backend, own: Mapping[str, Callable[..., Any]] = {}) -> MCPServer[Any]:
    """Return a server whose tools call a backend, with the role and the limits of its user.

    >>> agent_server(HttpBackend("https://sweeps.example.org")).run("stdio")  # doctest: +SKIP

    Args:
        backend: Backend of the tools.
        own: Functions in place of methods, by the name of the tool.
    """
    handlers, level = logging.root.handlers[:], logging.root.level
    server = MCPServer[Any]("sweep", instructions=INSTRUCTIONS)
    # The SDK configures the log of its process, which is that of the service.
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    logging.getLogger("mcp").setLevel(
        logging.CRITICAL
    )  # otherwise agents could fill the log with wrong calls
    limiter = CapacityLimiter(MOST_CALLS)
    for name in (*READING, *CHANGING):
        method = own.get(name) or getattr(backend, name)
        hints = ToolAnnotations(read_only_hint=name in READING, destructive_hint=name == "stop")
        description = inspect.getdoc(own.get(name) or getattr(Backend, name))
        server.add_tool(_tool(method, limiter), name, description=description, annotations=hints)
    return server


def agent_application(server: MCPServer[Any], path: str) -> AsgiApp:
    """Return an ASGI application that answers each request of the HTTP transport without a session.

    The surrounding application must check tokens and hosts.

    Args:
        server: Server of the tools.
        path: Path of the requests.
    """
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        app = server.streamable_http_app(
            streamable_http_path=path,
            json_response=True,
            stateless_http=True,
            transport_security=unchecked,
        )
        async with app.router.lifespan_context(app):  # a manager of sessions runs once
            await app(dict(scope), receive, send)

    return answer


def _tool(method: Callable[..., Any], limiter: CapacityLimiter) -> Callable[..., Awaitable[CallToolResult]]:
    """Wrap a method as a tool: its type hints are resolved, and it returns a result of the protocol.

    Tools run in threads of `limiter`. They may call a server in this process, whose handlers use the default
    limiter; tools that held all of its threads would deadlock.
    """

    async def call(**arguments: Any) -> CallToolResult:
        try:
            return _result(_plain(await to_thread.run_sync(partial(method, **arguments), limiter=limiter)))
        except Refusal as refusal:
            first, *more = map(to_document, refusal.all())
            return _result({**first, **({"more": more} if more else {})}, is_error=True)

    hints = {**get_type_hints(method, {**vars(answers), **method.__globals__}), "return": CallToolResult}
    given = inspect.signature(method).parameters.values()
    parameters = [one.replace(annotation=hints[one.name]) for one in given]
    call.__signature__ = inspect.Signature(parameters, return_annotation=CallToolResult)  # type: ignore[attr-defined]
    call.__annotations__ = hints
    return call


def _plain(answer: Any) -> Any:
    """Return an answer of the client protocol as JSON values."""
    if is_dataclass(answer) and not isinstance(answer, type):
        return asdict(answer)
    return [_plain(one) for one in answer] if isinstance(answer, list | tuple) else answer


def _result(value: Any, *, is_error: bool = False) -> CallToolResult:
    """Return JSON values as a result, once as text and once structured; a list is the key `result`."""
    document = value if isinstance(value, dict) else {"result": value}
    text = json.dumps(document)
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=json.loads(text), is_error=is_error
    )
