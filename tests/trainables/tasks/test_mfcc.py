"""Mel-frequency cepstral coefficients against the sums that define them, and pure tones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trainables.tasks.mfcc import FEATURES, coefficients, frames

RATE = 16_000


def tone(hertz: float, samples: int = RATE) -> np.ndarray:
    return np.rint(8000 * np.sin(2 * np.pi * hertz * np.arange(samples) / RATE)).astype(np.int16)


def mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


def by_definition(frame: np.ndarray) -> list[float]:
    """Return the coefficients of one frame of 200 samples in [-1, 1), by sums without a fast transform."""
    windowed = [math.sin(math.pi * n / 200) ** 2 * float(value) for n, value in enumerate(frame)]
    power = [
        sum(v * math.cos(2 * math.pi * k * n / 200) for n, v in enumerate(windowed)) ** 2
        + sum(v * math.sin(2 * math.pi * k * n / 200) for n, v in enumerate(windowed)) ** 2
        for k in range(101)
    ]
    corner = [700 * (10 ** (mel(8000) * j / 65 / 2595) - 1) for j in range(66)]
    heard = []
    for low, middle, high in zip(corner, corner[1:], corner[2:], strict=False):
        weights = [
            max(0.0, min((80 * k - low) / (middle - low), (high - 80 * k) / (high - middle)))
            for k in range(101)
        ]
        heard.append(math.log(sum(w * p for w, p in zip(weights, power, strict=True)) + 1e-6))
    return [
        math.sqrt((1 if c == 0 else 2) / 64)
        * sum(h * math.cos(math.pi * c * (2 * m + 1) / 128) for m, h in enumerate(heard))
        for c in range(FEATURES)
    ]


def test_a_frame_is_what_the_sums_say() -> None:
    sound = np.random.default_rng(0).integers(-3000, 3000, size=1000).astype(np.int16)
    found = coefficients(sound[None], RATE)
    assert found.shape == (1, frames(1000), FEATURES) == (1, 11, 20)
    assert found[0, 4].tolist() == pytest.approx(by_definition(sound[300:500] / 2**15), rel=1e-9)
    mirrored = np.concatenate([sound[100:0:-1], sound[:100]])
    assert found[0, 0].tolist() == pytest.approx(by_definition(mirrored / 2**15), rel=1e-9)


def test_silence_and_loudness() -> None:
    silent = coefficients(np.zeros((1, RATE), np.int16), RATE)
    assert silent[0, :, 0] == pytest.approx(8 * math.log(1e-6))
    assert np.abs(silent[..., 1:]).max() < 1e-12
    quiet, loud = (coefficients((tone(1000) // part)[None], RATE)[0, 80, 0] for part in (10, 1))
    assert silent[0, 80, 0] < quiet < loud


def test_tones_differ_by_pitch_and_not_by_time() -> None:
    low, high = coefficients(np.stack([tone(300), tone(3000)]), RATE)
    assert low[40] == pytest.approx(low[120], abs=0.05)  # a period of 300 Hz is no whole number of hops
    assert low[80, 1] > 10 > -10 > high[80, 1]  # the second coefficient weighs low filters against high ones
