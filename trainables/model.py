"""The network: encoder, residual blocks, masked pooling, head.

    (B, L) tokens or (B, L, F) numbers -> encoder, blocks (B, L, D) -> pooling (B, D) -> head (B, C)

Padding has no effect on an answer: rows after the true lengths are zero between blocks and after each
normalisation, sums over time are divided by true lengths, and the reverse pass of a layer starts at the true
end.

Source: RotRNN, figure 1; S5's released harness for what the paper leaves open (batch normalisation before the
layer, the four kinds of mixing, dropout shared over time, masked mean pooling, the two-document head).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.counter import uniform
from trainables.data.task import Signature
from trainables.encoder import ENCODERS
from trainables.keys import source_of_keys
from trainables.layers import LAYERS
from trainables.layers.causal_conv import causal_conv, initial_conv
from trainables.layers.layer import Bounds, Layer
from trainables.layers.rnn import NewtonLayer
from trainables.norm import NORMS
from trainables.optim import step_mask
from trainables.settings import Gate, Mixing, NormPosition, Pooling
from trainables.trial import ModelSettings

Ranges: TypeAlias = Mapping[str, Bounds]
"""Initialisation ranges of a layer by name; their ends may be traced."""


class Training(NamedTuple):
    """Inputs of a forward pass in training that evaluation does not have.

    Attributes:
        rate: Share of channels dropped, a scalar; may be traced.
        seed: Seed of this step's dropout, (2,) uint32.
    """

    rate: Array
    seed: Array


class Padding(NamedTuple):
    """Masks of the true steps of sequences.

    Attributes:
        lengths: (B,) true lengths, or None without padding.
        mask: (B, L, 1), true for true steps; None without padding.
        steps: Total number of true steps, a float scalar.
    """

    lengths: Array | None
    mask: Array | None
    steps: Array

    def zeroed(self, x: Array) -> Array:
        """Return x (B, L, D) with zeros after the end of each sequence."""
        return x if self.mask is None else jnp.where(self.mask, x, 0)


def _full_glu(out: Array, hidden: Array, dense: Array) -> Array:
    value, gate = jnp.split(dense, 2, axis=-1)
    return value * jax.nn.sigmoid(gate)


class Mixer(NamedTuple):
    """How a block mixes the channels of its layer's outputs.

    Attributes:
        dense: Number of dense layers of width D, which read hidden = dropout(activation(out)).
        gated: (out (n, D), hidden (n, D), dense layers (n, dense * D)) -> (n, D); unused without these.
        activation: Activation of the layer's outputs.
    """

    dense: int
    gated: Callable[[Array, Array, Array], Array]
    activation: Callable[[Array], Array] = jax.nn.gelu


def _ungated(out: Array, hidden: Array, dense: Array) -> Array:
    del out, dense
    return hidden


MIXERS: Mapping[Mixing, Mixer] = MappingProxyType(
    {
        "full_glu": Mixer(2, _full_glu),
        "half_glu1": Mixer(1, lambda out, hidden, dense: hidden * jax.nn.sigmoid(dense)),
        "half_glu2": Mixer(1, lambda out, hidden, dense: out * jax.nn.sigmoid(dense)),
        "gelu": Mixer(0, _ungated),
        "none": Mixer(0, _ungated, activation=lambda out: out),
    }
)


GATES: Mapping[Gate, Callable[[Array], Array]] = MappingProxyType({"silu": jax.nn.silu, "gelu": jax.nn.gelu})


class BlockState(NamedTuple):
    """The memory of a block after the steps so far.

    Attributes:
        before: Latest rows, which its convolution reads again, (max(short_conv - 1, 0), D).
        layer: State of its layer.
    """

    before: Array
    layer: Any


Memory: TypeAlias = tuple[BlockState, ...]
"""The memory of a network after the steps so far: the state of each block, (B, ...) for a batch."""


class Block(nnx.Module):
    """A residual block: a layer, the mixing of its channels with dropout, a skip connection, a normalisation.

    With `short_conv` the layer reads conv(u) + b, a causal convolution of each channel, in both directions.
    With `gate` its outputs are multiplied by SiLU or GELU of Dense(u).

    Attributes:
        solved: Of a layer that Newton's method solves: the number of sequences in training so far that fell
            back to the loop over time, and the largest residual of the last step, (2,).

    Source: Mamba, section 3.4; De et al. 2024 (Griffin), section 2.3.
    """

    def __init__(self, settings: ModelSettings, ranges: Ranges, *, rngs: nnx.Rngs) -> None:
        width = settings.d_model
        self.width, self.mixing, self.norm_position = width, settings.mixing, settings.norm_position
        self.norm = NORMS[settings.norm](width)
        build: Callable[..., Layer] = LAYERS[settings.layer]
        self.layer = build(
            width,
            settings.d_state,
            rngs=rngs,
            bidirectional=settings.bidirectional,
            **settings.options,
            **ranges,
        )
        # Both dense layers of Dense * sigmoid(Dense) as one matmul.
        if dense := MIXERS[settings.mixing].dense:
            self.mix = nnx.Linear(width, dense * width, rngs=rngs)
        # Drawn last, so that blocks without them start from the numbers of earlier versions.
        self.short_conv, self.gate = settings.short_conv, settings.gate
        if self.short_conv:
            self.conv = nnx.Param(initial_conv(rngs.params(), (width, self.short_conv)))
            self.conv_bias = nnx.Param(jnp.zeros(width))
        if self.gate != "none":
            self.branch = nnx.Linear(width, width, rngs=rngs)
        if isinstance(self.layer, NewtonLayer) and self.layer.solves:
            self.solved = nnx.BatchStat(jnp.zeros(2))

    def __call__(
        self,
        x: Array,
        padding: Padding,
        kept: Array | None = None,
        memory: BlockState | None = None,
    ) -> tuple[Array, BlockState | None]:
        """Return the block's output, and the memory after the last step.

        Args:
            x: (B, L, D), zero where padded, as the output is.
            padding: Padding of the sequences; with a memory, there is none.
            kept: (2, B, 1, D) factors of the two dropouts, or None in evaluation.
            memory: Memory of the steps before the first, (B, ...) each; None if sequences start with it.

        Returns:
            (B, L, D), and the memory, None if none was given.
        """
        x, _, memory = self._through(x, padding, kept, memory)
        return x, memory

    def with_norms(self, x: Array, padding: Padding) -> tuple[Array, Array]:
        """Return the block's output in evaluation, and its `hidden_norms`; x (B, L, D), zero where padded."""
        x, states, _ = self._through(x, padding, None, None)
        return x, hidden_norms(self.layer, states, padding)

    def _through(
        self, x: Array, padding: Padding, kept: Array | None, memory: BlockState | None
    ) -> tuple[Array, Array, BlockState | None]:
        """Return the output, the states of the layer (B, L, any), and the memory after the last step."""
        training = kept is not None
        normal = self.normalised("before", x, padding, training=training)
        out, states, memory = self._over_batch(normal, padding, memory, training=training)
        mixed = self.mixed(self.gated(normal, out), kept)
        x = self.normalised("after", x + padding.zeroed(mixed), padding, training=training)
        return x, states, memory

    def _over_batch(
        self, rows: Array, padding: Padding, memory: BlockState | None, *, training: bool
    ) -> tuple[Array, Array, BlockState | None]:
        """Return the outputs of the layer (B, L, D), its states (B, L, any), and the memory after them."""
        layer = self.layer.over(len(rows))
        if memory is None:
            seen = jax.vmap(lambda rows: self.convolved(self._rows_before(), rows)[0])(rows)
            axes = (0, None if padding.lengths is None else 0)
            return *self._counted(layer, Layer.run, axes, (seen, padding.lengths), training), None
        assert padding.lengths is None, "a state is carried over sequences without padding"
        seen, before = jax.vmap(self.convolved)(memory.before, rows)
        out, states, after = self._counted(layer, Layer.run_from, (0, 0), (memory.layer, seen), training)
        return out, states, BlockState(before, after)

    def _counted(
        self,
        layer: Layer,
        run: Callable[..., Any],
        axes: tuple[int | None, ...],
        arguments: tuple[Any, ...],
        training: bool,
    ) -> Any:
        """Apply a method of the layer to each sequence; in training, record how Newton's method did."""
        if not (training and isinstance(layer, NewtonLayer) and layer.solves):
            return jax.vmap(partial(run, layer), axes)(*arguments)

        def watched(*arguments: Any) -> tuple[Any, Array]:
            one = layer.watch()
            return run(one, *arguments), one.outcome()

        answers, outcomes = jax.vmap(watched, axes)(*arguments)
        fell_back, residual = outcomes.T
        self.solved[...] = jnp.stack([self.solved[...][0] + jnp.sum(fell_back), jnp.max(residual)])
        return answers

    def initial_state(self) -> BlockState:
        """Return the memory of the convolution and of the layer before the first step."""
        return BlockState(self._rows_before(), self.layer.initial_state())

    def step(self, state: BlockState, row: Array) -> tuple[BlockState, Array]:
        """Advance the layer by one step, for causal layers.

        Args:
            state: State from `initial_state` or by the step before.
            row: (D,), normalised if the block normalises before its layer.

        Returns:
            The next state, and the layer's output (D,), gated and not yet mixed.
        """
        seen, before = self.convolved(state.before, row[None])
        inner, out = self.layer.step(state.layer, seen[0])
        return BlockState(before, inner), self.gated(row, out)

    def convolved(self, before: Array, rows: Array) -> tuple[Array, Array]:
        """Return the inputs of the layer for rows (L, D), and the rows that precede the next one."""
        if not self.short_conv:
            return rows, before
        seen, before = causal_conv(self.conv[...], before, rows)
        return seen + self.conv_bias[...], before

    def gated(self, rows: Array, out: Array) -> Array:
        """Return outputs of the layer (..., D), multiplied by the gate of the block's inputs (..., D)."""
        if self.gate == "none":
            return out
        branch = self.branch(rows.reshape(-1, self.width)).reshape(rows.shape)
        return out * GATES[self.gate](branch)

    def _rows_before(self) -> Array:
        return jnp.zeros((max(self.short_conv - 1, 0), self.width))

    def normalised(self, position: NormPosition, x: Array, padding: Padding, *, training: bool) -> Array:
        """Return x (B, L, D), normalised if this block normalises at that position."""
        if position != self.norm_position:
            return x
        return self.norm(x, padding.mask, padding.steps, training=training)

    def mixed(self, out: Array, kept: Array | None = None) -> Array:
        """Mix the channels of a layer's outputs (..., D).

        The axes are flattened, because a CPU takes 4 times as long for the weights' gradient if it sums over
        two axes (1.1 ms against 0.26 ms at (16, 256, 32)).

        Args:
            out: Output of the layer.
            kept: (2, ...) factors of the dropouts after the activation and after the gate; None in
                evaluation.
        """
        mixer = MIXERS[self.mixing]
        hidden = mixer.activation(out)
        if kept is not None:
            hidden = hidden * kept[0]
        if not mixer.dense:
            return hidden
        flat = hidden.reshape(-1, hidden.shape[-1])
        mixed = mixer.gated(out.reshape(flat.shape), flat, self.mix(flat)).reshape(hidden.shape)
        return mixed if kept is None else mixed * kept[1]


