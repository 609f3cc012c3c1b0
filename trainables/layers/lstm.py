"""LSTM, to compare with."""

from __future__ import annotations

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.initial import normal
from trainables.layers.layer import Layer, backwards, only_looks_back
from trainables.settings import LayerSettings

GLOROT = nnx.initializers.glorot_normal()
State = tuple[Array, Array]


class LSTM(Layer):
    """Long short-term memory, y_t = C h_t + D u_t.

    Parameters: W (4 N, D), U (4 N, N), b (4 N,) for the input, forget and output gates and the candidate, in
    this order; C (D, N), D (D,); C_backward (D, N) if bidirectional.

    Source: Hochreiter and Schmidhuber, 1997, with the forget gate of Gers et al., 2000.
    """

    settings = LayerSettings(summary="A long short-term memory with N cells.")

    recurrent = frozenset({"W", "U", "b"})

    def __init__(self, d_model: int, d_state: int, *, rngs: nnx.Rngs, bidirectional: bool = False) -> None:
        """Draw matrices by Glorot's rule; the bias is 1 for the forget gate, else 0.

        Args:
            d_model: width D.
            d_state: size N of the cell.
            rngs: the source of randomness; its keys may be traced.
            bidirectional: whether to read the sequence backwards too, with a readout of its own.
        """
        self.bidirectional = bidirectional
        self.W = nnx.Param(_gates(rngs.params(), d_state, d_model))
        self.U = nnx.Param(_gates(rngs.params(), d_state, d_state))
        self.b = nnx.Param(jnp.zeros((4, d_state)).at[1].set(1).ravel())
        self.C = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        if bidirectional:
            self.C_backward = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def run(self, u: Array, length: Array | None = None) -> tuple[Array, Array]:
        """Return the outputs (L, D) and the hidden states h (L, N)."""
        inputs = u @ self.W[...].T + self.b[...]
        hidden = self._hidden(inputs)
        outputs = hidden @ self.C[...].T + self.D[...] * u
        if self.bidirectional:
            turned = self._hidden(backwards(length, inputs))
            outputs += backwards(length, turned) @ self.C_backward[...].T
        return outputs, hidden

    def initial_state(self) -> State:
        """Return the zero hidden state and cell, (N,) each."""
        zero = jnp.zeros(self.U.shape[1])
        return zero, zero

    def step(self, state: State, u: Array) -> tuple[State, Array]:
        """Advance by one step u (D,)."""
        only_looks_back(self)
        state = self._advance(state, self.W[...] @ u + self.b[...])
        return state, self.C[...] @ state[0] + self.D[...] * u

    def _hidden(self, inputs: Array) -> Array:
        def step(state: State, now: Array) -> tuple[State, Array]:
            state = self._advance(state, now)
            return state, state[0]

        return jax.lax.scan(step, self.initial_state(), inputs)[1]

    def _advance(self, state: State, now: Array) -> State:
        hidden, cell = state
        take, keep, give, candidate = jnp.split(now + self.U[...] @ hidden, 4)
        cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(take) * jnp.tanh(candidate)
        return jax.nn.sigmoid(give) * jnp.tanh(cell), cell


def _gates(key: Array, rows: int, columns: int) -> Array:
    """Draw four Glorot matrices, each (rows, columns), below one another."""
    return jnp.concatenate([GLOROT(k, (rows, columns)) for k in jax.random.split(key, 4)])
