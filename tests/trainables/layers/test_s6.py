"""S6 starts as Mamba's published code does, and is decayed where it does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainables.layers.cases import build, exact
from tests.trainables.toy import toy_data, toy_trial
from trainables.engine import Engine

WIDE = {"d_model": 128, "d_state": 8, "expand": 8}
"""1,024 channels, and a rank of 8."""


@pytest.mark.slow
def test_decays_start_from_the_first_whole_numbers() -> None:
    """exp(A_log) is 1 to N in every channel (S4D-Real), and D is 1."""
    arrays = exact(build("s6", d_state=16))
    np.testing.assert_allclose(np.exp(arrays["A_log"]), np.tile(np.arange(1, 17), (8, 1)), rtol=1e-6)
    np.testing.assert_array_equal(arrays["D"], 1)


@pytest.mark.slow
def test_steps_start_log_uniform() -> None:
    """softplus(dt_bias) is between 0.001 and 0.1; a quarter of the channels is in each quarter of the log."""
    steps = np.log1p(np.exp(exact(build("s6", **WIDE))["dt_bias"]))
    assert 0.001 * (1 - 1e-4) <= steps.min() < 0.00105
    assert 0.095 < steps.max() <= 0.1 * (1 + 1e-4)
    shares = np.histogram(np.log10(steps), bins=4, range=(-3.0001, -0.9999))[0] / len(steps)
    np.testing.assert_allclose(shares, 0.25, atol=0.06)


def test_the_projection_of_the_steps_starts_uniform() -> None:
    """dt_proj is uniform within 1 / sqrt(R): its variance is a third of 1 / R, and its tails are cut."""
    weights = exact(build("s6", **WIDE))["dt_proj"]
    assert weights.shape == (1024, 8)
    assert 0.99 * 8**-0.5 < np.abs(weights).max() <= 8**-0.5
    assert np.var(weights) == pytest.approx(1 / 24, rel=0.03)


@pytest.mark.slow
def test_the_published_parameters_are_exempt_from_weight_decay() -> None:
    """Weight decay changes a step of every parameter but A_log, D and dt_bias; conv_bias starts at zero."""
    model = {"layer": "s6", "d_state": 4, "options": {}, "bidirectional": False}
    trials = [toy_trial(model=model, weight_decay=decay, warmup=0.0) for decay in (0.0, 10.0)]
    engine = Engine(trials[0], toy_data())
    snapshots = []
    for trial in trials:
        engine.admit(0, trial)
        engine.advance({0: 1})
        snapshots.append(engine.snapshot(0))
        engine.evict(0)
    plain, decayed = snapshots
    prefix = "params/blocks/0/layer/"
    names = {name for name in plain if name.startswith(prefix)}
    same = {name.removeprefix(prefix) for name in names if np.array_equal(plain[name], decayed[name])}
    assert same == {"A_log", "D", "dt_bias", "conv_bias"}
