"""A SQLite file is reached by its URL, whatever its path contains."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow.store.db.utils import create_sqlalchemy_engine_with_retry
from sqlalchemy import make_url

from orchestrator.storage.paths import sqlite_url
from orchestrator.tracking import address

FOLDERS = ("plain", "it's mine", "100%", "why?", "a#b", "100%25", "Grüße", "a+b=c;d:e@f")


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_url_leads_to_the_file(tmp_path: Path, folder: str) -> None:
    file = tmp_path / folder / "sweeps.db"
    assert make_url(sqlite_url(file)).database == address.sqlite_path(sqlite_url(file)) == str(file)


@pytest.mark.parametrize("folder", ["it's mine", "Grüße"])
def test_mlflow_leaves_no_other_folder_behind(tmp_path: Path, folder: str) -> None:
    create_sqlalchemy_engine_with_retry(sqlite_url(tmp_path / folder / "mlflow.db")).dispose()
    assert [path.name for path in tmp_path.iterdir()] == [folder]
