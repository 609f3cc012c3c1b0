"""Rules between task, layer, sizes and search space, checked for every possible draw."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.config.document import Path, Violation, flow, nearest
from orchestrator.config.hyperparameters import (
    Hyperparameter,
    option_hyperparameter,
    own_hyperparameters,
    searchable,
)
from orchestrator.config.networks import matched_sizes
from orchestrator.config.relations import Relation
from orchestrator.config.sections import (
    LIMITS,
    OWN_FIELDS,
    SLUG,
    ConfirmSection,
    ModelSection,
    ResourcesSection,
    SpaceFile,
    StudySections,
    TrainingSection,
)
from orchestrator.config.space import Distribution, combinations, size
from trainables.data.task import Signature, completed
from trainables.errors import Refusal
from trainables.layers import LAYERS
from trainables.settings import GROUPED_LAYERS, Need, Range, range_ends
from trainables.tasks import TASKS
from trainables.trial import OPTIMIZERS

Space = Mapping[str, Distribution]

_DELTA_RULES = ("delta_net", "gated_delta_net", "delta_product")
MOST_COMBINATIONS = 10_000


def read_task_options(file: SpaceFile) -> dict[str, Any]:
    """Return the options of the task that the file gives.

    Raises:
        Violation: The task or an option is unknown, or the task refuses the options.
    """
    if file.task not in TASKS:
        raise Violation(("task",), "must name a task", nearest(file.task, TASKS))
    task = TASKS[file.task]
    for name in file.data:
        if name not in task.options:
            must = f"is not an option of {file.task}"
            raise Violation(("data", name), must, nearest(name, task.options), "")
    given = {
        name: _value(("data", name), option_hyperparameter(task.options[name]), value)
        for name, value in file.data.items()
    }
    try:
        task.checked(given)
    except Refusal as error:
        raise Violation(("data",), error.must, error.remedy, error.got) from None
    return given


def _value(path: Path, known: Hyperparameter, value: Any) -> Any:
    if not known.holds(value):
        raise Violation(path, f"must be {known.must_of(value)}", known.example(str(path[-1])))
    return known.cast(value)


def read_model(file: SpaceFile, space: Space, relations: Sequence[Relation] = ()) -> ModelSection:
    """Return the network with the layer's own keys and the task's pooling and defaults.

    Every draw of the space that satisfies the relations is checked.

    Raises:
        Violation: A layer, an option, a range or a size does not fit the others.
    """
    layers = _layers(file.model, space)
    model = _with_layers(_with_extras(file.model, layers))
    if model.pooling is None:
        model = model.model_copy(update={"pooling": TASKS[file.task].pooling})
    model = model.model_copy(update={"layers": _with_heads(model, layers)})
    if model.match is not None:
        model = matched_sizes(model, model.match, layers, _signature(file), space)
    for name, distribution in space.items():
        for layer in layers:
            if _drawn_with(name, "layer", layer, space):
                _check_searched(name, distribution, layer)
    for layer in layers:
        view = _view(model, space, layer)
        _check_ranges(view, relations)
        for need in LAYERS.settings(layer).needs:
            _check_need(view, need, relations)
    return model


def _with_heads(model: ModelSection, layers: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return `model.layers` with the heads of delta rules, which are part of a sweep's identity."""
    own = dict(model.layers)
    for layer in layers:
        if layer in _DELTA_RULES and "heads" not in model.extras:
            own[layer] = {"heads": LAYERS.settings(layer).default("heads"), **own.get(layer, {})}
    return own


def _signature(file: SpaceFile) -> Signature:
    """Return the signature of the published data of the task."""
    task = TASKS[file.task]
    signature = task.outline(completed(file.task, task.options, file.data))
    if signature is None:
        must = f"requires a task that declares the signature of its data, and {file.task} does not"
        raise Violation(("model", "match"), must, "Give the sizes themselves.")
    return signature


