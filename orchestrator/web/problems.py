"""Refusals as HTTP answers: problem details (RFC 9457) with the four parts of a refusal.

Source: RFC 9457, Problem Details for HTTP APIs, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from orchestrator.errors import (
    BadData,
    BadInput,
    Busy,
    Damaged,
    NoCluster,
    NoDatabase,
    NoSpace,
    NoStore,
    OverQuota,
    Refusal,
    StaleRevision,
)
from orchestrator.process_secrets import redacted

MEDIA_TYPE = "application/problem+json"


class Denial(Exception):
    """Root of the refusals that concern a request alone, which callers of the Python API never meet.

    Args:
        where: the header, the path or the field.
        must: what must hold.
        got: what was found instead.
        remedy: what would be right.
    """

    def __init__(self, where: str, must: str, got: str, remedy: str) -> None:
        self.where, self.must, self.got, self.remedy = where, must, got, remedy
        super().__init__(where, must, got, remedy)


class NotFound(Denial):
    """Raised for a sweep, a trial, a user or a file that does not exist."""


class NotSignedIn(Denial):
    """Raised for a request without a valid token."""


class NotAllowed(Denial):
    """Raised for a request that the role of its user does not permit."""


class Conflict(Denial):
    """Raised for a change that the present state of its target does not permit."""


class TooMany(Denial):
    """Raised for a request that comes too soon after earlier ones."""


class TooLarge(Denial):
    """Raised for a request whose body is larger than any that the API takes."""


class HeadTooLarge(Denial):
    """Raised for a request whose address and headers are larger than any that the API needs."""


class UnknownMediaType(Denial):
    """Raised for a request whose body is in a format that its route does not read."""


class WrongHost(Denial):
    """Raised for a request that names another host, or that a page of another site has sent."""


class NotWorking(Denial):
    """Raised for the question whether the service works, if it only answers."""


class NotEncrypted(Denial):
    """Raised for a request that came without TLS to a server that browsers reach over TLS."""


STATUS: Mapping[type[Exception], HTTPStatus] = {
    NotSignedIn: HTTPStatus.UNAUTHORIZED,
    NotAllowed: HTTPStatus.FORBIDDEN,
    WrongHost: HTTPStatus.FORBIDDEN,
    NotEncrypted: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    Busy: HTTPStatus.CONFLICT,
    OverQuota: HTTPStatus.CONFLICT,
    StaleRevision: HTTPStatus.PRECONDITION_FAILED,
    BadInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    BadData: HTTPStatus.UNPROCESSABLE_ENTITY,
    TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HeadTooLarge: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    UnknownMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    TooMany: HTTPStatus.TOO_MANY_REQUESTS,
    Damaged: HTTPStatus.SERVICE_UNAVAILABLE,
    NoCluster: HTTPStatus.SERVICE_UNAVAILABLE,
    NoDatabase: HTTPStatus.SERVICE_UNAVAILABLE,
    NoSpace: HTTPStatus.SERVICE_UNAVAILABLE,
    NoStore: HTTPStatus.SERVICE_UNAVAILABLE,
    NotWorking: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""The status of the answer to each kind of refusal; 422 for kinds that are not listed."""

RETRY_SECONDS: Mapping[HTTPStatus, int] = {
    HTTPStatus.TOO_MANY_REQUESTS: 60,
    HTTPStatus.SERVICE_UNAVAILABLE: 5,
}
"""Value of the header `Retry-After` by status."""


def refused(refusal: Refusal | Denial) -> Response:
    """Return the answer to a request that is refused."""
    kinds = (STATUS[kind] for kind in type(refusal).__mro__ if kind in STATUS)
    status = next(kinds, HTTPStatus.UNPROCESSABLE_ENTITY)
    parts = {"where": refusal.where, "must": refusal.must, "got": refusal.got, "remedy": refusal.remedy}
    more = refusal.more if isinstance(refusal, Refusal) else ()
    return _answer(status, _shown(parts), [_shown(one.parts()) for one in more])


def _shown(parts: Mapping[str, str]) -> dict[str, str]:
    return {name: redacted(text) for name, text in parts.items()}


async def on_refusal(request: Request, error: Exception) -> Response:
    """Answer a request whose handler raised a `Refusal` or a `Denial`."""
    assert isinstance(error, Refusal | Denial)
    return refused(error)


async def on_invalid(request: Request, error: Exception) -> Response:
    """Answer a request whose parameters or body have the wrong form."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    # The value is not repeated: it may be a token.
    remedy = "/api/v1/openapi.json describes every request."
    return refused(BadInput(where, "must be as the API describes it", str(first["msg"]), remedy))


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown address, or with a wrong method or too large a body."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    parts = {
        "where": request.url.path,
        "must": "must be a request that the API describes",
        "got": f"{request.method}: {error.detail}",
        "remedy": "/api/v1/openapi.json describes every request.",
    }
    return _answer(status, parts)


async def on_crash(request: Request, error: Exception) -> Response:
    """Answer a request whose handler has failed; the text of the error stays in the log of the service."""
    parts = {
        "where": request.url.path,
        "must": "must not fail",
        "got": "an unexpected error",
        "remedy": "The log of the service has its traceback.",
    }
    return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, parts)


def _answer(status: HTTPStatus, parts: Mapping[str, str], more: Sequence[Mapping[str, str]] = ()) -> Response:
    detail = f"{parts['where']}: {parts['must']}, got {parts['got']}. {parts['remedy']}"
    document = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
    headers = {}
    if status in RETRY_SECONDS:
        headers["Retry-After"] = str(RETRY_SECONDS[status])
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    further = {"more": more} if more else {}
    return JSONResponse({**document, **parts, **further}, status, headers, MEDIA_TYPE)
