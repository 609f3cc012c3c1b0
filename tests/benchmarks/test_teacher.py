"""What `benchmarks.teacher` measures: a convolution, learnt from Glorot's matrices, and how fast."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.teacher import LARGEST, LENGTH, SEQUENCES, error, trajectories


def test_an_output_is_the_convolution_of_its_input() -> None:
    inputs, outputs = trajectories(seed=0)
    assert inputs.shape == outputs.shape == (SEQUENCES, LENGTH, 1)
    assert not inputs[:, 0].any()  # sin 0
    np.testing.assert_allclose(outputs[:, 1], 0.1 * inputs[:, 1], atol=1e-7)
    h_1 = 0.1 * np.exp(-0.015) * np.cos(0.04) ** 2
    np.testing.assert_allclose(outputs[:, 2], 0.1 * inputs[:, 2] + h_1 * inputs[:, 1], atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["linear_rnn", "tanh_rnn"])
def test_the_value_is_the_mean_logarithm_of_the_curve(layer: str) -> None:
    answer = error(layer=layer, rate=1e-3, seed=0, steps=20)
    assert answer["steps"] == list(range(20))
    assert answer["values"][-1] < answer["values"][0]
    assert answer["value"] == pytest.approx(np.mean(np.log10(answer["values"])))


def test_training_that_overflows_has_the_largest_error() -> None:
    """Infinities and numbers that are none would leave no mean, and no claim could be judged."""
    answer = error(layer="linear_rnn", rate=1.0, seed=0, steps=4)
    assert answer["values"][-1] == LARGEST
    assert np.isfinite(answer["value"])
