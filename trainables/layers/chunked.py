"""Layers that run in chunks of time and keep only their inputs and one state a chunk for the reverse pass."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import Layer
from trainables.layers.recurrence import in_chunks, in_chunks_from


class ChunkedLayer(Layer):
    """A layer that is defined by its operation on a chunk of rows.

    States may be large, so `run` returns their norms (L, 1) alone.
    """

    @property
    @abstractmethod
    def chunk_size(self) -> int:
        """Return the number of rows in a chunk."""

    @abstractmethod
    def chunk(self, coefficients: Any, state: Any, u: Array) -> tuple[Any, Array]:
        """Return the next state and the answers, one row for each row of u (S, D)."""

    @abstractmethod
    def memory(self, state: Any) -> Array:
        """Return the part of a state whose norm is recorded."""

    def start(self, length: int) -> Any:
        """Return the state before the first of `length` rows."""
        return self.initial_state()

    def states(self, coefficients: Any, inputs: Array) -> Array:
        """Return the norms of the states, (L, 1)."""
        return self.states_from(coefficients, self.initial_state(), inputs)

    def states_from(self, coefficients: Any, state: Any, inputs: Array) -> Array:
        """Return the norms of the states after a state, (L, 1)."""

        def step(state: Any, row: Array) -> tuple[Any, Array]:
            state, _ = self.chunk(coefficients, state, row)
            return state, jnp.linalg.norm(self.memory(state).ravel())[None, None]

        return in_chunks(step, state, inputs, 1)

    def respond(self, coefficients: Any, inputs: Array, *, backward: bool) -> tuple[Array, Array]:
        """Return the outputs (L, D) of one direction, and the norms of the states."""

        def step(state: Any, rows: Array) -> tuple[Any, Array]:
            state, answers = self.chunk(coefficients, state, rows)
            return state, self.read(coefficients, answers, backward=backward)

        outputs = in_chunks(step, self.start(len(inputs)), inputs, self.chunk_size)
        return outputs, self.states(coefficients, inputs)

    def respond_from(self, coefficients: Any, state: Any, inputs: Array) -> tuple[Array, Array, Any]:
        """Return the outputs (L, D) from an initial state, the norms of the states, and the last state."""

        def step(state: Any, rows: Array) -> tuple[Any, Array]:
            state, answers = self.chunk(coefficients, state, rows)
            return state, self.read(coefficients, answers, backward=False)

        outputs, last = in_chunks_from(step, state, inputs, self.chunk_size)
        return outputs, self.states_from(coefficients, state, inputs), last

    def advance(self, coefficients: Any, state: Any, inputs: Array) -> tuple[Any, Array]:
        """Return the next state, and its answer."""
        state, answers = self.chunk(coefficients, state, inputs[None])
        return state, jax.tree.map(lambda rows: rows[0], answers)

    def skip(self, u: Array) -> Array:
        """Return zeros, because no input bypasses the layer."""
        return jnp.zeros_like(u)
