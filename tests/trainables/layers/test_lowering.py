"""Whole layers with their GPU kernels lower for a GPU, gradients included, on a machine without one."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from flax import nnx
from jax import Array
from jax import numpy as jnp

from tests.trainables.layers.cases import LOWERED_HERE, NAMES, D, algorithms, build

FAST = {"s6", "rg_lru", "delta_net"}
"""The varying recurrence of real and of complex numbers, and the delta rule."""

CASES = [
    pytest.param(name, options, marks=[] if name in FAST else [pytest.mark.slow])
    for name in NAMES
    if "pallas" in algorithms(name)
    for options in [{"complex": True} if name == "rg_lru" else {}]
]


@pytest.mark.slow_after(6)
@LOWERED_HERE
@pytest.mark.parametrize(("name", "options"), CASES)
def test_layers_lower_for_a_gpu(name: str, options: dict[str, Any]) -> None:
    """The gradient of a batch with `algorithm: pallas` has kernels, at least one each way."""
    graph, arrays = nnx.split(build(name, algorithm="pallas", **options))

    def loss(arrays: Any, batch: Array) -> Array:
        return jnp.sum(jax.vmap(nnx.merge(graph, arrays))(batch) ** 2)

    traced = jax.jit(jax.grad(loss)).trace(arrays, jnp.zeros((2, 100, D)))
    program = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert program.count("@__gpu$xla.gpu.triton") >= 2
