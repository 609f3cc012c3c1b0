"""The choice of a sweep's best trial: every part of the service that names a best trial calls this module.

A trial is a candidate if it belongs to the search (confirmations do not), is COMPLETE and has a value. Of two
candidates the better one is

1. the one that violates the constraints of its sweep less: any feasible trial is better than any other;
2. the one with the better value, which with several objectives is the value of the first one;
3. the one with the lower number.

So the choice depends neither on the order in which trials finished nor on the order in which rows are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import CheckpointRecord, SweepRecord, TrialRecord, by_trial

Constraints = Mapping[str, Mapping[str, float]]
"""The bounds `at_least` and `at_most` by metric, as in the document of a sweep."""


def order(value: float, number: int, *, maximize: bool, violation: float = 0.0) -> tuple[float, float, int]:
    """Return a sort key for a trial: the smaller key is the better trial.

    Args:
        value: best validation value of the trial.
        number: of the trial within its sweep; decides a tie.
        maximize: whether a larger value is better.
        violation: `total_violation` of the trial; 0 for a feasible one.
    """
    return violation, -value if maximize else value, number


def violation(value: float, *, at_least: float | None = None, at_most: float | None = None) -> float:
    """Return by how much a metric breaks its bounds: at most 0 if it keeps them, infinite for NaN."""
    if math.isnan(value):
        return math.inf
    below = at_least - value if at_least is not None else -math.inf
    above = value - at_most if at_most is not None else -math.inf
    return max(below, above)


def total_violation(constraints: Constraints, metrics: Mapping[str, float]) -> float:
    """Return the sum of the violations of a trial, 0 for a feasible one.

    Args:
        constraints: of the sweep.
        metrics: that the trial reported at its best step; a constraint on a metric that is missing counts as
            kept.
    """
    broken = (violation(metrics[name], **bounds) for name, bounds in constraints.items() if name in metrics)
    return sum(max(0.0, amount) for amount in broken)


def ranked(
    trials: Iterable[TrialRecord], *, maximize: bool, violations: Mapping[str, float] | None = None
) -> list[TrialRecord]:
    """Return the candidates, the best one first.

    Args:
        trials: of one sweep, in any order and of any role and state.
        maximize: whether a larger value is better.
        violations: `total_violation` by trial key; a trial that is missing is feasible.
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
    """Return the best trial of a search, or None if there is no candidate.

    Args:
        trials: of one sweep, in any order and of any role and state.
        maximize: whether a larger value is better.
        violations: `total_violation` by trial key; a trial that is missing is feasible.
        checkpoints: by trial key. If given, a trial is a candidate only if it still has the checkpoint of its
            best step: pass them to choose the trial whose weights will be loaded.
    """
    candidates = ranked(trials, maximize=maximize, violations=violations)
    if checkpoints is not None:
        candidates = [t for t in candidates if best_checkpoint(t, checkpoints.get(t.key, ()))]
    return candidates[0] if candidates else None


def confirmations_of(trials: Iterable[TrialRecord], best: TrialRecord) -> list[TrialRecord]:
    """Return the confirmations of a trial, by number: trials with its hyperparameters and fresh seeds.

    Confirmations of another trial, which was the best one before the search was extended, are left out.

    Args:
        trials: of one sweep, in any order and of any role and state.
        best: trial of the search.
    """
    chosen = [trial for trial in trials if trial.role == "confirmation" and trial.params == best.params]
    return sorted(chosen, key=lambda trial: trial.number)


def best_checkpoint(trial: TrialRecord, checkpoints: Iterable[CheckpointRecord]) -> CheckpointRecord | None:
    """Return the checkpoint of a trial's best step, or None if it is not kept.

    Older checkpoints of kind `best` are kept beside it, so the step decides, not the kind alone. A pinned one
    of that step is a copy of another trial, whose state has not the trial's value.
    """
    return next((row for row in checkpoints if row.kind == "best" and row.step == trial.best_step), None)


def best_of_sweep(ledger: Ledger, sweep: SweepRecord, *, with_checkpoint: bool = False) -> TrialRecord | None:
    """Return the best trial of a sweep in the ledger, or None if there is no candidate.

    Args:
        ledger: holds the sweep.
        sweep: its record.
        with_checkpoint: whether only a trial is a candidate that still has the checkpoint of its best step.
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
    """Return the best trial of a sweep whose rows were read, or None if there is no candidate.

    Args:
        ledger: holds the sweep.
        sweep: its record.
        trials: all of the sweep.
        checkpoints: of each trial, if only one is a candidate that still has that of its best step.
    """
    return best_trial(
        trials,
        maximize=sweep.facts["direction"] == "maximize",
        violations=violations_of(ledger, sweep),
        checkpoints=checkpoints,
    )


def violations_of(ledger: Ledger, sweep: SweepRecord) -> dict[str, float]:
    """Return the `total_violation` of each trial of a sweep that has a best step, by trial key."""
    constraints: Constraints = sweep.document.get("constraints") or {}
    if not constraints:
        return {}
    return {key: total_violation(constraints, row) for key, row in ledger.best_metrics(sweep.id).items()}
