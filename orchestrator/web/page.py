"""The page: shells that its scripts fill from the API, and their assets. A shell holds no data of a sweep."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from orchestrator.web.problems import NotFound
from orchestrator.web.reading import SweepId
from orchestrator.web.site import Here

ROUTER = APIRouter(include_in_schema=False)

ASSETS = {
    "page.css": "text/css",
    "shared.js": "text/javascript",
    "sign_in.js": "text/javascript",
    "home.js": "text/javascript",
    "sweep.js": "text/javascript",
    "analysis.js": "text/javascript",
    "drawing.js": "text/javascript",
}
"""The files that pages load, and their types."""

_ASSET_CACHE = "public, max-age=60"


@ROUTER.get("/")
def home_page() -> HTMLResponse:
    """Return the page of the queue and of all sweeps."""
    return _page("home.html")


@ROUTER.get("/sign-in")
def sign_in_page() -> HTMLResponse:
    """Return the page that asks for a token."""
    return _page("sign_in.html")


@ROUTER.get("/sweeps/{sweep_id}")
def sweep_page(site: Here, sweep_id: SweepId) -> HTMLResponse:
    """Return the page of one sweep."""
    server = site.workspace.tracking_server or ""
    mlflow = server if server.startswith(("http://", "https://")) else None
    return _page("sweep.html", sweep_id=sweep_id, mlflow=mlflow)


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


def _page(template: str, **values: str | None) -> HTMLResponse:
    return HTMLResponse(_templates().get_template(template).render(**values))
