"""Every scheduler of the registry is built from a file, and decides the same again after a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler

from orchestrator.assignment import Outcome, shown_as
from orchestrator.config import from_dict
from orchestrator.config.strategy import SCHEDULERS
from orchestrator.config.sweep_config import Objective, SweepConfig
from orchestrator.driver import preflight
from orchestrator.ledger.records import CurvePoint
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule.schedulers import build

CURVES = {"s-0": 0.9, "s-1": 0.8, "s-2": 0.7, "s-3": 0.05, "s-4": 0.03, "s-5": 0.01}
"""Value of each trial after 300 steps, to which it rises slowly."""
ALONE = [name for name in SCHEDULERS if SCHEDULERS.settings(name).mutations is None]
"""Schedulers that decide alone; one that mutates trials asks the session for donors."""


def _sweep(name: str) -> SweepConfig:
    options = SCHEDULERS.settings(name).options
    required = {key: option.example for key, option in options.items() if option.default is ...}
    document = {
        "task": "retrieval",
        "model": {"layer": "rotrnn", "depth": 1, "d_model": 8, "d_state": 8, "heads": 2},
        "training": {"steps": 300, "interval": 10, "batch_size": 4, "recurrent_learning_rate": 1e-3},
        "search": {"learning_rate": {"log_uniform": [1e-4, 1e-2]}},
        "objective": {"maximize": "val/accuracy"},
        "scheduler": {name: required},
        "budget": {"trials": 4},
        "resources": {"cpu": 1},
    }
    return from_dict(document, name="space", profile=None, gpus=0)


def _decisions(name: str, metric: str = "val/accuracy") -> tuple[dict[str, str], list[CurvePoint]]:
    """Run all trials side by side; return the last decision on each, and the reports in their order.

    The report of the last step is left out: a trial ends there, whatever a scheduler decides.
    """
    sweep = replace(_sweep(name), objectives=(Objective(metric, "maximize"),))
    scheduler, last, reports = build(sweep, []), {}, []
    for step in range(10, 300, 10):
        for key, final in CURVES.items():
            if last.get(key) == TrialScheduler.STOP:
                continue
            attempt: Any = SimpleNamespace(trial_id=f"{key}.1")
            metrics = {metric: final * (0.9 + step / 3000)}
            result = Outcome(attempt.trial_id, step, done=False, metrics=metrics).to_result()
            scheduler.on_trial_add(None, attempt)
            last[key] = scheduler.on_trial_result(None, attempt, result)
            reports.append(CurvePoint(key, step, metrics, float(len(reports))))
    return last, reports


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_is_built_from_the_file(name: str, tmp_path: Path) -> None:
    sweep = _sweep(name)
    preflight.check_sweep(sweep, Hardware(cpus=2, gpus=0), tmp_path, "ada")
    assert build(sweep, []).metric in (shown_as("val/accuracy"), None)


@pytest.mark.parametrize("name", ALONE)
def test_a_scheduler_stops_the_worst_trials_and_no_other(name: str) -> None:
    decisions, _ = _decisions(name)
    assert set(decisions.values()) <= {TrialScheduler.CONTINUE, TrialScheduler.STOP}
    stopped = {key for key, decision in decisions.items() if decision == TrialScheduler.STOP}
    assert "s-0" not in stopped
    assert bool(stopped) == SCHEDULERS.settings(name).stops_trials


@pytest.mark.parametrize(
    "metric",
    ["training", "done", "queued", "step", "outcome", "config", "trial_id", "training_iteration",
     "time_total_s", "__duplicate__", "should_checkpoint", "epoch", "best", "a b/c.d:%", "x" * 250],
)  # fmt: skip
@pytest.mark.parametrize("name", ALONE)
def test_an_objective_may_have_any_name(name: str, metric: str) -> None:
    """It is never taken for a key of Ray Tune's results, or of the service's."""
    decisions, reports = _decisions(name, metric)
    assert decisions == _decisions(name)[0]
    sweep = replace(_sweep(name), objectives=(Objective(metric, "maximize"),))
    stopped = {key for key, decision in decisions.items() if decision == TrialScheduler.STOP}
    assert build(sweep, reports).stopped == stopped


@pytest.mark.parametrize("name", ALONE)
def test_a_restart_repeats_every_decision(name: str) -> None:
    decisions, reports = _decisions(name)
    again = build(_sweep(name), reports)
    assert again.stopped == {key for key, decision in decisions.items() if decision == TrialScheduler.STOP}
