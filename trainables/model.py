"""The network: encoder, pre-norm residual blocks, masked mean pooling, head.

    (B, L) tokens or (B, L, F) numbers -> encoder, blocks (B, L, D) -> pooling (B, D) -> head (B, C)

Padding never reaches an answer: statistics are taken over true lengths, rows behind them are zeroed after
each normalisation, a layer's reverse pass starts at the true end, and pooling divides by the true length.

Source: RotRNN, figure 1; S5's released harness for what the paper leaves open (batch normalisation with
momentum 0.95, dropout shared over time, masked mean pooling, the two-document head).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers import LAYERS, Layer
from trainables.losses import step_mask
from trainables.settings import ModelSettings
from trainables.tasks.base import Signature

MOMENTUM = 0.95

Ranges: TypeAlias = Mapping[str, tuple[float | Array, float | Array]]
"""Initialisation ranges of a layer by name; their ends may be traced."""


class Training(NamedTuple):
    """What a forward pass needs in training and not in evaluation.

    Attributes:
        rate: share of channels dropped, a scalar; may be traced.
        key: of this step's dropout.
        record: whether to compute hidden-state norms, a boolean scalar.
    """

    rate: Array
    key: Array
    record: Array


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
            return self.kernel[...][inputs.astype(jnp.int32)] + self.bias[...]
        shift, factor = (jnp.asarray(part) for part in self.scale)
        return (inputs.astype(jnp.float32) - shift) * factor @ self.kernel[...] + self.bias[...]


class Block(nnx.Module):
    """Batch normalisation, layer, GELU, dropout, full GLU, dropout, skip."""

    def __init__(self, settings: ModelSettings, ranges: Ranges, *, rngs: nnx.Rngs) -> None:
        width = settings.d_model
        self.norm = nnx.BatchNorm(width, momentum=MOMENTUM, rngs=rngs)
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
        self, x: Array, lengths: Array | None, kept: Array | None, record: Array | None
    ) -> tuple[Array, Array]:
        """Return the block's output and its hidden-state norm.

        Args:
            x: (B, L, D).
            lengths: (B,) true lengths, or None if nothing is padded.
            kept: (2, B, 1, D) factors of the two dropouts, or None in evaluation.
            record: whether to compute the norm; 0 is returned where it is false or None.

        Returns:
            (B, L, D), and the mean over unpadded steps of ||x_t||.
        """
        mask = None if lengths is None else step_mask(lengths, x.shape[1])[..., None]
        normal = self.norm(x, use_running_average=kept is None, mask=mask)
        if mask is not None:
            normal = jnp.where(mask, normal, 0)
        out, states = jax.vmap(self.layer.run, in_axes=(0, None if lengths is None else 0))(normal, lengths)
        hidden = jax.nn.gelu(out)
        if kept is not None:
            hidden = hidden * kept[0]
        value, gate = jnp.split(self.mix(hidden), 2, axis=-1)
        mixed = value * jax.nn.sigmoid(gate)
        if kept is not None:
            mixed = mixed * kept[1]
        return x + mixed, _recorded_norm(states, mask, record)


class Model(nnx.Module):
    """A network for one task's signature."""

    def __init__(
        self,
        settings: ModelSettings,
        ranges: Ranges,
        signature: Signature,
        *,
        rematerialise: bool = False,
        rngs: nnx.Rngs,
    ) -> None:
        """Draw the parameters.

        Args:
            settings: the static choices; its dropout is not read here.
            ranges: the layer's initialisation ranges; may be traced.
            signature: of the task.
            rematerialise: recompute block activations in the reverse pass.
            rngs: the source of randomness; its keys may be traced.
        """
        width = settings.d_model
        self.signature, self.rematerialise = signature, rematerialise
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
        x = self.encoder(inputs)
        kept = None if training is None else _dropout(training, len(self.blocks), x.shape[0], x.shape[2])
        record = None if training is None else training.record
        call = nnx.remat(Block.__call__) if self.rematerialise and training is not None else Block.__call__
        norms = []
        for index, block in enumerate(self.blocks):
            x, norm = call(block, x, lengths, None if kept is None else kept[index], record)
            norms.append(norm)
        if self.signature.output != "steps":
            x = _pooled(x, lengths)
        if self.signature.towers == 2:
            x = self._compared(x)
        return self.head(x), jnp.stack(norms)

    def _compared(self, pooled: Array) -> Array:
        """Join two documents, (2 B, D) -> (B, D), as LRA's retrieval head does."""
        a, b = jnp.unstack(pooled.reshape(-1, 2, pooled.shape[-1]), axis=1)
        return jax.nn.gelu(self.compare(jnp.concatenate([a, b, a - b, a * b], axis=-1)))


def _blocks(settings: ModelSettings, ranges: Ranges, rngs: nnx.Rngs) -> list[Block]:
    """Draw all blocks by one `vmap`, which compiles the drawing of one."""

    def drawn(key: Array) -> Block:
        return Block(settings, ranges, rngs=nnx.Rngs(key))

    keys = jax.random.split(rngs.params(), settings.depth)
    graph = nnx.split(nnx.eval_shape(drawn, keys[0]))[0]
    stacked = jax.vmap(lambda key: nnx.state(drawn(key)))(keys)
    apart = [jax.tree.map(operator.itemgetter(k), stacked) for k in range(settings.depth)]
    return [nnx.merge(graph, state) for state in apart]


def _dropout(training: Training, depth: int, batch: int, width: int) -> Array:
    """Return factors (depth, 2, B, 1, D), 0 or 1 / (1 - rate): one draw a step, shared over time.

    `nnx.Dropout` takes only a Python rate, which would compile a program a trial.
    """
    keep = 1 - training.rate
    drawn = jax.random.bernoulli(training.key, keep, (depth, 2, batch, 1, width))
    return drawn / keep


def _pooled(x: Array, lengths: Array | None) -> Array:
    """Return the mean over true steps, (B, L, D) -> (B, D)."""
    if lengths is None:
        return jnp.mean(x, axis=1)
    mask = step_mask(lengths, x.shape[1])[..., None]
    return jnp.sum(jnp.where(mask, x, 0), axis=1) / jnp.maximum(lengths, 1)[:, None]


def _recorded_norm(states: Array, mask: Array | None, record: Array | None) -> Array:
    """Return the mean of ||x_t|| over unpadded steps of states (B, L, N), or 0 if not recorded.

    Behind a condition, because it is one more pass over the largest arrays of a step.
    """
    if record is None:
        return jnp.float32(0)
    states = jax.lax.stop_gradient(states)

    def measured() -> Array:
        norms = jnp.sqrt(jnp.sum(jnp.real(states * jnp.conj(states)), axis=-1))
        return jnp.mean(norms) if mask is None else jnp.mean(norms, where=mask[..., 0])

    return jax.lax.cond(record, measured, lambda: jnp.float32(0))
