"""A batch of events folds to one change a run."""

from __future__ import annotations

from orchestrator.tracking import events
from orchestrator.tracking.fold import Point, by_run, fold
from tests import sweeps


def test_a_trial_in_one_batch_is_one_change() -> None:
    trial = sweeps.trial(2)
    curve = [
        events.metrics(trial.key, row.step, {"val/accuracy": 0.5}, row.step) for row in sweeps.reports(trial)
    ]
    end = events.trial_ended(trial.key, "COMPLETE", None, 200, 0.5, 999)
    change = fold(trial.key, [events.trial_started(trial, sweeps.SPECIFICATION), *curve, end])
    assert change.name == "0002"
    assert change.points == [
        *(Point("val/accuracy", 0.5, step, step) for step in (40, 80, 120, 160, 200)),
        Point("objective", 0.5, 999, 200),
    ]
    assert (change.status, change.ended_ms) == ("FINISHED", 999)
    assert change.tags["trial.state"] == "COMPLETE"


def test_runs_keep_the_order_in_which_they_are_named() -> None:
    batch = [events.metrics(run, 1, {"a": 1.0}, 1) for run in ("s-1", "s-0", "s-1", "s-2")]
    grouped = by_run(batch)
    assert list(grouped) == ["s-1", "s-0", "s-2"]
    assert grouped["s-1"] == [batch[0], batch[2]]


def test_the_last_word_counts() -> None:
    trial = sweeps.trial(0)
    end = events.trial_ended(trial.key, "PREEMPTED", "interrupted", 40, None, 5)
    change = fold(trial.key, [end, events.trial_started(trial, sweeps.SPECIFICATION)])
    assert change.status == "RUNNING"
    assert change.ended_ms is None
    assert change.tags["trial.state"] == "RUNNING"


def test_non_finite_values_become_words() -> None:
    change = fold("s-1", [events.metrics("s-1", 40, {"val/loss": float("nan"), "train/loss": 0.5}, 1)])
    assert change.points == [Point("train/loss", 0.5, 1, 40)]
    assert change.tags == {"non-finite.val/loss": "nan at step 40"}