def _layers(model: ModelSection, space: Space) -> tuple[str, ...]:
    """Return the layers that trials may have: one, or the searched ones."""
    searched = space.get("layer")
    if searched is not None and not searched.choices:
        raise Violation(
            ("search", "layer"),
            "must be a choice, because layers are words",
            "Write choice.",
            f"`{searched.kind}`",
        )
    layers = tuple(str(layer) for layer in searched.choices) if searched else (model.layer,)
    path = ("search" if searched else "model", "layer")
    for layer in layers:
        if layer not in LAYERS:
            raise Violation(path, "must name a layer", nearest(layer, LAYERS), f"`{layer}`")
    return layers


def _drawn_with(name: str, choice: str, value: str, space: Space) -> bool:
    """Return True if a hyperparameter can be active when a choice such as `layer` has this value."""
    when = space[name].when
    if choice in when:
        return value in when[choice]
    return all(_drawn_with(parent, choice, value, space) for parent in when)


def _with_extras(model: ModelSection, layers: tuple[str, ...]) -> ModelSection:
    checked = {name: _extra(name, value, layers) for name, value in model.extras.items()}
    return model.model_copy(update=checked)


def _extra(name: str, value: Any, layers: tuple[str, ...]) -> Any:
    """Return the value of a key of the layer, which must suit every layer that has this key."""
    path, declared = ("model", name), [LAYERS.settings(layer) for layer in layers]
    options = [settings.options[name] for settings in declared if name in settings.options]
    ranges = [settings.ranges[name] for settings in declared if name in settings.ranges]
    for option in options:
        value = _value(path, option_hyperparameter(option), value)
    for spec in ranges:
        value = _range(path, spec, value)
    if not options and not ranges:
        must = f"is not a key of model or of the layer {' or '.join(layers)}"
        own = {key for settings in declared for key in (*settings.options, *settings.ranges)}
        raise Violation(path, must, nearest(name, {*ModelSection.model_fields, *own}), "")
    return value


def _with_layers(model: ModelSection) -> ModelSection:
    """Return the network with the values of single layers checked."""
    for layer in model.layers:
        if layer not in LAYERS:
            path = ("model", "layers", layer)
            raise Violation(path, "must name a layer", nearest(layer, LAYERS), f"`{layer}`")
    checked = {
        layer: {name: _own(layer, name, value) for name, value in given.items()}
        for layer, given in model.layers.items()
    }
    return model.model_copy(update={"layers": checked})


def _own(layer: str, name: str, value: Any) -> Any:
    """Return the value of a key of one layer."""
    path, declared = ("model", "layers", layer, name), LAYERS.settings(layer)
    if name in declared.ranges:
        return _range(path, declared.ranges[name], value)
    known = {name: own_hyperparameters(layer)[name] for name in (*OWN_FIELDS, *declared.options)}
    if name not in known:
        must = f"must be {', '.join(OWN_FIELDS)}, or a key of the layer {layer}"
        raise Violation(path, must, nearest(name, {*known, *declared.ranges}), f"`{name}`")
    return _value(path, known[name], value)


def _range(path: Path, spec: Range, value: Any) -> list[float]:
    low, high = spec.default
    example = f"For example {path[-1]}: [{low:g}, {high:g}]."
    ends = list(value) if isinstance(value, list | tuple) else []
    if len(ends) != 2 or any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
        raise Violation(path, "must be [low, high]", example)
    if not all(spec.holds(end) for end in ends):
        raise Violation(path, f"must lie {spec.phrase}", example)
    return [float(end) for end in ends]


def _check_searched(name: str, distribution: Distribution, layer: str) -> None:
    known = searchable(layer)
    path = ("search", name)
    if name not in known:
        must = f"is not a hyperparameter of a trial with the layer {layer}"
        own = name.partition(".")[0] in LAYERS
        names = [other for other in known if other.startswith(f"{layer}.") == own]
        raise Violation(path, must, nearest(name, names), "")
    target = known[name]
    if distribution.kind not in target.distributions:
        remedy = f"Write one of: {', '.join(target.distributions)}."
        raise Violation(path, f"{name} is {target.must}", remedy, f"`{distribution.kind}`")
    if distribution.labelled:
        must = "must have no labels, which are for the values of functions, commands and programs"
        raise Violation((*path, "choice"), must, "List the values.", flow(list(distribution.choices)))
    drawn = distribution.choices or distribution.ends()
    if wrong := [value for value in drawn if not target.holds(value)]:
        must = f"{name} must be {target.must_of(wrong[0])}"
        remedy = target.example(name)
        raise Violation((*path, distribution.kind), must, remedy, flow(wrong[0]))


