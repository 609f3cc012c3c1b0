"""The application: routes, answers to errors, and the guard around both."""

from __future__ import annotations

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp

from orchestrator.errors import Refusal
from orchestrator.web import (
    analysing,
    changing,
    page,
    planning,
    problems,
    reading,
    results,
    session,
    trials,
    watching,
)
from orchestrator.web.access import admitted
from orchestrator.web.conditional import Conditional
from orchestrator.web.guard import MOST_BYTES, Guard
from orchestrator.web.site import Site

PREFIX = "/api/v1"

COMPRESSED_BYTES = 1_000
"""Size from which an answer is compressed, if the client can read that."""

COMPRESSION = 4
"""Level of the compression: higher ones take more of a processor than they save."""


def _admit(request: Request) -> None:
    request.state.user = admitted(request)


def application(site: Site) -> ASGIApp:
    """Return the application of a site, as ASGI defines one."""
    compressed = GZipMiddleware(
        Conditional(build(site)), minimum_size=COMPRESSED_BYTES, compresslevel=COMPRESSION
    )
    return Guard(compressed, site)


def build(site: Site) -> FastAPI:
    """Return the routes of a site, without the guard around them."""
    app = FastAPI(
        title="sweep",
        version="1",
        description="Submit hyperparameter sweeps and watch them. Errors are problem details (RFC 9457).",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        max_body_size=MOST_BYTES,
        dependencies=[Depends(_admit)],
        generate_unique_id_function=lambda route: route.name,
        exception_handlers={
            Refusal: problems.on_refusal,
            problems.Denial: problems.on_refusal,
            RequestValidationError: problems.on_invalid,
            HTTPException: problems.on_http_error,
            Exception: problems.on_crash,
        },
    )
    app.state.site = site
    for routes in (session, reading, trials, analysing, results, planning, watching, changing):
        app.include_router(routes.ROUTER, prefix=PREFIX)
    for files in (planning.FILES, changing.FILES):
        app.include_router(files, prefix=PREFIX)
    app.include_router(page.ROUTER)
    return app
