"""The network of a search-space file as a program: its arrays, one step, and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.cost import Cost
from trainables.counter import folded
from trainables.data.task import Signature, Split
from trainables.engine.report import StepMetrics, nothing
from trainables.engine.slot_program import Scorer, at
from trainables.engine.state import Free, Names, Packing, SlotState, Trained, free_of, packing_of
from trainables.layers import LAYERS
from trainables.model import BlockState, Model, Training
from trainables.optim import (
    LOSSES,
    Rates,
    Sums,
    clipped,
    first_plateau,
    next_plateau,
    schedule,
    transformation,
    updated,
    weights_of,
)
from trainables.trial import TrialSettings

BLOCK = 8
"""Batches that an evaluation hands to the device at once."""

EVALUATED_STEPS = 2**20
"""Steps of sequences that a GPU evaluates at once: what one trial's batch leaves idle, many batches fill."""

Tree = Any

Gathered: TypeAlias = tuple[Array, Array, StepMetrics]
"""Mean gradients (P,), running statistics (S,) and outcome of a step's micro-batches."""


class Sequences(NamedTuple):
    """Examples of a task, in the types they are stored in.

    Attributes:
        inputs: (n, L), (n, L, F) or (n, 2, L).
        lengths: (n,) or (n, 2) int32.
        targets: (n,) or (n, L).
    """

    inputs: Array
    lengths: Array
    targets: Array


@dataclass(frozen=True)
class Layout:
    """A network without its arrays, and the order in which they are packed."""

    graph: Any
    params: Packing
    stats: Packing

    def model(self, params: Tree, stats: Tree) -> Model:
        """Return the network with its arrays, given as nested dicts."""
        return nnx.merge(self.graph, nnx.State(params), nnx.State(stats))


