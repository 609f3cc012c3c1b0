"""Answers that have not changed since a client read them: entity tags and status 304.

Source: RFC 9110, HTTP Semantics, sections 8.8.3, 13.1.2 and 15.4.5.
"""

from __future__ import annotations

import hashlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CACHE_CONTROL = "private, no-cache"
"""A browser may keep an answer with an entity tag, and must ask whether it still holds."""


def tags(header: str) -> frozenset[str]:
    """Return the values of the entity tags in a header, without their quotes."""
    return frozenset(part.strip().removeprefix("W/").strip('"') for part in header.split(","))


class Conditional:
    """Adds an entity tag to every document that GET returns, and leaves out a document that the client has.

    The tag is a digest of the document, so that it is the same after a restart of the server. It is weak,
    because the same document may be sent compressed.

    Args:
        app: the application behind.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI defines it."""
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
                    await _answer(start, b"".join(parts), known, send)

        await self._app(scope, receive, collected)


def _is_document(start: Message) -> bool:
    return start["status"] == 200 and Headers(scope=start).get("content-type") == "application/json"


async def _answer(start: Message, body: bytes, known: str, send: Send) -> None:
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
