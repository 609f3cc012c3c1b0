"""The sampler and the scheduler of a file: known, complete, and fit for its space and objectives."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from orchestrator.config.document import Violation, nearest
from orchestrator.config.hyperparameters import searchable
from orchestrator.config.samplers import SAMPLERS, Sampler
from orchestrator.config.schedulers import SCHEDULERS, Scheduler
from orchestrator.config.sections import Section, SpaceFile, validated
from orchestrator.config.space import Distribution

Space = Mapping[str, Distribution]


def read_methods(file: SpaceFile, space: Space, objectives: int) -> tuple[Sampler, Scheduler]:
    """Return the sampler and the scheduler of the file.

    Args:
        file: the file.
        space: what it searches.
        objectives: how many there are.

    Raises:
        BadInput: a name or an option is unknown, or the two do not suit the rest of the file.
    """
    scheduler = _read("scheduler", file.scheduler)
    population = scheduler[0] == "pbt"
    named = "sampler" in file.model_fields_set
    sampler = Sampler(*_read("sampler", file.sampler if named or not population else "random"))
    if population:
        _check_population(file, space, sampler, scheduler[1])
    if objectives > 1 and scheduler[0] != "none":
        must = "must be none when there are several objectives: it would stop trials by one of them"
        raise Violation(("scheduler",), must, "Write scheduler: none.", f"`{scheduler[0]}`")
    _check_sampler(file, space, sampler, objectives)
    return sampler, Scheduler(*scheduler)


def check_installed(sampler: Sampler) -> None:
    """Refuse a sampler whose packages are missing.

    Raises:
        BadInput: if one is.
    """
    kind = SAMPLERS[sampler.name]
    if missing := [package for package in kind.needs if find_spec(package) is None]:
        must = f"{sampler.name} needs the package {' and '.join(missing)}"
        remedy = f"pip install {' '.join(missing)}, or this package's extra `{sampler.name}`."
        raise Violation(("sampler",), must, remedy, "none installed")


_OPTIONS: Mapping[str, Mapping[str, type[Section]]] = {
    "sampler": {name: kind.options for name, kind in SAMPLERS.items()},
    "scheduler": SCHEDULERS,
}


def _read(section: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the complete options of `name` or `{name: {options}}`."""
    known = _OPTIONS[section]
    given = {value: {}} if isinstance(value, str) else value
    if not isinstance(given, dict) or len(given) != 1:
        must = "must be one name, or {name: {options}}"
        raise Violation((section,), must, f"Names: {', '.join(known)}.")
    ((name, options),) = given.items()
    if name not in known:
        raise Violation((section, name), f"must name a {section}", nearest(name, known), f"`{name}`")
    if not isinstance(options, dict):
        raise Violation((section, name), "must be a mapping of options", f"Write {section}: {name}.")
    return name, validated(known[name], options, (section, name)).model_dump(mode="json")


def _check_sampler(file: SpaceFile, space: Space, sampler: Sampler, objectives: int) -> None:
    conditional = any(distribution.when for distribution in space.values())
    wanted = (
        (objectives > 1, "objectives", "takes one objective only"),
        (bool(file.constraints), "constraints", "does not learn from constraints"),
        (conditional, "conditions", "takes no conditions (`when:`)"),
        (bool(file.warm_start), "learns", "learns nothing from earlier sweeps (`warm_start:`)"),
    )
    for asked, ability, lack in wanted:
        if asked and not getattr(SAMPLERS[sampler.name], ability):
            able = ", ".join(name for name, kind in SAMPLERS.items() if getattr(kind, ability))
            remedy = f"Write one of: {able}."
            raise Violation(("sampler",), f"{sampler.name} {lack}", remedy, f"`{sampler.name}`")
    options = sampler.options
    if sampler.name == "tpe" and conditional and options["multivariate"] and not options["group"]:
        must = "must be true for conditions (`when:`)"
        raise Violation(("sampler", "tpe", "group"), must, "Leave it out.")
    if sampler.name == "grid":
        _check_grid(space)
    if sampler.name == "cmaes":
        _check_numeric(space)


def _check_grid(space: Space) -> None:
    for name, distribution in space.items():
        if distribution.count() is None:
            must = "must have finitely many values for the grid"
            remedy = "Write a choice, or give it a step."
            raise Violation(("search", name), must, remedy, f"`{distribution.kind}`")


def _check_numeric(space: Space) -> None:
    numeric = [name for name, each in space.items() if each.kind != "choice" and each.low != each.high]
    if len(numeric) < 2:
        must = "cmaes needs at least two ranges of numbers"
        raise Violation(("sampler",), must, "Write sampler: tpe.", f"{len(numeric)}")


def _check_population(file: SpaceFile, space: Space, sampler: Sampler, options: Mapping[str, Any]) -> None:
    if sampler.name != "random":
        must = "must be left out: pbt changes trials while they run, and no sampler can learn from that"
        raise Violation(("sampler",), must, "Leave it out.", f"`{sampler.name}`")
    layers = space["layer"].choices if "layer" in space else (file.model.layer,)
    mutable = {name for layer in layers for name, each in searchable(str(layer)).items() if each.mutable}
    path = ("scheduler", "pbt", "mutations")
    for name in options["mutations"]:
        if name not in space:
            must = "must name searched hyperparameters"
            raise Violation(path, must, nearest(name, mutable & set(space)), f"`{name}`")
        if name not in mutable:
            must = "must name what acts throughout training, not at its start or on the compiled program"
            raise Violation(path, must, nearest(name, mutable & set(space)), f"`{name}`")
    low, high = options["factors"]
    if not 0 < low < 1 < high:
        remedy = "For example factors: [0.8, 1.2]."
        raise Violation(("scheduler", "pbt", "factors"), "must be [below 1, above 1]", remedy)
