"""RNNs with a dense transition, which the linear, diagonal layers are compared with."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import Layer, normal
from trainables.layers.recurrence import (
    NONLINEARITIES,
    Cell,
    linear_recurrence,
    newton_recurrence,
    nonlinear_recurrence,
)
from trainables.settings import (
    DENSE_ALGORITHM,
    DENSE_PARAMETERS,
    DENSE_START,
    RNN_ALGORITHM,
    Count,
    LayerSettings,
)

GLOROT = nnx.initializers.glorot_normal()
State = tuple[Array, Array]


class NewtonLayer(Layer):
    """A layer whose recurrence Newton's method can solve.

    Attributes:
        algorithm: "sequential", "newton" or "auto", which is "sequential": docs/benchmarks/recurrence.md.
        watched: Whether the layer records the outcome of each solution.
        solutions: Outcomes in a watched layer: whether each solution fell back, and its residual, (n, 2).
    """

    algorithm: str
    watched: bool = False
    solutions: nnx.Intermediate

    @property
    def solves(self) -> bool:
        """Return True if Newton's method solves for the states, which may fail."""
        return self.algorithm == "newton"

    def watch(self) -> NewtonLayer:
        """Return a layer that records the outcome of each solution, for a function that `vmap` traces."""
        layer = nnx.clone(self)  # Only a module of this trace may be changed.
        layer.watched, layer.solutions = True, nnx.Intermediate(jnp.zeros((0, 2)))
        return layer

    def outcome(self) -> Array:
        """Return how many solutions fell back to the loop, and the largest residual, (2,)."""
        fell_back, residual = self.solutions[...].T
        return jnp.stack([jnp.sum(fell_back), jnp.max(residual)])

    def by_newton(self, cell: Cell, weights: Any, initial: Array, inputs: Array) -> Array:
        """Return the states (L, S) of a cell; arguments as in `newton_recurrence`."""
        solved = newton_recurrence(cell, weights, initial, inputs)
        if self.watched:
            outcome = jnp.stack([solved.fell_back.astype(jnp.float32), solved.residual])
            rows = [self.solutions[...], jax.lax.stop_gradient(outcome)[None]]
            self.solutions = nnx.Intermediate(jnp.concatenate(rows))
        return solved.states


