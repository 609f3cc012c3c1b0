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
from trainables.counter import folded, order_of_steps, order_of_streams
from trainables.data.task import Signature, Split
from trainables.engine.report import StepMetrics, nothing
from trainables.engine.slot_program import Scorer, at
from trainables.engine.state import (
    Carried,
    Free,
    Names,
    SlotState,
    Trained,
    VectorPacking,
    free_of,
    packing_of,
)
from trainables.errors import Refusal
from trainables.keys import source_of_keys
from trainables.layers import LAYERS
from trainables.model import BlockState, Memory, Model, Training
from trainables.optim import (
    GROUPINGS,
    LOSSES,
    Members,
    Rates,
    Sums,
    clipped,
    first_plateau,
    margin,
    next_plateau,
    schedule,
    transformation,
    updated,
    weights_of,
)
from trainables.settings import GROUPED_LAYERS
from trainables.trial import TrialSettings

BLOCK = 8
"""Number of batches of a block, which an evaluation sends to the device at once."""

EVALUATED_STEPS = 2**20
"""Steps of sequences that a GPU evaluates at once, because one batch would leave it idle."""

STREAMS = 16
"""Rows of an evaluation with carried states, so that its bits do not depend on the batch size of training."""

BLOCK_OF_STREAMS = 32 * STREAMS
"""Segments that an evaluation with carried states sends to the device at once."""

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


class Before(NamedTuple):
    """The memory of rows before their segments.

    Attributes:
        goes_on: (B,) booleans, true for a segment that continues from the memory.
        memory: Memory of each row; no gradient passes from segment to segment.
    """

    goes_on: Array
    memory: Memory

    def memory_of(self, model: Model) -> Memory:
        """Return the memory from which each row starts; the initial one may be trained."""
        rows = len(self.goes_on)

        def chosen(carried: Array, initial: Array) -> Array:
            return jnp.where(self.goes_on.reshape(rows, *(1 for _ in carried.shape[1:])), carried, initial)

        return jax.tree.map(chosen, jax.lax.stop_gradient(self.memory), model.initial_memory(rows))


@dataclass(frozen=True)
class Layout:
    """A network without its arrays, and the order in which they are packed."""

    graph: Any
    params: VectorPacking
    stats: VectorPacking

    def model(self, params: Tree, stats: Tree) -> Model:
        """Return the network with its arrays, given as nested dicts."""
        return nnx.merge(self.graph, nnx.State(params), nnx.State(stats))


