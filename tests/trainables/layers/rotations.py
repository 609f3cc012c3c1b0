"""Small RotRNN layers, their expected norms, and their training."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from jax import numpy as jnp

from tests.trainables.layers.cases import build, sequence


def built(**options: Any) -> Any:
    """Build a small RotRNN in one program; `build` alone would compile every operation by itself."""
    graph = nnx.graphdef(nnx.eval_shape(lambda: build("rotrnn", **options)))
    arrays = jax.jit(lambda: nnx.state(build("rotrnn", **options)))()
    return nnx.merge(graph, arrays)


def expected_norms(layer: Any, steps: int) -> np.ndarray:
    """Return E||x_t||^2 of every head from zero, (steps, H): unit responses are summed, not sampled."""
    heads, _, width = layer.B.shape
    impulses = jnp.zeros((width, steps, width)).at[:, 0].set(jnp.eye(width))
    states = np.asarray(jax.jit(jax.vmap(lambda u: layer.run(u)[1]))(impulses), np.float64)
    pairs = states.reshape(width, steps, 2, heads, -1)
    return np.cumsum(np.sum(pairs**2, axis=(0, 2, 4)), axis=0)


def trained(layer: Any, steps: int) -> Any:
    """Return the layer after some large steps of Adam towards random targets."""
    u, target = sequence(64, seed=3), sequence(64, seed=4)
    optimiser = nnx.Optimizer(layer, optax.adam(0.1), wrt=nnx.Param)

    @nnx.jit
    def update(layer: Any, optimiser: Any) -> None:
        optimiser.update(layer, nnx.grad(lambda layer: jnp.mean((layer(u) - target) ** 2))(layer))

    for _ in range(steps):
        update(layer, optimiser)
    return layer
