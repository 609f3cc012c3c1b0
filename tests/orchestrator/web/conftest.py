"""Servers: one for all read-only tests of a module, and one for each test that changes something."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.orchestrator.web import server
from tests.orchestrator.web.server import Client


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("web") / "mlruns") as client:
        yield client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with server.served(tmp_path / "mlruns") as client:
        yield client
