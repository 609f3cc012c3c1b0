"""Outputs, states and gradients of a layer against a float64 loop and its differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax import numpy as jnp

from tests.trainables.layers.cases import Floats, apart, build, sequence

Reference = Callable[[Mapping[str, Floats], Floats], tuple[Any, Any]]
"""(arrays of the layer, u (L, D)) -> outputs (L, D), and states (L, any)."""


def check(name: str, reference: Reference, *, length: int = 100, **options: Any) -> None:
    """Compare a layer, its parameters moved a little away from their initial values, with its loop.

    The gradient of <outputs, weights> by each parameter and by u is compared along two random directions, on
    which the loop's is a central difference: in float64 with a step of 1e-6 it is right to 1e-9.
    """
    draw = np.random.default_rng(7)
    graph, params, rest = nnx.split(build(name, **options), nnx.Param, ...)
    moved = jax.tree.map(lambda p: p + jnp.asarray(0.1 * draw.standard_normal(p.shape), jnp.float32), params)
    u, weights = sequence(length), sequence(length, seed=2)

    def loss(params: Any, u: Any) -> Any:
        outputs, states = nnx.merge(graph, params, rest).run(u)
        return jnp.vdot(outputs, weights), (outputs, states)

    graded = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    (of_params, of_u), (outputs, states) = graded(moved, u)
    arrays: dict[str, Floats] = {
        path: np.asarray(value, np.float64)
        for part in (moved, rest)
        for path, value in nnx.to_pure_dict(part).items()
    }
    arrays["u"] = np.asarray(u, np.float64)

    def looped(arrays: Mapping[str, Floats]) -> tuple[Any, Any]:
        return reference(arrays, arrays["u"])

    expected, expected_states = looped(arrays)
    assert apart(outputs, expected) < 1e-5
    norms = (
        np.sqrt(np.sum(np.abs(s.reshape(length, -1)) ** 2, axis=1))
        for s in (np.asarray(states), expected_states)
    )
    assert apart(*norms) < 1e-5
    gradients = {**nnx.to_pure_dict(of_params), "u": of_u}
    for path, gradient in gradients.items():
        for _ in range(2):
            along = draw.standard_normal(arrays[path].shape)
            ahead, behind = (
                np.vdot(looped({**arrays, path: arrays[path] + step * along})[0], weights)
                for step in (1e-6, -1e-6)
            )
            exact = (ahead - behind) / 2e-6
            error = abs(np.vdot(gradient, along) - exact) / np.linalg.norm(gradient) / np.linalg.norm(along)
            assert error < 1e-5, (path, error)
