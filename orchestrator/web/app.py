"""The application: routes, answers to errors, and the guard around both."""

from __future__ import annotations

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from orchestrator.errors import Refusal
from orchestrator.web import analysing, changing, page, problems, reading, session, watching
from orchestrator.web.access import admitted
from orchestrator.web.guard import MOST_BYTES, Guard
from orchestrator.web.site import Site

PREFIX = "/api/v1"


def _admit(request: Request) -> None:
    request.state.user = admitted(request)


def application(site: Site) -> ASGIApp:
    """Return the application of a site, as ASGI defines one."""
    return Guard(build(site), site)


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
    for router in (session.ROUTER, reading.ROUTER, analysing.ROUTER, watching.ROUTER, changing.ROUTER):
        app.include_router(router, prefix=PREFIX)
    app.include_router(page.ROUTER)
    return app
