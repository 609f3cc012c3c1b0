"""The fixture of all tests of sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrator.session.sessions import Sessions


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    """Return a factory of sessions, with its own folder."""
    return Sessions(tmp_path)