class Model(nnx.Module):
    """A network for one task's signature."""

    def __init__(
        self,
        settings: ModelSettings,
        ranges: Ranges,
        signature: Signature,
        *,
        remat: bool = False,
        rngs: nnx.Rngs,
    ) -> None:
        """Draw the parameters.

        Args:
            settings: Static choices; its dropout is not read here.
            ranges: Layer's initialisation ranges; may be traced.
            signature: Signature of the task.
            remat: Recompute block activations in the reverse pass.
            rngs: Source of randomness; its keys may be traced.

        Raises:
            Refusal: An encoder is missing, and the task's arrays do not have the network's width.
        """
        width = settings.d_model
        self.signature, self.remat = signature, remat
        self.pooling = settings.pooling
        settings.check_width(signature)
        self.encoder = ENCODERS[settings.encoder](signature, width, rngs=rngs)
        self.blocks = nnx.List(_blocks(settings, ranges, rngs))
        if signature.towers == 2:
            self.compare = nnx.Linear(4 * width, width, rngs=rngs)
        self.head = nnx.Linear(width, signature.classes, rngs=rngs)

    def __call__(self, inputs: Array, lengths: Array | None, training: Training | None = None) -> Array:
        """Return logits; in training, update the running statistics.

        Args:
            inputs: (B, L), (B, L, F), or (B, 2, L) for two towers, as stored.
            lengths: (B,) or (B, 2) true lengths, or None if nothing is padded.
            training: None in evaluation.

        Returns:
            Logits (B, C), or (B, L, C) for an output by step.
        """
        return self.carry(None, inputs, lengths, training)[0]

    def hidden_norms(self, inputs: Array, lengths: Array | None) -> Array:
        """Return the `hidden_norms` of each layer in evaluation, (depth, 3); arguments as in a call."""
        x, padding = self._encoded(inputs, lengths)
        norms = []
        for block in self.blocks:
            x, of_block = block.with_norms(x, padding)
            norms.append(of_block)
        return jnp.stack(norms)

    def carry(
        self,
        memory: Memory | None,
        inputs: Array,
        lengths: Array | None = None,
        training: Training | None = None,
    ) -> tuple[Array, Memory | None]:
        """Return the result of a call for segments that follow a memory, and the memory after them.

        Args:
            memory: Memory of the steps before, (B, ...) each; None if sequences start with their first step.
            inputs: Inputs as in a call.
            lengths: Lengths as in a call; None if a memory is given.
            training: None in evaluation.

        Returns:
            Logits, and the memory, None if none was given.
        """
        x, padding = self._encoded(inputs, lengths)
        kept = None if training is None else _dropout(training, len(self.blocks), x.shape[0], x.shape[2])
        call = nnx.remat(Block.__call__) if self.remat and training is not None else Block.__call__
        states: list[Any] = []
        for index, block in enumerate(self.blocks):
            before = None if memory is None else memory[index]
            x, state = call(block, x, padding, None if kept is None else kept[index], before)
            states.append(state)
        if self.signature.output != "steps":
            x = POOLINGS[self.pooling](x, padding.lengths)
        if self.signature.towers == 2:
            x = self._compared(x)
        return self.head(x), None if memory is None else tuple(states)

    def _encoded(self, inputs: Array, lengths: Array | None) -> tuple[Array, Padding]:
        """Return the rows of all sequences (B, L, D), both documents of a pair one after the other."""
        if self.signature.towers == 2:
            inputs = inputs.reshape(-1, *inputs.shape[2:])
            lengths = None if lengths is None else lengths.reshape(-1)
        padding = _padding(lengths, inputs.shape)
        return padding.zeroed(self.encoder(inputs)), padding

    def initial_memory(self, rows: int) -> Memory:
        """Return the memory of a number of sequences before their first step."""
        blocks = tuple(block.initial_state() for block in self.blocks)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (rows, *leaf.shape)), blocks)

    def _compared(self, pooled: Array) -> Array:
        """Join two documents, (2 B, D) -> (B, D), as LRA's retrieval head does."""
        a, b = jnp.unstack(pooled.reshape(-1, 2, pooled.shape[-1]), axis=1)
        return jax.nn.gelu(self.compare(jnp.concatenate([a, b, a - b, a * b], axis=-1)))


