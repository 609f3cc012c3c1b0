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


def delta_net(p: Arrays, u: Floats, *, signed: bool = False, J: int = 1) -> Answer:
    """Return outputs and matrices, for one or J steps of the delta rule a row; with a decay if there is one.

    Source: Parallelizing linear transformers with the delta rule, section 2; DeltaProduct, equation 2.
    """
    heads, width = p["W_beta"].shape[-2], len(p["W_q"][0])
    many = {
        name: p[name].reshape(J, -1, p[name].shape[-1])
        for name in ("W_k", "W_v", "conv_k", "conv_v", "W_beta")
    }
    queries = _conv(p["conv_q"], u @ p["W_q"].T)
    keys, values = ([_conv(many[f"conv_{x}"][j], u @ many[f"W_{x}"][j].T) for j in range(J)] for x in "kv")
    memory = np.zeros((heads, len(p["W_q"]) // heads, width // heads))
    outputs, states = [], []
    for t, now in enumerate(u):
        if "A_log" in p:
            rates = np.log1p(np.exp(p["W_alpha"] @ now + p["dt_bias"]))
            memory = np.exp(-np.exp(p["A_log"]) * rates)[:, None, None] * memory
        for j in range(J):
            sizes = (1 + signed) * _sigmoid(many["W_beta"][j] @ now)
            ks, vs = (series[j][t].reshape(heads, -1) for series in (keys, values))
            for h in range(heads):
                key = ks[h] / np.sqrt(ks[h] @ ks[h] + 1e-6)
                turn = np.eye(len(key)) - sizes[h] * np.outer(key, key)
                memory[h] = turn @ memory[h] + sizes[h] * np.outer(key, vs[h])
        answers = []
        for query, matrix in zip(queries[t].reshape(heads, -1), memory, strict=True):
            answer = matrix.T @ (query / np.sqrt(query @ query + 1e-6))
            answers.append(answer / np.sqrt(np.mean(answer**2) + 1e-5) * p["norm"])
        gate = p["W_g"] @ now if "W_g" in p else None
        outputs.append(np.concatenate(answers) * (1 if gate is None else gate * _sigmoid(gate)))
        states.append(memory.copy())
    return np.array(outputs) @ p["out_proj"].T, np.array(states)


def _conv(weights: Floats, rows: Floats, bias: Any = 0) -> Any:
    """Return SiLU of the causal convolution of each channel."""
    padded = np.concatenate([np.zeros((weights.shape[1] - 1, rows.shape[1])), rows])
    width = weights.shape[1]
    out = np.array([np.sum(weights.T * padded[t : t + width], axis=0) for t in range(len(rows))]) + bias
    return out * _sigmoid(out)


def _sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))
