"""The control without recurrence, which can learn only tasks that require no memory."""

from __future__ import annotations

from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import Layer, normal
from trainables.settings import Count, LayerSettings, Need


class Memoryless(Layer):
    """y_t = D u_t, without a state.

    Parameters: D (D,).
    """

    settings = LayerSettings(
        summary="No recurrence, y = D u: the control that every task is compared with.",
        needs=(Need(("bidirectional",), lambda both: not both, "bidirectional must be false"),),
        parameters=Count(("d_model",), lambda d: d),
        recurrent_rate=False,
    )
    recurrent = frozenset()

    def __init__(self, d_model: int, d_state: int, *, rngs: nnx.Rngs, bidirectional: bool = False) -> None:
        """Draw D as the other layers do.

        Args:
            d_model: Width D.
            d_state: Ignored.
            rngs: Source of randomness; its keys may be traced.
            bidirectional: Ignored; `settings` requires False.
        """
        self.bidirectional = False
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def states(self, coefficients: None, inputs: Array) -> Array:
        """Return the states (L, 0)."""
        return jnp.zeros((len(inputs), 0))

    def read(self, coefficients: None, states: Array, *, backward: bool) -> Array:
        """Return zeros (L, D)."""
        return jnp.zeros((len(states), len(self.D)))

    def respond_from(self, coefficients: None, state: Array, inputs: Array) -> tuple[Array, Array, Array]:
        """Return zeros (L, D), the states (L, 0), and the state (0,)."""
        states = self.states(coefficients, inputs)
        return self.read(coefficients, states, backward=False), states, state

    def initial_state(self) -> Array:
        """Return the state (0,)."""
        return jnp.zeros(0)

    def advance(self, coefficients: None, state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return the state (0,), which is also the row of `states`."""
        return state, state
