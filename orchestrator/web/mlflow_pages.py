"""Authenticating proxy in front of MLflow's pages, whose own server requires no login.

The browser opens a link that works once and receives a cookie. A page of another site, which can make its own
name resolve to this machine (DNS rebinding) or send requests to it, has neither the host name nor the origin.
"""

from __future__ import annotations

import http.client
import json
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from orchestrator.web.server import LOOPBACK, Listening, running

MOST_BYTES = 4_000_000
"""Largest body of a request to MLflow in bytes."""

ANSWER_SECONDS = 300.0
"""Longest wait for an answer of MLflow."""

HEALTH = "/health"
"""Health check of MLflow, the only path that requires no cookie."""

_KEY = "key"
_NAMES = (LOOPBACK, "localhost")
_CHUNK = 65_536
_MLFLOW_HOST = "localhost"
_NOT_PASSED_ON = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
        *("host", "cookie", "origin", "authorization", "content-length", "expect"),
    }
)
_NOT_PASSED_BACK = frozenset({"connection", "keep-alive", "transfer-encoding", "server", "date"})


class Gate:
    """ASGI proxy that forwards the requests of one browser to MLflow.

    Args:
        address: Unix socket of MLflow.
        port: Port of this server.
        first: Address of the first page, relative to the server's, such as `#/experiments/1/runs`.
    """

    def __init__(self, address: Path, port: int, first: str = "") -> None:
        self._address, self._first = address, first
        self._hosts = frozenset(f"{name}:{port}" for name in _NAMES)
        self._key: str | None = secrets.token_urlsafe(32)
        self._cookie_name, self._cookie = f"sweep_mlflow_{port}", secrets.token_urlsafe(32)
        self.link = f"http://{LOOPBACK}:{port}/?{_KEY}={self._key}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, as ASGI defines it."""
        if scope["type"] == "http":
            answer = await self._answer(Request(scope, receive))
            await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.headers.get("host", "").lower() not in self._hosts:
            return _refused(f"Host: must be one of {', '.join(sorted(self._hosts))}.")
        key = request.query_params.get(_KEY, "")
        if self._key is not None and request.method == "GET" and _equal(key, self._key):
            self._key = None
            return self._opened()
        if request.url.path != HEALTH and not _equal(
            request.cookies.get(self._cookie_name, ""), self._cookie
        ):
            return _refused(
                "Open the link printed by `sweep ui`. It works once; restart `sweep ui` for another browser."
            )
        if _is_of_another_site(request):
            return _refused("Origin: must be these pages themselves.")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                return PlainTextResponse(f"body: must have at most {MOST_BYTES:,} bytes.", 413)
        if (problem := _path_problem(request.url.query, body)) is not None:
            return PlainTextResponse(problem, 400)
        return await run_in_threadpool(self._passed_on, request, body)

    def _opened(self) -> Response:
        """Answer the link with a cookie and a redirect without the key."""
        answer = HTMLResponse(
            f'<!doctype html><meta http-equiv="refresh" content="0; url=/{escape(self._first)}">'
            "<title>MLflow</title>"
        )
        answer.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="strict")
        answer.headers["Referrer-Policy"] = "no-referrer"
        answer.headers["Cache-Control"] = "no-store"
        return answer

    def _passed_on(self, request: Request, body: bytes) -> Response:
        connection = _Connection(self._address)
        try:
            target = request.scope["raw_path"].decode("ascii")
            target += f"?{request.url.query}" if request.url.query else ""
            own = {"Host": _MLFLOW_HOST, "Content-Length": str(len(body))}
            kept = {name: value for name, value in request.headers.items() if name not in _NOT_PASSED_ON}
            connection.request(request.method, target, body, {**kept, **own})
            answer = connection.getresponse()
        except OSError:
            connection.close()
            return PlainTextResponse("MLflow does not answer yet.", 503, {"Refresh": "1", "Retry-After": "1"})
        headers = {
            name.lower(): value
            for name, value in answer.getheaders()
            if name.lower() not in _NOT_PASSED_BACK and not name.lower().startswith("access-control-")
        }
        return StreamingResponse(_parts(connection, answer), answer.status, headers)


@contextmanager
def serving(address: Path, port: int, first: str = "") -> Iterator[str]:
    """Serve MLflow's pages on 127.0.0.1 for a `with` block; yield the link that works once.

    Args:
        address: Unix socket of MLflow.
        port: Port of this server.
        first: Address of the page to which the link leads, relative to the server's.

    Raises:
        BadInput: The port is taken.
    """
    gate = Gate(address, port, first)
    with running(gate, Listening(port), option="--port"):
        yield gate.link


class _Connection(http.client.HTTPConnection):
    def __init__(self, address: Path) -> None:
        super().__init__(_MLFLOW_HOST, timeout=ANSWER_SECONDS)
        self._address = address

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._address))


def _parts(connection: _Connection, answer: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while part := answer.read(_CHUNK):
            yield part
    finally:
        connection.close()


def _equal(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode(), expected.encode())


def _refused(sentence: str) -> Response:
    return PlainTextResponse(sentence, 403)


def _is_of_another_site(request: Request) -> bool:
    """Return True for a request from a page of another site, or of another port of this machine."""
    origin = request.headers.get("origin")
    if origin is not None or request.method not in ("GET", "HEAD"):
        return origin is None or urlsplit(origin).netloc.lower() != request.headers["host"].lower()
    site, mode = request.headers.get("sec-fetch-site", "none"), request.headers.get("sec-fetch-mode")
    return site not in ("same-origin", "none") and mode != "navigate"


def _path_problem(query: str, body: bytes) -> str | None:
    """Return the problem of a request that names files outside of the artifacts, or None."""
    for name, value in parse_qsl(query, keep_blank_values=True):
        if "path" in name.lower() and not _is_below(value):
            return f"{name} must be a path below the artifacts, without `..`."
    try:
        if body and any(_locations(json.loads(body))):
            return "artifact_location must be omitted; artifacts are below the root of the sweeps."
    except (ValueError, RecursionError):
        return "body: must be JSON that is not nested too deeply."
    return None


def _is_below(path: str) -> bool:
    while (decoded := unquote(path)) != path:
        path = decoded
    parts = path.replace("\\", "/").split("/")
    return not path.startswith(("/", "\\")) and ".." not in parts and ":" not in parts[0] and "\0" not in path


def _locations(document: Any) -> Iterator[Any]:
    """Yield the artifact locations of a document at any depth."""
    if isinstance(document, dict):
        yield from (document.get(name) for name in ("artifact_location", "artifactLocation"))
        document = list(document.values())
    for value in document if isinstance(document, list) else ():
        yield from _locations(value)