def _mean(x: Array, lengths: Array | None) -> Array:
    """Return the mean over true steps, (B, D), of x (B, L, D) that is zero where padded."""
    return jnp.sum(x, axis=1) / (x.shape[1] if lengths is None else jnp.maximum(lengths, 1)[:, None])


def _last(x: Array, lengths: Array | None) -> Array:
    """Return the last true step, (B, D), of x (B, L, D)."""
    if lengths is None:
        return x[:, -1]
    last = jnp.maximum(lengths - 1, 0)[:, None, None]
    return jnp.take_along_axis(x, last, axis=1)[:, 0]


POOLINGS: Mapping[Pooling, Callable[[Array, Array | None], Array]] = MappingProxyType(
    {"mean": _mean, "last": _last}
)
"""Poolings by name: (x (B, L, D), zero where padded; true lengths (B,) or None) -> (B, D)."""


def _blocks(settings: ModelSettings, ranges: Ranges, rngs: nnx.Rngs) -> list[Block]:
    """Draw all blocks by one `vmap`, which compiles the drawing of one."""

    def drawn(key: Array) -> Block:
        return Block(settings, ranges, rngs=source_of_keys(key))

    keys = jax.random.split(rngs.params(), settings.depth)
    graph = nnx.split(nnx.eval_shape(drawn, keys[0]))[0]
    stacked = jax.vmap(lambda key: nnx.state(drawn(key)))(keys)
    apart = [jax.tree.map(operator.itemgetter(k), stacked) for k in range(settings.depth)]
    return [nnx.merge(graph, state) for state in apart]


