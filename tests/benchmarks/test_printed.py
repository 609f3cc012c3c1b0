"""The baseline of the measurements computes what our layer computes."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from benchmarks.printed import PrintedRotRNN
from tests.trainables.layers.cases import apart, sequence
from trainables.layers.rotrnn import RotRNN


def test_equals_our_layer() -> None:
    """The same parameters give the same outputs, the same norms of states and the same gradients."""
    u, towards = sequence(11), sequence(11, seed=2)
    found = []
    for form in (RotRNN, PrintedRotRNN):
        graph, parameters = nnx.split(form(4, 16, heads=2, rngs=nnx.Rngs(0)))

        @jax.jit
        def graded(parameters: Any, graph: Any = graph) -> Any:
            def loss(parameters: Any) -> tuple[Array, tuple[Array, Array]]:
                outputs, states = nnx.merge(graph, parameters).run(u)
                return jnp.vdot(outputs, towards), (outputs, jnp.linalg.norm(states, axis=1))

            return jax.grad(loss, has_aux=True)(parameters)

        found.append(jax.tree.leaves(graded(parameters)))
    for ours, printed in zip(*found, strict=True):
        assert apart(printed, ours) < 1e-5
