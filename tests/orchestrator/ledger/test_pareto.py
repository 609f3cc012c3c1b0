"""The Pareto front and its hypervolume, against an exhaustive search and against Optuna."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from optuna._hypervolume import compute_hypervolume

from orchestrator.ledger.sweeps.pareto import dominates, front, hypervolume, non_dominated, volumes
from tests import sweeps


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_front_and_hypervolume_are_those_of_optuna(dimensions: int) -> None:
    draw = random.Random(dimensions)
    for count in (1, 2, 7, 25):
        points = [
            tuple(draw.choice((0.1, 0.3, draw.random())) for _ in range(dimensions)) for _ in range(count)
        ]
        reference = (0.9,) * dimensions
        kept = non_dominated(points)
        assert kept == [
            index
            for index, point in enumerate(points)
            if not any(dominates(other, point) for other in points)
        ]
        inside = [point for point in points if all(value < 0.9 for value in point)]
        expected = compute_hypervolume(np.array(inside), np.array(reference)) if inside else 0.0
        assert hypervolume(points, reference) == pytest.approx(expected, abs=1e-12)
        assert volumes(points, reference)[-1] == pytest.approx(expected, abs=1e-12)


OBJECTIVES = {"maximize": ["val/accuracy"], "minimize": ["seconds/train"]}


def test_a_front_has_feasible_trials_that_no_other_one_dominates() -> None:
    record = sweeps.sweep_record()
    document = {
        **record.document,
        "objective": OBJECTIVES,
        "constraints": {"val/loss": {"at_most": 1.0}},
    }
    metrics = {0: (0.9, 30.0), 1: (0.8, 10.0), 2: (0.7, 20.0), 3: (0.95, 5.0), 4: (0.9, 30.0), 5: (0.99, 1.0)}
    trials = [
        sweeps.trial(number, "PRUNED" if number == 5 else "COMPLETE", value=value)
        for number, (value, _) in metrics.items()
    ]
    trials[1] = replace(trials[1], state="DIVERGED", cause="diverged at step 200: val/loss is nan")
    reported = {
        trial.key: {
            "val/accuracy": metrics[trial.number][0],
            "seconds/train": metrics[trial.number][1],
            "val/loss": 2.0 if trial.number == 3 else 0.5,
        }
        for trial in trials
    }
    found = front(replace(record, document=document), trials, reported)
    assert [trial.label for trial in found.trials] == ["0", "4", "1"]
    assert found.objectives == {"val/accuracy": "maximize", "seconds/train": "minimize"}
    assert (found.candidates, found.preference) == (4, None)
    assert found.reference == pytest.approx({"val/accuracy": 0.68, "seconds/train": 32.0})
    assert found.hypervolume == pytest.approx((0.9 - 0.68) * 2.0 + (0.8 - 0.68) * 20.0)
    assert list(found.history) == sorted(found.history)
    preferred = replace(record, document={**document, "objective": {**OBJECTIVES, "prefer": "val/accuracy"}})
    assert front(preferred, trials, reported).preference == "val/accuracy"


def test_a_sweep_without_a_value_has_an_empty_front() -> None:
    found = front(sweeps.sweep_record(), [sweeps.trial(0, "FAILED")], {})
    assert (found.trials, found.reference, found.hypervolume) == ((), {}, 0.0)
