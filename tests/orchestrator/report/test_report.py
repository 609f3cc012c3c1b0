"""Reports of a real ledger can be written at any time, and are never half written."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.report import report_files
from orchestrator.report.history import read
from orchestrator.storage.paths import Paths
from tests import sweeps


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return sweeps.filled(tmp_path / "mlruns")


@pytest.fixture
def ledger(paths: Paths) -> Ledger:
    return Ledger.open(paths.ledger_url)


def test_the_history_equals_what_was_written(ledger: Ledger) -> None:
    history = read(ledger, sweeps.SWEEP_ID)
    for expected, trial in zip(sweeps.trials(), history.trials, strict=True):
        assert (trial.key, trial.state, trial.value, trial.params) == (
            expected.key,
            expected.state,
            expected.value,
            expected.params,
        )
        assert [row.metrics for row in history.reports[trial.key]] == [
            row.metrics for row in sweeps.reports(expected)
        ]
    assert set(history.evaluations) == {sweeps.trial(7).key}


def test_an_unknown_sweep_is_refused_with_the_known_ones(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match=f"Its sweeps: {sweeps.SWEEP_ID}"):
        read(ledger, "nothing")


def test_write_leaves_complete_files_only(ledger: Ledger, tmp_path: Path) -> None:
    files = report_files.write_history(read(ledger, sweeps.SWEEP_ID), tmp_path / "report")
    report_files.write_history(read(ledger, sweeps.SWEEP_ID), tmp_path / "report")
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        *("report.html", "report.md", "leaderboard.csv", "hidden_norms.html")
    }
    assert all(file.stat().st_size for file in files.all())


def test_a_report_of_a_thousand_trials_is_small_enough_to_send(tmp_path: Path) -> None:
    states = ("COMPLETE", "PRUNED", "PRUNED", "FAILED")
    history = sweeps.history([sweeps.trial(number, states[number % 4]) for number in range(1000)])
    began = time.process_time()
    files = report_files.write_history(history, tmp_path)
    assert time.process_time() - began < 30
    assert files.html.stat().st_size < 10_000_000


def test_a_report_that_cannot_be_written_leaves_nothing_beside_it(ledger: Ledger, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    (folder / "report.html").mkdir(parents=True)
    with pytest.raises(OSError):
        report_files.write_history(read(ledger, sweeps.SWEEP_ID), folder)
    assert [path.name for path in folder.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_the_causes_of_failures_have_the_last_lines_of_a_log(tmp_path: Path) -> None:
    history = sweeps.history()
    (failed,) = [trial for trial in history.trials if trial.state == "FAILED"]
    log = tmp_path / f"{failed.key}.log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    text = report_files.write_history(
        history, tmp_path / "report", lambda key: tmp_path / f"{key}.log"
    ).html.read_text()
    assert "line 999" in text
    assert "line 987" not in text
    log.unlink()
    text = report_files.write_history(
        history, tmp_path / "report", lambda key: tmp_path / f"{key}.log"
    ).html.read_text()
    assert "line 999" not in text
