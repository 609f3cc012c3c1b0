"""Programs of users: pure JAX functions, of which the engine trains many trials in one compiled program.

    class Net(Linen):
        free = ("learning_rate",)
        metric = "accuracy"

        def __init__(self, width: int = 64) -> None:
            self.module = MLP(width)

        def data(self, folder): ...
        def inputs(self, batch): ...
        def scores(self, outputs, batch): ...
        def optimizer(self, free): return optax.adam(free["learning_rate"])

A file names it as `trainable: {program: mypackage.model:Net}`. What a search draws and `free` names is a
traced number of the compiled program: another value compiles nothing. Everything else that the search draws
is static: an argument of `__init__`, and each combination of such values is a program of its own.
"""

from __future__ import annotations

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import jax
import numpy as np
import optax
from flax import linen, nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import BadData, Refusal
from trainables.importing import imported
from trainables.trial import ProgramSettings

Tree: TypeAlias = Any
"""Nested dicts, lists, tuples and dataclasses of arrays."""

Batch: TypeAlias = Any
"""A tree of arrays whose leading axis counts examples."""

Free: TypeAlias = Mapping[str, Array]
"""Values of the free hyperparameters by name, float32 scalars, traced."""


class Program(ABC):
    """A program of the engine: `initialise` runs once, `step` at every update, `evaluate` at every report.

    The functions are pure: a trial has no memory except its state, and random numbers come from the given
    keys. They are traced, so the shapes of their results may depend only on the arguments of `__init__`.

    Attributes:
        free: Names of the hyperparameters that are traced numbers.
        metric: Name of the score that is reported beside the loss, as `val/<metric>`.
        batch_size: Examples of a step.
    """

    free: ClassVar[Sequence[str]] = ("learning_rate",)
    metric: ClassVar[str] = "accuracy"
    batch_size: int = 32

    @abstractmethod
    def data(self, folder: Path) -> Mapping[str, Batch]:
        """Return the examples, as NumPy arrays: `train`, `validation` and `test`.

        Args:
            folder: Folder of the data sets, the option `--data`.
        """

    @abstractmethod
    def initialise(self, key: Array, free: Free) -> Tree:
        """Return the state before the first step, such as parameters and the state of the optimiser.

        Args:
            key: Key of the trial.
            free: Hyperparameters of the trial.
        """

    @abstractmethod
    def step(self, state: Tree, batch: Batch, key: Array, free: Free) -> tuple[Tree, Mapping[str, Array]]:
        """Return the state after one update, and the mean `loss` of the batch, with the mean metric if known.

        Args:
            state: State from `initialise` or the previous step.
            batch: `batch_size` training examples.
            key: Key of the step.
            free: Hyperparameters of the trial.
        """

    @abstractmethod
    def evaluate(self, state: Tree, batch: Batch) -> Mapping[str, Array]:
        """Return the `loss` and the metric of every example, arrays (B,)."""

    def predict(self, state: Tree, batch: Batch) -> Mapping[str, Array]:
        """Return answers by name, arrays (B, ...).

        The method should not read targets, which users of a model do not have. If a class defines it, the
        chosen trial becomes a registered model.

        Args:
            state: State from `step`.
            batch: Batch of examples.

        Raises:
            Refusal: The class does not define it.
        """
        must, remedy = (
            "is not defined by the program",
            "Define `predict(self, state, batch)`: see docs/trainables.md.",
        )
        raise Refusal("predict", must, type(self).__name__, remedy)