@dataclass(frozen=True)
class _View:
    """The part of a sweep that concerns the trials of one layer.

    Attributes:
        layer: Its name.
        model: Settings of the network with this layer.
        space: Distributions drawn with this layer, by names without the layer's. No condition names it.
        searched: Name in the file of each name of `space`.
    """

    layer: str
    model: ModelSection
    space: Space
    searched: Mapping[str, str]

    def path(self, *names: str) -> Path:
        """Return the path of the first given name: in the search, for this layer, or for all layers."""
        for name in names:
            if name in self.searched:
                return ("search", self.searched[name])
        for name in names:
            if name in self.model.layers.get(self.layer, {}):
                return ("model", "layers", self.layer, name)
        return ("model", names[0])


def _view(model: ModelSection, space: Space, layer: str) -> _View:
    drawn = [name for name in space if name != "layer" and _drawn_with(name, "layer", layer, space)]
    searched: dict[str, str] = {}
    for name in drawn:
        plain = name.removeprefix(f"{layer}.")
        if plain in searched:
            must = f"{plain} must be searched once for the layer {layer}"
            remedy = "Leave one of them out, or give the other a condition on the layer."
            raise Violation(("search", f"{layer}.{plain}"), must, remedy, f"`{plain}` too")
        searched[plain] = name
    own = {}
    for plain, name in searched.items():
        when = {
            parent.removeprefix(f"{layer}."): values
            for parent, values in space[name].when.items()
            if parent != "layer"
        }
        own[plain] = replace(space[name], when=when)
    return _View(layer, model.of(layer), own, searched)


def _check_ranges(view: _View, relations: Sequence[Relation]) -> None:
    """Refuse a space in which the low end of a range can be drawn above its high end."""
    for name, spec in LAYERS.settings(view.layer).ranges.items():
        low, high = view.model.extras.get(name, spec.default)
        lowest, highest = range_ends(name)
        top = _extreme(view.space, lowest, low, max)
        bottom = _extreme(view.space, highest, high, min)
        if top >= bottom and not any(relation.states(lowest, highest) for relation in relations):
            must = f"{lowest} < {highest} must hold for every draw"
            got = f"{lowest} up to {top:g} and {highest} from {bottom:g}"
            remedy = f"Keep {lowest} below {bottom:g}, or {highest} above {top:g}."
            ends = [end for end in (lowest, highest) if end in view.space]
            raise Violation(view.path(*ends, name), must, remedy, got)


def _extreme(space: Space, name: str, fixed: float, pick: Callable[..., float]) -> float:
    if name not in space:
        return fixed
    # Without its condition the hyperparameter has the value of the file.
    return pick(*space[name].ends(), fixed) if space[name].when else pick(*space[name].ends())


def _check_need(view: _View, need: Need, relations: Sequence[Relation]) -> None:
    """Refuse combinations of static choices that the layer cannot have."""
    names, space = frozenset(need.of), view.space
    if size(space, names) > MOST_COMBINATIONS:
        must = f"must have at most {MOST_COMBINATIONS:,} combinations of {', '.join(need.of)}"
        remedy = "Search fewer values: each combination is another compiled program."
        raise Violation(("search",), must, remedy, f"{size(space, names):,}")
    for drawn in combinations(space, names):
        values = {name: drawn.get(name, _fixed(view, name)) for name in {*need.of, *drawn}}
        sizes = [values[name] for name in need.of]
        if not need.holds(*sizes) and all(relation.holds(values) for relation in relations):
            shown = ", ".join(f"{name} {value}" for name, value in zip(need.of, sizes, strict=True))
            raise Violation(
                view.path(*need.of), f"in the layer {view.layer}, {need.must}", "Change one of them.", shown
            )


def _fixed(view: _View, name: str) -> Any:
    if name in ModelSection.model_fields:
        return getattr(view.model, name)
    return view.model.extras.get(name, LAYERS.settings(view.layer).options[name].default)


