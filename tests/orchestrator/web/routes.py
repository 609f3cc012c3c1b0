"""All routes of the server, with those of the page."""

from __future__ import annotations

from fastapi.routing import APIRoute

from orchestrator.api.workspace import Workspace
from orchestrator.web import agent_route, metric_routes, page_routes, sign_on_routes
from orchestrator.web.app_state import AppState
from orchestrator.web.application import PREFIX, build

APP = build(AppState(Workspace.at("mlruns")))


def _routes(routes: list[object]) -> list[APIRoute]:
    own = [route for route in routes if isinstance(route, APIRoute)]
    for route in routes:
        nested = getattr(route, "original_router", None)
        own += _routes(nested.routes) if nested is not None else []
    return own


ROUTES = _routes(APP.routes)


def path_of(route: APIRoute) -> str:
    """Return the path of a route, with the prefix of the API if it has it."""
    routers = (page_routes, metric_routes, sign_on_routes, agent_route)
    at_root = [known for module in routers for known in module.ROUTER.routes]
    return route.path if route in at_root else f"{PREFIX}{route.path}"
