"""A causal softmax attention with rotary positions, as a baseline for recurrences."""

from __future__ import annotations

from typing import NamedTuple

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import ChunkedLayer, normal
from trainables.settings import Count, LayerSettings, Need, Option, divisible

ROWS = 128
"""Number of queries in a chunk."""


class AttentionCache(NamedTuple):
    """Keys and values of the last `context` - 1 rows, the latest ones last.

    Attributes:
        keys: Keys before their rotation, (context - 1, N).
        values: (context - 1, D).
        seen: Number of these rows that belong to the sequence, a float scalar.
    """

    keys: Array
    values: Array
    seen: Array


class Attention(ChunkedLayer):
    """Causal softmax attention with H heads over the last `context` rows, y = out_proj concat(heads).

    Queries and keys are rotated by their positions relative to a chunk: scores depend on distances alone, and
    angles stay small enough for float32 at any length.

    Parameters: W_q, W_k (N, D), W_v, out_proj (D, D); out_proj_backward (D, D) if bidirectional. Both
    directions see the present row.

    Source: Vaswani et al., 2017, section 3.2; Su et al., RoFormer, 2021, section 3.2 (positions).
    """

    settings = LayerSettings(
        summary="Causal softmax attention with rotary positions.",
        options={
            "heads": Option(
                4, "Number of heads H; d_state must be divisible by 2 H, d_model by H.", at_least=1
            ),
            "context": Option(2048, "Rows that a query sees, its own included.", at_least=2),
        },
        needs=(
            divisible("d_model", "heads"),
            Need(
                ("d_state", "heads"), lambda n, h: n % (2 * h) == 0, "d_state must be a multiple of 2 * heads"
            ),
        ),
        parameters=Count(
            ("d_model", "d_state", "bidirectional"), lambda d, n, both: 2 * d * (n + d) + both * d * d
        ),
        recurrent_rate=False,
    )
    recurrent = frozenset()

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        heads: int = settings.default("heads"),
        context: int = settings.default("context"),
        bidirectional: bool = False,
    ) -> None:
        """Draw the parameters.

        Args:
            d_model: Width D; also the channels of all values.
            d_state: Channels N of all keys.
            rngs: Source of randomness; its keys may be traced.
            heads: Number of heads H; N is a multiple of 2 H, D of H.
            context: Rows that a query sees; also bounds the state of a step.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
        """
        self.heads, self.context, self.bidirectional = heads, context, bidirectional
        self.W_q = nnx.Param(normal(rngs.params(), (d_state, d_model), 1 / d_model))
        self.W_k = nnx.Param(normal(rngs.params(), (d_state, d_model), 1 / d_model))
        self.W_v = nnx.Param(normal(rngs.params(), (d_model, d_model), 1 / d_model))
        self.out_proj = nnx.Param(normal(rngs.params(), (d_model, d_model), 1 / d_model))
        if bidirectional:
            self.out_proj_backward = nnx.Param(normal(rngs.params(), (d_model, d_model), 1 / d_model))

    @property
    def chunk_size(self) -> int:
        """Return the number of queries in a chunk."""
        return ROWS

    def chunk(self, coefficients: None, state: AttentionCache, u: Array) -> tuple[AttentionCache, Array]:
        """Return the next cache and the answers of all heads, (S, D)."""
        before, rows = len(state.keys), len(u)
        keys = jnp.concatenate([state.keys, u @ self.W_k[...].T])
        values = jnp.concatenate([state.values, u @ self.W_v[...].T])
        now, then = jnp.arange(rows)[:, None], jnp.arange(-before, rows)
        seen = (then <= now) & (then >= now - before) & (then >= -state.seen)
        scores = jnp.einsum("shk,thk->hst", self._turned(u @ self.W_q[...].T, 0), self._turned(keys, -before))
        scale = (self.heads / keys.shape[1]) ** 0.5
        weights = jax.nn.softmax(jnp.where(seen, scale * scores, -jnp.inf), axis=-1)
        answers = jnp.einsum("hst,thv->shv", weights, values.reshape(len(values), self.heads, -1))
        following = AttentionCache(keys[rows:], values[rows:], jnp.minimum(state.seen + rows, before))
        return following, answers.reshape(rows, -1)

    def _turned(self, rows: Array, start: int) -> Array:
        """Return the heads of rows (T, N), rotated by positions from `start` on, (T, H, N / H)."""
        apart = rows.reshape(len(rows), self.heads, 2, -1)
        pairs = apart.shape[-1]
        angles = (start + jnp.arange(len(rows)))[:, None] * 10_000.0 ** (-jnp.arange(pairs) / pairs)
        cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
        first, second = apart[:, :, 0], apart[:, :, 1]
        return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)

    def read(self, coefficients: None, states: Array, *, backward: bool) -> Array:
        """Return the output projection (S, D) of the concatenated heads (S, D)."""
        weights = self.out_proj_backward if backward else self.out_proj
        return states @ weights[...].T

    def states(self, coefficients: None, inputs: Array) -> Array:
        """Return the norm of all keys and values that each row sees, (L, 1)."""
        return self.states_from(coefficients, self.start(len(inputs)), inputs)

    def states_from(self, coefficients: None, state: AttentionCache, inputs: Array) -> Array:
        """Return the norms after a cache, whose unused rows are zero."""
        rows = jnp.concatenate([inputs @ self.W_k[...].T, inputs @ self.W_v[...].T], axis=1)
        powers = jnp.sum(jnp.concatenate([self.memory(state), rows]) ** 2, axis=1)
        return jnp.sqrt(jnp.convolve(powers, jnp.ones(len(state.keys) + 1), mode="valid")[:, None])

    def memory(self, state: AttentionCache) -> Array:
        """Return the keys and values."""
        return jnp.concatenate([state.keys, state.values], axis=1)

    def start(self, length: int) -> AttentionCache:
        """Return an empty cache, no longer than a sequence needs."""
        (keys, width), before = self.W_q.shape, min(self.context, max(length, 2)) - 1
        return AttentionCache(jnp.zeros((before, keys)), jnp.zeros((before, width)), jnp.float32(0))

    def initial_state(self) -> AttentionCache:
        """Return an empty cache."""
        return self.start(self.context)
