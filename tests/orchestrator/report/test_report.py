"""Reports of a real ledger: written as a whole, at any time, and told to MLflow at the end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.report import report
from orchestrator.report.history import read
from orchestrator.storage.paths import Paths
from tests import sweeps


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return sweeps.filled(tmp_path / "mlruns")


@pytest.fixture
def ledger(paths: Paths) -> Ledger:
    return Ledger.open(paths.ledger_url)


def test_what_is_read_is_what_was_written(ledger: Ledger) -> None:
    history = read(ledger, sweeps.SWEEP_ID)
    for expected, found in zip(sweeps.trials(), history.trials, strict=True):
        assert (found.key, found.state, found.value, found.params) == (
            expected.key,
            expected.state,
            expected.value,
            expected.params,
        )
        assert [row.metrics for row in history.reports[found.key]] == [
            row.metrics for row in sweeps.reports(expected)
        ]
    assert set(history.readings) == {sweeps.trial(7).key}


def test_an_unknown_sweep_is_refused_with_those_that_are_known(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match=f"It knows: {sweeps.SWEEP_ID}"):
        read(ledger, "nothing")


def test_write_leaves_whole_files_only(ledger: Ledger, tmp_path: Path) -> None:
    files = report.write(ledger, sweeps.SWEEP_ID, tmp_path / "report")
    report.write(ledger, sweeps.SWEEP_ID, tmp_path / "report")
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        *("report.html", "report.md", "leaderboard.csv", "hidden_norms.html")
    }
    assert all(file.stat().st_size for file in files.all())


def test_the_end_is_told_with_everything_to_keep(ledger: Ledger, paths: Paths) -> None:
    told = report.conclude(ledger, sweeps.SWEEP_ID, paths, "COMPLETE")
    ledger.set_sweep_state(sweeps.SWEEP_ID, "COMPLETE", events=told)
    kept = {Path(event.payload["path"]).name for event in told if event.kind == "artifact"}
    assert kept == {"report.html", "report.md", "leaderboard.csv", "hidden_norms.html"}
    (model,) = [event for event in told if event.kind == "model"]
    assert Path(model.payload["checkpoint"]).name == "step-000000200"
    (end,) = [event for event in told if event.kind == "end"]
    assert end.payload["status"] == "FINISHED"
    assert end.payload["values"] == {
        "objective": sweeps.trial(7).value,
        **sweeps.reading(sweeps.trial(7)).metrics,
    }
    assert "COMPLETE" not in (paths.report(sweeps.SWEEP_ID) / "report.md").read_text()
    (note,) = [
        event.payload["tags"] for event in told if "mlflow.note.content" in event.payload.get("tags", {})
    ]
    assert note["mlflow.note.content"].startswith("Trial 7 reaches **0.6469** val/accuracy")


def test_an_interrupted_sweep_is_told_as_killed(ledger: Ledger, paths: Paths) -> None:
    told = report.conclude(ledger, sweeps.SWEEP_ID, paths, "INTERRUPTED", "SIGTERM")
    assert told[-1].payload["values"] == {}, "its figures come once, at the end"
    assert told[-1].payload["status"] == "KILLED"
    assert told[-1].payload["tags"] == {"sweep.state": "INTERRUPTED", "sweep.reason": "SIGTERM"}


def test_a_thousand_trials_make_a_report_that_can_be_sent_around(tmp_path: Path) -> None:
    states = ("COMPLETE", "PRUNED", "PRUNED", "FAILED")
    history = sweeps.history([sweeps.trial(number, states[number % 4]) for number in range(1000)])
    began = time.perf_counter()
    files = report.write_history(history, tmp_path)
    assert time.perf_counter() - began < 30
    assert files.html.stat().st_size < 10_000_000
