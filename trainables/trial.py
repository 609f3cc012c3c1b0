"""Settings of one trial, each of which is static or free, and the optimisers that they can name.

A *static* choice changes shapes or the graph and has a compiled program of its own; a *free* hyperparameter
is a traced number of that program. This module imports neither JAX nor Optax.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from trainables.errors import Refusal
from trainables.layers import LAYERS
from trainables.settings import (
    EncoderKind,
    Gate,
    Grouping,
    Interval,
    Mixing,
    Norm,
    NormPosition,
    Pooling,
    Schedule,
)

if TYPE_CHECKING:
    from trainables.data.task import Signature


@dataclass(frozen=True)
class Optimizer:
    """An optimiser of Optax, without its learning rate and weight decay.

    Attributes:
        scale: Name of the Optax function whose transformation turns a gradient into a direction.
        decays: Whether the optimiser has a decoupled weight decay.
        options: Arguments of the function.
    """

    scale: str
    decays: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        "adamw": Optimizer("scale_by_adam", decays=True),
        "adam": Optimizer("scale_by_adam"),
        "adamax": Optimizer("scale_by_adamax"),
        "adamaxw": Optimizer("scale_by_adamax", decays=True),
        "amsgrad": Optimizer("scale_by_amsgrad"),
        "lion": Optimizer("scale_by_lion", decays=True),
        "nadam": Optimizer("scale_by_adam", options={"nesterov": True}),
        "nadamw": Optimizer("scale_by_adam", decays=True, options={"nesterov": True}),
        "radam": Optimizer("scale_by_radam"),
        "rmsprop": Optimizer("scale_by_rms"),
        "sgd": Optimizer("identity"),
    }
)
"""Optimisers by their names in Optax, with Optax's defaults."""


@dataclass(frozen=True)
class ModelSettings:
    """The network of a trial.

    Attributes:
        layer: Name of `LAYERS`.
        depth: Number of residual blocks.
        d_model: Width D of a block.
        d_state: State size N of a layer, as the layer's paper counts it.
        bidirectional: Whether each layer also reads the sequence backwards.
        dropout: Share of channels dropped, the same ones at every time step. Free.
        pooling: Pooling of the outputs at all steps; unused for an output by step.
        mixing: Mixing of the channels after the layer of a block.
        short_conv: Width of a causal convolution of each channel before the layer; 0 for none.
        gate: Activation of a gate Dense(u) that multiplies the outputs of the layer, or none.
        norm: Normalisation of each channel over batch and time, or of each step over its channels.
        norm_position: Position before the layer of a block, or after the skip connection of the block.
        encoder: Dense encoder, or none, so that `d_model` is the number of tokens or features of the task.
        options: Static options of the layer by name; the others have the defaults of the layer.
        ranges: Initialisation ranges (low, high) of the layer by name; the others have its defaults. Free.
    """

    layer: str
    depth: int
    d_model: int
    d_state: int
    bidirectional: bool = False
    dropout: float = 0.0
    pooling: Pooling = "mean"
    mixing: Mixing = "full_glu"
    short_conv: int = 0
    gate: Gate = "none"
    norm: Norm = "batch"
    norm_position: NormPosition = "before"
    encoder: EncoderKind = "dense"
    options: Mapping[str, Any] = field(default_factory=dict)
    ranges: Mapping[str, Interval] = field(default_factory=dict)

    def complete(self) -> ModelSettings:
        """Return the same network with the values of all options and ranges of its layer."""
        declared = LAYERS.settings(self.layer)
        options = {name: option.default for name, option in declared.options.items()}
        ranges = {name: spec.default for name, spec in declared.ranges.items()}
        return replace(self, options={**options, **self.options}, ranges={**ranges, **self.ranges})

    def check_width(self, signature: Signature) -> None:
        """Raise Refusal if, without an encoder, the width of the network is not that of the task's arrays."""
        width = signature.vocabulary or signature.features
        if self.encoder == "none" and self.d_model != width:
            kind = "tokens, one-hot" if signature.vocabulary else "features"
            raise Refusal(
                "model.d_model",
                f"without an encoder it must be the task's number of {kind}: {width}",
                str(self.d_model),
                f"Write d_model: {width}, or encoder: dense.",
            )


