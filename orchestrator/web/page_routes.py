"""Routes of the page: HTML shells without data, which scripts fill from the API, and their assets."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import get_args

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from orchestrator.api import templates
from orchestrator.errors import NotFound
from orchestrator.ledger.sweeps.records import SweepState
from orchestrator.web.app_state import App
from orchestrator.web.sweep_routes import SweepId
from orchestrator.web.trial_routes import Number

ROUTER = APIRouter(include_in_schema=False)

_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript"}

ASSETS = {
    file.name: _MEDIA_TYPES[file.name.rpartition(".")[2]]
    for file in files("orchestrator.web").joinpath("assets").iterdir()
    if file.name.rpartition(".")[2] in _MEDIA_TYPES
}
"""Assets and their media types."""

STATES = ("QUEUED", "PARKED", *get_args(SweepState))
"""States by which the sweep list can be filtered."""

_ASSET_CACHE = "public, max-age=60"


@ROUTER.get("/")
def home_page() -> HTMLResponse:
    """Show all sweeps and the queue."""
    return _page("home.html", states=STATES)


@ROUTER.get("/compare")
def compare_page() -> HTMLResponse:
    """Show the sweeps that `sweeps` in the address names, separated by commas, side by side."""
    return _page("compare.html")


@ROUTER.get("/start")
def start_page() -> HTMLResponse:
    """Show the form that starts a sweep."""
    return _page("start.html", shipped=templates.tasks())


@ROUTER.get("/machines")
def machines_page() -> HTMLResponse:
    """Show the machines and their use."""
    return _page("machines.html")


@ROUTER.get("/people")
def people_page() -> HTMLResponse:
    """Show users, their quotas and the audit log."""
    return _page("people.html")


@ROUTER.get("/sign-in")
def sign_in_page(app: App) -> HTMLResponse:
    """Show the sign-in form."""
    return _page("sign_in.html", has_provider=app.provider is not None)


@ROUTER.get("/sweeps/{sweep_id}")
def sweep_page(sweep_id: SweepId) -> HTMLResponse:
    """Show a sweep."""
    return _page("sweep.html", sweep_id=sweep_id)


@ROUTER.get("/sweeps/{sweep_id}/trials/{number}")
def trial_page(sweep_id: SweepId, number: Number) -> HTMLResponse:
    """Show a trial, or a confirmation with `role=confirmation` in the address."""
    return _page("trial.html", sweep_id=sweep_id, number=number)


def error_page(status: HTTPStatus, detail: str) -> HTMLResponse:
    """Return the page of an error, with links that lead out of it.

    Args:
        status: Status of the answer.
        detail: Text of the error, or empty for an unknown address.
    """
    title = "Page not found" if not detail else status.phrase
    return _page("error.html", status, title=title, detail=detail)


@ROUTER.get("/assets/{name}")
def asset(name: str) -> Response:
    """Read an asset."""
    if name not in ASSETS:
        raise NotFound("asset", "does not exist", repr(name), "Reload the page.")
    return Response(_asset(name), media_type=ASSETS[name], headers={"Cache-Control": _ASSET_CACHE})


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("orchestrator.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _asset(name: str) -> bytes:
    return files("orchestrator.web").joinpath("assets", name).read_bytes()


def _page(template: str, status: HTTPStatus = HTTPStatus.OK, **values: object) -> HTMLResponse:
    return HTMLResponse(_templates().get_template(template).render(**values), status)
