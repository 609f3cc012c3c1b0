"""A small dose of the delivery that `benchmarks.ledger --deliver` measures."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import ledger


@pytest.mark.slow
def test_a_backlog_and_a_steady_state_are_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "STEADY", 90)
    backlog, steady, rest = ledger.deliveries(tmp_path, running=5, points=200)
    assert backlog[0] == "a backlog of 180 points"
    lag = r"([\d.]+) s and ([\d.]+) s behind in its halves, (\d+) and (\d+) points at their ends"
    found = re.fullmatch(f"90 a second for 5 s: at most {lag}", steady[0])
    assert found is not None, steady[0]
    before, after, middle, left = map(float, found.groups())
    for points, seconds, most in ((middle, before, 2 * 90 + 18), (left, after, 5 * 90)):
        assert points <= most
        assert seconds > 0 or points == 0, "what is not delivered has an age"
    assert rest[0] == f"then the {left:.0f} that wait"
    for row in (backlog, steady):
        assert all(float(figure.replace(",", "")) > 0 for figure in row[1:3])
        assert 100 < float(row[4]) < 300, "MiB"
    with closing(sqlite3.connect(tmp_path / "mlruns" / "mlflow.db")) as database:
        [(points,)] = database.execute("SELECT count(*) FROM metrics WHERE key NOT LIKE 'system/%'")
    assert points == 180 + 5 * 90
