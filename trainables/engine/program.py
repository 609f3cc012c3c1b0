"""The pure functions that an engine compiles: initialise a slot, advance slots, evaluate one.

Everything that differs between trials of one static choice is an argument, so a new trial compiles nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.cost import Cost
from trainables.counter import folded, order_of_steps
from trainables.data.task import Signature, Split
from trainables.engine.report import MOST_STEPS, Log, StepMetrics, empty, noted, nothing
from trainables.engine.state import Free, Packing, SlotState, Trained, free_of, packing_of, put, take
from trainables.layers import LAYERS
from trainables.model import Model, Training
from trainables.optim import (
    LOSSES,
    Rates,
    Sums,
    clipped,
    recurrent_path,
    schedule,
    transformation,
    updated,
    weights_of,
)
from trainables.trial import TrialSettings

Tree = Any

Gathered: TypeAlias = tuple[Array, Array, StepMetrics]
"""Mean gradients (P,), running statistics (S,) and outcome of a step's micro-batches."""


class Examples(NamedTuple):
    """Examples on the device, in the types they are stored in.

    Attributes:
        inputs: (n, L), (n, L, F) or (n, 2, L).
        lengths: (n,) or (n, 2) int32.
        targets: (n,) or (n, L).
    """

    inputs: Array
    lengths: Array
    targets: Array

    def at(self, rows: Array) -> Examples:
        """Return the examples of some rows."""
        return Examples(*(part[rows] for part in self))


def on_device(split: Split) -> Examples:
    """Return a split on the device; a CPU maps the file's pages and copies nothing."""
    return Examples(*(jax.device_put(part) for part in (split.inputs, split.lengths, split.targets)))


def blocks(split: Split, count: int, rows: int) -> Iterator[tuple[Examples, int]]:
    """Yield blocks of `rows` examples, the last one filled with zeros, and how many of each count.

    Args:
        split: of which the first `count` examples are read.
        count: at most the split's size.
        rows: of every block, so that one program serves every split.
    """
    for start in range(0, count, rows):
        stop = min(start + rows, count)
        parts = (part[start:stop] for part in (split.inputs, split.lengths, split.targets))
        yield on_device(Split(*(_filled(part, rows) for part in parts))), stop - start


