"""The fixture of every test of a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrator.session.sessions import Sessions


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    """Return an opener of sessions in a folder of its own."""
    return Sessions(tmp_path)