def _padding(lengths: Array | None, shape: tuple[int, ...]) -> Padding:
    """Return the padding of sequences of shape (B, L, ...)."""
    if lengths is None:
        return Padding(None, None, jnp.float32(shape[0] * shape[1]))
    steps = jnp.maximum(jnp.sum(lengths), 1).astype(jnp.float32)
    return Padding(lengths, step_mask(lengths, shape[1])[..., None], steps)


def _dropout(training: Training, depth: int, batch: int, width: int) -> Array:
    """Return factors (depth, 2, B, 1, D), 0 or 1 / (1 - rate): one draw a step, shared over time.

    `nnx.Dropout` takes only a Python rate, which would compile one program for every trial.
    """
    keep = 1 - training.rate
    return (uniform(training.seed, (depth, 2, batch, 1, width)) < keep) / keep


def hidden_norms(layer: Layer, states: Array, padding: Padding) -> Array:
    """Return three means over the true steps of a batch, (3,).

    They are the norm of a head, averaged over heads; the norm of the whole state; and the root of a head's
    expected squared norm after as many steps (`Layer.expected_norms`), NaN if it is unknown.

    Source: RotRNN, figure 3, where it is the norm of a head, in evaluation on validation data (the authors'
    program), and section 3.3 for the expectation.

    Args:
        layer: The layer.
        states: Its states (B, L, any), as `run` returns them.
        padding: Padding of the sequences.
    """
    expected = layer.expected_norms(states.shape[1])
    rows = (
        jnp.mean(jax.vmap(layer.head_norms)(states), axis=-1),
        jnp.linalg.norm(states, axis=-1),
        jnp.full(states.shape[:2], jnp.nan)
        if expected is None
        else jnp.broadcast_to(jnp.mean(expected, axis=-1), states.shape[:2]),
    )
    return jnp.stack([jnp.sum(padding.zeroed(row[..., None])) / padding.steps for row in rows])
