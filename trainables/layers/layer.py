"""The base classes of sequence layers: (L, D) -> (L, D) on one unbatched sequence.

A layer describes one direction of one sequence, in pieces; `Layer.run` reads both directions and `Layer.step`
runs the layer as an RNN. `Layer.carry` reads the next segment of a longer sequence:

    c = coefficients()                     from the parameters alone, once a sequence
    x = inputs(c, u)                       row by row: x_t depends on u_t alone
    y, s = respond(c, x, backward=False)   along time: by default `states` and then `read`
    output = y + skip(u)

Any of c, x and s may be a tree of arrays, so that decays may vary with the input and states may be matrices.

The functions at the end draw initial parameters from the distributions that layers share.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias, final

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.recurrence import (
    Pace,
    in_chunks,
    in_chunks_from,
    pace,
    recurrence,
    times,
    until,
    varying_recurrence,
)
from trainables.layers.recurrence.planar import into, real_part
from trainables.settings import LayerSettings


class Layer(nnx.Module):
    """A sequence layer; the caller's `vmap` adds batch and slots.

    By default the output is C x_t + D u_t, with C (D, N), C_backward (D, N) if bidirectional, and D (D,).

    Attributes:
        settings: Options and ranges of the layer, with the defaults of its constructor.
        recurrent: Names of the parameters trained at the recurrent rate, without weight decay.
        undecayed: Names of further parameters without weight decay, trained at the general rate.
        in_pairs: Whether each computed state represents itself and its conjugate.
        bidirectional: Whether the layer also reads the sequence backwards.
    """

    settings: ClassVar[LayerSettings]
    recurrent: ClassVar[frozenset[str]]
    undecayed: ClassVar[frozenset[str]] = frozenset()
    in_pairs: bool = False
    bidirectional: bool
    C: nnx.Param
    C_backward: nnx.Param
    D: nnx.Param

    @final
    def __call__(self, u: Array, length: Array | None = None) -> Array:
        """Return the outputs (L, D) of a sequence u (L, D) with `length` true steps."""
        return self.run(u, length)[0]

    @final
    def run(self, u: Array, length: Array | None = None) -> tuple[Array, Array]:
        """Return the outputs and the hidden states of a whole sequence.

        Args:
            u: (L, D).
            length: True length of the sequence, an int scalar; L if None. Rows from `length` on are padding:
                they change no row before them, in either direction.

        Returns:
            Outputs (L, D), and the forward states as real numbers (L, any): the norm of row t is the norm of
            the state x_t, both states of a pair included.
        """
        coefficients = self.coefficients()
        inputs = self.inputs(coefficients, until(length, u))
        outputs, states = self.respond_until(coefficients, inputs, length, backward=False)
        if self.bidirectional:
            outputs += self.respond_against_time(coefficients, inputs, length)
        return outputs + self.skip(u), self.real(states)

    @final
    def step(self, state: Any, u: Array) -> tuple[Any, Array]:
        """Advance by one step: inference as an RNN, for causal layers.

        Args:
            state: Returned by `initial_state` or by the step before.
            u: (D,).

        Returns:
            The next state, and the output (D,).

        Raises:
            Refusal: The layer also reads the sequence backwards.
        """
        only_looks_back(self)
        coefficients = self.coefficients()
        inputs = jax.tree.map(lambda rows: rows[0], self.inputs(coefficients, u[None]))
        state, row = self.advance(coefficients, state, inputs)
        outputs = self.read(coefficients, jax.tree.map(lambda leaf: leaf[None], row), backward=False)
        return state, outputs[0] + self.skip(u)

    @final
    def carry(self, state: Any, u: Array) -> tuple[Array, Any]:
        """Return the outputs (L, D) of a segment of a longer sequence, and the state after it.

        Segments carried one after the other answer as the whole sequence does, but for rounding.

        Args:
            state: Returned by `initial_state`, by `step`, or for the segment before.
            u: The segment (L, D), all of it true steps.

        Raises:
            Refusal: The layer also reads the sequence backwards.
        """
        outputs, _, state = self.run_from(state, u)
        return outputs, state

    @final
    def run_from(self, state: Any, u: Array) -> tuple[Array, Array, Any]:
        """Return the outputs of `carry`, the hidden states (L, any) as in `run`, and the last state."""
        only_looks_back(self)
        coefficients = self.coefficients()
        outputs, states, state = self.respond_from(coefficients, state, self.inputs(coefficients, u))
        return outputs + self.skip(u), self.real(states), state

    def coefficients(self) -> Any:
        """Return values that both directions compute from the parameters alone; nothing by default."""
        return None

    def inputs(self, coefficients: Any, u: Array) -> Any:
        """Return the inputs of the recurrence; row t depends on row t of u (L, D) alone."""
        return u

    @abstractmethod
    def states(self, coefficients: Any, inputs: Any) -> Any:
        """Return the states of all steps from a zero state, one row each, time running forward."""

    def read(self, coefficients: Any, states: Any, *, backward: bool) -> Array:
        """Return the read-out (L, D) of states, with the weights of one direction."""
        weights = self.C_backward if backward else self.C
        return states @ weights[...].T

    def respond(self, coefficients: Any, inputs: Any, *, backward: bool) -> tuple[Array, Any]:
        """Return the outputs (L, D) of one direction and the states, time running forward."""
        states = self.states(coefficients, inputs)
        return self.read(coefficients, states, backward=backward), states

    def respond_until(
        self, coefficients: Any, inputs: Any, length: Array | None, *, backward: bool
    ) -> tuple[Array, Any]:
        """Return the outputs and the states of a sequence with `length` true steps, which come first.

        The padding after them may hold any finite values. A layer whose states may grow without inputs
        overrides this, so that states stay finite and outputs are 0 in the padding: infinity times a gradient
        of 0 is nan.
        """
        return self.respond(coefficients, inputs, backward=backward)

    def respond_from(self, coefficients: Any, state: Any, inputs: Any) -> tuple[Array, Any, Any]:
        """Return the outputs (L, D) from an initial state, the states of all steps, and the last state.

        By default, the steps run one after the other.
        """
        state, states = jax.lax.scan(partial(self.advance, coefficients), state, inputs)
        return self.read(coefficients, states, backward=False), states, state

    def respond_against_time(self, coefficients: Any, inputs: Any, length: Array | None) -> Array:
        """Return the outputs (L, D) of the reverse direction, from the last true step to the first."""
        turned = jax.tree.map(partial(backwards, length), inputs)
        return backwards(length, self.respond_until(coefficients, turned, length, backward=True)[0])

    def over(self, batch: int) -> Layer:
        """Return the layer to use for a batch of `batch` sequences; by default this one."""
        return self

    def skip(self, u: Array) -> Array:
        """Return the term of the output that bypasses the recurrence, for u (L, D) or (D,)."""
        return self.D[...] * u

    def real(self, states: Any) -> Array:
        """Return states as real numbers (L, any), of the same norms as all N states."""
        flat = states.reshape(len(states), -1)
        return flat * 2**0.5 if self.in_pairs else flat

    def head_norms(self, states: Array) -> Array:
        """Return the norm of each head's part of real states (L, any), (L, H); one head by default."""
        return jnp.linalg.norm(states, axis=-1, keepdims=True)

    def expected_norms(self, length: int) -> Array | None:
        """Return the root of E||x_t||^2 of each head after t = 1 to `length` steps, (length, H).

        The inputs u_t are independent, with independent channels of mean 0 and variance 1. None by default:
        the expectation is not known in closed form.
        """
        return None

    @abstractmethod
    def initial_state(self) -> Any:
        """Return the state before the first step."""

    @abstractmethod
    def advance(self, coefficients: Any, state: Any, inputs: Any) -> tuple[Any, Any]:
        """Return the next state, given the inputs of one step, and its row among the `states`."""


