"""What holds for every answer and every request: the names of the host, and headers that protect browsers."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.web.problems import Denial, HeadTooLarge, NotEncrypted, TooLarge, WrongHost, refused
from orchestrator.web.site import Site

MOST_BYTES = 256_000
"""Size of the largest body of a request."""

MOST_HEAD_BYTES = 16_384
"""Size of the largest head of a request: its address and its headers."""

HEALTH = frozenset({"/api/v1/healthz", "/api/v1/readyz"})
"""Routes that need no token; a supervisor on the same machine asks them without TLS."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of every answer that brings none of its own: no inline code, no `eval`."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer, unless it sets them itself."""


class Guard:
    """Refuses requests for other hosts, or without TLS where there is TLS; adds `HEADERS` to every answer.

    A page of another site can make its own name resolve to this server (DNS rebinding); its requests then
    name that site as their host.

    Args:
        app: the application behind.
        site: whose hosts are served.
    """

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app, self._site = app, site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI defines it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if self._site.secure:
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
            await send(message)

        refusal = _too_large(scope) or self._unencrypted(scope) or self._refusal(Headers(scope=scope))
        app = self._app if refusal is None else refused(refusal)
        await app(scope, receive, protected)

    def _unencrypted(self, scope: Scope) -> Denial | None:
        """Return why a request with a token that others could have read on the way is refused, or None."""
        if not self._site.secure or scope["scheme"] == "https" or scope["path"] in HEALTH:
            return None
        remedy = "Use https; the proxy must set `X-Forwarded-Proto`."
        return NotEncrypted("scheme", "must be https", str(scope["scheme"]), remedy)

    def _refusal(self, headers: Headers) -> Denial | None:
        """Return why a request is refused, or None. Bodies without a length are limited while they arrive."""
        host, length = headers.get("host", ""), headers.get("content-length", "")
        if _name(host) not in self._site.hosts:
            must = f"must be one of {', '.join(sorted(self._site.hosts))}"
            remedy = "Allow the name with `--host-name` if it is the server's."
            return WrongHost("Host", must, repr(host), remedy)
        if length.isdigit() and int(length) > MOST_BYTES:
            must = f"must have at most {MOST_BYTES:,} bytes"
            return TooLarge("body", must, f"{int(length):,}", "Send a smaller file.")
        return None


def _too_large(scope: Scope) -> Denial | None:
    """Return why a request with a large head is refused, or None."""
    headers = sum(len(name) + len(value) for name, value in scope["headers"])
    size = headers + len(scope["raw_path"]) + len(scope["query_string"])
    if size <= MOST_HEAD_BYTES:
        return None
    must = f"must have at most {MOST_HEAD_BYTES:,} bytes"
    return HeadTooLarge("head", must, f"{size:,}", "Send a shorter address, and fewer headers.")


def _name(host: str) -> str:
    """Return a host without its port, in lower case."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()
