"""Observations of a sampler: the meaning of each trial's end, and a window over a long history."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optuna.trial import TrialState

from orchestrator.config.sweep_config import Constraint, SweepConfig
from orchestrator.ledger.sweeps.pareto import dominates
from orchestrator.ledger.sweeps.selection import violation

# TPE calls at most 25 trials good. Four times as many stay in the window, so that none of those is missing
# when objectives or constraints split them.
BEST = 100

# To a sampler an unfinished trial is RUNNING, whatever its state in the ledger is. A diverged trial is not
# shown, although it keeps its best value: with it, TPE would call more trials good (docs/search.md).
STATES: Mapping[str, TrialState] = {
    "COMPLETE": TrialState.COMPLETE,
    "DIVERGED": TrialState.FAIL,
    "PRUNED": TrialState.PRUNED,
    "FAILED": TrialState.FAIL,
}

Objectives = tuple[float, ...]


@dataclass(frozen=True)
class Observation:
    """A trial as a sampler observes it.

    Attributes:
        state: Optuna's state.
        values: One number per objective; None for an unfinished or failed trial.
        violations: Violation of each constraint; at most 0 if it is satisfied.
        curve: The first objective by step.
    """

    state: TrialState
    values: tuple[float, ...] | None
    violations: Mapping[str, float]
    curve: Mapping[int, float]


UNFINISHED = Observation(TrialState.RUNNING, None, {}, {})


def observe(
    sweep: SweepConfig,
    state: str,
    value: float | None,
    metrics: Mapping[str, float],
    curve: Mapping[int, float],
) -> Observation:
    """Return a trial as a sampler observes it.

    Args:
        sweep: Specification of the sweep.
        state: State of the trial in the ledger.
        value: Best first objective of the trial, if it has one.
        metrics: Metrics that the trial reported at the step of `value`.
        curve: First objective by step; values that are not finite are left out.
    """
    finite = {step: point for step, point in curve.items() if math.isfinite(point)}
    seen = STATES.get(state, TrialState.RUNNING)
    values: tuple[float, ...] | None = None
    if seen is TrialState.COMPLETE:
        assert value is not None, "a COMPLETE trial has a value"
        others = tuple(metrics[objective.metric] for objective in sweep.objectives[1:])
        values = (value, *others)
    if seen is TrialState.PRUNED and len(sweep.objectives) > 1:
        seen = TrialState.FAIL  # a pruned trial has no value for the further objectives
    if seen is TrialState.PRUNED:
        values = (finite[max(finite)],) if finite else None
    if values is not None and not all(map(math.isfinite, values)):
        seen, values = TrialState.FAIL, None
    violations = {
        c.metric: _violation(c, metrics[c.metric]) for c in sweep.constraints if c.metric in metrics
    }
    return Observation(seen, values, violations, finite)


def rank(sweep: SweepConfig, observation: Observation) -> tuple[float, ...] | None:
    """Return a sort key, smaller for a better trial, or None if a sampler learns nothing from the trial.

    The order is TPE's: complete trials, then pruned ones, the later the better, then those that violate a
    constraint.
    """
    if observation.state not in (TrialState.COMPLETE, TrialState.PRUNED):
        return None
    broken = sum(amount for amount in observation.violations.values() if amount > 0)
    if broken > 0:
        return (2.0, broken)
    if observation.state is TrialState.COMPLETE:
        return (0.0, minimised(sweep, observation)[0])
    if not observation.curve:
        return (1.0, 1.0, 0.0)
    return (1.0, -float(max(observation.curve)), minimised(sweep, observation)[0])


def minimised(sweep: SweepConfig, observation: Observation) -> Objectives:
    """Return the values of a trial with signs that make the smallest the best."""
    signs = [-1.0 if objective.direction == "maximize" else 1.0 for objective in sweep.objectives]
    return tuple(sign * value for sign, value in zip(signs, observation.values or (), strict=False))


def _violation(constraint: Constraint, value: float) -> float:
    return violation(value, at_least=constraint.at_least, at_most=constraint.at_most)


class Window:
    """The trials that a sampler sees: the best, the unfinished and the latest ones.

    With it an ask costs the same at trial 5,000 as at trial 500. Its content depends on the outcomes only,
    not on their order, so a rebuilt study has the same window.

    Args:
        limit: Number of trials in the window, or None for all of them.

    Attributes:
        translated: Values to show instead of the first objective, by number.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._count = 0
        self._unfinished: set[int] = set()
        self._ranked: list[tuple[tuple[float, ...], int]] = []
        self._front: dict[int, Objectives] = {}
        self._hidden: set[int] = set()
        self.translated: Mapping[int, float] = {}

    def begin(self, number: int) -> None:
        """Add a trial that was asked for."""
        self._count = max(self._count, number + 1)
        self._unfinished.add(number)

    def settle(self, number: int, rank: tuple[float, ...] | None, objectives: Objectives = ()) -> None:
        """Record the end of a trial.

        Args:
            number: Number of the trial.
            rank: Smaller for a better trial; None for a failed one.
            objectives: Values to be minimised, if there are several objectives.
        """
        self._unfinished.discard(number)
        if rank is None or self._limit is None:
            return
        if len(objectives) > 1:
            self._keep_if_not_dominated(number, objectives)
        insort(self._ranked, (rank, number))
        del self._ranked[BEST:]

    def show(self, earlier: Mapping[int, float], count: int) -> None:
        """Show the trials in `earlier`, of the `count` earlier ones, with these translated values."""
        self._hidden, self.translated = set(range(count)) - earlier.keys(), earlier

    def shown(self) -> Sequence[int] | None:
        """Return the numbers of the trials in the window, rising; None if it holds all of them."""
        if self._limit is None or self._count <= self._limit:
            return sorted(set(range(self._count)) - self._hidden) if self._hidden else None
        best = {number for _, number in self._ranked} | set(sorted(self._front)[-BEST:])
        latest = range(self._count - (self._limit - BEST), self._count)
        return sorted((best | self._unfinished | set(latest)) - self._hidden)

    def _keep_if_not_dominated(self, number: int, objectives: Objectives) -> None:
        if any(dominates(other, objectives) for other in self._front.values()):
            return
        self._front = {n: other for n, other in self._front.items() if not dominates(objectives, other)}
        self._front[number] = objectives