def read_training(file: SpaceFile, model: ModelSection, space: Space) -> TrainingSection:
    """Return the settings of training, with the task's default for carried states.

    Raises:
        Violation: A rate is missing, the interval is longer than a trial, an optimiser without a weight decay
            is given one, labels are smoothed for a task without labels, parameter groups are those of other
            layers, or states are carried where that is impossible.
    """
    _check_training(file.training, model, space)
    _check_labels(file, space)
    _check_groups(file.training, model, space)
    task, carries = TASKS[file.task], file.training.carry_state
    if carries is None:
        carries = task.carries_state
    if carries and not task.carries_state:
        must = f"is not available for {file.task}, because its examples are not consecutive segments"
        raise Violation(("training", "carry_state"), must, "Leave it out.")
    if carries:
        _check_looking_back(model, space)
    return file.training.model_copy(update={"carry_state": carries})


def _check_labels(file: SpaceFile, space: Space) -> None:
    """Refuse label smoothing for regression. A task with unknown data is checked when it is loaded."""
    task = TASKS[file.task]
    signature = task.outline(completed(file.task, task.options, file.data))
    if signature is None or signature.output != "value":
        return
    must = f"is not available for {file.task}, because its targets are not classes"
    if "label_smoothing" in space:
        raise Violation(("search", "label_smoothing"), must, "Leave it out.")
    if file.training.label_smoothing is not None:
        raise Violation(("training", "label_smoothing"), must, "Leave it out.")


def _check_groups(training: TrainingSection, model: ModelSection, space: Space) -> None:
    """Refuse groups by names of parameters for layers whose parameters have other names."""
    if "groups" not in space and training.groups == "layer":
        return
    others = [layer for layer in _layers(model, space) if layer not in GROUPED_LAYERS]
    if others:
        path = ("search", "groups") if "groups" in space else ("training", "groups")
        must = f"is only for {', '.join(GROUPED_LAYERS)}: S5's program names their parameters"
        raise Violation(path, must, "Leave it out.", f"the layer {others[0]}")


def _check_looking_back(model: ModelSection, space: Space) -> None:
    """Refuse bidirectional networks with carried states."""
    for layer in _layers(model, space):
        view = _view(model, space, layer)
        drawn = view.space.get("bidirectional")
        if (view.model.bidirectional and (drawn is None or drawn.when)) or (drawn and True in drawn.choices):
            must = "must be false for every network that carries its state from segment to segment"
            remedy = "Write bidirectional: false, or training.carry_state: false."
            raise Violation(view.path("bidirectional"), must, remedy, "true")


def _check_training(training: TrainingSection, model: ModelSection, space: Space) -> None:
    """Check that the learning rates are given somewhere, and that a trial reports at least once.

    The rate of recurrent parameters is needed only for the layers that have some.
    """
    if training.learning_rate is None and ("learning_rate" not in space or space["learning_rate"].when):
        raise _missing_rate("learning_rate")
    if training.recurrent_learning_rate is None and not all(
        _draws_rate(layer, space) for layer in _layers(model, space) if LAYERS.settings(layer).recurrent_rate
    ):
        raise _missing_rate("recurrent_learning_rate")
    if training.interval > training.steps:
        got = f"{training.interval} of {training.steps}"
        remedy = f"Write {training.steps} or less."
        raise Violation(("training", "interval"), "must be at most training.steps", remedy, got)
    searched = space.get("optimizer")
    for optimizer in map(str, searched.choices if searched else (training.optimizer,)):
        if optimizer in OPTIMIZERS and not OPTIMIZERS[optimizer].decays:
            _check_no_decay(training, optimizer, space)


def _missing_rate(name: str) -> Violation:
    return Violation(("training", name), "must be given here or in search", f"For example {name}: 1e-3.", "")


def _draws_rate(layer: str, space: Space) -> bool:
    """Return True if every trial with a layer draws the rate of its recurrent parameters."""
    drawn = space.get("recurrent_learning_rate")
    return drawn is not None and all(name == "layer" and layer in drawn.when[name] for name in drawn.when)


