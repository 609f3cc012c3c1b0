"""A small dose of the delivery that `benchmarks.ledger --deliver` measures."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import ledger


@pytest.mark.slow
def test_a_backlog_and_a_steady_state_are_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "STEADY", 90)
    backlog, steady = ledger.deliveries(tmp_path, running=5, points=200)
    assert backlog[0] == "a backlog of 180 points"
    assert steady[0].startswith("90 a second for 5 s")
    for row in (backlog, steady):
        assert all(float(figure.replace(",", "")) > 0 for figure in row[1:3])
        assert 100 < float(row[4]) < 300, "MiB"
    with closing(sqlite3.connect(tmp_path / "mlruns" / "mlflow.db")) as database:
        [(points,)] = database.execute("SELECT count(*) FROM metrics WHERE key NOT LIKE 'system/%'")
    assert points == 180 + 5 * 90
