"""The page: shells that its scripts fill from the API, and their assets. A shell holds no data of a sweep."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import get_args

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from orchestrator.ledger.sweeps.records import SweepState
from orchestrator.web.problems import NotFound
from orchestrator.web.reading import SweepId
from orchestrator.web.trials import Number

ROUTER = APIRouter(include_in_schema=False)

ASSETS = {
    "page.css": "text/css",
    "analysis.js": "text/javascript",
    "charts.js": "text/javascript",
    "curves.js": "text/javascript",
    "dialogs.js": "text/javascript",
    "drawing.js": "text/javascript",
    "events.js": "text/javascript",
    "home.js": "text/javascript",
    "log.js": "text/javascript",
    "machines.js": "text/javascript",
    "requests.js": "text/javascript",
    "shown.js": "text/javascript",
    "sign_in.js": "text/javascript",
    "start.js": "text/javascript",
    "sweep.js": "text/javascript",
    "tables.js": "text/javascript",
    "trial.js": "text/javascript",
}
"""The files that pages load, and their types."""

STATES = ("QUEUED", "PARKED", *get_args(SweepState))
"""What the list of sweeps can be filtered by."""

_ASSET_CACHE = "public, max-age=60"


@ROUTER.get("/")
def home_page() -> HTMLResponse:
    """Return the page of the queue and of all sweeps."""
    return _page("home.html", states=STATES)


@ROUTER.get("/start")
def start_page() -> HTMLResponse:
    """Return the page with the form that starts a sweep."""
    return _page("start.html")


@ROUTER.get("/machines")
def machines_page() -> HTMLResponse:
    """Return the page of the machines and of what uses them."""
    return _page("machines.html")


@ROUTER.get("/sign-in")
def sign_in_page() -> HTMLResponse:
    """Return the page that asks for a token."""
    return _page("sign_in.html")


@ROUTER.get("/sweeps/{sweep_id}")
def sweep_page(sweep_id: SweepId) -> HTMLResponse:
    """Return the page of one sweep."""
    return _page("sweep.html", sweep_id=sweep_id)


@ROUTER.get("/sweeps/{sweep_id}/trials/{number}")
def trial_page(sweep_id: SweepId, number: Number) -> HTMLResponse:
    """Return the page of one trial; with `role=confirmation` in its address, of a confirmation."""
    return _page("trial.html", sweep_id=sweep_id, number=number)


@ROUTER.get("/assets/{name}")
def asset(name: str) -> Response:
    """Return a file that pages load."""
    if name not in ASSETS:
        raise NotFound("asset", "must be a file of the page", repr(name), "Reload the page.")
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


def _page(template: str, **values: object) -> HTMLResponse:
    return HTMLResponse(_templates().get_template(template).render(**values))
