"""Tools of the Model Context Protocol, generated from the methods of the client protocol.

A tool has the name, the arguments and the description of its method. Its result is the answer as JSON. A
refused call is a result with `isError`, whose four parts are those of a problem document of the HTTP API.

Source: Model Context Protocol, https://modelcontextprotocol.io/specification, section Tools.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import Any, get_type_hints

from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, TextContent, ToolAnnotations

from orchestrator.client.protocol import Backend
from orchestrator.errors import Refusal, to_document

READING = (
    *("sweeps", "status", "live", "changes", "pareto", "trials", "trial", "reports", "log", "trial_log"),
    *("curves", "result", "analysis", "compare", "replay", "queue", "pools", "quota", "cost", "validate"),
    *("disk", "deletion"),
)
"""Methods of the client protocol that change nothing."""

CHANGING = ("submit", "stop", "try_setting", "resume", "retry", "move", "note")
"""Methods that change the caller's sweeps. The administration of users and quotas is for people."""

INSTRUCTIONS = (
    "Runs hyperparameter sweeps. Validate a search-space file, submit it with an idempotency key, read"
    " `status` until its state is COMPLETE or FAILED, then read `trials` and `compare`. A sweep is named by"
    " its ID or the beginning of it. A refused call says what must hold, what was found and what to do."
)


def agent_server(backend: Backend) -> MCPServer[Any]:
    """Return a server whose tools call a backend, with the role and the limits of its user.

    >>> agent_server(HttpBackend("https://sweeps.example.org")).run("stdio")  # doctest: +SKIP

    Args:
        backend: Backend of the tools.
    """
    server = MCPServer[Any]("sweep", instructions=INSTRUCTIONS, log_level="ERROR")
    for name in (*READING, *CHANGING):
        method = getattr(backend, name)
        hints = ToolAnnotations(read_only_hint=name in READING, destructive_hint=name == "stop")
        description = inspect.getdoc(getattr(Backend, name))
        server.add_tool(_tool(method), name, description=description, annotations=hints)
    return server


def _tool(method: Callable[..., Any]) -> Callable[..., CallToolResult]:
    """Return a method with resolved types, which answers with a result of the protocol."""

    def call(**arguments: Any) -> CallToolResult:
        try:
            return _result(_plain(method(**arguments)))
        except Refusal as refusal:
            first, *more = map(to_document, refusal.all())
            return _result({**first, **({"more": more} if more else {})}, is_error=True)

    hints = {**get_type_hints(method), "return": CallToolResult}
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
