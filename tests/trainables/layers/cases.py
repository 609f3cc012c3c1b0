"""Small layers of every kind, built once."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from jax import Array
from jax import numpy as jnp
from numpy.typing import NDArray

from trainables.layers import LAYERS
from trainables.layers.layer import Layer

D, N = 4, 16
OPTIONS: dict[str, dict[str, Any]] = {
    "rotrnn": {"heads": 4},
    "s5": {"blocks": 2},
    "rot_gated": {"heads": 4},
    "rg_lru": {"heads": 4},
    "attention": {"heads": 2, "context": 24},
    "delta_net": {"heads": 2},
    "gated_delta_net": {"heads": 2},
    # One head: two values of a head are nearly 0 at some step, and their norm magnifies rounding to 2e-5.
    "delta_product": {"heads": 1},
}
NAMES = tuple(LAYERS)
RELATED = frozenset(
    {
        "min_gru",
        "rot_gated",
        "gated_delta_net",
        "delta_product",
        "liquid_s4",
        "gru",
        "lds",
        "linear_rnn",
        "relu_rnn",
    }
)
"""Layers that share their code over time with another one; their longest tests are marked slow."""

REPRESENTATIVE = frozenset({"rotrnn", "s4", "s6", "rg_lru", "delta_net", "lstm"})
"""One layer of each way to compute a recurrence, for what takes seconds to compile."""

LOWERED_HERE = pytest.mark.skipif(
    jax.__version_info__ >= (0, 11) and jax.default_backend() != "gpu",
    reason="JAX 0.11 and later lower kernels only on a machine with a GPU",
)
"""Marks tests that lower kernels for a GPU."""

Floats = NDArray[np.float64]


def build(name: str, *, seed: Any = 0, **options: Any) -> Layer:
    """Build a small layer; options replace those of `OPTIONS`."""
    merged: dict[str, Any] = {"d_model": D, "d_state": N, **OPTIONS.get(name, {}), **options}
    make: Any = LAYERS[name]
    return make(rngs=nnx.Rngs(seed), **merged)


@cache
def built(name: str, bidirectional: bool = False) -> Layer:
    """Return the small layer of a name that all tests share."""
    return build(name, bidirectional=bidirectional)


def bidirectional_names() -> tuple[str, ...]:
    """Return the layers that can read a sequence backwards too."""
    rules = {name: LAYERS.settings(name).needs for name in LAYERS}
    return tuple(
        name
        for name, needs in rules.items()
        if all(need.holds(True) for need in needs if need.of == ("bidirectional",))
    )


def algorithms(name: str) -> tuple[str, ...]:
    """Return the algorithms of a layer that can be forced."""
    option = LAYERS.settings(name).options.get("algorithm")
    return () if option is None or option.choices is None else tuple(f for f in option.choices if f != "auto")


def sequence(length: int, width: int = D, seed: int = 1) -> Array:
    """Return u (L, D), standard normal; drawn by numpy, for JAX would compile a program for each shape."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal((length, width), np.float32))


def exact(layer: Layer) -> dict[str, Floats]:
    """Return a layer's arrays in float64."""
    return {name: np.asarray(value, np.float64) for name, value in nnx.to_pure_dict(nnx.state(layer)).items()}


def apart(actual: Any, expected: Any) -> float:
    """Return the largest difference, relative to the largest expected number."""
    actual, expected = np.asarray(actual, np.complex128), np.asarray(expected, np.complex128)
    assert actual.shape == expected.shape
    return float(np.max(np.abs(actual - expected)) / max(np.max(np.abs(expected)), 1e-30))
