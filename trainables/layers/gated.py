"""Layers whose recurrence is elementwise, with decays that depend on the input."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import Layer
from trainables.layers.recurrence import Pace, in_chunks, in_chunks_from, pace, times, varying_recurrence


class GatedLayer(Layer):
    """A layer with the recurrence x_t = a(u_t) * x_{t-1} + b(u_t).

    It runs in chunks of time: a and b are computed from the rows of a chunk, and once more in the reverse
    pass, so that only the inputs of the layer are kept.

    Attributes:
        planes: Whether states are complex, as planes (2, N).
        algorithm: "sequential", "associative", "pallas" or "auto".
        together: Sequences that run at the same time, under `vmap`.
    """

    planes: bool = False
    algorithm: str
    together: int = 32

    def over(self, batch: int) -> GatedLayer:
        """Return the layer with the best chunk size for a batch of `batch` sequences."""
        layer = nnx.clone(self)  # Only a module of this trace may be changed.
        layer.together = batch
        return layer

    @abstractmethod
    def gates(self, coefficients: Any, u: Array) -> tuple[Array, Array]:
        """Return the decays a and the inputs b of each row of u (L, D), of the shape of the states."""

    def states(self, coefficients: Any, inputs: Array) -> Array:
        """Return the states (L, N), or planes (L, 2, N)."""
        return self._states_from(coefficients, self.initial_state(), inputs)

    def _states_from(self, coefficients: Any, state: Array, inputs: Array) -> Array:
        def chunk(state: Array, rows: Array) -> tuple[Array, Array]:
            states = self._from(coefficients, state, rows)
            return states[-1], states

        return in_chunks(chunk, state, inputs, self._pace.size)

    def respond(self, coefficients: Any, inputs: Array, *, backward: bool) -> tuple[Array, Array]:
        """Return the outputs (L, D) of one direction, read chunk by chunk, and the states."""

        def chunk(state: Array, rows: Array) -> tuple[Array, Array]:
            states = self._from(coefficients, state, rows)
            return states[-1], self.read(coefficients, states, backward=backward)

        outputs = in_chunks(chunk, self.initial_state(), inputs, self._pace.size)
        return outputs, self.states(coefficients, inputs)

    def respond_from(self, coefficients: Any, state: Array, inputs: Array) -> tuple[Array, Array, Array]:
        """Return the outputs (L, D) from an initial state, all states, and the last state."""

        def chunk(state: Array, rows: Array) -> tuple[Array, Array]:
            states = self._from(coefficients, state, rows)
            return states[-1], self.read(coefficients, states, backward=False)

        outputs, last = in_chunks_from(chunk, state, inputs, self._pace.size)
        return outputs, self._states_from(coefficients, state, inputs), last

    def advance(self, coefficients: Any, state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return the next state, which is also the row of `states`."""
        decay, now = jax.tree.map(lambda row: row[0], self.gates(coefficients, inputs[None]))
        state = (times if self.planes else jnp.multiply)(decay, state) + now
        return state, state

    def _from(self, coefficients: Any, state: Array, rows: Array) -> Array:
        decays, inputs = self.gates(coefficients, rows)
        algorithm = self._pace.algorithm
        return varying_recurrence(decays, inputs, state, planes=self.planes, algorithm=algorithm)

    @property
    def _pace(self) -> Pace:
        return pace(self.algorithm, self.together)
