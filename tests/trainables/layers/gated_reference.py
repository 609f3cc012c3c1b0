"""The layers that look at their input as their papers write them: float64, one numpy loop over time each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.linalg

from tests.trainables.layers.cases import Floats

Arrays = Mapping[str, Floats]
Answer = tuple[Any, Any]
"""Outputs (L, D), and states (L, ...)."""


def gru(p: Arrays, u: Floats) -> Answer:
    """Return outputs and states."""
    state, states = np.zeros(len(p["b"][0])), []
    for now in u:
        reset, update = (_sigmoid(p["W"][k] @ now + p["U"][k] @ state + p["b"][k]) for k in (0, 1))
        candidate = np.tanh(p["W"][2] @ now + p["U"][2] @ (reset * state) + p["b"][2])
        state = (1 - update) * candidate + update * state
        states.append(state)
    return np.array(states) @ p["C"].T + u * p["D"], np.array(states)


def min_gru(p: Arrays, u: Floats) -> Answer:
    """Return outputs and states; source: Were RNNs all we needed, section 3.1 and appendix B."""
    state, states = np.zeros(len(p["W_z"])), []
    for now in u:
        update, candidate = _sigmoid(p["W_z"] @ now), p["W_h"] @ now
        positive = np.where(candidate >= 0, candidate + 0.5, _sigmoid(candidate))
        state = (1 - update) * state + update * positive
        states.append(state)
    return np.array(states) @ p["C"].T + u * p["D"], np.array(states)


def rot_gated(p: Arrays, u: Floats) -> Answer:
    """Return outputs and states, in the coordinates of the input: P Theta_t P^T, head by head."""
    heads, size, _ = p["B"].shape
    bases = [scipy.linalg.expm(p["M"][h] - p["M"][h].T) for h in range(heads)]
    state, states = np.zeros((heads, size)), []
    for now in u:
        rates = p["gamma_log"] + p["W_gamma"] @ now + p["b_gamma"]
        gamma, theta = np.exp(-np.exp(rates)), p["theta"] + p["W_theta"] @ now
        for h in range(heads):
            turn = np.eye(size)
            for i, angle in enumerate(theta[h]):
                cos, sin = np.cos(angle), np.sin(angle)
                turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, -sin], [sin, cos]]
            xi = np.sqrt((1 - gamma[h] ** 2) / np.trace(p["B"][h].T @ p["B"][h]))
            state[h] = gamma[h] * bases[h] @ turn @ bases[h].T @ state[h] + xi * p["B"][h] @ now
        states.append(state.ravel().copy())
    return np.array(states) @ p["C"].T + u * p["D"], np.array(states)


def rg_lru(p: Arrays, u: Floats) -> Answer:
    """Return outputs and states; source: Griffin, section 2.4."""
    heads, size, _ = p["W_a"].shape
    turning = "theta" in p
    state, states = np.zeros(heads * size, complex if turning else float), []
    for now in u:
        x = p["B"] @ now
        blocks = x.reshape(heads, size)
        forget = _sigmoid(np.concatenate([w @ b for w, b in zip(p["W_a"], blocks, strict=True)]) + p["b_a"])
        take = _sigmoid(np.concatenate([w @ b for w, b in zip(p["W_x"], blocks, strict=True)]) + p["b_x"])
        decay = np.exp(-8 * forget * np.log1p(np.exp(p["Lambda"])))
        turn = np.exp(1j * forget * p["theta"]) if turning else 1
        state = decay * turn * state + np.sqrt(1 - decay**2) * take * x
        states.append(state)
    out = p["C"] + 1j * p["C_im"] if turning else p["C"]
    return (np.array(states) @ out.T).real + u * p["D"], np.array(states)


def _sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))
