"""What a sweep does at a moment, as its ledger has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api.live import live
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.standing import steps_per_second
from tests import sweeps


def test_running_trials_have_their_value_and_speed(tmp_path: Path) -> None:
    paths = sweeps.filled(tmp_path)
    ledger = Ledger.open(paths.ledger_url)
    running = sweeps.trial(8, "RUNNING", step=120, value=None, best_step=None)
    sweeps.start_trial(sweeps.writer_of(ledger), running, paths.checkpoints(sweeps.SWEEP_ID))
    ledger.close()
    [trial] = live("retrieval", root=tmp_path).running
    assert (trial.label, trial.step, trial.total_steps) == ("8", 120, 200)
    assert trial.value == sweeps.accuracy(8, 120)
    assert trial.steps_per_second == pytest.approx(10.0)
    assert trial.seconds_left == pytest.approx(4.0), "8 s after its last report, which is older than 4 s"


def test_a_sweep_without_a_driver_has_no_place(tmp_path: Path) -> None:
    sweeps.filled(tmp_path)
    now = live(root=tmp_path)
    assert now.status.id == sweeps.SWEEP_ID
    assert now.place is None
    assert now.running == ()


def test_a_sweep_that_is_missing_is_refused(tmp_path: Path) -> None:
    sweeps.filled(tmp_path)
    with pytest.raises(BadInput):
        live("listops", root=tmp_path)


def test_the_speed_ignores_the_reports_of_earlier_attempts() -> None:
    first, *others = sweeps.reports(sweeps.trial(0))
    later = [replace(report, attempt_id="x.2", at=report.at + 500.0) for report in others]
    assert steps_per_second([first, *later]) == pytest.approx(10.0)
    assert steps_per_second([first, later[0]]) is None
    assert steps_per_second([]) is None