class Supervised(Program):
    """A network that an Optax optimiser trains on its mean loss; `Linen` and `Nnx` call it."""

    @abstractmethod
    def optimizer(self, free: Free) -> optax.GradientTransformation:
        """Return an optimiser of Optax, whose rates may be traced numbers."""

    @abstractmethod
    def inputs(self, batch: Batch) -> Any:
        """Return the part of a batch that the network reads, its first argument."""

    @abstractmethod
    def scores(self, outputs: Any, batch: Batch) -> Mapping[str, Array]:
        """Return the `loss` and the metric of every example, arrays (B,), from the network's outputs."""

    @abstractmethod
    def started(self, key: Array) -> tuple[Tree, Tree]:
        """Return new parameters, and other state of the network, such as running statistics."""

    @abstractmethod
    def outputs(self, params: Tree, rest: Tree, batch: Batch, key: Array | None) -> tuple[Any, Tree]:
        """Return the outputs of the network, and its other state after them.

        Args:
            params: Parameters from `started`.
            rest: Other state of the network.
            batch: Batch of examples.
            key: Key of the training step, or None in an evaluation.
        """

    def initialise(self, key: Array, free: Free) -> Tree:
        """Return parameters, other state of the network, and the state of the optimiser."""
        params, rest = self.started(key)
        return {"params": params, "rest": rest, "optimizer": self.optimizer(free).init(params)}

    def step(self, state: Tree, batch: Batch, key: Array, free: Free) -> tuple[Tree, Mapping[str, Array]]:
        """Take one step of the optimiser on the mean loss."""

        def loss(params: Tree) -> tuple[Array, tuple[Tree, Mapping[str, Array]]]:
            outputs, rest = self.outputs(params, state["rest"], batch, key)
            means = jax.tree.map(jnp.mean, dict(self.scores(outputs, batch)))
            return means["loss"], (rest, means)

        gradient, (rest, means) = jax.grad(loss, has_aux=True)(state["params"])
        optimizer = self.optimizer(free)
        updates, moments = optimizer.update(gradient, state["optimizer"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "rest": rest, "optimizer": moments}, means

    def evaluate(self, state: Tree, batch: Batch) -> Mapping[str, Array]:
        """Return the scores of every example."""
        outputs, _ = self.outputs(state["params"], state["rest"], batch, None)
        return self.scores(outputs, batch)


class Linen(Supervised):
    """A Flax linen module, `self.module`, that is called with the inputs of a batch.

    If its `__call__` has an argument `train`, the argument is True in training. Dropout draws from the stream
    `dropout`.
    """

    module: linen.Module
    example: Batch
    """One example or more, for the shapes of the parameters."""

    def started(self, key: Array) -> tuple[Tree, Tree]:
        """Initialise the module's variables."""
        variables = dict(self.module.init(key, self.inputs(self.example), **self._mode(train=False)))
        return variables.pop("params"), variables

    def outputs(self, params: Tree, rest: Tree, batch: Batch, key: Array | None) -> tuple[Any, Tree]:
        """Apply the module; in training, with new running statistics."""
        variables, mode = {"params": params, **rest}, self._mode(train=key is not None)
        if key is None:
            return self.module.apply(variables, self.inputs(batch), **mode), rest
        rngs = {"dropout": key}
        return self.module.apply(variables, self.inputs(batch), rngs=rngs, mutable=list(rest), **mode)

    def _mode(self, *, train: bool) -> dict[str, Any]:
        accepted = inspect.signature(self.module.__call__).parameters
        return {"train": train} if "train" in accepted else {}


class Nnx(Supervised):
    """A Flax nnx module, which `build` makes."""

    @abstractmethod
    def build(self, rngs: nnx.Rngs) -> nnx.Module:
        """Return the module."""

    def started(self, key: Array) -> tuple[Tree, Tree]:
        """Initialise the module."""
        _, *states = nnx.split(self.build(nnx.Rngs(key)), nnx.Param, ...)
        params, rest = map(nnx.to_pure_dict, states)
        return params, rest

    def outputs(self, params: Tree, rest: Tree, batch: Batch, key: Array | None) -> tuple[Any, Tree]:
        """Call the module, in training or evaluation mode."""
        graph, *shapes = nnx.split(nnx.eval_shape(lambda: self.build(nnx.Rngs(0))), nnx.Param, ...)
        states = [_filled(shape, values) for shape, values in zip(shapes, (params, rest), strict=True)]
        module = nnx.merge(graph, *states)
        if key is None:
            module.eval()
        else:
            module.train()
        outputs = module(self.inputs(batch))
        _, *moved = nnx.split(module, nnx.Param, ...)
        return outputs, nnx.to_pure_dict(moved[1])


def _filled(state: nnx.State, values: Tree) -> nnx.State:
    nnx.replace_by_pure_dict(state, values)
    return state


@dataclass(frozen=True)
class ProgramData:
    """The examples of a user's program.

    Attributes:
        train: Examples that the steps read.
        validation: Examples that every report evaluates.
        test: Examples on which the chosen trial is evaluated.
        digest: SHA-256 of all examples.
    """

    train: Batch
    validation: Batch
    test: Batch
    digest: str

    further: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def of(program: Program, folder: Path) -> ProgramData:
        """Load the examples of a program.

        Raises:
            BadData: A part is missing, or its arrays do not have one number of examples.
        """
        parts = program.data(folder)
        for name in ("train", "validation", "test"):
            if name not in parts:
                got = ", ".join(parts) or "nothing"
                raise BadData("`data`", f"must return `{name}`", got, "Return a dict of trees of arrays.")
        digest = hashlib.sha256()
        for name, part in parts.items():
            leaves = jax.tree.leaves(part)
            if len({len(leaf) for leaf in leaves}) != 1:
                must = "all arrays of a part must have the same number of examples"
                got = f"{[np.shape(leaf) for leaf in leaves]} in {name}"
                raise BadData("`data`", must, got, "The leading axis counts examples.")
            for leaf in leaves:
                digest.update(f"{name} {leaf.dtype} {leaf.shape}".encode())
                digest.update(np.ascontiguousarray(leaf).data)
        return ProgramData(parts["train"], parts["validation"], parts["test"], digest.hexdigest())

    def facts(self) -> dict[str, Any]:
        """Return the facts about the data in a checkpoint, as JSON values."""
        return {"data": self.digest}

    def split(self, name: str) -> Batch:
        """Return `train`, `validation` or `test`."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]


def loaded(settings: ProgramSettings) -> Program:
    """Import and construct the program of a trial's static choice.

    Raises:
        Refusal: The module or the name does not exist, is not a `Program`, or has other arguments.
    """
    found = imported(settings.program, Path(settings.folder))
    if not (isinstance(found, type) and issubclass(found, Program)):
        must = "must name a class that derives from trainables.program.Program"
        raise Refusal("trainable.program", must, f"{found!r}"[:80], "See docs/trainables.md.")
    try:
        program: Program = found(**settings.static_params())
    except TypeError as error:
        must = "its `__init__` must take the static hyperparameters of the search"
        raise Refusal(
            "trainable.program", must, str(error), "Add them, or list those that are free in `free`."
        ) from error
    return program
