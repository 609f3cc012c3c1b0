"""Rules between a file's task, its layer, its sizes and its space: for every draw, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.config.document import Node
from orchestrator.config.hyperparameters import Hyperparameter, option_hyperparameter, searchable
from orchestrator.config.sections import ModelSection, ResourcesSection, SpaceFile, TrainingSection
from orchestrator.config.space import Distribution, combinations, size
from orchestrator.config.validation_errors import complaint, flow, nearest
from trainables.errors import Refusal
from trainables.layers import LAYERS
from trainables.settings import Need, Range
from trainables.tasks import TASKS

Space = Mapping[str, Distribution]

MOST_COMBINATIONS = 10_000


def read_task_options(root: Node, file: SpaceFile) -> dict[str, Any]:
    """Return the task's options that the file gives.

    Raises:
        BadInput: an unknown task, or an option that it has not; naming the nearest.
    """
    if file.task not in TASKS:
        raise complaint(root, ("task",), "must name a task", nearest(file.task, TASKS))
    task = TASKS[file.task]
    for name in file.data:
        if name not in task.options:
            must = f"must be an option of {file.task}"
            raise complaint(root, ("data", name), must, nearest(name, task.options), f"`{name}`")
    given = {
        name: _value(root, ("data", name), option_hyperparameter(task.options[name]), value)
        for name, value in file.data.items()
    }
    try:
        task.validate({**{name: option.default for name, option in task.options.items()}, **given})
    except Refusal as error:
        raise complaint(root, ("data",), error.must, error.remedy, error.got) from None
    return given


def _value(root: Node, path: tuple[str, ...], known: Hyperparameter, value: Any) -> Any:
    if not known.holds(value):
        raise complaint(root, path, f"must be {known.must}", known.example(path[-1]))
    return known.cast(value)


def read_model(root: Node, section: ModelSection, space: Space) -> ModelSection:
    """Return the network, the layer's own keys checked; every draw of the space gives one that can be built.

    Raises:
        BadInput: naming the first layer, option, range or size that does not fit the others.
    """
    layers = _layers(root, section, space)
    model = _with_extras(root, section, layers)
    for name, distribution in space.items():
        for layer in layers:
            if _drawn_with(name, layer, space):
                _check_searched(root, name, distribution, layer)
    for layer in layers:
        _check_ranges(root, model, layer, space)
        for need in LAYERS.settings(layer).needs:
            _check_need(root, model, layer, space, need)
    return model


def _layers(root: Node, model: ModelSection, space: Space) -> tuple[str, ...]:
    """Return the layers that trials may have, of which there may be several."""
    searched = space.get("layer")
    if searched is not None and not searched.choices:
        raise complaint(root, ("search", "layer"), "layer is a word", "Write choice.", f"`{searched.kind}`")
    found = tuple(str(layer) for layer in searched.choices) if searched else (model.layer,)
    path = ("search" if searched else "model", "layer")
    for layer in found:
        if layer not in LAYERS:
            raise complaint(root, path, "must name a layer", nearest(layer, LAYERS), f"`{layer}`")
    return found


def _drawn_with(name: str, layer: str, space: Space) -> bool:
    """Tell whether a hyperparameter can be active under a layer."""
    when = space[name].when
    if "layer" in when:
        return layer in when["layer"]
    return all(_drawn_with(parent, layer, space) for parent in when)


def _with_extras(root: Node, model: ModelSection, layers: tuple[str, ...]) -> ModelSection:
    checked = {name: _extra(root, name, value, layers) for name, value in model.extras.items()}
    return model.model_copy(update=checked)


def _extra(root: Node, name: str, value: Any, layers: tuple[str, ...]) -> Any:
    """Return the value of a layer's own key, which must suit every layer that has the key."""
    path, declared = ("model", name), [LAYERS.settings(layer) for layer in layers]
    options = [each.options[name] for each in declared if name in each.options]
    ranges = [each.ranges[name] for each in declared if name in each.ranges]
    for option in options:
        value = _value(root, path, option_hyperparameter(option), value)
    for spec in ranges:
        value = _range(root, path, spec, value)
    if not options and not ranges:
        must = f"must be a key of model or of the layer {' or '.join(layers)}"
        theirs = {key for each in declared for key in (*each.options, *each.ranges)}
        raise complaint(root, path, must, nearest(name, {*ModelSection.model_fields, *theirs}), f"`{name}`")
    return value


