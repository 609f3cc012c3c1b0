"""Selection of a sweep's best trial, for every part of the service.

A trial is a candidate if it belongs to the search, is COMPLETE and has a value. Candidates are ordered by

1. the violation of the sweep's constraints: any feasible trial is better than any other;
2. the value, which with several objectives is that of the first one;
3. the number.

The order in which trials finish or rows are read has no effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import CheckpointRecord, SweepRecord, TrialRecord, by_trial

Constraints = Mapping[str, Mapping[str, float]]
"""Bounds `at_least` and `at_most` by metric, as in the document of a sweep."""


def order(value: float, number: int, *, maximize: bool, violation: float = 0.0) -> tuple[float, float, int]:
    """Return a sort key for a trial: the smaller key is the better trial.

    Args:
        value: Best validation value of the trial.
        number: Number of the trial within its sweep, which decides ties.
        maximize: Whether a larger value is better.
        violation: `total_violation` of the trial; 0 for a feasible one.
    """
    return violation, -value if maximize else value, number


def violation(value: float, *, at_least: float | None = None, at_most: float | None = None) -> float:
    """Return the amount by which a metric violates its bounds: at most 0 within them, infinite for NaN."""
    if math.isnan(value):
        return math.inf
    below = at_least - value if at_least is not None else -math.inf
    above = value - at_most if at_most is not None else -math.inf
    return max(below, above)


def total_violation(constraints: Constraints, metrics: Mapping[str, float]) -> float:
    """Return the sum of the violations of a trial, 0 for a feasible one.

    Args:
        constraints: Constraints of the sweep.
        metrics: Metrics of the trial at its best step. A constraint on a missing metric counts as satisfied.
    """
    broken = (violation(metrics[name], **bounds) for name, bounds in constraints.items() if name in metrics)
    return sum(max(0.0, amount) for amount in broken)


def ranked(
    trials: Iterable[TrialRecord], *, maximize: bool, violations: Mapping[str, float] | None = None
) -> list[TrialRecord]:
    """Return the candidates, the best one first.

    Args:
        trials: Trials of one sweep, in any order and of any role and state.
        maximize: Whether a larger value is better.
        violations: `total_violation` by trial key; missing trials are feasible.
    """
    broken = violations or {}
    keyed = [
        (order(trial.value, trial.number, maximize=maximize, violation=broken.get(trial.key, 0.0)), trial)
        for trial in trials
        if trial.role == "search" and trial.state == "COMPLETE" and trial.value is not None
    ]
    return [trial for _, trial in sorted(keyed, key=lambda pair: pair[0])]


def best_trial(
    trials: Iterable[TrialRecord],
    *,
    maximize: bool,
    violations: Mapping[str, float] | None = None,
    checkpoints: Mapping[str, Sequence[CheckpointRecord]] | None = None,
) -> TrialRecord | None:
    """Return the best trial of a search, or None without a candidate.

    Args:
        trials: Trials of one sweep, in any order and of any role and state.
        maximize: Whether a larger value is better.
        violations: `total_violation` by trial key; missing trials are feasible.
        checkpoints: Checkpoints by trial key, to choose a trial whose weights can be loaded: a candidate must
            still have the checkpoint of its best step. None if any trial is a candidate.
    """
    candidates = ranked(trials, maximize=maximize, violations=violations)
    if checkpoints is not None:
        candidates = [t for t in candidates if best_checkpoint(t, checkpoints.get(t.key, ()))]
    return candidates[0] if candidates else None


def confirmations_of(trials: Iterable[TrialRecord], best: TrialRecord) -> list[TrialRecord]:
    """Return the confirmations of a trial by number: trials with its hyperparameters and other seeds.

    Args:
        trials: Trials of one sweep, in any order and of any role and state. Confirmations of a former best
            trial are left out.
        best: Trial of the search.
    """
    chosen = [trial for trial in trials if trial.role == "confirmation" and trial.params == best.params]
    return sorted(chosen, key=lambda trial: trial.number)


def best_checkpoint(trial: TrialRecord, checkpoints: Iterable[CheckpointRecord]) -> CheckpointRecord | None:
    """Return the checkpoint of a trial's best step, or None if it is not kept.

    Older checkpoints of kind `best` are kept beside it, so the step decides as well. A pinned one of that
    step is the state of another trial.
    """
    return next((row for row in checkpoints if row.kind == "best" and row.step == trial.best_step), None)


def best_of_sweep(ledger: Ledger, sweep: SweepRecord, *, with_checkpoint: bool = False) -> TrialRecord | None:
    """Return the best trial of a sweep in the ledger, or None without a candidate.

    Args:
        ledger: Ledger of the sweep.
        sweep: Record of the sweep.
        with_checkpoint: Whether a candidate must still have the checkpoint of its best step.
    """
    if not with_checkpoint and not sweep.document.get("constraints"):
        return ledger.best_value(sweep.id, maximize=sweep.facts["direction"] == "maximize")
    checkpoints = by_trial(ledger.checkpoints(sweep.id)) if with_checkpoint else None
    return best_of_trials(ledger, sweep, ledger.trials(sweep.id), checkpoints)


def best_of_trials(
    ledger: Ledger,
    sweep: SweepRecord,
    trials: Iterable[TrialRecord],
    checkpoints: Mapping[str, Sequence[CheckpointRecord]] | None,
) -> TrialRecord | None:
    """Return the best of a sweep's trials, or None without a candidate; see `best_trial`.

    Args:
        ledger: Ledger of the sweep.
        sweep: Record of the sweep.
        trials: All trials of the sweep.
        checkpoints: As for `best_trial`.
    """
    return best_trial(
        trials,
        maximize=sweep.facts["direction"] == "maximize",
        violations=violations_of(ledger, sweep),
        checkpoints=checkpoints,
    )


def violations_of(ledger: Ledger, sweep: SweepRecord) -> dict[str, float]:
    """Return the `total_violation` of each trial with a best step, by trial key."""
    constraints: Constraints = sweep.document.get("constraints") or {}
    if not constraints:
        return {}
    return {key: total_violation(constraints, row) for key, row in ledger.best_metrics(sweep.id).items()}
