"""Rules between the fields of a search-space file, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.spec.catalogue import tasks
from orchestrator.spec.complaints import complaint, flow, nearest
from orchestrator.spec.document import Node
from orchestrator.spec.hyperparameters import Hyperparameter, option_hyperparameter, searchable
from orchestrator.spec.sections import ModelSection, SearchEntry, SpaceFile
from orchestrator.spec.space import (
    KINDS,
    Distribution,
    Unsound,
    active,
    chosen,
    combinations,
    ordered,
    ranged,
    size,
)
from trainables.settings import LAYER_SETTINGS, Range

Space = Mapping[str, Distribution]

MOST_COMBINATIONS = 10_000


def check_task(root: Node, file: SpaceFile) -> None:
    """Refuse an unknown task, or an option that it has not.

    Raises:
        BadInput: naming the nearest task, option or value.
    """
    known = tasks()
    if file.task not in known:
        raise complaint(root, ("task",), "must name a task", nearest(file.task, known))
    options = known[file.task].options
    for name, value in file.data.items():
        if name not in options:
            raise complaint(
                root, ("data", name), f"is not an option of {file.task}", nearest(name, options), f"`{name}`"
            )
        _check_value(root, ("data", name), option_hyperparameter(options[name]), value)


def _check_value(root: Node, path: tuple[str, ...], known: Hyperparameter, value: Any) -> None:
    if not known.holds(value):
        raise complaint(root, path, f"must be {known.must}", "See docs/search-space.md.")


def read_space(root: Node, file: SpaceFile) -> dict[str, Distribution]:
    """Return the space of the file, in canonical order.

    Raises:
        BadInput: a distribution or a condition that cannot be drawn from.
    """
    found = {name: _distribution(root, name, entry) for name, entry in file.search.items()}
    for name, distribution in found.items():
        _check_condition(root, name, distribution, found)
    try:
        return ordered(found)
    except Unsound as error:
        raise complaint(root, ("search",), error.must, error.remedy) from None


def _distribution(root: Node, name: str, entry: SearchEntry) -> Distribution:
    path = ("search", name)
    kinds = [kind for kind in KINDS if getattr(entry, kind) is not None]
    if len(kinds) != 1:
        raise complaint(root, path, "must have exactly one distribution", f"One of: {', '.join(KINDS)}.")
    kind = kinds[0]
    try:
        if kind == "choice":
            if entry.step is not None:
                raise Unsound("a choice has no step", "Leave the step out.")
            drawn = chosen(entry.choice or [])
        else:
            low, high = getattr(entry, kind)
            drawn = ranged(kind, low, high, entry.step)
    except Unsound as error:
        raise complaint(root, (*path, kind), error.must, error.remedy) from None
    when = {key: _values(value) for key, value in (entry.when or {}).items()}
    return Distribution(drawn.kind, drawn.low, drawn.high, drawn.step, drawn.choices, when)


def _values(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _check_condition(root: Node, name: str, distribution: Distribution, found: Space) -> None:
    path = ("search", name, "when")
    for parent, values in distribution.when.items():
        if parent == name or parent not in found:
            others = [other for other in found if other != name]
            raise complaint(
                root,
                (*path, parent),
                "must name another searched one",
                nearest(parent, others),
                f"`{parent}`",
            )
        if found[parent].kind not in {"choice", "int"}:
            raise complaint(
                root,
                (*path, parent),
                "must name a choice or an int",
                f"{parent} is {found[parent].kind}.",
                f"`{parent}`",
            )
        if not values or not all(found[parent].holds(value) for value in values):
            listed = flow(list(found[parent].values() or ())[:12])
            raise complaint(root, (*path, parent), f"must be values of {parent}", f"They are {listed}.")


def check_model(root: Node, file: SpaceFile, space: Space) -> None:
    """Refuse layers, options, ranges and sizes that do not go together, for every draw of the space.

    Raises:
        BadInput: naming the first that does not.
    """
    layers = _layers(root, file, space)
    _check_extras(root, file.model, layers)
    for name, distribution in space.items():
        for layer in layers:
            if _drawn_with(name, layer, space):
                _check_searched(root, name, distribution, layer)
    for layer in layers:
        _check_ranges(root, file.model, layer, space)
        _check_needs(root, file.model, layer, space)
    for name in ("learning_rate", "recurrent_learning_rate"):
        if getattr(file.training, name) is None and (name not in space or space[name].when):
            raise complaint(
                root,
                ("training", name),
                "must be given here or in search",
                f"For example {name}: 1e-3.",
                "nothing",
            )


def _layers(root: Node, file: SpaceFile, space: Space) -> tuple[str, ...]:
    searched = space.get("layer")
    if searched is None:
        if file.model.layer not in LAYER_SETTINGS:
            raise complaint(
                root, ("model", "layer"), "must name a layer", nearest(file.model.layer, LAYER_SETTINGS)
            )
        return (file.model.layer,)
    for layer in searched.values() or (searched.kind,):
        if layer not in LAYER_SETTINGS:
            raise complaint(
                root, ("search", "layer"), "must name layers", nearest(str(layer), LAYER_SETTINGS)
            )
    return tuple(dict.fromkeys(str(layer) for layer in searched.choices))


def _drawn_with(name: str, layer: str, space: Space) -> bool:
    """Tell whether a hyperparameter can be active under a layer."""
    when = space[name].when
    if "layer" in when:
        return layer in when["layer"]
    return all(_drawn_with(parent, layer, space) for parent in when)


def _check_extras(root: Node, model: ModelSection, layers: tuple[str, ...]) -> None:
    options = {name: option for layer in layers for name, option in LAYER_SETTINGS[layer].options.items()}
    ranges = {name: spec for layer in layers for name, spec in LAYER_SETTINGS[layer].ranges.items()}
    for name, value in model.extras.items():
        path = ("model", name)
        if name in options:
            _check_value(root, path, option_hyperparameter(options[name]), value)
        elif name in ranges:
            _check_range(root, path, ranges[name], value)
        else:
            known = [*ModelSection.model_fields, *options, *ranges]
            must = f"is not a key of model or of the layer {' or '.join(layers)}"
            raise complaint(root, path, must, nearest(name, known), f"`{name}`")


def _check_range(root: Node, path: tuple[str, str], spec: Range, value: Any) -> None:
    low, high = spec.default
    example = f"For example {path[1]}: [{low:g}, {high:g}]."
    numbers = isinstance(value, list | tuple) and len(value) == 2
    if not numbers or not all(isinstance(end, int | float) and not isinstance(end, bool) for end in value):
        raise complaint(root, path, "must be [low, high]", example)
    least, most = spec.within
    if not all(spec.holds(end) for end in value):
        excluded = ", both excluded" if spec.open_ends else ""
        raise complaint(root, path, f"must lie between {least:g} and {most:g}{excluded}", example)


def _check_searched(root: Node, name: str, distribution: Distribution, layer: str) -> None:
    known = searchable(layer)
    path = ("search", name)
    if name not in known:
        must = f"is not a hyperparameter of a trial with the layer {layer}"
        raise complaint(root, path, must, nearest(name, known), f"`{name}`")
    target = known[name]
    if distribution.kind == "choice":
        wrong = [value for value in distribution.choices if not target.holds(value)]
    else:
        _check_kind(root, name, distribution, target)
        wrong = [end for end in distribution.ends() if not target.holds(end)]
    if wrong:
        raise complaint(
            root, (*path, distribution.kind), f"{name} must be {target.must}", "Take it out.", flow(wrong[0])
        )


def _check_kind(root: Node, name: str, distribution: Distribution, target: Hyperparameter) -> None:
    right = {"real": "uniform or log_uniform", "whole": "int or log_int"}.get(target.kind, "choice")
    if distribution.kind not in right:
        raise complaint(
            root, ("search", name), f"{name} is {target.must}", f"Write {right}.", f"`{distribution.kind}`"
        )


def _check_ranges(root: Node, model: ModelSection, layer: str, space: Space) -> None:
    """Refuse a space in which some draw of a range has its ends the wrong way round."""
    for name, spec in LAYER_SETTINGS[layer].ranges.items():
        low, high = model.extras.get(name, spec.default)
        lowest, highest = f"{name}.min", f"{name}.max"
        top = _extreme(space, lowest, layer, low, max)
        bottom = _extreme(space, highest, layer, high, min)
        if top < bottom:
            continue
        path = ("search", lowest if lowest in space else highest)
        if lowest not in space and highest not in space:
            path = ("model", name)
        must = f"{lowest} < {highest} must hold for every draw"
        remedy = f"Keep {lowest} below {bottom:g}, or {highest} above {top:g}."
        raise complaint(root, path, must, remedy, f"{lowest} up to {top:g} and {highest} down to {bottom:g}")


def _extreme(space: Space, name: str, layer: str, fixed: float, pick: Any) -> float:
    if name not in space or not _drawn_with(name, layer, space):
        return float(fixed)
    ends = space[name].ends()
    return float(pick(*ends, fixed) if space[name].when else pick(*ends))


def _check_needs(root: Node, model: ModelSection, layer: str, space: Space) -> None:
    """Refuse sizes that the layer cannot have, for every combination of static choices."""
    declared = LAYER_SETTINGS[layer]
    for need in declared.needs:
        names = frozenset(need.of)
        if size(space, names) > MOST_COMBINATIONS:
            remedy = "Search fewer values; each combination is another compiled program."
            raise complaint(
                root,
                ("search",),
                f"must have at most {MOST_COMBINATIONS:,} combinations of {', '.join(need.of)}",
                remedy,
                "more",
            )
        for drawn in combinations(space, names):
            if drawn.get("layer", layer) != layer:
                continue
            sizes = [drawn.get(name, _fixed(model, layer, name)) for name in need.of]
            if not need.holds(*sizes):
                shown = ", ".join(f"{name} {value}" for name, value in zip(need.of, sizes, strict=True))
                path = next((("search", name) for name in need.of if name in space), ("model", need.of[0]))
                raise complaint(root, path, f"{need.must} ({layer})", "Change one of them.", shown)


def _fixed(model: ModelSection, layer: str, name: str) -> Any:
    if name in ModelSection.model_fields:
        return getattr(model, name)
    return model.extras.get(name, LAYER_SETTINGS[layer].options[name].default)


def mutable(space: Space, layers: tuple[str, ...]) -> set[str]:
    """Return the searched hyperparameters that a running trial can change."""
    return {
        name
        for name in space
        for layer in layers
        if name in (known := searchable(layer)) and known[name].mutable
    }


__all__ = ["active", "check_model", "check_task", "mutable", "read_space"]
