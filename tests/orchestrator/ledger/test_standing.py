"""The standing of a sweep: best so far, improvements, cost, time left and failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from orchestrator.ledger.sweeps.records import RESOURCES, AttemptRecord, TrialRecord
from orchestrator.ledger.sweeps.standing import (
    DeviceHours,
    ValueSoFar,
    best_so_far,
    cost,
    failure_groups,
    history,
    improvement,
    spent_by_device,
    values_so_far,
)
from tests import sweeps

VALUES = (0.6, 0.5, 0.4)


def ended(*values: float) -> list[TrialRecord]:
    """Return complete trials that have ended one after the other."""
    return [
        sweeps.trial(number, value=value, finished_at=number + 1.0) for number, value in enumerate(values)
    ]


def so_far(trials: Sequence[TrialRecord], broken: Sequence[float] = ()) -> dict[str, ValueSoFar]:
    """Return the values of trials, the first of which violate the constraints by these amounts."""
    amounts = [*broken, *[0.0] * len(trials)]
    return {
        trial.key: ValueSoFar(trial.value, trial.step, amount)
        for trial, amount in zip(trials, amounts, strict=False)
        if trial.value is not None
    }


def bests(trials: Sequence[TrialRecord], *, maximize: bool, broken: Sequence[float] = ()) -> list[float]:
    """Return the best value so far after each trial."""
    return [point.best for point in history(trials, so_far(trials, broken), maximize=maximize)]


def test_the_history_follows_the_ends_of_trials() -> None:
    trials = [replace(each, finished_at=at) for each, at in zip(ended(*VALUES), (3.0, 1.0, 2.0), strict=True)]
    assert bests(trials, maximize=True) == [0.5, 0.5, 0.6]
    assert bests(trials, maximize=False) == [0.5, 0.4, 0.4]
    pruned = sweeps.trial(3, "PRUNED", value=0.9, finished_at=2.5)
    assert bests([*trials, pruned], maximize=True) == [0.5, 0.5, 0.9, 0.9]


def test_a_feasible_trial_is_better_than_any_other() -> None:
    trials = ended(0.9, 0.5, 0.6)
    assert bests(trials, maximize=True, broken=(0.1,)) == [0.9, 0.5, 0.6]
    assert bests(trials, maximize=True, broken=(0.1, 0.0, 0.2)) == [0.9, 0.5, 0.5]


def test_the_last_improvement_counts_the_trials_after_it() -> None:
    points = history(ended(0.5, 0.7, 0.6, 0.7), so_far(ended(0.5, 0.7, 0.6, 0.7)), maximize=True)
    last = improvement(points)
    assert last is not None
    assert (last.trial, last.since, last.at) == ("1", 2, 2.0), "a tie is not an improvement"
    assert last.gain == pytest.approx(0.2)
    assert improvement([]) is None


def test_a_running_trial_is_the_best_by_its_best_report() -> None:
    running = sweeps.trial(8, "RUNNING", step=120, value=None, best_step=None, finished_at=None)
    saved = replace(
        sweeps.checkpoint(replace(running, best_step=80), "/step"), metrics={"val/accuracy": 0.99}
    )
    trials = [*ended(0.5, 0.6), running]
    values = values_so_far(sweeps.sweep_record(), trials, {}, {running.key: saved}, lambda key, most: [])
    best = best_so_far(trials, values, maximize=True)
    assert best is not None
    assert (best.label, best.state, best.value) == ("8", "RUNNING", 0.99)
    assert (best.best_step, best.step, best.params) == (80, 120, running.params)


def test_a_pruned_trial_is_the_best_and_a_failed_one_is_not() -> None:
    pruned = sweeps.trial(3, "PRUNED", value=0.9, finished_at=2.5)
    failed = sweeps.trial(4, "FAILED")
    trials = [*ended(0.5), pruned, failed]
    values = values_so_far(sweeps.sweep_record(), trials, {}, {}, lambda key, most: [])
    best = best_so_far(trials, values, maximize=True)
    assert best is not None
    assert (best.label, best.state) == ("3", "PRUNED")
    assert failed.key not in values


def test_an_unfinished_trial_has_the_mean_of_its_last_values_where_the_file_asks_for_it() -> None:
    running = sweeps.trial(8, "RUNNING", step=120, value=None, best_step=None, finished_at=None)
    saved = replace(
        sweeps.checkpoint(replace(running, best_step=120), "/step"), metrics={"val/accuracy": 0.7}
    )
    sweep = sweeps.sweep_record()
    sweep = replace(sweep, document={**sweep.document, "objective": {"of": "mean of last 2"}})
    values = values_so_far(sweep, [running], {}, {running.key: saved}, lambda key, most: [0.5, 0.7][-most:])
    assert values[running.key].value == pytest.approx(0.6)


def test_the_cost_has_elapsed_and_compute_seconds_beside_their_limits() -> None:
    """Of two attempts, the second one overlaps the first by 10 s and still runs."""
    sweep = sweeps.sweep_record()
    document = {
        **sweep.document,
        "budget": {"trials": 8, "hours": 2.0, "gpu_hours": None},
        "resources": {"cpu": 2.0, "gpu": 0.5},
    }
    attempts = [
        AttemptRecord("x-0.1", "x-0", 1, "ENDED", None, "n", 0.0, 40.0, 10.0),
        AttemptRecord("x-1.1", "x-1", 1, "RUNNING", None, "n", 0.0, None, 30.0),
        AttemptRecord("x-2.1", "x-2", 1, "RUNNING", None, None, 0.0, None, None),
    ]
    used = cost(
        replace(sweep, document=document), attempts, {"COMPLETE": 1, "RUNNING": 2}, trials_limit=8, now=70.0
    )
    assert (used.trials_ended, used.trials_limit) == (1, 8)
    assert (used.elapsed_seconds, used.elapsed_limit_seconds) == (60.0, 7200.0)
    assert used.compute_seconds == 70.0
    assert used.core_hours == pytest.approx(140 / 3600)
    assert (used.gpu_hours, used.gpu_hours_limit) == (pytest.approx(35 / 3600), None)


def test_hours_are_counted_by_device_from_a_time_on() -> None:
    """The first attempt began an hour before that time, and the last one still runs on another device."""
    held = [
        {"cpu": 2.0, "gpu": 0.0, "at": 0.0},
        {"cpu": 1.0, "gpu": 0.5, "device": "NVIDIA H200", "at": 7200.0},
    ]
    sweep = sweeps.sweep_record(facts={RESOURCES: held})
    attempts = [
        AttemptRecord("x-0.1", "x-0", 1, "ENDED", None, "n", 0.0, 3600.0, 0.0),
        AttemptRecord("x-1.1", "x-1", 1, "ENDED", None, "n", 0.0, 7200.0, 0.0),
        AttemptRecord("x-2.1", "x-2", 1, "RUNNING", None, "n", 7200.0, None, 7200.0),
    ]
    by_device = spent_by_device(attempts, sweep, since=3600.0, now=14_400.0)
    assert by_device == {"CPU": DeviceHours(1.0, 2.0, 0.0), "NVIDIA H200": DeviceHours(2.0, 2.0, 1.0)}
    assert spent_by_device(attempts, sweep, since=7200.0, now=None) == {}
    all_hours = spent_by_device(attempts, sweep, since=0.0, now=14_400.0).values()
    used = cost(sweep, attempts, {}, trials_limit=3, now=14_400.0)
    assert sum(each.core_hours for each in all_hours) == used.core_hours
    assert sum(each.gpu_hours for each in all_hours) == used.gpu_hours


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (
            "error: the script has failed (got exit code 1: ModuleNotFoundError: No module "
            "named 'torch' (train.py, line 37: import torch)). See `sweep logs`.",
            ("ModuleNotFoundError: No module named 'torch'", "ModuleNotFoundError", "train.py", 37, "error"),
        ),
        (
            "error: ValueError: shapes (2, 3) and (4,) differ",
            ("ValueError: shapes (2, 3) and (4,) differ", "ValueError", None, None, "error"),
        ),
        (
            "error: the script has failed (got exit code 1: KeyError: 'a' (src/a b.py, "
            "line 2: x = f(y)[0])). See `sweep logs`.",
            ("KeyError: 'a'", "KeyError", "src/a b.py", 2, "error"),
        ),
        ("worker lost", ("worker lost", None, None, None, "worker lost")),
        (None, ("unknown", None, None, None, "unknown")),
    ],
)
def test_failures_are_grouped_by_the_last_line_of_the_error(
    cause: str | None, expected: tuple[object, ...]
) -> None:
    trials = [sweeps.trial(number, "FAILED", cause=cause) for number in range(3)]
    [group] = failure_groups([*trials, *ended(0.5)])
    assert (group.message, group.error, group.file, group.line, group.cause) == expected
    assert (group.count, group.trials) == (3, ["0", "1", "2"])
    assert f"`sweep retry-failed {sweeps.SWEEP_ID}`" in group.next_step
