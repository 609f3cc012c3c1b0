"""What the end of a trial means to a sampler: numbers it may learn from, or none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from optuna.trial import TrialState

from orchestrator.config.sweep_config import Constraint, SweepConfig

# A trial that waits, wherever it waits, is RUNNING for the sampler.
STATES: Mapping[str, TrialState] = {
    "COMPLETE": TrialState.COMPLETE,
    "PRUNED": TrialState.PRUNED,
    "FAILED": TrialState.FAIL,
}


@dataclass(frozen=True)
class Outcome:
    """How a trial stands.

    Attributes:
        state: Optuna's word for it.
        values: one number an objective; None while it runs and for a failure.
        violations: by how much each constraint is broken; at most 0 where it holds.
        curve: the first objective by step.
    """

    state: TrialState
    values: tuple[float, ...] | None
    violations: Mapping[str, float]
    curve: Mapping[int, float]


def outcome(
    sweep: SweepConfig,
    state: str,
    value: float | None,
    metrics: Mapping[str, float],
    curve: Mapping[int, float],
) -> Outcome:
    """Return how a trial stands.

    Args:
        sweep: its specification.
        state: of the trial in the ledger.
        value: its best first objective, if it has one.
        metrics: what it reported at the step of `value`.
        curve: its first objective by step; what is not finite is left out.
    """
    finite = {step: each for step, each in curve.items() if math.isfinite(each)}
    told = STATES.get(state, TrialState.RUNNING)
    values: tuple[float, ...] | None = None
    if told is TrialState.COMPLETE:
        assert value is not None, "a COMPLETE trial has a value"
        others = tuple(metrics[objective.metric] for objective in sweep.objectives[1:])
        values = (value, *others)
    if told is TrialState.PRUNED and len(sweep.objectives) > 1:
        told = TrialState.FAIL  # where a trial would have gone is not known for every objective
    if told is TrialState.PRUNED:
        values = (finite[max(finite)],) if finite else None
    if values is not None and not all(math.isfinite(each) for each in values):
        told, values = TrialState.FAIL, None
    violations = {
        c.metric: _violation(c, metrics[c.metric]) for c in sweep.constraints if c.metric in metrics
    }
    return Outcome(told, values, violations, finite)


def rank(sweep: SweepConfig, outcome: Outcome) -> tuple[float, ...] | None:
    """Return where a trial stands among others, the lower the better; None where there is nothing to learn.

    The order is TPE's: complete trials, then those that were stopped, the later the better, then those that
    break a constraint.
    """
    if outcome.state not in (TrialState.COMPLETE, TrialState.PRUNED):
        return None
    broken = sum(violation for violation in outcome.violations.values() if violation > 0)
    if broken > 0:
        return (2.0, broken)
    if outcome.state is TrialState.COMPLETE:
        return (0.0, minimised(sweep, outcome)[0])
    if not outcome.curve:
        return (1.0, 1.0, 0.0)
    return (1.0, -float(max(outcome.curve)), minimised(sweep, outcome)[0])


def minimised(sweep: SweepConfig, outcome: Outcome) -> tuple[float, ...]:
    """Return the values with the sign that makes the lowest the best."""
    signs = [-1.0 if objective.direction == "maximize" else 1.0 for objective in sweep.objectives]
    return tuple(sign * value for sign, value in zip(signs, outcome.values or (), strict=False))


def _violation(constraint: Constraint, value: float) -> float:
    if math.isnan(value):
        return math.inf
    low, high = constraint.at_least, constraint.at_most
    return max(low - value if low is not None else -math.inf, value - high if high is not None else -math.inf)
