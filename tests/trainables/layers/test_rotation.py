"""expm(M - M^T) of small matrices, and its gradient."""

from __future__ import annotations

import subprocess
import sys

import jax
import numpy as np
import pytest
import scipy.linalg
from jax import numpy as jnp

from trainables.layers.rotation import rotation


@pytest.mark.parametrize(("size", "scale"), [(2, 1.0), (5, 1e-3), (8, 1.0), (8, 30.0), (64, 1.0)])
def test_equals_scipy(size: int, scale: float) -> None:
    """Values equal float64 to float32's digits of the angle; P is a rotation."""
    weights = scale * np.random.default_rng(0).standard_normal((3, size, size))
    actual = np.asarray(jax.jit(rotation)(jnp.float32(weights)), np.float64)
    narrow = np.float32(weights).astype(np.float64)
    expected = np.array([scipy.linalg.expm(m - m.T) for m in narrow])
    angle = max(np.linalg.norm(m - m.T, 2) for m in narrow)
    assert abs(actual - expected).max() < 1e-6 * max(1, angle / 10)
    np.testing.assert_allclose(np.linalg.det(actual), 1, rtol=1e-5 * max(1, angle))


@pytest.mark.slow
def test_gradient() -> None:
    """The gradient equals that of jax.scipy's expm, vmapped too."""
    weights = jax.random.normal(jax.random.key(0), (2, 4, 6, 6))
    towards = jax.random.normal(jax.random.key(1), (4, 6, 6))

    def loss(exponential: object, m: jax.Array) -> jax.Array:
        return jnp.sum(exponential(m) * towards)  # type: ignore[operator]

    actual = jax.jit(jax.vmap(jax.grad(lambda m: loss(rotation, m))))(weights)
    expected = jax.jit(jax.grad(lambda m: loss(lambda m: jax.scipy.linalg.expm(m - m.mT), m)))
    for slot in range(2):
        np.testing.assert_allclose(actual[slot], expected(weights[slot]), atol=2e-5)


def test_zero() -> None:
    """No rotation at zero, with a finite gradient."""
    np.testing.assert_array_equal(jax.jit(rotation)(jnp.zeros((1, 3, 3)))[0], np.eye(3))
    gradient = jax.jit(jax.grad(lambda m: rotation(m)[0, 0, 1]))(jnp.zeros((1, 3, 3)))
    assert gradient[0, 0, 1] == 1
    assert gradient[0, 1, 0] == -1


@pytest.mark.slow
def test_ends_whatever_the_entries_are() -> None:
    """An infinite entry gives no finite answer, and gives it; so does a row whose sum overflows give its own.

    In a process of its own, with a limit: a program that squares two thousand million times does not end.
    """
    code = (
        "import jax, numpy as np\n"
        "from jax import numpy as jnp\n"
        "from trainables.layers.rotation import rotation\n"
        "graded = jax.jit(jax.value_and_grad(lambda m: jnp.sum(rotation(m))))\n"
        "for value in (np.inf, np.nan, 3e38):\n"
        "    weights = jnp.zeros((2, 3, 3)).at[0, 0, 1:].set(jnp.float32(value))\n"
        "    print([bool(np.isfinite(part).all()) for part in graded(weights)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.splitlines() == [str([finite] * 2) for finite in (False, False, True)], done.stderr
