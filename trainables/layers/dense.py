"""RNNs with a dense transition: what the linear, diagonal layers are compared with."""

from __future__ import annotations

from typing import ClassVar

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.initial import normal
from trainables.layers.layer import Layer, backwards, only_looks_back
from trainables.layers.recurrence import NONLINEARITIES, linear_recurrence, nonlinear_recurrence
from trainables.settings import DENSE_ALGORITHM, LayerSettings

GLOROT = nnx.initializers.glorot_normal()


class DenseRNN(Layer):
    """x_t = rho(A x_{t-1} + B u_t), y_t = C x_t + D u_t.

    Parameters: A (N, N), B (N, D), C (D, N), D (D,); C_backward (D, N) if bidirectional.

    Source: LRU, section 3.1 and table 6.
    """

    recurrent = frozenset({"A", "B"})
    rho: ClassVar[str | None]

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        bidirectional: bool = False,
    ) -> None:
        """Draw matrices by Glorot's rule.

        A is shrunk where needed so that its 1,024th power has norm 1 or less. The eigenvalues of a Glorot
        matrix fill the unit disk only in the limit of large N; those of a small one stick out, and 1.02^16384
        is no float.

        Args:
            d_model: width D.
            d_state: state size N.
            rngs: the source of randomness; its keys may be traced.
            bidirectional: whether to read the sequence backwards too, with a readout of its own.
        """
        self.bidirectional = bidirectional
        self.A = nnx.Param(stable(GLOROT(rngs.params(), (d_state, d_state))))
        self.B = nnx.Param(GLOROT(rngs.params(), (d_state, d_model)))
        self.C = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        if bidirectional:
            self.C_backward = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def run(self, u: Array, length: Array | None = None) -> tuple[Array, Array]:
        """Return the outputs (L, D) and the states (L, N)."""
        inputs = u @ self.B[...].T
        states = self._states(inputs)
        outputs = states @ self.C[...].T + self.D[...] * u
        if self.bidirectional:
            turned = self._states(backwards(length, inputs))
            outputs += backwards(length, turned) @ self.C_backward[...].T
        return outputs, states

    def initial_state(self) -> Array:
        """Return the zero state (N,)."""
        return jnp.zeros(len(self.A))

    def step(self, state: Array, u: Array) -> tuple[Array, Array]:
        """Advance by one step u (D,)."""
        only_looks_back(self)
        state = self.A[...] @ state + self.B[...] @ u
        if self.rho is not None:
            state = NONLINEARITIES[self.rho][0](state)
        return state, self.C[...] @ state + self.D[...] * u

    def _states(self, inputs: Array) -> Array:
        assert self.rho is not None
        return nonlinear_recurrence(self.rho, self.A[...], inputs)


class LinearRNN(DenseRNN):
    """The linear one, which need not run step by step."""

    settings = LayerSettings(
        summary="A dense linear RNN (LRU, section 3.1).", options={"algorithm": DENSE_ALGORITHM}
    )
    rho = None

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters as `DenseRNN` does; `algorithm` is that of the recurrence."""
        super().__init__(d_model, d_state, rngs=rngs, bidirectional=bidirectional)
        self.algorithm = algorithm

    def _states(self, inputs: Array) -> Array:
        return linear_recurrence(self.A[...], inputs, algorithm=self.algorithm)


class TanhRNN(DenseRNN):
    """The vanilla RNN."""

    settings = LayerSettings(summary="A vanilla RNN (LRU, section 3.1).")
    rho = "tanh"


class ReluRNN(DenseRNN):
    """The vanilla RNN with rectified units."""

    settings = LayerSettings(summary="A vanilla RNN with rectified units (LRU, section 3.1).")
    rho = "relu"


def stable(transition: Array) -> Array:
    """Return A (N, N), shrunk if the norm of its 1,024th power exceeds 1."""

    def square(power: Array, _: None) -> tuple[Array, Array]:
        power = power @ power
        norm = jnp.linalg.norm(power)
        return power / norm, jnp.log(norm)

    logs = jax.lax.scan(square, transition, length=10)[1]
    # The logarithm of ||A^1024||: each squaring doubles what was divided out before it.
    growth = jnp.sum(logs * 2.0 ** jnp.arange(9, -1, -1)) / 1024
    return transition * jnp.exp(-jnp.maximum(growth, 0))
