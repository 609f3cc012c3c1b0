"""Rules of what a search is after and how it gets there: objective, sampler, scheduler, published values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.spec.catalogue import tasks
from orchestrator.spec.complaints import complaint, flow, nearest
from orchestrator.spec.document import Node
from orchestrator.spec.hyperparameters import searchable
from orchestrator.spec.methods import SAMPLERS, Sampler, Scheduler, read_sampler, read_scheduler
from orchestrator.spec.model import Constraint, Objective, Published
from orchestrator.spec.sections import ObjectiveSection, SpaceFile
from orchestrator.spec.space import Distribution, active

Space = Mapping[str, Distribution]

_COST = ("train/loss", "tokens_per_second", "seconds/train", "seconds/compile", "seconds/evaluate")


def read_objectives(root: Node, file: SpaceFile) -> tuple[Objective, ...]:
    """Return the objectives, the one that decides which trial is best first.

    Raises:
        BadInput: a metric that no trial reports, or one the wrong way round.
    """
    score = tasks()[file.task].metric
    best = _best_direction(f"val/{score}")
    section = file.objective or ObjectiveSection(**{best: [f"val/{score}"]})
    found = [Objective(metric, "maximize") for metric in section.maximize]
    found += [Objective(metric, "minimize") for metric in section.minimize]
    example = f"For example objective: {{{best}: val/{score}}}."
    if not found:
        raise complaint(root, ("objective",), "must name a metric", example)
    for each in found:
        path = ("objective", each.direction)
        _check_reported(root, path, each.metric, score)
        right = _best_direction(each.metric)
        if each.direction != right:
            raise complaint(
                root,
                path,
                f"{each.metric} is better when it is {_SENSE[right]}",
                f"Write {right}: {each.metric}.",
            )
    if len({each.metric for each in found}) < len(found):
        raise complaint(root, ("objective",), "must name each metric once", example)
    leading = [f"val/{score}", "val/loss"]
    ranked = sorted(
        found, key=lambda each: (leading.index(each.metric) if each.metric in leading else 2, each.metric)
    )
    if ranked[0].metric not in leading:
        raise complaint(root, ("objective",), f"must include val/{score} or val/loss", example)
    return tuple(ranked)


_SENSE = {"maximize": "high", "minimize": "low"}


def _best_direction(metric: str) -> Any:
    return "maximize" if metric.endswith("/accuracy") or metric == "tokens_per_second" else "minimize"


def _check_reported(root: Node, path: tuple[str, ...], metric: str, score: str) -> None:
    reported = list(dict.fromkeys((f"val/{score}", "val/loss", f"train/{score}", *_COST)))
    if metric not in reported:
        raise complaint(
            root, path, "must be a metric that trials report", nearest(metric, reported), f"`{metric}`"
        )


def read_constraints(root: Node, file: SpaceFile) -> tuple[Constraint, ...]:
    """Return the constraints by metric.

    Raises:
        BadInput: a metric that no trial reports, or bounds that nothing meets.
    """
    score = tasks()[file.task].metric
    found = []
    for metric, bound in sorted(file.constraints.items()):
        path = ("constraints", metric)
        _check_reported(root, path, metric, score)
        if bound.at_least is not None and bound.at_most is not None and bound.at_least > bound.at_most:
            raise complaint(
                root,
                path,
                "at_least <= at_most must hold",
                "Swap them.",
                f"{bound.at_least:g} and {bound.at_most:g}",
            )
        found.append(Constraint(metric, bound.at_least, bound.at_most))
    return tuple(found)


def read_methods(root: Node, file: SpaceFile, space: Space, objectives: int) -> tuple[Sampler, Scheduler]:
    """Return the sampler and the scheduler, which must suit the space, the objectives and each other.

    Raises:
        BadInput: if they do not.
    """
    scheduler = read_scheduler(root, file.scheduler)
    population = scheduler.name == "pbt"
    named = "sampler" in file.model_fields_set
    sampler = read_sampler(root, file.sampler if named or not population else "random")
    if population:
        _check_population(root, space, sampler, scheduler, file)
    if objectives > 1 and scheduler.name != "none":
        raise complaint(
            root,
            ("scheduler",),
            "stops trials by one objective, and there are several",
            "Write scheduler: none.",
            scheduler.name,
        )
    _check_sampler(root, file, space, sampler, objectives)
    return sampler, scheduler


def _check_sampler(root: Node, file: SpaceFile, space: Space, sampler: Sampler, objectives: int) -> None:
    conditional = any(distribution.when for distribution in space.values())
    wanted = (
        (objectives > 1, "objectives", "takes one objective only"),
        (bool(file.constraints), "constraints", "does not learn from constraints"),
        (conditional, "conditions", "does not take part in conditions (`when:`)"),
    )
    for asked, ability, lack in wanted:
        if asked and not getattr(SAMPLERS[sampler.name], ability):
            able = ", ".join(name for name, kind in SAMPLERS.items() if getattr(kind, ability))
            raise complaint(
                root, ("sampler",), f"{sampler.name} {lack}", f"Write one of: {able}.", sampler.name
            )
    if (
        sampler.name == "tpe"
        and conditional
        and sampler.options["multivariate"]
        and not sampler.options["group"]
    ):
        raise complaint(
            root, ("sampler", "tpe", "group"), "conditions (`when:`) need group: true", "Leave it out."
        )
    if sampler.name == "grid":
        _check_grid(root, space)
    numeric = [name for name, each in space.items() if each.kind != "choice" and each.low != each.high]
    if sampler.name == "cmaes" and len(numeric) < 2:
        raise complaint(
            root,
            ("sampler",),
            "cmaes needs at least two ranges of numbers",
            "Write sampler: tpe.",
            str(len(numeric)),
        )


def _check_grid(root: Node, space: Space) -> None:
    for name, distribution in space.items():
        if distribution.values() is None:
            remedy = "Write a choice, or give it a step."
            raise complaint(
                root, ("search", name), "the grid needs finitely many values", remedy, distribution.kind
            )


def _check_population(
    root: Node, space: Space, sampler: Sampler, scheduler: Scheduler, file: SpaceFile
) -> None:
    path = ("scheduler", "pbt", "mutations")
    if sampler.name != "random":
        raise complaint(
            root,
            ("sampler",),
            "pbt changes trials while they run, so no sampler can learn from them",
            "Leave the sampler out.",
            sampler.name,
        )
    layers = space["layer"].choices if "layer" in space else (file.model.layer,)
    changeable = {
        name for layer in layers for name, each in searchable(str(layer)).items() if each.mutable
    } & set(space)
    for name in scheduler.options["mutations"]:
        if name not in space:
            raise complaint(
                root, path, "must name searched hyperparameters", nearest(name, changeable), f"`{name}`"
            )
        if name not in changeable:
            must = "must name hyperparameters that act throughout training, not only at its start"
            raise complaint(root, path, must, nearest(name, changeable), f"`{name}`")
    low, high = scheduler.options["factors"]
    if not 0 < low < 1 < high:
        raise complaint(
            root, (*path[:2], "factors"), "must be [below 1, above 1]", "For example factors: [0.8, 1.2]."
        )


def read_published(root: Node, file: SpaceFile, space: Space) -> Published | None:
    """Return the published values, which must be one assignment of the space.

    Raises:
        BadInput: a value outside the space, one too many or one too few, or a figure of another metric.
    """
    section = file.published
    if section is None:
        return None
    path = ("published", "values")
    values: dict[str, Any] = {}
    for name, distribution in space.items():
        if not active(distribution, values):
            continue
        if name not in section.values:
            raise complaint(
                root,
                path,
                f"must give a value for {name}, which is searched",
                f"Add {name}, or take it out of search.",
                "none",
            )
        values[name] = _published_value(root, (*path, name), distribution, section.values[name])
    for name in section.values:
        if name not in values:
            must = "is not searched, or not under these values"
            raise complaint(root, (*path, name), must, nearest(name, set(space) - set(values)), f"`{name}`")
    return Published(section.source, values, _results(root, file))


def _published_value(root: Node, path: tuple[str, ...], distribution: Distribution, value: Any) -> Any:
    if not distribution.holds(value):
        shown = flow(list(distribution.choices[:12]) or [distribution.low, distribution.high])
        raise complaint(
            root, path, f"must lie in its search, {distribution.kind} {shown}", "Widen the search."
        )
    if distribution.kind == "choice":
        return next(choice for choice in distribution.choices if choice == value)
    return int(value) if distribution.kind in {"int", "log_int"} else float(value)


def _results(root: Node, file: SpaceFile) -> dict[str, float]:
    known = [f"test/{tasks()[file.task].metric}", "test/loss"]
    found: dict[str, float] = {}
    for name, value in (file.published.model_extra or {} if file.published else {}).items():
        path = ("published", name)
        if name not in known:
            raise complaint(
                root, path, "is not a known key", nearest(name, ["source", "values", *known]), f"`{name}`"
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise complaint(root, path, "must be a number", f"For example {name}: 0.9.")
        found[name] = float(value)
    return found


def check_amounts(root: Node, file: SpaceFile) -> None:
    """Refuse amounts that contradict each other.

    Raises:
        BadInput: an interval longer than a trial, or a share of a GPU that is no slot.
    """
    training, share = file.training, file.resources.gpu
    if training.interval > training.steps:
        must = "must be at most training.steps"
        raise complaint(
            root,
            ("training", "interval"),
            must,
            f"Write {training.steps} or less.",
            f"{training.interval} of {training.steps}",
        )
    if share and abs(1 / share - round(1 / share)) > 1e-6:
        remedy = f"Write gpu: 1/{max(1, round(1 / share))}."
        raise complaint(root, ("resources", "gpu"), "must be 0, 1 or 1/K of a GPU", remedy)