class DenseRNN(Layer):
    """x_t = rho(A x_{t-1} + B u_t), y_t = C x_t + D u_t.

    Parameters: A (N, N), B (N, D), C (D, N), D (D,); C_backward (D, N) if bidirectional.

    Source: LRU, section 3.1 and table 6.

    Attributes:
        rho: The nonlinearity, a name of `NONLINEARITIES`.
        may_grow: Whether the states are unbounded.
    """

    recurrent = frozenset({"A", "B"})
    rho: ClassVar[str]
    may_grow: ClassVar[bool] = True

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        bidirectional: bool = False,
        transition_init: str = DENSE_START.default,
    ) -> None:
        """Draw matrices by Glorot's rule.

        The eigenvalues of a Glorot matrix fill the unit disk only in the limit of large N; some of a small
        matrix lie outside, and 1.02^16384 overflows.

        Args:
            d_model: Width D.
            d_state: State size N.
            rngs: Source of randomness; its keys may be traced.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            transition_init: "glorot", as published, or "bounded": A is shrunk where needed so that its
                1,024th power has norm 1 or less.
        """
        self.bidirectional = bidirectional
        transition = GLOROT(rngs.params(), (d_state, d_state))
        self.A = nnx.Param(transition if transition_init == "glorot" else stable(transition))
        self.B = nnx.Param(GLOROT(rngs.params(), (d_state, d_model)))
        self.C = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        if bidirectional:
            self.C_backward = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def inputs(self, coefficients: None, u: Array) -> Array:
        """Return B u, (L, N)."""
        return u @ self.B[...].T

    def states(self, coefficients: None, inputs: Array, *, length: Array | None = None) -> Array:
        """Return the states (L, N)."""
        return nonlinear_recurrence(self.rho, self.A[...], inputs, length=length)

    def respond_until(
        self, coefficients: None, inputs: Array, length: Array | None, *, backward: bool
    ) -> tuple[Array, Array]:
        """Return the outputs (L, D) of one direction, and the states, 0 in the padding if they may grow."""
        states = self.states(coefficients, inputs, length=length if self.may_grow else None)
        return self.read(coefficients, states, backward=backward), states

    def respond_from(self, coefficients: None, state: Array, inputs: Array) -> tuple[Array, Array, Array]:
        """Return the outputs (L, D) from an initial state, all states, and the last state."""
        states = self.states(coefficients, inputs.at[0].add(self.A[...] @ state))
        return self.read(coefficients, states, backward=False), states, states[-1]

    def initial_state(self) -> Array:
        """Return the zero state (N,)."""
        return jnp.zeros(len(self.A))

    def advance(self, coefficients: None, state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return the next state, which is also the row of `states`."""
        state = NONLINEARITIES[self.rho][0](self.A[...] @ state + inputs)
        return state, state


class LinearRNN(DenseRNN):
    """The linear RNN: rho is the identity, so it need not run step by step."""

    settings = LayerSettings(
        summary="A dense linear RNN (LRU, section 3.1).",
        options={"algorithm": DENSE_ALGORITHM, "transition_init": DENSE_START},
        parameters=DENSE_PARAMETERS,
    )

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        bidirectional: bool = False,
        transition_init: str = DENSE_START.default,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters as `DenseRNN` does.

        Args:
            d_model: Width D.
            d_state: State size N.
            rngs: Source of randomness; its keys may be traced.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            transition_init: "glorot" or "bounded", see `DenseRNN`.
            algorithm: Algorithm of the recurrence: "sequential", "associative" or "auto".
        """
        super().__init__(
            d_model, d_state, rngs=rngs, bidirectional=bidirectional, transition_init=transition_init
        )
        self.algorithm = algorithm

    def states(self, coefficients: None, inputs: Array, *, length: Array | None = None) -> Array:
        """Return the states (L, N)."""
        return linear_recurrence(self.A[...], inputs, algorithm=self.algorithm, length=length)

    def advance(self, coefficients: None, state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return the next state, which is also the row of `states`."""
        state = self.A[...] @ state + inputs
        return state, state


class TanhRNN(NewtonLayer, DenseRNN):
    """The vanilla RNN."""

    settings = LayerSettings(
        summary="A vanilla RNN (LRU, section 3.1).",
        options={"algorithm": RNN_ALGORITHM, "transition_init": DENSE_START},
        parameters=DENSE_PARAMETERS,
    )
    rho = "tanh"
    may_grow = False

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        bidirectional: bool = False,
        transition_init: str = DENSE_START.default,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters as `DenseRNN` does.

        Args:
            d_model: Width D.
            d_state: State size N.
            rngs: Source of randomness; its keys may be traced.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            transition_init: "glorot" or "bounded", see `DenseRNN`.
            algorithm: Algorithm of the recurrence: "sequential", "newton" or "auto".
        """
        super().__init__(
            d_model, d_state, rngs=rngs, bidirectional=bidirectional, transition_init=transition_init
        )
        self.algorithm = algorithm

    def states(self, coefficients: None, inputs: Array, *, length: Array | None = None) -> Array:
        """Return the states (L, N)."""
        if self.algorithm != "newton":
            return super().states(coefficients, inputs, length=length)
        return self.by_newton(tanh_cell, self.A[...], self.initial_state(), inputs)


class ReluRNN(DenseRNN):
    """The vanilla RNN with rectified units."""

    settings = LayerSettings(
        summary="A vanilla RNN with rectified units (LRU, section 3.1).",
        options={"transition_init": DENSE_START},
        parameters=DENSE_PARAMETERS,
    )
    rho = "relu"


class LSTM(NewtonLayer):
    """Long short-term memory, y_t = C h_t + D u_t.

    Parameters: W (4 N, D), U (4 N, N), b (4 N,) for the input, forget and output gates and the candidate, in
    this order; C (D, N), D (D,); C_backward (D, N) if bidirectional.

    Source: Hochreiter and Schmidhuber, 1997, with the forget gate of Gers et al., 2000.
    """

    settings = LayerSettings(
        summary="A long short-term memory with N cells.",
        options={"algorithm": RNN_ALGORITHM},
        parameters=Count(
            ("d_model", "d_state", "bidirectional"),
            lambda d, n, both: 4 * n * (n + d + 1) + (1 + both) * n * d + d,
        ),
    )
    recurrent = frozenset({"W", "U", "b"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw matrices by Glorot's rule; the bias is 1 for the forget gate, else 0.

        Args:
            d_model: Width D.
            d_state: Size N of the cell.
            rngs: Source of randomness; its keys may be traced.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: Algorithm of the recurrence: "sequential", "newton" or "auto".
        """
        self.bidirectional, self.algorithm = bidirectional, algorithm
        self.W = nnx.Param(_gates(rngs.params(), d_state, d_model, 4))
        self.U = nnx.Param(_gates(rngs.params(), d_state, d_state, 4))
        self.b = nnx.Param(jnp.zeros((4, d_state)).at[1].set(1).ravel())
        self.C = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        if bidirectional:
            self.C_backward = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def inputs(self, coefficients: None, u: Array) -> Array:
        """Return W u + b, (L, 4 N)."""
        return u @ self.W[...].T + self.b[...]

    def states(self, coefficients: None, inputs: Array) -> Array:
        """Return the hidden states h (L, N)."""
        return self._from(self.initial_state(), inputs)[0]

    def respond_from(self, coefficients: None, state: State, inputs: Array) -> tuple[Array, Array, State]:
        """Return the outputs (L, D) from an initial state, the hidden states, and the last state."""
        states, state = self._from(state, inputs)
        return self.read(coefficients, states, backward=False), states, state

    def _from(self, state: State, inputs: Array) -> tuple[Array, State]:
        """Return the hidden states (L, N) after a state, and the last hidden state and cell."""
        if self.algorithm != "newton":
            last, states = jax.lax.scan(partial(self.advance, None), state, inputs)
            return states, last
        both = self.by_newton(lstm_cell, self.U[...], jnp.concatenate(state), inputs)
        states, cells = jnp.split(both, 2, axis=-1)
        return states, (states[-1], cells[-1])

    def initial_state(self) -> State:
        """Return the zero hidden state and cell, (N,) each."""
        zero = jnp.zeros(self.U.shape[1])
        return zero, zero

    def advance(self, coefficients: None, state: State, inputs: Array) -> tuple[State, Array]:
        """Return the next hidden state and cell, and the hidden state h (N,)."""
        hidden, cell = _lstm(self.U[...], *state, inputs)
        return (hidden, cell), hidden


class GRU(NewtonLayer):
    """A gated recurrent unit, y_t = C h_t + D u_t.

        r, z = sigmoid(W u_t + U h_{t-1} + b)            reset and update gate
        n = tanh(W u_t + U (r * h_{t-1}) + b)            candidate
        h_t = (1 - z) * n + z * h_{t-1}

    Parameters: W (3, N, D), U (3, N, N), b (3, N) for the reset gate, the update gate and the candidate, in
    this order; C (D, N), D (D,); C_backward (D, N) if bidirectional.

    Source: Cho et al., 2014, whose z is the share of the old state that is kept, as here; in Chung et al.,
    2014, 1 - z is.
    """

    settings = LayerSettings(
        summary="A gated recurrent unit with N units.",
        options={"algorithm": RNN_ALGORITHM},
        parameters=Count(
            ("d_model", "d_state", "bidirectional"),
            lambda d, n, both: 3 * n * (n + d + 1) + (1 + both) * n * d + d,
        ),
    )
    recurrent = frozenset({"W", "U", "b"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw W and C by Glorot's rule and orthogonal matrices U; the bias is 0.

        Args:
            d_model: Width D.
            d_state: Number of units N.
            rngs: Source of randomness; its keys may be traced.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: Algorithm of the recurrence: "sequential", "newton" or "auto".
        """
        self.bidirectional, self.algorithm = bidirectional, algorithm
        self.W = nnx.Param(_gates(rngs.params(), d_state, d_model, 3).reshape(3, d_state, d_model))
        orthogonal = nnx.initializers.orthogonal()
        keys = jax.random.split(rngs.params(), 3)
        self.U = nnx.Param(jax.vmap(lambda key: orthogonal(key, (d_state, d_state)))(keys))
        self.b = nnx.Param(jnp.zeros((3, d_state)))
        self.C = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        if bidirectional:
            self.C_backward = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def inputs(self, coefficients: None, u: Array) -> Array:
        """Return W u + b, (L, 3, N)."""
        of_u = u @ self.W[...].reshape(-1, u.shape[-1]).T
        return of_u.reshape(len(u), *self.b.shape) + self.b[...]

    def states(self, coefficients: None, inputs: Array) -> Array:
        """Return the states h (L, N)."""
        return self._from(self.initial_state(), inputs)

    def respond_from(self, coefficients: None, state: Array, inputs: Array) -> tuple[Array, Array, Array]:
        """Return the outputs (L, D) from an initial state, all states, and the last state."""
        states = self._from(state, inputs)
        return self.read(coefficients, states, backward=False), states, states[-1]

    def _from(self, state: Array, inputs: Array) -> Array:
        if self.algorithm != "newton":
            return jax.lax.scan(partial(self.advance, None), state, inputs)[1]
        return self.by_newton(gru_cell, self.U[...], state, inputs)

    def initial_state(self) -> Array:
        """Return the zero state (N,)."""
        return jnp.zeros(self.U.shape[-1])

    def advance(self, coefficients: None, state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return the next state, which is also the row of `states`."""
        state = gru_cell(self.U[...], state, inputs)
        return state, state


def tanh_cell(transition: Array, state: Array, inputs: Array) -> Array:
    """Return tanh(A x + inputs), (N,)."""
    return jnp.tanh(transition @ state + inputs)


def gru_cell(weights: Array, state: Array, inputs: Array) -> Array:
    """Return the next state (N,) of a GRU with U (3, N, N), for its inputs (3, N)."""
    reset, update = jax.nn.sigmoid(inputs[:2] + weights[:2] @ state)
    candidate = jnp.tanh(inputs[2] + weights[2] @ (reset * state))
    return (1 - update) * candidate + update * state


def lstm_cell(weights: Array, state: Array, inputs: Array) -> Array:
    """Return the next hidden state and cell (2 N,) of an LSTM with U (4 N, N), for its inputs (4 N,)."""
    hidden, cell = jnp.split(state, 2)
    return jnp.concatenate(_lstm(weights, hidden, cell, inputs))


def _lstm(weights: Array, hidden: Array, cell: Array, inputs: Array) -> State:
    take, keep, give, candidate = jnp.split(inputs + weights @ hidden, 4)
    cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(take) * jnp.tanh(candidate)
    return jax.nn.sigmoid(give) * jnp.tanh(cell), cell


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


def _gates(key: Array, rows: int, columns: int, count: int) -> Array:
    """Draw Glorot matrices (rows, columns), and stack them."""
    return jnp.concatenate([GLOROT(k, (rows, columns)) for k in jax.random.split(key, count)])
