"""`check` compares MLflow's database with the ledger, and `recover --mlflow` brings back what is lost."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.ledger.ledger import Ledger
from orchestrator.storage.paths import Paths
from orchestrator.upkeep.mlflow_agreement import disagreements
from orchestrator.upkeep.redelivery import redeliver, set_aside
from tests import sweeps


@pytest.fixture(scope="module")
def told_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root whose MLflow was told of a sweep of three trials."""
    paths = sweeps.filled(tmp_path_factory.mktemp("told"), [sweeps.trial(number) for number in range(3)])
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        assert redeliver(ledger, sweeps.SWEEP_ID, paths, 120.0) == (0, 0)
    return paths.root


@pytest.fixture
def told(told_once: Path, tmp_path: Path) -> Paths:
    """Return a copy of that root."""
    shutil.copytree(told_once, tmp_path / "root")
    return Paths(tmp_path / "root")


def found(paths: Paths) -> list[str]:
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        record = ledger.sweep(sweeps.SWEEP_ID)
        assert record is not None
        return [each.problem for each in disagreements(ledger, record, paths.root / "mlflow.db")]


def changed(statement: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(statement)

    return change


ONCE_MORE = "SELECT key, value, timestamp + 1, run_uuid, step, is_nan FROM metrics WHERE step = 40"
HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (Path.unlink, "unable to open"),
    "a point lost": (changed("DELETE FROM metrics WHERE step = 80"), "missing"),
    "a point twice": (changed(f"INSERT INTO metrics {ONCE_MORE}"), "more often"),
    "a run lost": (changed("DELETE FROM tags WHERE key = 'trial.key'"), "one run of a trial, got 0"),
    "a run not ended": (changed("UPDATE runs SET status = 'RUNNING'"), "is FINISHED in MLflow, got RUNNING"),
}


def test_an_mlflow_that_was_told_agrees(told: Paths) -> None:
    assert found(told) == []


@pytest.mark.parametrize("name", HARM)
def test_what_differs_is_found(told: Paths, name: str) -> None:
    harm, expected = HARM[name]
    harm(told.root / "mlflow.db")
    assert any(expected in problem for problem in found(told))


def test_what_is_damaged_is_put_aside_and_told_again(told: Paths) -> None:
    content = b"no database" * 1000
    for part in told.root.glob("mlflow.db*"):
        part.write_bytes(content)
    assert any("file is not a database" in problem for problem in found(told))
    aside = set_aside(told)
    assert aside is not None
    assert aside.read_bytes() == content
    with closing(Ledger.open(told.ledger_url)) as ledger:
        assert redeliver(ledger, sweeps.SWEEP_ID, told, 120.0) == (23, 0)
    assert found(told) == []
