"""MLflow databases, each a copy of one that was created once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from orchestrator.tracking.database import connect
from tests.orchestrator.tracking.stored import NewDatabase


@pytest.fixture(scope="session")
def new_mlflow(tmp_path_factory: pytest.TempPathFactory) -> NewDatabase:
    """Return a function that puts an empty MLflow database into a folder and returns its URI.

    MLflow takes seconds to create a database, so the workers of a parallel session share a template.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    template = folder / "mlflow-template.db"
    connect(f"sqlite:///{template}")

    def put(folder: Path) -> str:
        shutil.copy(template, folder / "mlflow.db")
        return f"sqlite:///{folder / 'mlflow.db'}"

    return put
