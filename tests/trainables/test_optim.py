"""The schedule's shape, and two groups under AdamW."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

from trainables.optim import ADAM, Rates, recurrent_path, schedule, updated


def _shape(steps: int, warmup: float) -> np.ndarray:
    traced = jax.jit(jax.vmap(schedule, in_axes=(0, None, None)))
    return np.asarray(traced(jnp.arange(steps), jnp.float32(steps), jnp.float32(warmup)))


def test_schedule_rises_then_falls() -> None:
    """A tenth of the steps rises linearly to the peak; a cosine falls from there to nearly 0."""
    shares = _shape(200, 0.1)
    np.testing.assert_allclose(shares[:20], np.arange(1, 21) / 20, rtol=1e-6)
    np.testing.assert_allclose(shares[20:], (1 + np.cos(np.pi * np.arange(180) / 180)) / 2, atol=1e-6)
    assert 0 < shares[-1] < 1e-4


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0.0), (1, 1.0), (3, 0.5), (10, 0.0), (10, 1.0)])
def test_schedule_at_its_edges(steps: int, warmup: float) -> None:
    """Every share lies in (0, 1], and the peak is reached, however short the trial."""
    shares = _shape(steps, warmup)
    assert np.all((shares > 0) & (shares <= 1))
    assert shares.max() == pytest.approx(1)


def test_schedule_stays_at_zero_after_its_end() -> None:
    """Steps beyond the schedule do not move."""
    assert float(schedule(jnp.int32(12), jnp.float32(10), jnp.float32(0.1))) == 0


def test_recurrent_parameters_are_those_of_a_layer() -> None:
    """A name counts as recurrent inside a layer only."""
    recurrent = recurrent_path({"B", "theta"})
    assert recurrent(("blocks", "0", "layer", "B"))
    assert not recurrent(("blocks", "0", "layer", "C"))
    assert not recurrent(("head", "B"))


def test_two_groups_follow_optax() -> None:
    """Each group moves as optax's AdamW does with the group's rate and decay."""
    random = np.random.default_rng(0)
    params = jnp.asarray(random.normal(size=5), jnp.float32)
    rates = Rates(jnp.float32(1e-2), jnp.float32(3e-3), jnp.float32(0.1))
    rules = optax.adamw(1e-2, weight_decay=0.1), optax.adamw(3e-3, weight_decay=0.0)
    expected = [params[:3], params[3:]]
    states = [rule.init(part) for rule, part in zip(rules, expected, strict=True)]
    moments = ADAM.init(params)
    for _ in range(4):
        gradients = jnp.asarray(random.normal(size=5), jnp.float32)
        params, moments = updated(params, gradients, moments, 3, rates)
        for group, part in enumerate((gradients[:3], gradients[3:])):
            moves, states[group] = rules[group].update(part, states[group], expected[group])
            expected[group] = optax.apply_updates(expected[group], moves)
    np.testing.assert_allclose(params, np.concatenate(expected), rtol=1e-6)