class Folded(NamedTuple):
    """A diagonal recurrence x_t = decay * x_{t-1} + B u_t with the read-out Re(C x_t).

    Attributes:
        decay: Planes (2, N).
        into: Rows of B, (2 N, D); None in a layer that computes its inputs otherwise.
        out: Columns of C, (2 N, D), the imaginary ones negated.
        out_backward: Read-out of the reverse direction; None in a causal layer.
    """

    decay: Array
    into: Array | None
    out: Array
    out_backward: Array | None


class DiagonalLayer(Layer):
    """A layer whose recurrence is diagonal, complex and the same at every step.

    A zero input keeps a zero state, so the reverse direction runs backwards over the same inputs, beginning
    with the padding.

    Attributes:
        algorithm: A name of `recurrence.ALGORITHMS`, or "auto".
        activations: Type of the recurrence's inputs and states.
        heads: Number of heads H; each has the same number of consecutive channels.
    """

    algorithm: str
    activations: str = "float32"
    heads: int = 1

    @property
    def may_grow(self) -> bool:
        """Return True if training may move eigenvalues outside the unit circle; False by default."""
        return False

    @abstractmethod
    def coefficients(self) -> Folded:
        """Return the layer as one diagonal recurrence."""

    def inputs(self, coefficients: Folded, u: Array) -> Array:
        """Return B u, planes (L, 2, N)."""
        assert coefficients.into is not None
        return into(u, coefficients.into, self.activations)

    def states(
        self, coefficients: Folded, inputs: Array, *, reverse: bool = False, length: Array | None = None
    ) -> Array:
        """Return the states, planes (L, 2, N)."""
        return recurrence(
            coefficients.decay, inputs, reverse=reverse, algorithm=self.algorithm, length=length
        )

    def respond_until(
        self, coefficients: Folded, inputs: Array, length: Array | None, *, backward: bool
    ) -> tuple[Array, Array]:
        """Return the outputs (L, D) of one direction, and the states, finite in the padding too."""
        if not self.may_grow:
            return self.respond(coefficients, inputs, backward=backward)
        states = self.states(coefficients, inputs, length=length)
        # Not even outputs that are finite: what follows the layer may square them.
        return until(length, self.read(coefficients, states, backward=backward)), states

    def respond_from(self, coefficients: Folded, state: Array, inputs: Array) -> tuple[Array, Array, Array]:
        """Return the outputs (L, D) after a state, the states, planes (L, 2, N), and the last of them."""
        states = recurrence(coefficients.decay, inputs, initial=state, algorithm=self.algorithm)
        return self.read(coefficients, states, backward=False), states, states[-1].astype(state.dtype)

    def read(self, coefficients: Folded, states: Array, *, backward: bool) -> Array:
        """Return Re(C x), (L, D)."""
        out = coefficients.out_backward if backward else coefficients.out
        assert out is not None
        return real_part(states, out)

    def respond_against_time(self, coefficients: Folded, inputs: Array, length: Array | None) -> Array:
        """Return the outputs (L, D) of the reverse direction; nothing is reordered."""
        length = length if self.may_grow else None
        states = self.states(coefficients, inputs, reverse=True, length=length)
        return until(length, self.read(coefficients, states, backward=True))

    def expected_norms(self, length: int) -> Array | None:
        """Return the root of E||x_t||^2 of each head, (length, H); None if B is not a matrix.

        E|x_t|^2 of a channel with the decay a and the row b of B is ||b||^2 times the sum of |a|^(2 k) for k
        from 0 to t - 1.

        Source: RotRNN, section 3.3 (there it is 1 - gamma^(2 t) for a head); LRU, section 3.4.
        """
        coefficients = self.coefficients()
        if coefficients.into is None:
            return None
        of_inputs = jnp.sum(coefficients.into**2, axis=1).reshape(2, -1).sum(axis=0)
        decay = jnp.sum(coefficients.decay**2, axis=0)
        squared = of_inputs * jnp.cumsum(decay ** jnp.arange(length)[:, None], axis=0)
        total = jnp.sum(squared.reshape(length, self.heads, -1), axis=-1)
        return jnp.sqrt(2 * total if self.in_pairs else total)

    def initial_state(self) -> Array:
        """Return the zero state, planes (2, N)."""
        return jnp.zeros(jax.eval_shape(self.coefficients).decay.shape)

    def advance(self, coefficients: Folded, state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return decay * state + inputs, which is also the row of `states`."""
        state = times(coefficients.decay, state) + inputs
        return state, state


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


class Fixed(nnx.BatchStat):
    """An array that is drawn once, never trained, and stored with the running statistics of a model."""


def backwards(length: Array | None, rows: Array) -> Array:
    """Return rows (L, ...) with the `length` true ones in reverse order; its own inverse."""
    if length is None:
        return rows[::-1]
    time = jnp.arange(len(rows))
    return rows[jnp.where(time < length, length - 1 - time, time)]


def only_looks_back(layer: Layer) -> None:
    """Check that a layer can run step by step; raise Refusal otherwise."""
    if layer.bidirectional:
        raise Refusal(
            type(layer).__name__,
            "must be causal",
            "bidirectional=True",
            "Build it with bidirectional=False to run it step by step, or from a carried state.",
        )


Bounds: TypeAlias = tuple[float | Array, float | Array]
"""An initialisation range (low, high), whose ends may be traced."""


SLOWEST = 2.0**-24
"""Negative logarithm of the largest modulus below 1 in float32."""


def ring(key: Array, shape: tuple[int, ...], bounds: Bounds) -> Array:
    """Draw eigenvalues uniformly on the ring of moduli in `bounds`; return -log(modulus), which is not 0.

    Source: LRU, lemma 2.
    """
    low, high = bounds
    # A ring that reaches to 1 has draws that are rounded to 1, and the logarithm of the answer is learned.
    return jnp.maximum(-0.5 * jnp.log(_uniform(key, shape) * (high**2 - low**2) + low**2), SLOWEST)


def between(key: Array, shape: tuple[int, ...], bounds: Bounds) -> Array:
    """Draw uniformly between two bounds, the lower one excluded."""
    low, high = bounds
    return low + _uniform(key, shape) * (high - low)


def log_between(key: Array, shape: tuple[int, ...], bounds: Bounds) -> Array:
    """Draw uniformly between the logarithms of two bounds; return the logarithm."""
    low, high = bounds
    return between(key, shape, (jnp.log(low), jnp.log(high)))


def initial_step(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw biases whose softplus is log-uniform between 0.001 and 0.1.

    Source: Mamba, section 3.6.
    """
    step = jnp.exp(log_between(key, shape, (0.001, 0.1)))
    return step + jnp.log(-jnp.expm1(-step))


def normal(key: Array, shape: tuple[int, ...], variance: float = 1.0) -> Array:
    """Draw from N(0, variance)."""
    return jax.random.normal(key, shape) * variance**0.5


def complex_normal(rngs: nnx.Rngs, shape: tuple[int, ...], variance: float) -> tuple[nnx.Param, nnx.Param]:
    """Draw real and imaginary parts as parameters, each from N(0, variance)."""
    return nnx.Param(normal(rngs.params(), shape, variance)), nnx.Param(
        normal(rngs.params(), shape, variance)
    )


def _uniform(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw from (0, 1): 0 is excluded, so that logarithms are finite."""
    return jax.random.uniform(key, shape, minval=jnp.finfo(jnp.float32).tiny)
