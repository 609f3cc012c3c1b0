"""Cosines and sines are right to the last digits at any angle, and have their derivatives."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest
from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.circle import LARGEST, cosine_sine
from trainables.layers.recurrence.planar import polar


def _exact(angles: Any) -> tuple[Any, Any]:
    wide = np.asarray(angles, np.longdouble)
    return np.cos(wide), np.sin(wide)


@pytest.mark.parametrize("largest", [1e-20, 1e-3, 1.0, 30.0, LARGEST, 2 * LARGEST, 1e8, 3e38])
def test_last_digits(largest: float) -> None:
    """Within 2 units in the last place, next to multiples of pi / 2 too, where few digits are left."""
    angles = np.random.default_rng(0).uniform(-largest, largest, 100_000).astype(np.float32)
    zeros = (np.arange(1, 2 + min(1_000, int(largest))) * np.pi / 2).astype(np.float32)
    angles = np.concatenate([angles, zeros, -zeros, np.nextafter(zeros, 0, dtype=np.float32)])
    for actual, exact in zip(jax.jit(cosine_sine)(angles), _exact(angles), strict=True):
        units = np.abs(np.asarray(actual, np.longdouble) - exact) / np.spacing(
            np.abs(exact).astype(np.float32)
        )
        assert np.max(units) < 2


def test_no_number() -> None:
    """An infinite angle has no cosine, and what is no number stays none."""
    for actual in cosine_sine(jnp.array([np.inf, -np.inf, np.nan], jnp.float32)):
        assert np.isnan(actual).all()


def test_derivatives() -> None:
    """First and second derivatives are those of cosine and sine, at large angles too."""
    angles = jnp.array([0.3, -2.0, 900.0, 5e4], jnp.float32)
    along = jnp.ones_like(angles)

    def once(angles: Array) -> Any:
        return jax.jvp(cosine_sine, (angles,), (along,))[1]

    first, second = jax.jit(lambda angles: jax.jvp(once, (angles,), (along,)))(angles)
    cosine, sine = (np.asarray(exact, float) for exact in _exact(angles))
    np.testing.assert_allclose(jnp.stack(first), np.stack([-sine, cosine]), rtol=1e-6)
    np.testing.assert_allclose(jnp.stack(second), np.stack([-cosine, -sine]), rtol=1e-6)


def test_a_neighbour_changes_no_bit() -> None:
    """Angles that need the slow way are computed in it, and leave the others of the batch as they are."""
    angles = np.random.default_rng(1).uniform(-10, 10, (3, 1000)).astype(np.float32)
    beside = angles.copy()
    beside[1, ::7] *= 1e6
    run = jax.jit(jax.vmap(cosine_sine))
    for alone, mixed in zip(run(angles), run(beside), strict=True):
        np.testing.assert_array_equal(alone[::2], mixed[::2])
    for mixed, exact in zip(run(beside), _exact(beside), strict=True):
        np.testing.assert_allclose(mixed, exact.astype(float), atol=1.5e-7)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="elsewhere XLA computes all cosines")
def test_slow_way_is_not_taken_for_nothing() -> None:
    """Without large angles no cosine of XLA runs: all stand in a loop, from which none is moved out."""
    text = jax.jit(jax.vmap(cosine_sine)).lower(jnp.zeros((2, 64))).compile().as_text()
    assert "cosine(" in text
    computations = re.sub(r"metadata={[^}]*}", "", text).split("\n\n")
    around = [computation for computation in computations if "while(" in computation]
    assert around
    assert "cosine" not in "".join(around)


def test_polar() -> None:
    """Polar numbers and their derivative by the angle, in reverse."""
    angle = jnp.float32(0.7)
    value, slope = jax.jit(jax.value_and_grad(lambda angle: polar(jnp.float32(2), angle[None])[0, 0]))(angle)
    assert float(value) == pytest.approx(2 * np.cos(0.7), rel=1e-6)
    assert float(slope) == pytest.approx(-2 * np.sin(0.7), rel=1e-6)