@dataclass(frozen=True)
class NetworkProgram:
    """One static choice, for one task's signature.

    Attributes:
        settings: Settings of any trial; only the static part is read.
        signature: Signature of the task's arrays.
        padded: Whether any sequence is shorter than L.
        evaluated: Number of examples that are evaluated at once.
        carries: Whether rows read consecutive examples, each from the states after the one before.
    """

    settings: TrialSettings
    signature: Signature
    padded: bool
    evaluated: int
    carries: bool = False

    @staticmethod
    def of(settings: TrialSettings, signature: Signature, train: Split) -> NetworkProgram:
        """Return the program of a trial's static choice, for the training split of its task.

        Raises:
            Refusal: States are carried over padded sequences, or over fewer sequences than rows of a batch;
                labels are smoothed although targets are not classes; or the groups of the optimiser are those
                of other layers.
        """
        if signature.output == "value" and settings.training.label_smoothing is not None:
            raise Refusal(
                "training.label_smoothing",
                "targets must be classes",
                f"those of {settings.task} are numbers",
                "Leave it out.",
            )
        if settings.training.groups != "layer" and settings.model.layer not in GROUPED_LAYERS:
            raise Refusal(
                "training.groups",
                f"the layer must be one of {', '.join(GROUPED_LAYERS)}, whose parameters S5's program names",
                settings.model.layer,
                "Leave it out.",
            )
        evaluated = _evaluated(settings, signature.towers * signature.length)
        program = NetworkProgram(settings, signature, _padded(train), evaluated)
        if not settings.training.carry_state:
            return program
        if program.padded or len(train) < program.batch:
            raise Refusal(
                "training.carry_state",
                "every row of a batch needs a segment of the text",
                f"{len(train)} segments for {program.batch} rows",
                "Write a smaller batch_size, or carry_state: false.",
            )
        return replace(program, evaluated=STREAMS, carries=True)

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
        """Return the number of examples that an evaluation sends to the device at once."""
        return BLOCK_OF_STREAMS if self.carries else BLOCK * self.settings.training.batch_size

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
        """Return the key that distinguishes the programs of different splits."""
        return self.padded, self.evaluated, self.carries

    def of_split(self, split: Split) -> NetworkProgram:
        """Return the program that evaluates a split, whose sequences may have another length.

        States are carried over segments of the length of training. The longer segments of further test splits
        start with the initial state, so that their scores measure the worth of a context of their length.
        """
        if self.settings.training.carry_state and _steps(split) == self.signature.length:
            return replace(self, padded=False, evaluated=STREAMS, carries=True)
        evaluated = _evaluated(self.settings, self.signature.towers * _steps(split))
        return replace(self, padded=_padded(split), evaluated=evaluated, carries=False)

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
        """Return the numbers of parameters and of the state, from shapes alone."""
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
        """Return the functions that evaluate a slot."""
        model = self._trained(trained)

        def start() -> Tree:
            return model.initial_memory(self.evaluated) if self.carries else ()

        def outputs(memory: Tree, chosen: Sequences) -> tuple[Tree, Array]:
            if not self.carries:
                return memory, model(chosen.inputs, self._lengths(chosen))
            logits, memory = model.carry(memory, chosen.inputs)
            return memory, logits

        def sums(memory: Tree, chosen: Sequences, counts: Array) -> tuple[Tree, Sums]:
            memory, logits = outputs(memory, chosen)
            return memory, self._sums(logits, chosen, counts)

        def of_one(logits: Array, chosen: Sequences, counts: Array) -> Sums:
            return self._sums(*jax.tree.map(lambda leaf: leaf[None], (logits, chosen, counts)))

        def each(memory: Tree, chosen: Sequences, counts: Array) -> tuple[Tree, Sums]:
            memory, logits = outputs(memory, chosen)
            return memory, jax.vmap(of_one)(logits, chosen, counts)

        return Scorer(start, sums, each)

    def hidden_norms(self, trained: Trained, examples: Sequences) -> Array:
        """Return `trainables.model.hidden_norms` of each layer over some examples, (depth, 3)."""
        return self._trained(trained).hidden_norms(examples.inputs, self._lengths(examples))

    def solutions(self, trained: Trained) -> dict[str, float]:
        """Return `fallbacks/layer_k` and, if it is finite, `residual/layer_k` of layers solved by Newton."""
        places = {f"blocks/{layer}/solved": layer for layer in range(self.depth)}
        if not places.keys() & set(self.layout.stats.names):
            return {}
        stats = self.layout.stats.split(np.asarray(trained.stats, np.float64))
        return {
            f"{name}/layer_{layer}": float(value)
            for place, layer in places.items()
            for name, value in zip(("fallbacks", "residual"), stats[place], strict=True)
            if np.isfinite(value)
        }

    def apart(self, trained: Trained) -> dict[str, np.ndarray]:
        """Return the arrays of a checkpoint by name, on the host."""
        return self._names.apart(trained)

    def together(self, arrays: Mapping[str, np.ndarray]) -> Trained:
        """Return the state from the arrays of `apart`.

        Raises:
            Refusal: Names, shapes or types are not those of the model.
        """
        return self._names.together(arrays)

    @cached_property
    def _names(self) -> Names:
        carried = self.shapes().trained.carried
        return Names(self.layout.params, self.layout.stats, self.settings.training, carried)

    def _trained(self, trained: Trained) -> Model:
        """Return the network of a slot."""
        layout = self.layout
        return layout.model(layout.params.unpack(trained.params), layout.stats.unpack(trained.stats))

    @cached_property
    def layout(self) -> Layout:
        """The network without its arrays, and their order."""
        graph, params, stats = _apart(nnx.eval_shape(self._model, free_of(self.settings)))
        return Layout(graph, packing_of(params, self._members()), packing_of(stats, Members()))

    def _members(self) -> Members:
        """Return the names of the layer's parameters by group of the optimiser."""
        if self.settings.training.groups != "layer":
            return GROUPINGS[self.settings.training.groups]
        layer = LAYERS[self.settings.model.layer]
        return Members(layer.undecayed, layer.recurrent)

    def _model(self, free: Free) -> Model:
        return Model(
            self.settings.model,
            free.ranges,
            self.signature,
            remat=self.settings.training.remat,
            rngs=source_of_keys(jax.random.wrap_key_data(free.seed, impl="threefry2x32")),
        )

    def order(self, step: Array, steps: int, examples: int, seed: Array) -> Array:
        """Return the examples of consecutive steps: all in the order of each epoch, or streams of them."""
        ordered = order_of_streams if self.carries else order_of_steps
        return ordered(step, steps, self.batch, examples, seed)

    def step(self, slot: SlotState, train: Sequences, rows: Array) -> tuple[SlotState, StepMetrics]:
        """Take one optimiser step.

        Args:
            slot: Slot's state.
            train: All training examples.
            rows: (accumulate * B,) indices of the examples of the step.
        """
        training, trained, values = self.settings.training, slot.trained, slot.free.values
        (gradients, stats, outcome), memory = self._gradients(slot, train, rows)
        share = schedule(
            trained.step, values["steps"], self._warmup(values, len(train.lengths)), training.schedule
        )
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
        moved = Trained(
            params=params,
            stats=stats,
            moments=moments,
            step=trained.step + 1,
            plateau=plateau,
            carried=self._going_on(trained.step + 1, rows, memory, len(train.lengths)),
        )
        return replace(slot, trained=moved, finite=finite), outcome._replace(rate=rates.learning_rate)

    def _warmup(self, values: Mapping[str, Array], examples: int) -> Array:
        """Return the warm-up as a share of the steps, for a training split with this many examples."""
        if "warmup_epochs" not in values:
            return values["warmup"]
        # Of whole batches, as S5's program counts its epochs.
        return values["warmup_epochs"] * max(examples // self.batch, 1) / values["steps"]

    def _going_on(self, step: Array, rows: Array, memory: Memory | None, examples: int) -> Carried | None:
        """Return the next example of each row after a step; at the end of an epoch no example follows."""
        if memory is None:
            return None
        ended = step % (examples // self.batch) == 0
        return Carried(jnp.where(ended, -1, rows + 1), memory)

    def _gradients(self, slot: SlotState, train: Sequences, rows: Array) -> tuple[Gathered, Memory | None]:
        """Sum the gradients of the micro-batches of one step, over the examples in rows (accumulate * B,).

        Returns:
            Gradients and sums, and the memory of all rows after their examples.
        """
        training, trained = self.settings.training, slot.trained
        micro, size = training.accumulate, training.batch_size
        layout = self.layout
        params = layout.params.unpack(trained.params)
        counted = self._counted(at(train, rows)) if micro > 1 else None

        def add(carry: Gathered, now: tuple[Array, Before | None]) -> tuple[Gathered, Memory | None]:
            (gradients, stats, outcome), (index, before) = carry, now
            noise = Training(
                rate=slot.free.values["dropout"],
                seed=folded(slot.free.seed, (trained.step * micro + index).astype(jnp.uint32)),
            )
            chosen = at(train, jax.lax.dynamic_slice(rows, (index * size,), (size,)))
            # By the arrays and not by the vector: the gradient of a slice is a whole padded vector.
            gradient = jax.grad(self._loss, has_aux=True)
            smoothing = slot.free.values.get("label_smoothing")
            unpacked = layout.stats.unpack(stats)
            more, aside = gradient(params, unpacked, chosen, noise, before, smoothing, counted)
            moved, part, after = aside
            outcome = jax.tree.map(jnp.add, outcome, part)
            return (gradients + layout.params.pack(more), layout.stats.pack(moved), outcome), after

        start = (jnp.zeros_like(trained.params), trained.stats, nothing())
        before = None
        if trained.carried is not None:
            before = Before(rows == trained.carried.following, trained.carried.memory)
        if micro == 1:
            return add(start, (jnp.int32(0), before))
        parts = jax.tree.map(lambda leaf: leaf.reshape(micro, size, *leaf.shape[1:]), before)
        gathered, after = jax.lax.scan(add, start, (jnp.arange(micro), parts))
        return gathered, jax.tree.map(lambda leaf: leaf.reshape(self.batch, *leaf.shape[2:]), after)

    def _loss(
        self,
        params: Tree,
        stats: Tree,
        chosen: Sequences,
        noise: Training,
        before: Before | None,
        label_smoothing: Array | None,
        counted: Array | None,
    ) -> tuple[Array, tuple[Tree, StepMetrics, Memory | None]]:
        """Return the minimised loss of one batch, and new running statistics, outcome and memory.

        The loss of the outcome has no label smoothing, so that it can be compared with evaluations. For a
        micro-batch it is the share in the mean over the step, whose total weight is `counted`.
        """
        model = self.layout.model(params, stats)
        memory = None if before is None else before.memory_of(model)
        logits, memory = model.carry(memory, chosen.inputs, self._lengths(chosen), noise)
        examples = jnp.ones(len(chosen.lengths))
        sums = self._sums(logits, chosen, examples)
        counted = jnp.maximum(sums.counted if counted is None else counted, 1)
        minimised = loss = sums.loss / counted
        if label_smoothing is not None:
            margins = margin(logits, chosen.targets, self._weights(chosen, examples))
            minimised = loss + label_smoothing * margins / counted
        outcome = StepMetrics(
            loss=loss,
            metric=sums.metric,
            counted=sums.counted,
            tokens=jnp.sum(chosen.lengths),
            rate=jnp.float32(0),
        )
        return minimised, (_apart(model)[2], outcome, memory)

    def _started(self, params: Array, stats: Array, free: Free) -> SlotState:
        """Return a slot at step 0 with packed parameters (P,) and running statistics (S,)."""
        training = self.settings.training
        moments, plateau = transformation(training.optimizer).init(params), first_plateau(training)
        trained = Trained(
            params=params,
            stats=stats,
            moments=moments,
            step=jnp.int32(0),
            plateau=plateau,
            carried=self._before_the_first(params, stats) if self.settings.training.carry_state else None,
        )
        return SlotState(trained=trained, free=free, finite=jnp.bool_(True))

    def _before_the_first(self, params: Array, stats: Array) -> Carried:
        """Return the carried state of rows before their first examples."""
        model = self.layout.model(self.layout.params.unpack(params), self.layout.stats.unpack(stats))
        return Carried(jnp.full(self.batch, -1, jnp.int32), model.initial_memory(self.batch))

    def _lengths(self, chosen: Sequences) -> Array | None:
        return chosen.lengths if self.padded else None

    def _sums(self, logits: Array, chosen: Sequences, examples: Array) -> Sums:
        weights = self._weights(chosen, examples)
        sums = LOSSES[self.signature.output](logits, chosen.targets, weights)
        return sums._replace(metric=sums.loss / math.log(2)) if self.signature.metric == "bits" else sums

    def _counted(self, chosen: Sequences) -> Array:
        """Return the number of targets that count in some examples."""
        return jnp.sum(self._weights(chosen, jnp.ones(len(chosen.lengths))))

    def _weights(self, chosen: Sequences, examples: Array) -> Array:
        return weights_of(self.signature.output, examples, chosen.lengths, chosen.targets)


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
    """Return the number of examples that are evaluated at once: a batch on a CPU, up to a block on a GPU."""
    batch = settings.training.batch_size
    if jax.default_backend() == "cpu":
        return batch
    fitting = max(1, min(EVALUATED_STEPS // (batch * steps), BLOCK))
    return batch << (fitting.bit_length() - 1)
