"""Objectives, constraints and published values of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.config.document import UNKNOWN_KEY, Path, Violation, nearest, tree_of
from orchestrator.config.feasible import check_setting
from orchestrator.config.sections import ObjectiveSection, SpaceFile, TrainableFile
from orchestrator.config.space import Distribution, active
from orchestrator.config.sweep_config import (
    Constraint,
    Direction,
    Objective,
    Published,
    Scheduler,
    SweepConfig,
    better,
)
from trainables.data.task import completed
from trainables.tasks import TASKS

_COSTS = ("train/loss", "tokens_per_second", "seconds/train", "seconds/evaluate")
_SENSE: dict[Direction, str] = {"maximize": "high", "minimize": "low"}


def read_objectives(file: SpaceFile) -> tuple[Objective, ...]:
    """Return the objectives. The first one ranks the trials.

    Raises:
        Violation: No trial reports a metric, or its direction is wrong.
    """
    score = TASKS[file.task].metric
    example = f"For example objective: {{{better(f'val/{score}')}: val/{score}}}."
    objectives = [] if file.objective is None else _objectives(file.objective)
    if file.objective is None or file.objective.model_fields_set == {"of"}:
        return (Objective(f"val/{score}", better(f"val/{score}")),)
    for objective in objectives:
        _check_objective(objective, score)
    metrics = {objective.metric for objective in objectives}
    leading = [metric for metric in (f"val/{score}", "val/loss") if metric in metrics]
    if not leading:
        raise Violation(("objective",), f"must include val/{score} or val/loss", example)
    if len(metrics) < len(objectives):
        raise Violation(("objective",), "must name each metric once", example)
    first = _preferred(file, objectives) or leading[0]
    if not first.startswith("val/"):
        must = "must be a `val/...` metric, which the checkpoint of a trial belongs to"
        raise Violation(("objective", "prefer"), must, f"Write prefer: {leading[0]}.", first)
    return tuple(sorted(objectives, key=lambda objective: (objective.metric != first, objective.metric)))


def read_named_objectives(file: TrainableFile, order: Sequence[str]) -> tuple[Objective, ...]:
    """Return the objectives of a file with a `trainable`. The first one in the file ranks the trials.

    Args:
        file: Validated file.
        order: Keys of its section `objective`, as they are written.

    Raises:
        Violation: There is none, or one is named twice.
    """
    example = "For example objective: {minimize: val/loss}."
    objectives = _objectives(file.objective) if file.objective is not None else []
    if not objectives:
        raise Violation(("objective",), "must name a metric that the trials report", example, "")
    if len({objective.metric for objective in objectives}) < len(objectives):
        raise Violation(("objective",), "must name each metric once", example)
    first = _preferred(file, objectives)
    return tuple(sorted(objectives, key=lambda goal: (goal.metric != first, order.index(goal.direction))))


def _preferred(file: SpaceFile | TrainableFile, objectives: Sequence[Objective]) -> str | None:
    """Return the objective that the file prefers, or None.

    Raises:
        Violation: It is not among the objectives.
    """
    preferred = None if file.objective is None else file.objective.prefer
    metrics = [objective.metric for objective in objectives]
    if preferred is not None and preferred not in metrics:
        must = "must name one of the objectives"
        raise Violation(("objective", "prefer"), must, nearest(preferred, metrics), f"`{preferred}`")
    return preferred


def check_single(file: SpaceFile | TrainableFile, objectives: Sequence[Objective]) -> bool:
    """Return True if the file has several objectives and prefers one of them.

    Raises:
        Violation: It prefers none, and a section needs the best trial or its value.
    """
    if len(objectives) == 1:
        return False
    if file.objective is not None and file.objective.prefer is not None:
        return True
    remedy = f"Write objective: {{..., prefer: {objectives[0].metric}}}."
    must = "needs a preference among the objectives, because no trial is the best in all of them"
    for path, needs in (
        (("confirm", "seeds"), file.confirm.seeds > 0),
        (("budget", "target"), file.budget.target is not None),
        (("budget", "no_improvement"), file.budget.no_improvement is not None),
    ):
        if needs:
            raise Violation(path, must, remedy, f"{len(objectives)} objectives")
    return False


def check_compared(
    file: SpaceFile | TrainableFile, objectives: Sequence[Objective], scheduler: Scheduler
) -> None:
    """Check the metric that a scheduler compares.

    Raises:
        Violation: No trial reports it, it has no direction or a wrong one, or there are several objectives
            and none is named.
    """
    metric, direction = (scheduler.options.get(name) for name in ("metric", "direction"))
    path = ("scheduler", scheduler.name)
    if metric is None:
        if direction is not None:
            raise Violation((*path, "direction"), "needs a metric", "Add metric, or leave it out.")
        if len(objectives) > 1 and "metric" in scheduler.options:
            must = f"must name the metric by which {scheduler.name} compares trials with several objectives"
            raise Violation((*path, "metric"), must, f"Write metric: {objectives[0].metric}.", "")
        return
    known = {objective.metric: objective.direction for objective in objectives}
    if isinstance(file, SpaceFile):
        _check_reported((*path, "metric"), metric, TASKS[file.task].metric)
        known.setdefault(metric, better(metric))
    if direction is None and metric not in known:
        must = f"must give the direction of {metric}, which is not an objective"
        raise Violation((*path, "direction"), must, "Write direction: minimize, or maximize.", "")
    if direction is not None and direction != known.get(metric, direction):
        must = f"{metric} is better when it is {_SENSE[known[metric]]}"
        raise Violation((*path, "direction"), must, f"Leave it out, or write {known[metric]}.", direction)


def read_reports(file: SpaceFile | TrainableFile, objectives: Sequence[Objective]) -> str:
    """Return the reports that determine the value of a trial: `best`, `last` or `mean of last N`.

    Raises:
        Violation: A mean is requested, and there are several objectives.
    """
    of = "best" if file.objective is None else file.objective.of
    if of.startswith("mean") and len(objectives) > 1:
        # The other objectives are read from the report of the checkpoint, which would not be their means.
        must = "must be best or last, because the file has several objectives"
        raise Violation(("objective", "of"), must, "Write of: last.", of)
    return of


def _objectives(section: ObjectiveSection) -> list[Objective]:
    higher = [Objective(metric, "maximize") for metric in section.maximize]
    return higher + [Objective(metric, "minimize") for metric in section.minimize]


def _check_objective(objective: Objective, score: str) -> None:
    path = ("objective", objective.direction)
    _check_reported(path, objective.metric, score)
    right = better(objective.metric)
    if objective.direction != right:
        must = f"{objective.metric} is better when it is {_SENSE[right]}"
        raise Violation(path, must, f"Write {right}: {objective.metric}.", objective.direction)


def reported_metrics(score: str) -> list[str]:
    """Return the metrics that trials report, except the hidden norms; `score` is the metric of the task."""
    return list(dict.fromkeys((f"val/{score}", "val/loss", f"train/{score}", *_COSTS)))


def _check_reported(path: Path, metric: str, score: str) -> None:
    reported = reported_metrics(score)
    if metric not in reported:
        must = "must be a metric that trials report"
        raise Violation(path, must, nearest(metric, reported), f"`{metric}`")


def read_constraints(file: SpaceFile | TrainableFile) -> tuple[Constraint, ...]:
    """Return the constraints in the order of their metrics.

    Raises:
        Violation: No trial reports a metric, or nothing can be within the bounds.
    """
    constraints = []
    for metric, bound in sorted(file.constraints.items()):
        path = ("constraints", metric)
        if isinstance(file, SpaceFile):
            _check_reported(path, metric, TASKS[file.task].metric)
        low, high = bound.at_least, bound.at_most
        if low is None and high is None:
            must = "must be {at_least: a number}, {at_most: a number} or both"
            raise Violation(path, must, "For example {at_most: 60}.")
        if low is not None and high is not None and low > high:
            got = f"{low:g} and {high:g}"
            raise Violation(path, "at_least <= at_most must hold", "Swap them.", got)
        constraints.append(Constraint(metric, low, high))
    return tuple(constraints)


def read_published(
    file: SpaceFile | TrainableFile, space: Mapping[str, Distribution], data: Mapping[str, Any]
) -> Published | None:
    """Return the published values and results, or None if the file has none.

    Raises:
        Violation: The values are not one assignment of the space, or a result is of another metric.
    """
    if file.published is None:
        return None
    section = file.published
    values = _assignment(section.values, space) if section.values else {}
    known = tested_metrics(file.task, data) if isinstance(file, SpaceFile) else None
    return Published(section.source, values, _results(section.extras, known))


def _assignment(given: Mapping[str, Any], space: Mapping[str, Distribution]) -> dict[str, Any]:
    path = ("published", "values")
    values: dict[str, Any] = {}
    for name, distribution in space.items():
        if not active(distribution, values):
            continue
        if name not in given:
            must = f"must give a value for {name}, which is searched"
            raise Violation(path, must, f"Add {name}, or take it out of search.", "")
        values[name] = _published_value((*path, name), distribution, given[name])
    if extra := [name for name in given if name not in values]:
        must = "must be searched, and active under these values"
        others = set(space) - set(values)
        remedy = nearest(extra[0], others) if others else "Take it out, or search it."
        raise Violation((*path, extra[0]), must, remedy, f"`{extra[0]}`")
    return values


def read_points(
    given: Sequence[Mapping[str, Any]], space: Mapping[str, Distribution]
) -> tuple[dict[str, Any], ...]:
    """Return the settings of the section `try`, each of which may leave out hyperparameters.

    Raises:
        Violation: A name is not searched, a value does not lie in its search, or a hyperparameter is not
            drawn under the given values.
    """
    return tuple(read_point(point, space, ("try", index)) for index, point in enumerate(given))


def read_point(given: Mapping[str, Any], space: Mapping[str, Distribution], path: Path) -> dict[str, Any]:
    """Return a setting to try, with the types of drawn values.

    Args:
        given: Values of some hyperparameters.
        space: Space of the search.
        path: Path of the values in the file.

    Raises:
        Violation: See `read_points`.
    """
    if not given:
        raise Violation(path, "must give a value for a searched hyperparameter", "Remove it.")
    if unknown := [name for name in given if name not in space]:
        raise Violation(
            (*path, unknown[0]), "must be searched", nearest(unknown[0], space), f"`{unknown[0]}`"
        )
    values: dict[str, Any] = {}
    for name, distribution in space.items():
        if name not in given:
            continue
        if missing := [parent for parent in distribution.when if parent not in given]:
            must = f"must come with a value of {missing[0]}, on which {name} depends"
            raise Violation((*path, name), must, f"Add {missing[0]}.")
        if not active(distribution, values):
            must = "must be active under the other values"
            raise Violation((*path, name), must, "Leave it out, or change the values that its `when` names.")
        values[name] = _published_value((*path, name), distribution, given[name])
    return values


def read_setting(sweep: SweepConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a setting that a user asks a sweep to try, with the types of drawn values.

    Args:
        sweep: The sweep.
        given: Values of some or all hyperparameters, as JSON has them.

    Raises:
        BadInput: A value is wrong, or a relation cannot hold.
    """
    root = tree_of({"try": dict(given)})
    with root.pointing():
        values = read_point(given, sweep.search, ("try",))
        check_setting(sweep.feasible, values, ("try",))
    return values


def _published_value(path: Path, distribution: Distribution, value: Any) -> Any:
    if not distribution.holds(value):
        must = f"must lie in its search, {distribution.described()}"
        raise Violation(path, must, "Widen the search, or correct the value.")
    return distribution.typed(value)


def tested_metrics(task: str, data: Mapping[str, Any]) -> list[str]:
    """Return the metrics of an evaluation on the test splits of a task with some options."""
    declared = TASKS[task]
    scores = dict.fromkeys((declared.metric, "loss"))
    further = declared.further(completed(task, declared.options, data))
    return [f"test/{score}{name}" for name in ("", *(f"_{name}" for name in further)) for score in scores]


def _results(given: Mapping[str, Any], known: Sequence[str] | None) -> dict[str, float]:
    """Return the published results. A `trainable` may have results of any metric."""
    for name, value in given.items():
        path = ("published", name)
        if known is not None and name not in known:
            remedy = nearest(name, ["source", "values", *known])
            raise Violation(path, UNKNOWN_KEY, remedy, "")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Violation(path, "must be a number", f"For example {name}: 0.9.")
    return {name: float(value) for name, value in given.items()}
