"""Selection of a sweep's best trial, for every part of the service.

A trial is a candidate if it belongs to the search, is COMPLETE or DIVERGED, and has a value. Candidates are
ordered by

1. the violation of the sweep's constraints: any feasible trial is better than any other;
2. the value, which with several objectives is that of the one that the file prefers;
3. the number.

Without a preference among several objectives, no trial is the best one: see
`orchestrator.ledger.sweeps.pareto`.

After a race, its candidates come first, ordered by the mean of their retrainings with fresh seeds instead of
their own values, which were selected.

The order in which trials finish or rows are read has no effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.ledger.sweeps.records import (
    CANDIDATE,
    UNFINISHED_TRIAL,
    CheckpointRecord,
    SweepRecord,
    TrialRecord,
    by_trial,
)

if TYPE_CHECKING:  # the client has this module, and no SQLAlchemy
    from orchestrator.ledger.ledger import Ledger
Direction = Literal["maximize", "minimize"]

Constraints = Mapping[str, Mapping[str, float]]
"""Bounds `at_least` and `at_most` by metric, as in the document of a sweep."""


BEST = "best"
"""The default of `objective.of`: the best report of a trial is its value."""


def last_reports(of: str) -> int:
    """Return the number of last reports whose mean is a trial's value; 0 if its best report is.

    Args:
        of: `best`, `last` or `mean of last N`, as in the section `objective`.
    """
    if of == BEST:
        return 0
    return 1 if of == "last" else int(of.rpartition(" ")[2])


def last_reports_of(document: Mapping[str, Any]) -> int:
    """Return `last_reports` of the document of a sweep."""
    return last_reports((document.get("objective") or {}).get("of", BEST))


def mean_of_last(ledger: Ledger, trial_key: str, metric: str, reports: int) -> float:
    """Return the mean of a metric over at most `reports` last reports of a trial, which has at least one."""
    return fmean(report.metrics[metric] for report in ledger.recent_reports(trial_key, reports))


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
    return sum((max(0.0, amount) for amount in broken), 0.0)


def ranked(
    trials: Iterable[TrialRecord],
    *,
    maximize: bool,
    violations: Mapping[str, float] | None = None,
    racing: int = 0,
) -> list[TrialRecord]:
    """Return the candidates, the best one first.

    Args:
        trials: Trials of one sweep, in any order and of any role and state.
        maximize: Whether a larger value is better.
        violations: `total_violation` by trial key; missing trials are feasible.
        racing: Number of candidates of the race, see `racing_of`; 0 without a race.
    """
    trials, broken = list(trials), violations or {}
    keyed = [
        (order(trial.value, trial.number, maximize=maximize, violation=broken.get(trial.key, 0.0)), trial)
        for trial in trials
        if trial.role == "search" and trial.state in CANDIDATE and trial.value is not None
    ]
    candidates = [trial for _, trial in sorted(keyed, key=lambda pair: pair[0])]
    raced = racers(candidates, broken, racing)
    means = {trial.key: _fresh_mean(trials, trial, maximize=maximize) for trial in raced}
    return [*sorted(raced, key=lambda trial: -means[trial.key]), *candidates[len(raced) :]]


def racers(
    candidates: Sequence[TrialRecord], violations: Mapping[str, float], racing: int
) -> list[TrialRecord]:
    """Return the first candidates, without those that violate the constraints more than the best one.

    Args:
        candidates: Candidates, the best one first.
        violations: `total_violation` by trial key; missing trials are feasible.
        racing: Largest number of candidates of the race.
    """
    first = candidates[:racing]
    return [trial for trial in first if violations.get(trial.key, 0.0) == violations.get(first[0].key, 0.0)]


def racing_of(document: Mapping[str, Any]) -> int:
    """Return the number of candidates of the race in the document of a sweep; 0 without a race."""
    return int(((document.get("confirm") or {}).get("race") or {}).get("top", 0))


def fresh_values(
    trials: Iterable[TrialRecord], candidate: TrialRecord, *, maximize: bool
) -> list[float | None]:
    """Return the values of a trial's confirmations, larger is better.

    A running confirmation has None. One that has ended without a value is worse than any other: -inf.
    """
    known = confirmations_of(trials, candidate)
    values = [trial.value if trial.state in CANDIDATE else None for trial in known]
    return [
        (value if maximize else -value)
        if value is not None
        else (None if trial.state in UNFINISHED_TRIAL else -math.inf)
        for trial, value in zip(known, values, strict=True)
    ]


def _fresh_mean(trials: Iterable[TrialRecord], candidate: TrialRecord, *, maximize: bool) -> float:
    """Return the mean of the finished confirmations, larger is better; -inf without one."""
    values = fresh_values(trials, candidate, maximize=maximize)
    known = [value for value in values if value is not None]
    return fmean(known) if known else -math.inf


def best_trial(
    trials: Iterable[TrialRecord],
    *,
    maximize: bool,
    violations: Mapping[str, float] | None = None,
    checkpoints: Mapping[str, Sequence[CheckpointRecord]] | None = None,
    racing: int = 0,
) -> TrialRecord | None:
    """Return the best trial of a search, or None without a candidate.

    Args:
        trials: Trials of one sweep, in any order and of any role and state.
        maximize: Whether a larger value is better.
        violations: `total_violation` by trial key; missing trials are feasible.
        checkpoints: Checkpoints by trial key, to choose a trial whose weights can be loaded: a candidate must
            still have the checkpoint of its best step. None if any trial is a candidate.
        racing: Number of candidates of the race, see `racing_of`.
    """
    candidates = ranked(trials, maximize=maximize, violations=violations, racing=racing)
    if checkpoints is not None:
        candidates = [t for t in candidates if best_checkpoint(t, checkpoints.get(t.key, ()))]
    return candidates[0] if candidates else None


def confirmations_of(trials: Iterable[TrialRecord], best: TrialRecord) -> list[TrialRecord]:
    """Return the confirmations of a trial by number: trials with its hyperparameters, steps and other seeds.

    Args:
        trials: Trials of one sweep, in any order and of any role and state. Confirmations of a former best
            trial are left out.
        best: Trial of the search.
    """
    repeated = best.params, best.total_steps
    chosen = [
        trial
        for trial in trials
        if trial.role == "confirmation" and (trial.params, trial.total_steps) == repeated
    ]
    return sorted(chosen, key=lambda trial: trial.number)


def best_checkpoint(trial: TrialRecord, checkpoints: Iterable[CheckpointRecord]) -> CheckpointRecord | None:
    """Return the checkpoint of a trial's best step, or None if it is not kept.

    Older checkpoints of kind `best` are kept beside it, so the step decides as well. A pinned one of that
    step is the state of another trial.
    """
    return next((row for row in checkpoints if row.kind == "best" and row.step == trial.best_step), None)


def objectives_of(sweep: SweepRecord) -> dict[str, Direction]:
    """Return the direction of each objective of a sweep; the objective that ranks trials comes first."""
    section = sweep.document.get("objective") or {}
    found: dict[str, Direction] = {}
    for metric in section.get("maximize", ()):
        found[metric] = "maximize"
    for metric in section.get("minimize", ()):
        found[metric] = "minimize"
    first = str(sweep.facts["metric"])
    if first not in found:
        return {first: sweep.facts["direction"]}
    return {first: found.pop(first), **found}


def preference_of(sweep: SweepRecord) -> str | None:
    """Return the objective that decides which trial is best; None if the file names none of several."""
    objectives = objectives_of(sweep)
    is_named = len(objectives) == 1 or "prefer" in (sweep.document.get("objective") or {})
    return next(iter(objectives)) if is_named else None


def best_of_sweep(ledger: Ledger, sweep: SweepRecord, *, with_checkpoint: bool = False) -> TrialRecord | None:
    """Return the best trial of a sweep in the ledger, or None without a candidate or a preference.

    Args:
        ledger: Ledger of the sweep.
        sweep: Record of the sweep.
        with_checkpoint: Whether a candidate must still have the checkpoint of its best step.
    """
    if preference_of(sweep) is None:
        return None
    if not (with_checkpoint or sweep.document.get("constraints") or racing_of(sweep.document)):
        return ledger.best_value(sweep.id, maximize=sweep.facts["direction"] == "maximize")
    checkpoints = by_trial(ledger.checkpoints(sweep.id)) if with_checkpoint else None
    return best_of_trials(ledger, sweep, ledger.trials(sweep.id), checkpoints)


def best_of_trials(
    ledger: Ledger,
    sweep: SweepRecord,
    trials: Iterable[TrialRecord],
    checkpoints: Mapping[str, Sequence[CheckpointRecord]] | None,
) -> TrialRecord | None:
    """Return the best of a sweep's trials, or None without a candidate or a preference; see `best_trial`.

    Args:
        ledger: Ledger of the sweep.
        sweep: Record of the sweep.
        trials: All trials of the sweep.
        checkpoints: As for `best_trial`.
    """
    if preference_of(sweep) is None:
        return None
    return best_trial(
        trials,
        maximize=sweep.facts["direction"] == "maximize",
        violations=violations_of(ledger, sweep),
        checkpoints=checkpoints,
        racing=racing_of(sweep.document),
    )


def violations_of(ledger: Ledger, sweep: SweepRecord) -> dict[str, float]:
    """Return the `total_violation` of each trial with a best step, by trial key."""
    constraints: Constraints = sweep.document.get("constraints") or {}
    if not constraints:
        return {}
    return {key: total_violation(constraints, row) for key, row in ledger.best_metrics(sweep.id).items()}
