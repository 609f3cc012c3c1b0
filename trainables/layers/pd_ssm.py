"""PD-SSM: a state-space model whose transition is a one-hot matrix times a diagonal one."""

from __future__ import annotations

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import ChunkedLayer, normal
from trainables.layers.recurrence import planar, polar, times
from trainables.layers.recurrence.planar import real_part, rows
from trainables.settings import TWO_PI, Count, LayerSettings, Option

GLOROT = nnx.initializers.glorot_normal()
ROWS = 16
"""Rows in a chunk: a chunk holds ROWS N^2 numbers."""


class PDSSM(ChunkedLayer):
    """x_t = P(u_t) D(u_t) x_{t-1} + B u_t and y_t = Re(C x_t) + D u_t, complex, from x_0 = (1, 0, ..., 0).

    Each column of P(u) is one-hot: it has its 1 where that column of sum_k softmax(S u)_k M_k is largest.
    P moves each state to another place, where states may meet, so with D = 1 and B = 0 the layer is any
    finite automaton of N states. Its gradient is that of the softmax of the column. The diagonal D(u) has
    moduli sigmoid(W_r2 gelu(W_r1 u + b_r1) + b_r2) and phases 2 pi sigmoid(W_p2 gelu(W_p1 u + b_p1) + b_p2).

    A product of two such transitions has the same form, so the paper uses a parallel scan; here the steps run
    one after the other, because forming P costs more than applying it.

    Parameters: S (K, D), M (K, N, N); W_r1, W_p1 (2 N, D), b_r1, b_p1 (2 N,), W_r2, W_p2 (N, 2 N), b_r2, b_p2
    (N,); B_re, B_im (N, D), C_re, C_im (D, N), D (D,); C_backward_re, C_backward_im (D, N) if bidirectional.

    Source: Terzić et al., Structured sparse transition matrices to enable state tracking in state-space
    models, 2025, section 3, and the authors' program (initial values, x_0, the networks of D).
    """

    settings = LayerSettings(
        summary="PD-SSM: inputs move the states to other places and scale them (Terzić et al., section 3).",
        options={
            "dictionary": Option(8, "Number K of matrices that P is chosen from.", at_least=1),
        },
        parameters=Count(
            ("d_model", "d_state", "bidirectional", "dictionary"),
            lambda d, n, both, k: (
                2 * (2 * n * (d + 1) + n * (2 * n + 1)) + k * (d + n * n) + (4 + 2 * both) * n * d + d
            ),
        ),
    )
    recurrent = frozenset(
        {"S", "M", "W_r1", "b_r1", "W_r2", "b_r2", "W_p1", "b_p1", "W_p2", "b_p2", "B_re", "B_im"}
    )

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        bidirectional: bool = False,
        dictionary: int = settings.default("dictionary"),
    ) -> None:
        """Draw the dictionary and B as the authors' program does, and other matrices by Glorot's rule.

        Args:
            d_model: Width D.
            d_state: Complex states N.
            rngs: Source of randomness; its keys may be traced.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            dictionary: Number K of matrices that P is chosen from.
        """
        self.bidirectional = bidirectional
        self.S = nnx.Param(GLOROT(rngs.params(), (dictionary, d_model)))
        self.M = nnx.Param(normal(rngs.params(), (dictionary, d_state, d_state), 1 / d_state))
        self.W_r1, self.b_r1, self.W_r2, self.b_r2 = _initial_network(rngs, d_model, d_state)
        self.W_p1, self.b_p1, self.W_p2, self.b_p2 = _initial_network(rngs, d_model, d_state)
        self.B_re = nnx.Param(normal(rngs.params(), (d_state, d_model), 0.5 / d_state))
        self.B_im = nnx.Param(normal(rngs.params(), (d_state, d_model), 0.5 / d_state))
        self.C_re = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        self.C_im = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        if bidirectional:
            self.C_backward_re = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
            self.C_backward_im = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    @property
    def chunk_size(self) -> int:
        """Return the number of rows in a chunk."""
        return ROWS

    def transitions(self, u: Array) -> tuple[Array, Array]:
        """Return P (L, N, N), one-hot columns, and the diagonals D, planes (L, 2, N), of rows u (L, D)."""
        chosen = jax.nn.softmax(u @ self.S[...].T)
        columns = jnp.einsum("tk,kij->tij", chosen, self.M[...])
        soft = jax.nn.softmax(columns, axis=-2)
        hard = jax.nn.one_hot(jnp.argmax(columns, axis=-2), columns.shape[-2], axis=-2)
        moduli = _network(u, self.W_r1[...], self.b_r1[...], self.W_r2[...], self.b_r2[...])
        phases = _network(u, self.W_p1[...], self.b_p1[...], self.W_p2[...], self.b_p2[...])
        # The difference is 0: the value is `hard`, and the gradient that of `soft`.
        return hard + (soft - jax.lax.stop_gradient(soft)), polar(moduli, TWO_PI * phases)

    def chunk(self, coefficients: None, state: Array, u: Array) -> tuple[Array, Array]:
        """Return the last state, planes (2, N), and the states of rows u (S, D), planes (S, 2, N)."""
        moves, scales = self.transitions(u)
        inputs = planar(u @ self.B_re[...].T, u @ self.B_im[...].T)

        def step(state: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            move, scale, more = now
            state = times(scale, state) @ move.T + more
            return state, state

        return jax.lax.scan(step, state, (moves, scales, inputs))

    def read(self, coefficients: None, states: Array, *, backward: bool) -> Array:
        """Return Re(C x), (L, D)."""
        re, im = (self.C_backward_re, self.C_backward_im) if backward else (self.C_re, self.C_im)
        return real_part(states, rows(re[...].T, -im[...].T))

    def memory(self, state: Array) -> Array:
        """Return the whole state."""
        return state

    def skip(self, u: Array) -> Array:
        """Return D u, for u (L, D) or (D,)."""
        return self.D[...] * u

    def initial_state(self) -> Array:
        """Return the first unit vector, planes (2, N)."""
        return jnp.zeros((2, self.M.shape[-1])).at[0, 0].set(1)


def _initial_network(rngs: nnx.Rngs, d_model: int, d_state: int) -> tuple[nnx.Param, ...]:
    return (
        nnx.Param(GLOROT(rngs.params(), (2 * d_state, d_model))),
        nnx.Param(jnp.zeros(2 * d_state)),
        nnx.Param(GLOROT(rngs.params(), (d_state, 2 * d_state))),
        nnx.Param(jnp.zeros(d_state)),
    )


def _network(u: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    return jax.nn.sigmoid(jax.nn.gelu(u @ w1.T + b1) @ w2.T + b2)
