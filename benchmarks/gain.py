"""The growth of hidden states of a diagonal recurrence with eigenvalues on a ring, and its prediction.

    sweep experiment experiments/lru-figure-9.yaml

With inputs of white noise E|x_t|^2 tends to the prediction
E|B u|^2 log((1 - r_min^2) / (1 - r_max^2)) / (r_max^2 - r_min^2).

Source: LRU, Proposition 3 and Figure 9.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def ratio(
    *, r_min: float, r_max: float, seed: int, states: int = 2_000, length: int = 5_000, skip: int = 0
) -> dict[str, Any]:
    """Return the measured gain by the predicted one.

    `skip` seeds, whose results have been seen, are left out: seed k draws what k + `skip` would.
    """
    rng = np.random.default_rng(seed + skip)
    radius = np.sqrt(rng.uniform(r_min**2, r_max**2, states))
    eigenvalues = radius * np.exp(2j * np.pi * rng.random(states))
    state, total, counted = np.zeros(states, complex), 0.0, 0
    for step in range(length):
        noise = (rng.normal(size=states) + 1j * rng.normal(size=states)) / np.sqrt(2)
        state = eigenvalues * state + noise
        if step >= length // 2:
            total, counted = total + float(np.mean(np.abs(state) ** 2)), counted + 1
    predicted = np.log((1 - r_min**2) / (1 - r_max**2)) / (r_max**2 - r_min**2)
    return {"value": total / counted / float(predicted)}
