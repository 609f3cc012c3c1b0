"""Errors as problem details (RFC 9457), with the class and the four parts of a refusal.

Source: RFC 9457, Problem Details for HTTP APIs, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    NotAllowed,
    NotFound,
    NotSignedIn,
    OverQuota,
    Refusal,
    StaleRevision,
    TooManyRequests,
    WrongState,
    to_document,
)
from orchestrator.process_secrets import redacted
from trainables.errors import sentence

MEDIA_TYPE = "application/problem+json"

_SEE_DESCRIPTION = "/api/v1/openapi.json describes every request."


@dataclass(frozen=True)
class RefusalParts:
    """One mistake, in the form of `orchestrator.errors.to_document`."""

    where: str
    must: str
    got: str
    remedy: str
    error: str = BadInput.__name__


class HttpError(Exception):
    """Error that concerns the HTTP request only, and not the Python API.

    Args:
        where: Header, path or field.
        must: Requirement.
        got: Value found.
        remedy: What to do.
    """

    def __init__(self, where: str, must: str, got: str, remedy: str) -> None:
        self.parts = {"where": where, "must": must, "got": got, "remedy": remedy}
        super().__init__(where, must, got, remedy)


class BodyTooLarge(HttpError):
    """The body of the request is too large."""


class HeadTooLarge(HttpError):
    """The address and headers of the request are too large."""


class UnknownMediaType(HttpError):
    """The route does not read this format."""


class WrongHost(HttpError):
    """The request is for another host, or comes from a page of another site."""


class Unhealthy(HttpError):
    """The server answers, but the service does not work."""


class NoProvider(HttpError):
    """The provider of single sign-on does not answer, or its answer is invalid."""


class NotEncrypted(HttpError):
    """The request came without TLS to a server that has TLS."""


STATUS: Mapping[type[Exception], HTTPStatus] = {
    NotSignedIn: HTTPStatus.UNAUTHORIZED,
    NotAllowed: HTTPStatus.FORBIDDEN,
    WrongHost: HTTPStatus.FORBIDDEN,
    NotEncrypted: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    WrongState: HTTPStatus.CONFLICT,
    Busy: HTTPStatus.CONFLICT,
    OverQuota: HTTPStatus.CONFLICT,
    StaleRevision: HTTPStatus.PRECONDITION_FAILED,
    BadInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    BadData: HTTPStatus.UNPROCESSABLE_ENTITY,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HeadTooLarge: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    UnknownMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    TooManyRequests: HTTPStatus.TOO_MANY_REQUESTS,
    Damaged: HTTPStatus.SERVICE_UNAVAILABLE,
    NoCluster: HTTPStatus.SERVICE_UNAVAILABLE,
    NoDatabase: HTTPStatus.SERVICE_UNAVAILABLE,
    NoProvider: HTTPStatus.SERVICE_UNAVAILABLE,
    NoSpace: HTTPStatus.SERVICE_UNAVAILABLE,
    NoStore: HTTPStatus.SERVICE_UNAVAILABLE,
    Unhealthy: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Status code by class of error; 422 for others."""

RETRY_SECONDS: Mapping[HTTPStatus, int] = {
    HTTPStatus.TOO_MANY_REQUESTS: 60,
    HTTPStatus.SERVICE_UNAVAILABLE: 5,
}
"""Value of the header `Retry-After` by status code."""


def error_response(error: Refusal | HttpError) -> Response:
    """Return the problem document of an error."""
    kinds = (STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    documents = [error.parts] if isinstance(error, HttpError) else map(to_document, error.all())
    first, *more = map(_redacted, documents)
    return _response(next(kinds, HTTPStatus.UNPROCESSABLE_ENTITY), first, more)


def _redacted(document: Mapping[str, str]) -> dict[str, str]:
    return {name: redacted(text) for name, text in document.items()}


async def on_refusal(request: Request, error: Exception) -> Response:
    """Handle a `Refusal` or an `HttpError`."""
    assert isinstance(error, Refusal | HttpError)
    return error_response(error)


async def on_invalid(request: Request, error: Exception) -> Response:
    """Handle invalid parameters or an invalid body, without the value, which may be a token."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return error_response(BadInput(where, f"is invalid: {first['msg']}", "", _SEE_DESCRIPTION))


async def on_http_error(request: Request, error: Exception) -> Response:
    """Handle an unknown path, a wrong method, or a body that is too large and has no length."""
    assert isinstance(error, HTTPException)
    parts = {
        "where": request.url.path,
        "must": "must be a request of the API",
        "got": f"{request.method}: {error.detail}",
        "remedy": _SEE_DESCRIPTION,
    }
    return _response(HTTPStatus(error.status_code), parts)


async def on_crash(request: Request, error: Exception) -> Response:
    """Handle an unexpected exception; its text stays in the log of the service."""
    parts = {
        "where": request.url.path,
        "must": "internal error",
        "got": "",
        "remedy": "See the log of the service for its traceback.",
    }
    return _response(HTTPStatus.INTERNAL_SERVER_ERROR, parts)


def _response(
    status: HTTPStatus, parts: Mapping[str, str], more: Sequence[Mapping[str, str]] = ()
) -> Response:
    document = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": sentence(parts["where"], parts["must"], parts["got"], parts["remedy"]),
    }
    headers = {}
    if status in RETRY_SECONDS:
        headers["Retry-After"] = str(RETRY_SECONDS[status])
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    further = {"more": more} if more else {}
    return JSONResponse({**document, **parts, **further}, status, headers, MEDIA_TYPE)