def _range(root: Node, path: tuple[str, str], spec: Range, value: Any) -> list[float]:
    low, high = spec.default
    example = f"For example {path[1]}: [{low:g}, {high:g}]."
    ends = list(value) if isinstance(value, list | tuple) else []
    if len(ends) != 2 or any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
        raise complaint(root, path, "must be [low, high]", example)
    if not all(spec.holds(end) for end in ends):
        raise complaint(root, path, f"must lie {_within(spec)}", example)
    return [float(end) for end in ends]


def _within(spec: Range) -> str:
    low, high = spec.within
    return f"between {low:g} and {high:g}{', both excluded' if spec.open_ends else ''}"


def _check_searched(root: Node, name: str, distribution: Distribution, layer: str) -> None:
    known = searchable(layer)
    path = ("search", name)
    if name not in known:
        must = f"must be a hyperparameter of a trial with the layer {layer}"
        raise complaint(root, path, must, nearest(name, known), f"`{name}`")
    target = known[name]
    if distribution.kind not in target.distributions:
        remedy = f"Write one of: {', '.join(target.distributions)}."
        raise complaint(root, path, f"{name} is {target.must}", remedy, f"`{distribution.kind}`")
    drawn = distribution.choices or distribution.ends()
    if wrong := [value for value in drawn if not target.holds(value)]:
        must = f"{name} must be {target.must}"
        remedy = target.example(name)
        raise complaint(root, (*path, distribution.kind), must, remedy, flow(wrong[0]))


def _check_ranges(root: Node, model: ModelSection, layer: str, space: Space) -> None:
    """Refuse a space in which some draw of a range has its ends the wrong way round."""
    for name, spec in LAYERS.settings(layer).ranges.items():
        low, high = model.extras.get(name, spec.default)
        lowest, highest = f"{name}.min", f"{name}.max"
        top = _extreme(space, lowest, layer, low, max)
        bottom = _extreme(space, highest, layer, high, min)
        if top >= bottom:
            searched = [("search", end) for end in (lowest, highest) if end in space]
            must = f"{lowest} < {highest} must hold for every draw"
            got = f"{lowest} up to {top:g} and {highest} from {bottom:g}"
            remedy = f"Keep {lowest} below {bottom:g}, or {highest} above {top:g}."
            raise complaint(root, searched[0] if searched else ("model", name), must, remedy, got)


def _extreme(space: Space, name: str, layer: str, fixed: float, pick: Callable[..., float]) -> float:
    if name not in space or not _drawn_with(name, layer, space):
        return fixed
    # Where its condition does not hold, the file's own value stands.
    return pick(*space[name].ends(), fixed) if space[name].when else pick(*space[name].ends())


def _check_need(root: Node, model: ModelSection, layer: str, space: Space, need: Need) -> None:
    """Refuse sizes that the layer cannot have, in any combination of static choices."""
    names = frozenset(need.of)
    if size(space, names) > MOST_COMBINATIONS:
        must = f"must have at most {MOST_COMBINATIONS:,} combinations of {', '.join(need.of)}"
        remedy = "Search fewer values: each combination is another compiled program."
        raise complaint(root, ("search",), must, remedy, f"{size(space, names):,}")
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
    return model.extras.get(name, LAYERS.settings(layer).options[name].default)


def check_training(root: Node, training: TrainingSection, space: Space) -> None:
    """Refuse a rate that is nowhere given, and an interval longer than a trial.

    Raises:
        BadInput: if so.
    """
    for name in ("learning_rate", "recurrent_learning_rate"):
        if getattr(training, name) is None and (name not in space or space[name].when):
            must = "must be given here or in search"
            raise complaint(root, ("training", name), must, f"For example {name}: 1e-3.", "nothing")
    if training.interval > training.steps:
        got = f"{training.interval} of {training.steps}"
        remedy = f"Write {training.steps} or less."
        raise complaint(root, ("training", "interval"), "must be at most training.steps", remedy, got)


def check_resources(root: Node, resources: ResourcesSection) -> None:
    """Refuse a share of a GPU that is no slot.

    Raises:
        BadInput: if it is neither 0, 1 nor 1/K.
    """
    share = resources.gpu
    if resources.slots is not None and share != 1:
        must = "must stand beside gpu: 1, which the slots then share"
        raise complaint(root, ("resources", "slots"), must, "Write gpu: 1, or leave it out.")
    if share and abs(1 / share - round(1 / share)) > 1e-6:
        remedy = f"Write gpu: 1/{max(1, round(1 / share))}."
        raise complaint(root, ("resources", "gpu"), "must be 0, 1 or 1/K of a GPU", remedy)