@dataclass(frozen=True)
class TrainingSettings:
    """How a trial is trained.

    Attributes:
        steps: Optimiser updates of the whole trial, and the length of its schedule. Free.
        interval: Steps between two reports.
        batch_size: Examples B in a step.
        learning_rate: Peak rate of the parameters outside the recurrence. Free.
        recurrent_learning_rate: Peak rate of the recurrent parameters of the layers. Free.
        weight_decay: Decoupled decay of the parameters outside the recurrence, if the optimiser decays. Free.
        warmup: Share of `steps` with a linearly rising rate, before the schedule. Free.
        warmup_epochs: Length of the rise in epochs of the training split, in place of `warmup`, or None.
            Numbers are free; None has another program.
        groups: Which parameters of a layer have the recurrent rate, and which decay.
        optimizer: Name in `OPTIMIZERS`.
        clip: Largest norm of the gradient of all parameters, or None for no limit. Numbers are free; None has
            another program.
        label_smoothing: Share of the target's probability that training spreads over all classes, or None.
            Numbers are free; None has another program. Evaluations do not use it.
        schedule: Course of the rates after the warm-up.
        plateau_factor: Factor of the rates when the loss stops falling (schedule `plateau`).
        plateau_patience: Number of intervals without a lower mean training loss before the factor applies.
        accumulate: Number of batches of one update, whose gradients are averaged.
        remat: Whether to recompute the activations of blocks in the reverse pass, which saves memory.
        reproducible: "bits" trains each slot by a program of its own, without nondeterministic kernels, also
            on a GPU. On a CPU this is always so.
        carry_state: Whether each row of a batch reads consecutive examples, and every layer starts from its
            state after the previous example; for tasks whose examples are consecutive segments.
    """

    steps: int
    interval: int
    batch_size: int
    learning_rate: float
    recurrent_learning_rate: float
    weight_decay: float = 0.01
    warmup: float = 0.1
    warmup_epochs: float | None = None
    groups: Grouping = "layer"
    optimizer: str = "adamw"
    clip: float | None = None
    label_smoothing: float | None = None
    schedule: Schedule = "cosine"
    plateau_factor: float = 0.5
    plateau_patience: int = 2
    accumulate: int = 1
    remat: bool = False
    reproducible: str | None = None
    carry_state: bool = False

    def rule(self) -> tuple[Any, ...]:
        """Return the settings on which the compiled program of the schedule depends."""
        if self.schedule != "plateau":
            return (self.schedule,)
        return (self.schedule, self.plateau_factor, self.plateau_patience, self.interval)


@dataclass(frozen=True)
class TrialSettings:
    """All settings of a trial of a network; equal settings and data give equal curves.

    Attributes:
        task: Name of `trainables.tasks.TASKS`.
        model: Network.
        training: Training settings.
        seed: Seed of the initialisation, the order of the epochs and dropout. Free.
        task_options: Options of the task (lengths, colour, ...). Static.
        evaluate_examples: Examples of a split that an evaluation reads, or None for all of them.
    """

    task: str
    model: ModelSettings
    training: TrainingSettings
    seed: int
    task_options: Mapping[str, Any] = field(default_factory=dict)
    evaluate_examples: int | None = None

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> TrialSettings:
        """Return the settings from their document, the result of `asdict`."""
        model, training = dict(document["model"]), TrainingSettings(**document["training"])
        model["ranges"] = {name: (low, high) for name, (low, high) in model.get("ranges", {}).items()}
        settings = {"model": ModelSettings(**model), "training": training}
        return TrialSettings(**{**document, **settings})

    def static(self) -> tuple[Any, ...]:
        """Return the static choice, hashable: trials with equal ones share one compiled program."""
        model, training = self.model.complete(), self.training
        return (
            self.task,
            tuple(sorted(self.task_options.items())),
            (model.layer, model.depth, model.d_model, model.d_state, model.bidirectional),
            (model.pooling, model.mixing, model.norm, model.norm_position, model.encoder),
            (model.short_conv, model.gate),
            tuple(sorted(model.options.items())),
            (training.optimizer, training.clip is not None, *training.rule()),
            training.label_smoothing is not None,
            (training.warmup_epochs is not None, training.groups),
            (training.batch_size, training.accumulate, training.remat, training.reproducible),
            training.carry_state,
        )

    def free(self) -> dict[str, float]:
        """Return the free hyperparameters by name, without the initialisation ranges and the seed."""
        training = self.training
        optional = {
            "clip": training.clip,
            "label_smoothing": training.label_smoothing,
            "warmup_epochs": training.warmup_epochs,
        }
        return {
            "learning_rate": training.learning_rate,
            "recurrent_learning_rate": training.recurrent_learning_rate,
            "weight_decay": training.weight_decay,
            "dropout": self.model.dropout,
            "warmup": training.warmup,
            "steps": float(training.steps),
            **{name: value for name, value in optional.items() if value is not None},
        }


@dataclass(frozen=True)
class Clock:
    """The length of a trial of a user's program, function or command.

    Attributes:
        steps: Steps of the whole trial.
        interval: Steps between two reports.
        reproducible: "bits" makes the results of a trial bitwise independent of its neighbours; slower.
    """

    steps: int
    interval: int
    reproducible: str | None = None


