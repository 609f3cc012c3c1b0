"""ASGI application: routes, error handlers, entity tags, host checks and security headers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.errors import Refusal
from orchestrator.web import (
    agent_route,
    change_routes,
    event_routes,
    file_routes,
    http_errors,
    metric_routes,
    page_routes,
    sign_on_routes,
    sweep_routes,
    trial_routes,
    user_routes,
)
from orchestrator.web.access import admit
from orchestrator.web.app_state import AppState
from orchestrator.web.http_errors import (
    BodyTooLarge,
    HeadTooLarge,
    HttpError,
    NotEncrypted,
    WrongHost,
    error_response,
)
from orchestrator.web.request_times import TimedRequests

ErrorHandler = Callable[[Request, Exception], Coroutine[Any, Any, Response]]

PREFIX = "/api/v1"

COMPRESSED_BYTES = 1_000
"""Smallest answer that is compressed."""

COMPRESSION = 4
"""Compression level; higher ones cost more processor time than they save."""

MOST_BYTES = 256_000
"""Largest body of a request in bytes."""

MOST_HEAD_BYTES = 16_384
"""Largest address and headers of a request in bytes."""

HEALTH = frozenset({f"{PREFIX}/healthz", f"{PREFIX}/readyz"})
"""Routes without a token, which a supervisor on the same machine reads without TLS."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Default Content-Security-Policy: no inline code, no `eval`."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Default headers of every answer."""

CACHE_CONTROL = "private, no-cache"
"""A browser may store an answer with an entity tag, and must revalidate it."""


def application(state: AppState) -> ASGIApp:
    """Return the ASGI application of a server.

    >>> application(AppState(Workspace.at("mlruns")))  # doctest: +SKIP
    """
    compressed = GZipMiddleware(
        EntityTags(TimedRequests(build(state), state.times)),
        minimum_size=COMPRESSED_BYTES,
        compresslevel=COMPRESSION,
    )
    return Guard(compressed, state)


def build(state: AppState) -> FastAPI:
    """Return the routes of a server, without middleware."""
    api = FastAPI(
        title="sweep",
        version="1",
        description="Submit hyperparameter sweeps and watch them. Errors are problem details (RFC 9457).",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        max_body_size=MOST_BYTES,
        dependencies=[Depends(admit)],
        generate_unique_id_function=lambda route: route.name,
        exception_handlers={
            Refusal: _for_browsers(http_errors.on_refusal),
            HttpError: _for_browsers(http_errors.on_refusal),
            RequestValidationError: _for_browsers(http_errors.on_invalid),
            HTTPException: _for_browsers(http_errors.on_http_error),
            Exception: _for_browsers(http_errors.on_crash),
        },
    )
    api.state.shared = state
    for routes in (user_routes, sweep_routes, trial_routes, file_routes, event_routes, change_routes):
        api.include_router(routes.ROUTER, prefix=PREFIX)
    api.include_router(change_routes.FILES, prefix=PREFIX)
    api.include_router(page_routes.ROUTER)
    api.include_router(sign_on_routes.ROUTER)
    api.include_router(metric_routes.ROUTER)
    api.include_router(agent_route.ROUTER)
    return api


def _for_browsers(handle: ErrorHandler) -> ErrorHandler:
    """Return a handler that answers a person's browser with a page; scripts and programs get the document."""

    async def handled(request: Request, error: Exception) -> Response:
        answer = await handle(request, error)
        if "text/html" not in request.headers.get("accept", ""):
            return answer
        is_unknown = isinstance(error, HTTPException) and error.status_code == HTTPStatus.NOT_FOUND
        detail = "" if is_unknown else json.loads(bytes(answer.body))["detail"]
        page = page_routes.error_page(HTTPStatus(answer.status_code), detail)
        if "Retry-After" in answer.headers:
            page.headers["Retry-After"] = answer.headers["Retry-After"]
        return page

    return handled


class Guard:
    """Middleware that refuses other hosts and unencrypted requests, and adds `HEADERS` to every answer.

    A page of another site can make its own host name resolve to this server (DNS rebinding); the `Host`
    header of its requests then names that site.

    Args:
        app: Application behind it.
        state: Shared state, which has the host names.
    """

    def __init__(self, app: ASGIApp, state: AppState) -> None:
        self._app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, as ASGI defines it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if self._state.secure:
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
            await send(message)

        error = _head_error(scope) or self._scheme_error(scope) or self._header_error(Headers(scope=scope))
        app = self._app if error is None else error_response(error)
        await app(scope, receive, protected)

    def _scheme_error(self, scope: Scope) -> HttpError | None:
        """Refuse a request without TLS, whose token others could have read."""
        if not self._state.secure or scope["scheme"] == "https" or scope["path"] in HEALTH:
            return None
        remedy = "Use https; a proxy must set `X-Forwarded-Proto`."
        return NotEncrypted("scheme", "must be https", str(scope["scheme"]), remedy)

    def _header_error(self, headers: Headers) -> HttpError | None:
        """Refuse a wrong host or a large body; FastAPI limits bodies without a length while they arrive."""
        host, length = headers.get("host", ""), headers.get("content-length", "")
        if _without_port(host) not in self._state.hosts:
            must = f"must be one of {', '.join(sorted(self._state.hosts))}"
            remedy = "If this is a name of the server, allow it with `--host-name`."
            return WrongHost("Host", must, repr(host), remedy)
        if length.isdigit() and int(length) > MOST_BYTES:
            must = f"must have at most {MOST_BYTES:,} bytes"
            return BodyTooLarge("body", must, f"{int(length):,}", "Send a smaller file.")
        return None


def _head_error(scope: Scope) -> HttpError | None:
    headers = sum(len(name) + len(value) for name, value in scope["headers"])
    size = headers + len(scope["raw_path"]) + len(scope["query_string"])
    if size <= MOST_HEAD_BYTES:
        return None
    must = f"must have at most {MOST_HEAD_BYTES:,} bytes"
    return HeadTooLarge("head", must, f"{size:,}", "Send a shorter address, and fewer headers.")


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


class EntityTags:
    """Middleware that adds an entity tag to JSON answers, and answers 304 if the client has the document.

    The tag is a digest of the document and so survives restarts. It is weak, because the same document may
    be sent compressed.

    Source: RFC 9110, HTTP Semantics, sections 8.8.3, 13.1.2 and 15.4.5.

    Args:
        app: Application behind it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, as ASGI defines it."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        known = Headers(scope=scope).get("if-none-match", "")
        start: Message | None = None
        parts: list[bytes] = []

        async def collected(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_document(message):
                start = message
            elif start is None:
                await send(message)
            else:
                parts.append(message.get("body", b""))
                if not message.get("more_body", False):
                    await _send_tagged(start, b"".join(parts), known, send)

        await self._app(scope, receive, collected)


def _is_document(start: Message) -> bool:
    return start["status"] == 200 and Headers(scope=start).get("content-type") == "application/json"


async def _send_tagged(start: Message, body: bytes, known: str, send: Send) -> None:
    tag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = MutableHeaders(scope=start)
    headers["ETag"] = tag
    headers["Cache-Control"] = CACHE_CONTROL
    if tag in (part.strip() for part in known.split(",")):
        start["status"], body = 304, b""
        for name in ("content-length", "content-type"):
            del headers[name]
    await send(start)
    await send({"type": "http.response.body", "body": body})
