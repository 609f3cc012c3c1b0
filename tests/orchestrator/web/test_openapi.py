"""The committed description of the API is that of the code, and the first version only grows."""

from __future__ import annotations

import json
import os
from pathlib import Path

from orchestrator.api.workspace import Workspace
from orchestrator.web.app import build
from orchestrator.web.site import Site

FILE = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_the_committed_description_is_current() -> None:
    """With SWEEP_WRITE_OPENAPI set, the test writes the file instead."""
    described = json.dumps(build(Site(Workspace.at("mlruns"))).openapi(), indent=1, sort_keys=True) + "\n"
    if "SWEEP_WRITE_OPENAPI" in os.environ:
        FILE.write_text(described)
    assert FILE.read_text() == described