def _check_no_decay(training: TrainingSection, optimizer: str, space: Space) -> None:
    decay = space.get("weight_decay")
    if decay and _drawn_with("weight_decay", "optimizer", optimizer, space) and decay.ends() != (0, 0):
        path: Path = ("search", "weight_decay")
    elif training.weight_decay and (decay is None or decay.when):
        path = ("training", "weight_decay")
    else:
        return
    must = f"must be 0 with the optimizer {optimizer}, which does not support it"
    able = ", ".join(name for name, declared in OPTIMIZERS.items() if declared.decays)
    got = str(training.weight_decay) if path[0] == "training" else flow(list(decay.ends())) if decay else ""
    raise Violation(path, must, f"Write weight_decay: 0, or one of these optimizers: {able}.", got)


def mutable(file: SpaceFile, space: Space) -> frozenset[str]:
    """Return the hyperparameters that can change during training, except those that may be null.

    Null changes the program: a trial without gradient clipping, for example, has another one.
    """
    layers = space["layer"].choices if "layer" in space else (file.model.layer,)
    known = [known for layer in layers for known in searchable(str(layer)).items()]
    optional = {name for name, distribution in space.items() if None in distribution.choices}
    return frozenset(name for name, hyperparameter in known if hyperparameter.mutable) - optional


def check_confirm(confirm: ConfirmSection, objectives: int) -> None:
    """Refuse a race beside `seeds`, with fewer retrainings than candidates, or with several objectives.

    Raises:
        Violation: The section breaks one of these rules.
    """
    race, path = confirm.race, ("confirm", "race")
    if race is None:
        return
    if confirm.seeds:
        raise Violation(
            path, "cannot be combined with `seeds`", "Leave out one of them.", f"{confirm.seeds} seeds"
        )
    if objectives > 1:
        raise Violation(path, "needs a single objective", "Use `seeds`.", f"{objectives} objectives")
    if race.runs < race.top:
        must = f"must be at least `top` ({race.top}), so that every candidate is retrained"
        raise Violation((*path, "runs"), must, f"Write {2 * race.top}.", str(race.runs))


def read_notify(file: StudySections) -> dict[str, tuple[str, ...]]:
    """Return the targets of notifications, with the events of each; none of them for all.

    Raises:
        Violation: A target is neither a name nor an e-mail address. A URL is a secret, which no ledger and
            no MLflow may hold.
    """
    for target in file.notify:
        if not re.fullmatch(rf"{SLUG}|mailto:\S{{3,200}}", target):
            must = "must be the name of a target, or mailto: and an address, because a URL is a secret"
            remedy = "Run `sweep notify URL --name team`, and write `team`."
            got = f"{target.partition(':')[0]}:..." if ":" in target else f"`{target[:40]}`"
            raise Violation(("notify",), must, remedy, got)
    return {target: tuple(events) for target, events in file.notify.items()}


def check_resources(resources: ResourcesSection) -> None:
    """Check the share of a GPU, and refuse what applies to scripts only.

    Raises:
        Violation: The share is wrong, or there are several GPUs or nodes, or limits of memory, disk or
            minutes.
    """
    for name in (*LIMITS, "nodes"):
        if getattr(resources, name) is not None:
            must = "requires a `trainable` that is a function or a command"
            raise Violation(("resources", name), must, "Leave it out.")
    if resources.gpu > 1:
        must = "must be at most 1, unless the `trainable` is a function or a command"
        raise Violation(("resources", "gpu"), must, "Write gpu: 1.", f"{resources.gpu:g}")
    check_share(resources)


def check_share(resources: ResourcesSection) -> None:
    """Check that a trial takes no GPU, a part 1/K of one, or whole GPUs.

    Raises:
        Violation: The share is not 0, 1/K or a whole number, or `slots` is given with a share other than 1.
    """
    share = resources.gpu
    if resources.slots is not None and share != 1:
        must = "requires gpu: 1, which the slots share"
        raise Violation(("resources", "slots"), must, "Write gpu: 1, or leave it out.")
    if share > 1 and share != round(share):
        must = "must be a whole number of GPUs, or a part 1/K of one"
        raise Violation(("resources", "gpu"), must, f"Write gpu: {round(share)}.", f"{share:g}")
    if 0 < share < 1 and abs(1 / share - round(1 / share)) > 1e-6:
        remedy = f"Write gpu: 1/{max(1, round(1 / share))}."
        raise Violation(("resources", "gpu"), "must be 0, 1 or 1/K of a GPU", remedy)
