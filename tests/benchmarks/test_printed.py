"""The printed form of RotRNN, the baseline of the measurements, equals the layer `RotRNN`."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from benchmarks.printed import PrintedRotRNN
from tests.trainables.layers.cases import apart, sequence
from trainables.layers.rotrnn import RotRNN


def test_equals_the_layer() -> None:
    """The same parameters give the same outputs, the same norms of states and the same gradients."""
    u, cotangents = sequence(11), sequence(11, seed=2)
    results = []
    for layer in (RotRNN, PrintedRotRNN):
        graph, parameters = nnx.split(layer(4, 16, heads=2, rngs=nnx.Rngs(0)))

        @jax.jit
        def graded(parameters: Any, graph: Any = graph) -> Any:
            def loss(parameters: Any) -> tuple[Array, tuple[Array, Array]]:
                outputs, states = nnx.merge(graph, parameters).run(u)
                return jnp.vdot(outputs, cotangents), (outputs, jnp.linalg.norm(states, axis=1))

            return jax.grad(loss, has_aux=True)(parameters)

        results.append(jax.tree.leaves(graded(parameters)))
    for folded, printed in zip(*results, strict=True):
        assert apart(printed, folded) < 1e-5


def test_equals_itself_step_by_step() -> None:
    """Run as an RNN, it gives the outputs that it gives to the whole sequence."""

    @jax.jit
    def outputs(u: Array) -> tuple[Array, Array]:
        layer = PrintedRotRNN(4, 16, heads=2, rngs=nnx.Rngs(0))
        return jax.lax.scan(layer.step, layer.initial_state(), u)[1], layer(u)

    stepped, whole = outputs(sequence(11))
    assert apart(stepped, whole) < 1e-5
