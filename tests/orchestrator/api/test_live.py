"""What a sweep does at a moment, as its ledger has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api.live import best_values, live, seconds_left, steps_per_second
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
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
    assert trial.seconds_left == pytest.approx(8.0)


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


def test_best_values_follow_the_ends_of_complete_trials() -> None:
    trials = [
        sweeps.trial(0, value=0.6, finished_at=3.0),
        sweeps.trial(1, value=0.5, finished_at=1.0),
        sweeps.trial(2, value=0.4, finished_at=2.0),
        sweeps.trial(3, "PRUNED", value=0.9, finished_at=2.5),
        sweeps.trial(4, value=0.9, finished_at=4.0, role="confirmation"),
    ]
    assert best_values(trials, maximize=True) == (0.5, 0.5, 0.6)
    assert best_values(trials, maximize=False) == (0.5, 0.4, 0.4)
    diverged = sweeps.trial(5, "DIVERGED", value=0.7, finished_at=3.5)
    assert best_values([*trials, diverged], maximize=True) == (0.5, 0.5, 0.6, 0.7)


def test_the_best_value_so_far_is_of_a_feasible_trial() -> None:
    values = (0.9, 0.5, 0.6)
    trials = [
        sweeps.trial(number, value=value, finished_at=number + 1.0) for number, value in enumerate(values)
    ]
    keys = [trial.key for trial in trials]
    assert best_values(trials, maximize=True, violations={keys[0]: 0.1}) == (0.9, 0.5, 0.6)
    assert best_values(trials, maximize=True, violations={keys[0]: 0.1, keys[2]: 0.2}) == (0.9, 0.5, 0.5)


def test_the_time_left_is_that_of_the_last_trials() -> None:
    trials = [sweeps.trial(number, finished_at=10.0 * number) for number in range(4)]
    assert seconds_left(trials, 10) == pytest.approx(60.0)
    assert seconds_left(trials[:1], 10) is None


def test_the_speed_ignores_the_reports_of_earlier_attempts() -> None:
    first, *others = sweeps.reports(sweeps.trial(0))
    later = [replace(report, attempt_id="x.2", at=report.at + 500.0) for report in others]
    assert steps_per_second([first, *later]) == pytest.approx(10.0)
    assert steps_per_second([first, later[0]]) is None
    assert steps_per_second([]) is None
