"""What one trial trains: frozen settings, and which of them are static or free.

A *static* choice changes shapes or the graph and so needs its own compiled program; a *free*
hyperparameter is a traced number of that program. This module does not import JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainables.layers import LAYERS
from trainables.settings import Interval

EARLIER_NAMES: Mapping[str, str] = {"form": "algorithm", "rematerialise": "remat"}
"""Names of settings in the checkpoints and ledgers of earlier versions, and their names in this one."""


def in_current_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings under the names of this version."""
    return {EARLIER_NAMES.get(name, name): value for name, value in settings.items()}


@dataclass(frozen=True)
class ModelSettings:
    """The network of a trial.

    Attributes:
        layer: a name of `LAYERS`.
        depth: residual blocks.
        d_model: width D of a block.
        d_state: state size N of a layer, as the layer's paper counts it.
        bidirectional: whether each layer also reads the sequence backwards.
        dropout: share of channels dropped, the same ones at every time step. Free.
        options: static options of the layer.
        ranges: initialisation ranges of the layer, `name -> (low, high)`. Free.
    """

    layer: str
    depth: int
    d_model: int
    d_state: int
    bidirectional: bool = False
    dropout: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    ranges: Mapping[str, Interval] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingSettings:
    """How a trial is trained.

    Attributes:
        steps: optimiser updates of the whole trial, and the length of its schedule. Free.
        interval: steps between two reports.
        batch_size: examples a step B.
        learning_rate: peak rate of the parameters outside the recurrence. Free.
        recurrent_learning_rate: peak rate of each layer's recurrent parameters. Free.
        weight_decay: decoupled decay of the parameters outside the recurrence. Free.
        warmup: share of `steps` with a linearly rising rate, before the cosine. Free.
        accumulate: gradients averaged over this many batches before one update.
        remat: recompute block activations in the reverse pass, to save memory.
    """

    steps: int
    interval: int
    batch_size: int
    learning_rate: float
    recurrent_learning_rate: float
    weight_decay: float = 0.01
    warmup: float = 0.1
    accumulate: int = 1
    remat: bool = False


@dataclass(frozen=True)
class TrialSettings:
    """All that one trial trains; equal settings and equal data give equal curves.

    Attributes:
        task: a name of `trainables.tasks.TASKS`.
        task_options: options of the task (lengths, colour, ...). Static.
        model: the network.
        training: how it is trained.
        seed: of the initialisation, the order of the epochs and dropout. Free.
        evaluate_examples: examples of a split that an evaluation reads, or None for all of them.
    """

    task: str
    model: ModelSettings
    training: TrainingSettings
    seed: int
    task_options: Mapping[str, Any] = field(default_factory=dict)
    evaluate_examples: int | None = None

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> TrialSettings:
        """Return the settings of which `asdict`, of this version or an earlier one, made a document."""
        fields = dict(document)
        model, training = dict(fields.pop("model")), in_current_names(fields.pop("training"))
        model["options"] = in_current_names(model.get("options", {}))
        return TrialSettings(**fields, model=ModelSettings(**model), training=TrainingSettings(**training))

    def static(self) -> tuple[Any, ...]:
        """Return the hashable static choice: equal keys share one compiled program."""
        model, training = self.model, self.training
        return (
            self.task,
            tuple(sorted(self.task_options.items())),
            (model.layer, model.depth, model.d_model, model.d_state, model.bidirectional),
            tuple(sorted(model.options.items())),
            (training.interval, training.batch_size, training.accumulate, training.remat),
            self.evaluate_examples,
        )

    def free(self) -> dict[str, float]:
        """Return the free hyperparameters by the names a search-space file gives them (seed apart)."""
        training = self.training
        ends = {
            f"{name}.{end}": float(value)
            for name, bounds in self.ranges().items()
            for end, value in zip(("min", "max"), bounds, strict=True)
        }
        return {
            "learning_rate": training.learning_rate,
            "recurrent_learning_rate": training.recurrent_learning_rate,
            "weight_decay": training.weight_decay,
            "dropout": self.model.dropout,
            "warmup": training.warmup,
            "steps": float(training.steps),
            **ends,
        }

    def ranges(self) -> dict[str, Interval]:
        """Return every initialisation range of the layer, published defaults filled in."""
        declared = LAYERS.settings(self.model.layer).ranges
        given = {name: self.model.ranges.get(name, spec.default) for name, spec in declared.items()}
        return {name: (low, high) for name, (low, high) in given.items()}
