"""All routes of the server, with those of the page."""

from __future__ import annotations

from fastapi.routing import APIRoute

from orchestrator.api.workspace import Workspace
from orchestrator.web.app_state import AppState
from orchestrator.web.application import build

APP = build(AppState(Workspace.at("mlruns")))


def _routes(routes: list[object]) -> list[APIRoute]:
    own = [route for route in routes if isinstance(route, APIRoute)]
    for route in routes:
        nested = getattr(route, "original_router", None)
        own += _routes(nested.routes) if nested is not None else []
    return own


ROUTES = _routes(APP.routes)
