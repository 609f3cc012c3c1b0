"""Powers of decays are right to the last bits."""

from __future__ import annotations

import jax
import numpy as np
from jax import numpy as jnp

from trainables.layers.recurrence.planar import doublings, table


def test_doublings_keep_every_digit() -> None:
    """decay^4096 is as good as its float32 form allows, where plain squaring loses three digits."""
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, 200)
    moduli = np.random.default_rng(1).uniform(0.999, 0.99999, 200)
    decay = jnp.stack([jnp.float32(moduli * np.cos(angles)), jnp.float32(moduli * np.sin(angles))])
    exact = np.asarray(decay[0], np.float64) + 1j * np.asarray(decay[1], np.float64)
    powers = jax.jit(doublings, static_argnums=1)(decay, 13)
    for k, power in enumerate(np.asarray(powers, np.float64)):
        error = abs(power[0] + 1j * power[1] - exact ** (2**k)) / abs(exact) ** (2**k)
        assert error.max() < 1.5e-7, k


def test_table() -> None:
    """Every power up to a count that is no power of two."""
    decay = jnp.array([[0.6, -0.3], [0.7, 0.9]])
    exact = np.array([0.6 + 0.7j, -0.3 + 0.9j])
    rows = np.asarray(table(decay, 11))
    np.testing.assert_allclose(rows[:, 0] + 1j * rows[:, 1], exact ** np.arange(11)[:, None], rtol=1e-6)
    assert table(decay, 1).shape == (1, 2, 2)
