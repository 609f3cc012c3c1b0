"""A desk for every test that wants one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrator.session.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a desk in a folder of its own."""
    return Desk(tmp_path)
