"""Mel-frequency cepstral coefficients of sound, with the numbers of Kidger et al. 2020.

Their code calls torchaudio's `MFCC(log_mels=True, n_mfcc=20, melkwargs={n_fft: 200, n_mels: 64})` on samples
in [-1, 1): frames of 200 samples under a Hann window, 100 apart and centred, mirrored at both ends; powers of
the Fourier transform; 64 triangular filters that are evenly spaced in mels; logarithms; and the first 20
coefficients of an orthonormal cosine transform (DCT-II).

Source: Kidger et al. 2020 (neural controlled differential equations), section 4.2 and its repository;
O'Shaughnessy 1987 for mels.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.fft import dct

FEATURES = 20
"""Number of coefficients of a frame."""

HOP = 100
"""Number of samples from one frame to the next."""

_WINDOW = 200
_FILTERS = 64
_FLOOR = 1e-6
"""Number that is added to the power before its logarithm."""

_FULL_SCALE = 2**15


def frames(samples: int) -> int:
    """Return the number of frames in a sound with this number of samples."""
    return 1 + samples // HOP


def coefficients(sound: np.ndarray, rate: int) -> np.ndarray:
    """Return the coefficients of sounds.

    Args:
        sound: 16-bit samples (n, S), where S exceeds half a frame.
        rate: Samples a second.

    Returns:
        (n, 1 + S // 100, 20) float64.
    """
    around = _WINDOW // 2
    padded = np.pad(sound / _FULL_SCALE, ((0, 0), (around, around)), mode="reflect")
    framed = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW, axis=1)[:, ::HOP]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)
    power = np.abs(np.fft.rfft(framed * window)) ** 2
    heard = np.log(power @ _filters(rate) + _FLOOR)
    return np.asarray(dct(heard, type=2, norm="ortho")[..., :FEATURES])


@cache
def _filters(rate: int) -> np.ndarray:
    """Return the weight of each frequency (101,) in each of the 64 filters; narrow filters may have none."""
    frequencies = np.linspace(0, rate / 2, _WINDOW // 2 + 1)
    corners = _hertz(np.linspace(0, _mels(rate / 2), _FILTERS + 2))
    widths = np.diff(corners)
    above = (frequencies[:, None] - corners[:-2]) / widths[:-1]
    below = (corners[2:] - frequencies[:, None]) / widths[1:]
    return np.maximum(0, np.minimum(above, below))


def _mels(hertz: float) -> float:
    return 2595 * float(np.log10(1 + hertz / 700))


def _hertz(mels: np.ndarray) -> np.ndarray:
    return 700 * (10 ** (mels / 2595) - 1)
