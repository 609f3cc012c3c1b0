"""The base class reads both directions and steps for any layer, also one outside the registry."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import pytest
from flax import nnx
from jax import Array
from jax import numpy as jnp

from tests.trainables.layers.cases import D, apart, sequence
from trainables.errors import Refusal
from trainables.layers.layer import Layer, normal, ring
from trainables.settings import LayerSettings

N, L, TRUE = 3, 12, 7


class Inputs(NamedTuple):
    """Of one step each: a decay (), a key, a value and a query (N,)."""

    decay: Array
    key: Array
    value: Array
    query: Array


class Rows(NamedTuple):
    """States (L, N, N) and the queries (L, N) that read them."""

    states: Array
    queries: Array


class FastWeights(Layer):
    """S_t = a(u_t) S_{t-1} + v_t k_t^T, y_t = C S_t q_t + D u_t: decays vary, states are matrices."""

    settings = LayerSettings(summary="A linear attention.")
    recurrent = frozenset({"W"})

    def __init__(self, d_model: int, d_state: int, *, rngs: nnx.Rngs, bidirectional: bool = False) -> None:
        self.bidirectional = bidirectional
        self.W = nnx.Param(normal(rngs.params(), (1 + 3 * d_state, d_model)))
        self.C = nnx.Param(normal(rngs.params(), (d_model, d_state)))
        if bidirectional:
            self.C_backward = nnx.Param(normal(rngs.params(), (d_model, d_state)))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def inputs(self, coefficients: None, u: Array) -> Inputs:
        gate, *others = jnp.split(u @ self.W[...].T, [1, 1 + N, 1 + 2 * N], axis=-1)
        return Inputs(jax.nn.sigmoid(gate[..., 0]), *others)

    def states(self, coefficients: None, inputs: Inputs) -> Rows:
        def step(state: Array, now: Inputs) -> tuple[Array, Rows]:
            return self.advance(None, state, now)

        return jax.lax.scan(step, self.initial_state(), inputs)[1]

    def read(self, coefficients: None, states: Rows, *, backward: bool) -> Array:
        read = jnp.einsum("lij,lj->li", states.states, states.queries)
        return super().read(coefficients, read, backward=backward)

    def real(self, states: Rows) -> Array:
        return super().real(states.states)

    def initial_state(self) -> Array:
        return jnp.zeros((N, N))

    def advance(self, coefficients: None, state: Array, inputs: Inputs) -> tuple[Array, Rows]:
        state = inputs.decay * state + jnp.outer(inputs.value, inputs.key)
        return state, Rows(state, inputs.query)


def _layer(bidirectional: bool) -> FastWeights:
    return FastWeights(D, N, rngs=nnx.Rngs(0), bidirectional=bidirectional)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("length", [None, L, TRUE, 1])
def test_the_reverse_direction_is_the_turned_sequence(length: int | None) -> None:
    """Outputs are the forward ones and those of the turned sequence, read by C_backward, turned back."""
    layer, u, true = _layer(True), sequence(L), L if length is None else length
    outputs, states = layer.run(u, length)
    ahead, behind = (layer.states(None, layer.inputs(None, part)) for part in (u[:true], u[:true][::-1]))
    expected = layer.read(None, ahead, backward=False) + layer.D[...] * u[:true]
    expected += layer.read(None, behind, backward=True)[::-1]
    np.testing.assert_allclose(outputs[:true], expected, rtol=1e-5, atol=1e-6)
    assert states.shape == (L, N * N)
    np.testing.assert_allclose(states[:true], ahead.states.reshape(true, -1), rtol=1e-6)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_changes_nothing(bidirectional: bool) -> None:
    """Rows behind the true end reach neither the outputs nor the states before it."""
    layer, u = _layer(bidirectional), sequence(L)
    for quiet, loud in zip(layer.run(u, TRUE), layer.run(u.at[TRUE:].set(1e3), TRUE), strict=True):
        np.testing.assert_array_equal(quiet[:TRUE], loud[:TRUE])


def test_stepping_equals_the_whole_sequence() -> None:
    layer, u = _layer(False), sequence(L)
    stepped = jax.lax.scan(layer.step, layer.initial_state(), u)[1]
    assert apart(stepped, layer(u)) < 1e-6


def test_a_layer_of_two_directions_cannot_be_stepped() -> None:
    layer = _layer(True)
    with pytest.raises(Refusal, match="must be causal"):
        layer.step(layer.initial_state(), jnp.zeros(D))


def test_a_ring_up_to_the_unit_circle_lies_within_it() -> None:
    """No draw is so near to 1 that its modulus is 1 in float32, nor -log of it 0, whose log is learned."""
    rates = ring(jax.random.key(0), (1_000_000,), (0.999, 1.0))
    assert np.isfinite(jnp.log(rates)).all()
    assert float(jnp.max(jnp.exp(-jnp.exp(jnp.log(rates))))) < 1


@pytest.mark.parametrize("bounds", [(0.0, 0.99), (0.5, 0.999), (0.9, 0.9999), (0.999, 0.999999)])
def test_rings_inside_the_unit_circle_are_as_drawn(bounds: tuple[float, float]) -> None:
    """What keeps draws off the circle changes no bit of others."""
    low, high = bounds
    drawn = jax.random.uniform(jax.random.key(1), (100_000,), minval=jnp.finfo(jnp.float32).tiny)
    expected = -0.5 * jnp.log(drawn * (high**2 - low**2) + low**2)
    np.testing.assert_array_equal(ring(jax.random.key(1), (100_000,), bounds), expected)
