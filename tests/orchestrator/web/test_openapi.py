"""The committed description of the API is that of the code, and the first version only grows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.api.workspace import Workspace
from orchestrator.web.app_state import AppState
from orchestrator.web.application import build

FIRST = Path(__file__).with_name("openapi_v1.json")
"""The description of version 1 when it was first published."""

FILE = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_the_committed_description_is_current() -> None:
    """With SWEEP_WRITE_OPENAPI set, the test writes the file instead."""
    described = json.dumps(build(AppState(Workspace.at("mlruns"))).openapi(), indent=1, sort_keys=True) + "\n"
    if "SWEEP_WRITE_OPENAPI" in os.environ:
        FILE.write_text(described)
    assert FILE.read_text() == described


def test_the_first_version_only_grows() -> None:
    """What a client of the first version sends must still be taken: no path, parameter or key may go."""
    assert not sorted(missing(json.loads(FIRST.read_text()), json.loads(FILE.read_text())))


def test_what_has_gone_or_become_required_is_found() -> None:
    first, now = json.loads(FIRST.read_text()), json.loads(FIRST.read_text())
    del now["paths"]["/api/v1/me"]
    now["paths"]["/api/v1/sweeps"]["get"]["parameters"] = []
    now["components"]["schemas"]["Submit"]["required"].append("profile")
    del now["components"]["schemas"]["Extend"]["properties"]["hours"]
    assert sorted(missing(first, now)) == [
        "Extend: hours",
        "GET /api/v1/me",
        *(
            f"GET /api/v1/sweeps: {name}"
            for name in (
                *("after", "descending", "limit", "name", "offset", "owner", "sort", "state", "task"),
            )
        ),
        "Submit: profile is required",
    ]


def missing(first: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Yield what a client of the first description can no longer do."""
    for path, methods in first["paths"].items():
        for method, route in methods.items():
            request = f"{method.upper()} {path}"
            if method not in now["paths"].get(path, {}):
                yield request
                continue
            yield from _parameters(request, route, now["paths"][path][method])
    for name, schema in first["components"]["schemas"].items():
        later = now["components"]["schemas"].get(name)
        if later is None:
            yield name
            continue
        kept, required = later.get("properties", {}), later.get("required", ())
        yield from (f"{name}: {key}" for key in schema.get("properties", {}) if key not in kept)
        yield from (f"{name}: {key} is required" for key in required if key not in schema.get("required", ()))


def _parameters(request: str, first: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    known = {parameter["name"]: parameter for parameter in first.get("parameters", ())}
    kept = {parameter["name"]: parameter for parameter in now.get("parameters", ())}
    yield from (f"{request}: {name}" for name in known if name not in kept)
    for name, parameter in kept.items():
        if parameter["required"] and not known.get(name, {}).get("required", False):
            yield f"{request}: {name} is required"
