"""The Pareto front of a sweep with several objectives, and the hypervolume that it dominates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.ledger.sweeps.records import CANDIDATE, SweepRecord, TrialRecord, trial_label
from orchestrator.ledger.sweeps.selection import (
    Constraints,
    Direction,
    objectives_of,
    preference_of,
    total_violation,
)

if TYPE_CHECKING:  # the client has this module, and no SQLAlchemy
    from orchestrator.ledger.ledger import Ledger

Point = tuple[float, ...]
"""Values of a trial in the order of the objectives, with signs that make the smallest the best."""


MARGIN = 0.1
"""Distance of the reference from the worst value, as a share of the range.

Source: H. Ishibuchi, R. Imada, Y. Setoguchi, Y. Nojima, "How to Specify a Reference Point in Hypervolume
Calculation for Fair Performance Comparison", Evolutionary Computation 26, 2018."""


@dataclass(frozen=True)
class FrontTrial:
    """A trial of a Pareto front.

    Attributes:
        key: Key of the trial.
        label: Number of the trial.
        step: Step of its values and of its checkpoint.
        values: Value of each objective.
        params: Hyperparameters of the trial.
    """

    key: str
    label: str
    step: int
    values: Mapping[str, float]
    params: Mapping[str, Any]


@dataclass(frozen=True)
class ParetoFront:
    """The trials of a search that no other feasible trial dominates.

    A trial dominates another one if it is at least as good in each objective and better in one.

    Attributes:
        objectives: Direction of each objective, the ranking one first.
        preference: Objective that decides which trial is best, or None if the file names none of several.
        trials: Trials of the front, from the best to the worst in the first objective.
        candidates: Number of feasible trials with a value that are compared.
        reference: For each objective, a tenth of the range of the candidates beyond their worst value; empty
            without candidates.
        hypervolume: Volume between the front and the reference, in the product of the objectives' units.
        history: Hypervolume after each candidate, in the order of their ends, with the same reference.
    """

    objectives: Mapping[str, Direction]
    preference: str | None
    trials: Sequence[FrontTrial]
    candidates: int
    reference: Mapping[str, float]
    hypervolume: float
    history: Sequence[float]


def read_front(ledger: Ledger, sweep: SweepRecord) -> ParetoFront:
    """Return the Pareto front of a sweep in the ledger."""
    return front(sweep, ledger.trials(sweep.id, role="search"), ledger.best_metrics(sweep.id))


def front(
    sweep: SweepRecord, trials: Iterable[TrialRecord], metrics: Mapping[str, Mapping[str, float]]
) -> ParetoFront:
    """Return the Pareto front of a sweep.

    Args:
        sweep: Record of the sweep.
        trials: Trials of the sweep, in any order and of any role and state.
        metrics: Metrics of each trial at its best step, by key.
    """
    objectives = objectives_of(sweep)
    constraints: Constraints = sweep.document.get("constraints") or {}
    candidates: list[tuple[TrialRecord, dict[str, float]]] = []
    for trial in sorted(trials, key=lambda trial: (trial.finished_at or 0.0, trial.number)):
        reported = metrics.get(trial.key, {})
        is_candidate = trial.role == "search" and trial.state in CANDIDATE and trial.value is not None
        if not is_candidate or not reported.keys() >= objectives.keys() - {next(iter(objectives))}:
            continue
        if total_violation(constraints, reported) == 0.0:
            values = [trial.value, *(reported[name] for name in list(objectives)[1:])]
            candidates.append((trial, dict(zip(objectives, map(float, values), strict=True))))  # type: ignore[arg-type]
    points = [signed(values, objectives) for _, values in candidates]
    kept = non_dominated(points)
    chosen = sorted((candidates[index] for index in kept), key=lambda one: signed(one[1], objectives))
    # Beyond the worst values, so that the ends of the front count, too.
    reference = tuple(
        max(column) + MARGIN * (max(column) - min(column)) for column in zip(*points, strict=True)
    )
    history = volumes(points, reference)
    return ParetoFront(
        objectives=objectives,
        preference=preference_of(sweep),
        trials=tuple(
            FrontTrial(trial.key, trial_label(trial.key), int(trial.best_step or 0), values, trial.params)
            for trial, values in chosen
        ),
        candidates=len(candidates),
        reference={
            name: -worst if objectives[name] == "maximize" else worst
            for name, worst in zip(objectives, reference, strict=False)
        },
        hypervolume=history[-1] if history else 0.0,
        history=history,
    )


def signed(values: Mapping[str, float], objectives: Mapping[str, str]) -> Point:
    """Return the values of a trial as a point whose smallest coordinates are the best."""
    return tuple(-values[name] if way == "maximize" else values[name] for name, way in objectives.items())


def dominates(one: Point, other: Point) -> bool:
    """Return True if a point is at least as good in each coordinate and better in one; smaller is better."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def non_dominated(points: Sequence[Point]) -> list[int]:
    """Return the indices of the points that no other point dominates; equal points are all kept."""
    front: list[int] = []
    # In lexicographic order, a point can be dominated only by an earlier one.
    for index in sorted(range(len(points)), key=lambda index: points[index]):
        if not any(dominates(points[other], points[index]) for other in front):
            front.append(index)
    return sorted(front)


def volumes(points: Sequence[Point], reference: Point) -> tuple[float, ...]:
    """Return the hypervolume after each point, which is computed again only if the front has changed."""
    found: list[float] = []
    front: list[Point] = []
    for point in points:
        if any(point == other or dominates(other, point) for other in front):
            found.append(found[-1])
            continue
        front = [other for other in front if not dominates(point, other)] + [point]
        found.append(hypervolume(front, reference))
    return tuple(found)


def hypervolume(points: Iterable[Point], reference: Point) -> float:
    """Return the volume of the space that is dominated by some point and dominates the reference.

    The space is cut into slices along the last coordinate, and the volume of each slice is that of its
    points in the other coordinates.

    Source: E. Zitzler, L. Thiele, "Multiobjective Evolutionary Algorithms: A Comparative Case Study and the
    Strength Pareto Approach", IEEE Transactions on Evolutionary Computation 3, 1999; the slices: J. Knowles,
    "Local-Search and Hybrid Evolutionary Algorithms for Pareto Optimization", PhD thesis, 2002.

    Args:
        points: Points whose smallest coordinates are the best.
        reference: Worst point that counts.
    """
    inside = [point for point in points if all(a < b for a, b in zip(point, reference, strict=True))]
    if not inside:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(point[0] for point in inside)
    inside = sorted((inside[index] for index in non_dominated(inside)), key=lambda point: point[-1])
    ends = [*(point[-1] for point in inside[1:]), reference[-1]]
    return sum(
        (end - point[-1]) * hypervolume([each[:-1] for each in inside[: count + 1]], reference[:-1])
        for count, (point, end) in enumerate(zip(inside, ends, strict=True))
        if end > point[-1]
    )
