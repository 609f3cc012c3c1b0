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
from orchestrator.ledger.sweeps.records import CurvePoint
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


def _decided(arrivals: list[tuple[str, int, float]], **options: Any) -> dict[str, int]:
    """Return the step at which ASHA stops each trial of 64 steps, given all reports in their order.

    Its rungs are at steps 4, 16 and 64.
    """
    document = {
        "trainable": {"function": "train.py:train"},
        "training": {"steps": 64, "interval": 1},
        "search": {"x": {"uniform": [0.0, 1.0]}},
        "objective": {"maximize": "score"},
        "scheduler": {"asha": {"reduction": 4, "grace": 0.0625, **options}},
        "budget": {"trials": 4},
    }
    scheduler, stopped = build(from_dict(document, name="space", profile=None, gpus=0), []), {}
    for key, step, value in arrivals:
        assert key not in stopped, "a trial that is stopped reports no more"
        attempt: Any = SimpleNamespace(trial_id=f"s-{key}.1")
        scheduler.on_trial_add(None, attempt)
        shown = {"step": step, shown_as("score"): value, "queued": False, "training": False}
        if scheduler.on_trial_result(None, attempt, shown) == TrialScheduler.STOP:
            stopped[key] = step
    return stopped


def test_asha_with_one_worker() -> None:
    """Trials one after the other: each is compared with those before it, so the first one always goes on."""
    arrivals = [("0", 4, 0.5), ("0", 16, 0.6), ("1", 4, 0.4), ("2", 4, 0.49), ("3", 4, 0.5), ("3", 16, 0.5)]
    # At rung 4 the best quarter of [0.5] begins at 0.5, that of [0.5, 0.4] at 0.475, of three at 0.495.
    assert _decided([*arrivals[:3], ("2", 4, 0.47), *arrivals[4:]]) == {"1": 4, "2": 4, "3": 16}
    assert _decided(arrivals) == {"1": 4, "3": 16}


def test_asha_with_fewer_trials_than_its_reduction() -> None:
    """Two trials, one in four goes on: the worse one is stopped if it comes second, and else neither."""
    assert _decided([("0", 4, 0.9), ("1", 4, 0.1)]) == {"1": 4}
    assert _decided([("0", 4, 0.1), ("1", 4, 0.9), ("0", 16, 0.2), ("1", 16, 0.8)]) == {}
    assert _decided([("0", 4, 0.1), ("0", 16, 0.1), ("0", 63, 0.1)]) == {}


def test_asha_decides_at_the_first_report_at_or_after_a_rung() -> None:
    arrivals = [("0", 5, 0.9), ("0", 10, 0.1), ("1", 3, 0.0), ("1", 7, 0.5), ("2", 5, 0.95), ("2", 8, 0.0)]
    assert _decided(arrivals) == {"1": 7}


def test_a_report_that_skips_rungs_counts_at_the_last_of_them() -> None:
    """Trial 0 reports at 20 and 30: neither value stands at rung 4, where it would be compared."""
    arrivals = [("0", 20, 0.9), ("0", 30, 0.95), ("1", 4, 0.3), ("1", 16, 0.95), ("2", 4, 0.2)]
    assert _decided(arrivals) == {"2": 4}
    assert _decided([("0", 20, 0.9), ("0", 30, 0.95), ("1", 17, 0.8)]) == {"1": 17}


EIGHT = [(f"{number}", 4, 0.9 - number / 100) for number in range(8)]
"""Eight trials, the best one first: each of the others is stopped when it arrives."""


def test_keep_spares_the_best_of_at_least_eight() -> None:
    """The best quarter of the eight begins at 0.8825, and their third one is at 0.88."""
    assert set(_decided([*EIGHT, ("8", 4, 0.881)], keep=0)) == set("12345678")
    assert set(_decided([*EIGHT, ("8", 4, 0.881)])) == set("1234567"), "the default keeps three"
    assert set(_decided([*EIGHT, ("8", 4, 0.881), ("9", 4, 0.8805)], keep=3)) == set("12345679")
    assert set(_decided([*EIGHT[:6], ("8", 4, 0.881)], keep=3)) == set("123458"), "they are only seven"


def test_a_kept_trial_is_never_stopped_later() -> None:
    """Trials 5, 6 and 7 are the best of eight at the first rung."""
    rising = [(f"{number}", 4, 0.1 + number / 100) for number in range(8)]  # none is stopped
    later = [("7", 16, 0.9), ("6", 16, 0.8), ("5", 16, 0.2), ("4", 16, 0.1)]
    assert _decided([*rising, *later], keep=0) == {"6": 16, "5": 16, "4": 16}
    assert _decided([*rising, *later], keep=3) == {"4": 16}


def test_promotion_repeats_its_pauses_after_a_restart() -> None:
    sweep = _sweep("asha")
    options = {**sweep.scheduler.options, "mode": "promote", "reduction": 2.0}
    sweep = replace(sweep, scheduler=replace(sweep.scheduler, options=options))
    scheduler, reports = build(sweep, []), []
    for at, (key, value) in enumerate([("s-0", 0.5), ("s-1", 0.7), ("s-2", 0.6), ("s-3", 0.1)]):
        attempt: Any = SimpleNamespace(trial_id=f"{key}.1")
        metrics = {"val/accuracy": value}
        result = Outcome(attempt.trial_id, 30, done=False, metrics=metrics).to_result()
        decision = scheduler.on_trial_result(None, attempt, result)
        assert (decision == TrialScheduler.STOP) == (key in scheduler.rungs.paused)
        reports.append(CurvePoint(key, 30, metrics, float(at)))
    assert scheduler.rungs.paused == {"s-0": 0, "s-2": 0, "s-3": 0}
    assert scheduler.rungs.promotable == ["s-2"]
    again = build(sweep, reports)
    assert again.rungs.paused == scheduler.rungs.paused
    assert again.stopped == set(), "a paused trial is not pruned"