def memory_share(gpu: float) -> float:
    """Return the share of a GPU's memory for a process; a tenth stays free for the contexts of processes.

    Args:
        gpu: GPUs of the process, or its share of one.
    """
    return round(min(gpu, 1.0) * 0.9, 3)


def variable_of(name: str) -> str:
    """Return the name of the environment variable that holds a hyperparameter for a script."""
    return f"SWEEP_PARAM_{name.replace('.', '_').upper()}"


METRIC_SOURCES: Mapping[str, tuple[str, ...]] = {"file": ("step",), "tensorboard": (), "source": ()}
"""Keys of a script's `metrics` that name a file, a folder or MLflow, not a pattern, each with the keys beside
it."""


@dataclass(frozen=True)
class ScriptSettings:
    """Settings of a trial of a function or a command; one of the two is given.

    Attributes:
        function: `package.module:name`, or `file.py:name`.
        command: Words of a command, with placeholders such as `{learning_rate}`.
        shell: Whether the words are one text for a shell.
        folder: Folder of the search-space file, which is the working folder of a command.
        params: Value for every hyperparameter of the trial.
        training: Length of the trial.
        seed: Seed for the script to use.
        memory: Largest total memory of its processes in bytes, or None.
        minutes: Longest time of an attempt, or None.
        disk: Largest disk space of an attempt in bytes, or None.
        metrics: Source of the reports if the script sends none: a pattern of printed lines by metric, or
            `file` or `tensorboard` with a path, or `source` with `mlflow`; empty if it sends them.
        gpu: GPUs of the trial on each of its nodes, or its share of one.
        nodes: Nodes of the trial, on each of which the function or command runs.
        cpu: Cores of the trial on each of its nodes.
    """

    function: str | None
    command: tuple[str, ...] | None
    shell: bool
    folder: str
    params: Mapping[str, Any]
    training: Clock
    seed: int
    memory: int | None = None
    minutes: float | None = None
    disk: int | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    gpu: float = 0.0
    nodes: int = 1
    cpu: float = 1.0

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> ScriptSettings:
        """Return the settings that `asdict` turned into a document."""
        command = document["command"]
        fields = {
            "training": Clock(**document["training"]),
            "command": None if command is None else tuple(command),
        }
        return ScriptSettings(**{**document, **fields})

    @property
    def gpu_memory(self) -> float | None:
        """Share of its GPU's memory that the trial may use if it shares the GPU with others, or None."""
        return memory_share(self.gpu) if 0 < self.gpu < 1 else None

    def static(self) -> tuple[Any, ...]:
        """Return a key that all trials of a sweep share, because nothing is compiled."""
        return (self.function, self.command, self.folder)


@dataclass(frozen=True)
class ProgramSettings:
    """Settings of a trial of a user's program.

    Attributes:
        program: `package.module:Name` of a `trainables.program.Program`, or `file.py:Name`.
        folder: Folder of the file.
        params: Value for every hyperparameter of the trial, static and free ones.
        training: Length of the trial.
        seed: Seed of the initialisation, the order of the epochs, and the keys of all steps. Free.
        free: Names of the free hyperparameters, as the program declares them.
    """

    program: str
    folder: str
    params: Mapping[str, Any]
    training: Clock
    seed: int
    free: tuple[str, ...]
    evaluate_examples: int | None = None

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> ProgramSettings:
        """Return the settings that `asdict` turned into a document."""
        training = Clock(**document["training"])
        return ProgramSettings(**{**document, "training": training, "free": tuple(document["free"])})

    def static_params(self) -> dict[str, Any]:
        """Return the hyperparameters that are arguments of the program's `__init__`."""
        return {name: value for name, value in self.params.items() if name not in self.free}

    def static(self) -> tuple[Any, ...]:
        """Return the static choice, hashable: trials with equal ones share one compiled program."""
        static = tuple(sorted((name, _hashable(value)) for name, value in self.static_params().items()))
        return (self.program, self.folder, static, self.training.reproducible)


def _hashable(value: Any) -> Any:
    """Return a value as a key: a number or a word itself, and the JSON text of anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number or isinstance(value, str) else ("json", json.dumps(value, sort_keys=True))


Settings: TypeAlias = TrialSettings | ProgramSettings | ScriptSettings
"""Settings of a trial of a network of this package, of a program, or of a function or command."""


def settings_from(document: Mapping[str, Any]) -> Settings:
    """Return the settings of any kind that `asdict` turned into a document."""
    if "task" in document:
        return TrialSettings.from_document(document)
    if "program" in document:
        return ProgramSettings.from_document(document)
    return ScriptSettings.from_document(document)