def _filled(part: np.ndarray, rows: int) -> np.ndarray:
    missing = rows - len(part)
    return np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)]) if missing else part


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
class Program:
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
            recurrent_parameters=params.size - params.boundary,
            state_floats=self._state_floats(),
        )

    def _state_floats(self) -> int:
        def states(free: Free) -> list[Tree]:
            return [block.layer.initial_state() for block in self._model(free).blocks]

        leaves = jax.tree.leaves(nnx.eval_shape(states, free_of(self.settings)))
        one_direction = sum(leaf.size * (2 if jnp.iscomplexobj(leaf) else 1) for leaf in leaves)
        return one_direction * (2 if self.settings.model.bidirectional else 1)

    def step(self, slot: SlotState, train: Examples) -> SlotState:
        """Take one step on the first examples of a split, without hidden-state norms: the work of a step."""
        training = self.settings.training
        rows = jnp.arange(training.batch_size * training.accumulate)
        return self._step(slot, train, rows, jnp.bool_(False))[0]

    def advance(self, slot: SlotState, steps: Array, train: Examples) -> tuple[SlotState, Log]:
        """Advance one slot, until a loss or gradient is not finite.

        Args:
            slot: a slot's state.
            steps: int32 scalar, at most `MOST_STEPS`.
            train: all training examples.

        Returns:
            The slot and its log.
        """
        return self._advance(slot, jnp.bool_(True), steps, train)

    def advance_stacked(
        self, slots: SlotState, picks: Array, live: Array, steps: Array, train: Examples
    ) -> tuple[SlotState, Log]:
        """Advance some slots of a stack by the same number of steps.

        A single slot is not vmapped, so that a GPU held by one trial pays nothing for slots.

        Args:
            slots: all K, stacked.
            picks: (b,) int32, different slots.
            live: (b,) booleans; what is picked and not live only fills the bucket and stays as it is.
            steps: int32 scalar, at most `MOST_STEPS`.
            train: all training examples.

        Returns:
            All K slots, and the log of each picked one, stacked.
        """
        if len(picks) == 1:
            moved, log = self._advance(take(slots, picks[0]), live[0], steps, train)
            return put(slots, picks[0], moved), jax.tree.map(lambda leaf: leaf[None], log)
        together = jax.vmap(self._advance, in_axes=(0, 0, None, None))
        moved, log = together(take(slots, picks), live, steps, train)
        return put(slots, picks, moved), log

    def evaluate(self, trained: Trained, examples: Examples, count: Array) -> Sums:
        """Sum loss and metric over the first `count` of some examples, `evaluated` at a time.

        Args:
            trained: one slot's.
            examples: a multiple of `evaluated`; none counts from `count` on.
            count: int32 scalar.
        """
        model = self._trained(trained)

        def add(index: Array, total: Sums) -> Sums:
            rows = index * self.evaluated + jnp.arange(self.evaluated)
            chosen = examples.at(rows)
            logits, _ = model(chosen.inputs, self._lengths(chosen))
            sums = self._sums(logits, chosen, (rows < count).astype(jnp.float32))
            return jax.tree.map(jnp.add, total, sums)

        zero = jnp.float32(0)
        return jax.lax.fori_loop(0, -(-count // self.evaluated), add, Sums(zero, zero, zero))

    def evaluate_each(self, trained: Trained, examples: Examples, count: Array) -> Sums:
        """Return loss, metric and what is counted of each example, as arrays (n,); zeros from `count` on.

        Args:
            trained: one slot's.
            examples: n of them, a multiple of `evaluated`.
            count: int32 scalar.
        """
        model = self._trained(trained)

        def of_one(logits: Array, chosen: Examples, counts: Array) -> Sums:
            one = jax.tree.map(lambda leaf: leaf[None], (logits, chosen, counts))
            return self._sums(*one)

        def write(index: Array, table: Sums) -> Sums:
            rows = index * self.evaluated + jnp.arange(self.evaluated)
            chosen = examples.at(rows)
            logits, _ = model(chosen.inputs, self._lengths(chosen))
            each = jax.vmap(of_one)(logits, chosen, (rows < count).astype(jnp.float32))
            update = partial(jax.lax.dynamic_update_slice_in_dim, start_index=rows[0], axis=0)
            return jax.tree.map(update, table, each)

        zeros = jnp.zeros(len(examples.lengths), jnp.float32)
        return jax.lax.fori_loop(0, -(-count // self.evaluated), write, Sums(zeros, zeros, zeros))

    def _trained(self, trained: Trained) -> Model:
        """Return the network of a slot."""
        layout = self.layout
        return layout.model(layout.params.unpack(trained.params), layout.stats.unpack(trained.stats))

    @cached_property
    def layout(self) -> Layout:
        """The network without its arrays, and their order."""
        graph, params, stats = _apart(nnx.eval_shape(self._model, free_of(self.settings)))
        recurrent = recurrent_path(LAYERS[self.settings.model.layer].recurrent)
        return Layout(graph, packing_of(params, recurrent), packing_of(stats, lambda _: False))

    def _model(self, free: Free) -> Model:
        return Model(
            self.settings.model,
            free.ranges,
            self.signature,
            remat=self.settings.training.remat,
            rngs=nnx.Rngs(jax.random.wrap_key_data(free.seed, impl="threefry2x32")),
        )

    def _advance(self, slot: SlotState, live: Array, steps: Array, train: Examples) -> tuple[SlotState, Log]:
        """Advance one slot; it stays as it is where it is not live, and from a step that is not finite on."""
        training = self.settings.training
        # For all steps at once: the loop of the permutation ends on a condition that a GPU must send to the
        # host, which would delay every step.
        order = order_of_steps(
            slot.trained.step,
            MOST_STEPS,
            training.batch_size * training.accumulate,
            len(train.lengths),
            slot.free.seed,
        )

        def step(index: Array, carry: tuple[SlotState, Log]) -> tuple[SlotState, Log]:
            slot, log = carry
            moved, outcome = self._step(slot, train, order[index], index == steps - 1)
            goes = live & slot.finite & moved.finite
            kept = jax.tree.map(lambda new, old: jnp.where(goes, new, old), moved, slot)
            kept = replace(kept, finite=slot.finite & (moved.finite | ~live))
            return kept, noted(log, index, outcome)

        moved, log = jax.lax.fori_loop(0, steps, step, (slot, empty(self.settings.model.depth)))
        done = moved.trained.step
        return moved, log._replace(step=done, taken=done - slot.trained.step, finite=moved.finite)

    def _step(
        self, slot: SlotState, train: Examples, rows: Array, record: Array
    ) -> tuple[SlotState, StepMetrics]:
        """Take one optimiser step."""
        training, trained, values = self.settings.training, slot.trained, slot.free.values
        gradients, stats, outcome = self._gradients(slot, train, rows, record)
        share = schedule(trained.step, values["steps"], values["warmup"], training.schedule)
        rates = Rates(
            learning_rate=share * values["learning_rate"],
            recurrent_learning_rate=share * values["recurrent_learning_rate"],
            weight_decay=values["weight_decay"],
        )
        boundary = self.layout.params.boundary
        followed = gradients if training.clip is None else clipped(gradients, values["clip"])
        params, moments = updated(
            trained.params, followed, trained.moments, boundary, rates, training.optimizer
        )
        # A sum is not finite where a part is not, and one that overflows is as bad.
        finite = jnp.isfinite(outcome.loss) & jnp.isfinite(jnp.sum(jnp.abs(gradients)))
        moved = Trained(params=params, stats=stats, moments=moments, step=trained.step + 1)
        return replace(slot, trained=moved, finite=finite), outcome._replace(rate=rates.learning_rate)

    def _gradients(self, slot: SlotState, train: Examples, rows: Array, record: Array) -> Gathered:
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
            chosen = train.at(jax.lax.dynamic_slice(rows, (index * size,), (size,)))
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
        self, params: Tree, stats: Tree, chosen: Examples, noise: Training
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
        moments = transformation(self.settings.training.optimizer).init(params)
        trained = Trained(params=params, stats=stats, moments=moments, step=jnp.int32(0))
        return SlotState(trained=trained, free=free, finite=jnp.bool_(True))

    def _lengths(self, chosen: Examples) -> Array | None:
        return chosen.lengths if self.padded else None

    def _sums(self, logits: Array, chosen: Examples, examples: Array) -> Sums:
        output = self.signature.output
        weights = weights_of(output, examples, chosen.lengths, chosen.targets)
        sums = LOSSES[output](logits, chosen.targets, weights)
        return sums._replace(metric=sums.loss / math.log(2)) if self.signature.metric == "bits" else sums


def _apart(model: Model) -> tuple[Any, Tree, Tree]:
    """Return graph, parameters and running statistics, the latter two as nested dicts of arrays."""
    graph, *states = nnx.split(model, nnx.Param, nnx.BatchStat)
    params, stats = states
    return graph, nnx.to_pure_dict(params), nnx.to_pure_dict(stats)


class Compiler:
    """Compiles each program once; `seconds` is the wall-clock time spent on it in all."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._programs: dict[Hashable, Any] = {}

    def get(
        self,
        key: Hashable,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        *,
        donate: tuple[int, ...] = (),
        options: dict[str, Any] | None = None,
    ) -> Any:
        """Return the program of a key, compiled at its first use.

        Args:
            key: of the program.
            function: pure.
            arguments: of the shapes and types of every later call.
            donate: places of arguments whose memory the results may take.
            options: of XLA, for this program.
        """
        if key not in self._programs:
            began = time.perf_counter()
            lowered = jax.jit(function, donate_argnums=donate).lower(*arguments)
            self._programs[key] = lowered.compile(compiler_options=options)
            self.seconds += time.perf_counter() - began
        return self._programs[key]

    def drop(self, key: Hashable) -> None:
        """Forget a program, and free the memory it holds."""
        self._programs.pop(key, None)
