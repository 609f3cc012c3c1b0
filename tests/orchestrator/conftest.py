"""Ledgers on both databases: a SQLite file, and a PostgreSQL server if one can be started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.ledger.ledger import Ledger
from tests import postgres


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a device of the host stand in for the GPU that attempts share."""
    monkeypatch.setenv("SWEEP_HOST_DEVICES", "1")


@pytest.fixture
def postgres_url(postgres_server: postgres.Server) -> str:
    """Return the URL of an empty database."""
    return postgres_server.empty_database()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Return the URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'sweeps.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty ledger, of either kind."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """Open an empty ledger of either kind."""
    opened = Ledger.open(url)
    yield opened
    opened.close()
