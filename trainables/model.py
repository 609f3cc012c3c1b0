"""The network: encoder, pre-norm residual blocks, masked pooling, head.

    (B, L) tokens or (B, L, F) numbers -> encoder, blocks (B, L, D) -> pooling (B, D) -> head (B, C)

Padding never reaches an answer: rows after the true lengths are zero between blocks and after each
normalisation, sums over time are divided by true lengths, and a layer's reverse pass starts at the true end.

Source: RotRNN, figure 1; S5's released harness for what the paper leaves open (batch normalisation with
momentum 0.95, dropout shared over time, masked mean pooling, the two-document head).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.counter import uniform
from trainables.data.task import Signature
from trainables.layers import LAYERS
from trainables.layers.layer import Bounds, Layer
from trainables.optim import step_mask
from trainables.settings import Pooling
from trainables.trial import ModelSettings

Ranges: TypeAlias = Mapping[str, Bounds]
"""Initialisation ranges of a layer by name; their ends may be traced."""


class Training(NamedTuple):
    """Inputs of a forward pass in training that evaluation does not have.

    Attributes:
        rate: share of channels dropped, a scalar; may be traced.
        seed: of this step's dropout, (2,) uint32.
        record: whether to compute hidden-state norms, a boolean scalar.
    """

    rate: Array
    seed: Array
    record: Array


class Padding(NamedTuple):
    """Masks of the true steps of sequences.

    Attributes:
        lengths: (B,) true lengths, or None if nothing is padded.
        mask: (B, L, 1), true for true steps; None likewise.
        steps: number of true steps in all, a float scalar.
    """

    lengths: Array | None
    mask: Array | None
    steps: Array

    def zeroed(self, x: Array) -> Array:
        """Return x (B, L, D) with zeros after the end of each sequence."""
        return x if self.mask is None else jnp.where(self.mask, x, 0)


MOMENTUM = 0.95
"""Share of the running statistics kept at a step: S5's harness, which RotRNN's authors train in."""

EPSILON = 1e-5


class BatchNorm(nnx.Module):
    """Normalise each channel over batch and time, padding left out.

    `nnx.BatchNorm(mask=)` selects inside its sums, which XLA for CPU writes out as two more arrays of the
    size of the input (0.11 ms against 0.03 ms at (16, 256, 32)), and returns padded rows that are not zero.
    Here padded rows are zero on the way in, so that plain sums are right, and on the way out.

    Parameters: scale (D,), bias (D,). Running statistics: mean (D,), var (D,).
    """

    def __init__(self, width: int) -> None:
        self.scale = nnx.Param(jnp.ones(width))
        self.bias = nnx.Param(jnp.zeros(width))
        self.mean = nnx.BatchStat(jnp.zeros(width))
        self.var = nnx.BatchStat(jnp.ones(width))

    def __call__(self, x: Array, mask: Array | None, count: Array, *, training: bool) -> Array:
        """Normalise x (B, L, D).

        Args:
            x: zero where the mask is false.
            mask: (B, L, 1) booleans, true for true steps; None if nothing is padded.
            count: number of true steps, a float scalar.
            training: whether to normalise by this batch and update the running statistics with it.
        """
        scale, bias = self.scale[...], self.bias[...]
        if not training:
            return _normalised(x, mask, self.mean[...], self.var[...], scale, bias)
        normal, mean, var = _batch_norm(x, mask, count, scale, bias)
        for running, new in ((self.mean, mean), (self.var, var)):
            running[...] = MOMENTUM * running[...] + (1 - MOMENTUM) * jax.lax.stop_gradient(new)
        return normal


def _normalised(x: Array, mask: Array | None, mean: Array, var: Array, scale: Array, bias: Array) -> Array:
    normal = (x - mean) * (jax.lax.rsqrt(var + EPSILON) * scale) + bias
    return normal if mask is None else jnp.where(mask, normal, 0)


@jax.custom_vjp
def _batch_norm(
    x: Array, mask: Array | None, count: Array, scale: Array, bias: Array
) -> tuple[Array, Array, Array]:
    """Normalise x (B, L, D) by its own mean and variance (D,); return those too, without a gradient.

    The hand-written reverse pass keeps x alone and reads it twice. With the derived one, a small model's
    training step takes 2 % longer.
    """
    mean = jnp.sum(x, axis=(0, 1)) / count
    var = jnp.maximum(jnp.sum(x * x, axis=(0, 1)) / count - mean * mean, 0)
    return _normalised(x, mask, mean, var, scale, bias), mean, var


_Kept: TypeAlias = tuple[Array, Array | None, Array, Array, Array, Array]


def _batch_norm_forward(
    x: Array, mask: Array | None, count: Array, scale: Array, bias: Array
) -> tuple[tuple[Array, Array, Array], _Kept]:
    answer = _batch_norm(x, mask, count, scale, bias)
    return answer, (x, mask, count, scale, *answer[1:])


def _batch_norm_backward(
    kept: _Kept, cotangents: tuple[Array, Array, Array]
) -> tuple[Array, None, None, Array, Array]:
    x, mask, count, scale, mean, var = kept
    given = cotangents[0] if mask is None else jnp.where(mask, cotangents[0], 0)
    of_bias = jnp.sum(given, axis=(0, 1))
    deviation = jax.lax.rsqrt(var + EPSILON)
    of_scale = deviation * (jnp.sum(given * x, axis=(0, 1)) - mean * of_bias)
    # given - of_bias / count - (x - mean) * deviation * of_scale / count, times the slope, as slope and line.
    tilt = deviation * of_scale / count
    of_x = (deviation * scale) * (given - (tilt * x + (of_bias / count - tilt * mean)))
    return of_x, None, None, of_scale, of_bias


_batch_norm.defvjp(_batch_norm_forward, _batch_norm_backward)


class Encoder(nnx.Module):
    """A dense layer to width D: of one-hot tokens (written as a lookup), or of scaled numbers."""

    def __init__(self, signature: Signature, d_model: int, *, rngs: nnx.Rngs) -> None:
        self.vocabulary, self.scale = signature.vocabulary, signature.scale
        rows = signature.vocabulary or signature.features
        self.kernel = nnx.Param(jax.nn.initializers.lecun_normal()(rngs.params(), (rows, d_model)))
        self.bias = nnx.Param(jnp.zeros(d_model))

    def __call__(self, inputs: Array) -> Array:
        """Encode (B, L) tokens, or (B, L, F) numbers as they are stored, to (B, L, D)."""
        if self.vocabulary is not None:
            return _rows(self.kernel[...], inputs.astype(jnp.int32)) + self.bias[...]
        shift, factor = (jnp.asarray(part) for part in self.scale)
        return (inputs.astype(jnp.float32) - shift) * factor @ self.kernel[...] + self.bias[...]


@jax.custom_vjp
def _rows(kernel: Array, tokens: Array) -> Array:
    """Return the rows (..., D) of a kernel (V, D): the product with one-hot tokens (...,)."""
    return kernel[tokens]


def _rows_forward(kernel: Array, tokens: Array) -> tuple[Array, tuple[Array, Array]]:
    return kernel[tokens], (kernel, tokens)


def _rows_backward(kept: tuple[Array, Array], cotangent: Array) -> tuple[Array, None]:
    """Sum the cotangents of each token.

    A CPU adds them up one by one (0.05 ms against 0.5 ms for the product at 4,096 tokens of 100). A GPU would
    do so in any order, so that no two runs would be equal; on a GPU the product is computed.
    """
    kernel, tokens = kept
    rows, flat = tokens.reshape(-1), cotangent.reshape(-1, kernel.shape[1])

    def added(rows: Array, flat: Array) -> Array:
        return jnp.zeros_like(kernel).at[rows].add(flat)

    def multiplied(rows: Array, flat: Array) -> Array:
        hot = jax.nn.one_hot(rows, kernel.shape[0], dtype=flat.dtype)
        return jnp.matmul(hot.T, flat, precision=jax.lax.Precision.HIGHEST)

    return jax.lax.platform_dependent(rows, flat, cpu=added, default=multiplied), None


_rows.defvjp(_rows_forward, _rows_backward)


class Block(nnx.Module):
    """Batch normalisation, layer, GELU, dropout, full GLU, dropout, skip."""

    def __init__(self, settings: ModelSettings, ranges: Ranges, *, rngs: nnx.Rngs) -> None:
        width = settings.d_model
        self.norm = BatchNorm(width)
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
        self.mix = nnx.Linear(width, 2 * width, rngs=rngs)

    def __call__(
        self, x: Array, padding: Padding, kept: Array | None, record: Array | None
    ) -> tuple[Array, Array]:
        """Return the block's output and its hidden-state norm.

        Args:
            x: (B, L, D), zero where padded, as the output is.
            padding: where sequences end.
            kept: (2, B, 1, D) factors of the two dropouts, or None in evaluation.
            record: whether to compute the norm; 0 is returned where it is false or None.

        Returns:
            (B, L, D), and the mean over unpadded steps of ||x_t||.
        """
        normal = self.norm(x, padding.mask, padding.steps, training=kept is not None)
        over_batch = jax.vmap(self.layer.run, in_axes=(0, None if padding.lengths is None else 0))
        out, states = over_batch(normal, padding.lengths)
        hidden = jax.nn.gelu(out)
        if kept is not None:
            hidden = hidden * kept[0]
        mixed = self.mixed(hidden)
        if kept is not None:
            mixed = mixed * kept[1]
        states_of = (
            (lambda: states)
            if self.layer.states_at_hand
            else (lambda: over_batch(normal, padding.lengths)[1])
        )
        return x + padding.zeroed(mixed), _recorded_norm(states_of, padding, record)

    def mixed(self, hidden: Array) -> Array:
        """Return Dense * sigmoid(Dense) of hidden (..., D).

        The axes are flattened, because a CPU takes 4 times as long for the weights' gradient if it sums over
        two axes (1.1 ms against 0.26 ms at (16, 256, 32)).
        """
        value, gate = jnp.split(self.mix(hidden.reshape(-1, hidden.shape[-1])), 2, axis=-1)
        return (value * jax.nn.sigmoid(gate)).reshape(hidden.shape)


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
            settings: the static choices; its dropout is not read here.
            ranges: the layer's initialisation ranges; may be traced.
            signature: of the task.
            remat: recompute block activations in the reverse pass.
            rngs: the source of randomness; its keys may be traced.
        """
        width = settings.d_model
        self.signature, self.remat = signature, remat
        self.pooling = settings.pooling
        self.encoder = Encoder(signature, width, rngs=rngs)
        self.blocks = nnx.List(_blocks(settings, ranges, rngs))
        if signature.towers == 2:
            self.compare = nnx.Linear(4 * width, width, rngs=rngs)
        self.head = nnx.Linear(width, signature.classes, rngs=rngs)

    def __call__(
        self, inputs: Array, lengths: Array | None, training: Training | None = None
    ) -> tuple[Array, Array]:
        """Return logits and hidden-state norms; in training, update the running statistics.

        Args:
            inputs: (B, L), (B, L, F), or (B, 2, L) for two towers, as stored.
            lengths: (B,) or (B, 2) true lengths, or None if nothing is padded.
            training: None in evaluation.

        Returns:
            Logits (B, C), or (B, L, C) for an output by step; norms (depth,), 0 unless recorded.
        """
        if self.signature.towers == 2:
            inputs = inputs.reshape(-1, *inputs.shape[2:])
            lengths = None if lengths is None else lengths.reshape(-1)
        padding = _padding(lengths, inputs.shape)
        x = padding.zeroed(self.encoder(inputs))
        kept = None if training is None else _dropout(training, len(self.blocks), x.shape[0], x.shape[2])
        record = None if training is None else training.record
        call = nnx.remat(Block.__call__) if self.remat and training is not None else Block.__call__
        norms = []
        for index, block in enumerate(self.blocks):
            x, norm = call(block, x, padding, None if kept is None else kept[index], record)
            norms.append(norm)
        if self.signature.output != "steps":
            x = POOLINGS[self.pooling](x, lengths)
        if self.signature.towers == 2:
            x = self._compared(x)
        return self.head(x), jnp.stack(norms)

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
"""By name: (x (B, L, D), zero where padded; true lengths (B,) or None) -> (B, D)."""


def _blocks(settings: ModelSettings, ranges: Ranges, rngs: nnx.Rngs) -> list[Block]:
    """Draw all blocks by one `vmap`, which compiles the drawing of one."""

    def drawn(key: Array) -> Block:
        return Block(settings, ranges, rngs=nnx.Rngs(key))

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


def _recorded_norm(states_of: Callable[[], Array], padding: Padding, record: Array | None) -> Array:
    """Return the mean of ||x_t|| over unpadded steps of states (B, L, N), or 0 if not recorded.

    Behind a condition, because it is one more pass over the largest arrays of a step, and because a layer
    whose outputs need no states is only then asked for them.
    """
    if record is None:
        return jnp.float32(0)

    def measured() -> Array:
        states = jax.lax.stop_gradient(states_of())
        norms = jnp.sqrt(jnp.sum(jnp.real(states * jnp.conj(states)), axis=-1, keepdims=True))
        return jnp.sum(padding.zeroed(norms)) / padding.steps

    return jax.lax.cond(record, measured, lambda: jnp.float32(0))