@dataclass(frozen=True)
class NetworkProgram:
    """One static choice, for one task's signature.

    Attributes:
        settings: any trial's; only the static part is read.
        signature: of the task's arrays.
        padded: whether any sequence is shorter than L.
        evaluated: examples an evaluation takes at once.
    """

    settings: TrialSettings
    signature: Signature
    padded: bool
    evaluated: int

    @staticmethod
    def of(settings: TrialSettings, signature: Signature, train: Split) -> NetworkProgram:
        """Return the program of a trial's static choice, for the training split of its task."""
        evaluated = _evaluated(settings, signature.towers * signature.length)
        return NetworkProgram(settings, signature, _padded(train), evaluated)

    @property
    def depth(self) -> int:
        """Return the number of layers, each with a hidden-state norm."""
        return self.settings.model.depth

    @property
    def batch(self) -> int:
        """Return the examples of one step."""
        return self.settings.training.batch_size * self.settings.training.accumulate

    @property
    def block(self) -> int:
        """Return the examples that an evaluation hands to the device at once."""
        return BLOCK * self.settings.training.batch_size

    @property
    def metric(self) -> str:
        """Return the name of the score of the task."""
        return self.signature.metric

    @property
    def bits(self) -> bool:
        """Return True if a trial's numbers must not depend on its neighbours, on a GPU either."""
        return self.settings.training.reproducible == "bits"

    @property
    def stacks(self) -> bool:
        """Return True on a GPU, unless the settings ask for reproducible bits; a CPU gains nothing by it."""
        return jax.default_backend() != "cpu" and not self.bits

    @property
    def key(self) -> Hashable:
        """Return what tells the programs of different splits apart."""
        return self.padded, self.evaluated

    def of_split(self, split: Split) -> NetworkProgram:
        """Return the program that evaluates a split, whose sequences may have another length."""
        evaluated = _evaluated(self.settings, self.signature.towers * _steps(split))
        return replace(self, padded=_padded(split), evaluated=evaluated)

    def examples(self, split: Split) -> Sequences:
        """Return the arrays of a split."""
        return Sequences(split.inputs, split.lengths, split.targets)  # type: ignore[arg-type]

    def free(self, settings: TrialSettings) -> Free:
        """Return the free hyperparameters of a trial, as arrays."""
        return free_of(settings)

    def initialise(self, free: Free) -> SlotState:
        """Return a slot at step 0."""
        _, params, stats = _apart(self._model(free))
        return self._started(self.layout.params.pack(params), self.layout.stats.pack(stats), free)

    def shapes(self) -> SlotState:
        """Return the shapes and types of a slot's arrays."""
        params, stats = (
            np.zeros(packing.size, np.float32) for packing in (self.layout.params, self.layout.stats)
        )
        return jax.eval_shape(self._started, params, stats, free_of(self.settings))

    def cost(self) -> Cost:
        """Return parameters and state, from shapes alone; nothing is compiled."""
        params = self.layout.params
        of_layers = (
            math.prod(shape)
            for name, shape in zip(params.names, params.shapes, strict=True)
            if "layer" in name.split("/")
        )
        return Cost(
            parameters=params.size,
            layer_parameters=sum(of_layers),
            recurrent_parameters=params.size - params.groups.recurrent,
            state_floats=self._state_floats(),
        )

    def _state_floats(self) -> int:
        def states(free: Free) -> list[BlockState]:
            return [block.initial_state() for block in self._model(free).blocks]

        blocks = nnx.eval_shape(states, free_of(self.settings))
        leaves = jax.tree.leaves([block.layer for block in blocks])
        one_direction = sum(leaf.size * (2 if jnp.iscomplexobj(leaf) else 1) for leaf in leaves)
        # Both directions read the same convolution.
        rows = sum(block.before.size for block in blocks)
        return rows + one_direction * (2 if self.settings.model.bidirectional else 1)

    def scorer(self, trained: Trained) -> Scorer:
        """Return what evaluates a slot."""
        model = self._trained(trained)

        def outputs(chosen: Sequences) -> Array:
            return model(chosen.inputs, self._lengths(chosen))[0]

        def sums(chosen: Sequences, counts: Array) -> Sums:
            return self._sums(outputs(chosen), chosen, counts)

        def of_one(logits: Array, chosen: Sequences, counts: Array) -> Sums:
            return self._sums(*jax.tree.map(lambda leaf: leaf[None], (logits, chosen, counts)))

        def each(chosen: Sequences, counts: Array) -> Sums:
            return jax.vmap(of_one)(outputs(chosen), chosen, counts)

        return Scorer(sums, each)

    def apart(self, trained: Trained) -> dict[str, np.ndarray]:
        """Return the arrays of a checkpoint by name, on the host."""
        return self._names.apart(trained)

    def together(self, arrays: Mapping[str, np.ndarray]) -> Trained:
        """Return the state that `apart` took apart.

        Raises:
            Refusal: names, shapes or types are not those of the model.
        """
        return self._names.together(arrays)

    @cached_property
    def _names(self) -> Names:
        return Names(self.layout.params, self.layout.stats, self.settings.training)

    def _trained(self, trained: Trained) -> Model:
        """Return the network of a slot."""
        layout = self.layout
        return layout.model(layout.params.unpack(trained.params), layout.stats.unpack(trained.stats))

    @cached_property
    def layout(self) -> Layout:
        """The network without its arrays, and their order."""
        graph, params, stats = _apart(nnx.eval_shape(self._model, free_of(self.settings)))
        layer = LAYERS[self.settings.model.layer]
        return Layout(graph, packing_of(params, layer.undecayed, layer.recurrent), packing_of(stats))

    def _model(self, free: Free) -> Model:
        return Model(
            self.settings.model,
            free.ranges,
            self.signature,
            remat=self.settings.training.remat,
            rngs=nnx.Rngs(jax.random.wrap_key_data(free.seed, impl="threefry2x32")),
        )

    def step(
        self, slot: SlotState, train: Sequences, rows: Array, record: Array
    ) -> tuple[SlotState, StepMetrics]:
        """Take one optimiser step.

        Args:
            slot: a slot's state.
            train: all training examples.
            rows: (accumulate * B,) of them, which the step trains on.
            record: whether to compute the hidden-state norms.
        """
        training, trained, values = self.settings.training, slot.trained, slot.free.values
        gradients, stats, outcome = self._gradients(slot, train, rows, record)
        share = schedule(trained.step, values["steps"], values["warmup"], training.schedule)
        plateau = trained.plateau
        if plateau is not None:
            share = share * plateau.scale
            plateau = next_plateau(training, plateau, outcome.loss)
        rates = Rates(
            learning_rate=share * values["learning_rate"],
            recurrent_learning_rate=share * values["recurrent_learning_rate"],
            weight_decay=values["weight_decay"],
        )
        groups = self.layout.params.groups
        followed = gradients if training.clip is None else clipped(gradients, values["clip"])
        params, moments = updated(
            trained.params, followed, trained.moments, groups, rates, training.optimizer
        )
        # A sum is not finite where a part is not, and one that overflows is as bad.
        finite = jnp.isfinite(outcome.loss) & jnp.isfinite(jnp.sum(jnp.abs(gradients)))
        moved = Trained(params=params, stats=stats, moments=moments, step=trained.step + 1, plateau=plateau)
        return replace(slot, trained=moved, finite=finite), outcome._replace(rate=rates.learning_rate)

    def _gradients(self, slot: SlotState, train: Sequences, rows: Array, record: Array) -> Gathered:
        """Go through the micro-batches of one step, of the examples in rows (accumulate * B,)."""
        training, trained = self.settings.training, slot.trained
        micro, size = training.accumulate, training.batch_size
        layout = self.layout
        params = layout.params.unpack(trained.params)

        def add(carry: Gathered, index: Array) -> tuple[Gathered, None]:
            gradients, stats, outcome = carry
            noise = Training(
                rate=slot.free.values["dropout"],
                seed=folded(slot.free.seed, (trained.step * micro + index).astype(jnp.uint32)),
                record=record & (index == micro - 1),
            )
            chosen = at(train, jax.lax.dynamic_slice(rows, (index * size,), (size,)))
            # By the arrays and not by the vector: the gradient of a slice is a whole padded vector.
            gradient = jax.grad(self._loss, has_aux=True)
            more, (moved, part) = gradient(params, layout.stats.unpack(stats), chosen, noise)
            outcome = jax.tree.map(jnp.add, outcome, part._replace(loss=part.loss / micro))
            return (gradients + layout.params.pack(more) / micro, layout.stats.pack(moved), outcome), None

        start = (jnp.zeros_like(trained.params), trained.stats, nothing(self.settings.model.depth))
        if micro == 1:
            return add(start, jnp.int32(0))[0]
        return jax.lax.scan(add, start, jnp.arange(micro))[0]

    def _loss(
        self, params: Tree, stats: Tree, chosen: Sequences, noise: Training
    ) -> tuple[Array, tuple[Tree, StepMetrics]]:
        """Return the mean loss of one batch, and with it the new running statistics and the outcome."""
        model = self.layout.model(params, stats)
        logits, norms = model(chosen.inputs, self._lengths(chosen), noise)
        sums = self._sums(logits, chosen, jnp.ones(len(chosen.lengths)))
        loss = sums.loss / jnp.maximum(sums.counted, 1)
        outcome = StepMetrics(
            loss=loss,
            metric=sums.metric,
            counted=sums.counted,
            tokens=jnp.sum(chosen.lengths),
            norms=norms,
            rate=jnp.float32(0),
        )
        return loss, (_apart(model)[2], outcome)

    def _started(self, params: Array, stats: Array, free: Free) -> SlotState:
        """Return a slot at step 0, of packed parameters (P,) and running statistics (S,)."""
        training = self.settings.training
        moments, plateau = transformation(training.optimizer).init(params), first_plateau(training)
        trained = Trained(params=params, stats=stats, moments=moments, step=jnp.int32(0), plateau=plateau)
        return SlotState(trained=trained, free=free, finite=jnp.bool_(True))

    def _lengths(self, chosen: Sequences) -> Array | None:
        return chosen.lengths if self.padded else None

    def _sums(self, logits: Array, chosen: Sequences, examples: Array) -> Sums:
        output = self.signature.output
        weights = weights_of(output, examples, chosen.lengths, chosen.targets)
        sums = LOSSES[output](logits, chosen.targets, weights)
        return sums._replace(metric=sums.loss / math.log(2)) if self.signature.metric == "bits" else sums


def _apart(model: Model) -> tuple[Any, Tree, Tree]:
    """Return graph, parameters and running statistics, the latter two as nested dicts of arrays."""
    graph, *states = nnx.split(model, nnx.Param, nnx.BatchStat)
    params, stats = states
    return graph, nnx.to_pure_dict(params), nnx.to_pure_dict(stats)


def _steps(split: Split) -> int:
    """Return the padded length of a split's sequences."""
    return split.inputs.shape[split.lengths.ndim]


def _padded(split: Split) -> bool:
    return bool(np.any(split.lengths < _steps(split)))


def _evaluated(settings: TrialSettings, steps: int) -> int:
    """Return how many examples are evaluated at once: a batch on a CPU, up to a block of them on a GPU.

    Args:
        settings: of any trial.
        steps: of the sequences of an example.
    """
    batch = settings.training.batch_size
    if jax.default_backend() == "cpu":
        return batch
    fitting = max(1, min(EVALUATED_STEPS // (batch * steps), BLOCK))
    return batch << (fitting.bit_length() - 1)
